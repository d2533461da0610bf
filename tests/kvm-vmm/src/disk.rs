//! A virtio disk, as users' VMMs have it: the notification is an ioeventfd, the interrupt an irqfd,
//! and a thread has several transfers under way at once, by an io_uring.

use std::fs::{File, OpenOptions};
use std::io::{self, Seek as _, SeekFrom};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex};
use std::thread::{self as threads, JoinHandle};

use kvm_ioctls::{IoEventAddress, NoDatamatch, VmFd};
use kvm_vmm::transport::{Event, Transport, register};
use kvm_vmm::{block, layout};
use virtio_queue::Queue;
use vm_memory::GuestMemoryMmap;
use vmm_sys_util::eventfd::EventFd;

use self::backend::Backend;
use crate::failure::Failure;

mod backend;

/// A disk of a VM.
pub(crate) struct Disk {
    /// The registers. vCPUs access them rarely but for InterruptStatus and InterruptACK.
    transport: Mutex<Transport>,
    medium: Medium,
    /// The thread that serves the queue, while the driver is ready.
    thread: Mutex<Option<Thread>>,
    /// Told why the thread has failed.
    failed: Sender<Failure>,
}

/// What the thread works with.
#[derive(Clone)]
struct Medium {
    file: Arc<File>,
    memory: GuestMemoryMmap,
    /// Signalled by KVM when the driver stores to QueueNotify.
    doorbell: Arc<EventFd>,
    /// Raises the interrupt.
    interrupt: Arc<EventFd>,
}

/// A thread that can be ended.
struct Thread {
    is_ended: Arc<AtomicBool>,
    handle: JoinHandle<()>,
}

impl Disk {
    /// Opens the disk past the host's page cache, as the guest's own cache is enough, and connects
    /// it to KVM.
    pub(crate) fn open(
        vm: &VmFd,
        path: &Path,
        memory: &GuestMemoryMmap,
        failed: Sender<Failure>,
    ) -> Result<Disk, Failure> {
        let opened = open(path);
        let (file, bytes) =
            opened.map_err(|error| Failure::new(path.display().to_string(), error))?;
        let config = block::config(bytes);
        let transport =
            Transport::new(block::DEVICE_ID, block::QUEUE_SIZE, block::FEATURES, config);
        Ok(Disk {
            transport: Mutex::new(transport),
            medium: Medium {
                file: Arc::new(file),
                memory: memory.clone(),
                doorbell: Arc::new(doorbell(vm)?),
                interrupt: Arc::new(interrupt(vm)?),
            },
            thread: Mutex::new(None),
            failed,
        })
    }

    /// Answers a load at an offset.
    pub(crate) fn read(&self, offset: u64, data: &mut [u8]) {
        let transport = self.transport.lock().unwrap_or_else(|e| e.into_inner());
        transport.read(offset, data);
    }

    /// Takes a store at an offset. A reset is answered when nothing is under way any more, since
    /// the driver then frees its buffers (virtio 1.2, 2.4).
    pub(crate) fn write(&self, offset: u64, value: u32) -> Result<(), Failure> {
        let mut transport = self.transport.lock().unwrap_or_else(|e| e.into_inner());
        match transport.write(offset, value, &self.medium.memory) {
            Some(Event::Started(queues)) => match queues.into_iter().next() {
                Some(queue) => self.start(&transport, queue),
                None => Ok(()),
            },
            Some(Event::Reset) => self.stop(),
            None => Ok(()),
        }
    }

    /// Starts the thread. A driver that is ready twice without a reset has the first one ended.
    fn start(&self, transport: &Transport, queue: Queue) -> Result<(), Failure> {
        self.stop()?;
        let is_ended = Arc::new(AtomicBool::new(false));
        let status = transport.interrupt_status();
        let mut backend = Backend::new(&self.medium, queue, status, Arc::clone(&is_ended))?;
        let failed = self.failed.clone();
        let handle = threads::spawn(move || {
            if let Err(failure) = backend.serve() {
                // If nobody listens, another failure has ended the process.
                let _ = failed.send(failure);
            }
        });
        let mut thread = self.thread.lock().unwrap_or_else(|e| e.into_inner());
        *thread = Some(Thread { is_ended, handle });
        Ok(())
    }

    /// Ends the thread, once the kernel has ended what it has.
    fn stop(&self) -> Result<(), Failure> {
        let mut thread = self.thread.lock().unwrap_or_else(|e| e.into_inner());
        let Some(thread) = thread.take() else {
            return Ok(());
        };
        thread.is_ended.store(true, Ordering::SeqCst);
        let rung = self.medium.doorbell.write(1);
        rung.map_err(|error| Failure::new("the disk's doorbell", error))?;
        let joined = thread.handle.join();
        joined.map_err(|_| Failure::new("the disk's thread", "has panicked"))
    }
}

/// Opens a file or a block device, and returns its length in bytes. The length is that of a seek,
/// as the metadata of a block device have a length of 0.
fn open(path: &Path) -> io::Result<(File, u64)> {
    let mut options = OpenOptions::new();
    let options = options.read(true).write(true).custom_flags(libc::O_DIRECT);
    let mut file = options.open(path)?;
    let bytes = file.seek(SeekFrom::End(0))?;
    Ok((file, bytes))
}

/// Has KVM signal the driver's notifications. Blocking: the io_uring waits for it.
fn doorbell(vm: &VmFd) -> Result<EventFd, Failure> {
    let doorbell = EventFd::new(0).map_err(|error| Failure::new("eventfd", error))?;
    let address = IoEventAddress::Mmio(layout::DISK + u64::from(register::QUEUE_NOTIFY));
    // No data match: the device has one queue.
    vm.register_ioevent(&doorbell, &address, NoDatamatch)
        .map_err(|error| Failure::new("the disk's notification", error))?;
    Ok(doorbell)
}

/// Has KVM raise the disk's interrupt.
fn interrupt(vm: &VmFd) -> Result<EventFd, Failure> {
    let interrupt = EventFd::new(0).map_err(|error| Failure::new("eventfd", error))?;
    // KVM counts SPIs from 0.
    vm.register_irqfd(&interrupt, layout::DISK_INTID - 32)
        .map_err(|error| Failure::new("the disk's interrupt", error))?;
    Ok(interrupt)
}

impl Medium {
    /// Returns the file's descriptor, and the doorbell's.
    fn descriptors(&self) -> [i32; 2] {
        [self.file.as_raw_fd(), self.doorbell.as_raw_fd()]
    }
}
