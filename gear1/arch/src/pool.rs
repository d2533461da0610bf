//! The pool of stage-2 tables, as the runtime reads and writes it.
//!
//! Invariant: an access outside of the pool does nothing. Who writes a descriptor answers for what
//! it maps.
//!
//! Requirements: G1-MEM-013.

use core::ptr;

use gear1_abi::layout::{PAGE_SIZE, el2};
use gear1_core::addr::Pa;

use crate::handover::Handover;

/// The pool.
#[derive(Clone, Copy, Debug)]
pub struct Pool {
    base: u64,
    size: u64,
}

impl Pool {
    /// Returns the machine's pool.
    #[must_use]
    pub const fn new(boot: Handover) -> Self {
        let boot = boot.info();
        Self {
            base: boot.pool,
            size: boot.pool_size,
        }
    }

    fn descriptor(&self, table: Pa, index: usize) -> Option<*mut u64> {
        let offset = table.page().get().wrapping_sub(self.base);
        let in_table = (index as u64).wrapping_mul(8) % PAGE_SIZE;
        let address = el2::POOL.wrapping_add(offset).wrapping_add(in_table);
        (offset < self.size).then_some(address as *mut u64)
    }

    /// Reads the descriptor at `index` of a table; 0 outside of the pool.
    #[must_use]
    pub fn read(&self, table: Pa, index: usize) -> u64 {
        match self.descriptor(table, index) {
            // SAFETY: an aligned word of the pool, which init mapped and `new` saw handed over;
            // table walks read it too, so it is volatile.
            Some(at) => unsafe { ptr::read_volatile(at) },
            None => 0,
        }
    }

    /// Writes that descriptor.
    ///
    /// # Safety
    ///
    /// The table is one of a VM's or a free one. In a VM's, the descriptor maps memory and devices
    /// that the VM has, or a table of its own.
    pub unsafe fn write(&self, table: Pa, index: usize, descriptor: u64) {
        if let Some(at) = self.descriptor(table, index) {
            // SAFETY: as above; writable.
            unsafe { ptr::write_volatile(at, descriptor) };
        }
    }
}
