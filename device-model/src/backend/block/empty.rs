//! The place of a disk's medium while there is none: no sectors, and every request fails at once.

use std::io;
use std::os::fd::RawFd;
use std::time::Duration;

use super::SECTOR;
use super::media::{Geometry, Media, Work};
use crate::overlap::Ended;

/// No medium.
#[derive(Debug, Default)]
pub(super) struct Empty {
    /// Requests that have failed, and nobody is told of yet.
    failed: Vec<u64>,
}

fn no_medium() -> io::Error {
    io::Error::other("the disk has no medium")
}

impl Media for Empty {
    fn geometry(&self) -> Geometry {
        Geometry {
            bytes: 0,
            block_size: SECTOR as u32,
            is_device: false,
        }
    }

    fn bytes(&self) -> io::Result<u64> {
        Ok(0)
    }

    /// No medium has no page cache to go around.
    fn is_direct(&self) -> bool {
        false
    }

    /// Notes the request. It fails with the next look, as those of a medium end: the caller holds
    /// its queue here.
    fn begin(&mut self, number: u64, _work: Work<'_>) {
        self.failed.push(number);
    }

    fn ended(&mut self, _patience: Duration) -> Vec<Ended> {
        let failed = std::mem::take(&mut self.failed);
        let failed = failed.into_iter();
        failed.map(|number| (number, Err(no_medium()))).collect()
    }

    fn settle(&mut self) -> Vec<Ended> {
        self.ended(Duration::ZERO)
    }

    /// A failed request needs no descriptor that wakes the thread: it is there already.
    fn is_fresh(&self) -> bool {
        !self.failed.is_empty()
    }

    fn descriptor(&self) -> Option<RawFd> {
        None
    }

    fn sync(&self) -> io::Result<()> {
        Err(no_medium())
    }

    fn discard(&self, _offset: u64, _length: u64) -> io::Result<()> {
        Err(no_medium())
    }

    fn zero(&self, _offset: u64, _length: u64, _unmap: bool) -> io::Result<()> {
        Err(no_medium())
    }

    fn write(&self, _bytes: &[u8], _offset: u64) -> io::Result<()> {
        Err(no_medium())
    }
}
