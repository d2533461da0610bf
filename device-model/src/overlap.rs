//! Several transfers at once: an io_uring whose thread waits until all submitted transfers are
//! done.
//!
//! Owns: the ring. Invariant: when [`Overlap::run`] has returned, the kernel has no transfer under
//! way, so that a device that is reset or broken accesses its guest's memory no longer.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::fd::AsRawFd;
use std::time::Duration;

use io_uring::{IoUring, opcode, register::Restriction, squeue, types};

use crate::sys::Direction;

#[cfg(test)]
mod tests;

/// A transfer between a file at `offset` and guest RAM.
pub(crate) struct Transfer<'a> {
    /// The file.
    pub(crate) file: &'a File,
    /// Direction of the transfer.
    pub(crate) direction: Direction,
    /// From [`Buffers::vectors`](crate::buffers::Buffers::vectors).
    pub(crate) vectors: &'a [libc::iovec],
    /// Place in the file.
    pub(crate) offset: u64,
}

/// Between two looks at what the kernel is about, when it does not let us wait for it.
const PAUSE: Duration = Duration::from_millis(1);

/// A ring that is good for reads and writes, and for nothing else.
pub(crate) struct Overlap(IoUring);

impl std::fmt::Debug for Overlap {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Overlap")
    }
}

impl Overlap {
    /// Most transfers at once.
    pub(crate) const MOST: usize = 32;

    /// Makes a ring; a kernel may have none, or not let this process have one.
    pub(crate) fn new() -> io::Result<Self> {
        let mut builder = IoUring::builder();
        let ring = builder.setup_r_disabled().build(Self::MOST as u32)?;
        let allowed = [opcode::Readv::CODE, opcode::Writev::CODE];
        let submitter = ring.submitter();
        submitter.register_restrictions(&mut allowed.map(Restriction::sqe_op))?;
        submitter.register_enable_rings()?;
        Ok(Self(ring))
    }

    /// Executes the transfers, at most [`Self::MOST`]. Returns the number of bytes moved by each, 0
    /// for a failed one. The ring must not be used after an error.
    pub(crate) fn run(&mut self, transfers: &[Transfer<'_>]) -> io::Result<Vec<u64>> {
        for (transfer, number) in transfers.iter().zip(0..) {
            let entry = entry(transfer).user_data(number);
            // SAFETY: the vectors outlive the wait below, and the kernel has copied them when it
            // takes the entry; what they point to is a guest's RAM, which stays mapped and which
            // Rust holds no reference to. The descriptor is open.
            let pushed = unsafe { self.0.submission().push(&entry) };
            pushed.map_err(io::Error::other)?;
        }
        self.wait(transfers.len())
    }

    /// Submits the entries in the ring, `count` of them, and waits until all are done. Returns the
    /// bytes that each has moved, by the number in its user data.
    fn wait(&mut self, count: usize) -> io::Result<Vec<u64>> {
        let mut moved = vec![0; count];
        let mut left = count;
        while left > 0 {
            match self.0.submit_and_wait(left) {
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // The kernel has taken none of the entries left; dropping the ring drops them.
                Err(error) if self.0.submission().len() >= left => return Err(error),
                // Entries that the kernel has taken must complete before the vectors may go.
                Err(_) => std::thread::sleep(PAUSE),
            }
            for done in self.0.completion() {
                if let Some(bytes) = moved.get_mut(done.user_data() as usize) {
                    *bytes = u64::try_from(done.result()).unwrap_or(0);
                }
                left = left.saturating_sub(1);
            }
        }
        Ok(moved)
    }
}

/// Returns the ring's entry for a transfer, of one of the two kinds that the restrictions allow.
fn entry(transfer: &Transfer<'_>) -> squeue::Entry {
    let fd = types::Fd(transfer.file.as_raw_fd());
    let (vectors, count) = (transfer.vectors.as_ptr(), transfer.vectors.len() as u32);
    match transfer.direction {
        Direction::Read => opcode::Readv::new(fd, vectors, count)
            .offset(transfer.offset)
            .build(),
        Direction::Write => opcode::Writev::new(fd, vectors, count)
            .offset(transfer.offset)
            .build(),
    }
}
