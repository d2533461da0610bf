//! The boot UART while Gear1 has it to itself: when the machine halts.
//!
//! Requirements: G1-RUN-002.

use crate::mmio::Mmio;

const DR: usize = 0x00;
const FR: usize = 0x18;
const CR: usize = 0x30;
const FR_TXFF: u32 = 1 << 5;
const CR_ENABLED: u32 = 0x301;
/// Polls of the full flag before a byte is given up: about a second at 115200 baud.
const PATIENCE: u32 = 1_000_000;

/// A PL011 that is written by polling.
#[derive(Clone, Copy, Debug)]
pub struct Pl011(Mmio);

impl Pl011 {
    /// Takes the UART with these registers over: enables transmission.
    pub fn take_over(registers: Mmio) -> Self {
        registers.write32(CR, CR_ENABLED);
        Self(registers)
    }

    fn byte(self, byte: u8) {
        for _ in 0..PATIENCE {
            if self.0.read32(FR) & FR_TXFF == 0 {
                break;
            }
            crate::barrier::yield_hint();
        }
        self.0.write32(DR, u32::from(byte));
    }

    /// Writes text; a newline gets its carriage return.
    pub fn text(self, text: &str) {
        for byte in text.bytes() {
            if byte == b'\n' {
                self.byte(b'\r');
            }
            self.byte(byte);
        }
    }

    /// Writes a number as `0x` and 16 hexadecimal digits.
    pub fn hex(self, value: u64) {
        self.text("0x");
        for shift in (0..64).step_by(4).rev() {
            let digit = (value >> shift) as u8 & 0xf;
            self.byte(if digit < 10 {
                b'0' + digit
            } else {
                b'a' + digit - 10
            });
        }
    }
}

/// Takes over the boot UART, which init maps at `base`.
pub fn boot(base: u64, size: u64) -> Pl011 {
    // SAFETY: init maps the UART's page at this address for good. Gear2 may drive
    // it too until now; it never runs again on this CPU.
    Pl011::take_over(unsafe { Mmio::new(base, size) })
}
