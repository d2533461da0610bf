//! Registers of a virtio device behind MMIO (virtio 1.2, 4.2.2).
//!
//! What the device does is not here: a write that starts or resets the device is returned as an
//! [`Event`].

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use virtio_bindings::bindings::virtio_config::VIRTIO_F_VERSION_1;
use virtio_bindings::bindings::virtio_ring::{
    VIRTIO_RING_F_EVENT_IDX, VIRTIO_RING_F_INDIRECT_DESC,
};
use virtio_queue::{Queue, QueueT as _};
use vm_memory::{GuestAddress, GuestMemoryMmap};

#[cfg(test)]
mod tests;

/// Register offsets in bytes (virtio 1.2, 4.2.2).
pub mod register {
    /// The text `virt`.
    pub const MAGIC: u32 = 0x000;
    /// Of the layout.
    pub const VERSION: u32 = 0x004;
    /// Kind of the device.
    pub const DEVICE_ID: u32 = 0x008;
    /// Maker of the device.
    pub const VENDOR_ID: u32 = 0x00c;
    /// Half of the features that are offered.
    pub const DEVICE_FEATURES: u32 = 0x010;
    /// Which half.
    pub const DEVICE_FEATURES_SEL: u32 = 0x014;
    /// Half of the features that are accepted.
    pub const DRIVER_FEATURES: u32 = 0x020;
    /// Which half.
    pub const DRIVER_FEATURES_SEL: u32 = 0x024;
    /// The queue that the following registers mean.
    pub const QUEUE_SEL: u32 = 0x030;
    /// Most entries.
    pub const QUEUE_NUM_MAX: u32 = 0x034;
    /// Entries.
    pub const QUEUE_NUM: u32 = 0x038;
    /// Whether the device may use the queue.
    pub const QUEUE_READY: u32 = 0x044;
    /// Requests are available.
    pub const QUEUE_NOTIFY: u32 = 0x050;
    /// Causes of the interrupt.
    pub const INTERRUPT_STATUS: u32 = 0x060;
    /// Causes that were seen.
    pub const INTERRUPT_ACK: u32 = 0x064;
    /// Progress of the driver.
    pub const STATUS: u32 = 0x070;
    /// Address of the descriptor table.
    pub const QUEUE_DESC_LOW: u32 = 0x080;
    /// Its upper half.
    pub const QUEUE_DESC_HIGH: u32 = 0x084;
    /// Address of the available ring.
    pub const QUEUE_DRIVER_LOW: u32 = 0x090;
    /// Its upper half.
    pub const QUEUE_DRIVER_HIGH: u32 = 0x094;
    /// Address of the used ring.
    pub const QUEUE_DEVICE_LOW: u32 = 0x0a0;
    /// Its upper half.
    pub const QUEUE_DEVICE_HIGH: u32 = 0x0a4;
    /// Configuration of the device's kind.
    pub const CONFIG: u32 = 0x100;
}

/// Value of MagicValue.
const MAGIC: u32 = u32::from_le_bytes(*b"virt");
/// Version of the register layout: without the legacy one.
const VERSION: u32 = 2;
/// VendorID: any number.
const VENDOR: u32 = 0;
/// Status: the driver is ready, and the device has given up (virtio 1.2, 2.1).
const DRIVER_OK: u32 = 4;
const NEEDS_RESET: u32 = 0x40;
/// Features of the transport and of its queue.
const FEATURES: u64 =
    1 << VIRTIO_F_VERSION_1 | 1 << VIRTIO_RING_F_EVENT_IDX | 1 << VIRTIO_RING_F_INDIRECT_DESC;
/// InterruptStatus: buffers were used.
const USED_BUFFERS: u32 = 1;
/// The least and the most significant half of a 64-bit value.
const HALF: u32 = 32;

/// What a write has done to the device.
#[derive(Debug)]
pub enum Event {
    /// The driver is ready, and these are the queues.
    Started(Vec<Queue>),
    /// The driver wants the device to forget all.
    Reset,
}

/// Register InterruptStatus, which the device's thread sets and the driver clears.
#[derive(Clone, Debug, Default)]
pub struct InterruptStatus(Arc<AtomicU32>);

/// Who raises the interrupts of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Raiser {
    /// A thread of this program, which sets InterruptStatus first.
    Thread,
    /// The host's kernel, which cannot set the register: the register says of each interrupt that
    /// buffers were used, and the driver looks at its rings.
    Kernel,
}

impl InterruptStatus {
    /// Notes that buffers were used. Before the interrupt, whose handler reads the register.
    pub fn set(&self) {
        self.0.fetch_or(USED_BUFFERS, Ordering::SeqCst);
    }
}

/// What the driver says of a queue. Addresses are guest-physical.
#[derive(Clone, Copy, Debug, Default)]
struct Setup {
    size: u32,
    is_ready: bool,
    descriptors: u64,
    available: u64,
    used: u64,
}

/// The registers' state.
#[derive(Debug)]
pub struct Transport {
    /// Register DeviceID.
    kind: u32,
    /// Longest queue.
    queue_size: u16,
    offered: u64,
    config: Vec<u8>,
    raiser: Raiser,
    interrupt: InterruptStatus,
    accepted: u64,
    /// Halves of the features that the driver looks at and sets.
    offered_half: u32,
    accepted_half: u32,
    status: u32,
    /// The queue that the driver sets up.
    selected: u32,
    setups: Vec<Setup>,
}

impl Transport {
    /// Makes the registers of a device of this kind, with features and configuration of its own. It
    /// has one queue, and interrupts are a thread's.
    pub fn new(kind: u32, queue_size: u16, features: u64, config: Vec<u8>) -> Transport {
        Transport {
            kind,
            queue_size,
            offered: FEATURES | features,
            config,
            raiser: Raiser::Thread,
            interrupt: InterruptStatus::default(),
            accepted: 0,
            offered_half: 0,
            accepted_half: 0,
            status: 0,
            selected: 0,
            setups: vec![Setup::default()],
        }
    }

    /// Gives the device so many queues, whose interrupts are the host kernel's.
    pub fn with_kernel_queues(mut self, count: usize) -> Transport {
        self.raiser = Raiser::Kernel;
        self.setups = vec![Setup::default(); count];
        self
    }

    /// Returns the features that the driver has accepted.
    pub fn accepted(&self) -> u64 {
        self.accepted
    }

    /// Returns the register InterruptStatus.
    pub fn interrupt_status(&self) -> InterruptStatus {
        self.interrupt.clone()
    }

    /// Answers a load at an offset. A register is one word; of the configuration a load may have
    /// any part, and what lies beyond reads as zeroes.
    pub fn read(&self, offset: u64, data: &mut [u8]) {
        data.fill(0);
        let from = offset.checked_sub(register::CONFIG.into());
        let word = self.word(offset).to_le_bytes();
        let bytes = match from {
            Some(from) => self.config.get(from as usize..).unwrap_or_default(),
            None => &word,
        };
        let length = bytes.len().min(data.len());
        data[..length].copy_from_slice(&bytes[..length]);
    }

    /// Returns the register at an offset.
    fn word(&self, offset: u64) -> u32 {
        let half = |value: u64, half: u32| value.checked_shr(half * HALF).unwrap_or(0) as u32;
        let setup = self.setups.get(self.selected as usize);
        match offset as u32 {
            register::MAGIC => MAGIC,
            register::VERSION => VERSION,
            register::DEVICE_ID => self.kind,
            register::VENDOR_ID => VENDOR,
            register::DEVICE_FEATURES => half(self.offered, self.offered_half.min(HALF)),
            register::QUEUE_NUM_MAX if setup.is_some() => self.queue_size.into(),
            register::QUEUE_READY => setup.is_some_and(|setup| setup.is_ready).into(),
            register::INTERRUPT_STATUS if self.raiser == Raiser::Kernel => USED_BUFFERS,
            register::INTERRUPT_STATUS => self.interrupt.0.load(Ordering::SeqCst),
            register::STATUS => self.status,
            _ => 0,
        }
    }

    /// Takes a store of a word. QueueNotify does not come here: KVM signals it by an eventfd.
    pub fn write(&mut self, offset: u64, value: u32, memory: &GuestMemoryMmap) -> Option<Event> {
        match offset as u32 {
            register::DEVICE_FEATURES_SEL => self.offered_half = value,
            register::DRIVER_FEATURES => self.accept(value),
            register::DRIVER_FEATURES_SEL => self.accepted_half = value,
            register::QUEUE_SEL => self.selected = value,
            register::INTERRUPT_ACK => {
                self.interrupt.0.fetch_and(!value, Ordering::SeqCst);
            }
            register::STATUS => return self.set_status(value, memory),
            offset => self.set_up(offset, value),
        }
        None
    }

    /// Takes half of the driver's features. One that was not offered stays out.
    fn accept(&mut self, value: u32) {
        let Some(shift) = self.accepted_half.checked_mul(HALF) else {
            return;
        };
        let Some(mask) = u64::from(u32::MAX).checked_shl(shift) else {
            return;
        };
        let value = u64::from(value) << shift;
        self.accepted = self.accepted & !mask | value & mask & self.offered;
    }

    /// Takes what the driver says of the selected queue.
    fn set_up(&mut self, offset: u32, value: u32) {
        let Some(setup) = self.setups.get_mut(self.selected as usize) else {
            return;
        };
        let low = |address: &mut u64| *address = *address >> HALF << HALF | u64::from(value);
        let high =
            |address: &mut u64| *address = u64::from(value) << HALF | u64::from(*address as u32);
        match offset {
            register::QUEUE_NUM => setup.size = value,
            register::QUEUE_READY => setup.is_ready = value & 1 != 0,
            register::QUEUE_DESC_LOW => low(&mut setup.descriptors),
            register::QUEUE_DESC_HIGH => high(&mut setup.descriptors),
            register::QUEUE_DRIVER_LOW => low(&mut setup.available),
            register::QUEUE_DRIVER_HIGH => high(&mut setup.available),
            register::QUEUE_DEVICE_LOW => low(&mut setup.used),
            register::QUEUE_DEVICE_HIGH => high(&mut setup.used),
            _ => {}
        }
    }

    /// Takes the driver's status. A driver that is ready with a queue that cannot be one sees
    /// DEVICE_NEEDS_RESET.
    fn set_status(&mut self, value: u32, memory: &GuestMemoryMmap) -> Option<Event> {
        if value == 0 {
            self.reset();
            return Some(Event::Reset);
        }
        let starts = value & !self.status & DRIVER_OK != 0;
        self.status = value;
        if !starts {
            return None;
        }
        let queues = self.setups.iter().map(|setup| self.queue(setup, memory));
        let queues: Option<Vec<Queue>> = queues.collect();
        if queues.is_none() {
            self.status |= NEEDS_RESET;
        }
        queues.map(Event::Started)
    }

    /// Returns a queue, if the driver has described one.
    fn queue(&self, setup: &Setup, memory: &GuestMemoryMmap) -> Option<Queue> {
        let [descriptors, available, used] =
            [setup.descriptors, setup.available, setup.used].map(GuestAddress);
        let mut queue = Queue::new(self.queue_size).ok()?;
        // A size of 0, of no power of two or beyond the longest is refused here, and so is an
        // address that is not aligned; what reaches out of the memory is refused by `is_valid`.
        queue.try_set_size(setup.size.try_into().ok()?).ok()?;
        queue.try_set_desc_table_address(descriptors).ok()?;
        queue.try_set_avail_ring_address(available).ok()?;
        queue.try_set_used_ring_address(used).ok()?;
        queue.set_event_idx(self.accepted & 1 << VIRTIO_RING_F_EVENT_IDX != 0);
        queue.set_ready(setup.is_ready);
        queue.is_valid(memory).then_some(queue)
    }

    /// Forgets all that the driver has said.
    fn reset(&mut self) {
        self.interrupt.0.store(0, Ordering::SeqCst);
        (self.accepted, self.offered_half, self.accepted_half) = (0, 0, 0);
        (self.status, self.selected) = (0, 0);
        self.setups.fill(Setup::default());
    }
}
