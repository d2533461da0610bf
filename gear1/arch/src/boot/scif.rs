//! A SCIF while init has it: it is written by polling (R-Car Gen3 user's manual, "Serial Communication
//! Interface with FIFO").
//!
//! Requirements: G1-BOOT-008.

use crate::barrier;
use crate::mmio::Mmio;
use crate::uart::Pl011;

const SCSCR: usize = 0x08;
const SCFTDR: usize = 0x0c;
const SCFSR: usize = 0x10;
const SCFDR: usize = 0x1c;
const SCSCR_TE: u16 = 1 << 5;
const SCFSR_TDFE_TEND: u16 = 0x60;
const FIFO_BYTES: u16 = 16;
/// Polls of a full FIFO before a byte is given up: about a second at 115200 baud.
const PATIENCE: u32 = 1_000_000;

/// A SCIF that firmware has set up.
#[derive(Clone, Copy, Debug)]
pub struct Scif(Mmio);

impl Scif {
    /// Takes the UART with these registers over: enables transmission.
    pub(super) fn new(registers: Mmio) -> Self {
        let control = registers.read16(SCSCR);
        registers.write16(SCSCR, control | SCSCR_TE);
        Self(registers)
    }

    fn byte(self, byte: u8) {
        let is_full = || self.0.read16(SCFDR) >> 8 & 0x1f >= FIFO_BYTES;
        for _ in 0..PATIENCE {
            if !is_full() {
                break;
            }
            barrier::yield_hint();
        }
        self.0.write8(SCFTDR, byte);
        let status = self.0.read16(SCFSR);
        self.0.write16(SCFSR, status & !SCFSR_TDFE_TEND);
    }
}

/// The boot UART.
#[derive(Clone, Copy, Debug)]
pub enum BootUart {
    /// Arm PL011.
    Pl011(Pl011),
    /// Renesas SCIF.
    Scif(Scif),
}

impl BootUart {
    /// Writes text; a newline gets its carriage return.
    pub fn text(self, text: &str) {
        match self {
            Self::Pl011(uart) => uart.text(text),
            Self::Scif(uart) => {
                for byte in text.bytes() {
                    if byte == b'\n' {
                        uart.byte(b'\r');
                    }
                    uart.byte(byte);
                }
            }
        }
    }
}
