//! A virtio network card, as users' VMMs have it: the host's kernel moves the frames between the
//! queues and a tap device (vhost-net), is notified by ioeventfds and raises the interrupt by
//! irqfds. The VMM answers the registers alone.

use std::fmt::Display;
use std::fs::File;
use std::sync::{Arc, Mutex};

use kvm_ioctls::{IoEventAddress, VmFd};
use kvm_vmm::layout;
use kvm_vmm::transport::{Event, Transport, register};
use vhost::net::VhostNet as _;
use vhost::vhost_kern::net::Net;
use vhost::{VhostBackend as _, VhostUserMemoryRegionInfo, VringConfigData};
use virtio_bindings::bindings::virtio_net::{
    VIRTIO_NET_F_CSUM, VIRTIO_NET_F_GUEST_CSUM, VIRTIO_NET_F_GUEST_TSO4, VIRTIO_NET_F_GUEST_TSO6,
    VIRTIO_NET_F_HOST_TSO4, VIRTIO_NET_F_HOST_TSO6, VIRTIO_NET_F_MAC, VIRTIO_NET_F_MRG_RXBUF,
};
use virtio_queue::{Queue, QueueT as _};
use vm_memory::{GuestMemoryBackend as _, GuestMemoryMmap, GuestMemoryRegion as _};
use vmm_sys_util::eventfd::EventFd;

use crate::failure::Failure;

mod tap;

/// Register DeviceID (virtio 1.2, 5.1.1).
const DEVICE_ID: u32 = 1;
/// Queues, the first one for frames to the guest (virtio 1.2, 5.1.2).
const QUEUES: usize = 2;
/// Most entries of a queue, as many as a card of GearV's has.
const QUEUE_SIZE: u16 = 256;
/// Address of the card: a local one, of one station.
const MAC: [u8; 6] = [0x02, 0x47, 0x56, 0, 0, 1];
/// Offloads for frames from the guest, which need nothing of the tap device, and for those to it.
const FROM_GUEST: u64 =
    1 << VIRTIO_NET_F_CSUM | 1 << VIRTIO_NET_F_HOST_TSO4 | 1 << VIRTIO_NET_F_HOST_TSO6;
const TO_GUEST: u64 =
    1 << VIRTIO_NET_F_GUEST_CSUM | 1 << VIRTIO_NET_F_GUEST_TSO4 | 1 << VIRTIO_NET_F_GUEST_TSO6;
/// Features of a card: those of GDM's that the measurements use.
const FEATURES: u64 = FROM_GUEST | TO_GUEST | 1 << VIRTIO_NET_F_MAC | 1 << VIRTIO_NET_F_MRG_RXBUF;

/// A network card of a VM.
pub(crate) struct Card {
    transport: Mutex<Transport>,
    memory: GuestMemoryMmap,
    tap: File,
    vhost: Net<Arc<GuestMemoryMmap>>,
    /// Signalled by KVM when the driver notifies a queue, and by vhost when the queue has news.
    signals: Vec<Signals>,
}

/// Eventfds of a queue.
struct Signals {
    doorbell: EventFd,
    interrupt: EventFd,
}

impl Card {
    /// Opens the tap device and vhost-net, and connects both to KVM.
    pub(crate) fn open(vm: &VmFd, name: &str, memory: &GuestMemoryMmap) -> Result<Card, Failure> {
        let tap = tap::open(name).map_err(|error| Failure::new(name, error))?;
        let vhost = Net::new(Arc::new(memory.clone())).map_err(failed("/dev/vhost-net"))?;
        vhost.set_owner().map_err(failed("VHOST_SET_OWNER"))?;
        let regions: Vec<_> = memory.iter().map(region).collect();
        let told = vhost.set_mem_table(&regions);
        told.map_err(failed("VHOST_SET_MEM_TABLE"))?;
        let transport = Transport::new(DEVICE_ID, QUEUE_SIZE, FEATURES, MAC.to_vec());
        Ok(Card {
            transport: Mutex::new(transport.with_kernel_queues(QUEUES)),
            memory: memory.clone(),
            tap,
            vhost,
            signals: (0..QUEUES as u32)
                .map(|queue| Signals::new(vm, queue))
                .collect::<Result<_, _>>()?,
        })
    }

    /// Answers a load at an offset.
    pub(crate) fn read(&self, offset: u64, data: &mut [u8]) {
        let transport = self.transport.lock().unwrap_or_else(|e| e.into_inner());
        transport.read(offset, data);
    }

    /// Takes a store at an offset. A reset is answered when the kernel has let go of the queues.
    pub(crate) fn write(&self, offset: u64, value: u32) -> Result<(), Failure> {
        let mut transport = self.transport.lock().unwrap_or_else(|e| e.into_inner());
        match transport.write(offset, value, &self.memory) {
            Some(Event::Started(queues)) => self.start(transport.accepted(), &queues),
            Some(Event::Reset) => self.stop(),
            None => Ok(()),
        }
    }

    /// Has the kernel serve the queues. vhost takes the features that are of the rings and of the
    /// frames' headers; the offloads are the tap device's.
    fn start(&self, accepted: u64, queues: &[Queue]) -> Result<(), Failure> {
        tap::set_up(&self.tap, accepted).map_err(|error| Failure::new("the tap device", error))?;
        let known = self.vhost.get_features();
        let known = known.map_err(failed("VHOST_GET_FEATURES"))?;
        let set = self.vhost.set_features(accepted & known);
        set.map_err(failed("VHOST_SET_FEATURES"))?;
        for (index, (queue, signals)) in queues.iter().zip(&self.signals).enumerate() {
            let started = self.start_queue(index, queue, signals);
            started.map_err(failed("vhost-net's queue"))?;
        }
        Ok(())
    }

    fn start_queue(&self, index: usize, queue: &Queue, signals: &Signals) -> vhost::Result<()> {
        let place = VringConfigData {
            queue_max_size: queue.max_size(),
            queue_size: queue.size(),
            flags: 0,
            desc_table_addr: queue.desc_table(),
            used_ring_addr: queue.used_ring(),
            avail_ring_addr: queue.avail_ring(),
            log_addr: None,
        };
        self.vhost.set_vring_num(index, queue.size())?;
        self.vhost.set_vring_addr(index, &place)?;
        self.vhost.set_vring_base(index, 0)?;
        self.vhost.set_vring_call(index, &signals.interrupt)?;
        self.vhost.set_vring_kick(index, &signals.doorbell)?;
        self.vhost.set_backend(index, Some(&self.tap))
    }

    /// Has the kernel let go of the queues: it accesses no buffer behind this.
    fn stop(&self) -> Result<(), Failure> {
        for index in 0..QUEUES {
            let stopped = self.vhost.set_backend(index, None);
            stopped.map_err(failed("VHOST_NET_SET_BACKEND"))?;
        }
        Ok(())
    }
}

impl Signals {
    /// Has KVM signal the driver's notifications of a queue, and raise the card's interrupt.
    fn new(vm: &VmFd, queue: u32) -> Result<Signals, Failure> {
        let eventfd = || EventFd::new(0).map_err(|error| Failure::new("eventfd", error));
        let (doorbell, interrupt) = (eventfd()?, eventfd()?);
        let address = IoEventAddress::Mmio(layout::CARD + u64::from(register::QUEUE_NOTIFY));
        vm.register_ioevent(&doorbell, &address, queue)
            .map_err(|error| Failure::new("the card's notification", error))?;
        // KVM counts SPIs from 0.
        vm.register_irqfd(&interrupt, layout::CARD_INTID - 32)
            .map_err(|error| Failure::new("the card's interrupt", error))?;
        Ok(Signals {
            doorbell,
            interrupt,
        })
    }
}

/// Returns where a region of the guest's memory is in this process.
fn region(region: &vm_memory::GuestRegionMmap) -> VhostUserMemoryRegionInfo {
    VhostUserMemoryRegionInfo {
        guest_phys_addr: region.start_addr().0,
        memory_size: region.len(),
        userspace_addr: region.as_ptr() as u64,
        ..VhostUserMemoryRegionInfo::default()
    }
}

/// Returns what makes a failure of an error, in a step of this name.
fn failed<E: Display>(step: &'static str) -> impl Fn(E) -> Failure {
    move |error| Failure::new(step, error)
}
