//! Registers of the devices that Gear1 feeds, where init has mapped them.
//!
//! Requirements: G1-SUP-005.

use gear1_abi::boot::MAX_WATCHDOGS;
use gear1_abi::layout::{PAGE_SIZE, el2};
use gear1_core::board_watchdog::{Registers, Status};

use crate::handover::Handover;
use crate::mmio::Mmio;
use crate::{barrier, cpu};

/// Registers of one device.
#[derive(Clone, Copy, Debug)]
pub struct Page {
    registers: Mmio,
    settle_ticks: u64,
}

impl Page {
    /// Names the registers of the device numbered `number`, if init has handed over one.
    #[must_use]
    pub fn of(boot: Handover, number: usize) -> Option<Self> {
        let watchdog = boot.info().watchdogs.get(number)?;
        if watchdog.kind == 0 || number >= MAX_WATCHDOGS {
            return None;
        }
        let page = el2::WATCHDOGS.wrapping_add((number as u64).wrapping_mul(PAGE_SIZE));
        // SAFETY: init maps the page of each device of the hand-over here for good, and checks that
        // no VM has it. No device of a kind that init hands over accesses memory.
        let registers = unsafe { Mmio::new(page, PAGE_SIZE) };
        let settle_ticks = boot.info().settle_ticks;
        Some(Self {
            registers,
            settle_ticks,
        })
    }
}

impl Status for Page {
    fn read8(&self, offset: usize) -> u8 {
        self.registers.read8(offset)
    }

    fn read16(&self, offset: usize) -> u16 {
        self.registers.read16(offset)
    }

    fn read32(&self, offset: usize) -> u32 {
        self.registers.read32(offset)
    }
}

impl Registers for Page {
    fn write16(&self, offset: usize, value: u16) {
        self.registers.write16(offset, value);
    }

    fn write32(&self, offset: usize, value: u32) {
        self.registers.write32(offset, value);
    }

    fn settle(&self) {
        let since = cpu::now();
        // Bound: `settle_ticks`, 62 us.
        while cpu::now().wrapping_sub(since) < self.settle_ticks {
            barrier::yield_hint();
        }
    }
}
