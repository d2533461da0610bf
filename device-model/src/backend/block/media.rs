//! Storage of a disk's data: a file or a block device of the device VM, in tests a disk that loses
//! power.
//!
//! Owns: the descriptors, which GDM opens and the process of the disk's guest uses. One of them
//! holds the claim on the disk: a lock (`flock`), and for a
//! writable block device the kernel's exclusive open (`O_EXCL`). All transfers that may outlive GDM
//! use that descriptor, so the kernel keeps the claim until the last of them is done, even after
//! GDM was killed. A process that gets the claim therefore knows that no earlier request still
//! moves data.

use std::fmt::Debug;
use std::fs::{File, Metadata, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Seek, SeekFrom};
use std::os::fd::{OwnedFd, RawFd};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::overlap::{Ended, Overlap, Transfer};
use crate::progress::in_kernel;
use crate::sys::{self, Direction};

use super::super::{Claim, Opened};
use super::SECTOR;

/// Size, and where data may go.
#[derive(Clone, Copy, Debug)]
pub(super) struct Geometry {
    /// Bytes.
    pub(super) bytes: u64,
    /// Logical block.
    /// In bytes. Transfers past the page cache begin and end at multiples of it.
    pub(super) block_size: u32,
    /// Whether the disk is a block device: the guest flushes the device's own cache, but not this
    /// kernel's page cache.
    pub(super) is_device: bool,
}

impl Geometry {
    /// Finds out the geometry of an open disk. A file counts as a disk with blocks of a sector:
    /// where its file system wants more alignment, data goes through the page cache.
    fn of(mut file: &File, is_device: bool) -> io::Result<Self> {
        Ok(Self {
            bytes: file.seek(SeekFrom::End(0))?,
            block_size: match is_device {
                true => sys::block_size(file)?,
                false => SECTOR as u32,
            },
            is_device,
        })
    }
}

/// Something that a disk can be about beside other things.
#[derive(Clone, Copy, Debug)]
pub(super) enum Work<'a> {
    /// Moves data past the page cache.
    Direct(Piece<'a>),
    /// Moves data through the page cache.
    Buffered(Piece<'a>),
    /// Makes all that has ended before durable.
    Sync,
}

/// Data to be moved.
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece<'a> {
    /// Direction of the transfer.
    pub(super) direction: Direction,
    /// From [`Buffers::vectors`](crate::buffers::Buffers::vectors).
    pub(super) vectors: &'a [libc::iovec],
    /// Place in the file.
    pub(super) offset: u64,
}

/// A disk's data, and what makes it durable.
pub(super) trait Media: Debug + Send {
    /// Returns the geometry.
    fn geometry(&self) -> Geometry;

    /// Returns the size as it is now.
    fn bytes(&self) -> io::Result<u64>;

    /// Tells whether data can go past the page cache.
    fn is_direct(&self) -> bool;

    /// Begins something under a number that nothing else under way has. It may end at once, or have
    /// moved less than it was asked for; [`Self::ended`] tells.
    fn begin(&mut self, number: u64, work: Work<'_>);

    /// Returns what has ended, and waits for what was begun since the last call, at most for
    /// `patience`.
    fn ended(&mut self, patience: Duration) -> Vec<Ended>;

    /// Waits until nothing is under way; returns what has ended.
    fn settle(&mut self) -> Vec<Ended>;

    /// Tells whether something was begun that [`Self::ended`] has not waited for.
    fn is_fresh(&self) -> bool;

    /// Returns the descriptor that tells of ends.
    fn descriptor(&self) -> Option<RawFd>;

    /// Makes everything that was written durable.
    fn sync(&self) -> io::Result<()>;

    /// Discards a range, whose contents are of no use any longer.
    fn discard(&self, offset: u64, length: u64) -> io::Result<()>;

    /// Makes a range zero without writing it, and gives it back if it may.
    fn zero(&self, offset: u64, length: u64, unmap: bool) -> io::Result<()>;

    /// Writes bytes through the page cache.
    fn write(&self, bytes: &[u8], offset: u64) -> io::Result<()>;
}

/// Data that a thread waits for, as long as it takes.
#[derive(Debug)]
pub(super) struct Waited(pub(super) Box<dyn Media>);

impl Media for Waited {
    fn geometry(&self) -> Geometry {
        self.0.geometry()
    }

    fn bytes(&self) -> io::Result<u64> {
        in_kernel(|| self.0.bytes())
    }

    fn is_direct(&self) -> bool {
        self.0.is_direct()
    }

    fn begin(&mut self, number: u64, work: Work<'_>) {
        // planted: a flush that takes long ends gdm
        in_kernel(|| self.0.begin(number, work));
    }

    fn ended(&mut self, patience: Duration) -> Vec<Ended> {
        in_kernel(|| self.0.ended(patience))
    }

    fn settle(&mut self) -> Vec<Ended> {
        in_kernel(|| self.0.settle())
    }

    fn is_fresh(&self) -> bool {
        self.0.is_fresh()
    }

    fn descriptor(&self) -> Option<RawFd> {
        self.0.descriptor()
    }

    fn sync(&self) -> io::Result<()> {
        in_kernel(|| self.0.sync())
    }

    fn discard(&self, offset: u64, length: u64) -> io::Result<()> {
        in_kernel(|| self.0.discard(offset, length))
    }

    fn zero(&self, offset: u64, length: u64, unmap: bool) -> io::Result<()> {
        in_kernel(|| self.0.zero(offset, length, unmap))
    }

    fn write(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        in_kernel(|| self.0.write(bytes, offset))
    }
}

/// A file or a block device.
#[derive(Debug)]
pub(super) struct Files {
    /// Goes through the page cache, and flushes.
    file: File,
    /// Second descriptor of the file, opened with `O_DIRECT`.
    direct: Option<File>,
    geometry: Geometry,
    /// io_uring; `None` where the kernel offers none, then requests run one after the other.
    overlap: Option<Overlap>,
    /// Requests done at once that nobody is told of yet.
    at_once: Vec<Ended>,
    /// Claim on the disk, if this process holds it; else GDM's own process does.
    _claim: Option<Box<dyn Claim>>,
}

impl Files {
    /// Takes the descriptors of a disk that is claimed; `direct` goes past the page cache.
    pub(super) fn new(
        file: File,
        direct: Option<File>,
        claim: Option<Box<dyn Claim>>,
    ) -> io::Result<Self> {
        let is_device = file.metadata()?.file_type().is_block_device();
        Ok(Self {
            geometry: Geometry::of(&file, is_device)?,
            file,
            direct,
            overlap: Overlap::new().ok(),
            at_once: Vec::new(),
            _claim: claim,
        })
    }
}

/// Opens the disk at `path`, for one device alone unless all of its users only read.
pub(super) fn claim(path: &str, read_only: bool) -> io::Result<Opened> {
    let mut options = OpenOptions::new();
    options.read(true).write(!read_only);
    let mut file = options.open(path)?;
    let metadata = file.metadata()?;
    let is_device = metadata.file_type().is_block_device();
    if !is_device && !metadata.file_type().is_file() {
        return Err(io::Error::other("is neither a file nor a block device"));
    }
    // A reader keeps nobody out, but does not read what others write behind its back.
    if is_device && read_only {
        open_with(&mut options, libc::O_EXCL, path)?;
    }
    let alone = is_device && !read_only;
    let exclusive = if alone { libc::O_EXCL } else { 0 };
    let direct = open_direct(&mut options, exclusive, path)?;
    // Two exclusive opens exclude each other, so only one of the descriptors has the claim.
    if direct.is_none() && alone {
        file = open_with(&mut options, exclusive, path)?;
    }
    let claimed = direct.as_ref().unwrap_or(&file);
    let user = User::new(identity(&metadata), read_only, claimed)?;
    Ok(Opened {
        parts: std::iter::once(file)
            .chain(direct)
            .map(OwnedFd::from)
            .collect(),
        claim: Some(Box::new(user)),
    })
}

impl Files {
    /// Does something and waits for it.
    fn at_once(&self, work: Work<'_>) -> io::Result<u64> {
        let moved = match work {
            Work::Direct(piece) => piece.transfer(self.direct.as_ref().unwrap_or(&self.file)),
            Work::Buffered(piece) => piece.transfer(&self.file),
            Work::Sync => self.sync().map(|()| 0),
        };
        moved.map(|moved| moved as u64)
    }
}

impl<'a> Piece<'a> {
    /// Returns the transfer of this piece from or to a file.
    fn of(self, file: &'a File) -> Transfer<'a> {
        Transfer {
            file,
            direction: self.direction,
            vectors: self.vectors,
            offset: self.offset,
        }
    }

    /// Moves the piece from or to a file, once.
    fn transfer(self, file: &File) -> io::Result<usize> {
        sys::transfer(file, self.direction, self.vectors, self.offset)
    }
}

/// Opens past the page cache; `None`: the file system cannot.
fn open_direct(options: &mut OpenOptions, flags: i32, path: &str) -> io::Result<Option<File>> {
    match open_with(options, libc::O_DIRECT | flags, path) {
        Ok(direct) => Ok(Some(direct)),
        Err(error) if error.kind() == ErrorKind::InvalidInput => Ok(None),
        Err(error) => Err(error),
    }
}

/// Opens with more flags.
fn open_with(options: &mut OpenOptions, flags: i32, path: &str) -> io::Result<File> {
    let opened = options.custom_flags(flags).open(path);
    opened.map_err(|error| match error.kind() {
        ErrorKind::ResourceBusy => busy(
            "is mounted in the device VM, the disk of another guest, or has requests of an earlier gdm \
             under way",
        ),
        _ => error,
    })
}

/// Returns what two paths to one disk have in common: the device's number, or the file system's and
/// the inode's. No file system has the number that stands for devices.
fn identity(metadata: &Metadata) -> Disk {
    match metadata.file_type().is_block_device() {
        true => (u64::MAX, metadata.rdev()),
        false => (metadata.dev(), metadata.ino()),
    }
}

/// Returns the error of a disk that somebody else has; GDM tries to open it again.
fn busy(why: &str) -> io::Error {
    io::Error::new(ErrorKind::ResourceBusy, why)
}

/// Identity of a disk, whatever path leads to it.
type Disk = (u64, u64);

/// A device's use of a disk, in the list of those of this process.
#[derive(Debug)]
struct User {
    /// Two paths, or a link and its target, are one disk.
    identity: Disk,
    /// Readers share a disk with readers, and a writer with nobody.
    read_only: bool,
}

/// All uses, in GDM's own process: the disk, and whether the user only reads. The list tells a
/// later reader, which shares the first one's lock, from the first, which must find the disk
/// unlocked.
static USERS: Mutex<Vec<(Disk, bool)>> = Mutex::new(Vec::new());

/// Locks the disk. The first reader takes the lock exclusively for a moment, because it must know
/// that all requests of an earlier process have ended.
fn lock(file: &File, is_shared: bool, read_only: bool) -> io::Result<()> {
    let locked = match (is_shared, read_only) {
        // planted: a lock of the disk is not looked at
        (false, false) => file.try_lock(),
        // planted: the first reader does not wait for an earlier gdm
        (false, true) => file.try_lock().and_then(|()| file.try_lock_shared()),
        (true, _) => file.try_lock_shared(),
    };
    locked.map_err(|error| match error {
        TryLockError::WouldBlock => {
            busy("is locked by another program, or has requests of an earlier gdm under way")
        }
        TryLockError::Error(error) => error,
    })
}

impl User {
    /// Locks the disk: for one writer, or for the readers of one process.
    fn new(identity: Disk, read_only: bool, file: &File) -> io::Result<Self> {
        let mut users = USERS.lock().unwrap_or_else(PoisonError::into_inner);
        let mut others = users.iter().filter(|(other, _)| *other == identity);
        let is_shared = others.clone().next().is_some();
        // planted: a disk has two writers
        if is_shared && !(read_only && others.all(|(_, read_only)| *read_only)) {
            return Err(busy(
                "is the disk of another guest, and one of the two writes it",
            ));
        }
        lock(file, is_shared, read_only)?;
        users.push((identity, read_only));
        Ok(Self {
            identity,
            read_only,
        })
    }
}

impl Claim for User {}

impl Drop for User {
    fn drop(&mut self) {
        let mut users = USERS.lock().unwrap_or_else(PoisonError::into_inner);
        let mine = (self.identity, self.read_only);
        if let Some(index) = users.iter().position(|user| *user == mine) {
            users.swap_remove(index);
        }
    }
}

impl Media for Files {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn bytes(&self) -> io::Result<u64> {
        // No transfer uses the position.
        (&self.file).seek(SeekFrom::End(0))
    }

    fn is_direct(&self) -> bool {
        self.direct.is_some()
    }

    fn begin(&mut self, number: u64, work: Work<'_>) {
        if let Some(overlap) = &mut self.overlap {
            let begun = match work {
                Work::Direct(piece) => {
                    let file = self.direct.as_ref().unwrap_or(&self.file);
                    overlap.begin(number, &piece.of(file))
                }
                Work::Buffered(piece) => overlap.begin(number, &piece.of(&self.file)),
                Work::Sync => overlap.begin_sync(number, &self.file),
            };
            if begun.is_ok() {
                return;
            }
        }
        let result = self.at_once(work);
        self.at_once.push((number, result));
    }

    fn ended(&mut self, patience: Duration) -> Vec<Ended> {
        let mut ended = std::mem::take(&mut self.at_once);
        if let Some(overlap) = &mut self.overlap {
            ended.extend(overlap.ended(patience));
        }
        ended
    }

    fn settle(&mut self) -> Vec<Ended> {
        let mut ended = std::mem::take(&mut self.at_once);
        if let Some(overlap) = &mut self.overlap {
            ended.extend(overlap.settle());
        }
        ended
    }

    fn is_fresh(&self) -> bool {
        !self.at_once.is_empty() || self.overlap.as_ref().is_some_and(Overlap::is_fresh)
    }

    fn descriptor(&self) -> Option<RawFd> {
        self.overlap.as_ref().map(Overlap::descriptor)
    }

    fn sync(&self) -> io::Result<()> {
        // fdatasync: the times of the file are nobody's data.
        self.file.sync_data()
    }

    fn discard(&self, offset: u64, length: u64) -> io::Result<()> {
        if self.geometry.is_device {
            return sys::block_range(&self.file, false, offset, length);
        }
        // The size is the guest's capacity, and must stay.
        let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        sys::allocate(&self.file, mode, offset, length)
    }

    fn zero(&self, offset: u64, length: u64, unmap: bool) -> io::Result<()> {
        if self.geometry.is_device {
            return sys::block_range(&self.file, true, offset, length);
        }
        let mode = if unmap {
            libc::FALLOC_FL_PUNCH_HOLE
        } else {
            libc::FALLOC_FL_ZERO_RANGE
        };
        sys::allocate(&self.file, mode | libc::FALLOC_FL_KEEP_SIZE, offset, length)
    }

    fn write(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.file.write_all_at(bytes, offset)
    }
}
