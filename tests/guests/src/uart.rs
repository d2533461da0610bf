//! A PL011, or the part of one that SBSA names, polled.

use core::fmt;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use crate::mmio::{read32, write32};

/// Register offsets (Arm DDI 0183, PL011 TRM, chapter 3).
pub mod register {
    /// Data.
    pub const DR: u64 = 0x00;
    /// Flags.
    pub const FR: u64 = 0x18;
    /// Control.
    pub const CR: u64 = 0x30;
    /// Interrupt mask.
    pub const IMSC: u64 = 0x38;
    /// Raw interrupt status.
    pub const RIS: u64 = 0x3c;
    /// Interrupt clear.
    pub const ICR: u64 = 0x44;
}

const TRANSMIT_FULL: u32 = 1 << 5;
const RECEIVE_EMPTY: u32 = 1 << 4;
const ENABLE_ALL: u32 = 0x301;

/// Address of the UART until the device tree has been read.
static BASE: AtomicU64 = AtomicU64::new(0x0900_0000);

/// Whether the UART has a control register.
static HAS_CONTROL: AtomicBool = AtomicBool::new(true);

/// Uses the PL011 at `base`. One of the SBSA has no control register: it is always on, and Xen
/// answers a store to the register's address by an abort.
pub(crate) fn init(base: u64, is_sbsa: bool) {
    BASE.store(base, Relaxed);
    HAS_CONTROL.store(!is_sbsa, Relaxed);
    enable();
}

/// Turns the UART on, whatever was written to it.
pub fn enable() {
    if base() != 0 && HAS_CONTROL.load(Relaxed) {
        write32(base() + register::CR, ENABLE_ALL);
    }
}

/// Returns the address of the UART.
pub fn base() -> u64 {
    BASE.load(Relaxed)
}

/// Sends one byte.
pub fn send(byte: u8) {
    let base = base();
    if base == 0 {
        return;
    }
    while read32(base + register::FR) & TRANSMIT_FULL != 0 {}
    write32(base + register::DR, byte.into());
}

/// Returns a byte that was typed, if there is one.
pub fn receive() -> Option<u8> {
    let base = base();
    let empty = read32(base + register::FR) & RECEIVE_EMPTY != 0;
    (!empty).then(|| read32(base + register::DR) as u8)
}

/// The UART as a text stream.
pub struct Console;

impl fmt::Write for Console {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            if byte == b'\n' {
                send(b'\r');
            }
            send(byte);
        }
        Ok(())
    }
}

/// Prints a line.
#[macro_export]
macro_rules! say {
    ($($argument:tt)*) => {{
        use core::fmt::Write as _;
        // The console never fails.
        let _ = writeln!($crate::uart::Console, $($argument)*);
    }};
}
