//! Device registers: aligned, volatile accesses inside one mapped region.
//!
//! Small devices have a structure of registers, a `Block`. The GIC's frames are accessed by
//! offset: most accesses compute the offset from an INTID, which in a structure of arrays is an
//! index to be checked, and some registers are accessed in bytes as well as in words.
//!
//! Requirements: G1-GIC-006.

use core::ptr;

/// A structure of a device's registers.
///
/// # Safety
///
/// All fields are registers of `tock-registers`, or padding.
pub(crate) unsafe trait Block {}

/// A device's registers in the EL2 address space.
#[derive(Clone, Copy, Debug)]
pub struct Mmio {
    base: usize,
    size: usize,
}

impl Mmio {
    /// No registers: reads return 0, writes are dropped.
    pub const NONE: Self = Self { base: 0, size: 0 };

    /// Names the registers at `base`.
    ///
    /// # Safety
    ///
    /// `base..base + size` is mapped as Device memory in EL2 for as long as the
    /// image runs, holds registers of one device, and is reached by nothing else.
    /// No write makes the device access memory, or whoever gets the `Mmio` makes
    /// no such write.
    pub const unsafe fn new(base: u64, size: u64) -> Self {
        Self {
            base: base as usize,
            size: size as usize,
        }
    }

    /// Returns the address of the register at `offset`, if it is aligned and inside.
    #[inline(always)]
    fn at<T>(self, offset: usize) -> Option<*mut T> {
        let size = size_of::<T>();
        let fits = offset <= self.size.wrapping_sub(size) && self.size >= size;
        let aligned = offset & size.wrapping_sub(1) == 0;
        (fits && aligned).then_some(self.base.wrapping_add(offset) as *mut T)
    }

    /// Returns the structure of registers that begins with the region, if the region holds all.
    pub(crate) fn block<T: Block>(self) -> Option<&'static T> {
        let is_aligned = self.base & align_of::<T>().wrapping_sub(1) == 0;
        // SAFETY: the registers are mapped for as long as the image runs, as `new`'s caller vouched
        // for. A `Block` has volatile accesses only, and any value is one of its registers'.
        (size_of::<T>() <= self.size && is_aligned).then(|| unsafe { &*(self.base as *const T) })
    }

    /// Reads a 32-bit register.
    #[inline(always)]
    pub fn read32(self, offset: usize) -> u32 {
        // SAFETY: `at` gives an aligned address inside the region that `new`'s
        // caller vouched for.
        self.at::<u32>(offset)
            .map_or(0, |p| unsafe { ptr::read_volatile(p) })
    }

    /// Writes a 32-bit register.
    #[inline(always)]
    pub fn write32(self, offset: usize, value: u32) {
        if let Some(p) = self.at::<u32>(offset) {
            // SAFETY: as for `read32`.
            unsafe { ptr::write_volatile(p, value) };
        }
    }

    /// Reads a 16-bit register.
    pub fn read16(self, offset: usize) -> u16 {
        // SAFETY: as for `read32`.
        self.at::<u16>(offset)
            .map_or(0, |p| unsafe { ptr::read_volatile(p) })
    }

    /// Writes a 16-bit register.
    pub fn write16(self, offset: usize, value: u16) {
        if let Some(p) = self.at::<u16>(offset) {
            // SAFETY: as for `read32`.
            unsafe { ptr::write_volatile(p, value) };
        }
    }

    /// Reads an 8-bit register.
    pub fn read8(self, offset: usize) -> u8 {
        // SAFETY: as for `read32`.
        self.at::<u8>(offset)
            .map_or(0, |p| unsafe { ptr::read_volatile(p) })
    }

    /// Writes an 8-bit register.
    pub fn write8(self, offset: usize, value: u8) {
        if let Some(p) = self.at::<u8>(offset) {
            // SAFETY: as for `read32`.
            unsafe { ptr::write_volatile(p, value) };
        }
    }

    /// Reads a 64-bit register.
    pub fn read64(self, offset: usize) -> u64 {
        // SAFETY: as for `read32`.
        self.at::<u64>(offset)
            .map_or(0, |p| unsafe { ptr::read_volatile(p) })
    }

    /// Writes a 64-bit register.
    pub fn write64(self, offset: usize, value: u64) {
        if let Some(p) = self.at::<u64>(offset) {
            // SAFETY: as for `read32`.
            unsafe { ptr::write_volatile(p, value) };
        }
    }
}
