//! The thread of a disk: takes requests from the queue, has the kernel move their data, and
//! completes them in the order in which they end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use io_uring::types::{Fd, FsyncFlags};
use io_uring::{IoUring, opcode, squeue};
use kvm_vmm::block::{Action, End, QUEUE_SIZE, Request};
use kvm_vmm::transport::InterruptStatus;
use virtio_queue::{Queue, QueueT as _};
use vm_memory::{GuestMemoryBackend as _, GuestMemoryMmap};

use super::Medium;
use crate::failure::Failure;

/// Number of the read that waits for the doorbell. Requests are numbered by their heads, of 16
/// bits.
const DOORBELL: u64 = u64::MAX;
/// Entries of the ring: the doorbell's beside the requests'.
const ENTRIES: u32 = 2 * QUEUE_SIZE as u32;

/// A request that the kernel has.
struct Flight {
    request: Request,
    /// The buffers in this process, which the kernel reads until the request has ended.
    _vectors: Vec<libc::iovec>,
}

/// State of the thread.
pub(super) struct Backend {
    medium: Medium,
    ring: IoUring,
    queue: Queue,
    status: InterruptStatus,
    /// By head.
    flights: Vec<Option<Flight>>,
    under_way: usize,
    /// Whether requests were completed that the driver was not told of.
    has_news: bool,
    /// Whether the kernel waits for the doorbell.
    is_waiting: bool,
    /// Where the kernel puts the doorbell's count.
    count: Box<u64>,
    /// Whether the driver wants the device to end.
    is_ended: Arc<AtomicBool>,
}

// SAFETY: the vectors point to the guest's memory, which stays mapped as long as `medium` and is
// this process's whichever thread looks at them.
unsafe impl Send for Backend {}

impl Backend {
    /// Makes the thread's state. A kernel without io_uring is an error.
    pub(super) fn new(
        medium: &Medium,
        queue: Queue,
        status: InterruptStatus,
        is_ended: Arc<AtomicBool>,
    ) -> Result<Backend, Failure> {
        let ring = IoUring::new(ENTRIES).map_err(|error| Failure::new("io_uring", error))?;
        Ok(Backend {
            medium: medium.clone(),
            ring,
            queue,
            status,
            flights: (0..QUEUE_SIZE).map(|_| None).collect(),
            under_way: 0,
            has_news: false,
            is_waiting: false,
            count: Box::new(0),
            is_ended,
        })
    }

    /// Serves the queue until the driver ends it. One call of the kernel has it take what was
    /// begun and waits for the next end, as a call costs more than a request.
    pub(super) fn serve(&mut self) -> Result<(), Failure> {
        let mut is_rung = true;
        loop {
            let is_ended = self.is_ended.load(Ordering::SeqCst);
            // The end rings the doorbell, so that the kernel's wait for it ends as well.
            if is_ended && self.under_way == 0 && !self.is_waiting {
                return Ok(());
            }
            if is_rung && !is_ended {
                self.take_all()?;
                self.wait_for_doorbell()?;
                self.interrupt()?;
            }
            match self.ring.submit_and_wait(1) {
                Err(error) if error.raw_os_error() != Some(libc::EINTR) => {
                    return Err(Failure::new("io_uring_enter", error));
                }
                _ => is_rung = self.collect()?,
            }
        }
    }

    /// Begins all requests that the driver has made available. The driver need not notify while
    /// this goes on; the last look comes after notifications were asked for.
    fn take_all(&mut self) -> Result<(), Failure> {
        let memory = self.medium.memory.clone();
        let wrong = |error| Failure::new("the disk's queue", error);
        loop {
            self.queue.disable_notification(&memory).map_err(wrong)?;
            while let Some(chain) = self.queue.pop_descriptor_chain(&memory) {
                let request = Request::read(chain);
                self.begin(request.map_err(|why| Failure::new("the disk", why))?)?;
            }
            if !self.queue.enable_notification(&memory).map_err(wrong)? {
                return Ok(());
            }
        }
    }

    /// Begins a request. One that names memory which is not the guest's fails.
    fn begin(&mut self, request: Request) -> Result<(), Failure> {
        let Some(vectors) = vectors(&self.medium.memory, &request) else {
            return self.complete(&request, End::Failed);
        };
        let [file, _] = self.medium.descriptors().map(Fd);
        let Some(entry) = entry(request.action, file, &vectors) else {
            return self.complete(&request, End::Unsupported);
        };
        let head = usize::from(request.head);
        let flight = self.flights.get_mut(head).filter(|flight| flight.is_none());
        let flight = flight.ok_or_else(|| Failure::new("the disk", "a request is made twice"))?;
        let number = request.head.into();
        *flight = Some(Flight {
            request,
            _vectors: vectors,
        });
        self.under_way += 1;
        self.push(entry, number)
    }

    /// Has the kernel say when the driver notifies. The kernel keeps one such read: the last one
    /// has ended.
    fn wait_for_doorbell(&mut self) -> Result<(), Failure> {
        let [_, doorbell] = self.medium.descriptors().map(Fd);
        self.is_waiting = true;
        let to: *mut u64 = &raw mut *self.count;
        let entry = opcode::Read::new(doorbell, to.cast(), size_of::<u64>() as u32);
        self.push(entry.build(), DOORBELL)
    }

    fn push(&mut self, entry: squeue::Entry, number: u64) -> Result<(), Failure> {
        let entry = entry.user_data(number);
        // SAFETY: vectors and count stay until their entries have ended, by `flights` and `count`;
        // the memory behind the vectors is the guest's and stays mapped. `serve` ends with nothing
        // under way, or with an error that ends the process.
        unsafe { self.ring.submission().push(&entry) }
            .map_err(|error| Failure::new("io_uring", error))
    }

    /// Completes what has ended, and tells whether the driver has notified. One interrupt tells of
    /// all, if the driver wants one.
    fn collect(&mut self) -> Result<bool, Failure> {
        let entries = self.ring.completion();
        let ended: Vec<(u64, i32)> = entries
            .map(|entry| (entry.user_data(), entry.result()))
            .collect();
        let mut is_rung = false;
        for (number, result) in ended {
            if number == DOORBELL {
                (is_rung, self.is_waiting) = (true, false);
            } else {
                self.land(number, result)?;
            }
        }
        self.interrupt()?;
        Ok(is_rung)
    }

    /// Completes a request that the kernel has ended. A number that was not begun would complete
    /// another request than the driver's.
    fn land(&mut self, number: u64, result: i32) -> Result<(), Failure> {
        let flight = self.flights.get_mut(number as usize).and_then(Option::take);
        let Some(Flight { request, .. }) = flight else {
            return Err(Failure::new("io_uring", format!("{number} was not begun")));
        };
        self.under_way -= 1;
        self.complete(&request, end(&request, result))
    }

    /// Puts a request into the used ring.
    fn complete(&mut self, request: &Request, end: End) -> Result<(), Failure> {
        self.has_news = true;
        let memory = &self.medium.memory;
        let length = request.finish(memory, end);
        let length = length.map_err(|why| Failure::new("the disk", why))?;
        self.queue
            .add_used(memory, request.head, length)
            .map_err(|error| Failure::new("the disk's queue", error))
    }

    /// Raises the interrupt for what was completed, if the driver wants it.
    fn interrupt(&mut self) -> Result<(), Failure> {
        if !std::mem::take(&mut self.has_news) {
            return Ok(());
        }
        let wanted = self.queue.needs_notification(&self.medium.memory);
        if wanted.map_err(|error| Failure::new("the disk's queue", error))? {
            self.status.set();
            let raised = self.medium.interrupt.write(1);
            raised.map_err(|error| Failure::new("the disk's interrupt", error))?;
        }
        Ok(())
    }
}

/// Returns what the kernel is asked for; none for a request that the disk does not know. A flush
/// covers the data alone, as the times of the file are nobody's data.
fn entry(action: Action, file: Fd, vectors: &[libc::iovec]) -> Option<squeue::Entry> {
    let (first, count) = (vectors.as_ptr(), vectors.len() as u32);
    let read = |place| opcode::Readv::new(file, first, count).offset(place);
    let write = |place| opcode::Writev::new(file, first, count).offset(place);
    let flush = || opcode::Fsync::new(file).flags(FsyncFlags::DATASYNC);
    match action {
        Action::Read(place) => Some(read(place).build()),
        Action::Write(place) => Some(write(place).build()),
        Action::Flush => Some(flush().build()),
        Action::Unknown => None,
    }
}

/// Tells how a request ended by what the kernel says. A transfer that ends early reaches beyond
/// the disk.
fn end(request: &Request, result: i32) -> End {
    let wanted = match request.action {
        Action::Read(_) | Action::Write(_) => request.length(),
        Action::Flush | Action::Unknown => 0,
    };
    match u64::try_from(result) {
        Ok(moved) if moved == wanted => End::Done,
        _ => End::Failed,
    }
}

/// Returns where a request's buffers are in this process, if all are the guest's memory.
fn vectors(memory: &GuestMemoryMmap, request: &Request) -> Option<Vec<libc::iovec>> {
    let vector = |&(address, length): &(_, u32)| {
        let slice = memory.get_slice(address, length as usize).ok()?;
        Some(libc::iovec {
            iov_base: slice.ptr_guard_mut().as_ptr().cast(),
            iov_len: slice.len(),
        })
    };
    request.buffers.iter().map(vector).collect()
}
