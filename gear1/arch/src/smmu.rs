//! Registers and queues of the SMMU, where init has mapped them.
//!
//! Requirements: G1-DMA-002, G1-DMA-003.

use core::ptr;

use gear1_abi::layout::{PAGE_SIZE, el2};
use gear1_core::smmu::{Device, REGISTERS_SIZE};

use crate::barrier;
use crate::handover::Handover;
use crate::mmio::Mmio;

/// Event queue, behind the command queue.
const EVENTS: u64 = el2::SMMU_QUEUES + PAGE_SIZE;

/// The SMMU that init has started. Its tables and queues are where init has placed them: nothing
/// here writes an address.
#[derive(Debug)]
pub struct Smmu(Mmio);

impl Smmu {
    /// Names the SMMU's registers and queues, if init has handed over one.
    #[must_use]
    pub fn of(boot: Handover) -> Option<Self> {
        if boot.info().smmu.registers == 0 {
            return None;
        }
        // SAFETY: init maps the registers here for good, and checks that no VM has them. Registers
        // that hold addresses of memory are written by nothing: `write64` drops what it gets.
        Some(Self(unsafe { Mmio::new(el2::SMMU, REGISTERS_SIZE) }))
    }
}

/// Returns the address of a word in a page of entries.
fn word(page: u64, offset: u64) -> *mut u64 {
    page.wrapping_add((offset % PAGE_SIZE) & !7) as *mut u64
}

impl Device for Smmu {
    fn read32(&self, offset: usize) -> u32 {
        self.0.read32(offset)
    }

    fn write32(&mut self, offset: usize, value: u32) {
        self.0.write32(offset, value);
    }

    fn write64(&mut self, _offset: usize, _value: u64) {}

    fn put_command(&mut self, slot: u32, command: [u64; 2]) {
        let first = u64::from(slot).wrapping_mul(16);
        let [low, high] = command;
        // SAFETY: an aligned word in the page of the command queue, which `of` saw handed over.
        // Commands invalidate and synchronize: none makes the SMMU write memory.
        unsafe { ptr::write_volatile(word(el2::SMMU_QUEUES, first), low) };
        let second = first.wrapping_add(8);
        // SAFETY: as above.
        unsafe { ptr::write_volatile(word(el2::SMMU_QUEUES, second), high) };
    }

    fn event(&self, slot: u32) -> [u64; 4] {
        let first = u64::from(slot).wrapping_mul(32);
        // Bound: 4 words.
        // SAFETY: aligned words in the page of the event queue, which `of` saw handed over. The SMMU
        // writes there too, so the accesses are volatile.
        [0, 8, 16, 24].map(|at| unsafe { ptr::read_volatile(word(EVENTS, first.wrapping_add(at))) })
    }

    fn order(&self) {
        barrier::dsb_sy();
    }
}
