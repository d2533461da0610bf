//! Physical memory as init uses it: copies and fills by address, never references.
//!
//! A seam to hardware: `gear1_arch::boot` implements it on the machine, a map on the host.
//!
//! Requirements: G1-BOOT-003.

use core::ops::Range;

use gear1_abi::boot::BootInfo;
use gear1_abi::info::Gear2Info;

use crate::addr::Pa;
use crate::table::MapError;

/// Physical memory. An access outside of what the implementation was given is a fault of init's
/// and stops the machine.
pub trait PhysicalMemory {
    /// Reads an aligned word.
    fn read_word(&self, pa: Pa) -> u64;
    /// Writes an aligned word.
    fn write_word(&mut self, pa: Pa, value: u64);
    /// Returns how many of `count` aligned words from `pa` on are zero, up to the first that is
    /// not.
    fn count_zero_words(&self, pa: Pa, count: usize) -> usize {
        let words = (pa.get()..).step_by(8).take(count);
        let zero = words.take_while(|word| self.read_word(Pa::new(*word)) == 0);
        zero.count()
    }
    /// Writes `count` aligned words from `pa` on: `first`, and each next one `step` above the one
    /// before.
    fn write_words(&mut self, pa: Pa, count: usize, first: u64, step: u64) {
        let mut value = first;
        for word in (pa.get()..).step_by(8).take(count) {
            self.write_word(Pa::new(word), value);
            value = value.wrapping_add(step);
        }
    }
    /// Writes bytes.
    fn write(&mut self, pa: Pa, bytes: &[u8]);
    /// Writes zeroes.
    fn zero(&mut self, pa: Pa, size: u64);
    /// Writes what init hands over to the runtime.
    fn write_boot_info(&mut self, pa: Pa, info: &BootInfo);
    /// Writes what Gear2 finds.
    fn write_gear2_info(&mut self, pa: Pa, info: &Gear2Info);
    /// Cleans a range, so that accesses with caches off and instruction fetches see the written
    /// data.
    fn clean(&mut self, pa: Pa, size: u64);
    /// Writes zeroes and cleans the range, in one pass where the machine can.
    fn wipe(&mut self, pa: Pa, size: u64) {
        self.zero(pa, size);
        self.clean(pa, size);
    }
    /// Reads an 8-bit device register.
    fn read_register8(&self, pa: Pa) -> u8;
    /// Reads a 16-bit device register.
    fn read_register16(&self, pa: Pa) -> u16;
    /// Reads a 32-bit device register.
    fn read_register32(&self, pa: Pa) -> u32;
    /// Reads a 64-bit device register.
    fn read_register(&self, pa: Pa) -> u64;
    /// Writes a 32-bit register of a device that Gear1 drives. Whatever memory the register makes
    /// the device access was taken for that.
    fn write_register32(&mut self, pa: Pa, value: u32);
    /// Writes a 64-bit register of such a device.
    fn write_register(&mut self, pa: Pa, value: u64);
    /// Makes device registers reachable that nothing but the manifest names. Returns whether there
    /// is a machine behind them.
    fn reach_registers(&mut self, registers: Range<u64>) -> Result<bool, MapError>;
    /// Completes earlier accesses to memory and registers before later ones.
    fn order(&self);
}
