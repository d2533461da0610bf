//! The boot UART while Gear1 has it to itself: init's messages, and the runtime's when the machine
//! halts.
//!
//! Output polls the UART's status; firmware has set up rate, format and clock. The UARTs are PL011
//! (Arm DDI 0183), SCIF (R-Car Gen3 user's manual, "Serial Communication Interface with FIFO"),
//! mini-UART (BCM2711 peripherals, 2.2) and Cadence's (Zynq UltraScale+ MPSoC, AMD UG1087, module
//! UART).
//!
//! Requirements: G1-RUN-002, G1-BOOT-008.

use gear1_abi::info::uart;
use gear1_abi::layout::{PAGE_SIZE, el2};

use crate::mmio::Mmio;

const DR: usize = 0x00;
const FR: usize = 0x18;
const CR: usize = 0x30;
const FR_TXFF: u32 = 1 << 5;
const CR_ENABLED: u32 = 0x301;

const SCSCR: usize = 0x08;
const SCFTDR: usize = 0x0c;
const SCFSR: usize = 0x10;
const SCFDR: usize = 0x1c;
const SCSCR_TE: u16 = 1 << 5;
const SCFSR_TDFE_TEND: u16 = 0x60;
const SCIF_FIFO: u16 = 16;

/// The mini-UART's registers begin in the middle of their page.
const MU_IO: usize = uart::MINI_OFFSET as usize;
const MU_LSR: usize = MU_IO + 0x14;
const MU_CNTL: usize = MU_IO + 0x20;
const MU_LSR_EMPTY: u32 = 1 << 5;
const MU_CNTL_ENABLED: u32 = 0b11;

const CDNS_CR: usize = 0x00;
const CDNS_SR: usize = 0x2c;
const CDNS_FIFO: usize = 0x30;
const CDNS_CR_ENABLED: u32 = 0x14;
const CDNS_SR_TXFULL: u32 = 1 << 4;

/// Polls of a full FIFO before a byte is given up: about a second at 115200 baud.
const PATIENCE: u32 = 1_000_000;

/// A UART that is written by polling.
#[derive(Clone, Copy, Debug)]
pub struct BootUart {
    /// Kind of UART: a constant of [`uart`].
    kind: u32,
    /// Register page.
    page: Mmio,
}

impl BootUart {
    /// Takes the UART in this page over: enables transmission. `kind` is one of [`uart`].
    pub fn take_over(kind: u32, page: Mmio) -> Self {
        match kind {
            uart::SCIF => page.write16(SCSCR, page.read16(SCSCR) | SCSCR_TE),
            uart::MINI => page.write32(MU_CNTL, MU_CNTL_ENABLED),
            uart::CADENCE => page.write32(CDNS_CR, CDNS_CR_ENABLED),
            _ => page.write32(CR, CR_ENABLED),
        }
        Self { kind, page }
    }

    fn is_full(self) -> bool {
        match self.kind {
            uart::SCIF => self.page.read16(SCFDR) >> 8 & 0x1f >= SCIF_FIFO,
            uart::MINI => self.page.read32(MU_LSR) & MU_LSR_EMPTY == 0,
            uart::CADENCE => self.page.read32(CDNS_SR) & CDNS_SR_TXFULL != 0,
            _ => self.page.read32(FR) & FR_TXFF != 0,
        }
    }

    fn byte(self, byte: u8) {
        // Bound: PATIENCE reads of the UART's flag register.
        for _ in 0..PATIENCE {
            if !self.is_full() {
                break;
            }
            crate::barrier::yield_hint();
        }
        match self.kind {
            uart::SCIF => {
                self.page.write8(SCFTDR, byte);
                let status = self.page.read16(SCFSR);
                self.page.write16(SCFSR, status & !SCFSR_TDFE_TEND);
            }
            uart::MINI => self.page.write32(MU_IO, byte.into()),
            uart::CADENCE => self.page.write32(CDNS_FIFO, byte.into()),
            _ => self.page.write32(DR, byte.into()),
        }
    }

    /// Writes text; a newline gets its carriage return.
    pub fn text(self, text: &str) {
        // Bound: bytes of a constant text.
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
        // Bound: 16 digits.
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

/// Takes over the boot UART of this kind in the runtime.
///
/// # Safety
///
/// The image is the runtime's, which halts.
pub unsafe fn boot(kind: u32) -> BootUart {
    // SAFETY: init maps the UART's page at this address for good, or nothing, and no
    // UART of these kinds accesses memory. Gear2 may drive it too until now; it never
    // runs again on this CPU.
    BootUart::take_over(kind, unsafe { Mmio::new(el2::UART, PAGE_SIZE) })
}
