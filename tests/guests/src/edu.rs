//! QEMU's PCI device `edu` (QEMU, docs/specs/edu), which copies between memory and a buffer of its
//! own wherever its registers say.
//!
//! A transfer takes 100 ms: QEMU's `edu` copies at the end of that time, by a timer of its own.

use crate::mmio::{read32, read64, write32, write64};
use crate::{report, timer};

/// Device and vendor.
pub const IDENTITY: u32 = 0x11e8_1234;
/// What the first register reads as: the version, and 0xed.
pub const VERSION: u32 = 0x0100_00ed;
/// The buffer, as a transfer names it.
pub const BUFFER: u64 = 0x4_0000;
/// From the buffer to memory.
pub const TO_MEMORY: u64 = 2;
/// With an interrupt at the end of the transfer.
pub const INTERRUPT: u64 = 4;

const INTERRUPT_DONE: u64 = 0x64;
const SOURCE: u64 = 0x80;
const DESTINATION: u64 = 0x88;
const COUNT: u64 = 0x90;
const RUN: u64 = 0x98;
/// Bit of RUN.
const START: u64 = 1;
const TRANSFER_US: u64 = 100_000;
const PATIENCE: u32 = 20;

/// The device, whose registers are at an address.
#[derive(Clone, Copy, Debug)]
pub struct Edu(pub u64);

impl Edu {
    /// Reads the first register.
    pub fn version(self) -> u32 {
        read32(self.0)
    }

    /// Ends the interrupt.
    pub fn end_interrupt(self) {
        write32(self.0 + INTERRUPT_DONE, u32::MAX);
    }

    /// Has the device copy `size` bytes.
    pub fn begin(self, source: u64, destination: u64, size: u64, how: u64) {
        write64(self.0 + SOURCE, source);
        write64(self.0 + DESTINATION, destination);
        write64(self.0 + COUNT, size);
        write64(self.0 + RUN, START | how);
    }

    /// Has the device copy `size` bytes, and waits until it has.
    pub fn transfer(self, source: u64, destination: u64, size: u64, how: u64) {
        self.begin(source, destination, size, how);
        self.await_end("transfer");
    }

    /// Waits until the device has done what it was told last.
    pub fn await_end(self, name: &str) {
        for _ in 0..PATIENCE {
            timer::sleep_us(TRANSFER_US);
            if read32(self.0 + RUN) & START as u32 == 0 {
                return;
            }
        }
        let (source, destination) = (read64(self.0 + SOURCE), read64(self.0 + DESTINATION));
        report::fail(
            name,
            format_args!("{source:x} to {destination:x}: not done"),
        );
    }
}
