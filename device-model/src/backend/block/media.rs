//! Storage of a disk's data: a file or a block device of the device VM, in tests a disk that loses
//! power.
//!
//! Owns: the descriptors. One of them holds the claim on the disk: a lock (`flock`), and for a
//! writable block device the kernel's exclusive open (`O_EXCL`). All transfers that may outlive GDM
//! use that descriptor, so the kernel keeps the claim until the last of them is done, even after
//! GDM was killed. A process that gets the claim therefore knows that no earlier request still
//! moves data.

use std::fmt::Debug;
use std::fs::{File, Metadata, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::sync::{Mutex, PoisonError};

use crate::overlap::{Overlap, Transfer};
use crate::progress::in_kernel;
use crate::sys::{self, Direction};

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

/// Data that goes past the page cache.
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

    /// Moves data past the page cache, once; may move less. `None` where that cannot be.
    fn direct(&self, piece: Piece<'_>) -> Option<io::Result<usize>>;

    /// Moves data through the page cache, once; may move less.
    fn buffered(&self, piece: Piece<'_>) -> io::Result<usize>;

    /// Moves several pieces at once past the page cache; tells how many bytes of each, 0 of one
    /// that failed. `None` where that cannot be: nothing of them is under way then.
    fn together(&mut self, pieces: &[Piece<'_>]) -> Option<Vec<u64>>;

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

    fn direct(&self, piece: Piece<'_>) -> Option<io::Result<usize>> {
        in_kernel(|| self.0.direct(piece))
    }

    fn buffered(&self, piece: Piece<'_>) -> io::Result<usize> {
        in_kernel(|| self.0.buffered(piece))
    }

    fn together(&mut self, pieces: &[Piece<'_>]) -> Option<Vec<u64>> {
        in_kernel(|| self.0.together(pieces))
    }

    fn sync(&self) -> io::Result<()> {
        // planted: a flush that takes long ends gdm
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
    /// Claim on the disk, released with the descriptors.
    _user: User,
}

impl Files {
    /// Opens the disk at `path`, for this device alone unless all of its users only read.
    pub(super) fn open(path: &str, read_only: bool) -> io::Result<Self> {
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
        Ok(Self {
            geometry: Geometry::of(&file, is_device)?,
            file,
            direct,
            overlap: Overlap::new().ok(),
            _user: user,
        })
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
    identity: Disk,
    read_only: bool,
}

/// All uses: the disk, and whether the user only reads. The list tells a later reader of this
/// process, which shares the first one's lock, from the first, which must find the disk unlocked.
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

    fn direct(&self, piece: Piece<'_>) -> Option<io::Result<usize>> {
        let file = self.direct.as_ref()?;
        Some(sys::transfer(
            file,
            piece.direction,
            piece.vectors,
            piece.offset,
        ))
    }

    fn buffered(&self, piece: Piece<'_>) -> io::Result<usize> {
        sys::transfer(&self.file, piece.direction, piece.vectors, piece.offset)
    }

    fn together(&mut self, pieces: &[Piece<'_>]) -> Option<Vec<u64>> {
        let file = self.direct.as_ref()?;
        // Taken out for the call: a ring that fails is not used again.
        let mut overlap = self.overlap.take()?;
        let transfers: Vec<Transfer<'_>> = pieces
            .iter()
            .map(|piece| Transfer {
                file,
                direction: piece.direction,
                vectors: piece.vectors,
                offset: piece.offset,
            })
            .collect();
        match overlap.run(&transfers) {
            Ok(moved) => {
                self.overlap = Some(overlap);
                Some(moved)
            }
            Err(error) => {
                eprintln!("gdm: requests are done one by one: {error}");
                None
            }
        }
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
