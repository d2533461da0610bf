//! Several transfers under way at once: an io_uring, whose completions come in any order.
//!
//! Owns: the ring, and the account of what the kernel has. What was begun and has not ended may
//! move data at any time, also after a kill of GDM: whoever gives a guest's memory to somebody else
//! calls [`Overlap::settle`] first.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::fd::{AsRawFd, RawFd};
use std::time::Duration;

use io_uring::types::{FsyncFlags, SubmitArgs, Timespec};
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

/// Something that ended: its number, and how many bytes it moved.
pub(crate) type Ended = (u64, io::Result<u64>);

/// Between two looks at what the kernel is about, when it does not let us wait for it.
const PAUSE: Duration = Duration::from_millis(1);

/// A ring that is good for reads, writes and syncs, and for nothing else.
pub(crate) struct Overlap {
    /// Refuses every operation but those that [`Overlap::new`] registers, whatever the process is
    /// made to ask for later.
    ring: IoUring,
    /// Numbers of what has begun and not ended.
    under_way: BTreeSet<u64>,
    /// How much has begun since the last wait.
    fresh: usize,
}

impl std::fmt::Debug for Overlap {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Overlap")
    }
}

impl Overlap {
    /// Most transfers at once.
    pub(crate) const MOST: usize = 128;

    /// Makes a ring; a kernel may have none, or not let this process have one.
    pub(crate) fn new() -> io::Result<Self> {
        let mut builder = IoUring::builder();
        let ring = builder.setup_r_disabled().build(Self::MOST as u32)?;
        let allowed = [
            opcode::Readv::CODE,
            opcode::Writev::CODE,
            opcode::Fsync::CODE,
        ];
        let submitter = ring.submitter();
        submitter.register_restrictions(&mut allowed.map(Restriction::sqe_op))?;
        submitter.register_enable_rings()?;
        Ok(Self {
            ring,
            under_way: BTreeSet::new(),
            fresh: 0,
        })
    }

    /// Returns the descriptor that tells of completions.
    pub(crate) fn descriptor(&self) -> RawFd {
        self.ring.as_raw_fd()
    }

    /// Tells whether something was begun that was not waited for.
    pub(crate) fn is_fresh(&self) -> bool {
        self.fresh > 0
    }

    /// Begins a transfer under a number that nothing else under way has. The vectors must stay as
    /// they are until the transfer has ended.
    pub(crate) fn begin(&mut self, number: u64, transfer: &Transfer<'_>) -> io::Result<()> {
        self.push(number, &entry(transfer))
    }

    /// Begins to make a file's data durable: that of all transfers that have ended.
    pub(crate) fn begin_sync(&mut self, number: u64, file: &File) -> io::Result<()> {
        let sync = opcode::Fsync::new(types::Fd(file.as_raw_fd()));
        // As fdatasync: the times of the file are nobody's data.
        self.push(number, &sync.flags(FsyncFlags::DATASYNC).build())
    }

    /// Puts an entry into the submission ring, which the kernel reads at the next wait. Fails with
    /// `WouldBlock` if there are [`Overlap::MOST`] already.
    fn push(&mut self, number: u64, entry: &squeue::Entry) -> io::Result<()> {
        if self.under_way.len() >= Self::MOST {
            return Err(ErrorKind::WouldBlock.into());
        }
        let entry = entry.clone().user_data(number);
        // SAFETY: the vectors stay until the entry has completed (the caller's promise, which the
        // table of requests keeps); what they point to is a guest's RAM, which stays mapped and
        // which Rust holds no reference to. The descriptor is open.
        let pushed = unsafe { self.ring.submission().push(&entry) };
        pushed.map_err(|_| io::Error::from(ErrorKind::WouldBlock))?;
        self.under_way.insert(number);
        self.fresh = self.fresh.saturating_add(1);
        Ok(())
    }

    /// Has the kernel take what was begun, and waits until as much has ended, at most for
    /// `patience`: what is fast ends together, and what is slow holds nothing else back. Returns
    /// all that has ended.
    pub(crate) fn ended(&mut self, patience: Duration) -> Vec<Ended> {
        let want = std::mem::take(&mut self.fresh).min(self.under_way.len());
        let left = self.ring.submission().len();
        if want > 0 || left > 0 {
            let patience = Timespec::from(patience);
            let arguments = SubmitArgs::new().timespec(&patience);
            let submitted = self.ring.submitter().submit_with_args(want, &arguments);
            let is_retried = |error: &io::Error| {
                error.kind() != ErrorKind::Interrupted && error.raw_os_error() != Some(libc::ETIME)
            };
            if submitted.is_err_and(|error| is_retried(&error)) {
                // The kernel has no memory now. What it did not take stays in the ring.
                std::thread::sleep(PAUSE);
                self.fresh = self.fresh.max(1);
            }
        }
        self.collect()
    }

    /// Waits until all that was begun has ended; returns all of it.
    pub(crate) fn settle(&mut self) -> Vec<Ended> {
        let mut ended = self.collect();
        while !self.under_way.is_empty() {
            match self.ring.submit_and_wait(1) {
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // Entries that the kernel has taken must complete before the memory may go.
                Err(_) => std::thread::sleep(PAUSE),
            }
            ended.extend(self.collect());
        }
        self.fresh = 0;
        ended
    }

    /// Takes completions out of the ring.
    fn collect(&mut self) -> Vec<Ended> {
        let mut ended = Vec::new();
        for done in self.ring.completion() {
            let number = done.user_data();
            if self.under_way.remove(&number) {
                let result = done.result();
                let moved = u64::try_from(result)
                    .map_err(|_| io::Error::from_raw_os_error(result.wrapping_neg()));
                ended.push((number, moved));
            }
        }
        ended
    }
}

/// Returns the ring's entry for a transfer.
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
