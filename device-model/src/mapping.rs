//! Physical memory and registers in this process: the shared region and guest RAM
//! through device-dax (write-back), the window's pages through `/dev/mem`.
//!
//! Owns: all raw addresses of mappings. A mapping is never undone, so references
//! into it live as long as the process.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::atomic::{Ordering, fence};

use gear2_protocol::{REGION_SIZE, Region};
use vm_memory::mmap::{MmapRegion, MmapRegionBuilder};
use vm_memory::{FileOffset, GuestAddress, GuestRegionMmap};

use crate::memory::Memory;

/// Reads the first words of a page of a file, which is not mapped afterwards.
pub(crate) fn read_words<const N: usize>(file: &File, offset: u64) -> io::Result<[u32; N]> {
    let page = Mapping::of_file(file, offset, PAGE)?;
    let words = page.registers(0, 4 * N);
    let words = words.map(|words| core::array::from_fn(|index| words.load(4 * index)));
    // SAFETY: the page is this function's own, and nothing refers to it any longer.
    unsafe { libc::munmap(page.base.cast(), page.size) };
    words.ok_or_else(|| io::Error::other("more words than a page has"))
}

/// Bytes of a page: what a mapping begins and ends on.
const PAGE: usize = 4096;
/// Nothing that a guest can write to is ever executed.
const PROTECTION: i32 = libc::PROT_READ | libc::PROT_WRITE;

/// A range of addresses that this process has mapped for good.
#[derive(Clone, Copy, Debug)]
pub struct Mapping {
    /// Start of the mapping in this process; the mapping is never undone.
    base: *mut u8,
    size: usize,
}

impl Mapping {
    /// Maps `size` bytes of a file or device from `offset`.
    pub fn of_file(file: &File, offset: u64, size: usize) -> io::Result<Self> {
        Self::map(file.as_raw_fd(), offset, size, libc::MAP_SHARED, PROTECTION)
    }

    /// Maps zeroes (tests).
    pub fn of_zeroes(size: usize) -> io::Result<Self> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        Self::map(-1, 0, size, flags, PROTECTION)
    }

    /// Maps `size` bytes of a file from `offset` over what is mapped at byte `at`.
    ///
    /// # Safety
    ///
    /// Nothing refers to the mapping yet: an error may leave nothing mapped there.
    pub(crate) unsafe fn cover(
        &self,
        at: usize,
        file: &File,
        offset: u64,
        size: usize,
    ) -> io::Result<()> {
        let offset = libc::off_t::try_from(offset).map_err(io::Error::other)?;
        let fits = at.checked_add(size).is_some_and(|end| end <= self.size);
        if !fits || !at.is_multiple_of(PAGE) || !size.is_multiple_of(PAGE) {
            return Err(io::Error::other("outside of the mapping"));
        }
        let place = self.base.wrapping_add(at).cast();
        let (flags, fd) = (libc::MAP_SHARED | libc::MAP_FIXED, file.as_raw_fd());
        // SAFETY: the pages are part of this mapping, as checked above, and nobody uses them yet.
        let covered = unsafe { libc::mmap(place, size, PROTECTION, flags, fd, offset) };
        (covered != libc::MAP_FAILED)
            .then_some(())
            .ok_or_else(io::Error::last_os_error)
    }

    /// Maps for good: threads of guests use the memory until GDM ends.
    fn map(fd: i32, offset: u64, size: usize, flags: i32, protection: i32) -> io::Result<Self> {
        let offset = libc::off_t::try_from(offset).map_err(io::Error::other)?;
        // SAFETY: no address is asked for, so no existing mapping is replaced; the kernel
        // checks the descriptor and the range.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), size, protection, flags, fd, offset) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = base.cast();
        Ok(Self { base, size })
    }

    /// Returns the registers in `offset..offset + size` of the mapping.
    pub fn registers(&self, offset: usize, size: usize) -> Option<Registers> {
        let end = offset.checked_add(size)?;
        if !offset.is_multiple_of(4) || !size.is_multiple_of(4) || end > self.size {
            return None;
        }
        let base = self.base.wrapping_add(offset).cast();
        Some(Registers { base, size })
    }

    /// Returns the mapping as the region shared with Gear2.
    pub fn region(&self) -> Option<&'static Region> {
        if self.size < REGION_SIZE || !self.base.addr().is_multiple_of(align_of::<Region>()) {
            return None;
        }
        // SAFETY: the mapping is as large and as aligned as checked above, and is never undone.
        // `Region` is atomics only, for which every content is valid, and which may change at any
        // time.
        Some(unsafe { &*self.base.cast::<Region>() })
    }

    /// Returns the mapping as a guest's RAM at guest address `ipa`.
    pub fn memory(&self, ipa: u64) -> Option<Memory> {
        memory_of(self.builder(), ipa)
    }

    /// Returns the mapping as a guest's RAM at guest address `ipa`, with the place of the RAM in a
    /// file: another program of the device VM can be given that file to map.
    pub fn memory_of_file(&self, ipa: u64, file: FileOffset) -> Option<Memory> {
        memory_of(self.builder().with_file_offset(file), ipa)
    }

    /// Begins a region of `vm-memory` over the mapping, which the region neither makes nor undoes.
    fn builder(&self) -> MmapRegionBuilder<()> {
        let builder = MmapRegionBuilder::<()>::new(self.size);
        let builder = builder.with_mmap_prot(PROTECTION);
        let builder = builder.with_mmap_flags(libc::MAP_SHARED);
        // SAFETY: the mapping is as large as it says and is never undone.
        unsafe { builder.with_raw_mmap_pointer(self.base) }
    }
}

/// Returns guest memory of one region; `None`: the region would end behind the last address.
fn memory_of(builder: MmapRegionBuilder<()>, ipa: u64) -> Option<Memory> {
    let region: MmapRegion<()> = builder.build().ok()?;
    let region = GuestRegionMmap::new(region, GuestAddress(ipa))?;
    Memory::of(region).ok()
}

/// Device registers: only whole aligned 32-bit accesses, in program order.
#[derive(Clone, Copy, Debug)]
pub struct Registers {
    /// Address of the first register in this process.
    base: *mut u32,
    size: usize,
}

// SAFETY: the addresses are valid in every thread, and each access is one volatile 32-bit one.
unsafe impl Send for Registers {}

impl Registers {
    /// Returns the address of a register, `None` outside of the mapping or between two registers.
    fn at(&self, offset: usize) -> Option<*mut u32> {
        (offset.is_multiple_of(4) && offset < self.size).then(|| self.base.wrapping_add(offset / 4))
    }

    /// Reads the register at byte `offset`; one that does not exist is 0.
    pub fn load(&self, offset: usize) -> u32 {
        // SAFETY: `at` returns only aligned addresses inside a mapping that is never undone.
        self.at(offset)
            .map_or(0, |at| unsafe { at.read_volatile() })
    }

    /// Writes the register at byte `offset`, if it exists.
    pub fn store(&self, offset: usize, value: u32) {
        if let Some(at) = self.at(offset) {
            // SAFETY: as in `load`.
            unsafe { at.write_volatile(value) }
        }
    }
}

/// A register whose store is a signal.
#[derive(Clone, Copy, Debug)]
pub struct Doorbell {
    /// The doorbell page.
    pub page: Registers,
    /// Offset in the mapping.
    pub offset: usize,
}

impl Doorbell {
    /// Rings, after everything stored before is visible to all CPUs.
    pub fn ring(&self) {
        self.store(1);
    }

    /// Stores a value that has a meaning, after everything stored before is visible to all CPUs.
    pub fn store(&self, value: u32) {
        finish_stores();
        self.page.store(self.offset, value);
    }
}

/// Waits until all CPUs see what this thread stored, registers included. A doorbell's
/// store traps and is no memory access: a mere ordering of accesses would not hold it back.
pub fn finish_stores() {
    fence(Ordering::SeqCst);
    #[cfg(target_arch = "aarch64")]
    // SAFETY: a barrier; it changes no register and no memory.
    unsafe {
        core::arch::asm!("dsb sy", options(nostack, preserves_flags));
    }
}

/// Lets another CPU of an emulator, or another hardware thread, go on.
pub fn relax() {
    #[cfg(target_arch = "aarch64")]
    // SAFETY: a hint; it changes no register and no memory.
    unsafe {
        core::arch::asm!("yield", options(nostack, nomem, preserves_flags));
    }
    #[cfg(not(target_arch = "aarch64"))]
    std::hint::spin_loop();
}

/// Returns the counter that all VMs share, at `Header::counter_hz`; on a host, nanoseconds.
pub fn counter() -> u64 {
    #[cfg(target_arch = "aarch64")]
    {
        let value: u64;
        // SAFETY: reads a register that Linux lets programs read.
        unsafe {
            core::arch::asm!("mrs {}, cntvct_el0", out(reg) value, options(nostack, nomem));
        }
        value
    }
    #[cfg(not(target_arch = "aarch64"))]
    {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        now.map_or(0, |time| time.as_nanos() as u64)
    }
}

/// Maps physical memory that a device-dax device offers. Returns the mapping, and the memory's
/// place in the device's file.
pub fn map_dax(address: u64, size: usize) -> io::Result<(Mapping, FileOffset)> {
    let file = find_dax(Path::new("/sys/bus/dax/devices"), address, size)?;
    let mapping = Mapping::of_file(file.file(), file.start(), size)?;
    Ok((mapping, file))
}

/// Maps physical memory that a device-dax device offers to be read alone, as a guest's RAM at guest
/// address `ipa`.
pub(crate) fn view_dax(address: u64, size: usize, ipa: u64) -> io::Result<Memory> {
    let file = find_dax(Path::new("/sys/bus/dax/devices"), address, size)?;
    let fd = file.file().as_raw_fd();
    let mapping = Mapping::map(fd, file.start(), size, libc::MAP_SHARED, libc::PROT_READ)?;
    let memory = mapping.memory(ipa);
    memory.ok_or_else(|| io::Error::other("the memory would end behind the last address"))
}

/// Opens the device of physical memory that device-dax offers. Each dax device names its range of
/// physical addresses: the first one that holds all is opened.
pub(crate) fn find_dax(devices: &Path, address: u64, size: usize) -> io::Result<FileOffset> {
    for entry in fs::read_dir(devices)? {
        let entry = entry?;
        let start = read_number(&entry.path().join("resource"))?;
        let length = read_number(&entry.path().join("size"))?;
        let Some(offset) = address.checked_sub(start) else {
            continue;
        };
        if offset.saturating_add(size as u64) <= length {
            let path = Path::new("/dev").join(entry.file_name());
            let file = OpenOptions::new().read(true).write(true).open(&path)?;
            return Ok(FileOffset::new(file, offset));
        }
    }
    let message = format!("no dax device holds {size:#x} bytes at {address:#x}");
    Err(io::Error::new(io::ErrorKind::NotFound, message))
}

/// Maps pages that no driver claims, as Device memory.
///
/// # Safety
///
/// Registers of a device are at `address`, and this program may use them: the kernel lets root map
/// any page.
pub unsafe fn map_physical(address: u64, size: usize) -> io::Result<Mapping> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).custom_flags(libc::O_SYNC);
    Mapping::of_file(&options.open("/dev/mem")?, address, size)
}

/// Reads a number of sysfs, decimal or hexadecimal.
fn read_number(path: &Path) -> io::Result<u64> {
    let text = fs::read_to_string(path)?;
    let text = text.trim();
    let number = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    number.map_err(|error| io::Error::other(format!("{}: {error}", path.display())))
}
