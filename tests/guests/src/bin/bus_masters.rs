//! Leaves devices that master the bus running, and resets its VM: its next life must find them
//! stopped.
//!
//! The registers are those of a ZCU102: its SD host controller and its Ethernet, which GearV knows,
//! and its CAN controller, of which the manifest says how. A life leaves a mark in each, which is what a
//! device in use has there, and prints what it has found.
//!
//! A real-time VM has no console. It owns the boot UART, a Cadence one, which the library does not
//! know.
#![no_std]
#![no_main]

use core::fmt::{self, Write as _};

use test_guests::mmio::{read32, write32};
use test_guests::{Machine, guest, psci};

guest!(main);

/// Normal Interrupt Status Enable of the SD host controller: 0 after Software Reset For All (SD Host
/// Controller Simplified Specification, 2.2.18), and what it may hold of a write.
const SDHCI: (u64, u32) = (0xff17_0034, 0x1ff);
/// Network control of the Cadence GEM: reception and transmission enabled.
const GEM: (u64, u32) = (0xff0e_0000, 0b1100);
/// Software reset of the CAN controller: enabled (UG1085, CAN registers).
const CAN: (u64, u32) = (0xff07_0000, 0b10);

/// The boot UART: status, its bit for a transmitter without room, and the FIFO (UG1085, UART
/// registers).
const STATUS: u64 = 0xff00_002c;
const FULL: u32 = 1 << 4;
const FIFO: u64 = 0xff00_0030;

struct BootUart;

impl fmt::Write for BootUart {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            while read32(STATUS) & FULL != 0 {}
            write32(FIFO, byte.into());
        }
        Ok(())
    }
}

fn main(_machine: &Machine) {
    let found = [SDHCI, GEM, CAN].map(|(register, mark)| read32(register) & mark);
    for (register, mark) in [SDHCI, GEM, CAN] {
        write32(register, mark);
    }
    let left = [SDHCI, GEM, CAN].map(|(register, mark)| read32(register) & mark);
    // The UART does not fail.
    let _ = writeln!(BootUart, "found {found:x?}, left {left:x?}");
    psci::system_reset();
}
