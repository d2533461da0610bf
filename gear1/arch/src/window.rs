//! Windows: the only way the runtime reaches a guest's memory. Each CPU has two
//! (source and destination) of 64 KiB; what they map changes, and is nothing
//! between two uses.

use core::ptr;

use gear1_abi::id::CpuIndex;
use gear1_abi::layout::PAGE_SIZE;
use gear1_abi::layout::el2::{WINDOW_SIZE, WINDOW_STRIDE, WINDOW_TABLES, WINDOWS};

use crate::{barrier, cache, tlb};

const PAGES: u64 = WINDOW_SIZE / PAGE_SIZE;
/// Level-3 page: valid, AttrIndx 0 (Normal write-back), AP[1] RES1, inner
/// shareable, accessed, XN (Arm ARM D8.3.1, one VA range).
const PAGE: u64 = 0b11 | 1 << 6 | 0b11 << 8 | 1 << 10 | 1 << 54;
const READ_ONLY: u64 = 1 << 7;

/// Which of a CPU's two windows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Read-only.
    Source = 0,
    /// Read-write.
    Destination = 1,
}

/// A window that maps physical memory until it is dropped.
#[derive(Debug)]
pub struct Window {
    cpu: CpuIndex,
    side: Side,
    /// Offset of the first byte in the window.
    offset: u64,
    size: u64,
}

fn entry(cpu: CpuIndex, side: Side, page: u64) -> *mut u64 {
    let table = WINDOW_TABLES.wrapping_add(cpu.reg().wrapping_mul(PAGE_SIZE));
    let index = (side as u64).wrapping_mul(PAGES).wrapping_add(page % PAGES);
    table.wrapping_add(index.wrapping_mul(8)) as *mut u64
}

impl Window {
    /// Maps `size` bytes at the physical address `pa`, as far as they fit.
    ///
    /// # Safety
    ///
    /// The caller runs on `cpu`, has no other window on this side, and the memory
    /// belongs to a VM none of whose vCPUs runs, or to the archive.
    pub unsafe fn map(cpu: CpuIndex, side: Side, pa: u64, size: u64) -> Self {
        let offset = pa % PAGE_SIZE;
        let size = size.min(WINDOW_SIZE.wrapping_sub(offset));
        let base = pa.wrapping_sub(offset);
        let attributes = if side == Side::Source { PAGE | READ_ONLY } else { PAGE };
        for page in 0..PAGES {
            let descriptor = base.wrapping_add(page.wrapping_mul(PAGE_SIZE)) | attributes;
            let used = page.wrapping_mul(PAGE_SIZE) < offset.wrapping_add(size);
            // SAFETY: the entry lies in this CPU's window table, which init mapped.
            unsafe { ptr::write_volatile(entry(cpu, side, page), if used { descriptor } else { 0 }) };
        }
        // The entries were invalid before: no break-before-make is due, only visibility.
        barrier::dsb_ishst();
        barrier::isb();
        Self { cpu, side, offset, size }
    }

    fn page_address(&self, page: u64) -> u64 {
        let cpu = self.cpu.reg().wrapping_mul(WINDOW_STRIDE);
        let side = (self.side as u64).wrapping_mul(WINDOW_SIZE);
        WINDOWS.wrapping_add(cpu).wrapping_add(side).wrapping_add(page.wrapping_mul(PAGE_SIZE))
    }

    fn address(&self) -> u64 {
        self.page_address(0).wrapping_add(self.offset)
    }

    /// Returns the bytes mapped.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Fills the window with zeroes.
    pub fn zero(&mut self) {
        // SAFETY: `size` bytes from `address` are mapped writable for this window.
        unsafe { ptr::write_bytes(self.address() as *mut u8, 0, self.size as usize) };
    }

    /// Copies the source window to `offset` of this one, as far as both reach.
    pub fn copy_from(&mut self, source: &Window, offset: u64) {
        let room = self.size.saturating_sub(offset);
        let count = source.size.min(room);
        let to = self.address().wrapping_add(offset) as *mut u8;
        // SAFETY: both ranges are mapped, the destination writable; the two sides
        // are different addresses, and a VM's memory never overlaps the archive.
        unsafe { ptr::copy_nonoverlapping(source.address() as *const u8, to, count as usize) };
    }

    /// Cleans and invalidates the window's lines to the point of coherency: the
    /// guest starts with its caches off and must find what was written.
    pub fn clean(&self) {
        cache::clean_invalidate_range(self.address(), self.size);
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        for page in 0..PAGES {
            // SAFETY: as in `map`.
            unsafe { ptr::write_volatile(entry(self.cpu, self.side, page), 0) };
            tlb::invalidate_el2_page(self.page_address(page));
        }
    }
}

