//! The boot UART while Gear1 has it to itself: init's messages, and the runtime's when the machine
//! halts.
//!
//! Output polls the UART's status; firmware has set up rate, format and clock. The UARTs are PL011
//! (Arm DDI 0183), SCIF (R-Car Gen3 user's manual, "Serial Communication Interface with FIFO"),
//! mini-UART (BCM2711 peripherals, 2.2), Cadence's (Zynq UltraScale+ MPSoC, AMD UG1087, module
//! UART) and i.MX's (i.MX 8M Plus reference manual, "Universal Asynchronous Receiver/Transmitter").
//!
//! Requirements: G1-RUN-002, G1-BOOT-008.

use gear1_abi::info::uart;
use gear1_abi::layout::{PAGE_SIZE, el2};

use tock_registers::interfaces::{ReadWriteable as _, Readable as _, Writeable as _};
use tock_registers::registers::{ReadOnly, ReadWrite, WriteOnly};
use tock_registers::{register_bitfields, register_structs};

use crate::mmio::{Block, Mmio};

register_bitfields! { u32,
    /// PL011: flags.
    FR [
        /// The transmit FIFO is full.
        TXFF OFFSET(5) NUMBITS(1) [],
    ],
    /// PL011: control.
    CR [
        RXE OFFSET(9) NUMBITS(1) [],
        TXE OFFSET(8) NUMBITS(1) [],
        UARTEN OFFSET(0) NUMBITS(1) [],
    ],
    /// Mini-UART: line status.
    MU_LSR [
        /// The transmit FIFO takes at least one byte.
        TX_EMPTY OFFSET(5) NUMBITS(1) [],
    ],
    /// Mini-UART: control.
    MU_CNTL [
        TX_ENABLE OFFSET(1) NUMBITS(1) [],
        RX_ENABLE OFFSET(0) NUMBITS(1) [],
    ],
    /// Cadence: control.
    CDNS_CR [
        TX_EN OFFSET(4) NUMBITS(1) [],
        RX_EN OFFSET(2) NUMBITS(1) [],
    ],
    /// Cadence: status.
    CDNS_SR [
        /// The transmit FIFO is full.
        TXFULL OFFSET(4) NUMBITS(1) [],
    ],
    /// i.MX: control 1.
    IMX_UCR1 [
        UARTEN OFFSET(0) NUMBITS(1) [],
    ],
    /// i.MX: control 2.
    IMX_UCR2 [
        TXEN OFFSET(2) NUMBITS(1) [],
        RXEN OFFSET(1) NUMBITS(1) [],
    ],
    /// i.MX: test, which has the state of the FIFOs.
    IMX_UTS [
        /// The transmit FIFO is full.
        TXFULL OFFSET(4) NUMBITS(1) [],
    ],
}

register_bitfields! { u16,
    /// SCIF: control.
    SCSCR [
        /// Transmission is enabled.
        TE OFFSET(5) NUMBITS(1) [],
    ],
    /// SCIF: status.
    SCFSR [
        /// All is sent.
        TEND OFFSET(6) NUMBITS(1) [],
        /// The transmit FIFO has room.
        TDFE OFFSET(5) NUMBITS(1) [],
    ],
    /// SCIF: bytes in the FIFOs.
    SCFDR [
        TRANSMIT OFFSET(8) NUMBITS(5) [],
    ],
}

register_structs! {
    Pl011 {
        (0x00 => dr: WriteOnly<u32>),
        (0x04 => _before_fr),
        (0x18 => fr: ReadOnly<u32, FR::Register>),
        (0x1c => _before_cr),
        (0x30 => cr: WriteOnly<u32, CR::Register>),
        (0x34 => @END),
    },
    Scif {
        (0x00 => _before_scscr),
        (0x08 => scscr: ReadWrite<u16, SCSCR::Register>),
        (0x0a => _before_scftdr),
        (0x0c => scftdr: WriteOnly<u8>),
        (0x0d => _before_scfsr),
        (0x10 => scfsr: ReadWrite<u16, SCFSR::Register>),
        (0x12 => _before_scfdr),
        (0x1c => scfdr: ReadOnly<u16, SCFDR::Register>),
        (0x1e => @END),
    },
    /// The mini-UART's registers begin in the middle of their page.
    MiniUart {
        (0x00 => _before_io),
        (0x40 => io: WriteOnly<u32>),
        (0x44 => _before_lsr),
        (0x54 => lsr: ReadOnly<u32, MU_LSR::Register>),
        (0x58 => _before_cntl),
        (0x60 => cntl: WriteOnly<u32, MU_CNTL::Register>),
        (0x64 => @END),
    },
    Cadence {
        (0x00 => cr: WriteOnly<u32, CDNS_CR::Register>),
        (0x04 => _before_sr),
        (0x2c => sr: ReadOnly<u32, CDNS_SR::Register>),
        (0x30 => fifo: WriteOnly<u32>),
        (0x34 => @END),
    },
    Imx {
        (0x00 => _before_utxd),
        (0x40 => utxd: WriteOnly<u32>),
        (0x44 => _before_ucr1),
        (0x80 => ucr1: ReadWrite<u32, IMX_UCR1::Register>),
        (0x84 => ucr2: ReadWrite<u32, IMX_UCR2::Register>),
        (0x88 => _before_uts),
        (0xb4 => uts: ReadOnly<u32, IMX_UTS::Register>),
        (0xb8 => @END),
    }
}

const _: () = assert!(uart::MINI_OFFSET == 0x40);

// SAFETY: registers and padding.
unsafe impl Block for Pl011 {}
// SAFETY: registers and padding.
unsafe impl Block for Scif {}
// SAFETY: registers and padding.
unsafe impl Block for MiniUart {}
// SAFETY: registers and padding.
unsafe impl Block for Cadence {}
// SAFETY: registers and padding.
unsafe impl Block for Imx {}

const SCIF_FIFO: u16 = 16;

/// Polls of a full FIFO before a byte is given up: about a second at 115200 baud.
const PATIENCE: u32 = 1_000_000;

/// Registers of a UART.
enum Device {
    None,
    Pl011(&'static Pl011),
    Scif(&'static Scif),
    Mini(&'static MiniUart),
    Cadence(&'static Cadence),
    Imx(&'static Imx),
}

impl Device {
    /// Enables transmission.
    fn enable(&self) {
        match self {
            Self::None => {}
            Self::Pl011(uart) => {
                uart.cr.write(CR::UARTEN::SET + CR::TXE::SET + CR::RXE::SET);
            }
            Self::Scif(uart) => uart.scscr.modify(SCSCR::TE::SET),
            Self::Mini(uart) => {
                uart.cntl
                    .write(MU_CNTL::TX_ENABLE::SET + MU_CNTL::RX_ENABLE::SET);
            }
            Self::Cadence(uart) => uart.cr.write(CDNS_CR::TX_EN::SET + CDNS_CR::RX_EN::SET),
            Self::Imx(uart) => {
                uart.ucr1.modify(IMX_UCR1::UARTEN::SET);
                uart.ucr2.modify(IMX_UCR2::TXEN::SET + IMX_UCR2::RXEN::SET);
            }
        }
    }

    fn is_full(&self) -> bool {
        match self {
            Self::None => false,
            Self::Pl011(uart) => uart.fr.is_set(FR::TXFF),
            Self::Scif(uart) => uart.scfdr.read(SCFDR::TRANSMIT) >= SCIF_FIFO,
            Self::Mini(uart) => !uart.lsr.is_set(MU_LSR::TX_EMPTY),
            Self::Cadence(uart) => uart.sr.is_set(CDNS_SR::TXFULL),
            Self::Imx(uart) => uart.uts.is_set(IMX_UTS::TXFULL),
        }
    }

    fn send(&self, byte: u8) {
        match self {
            Self::None => {}
            Self::Pl011(uart) => uart.dr.set(byte.into()),
            Self::Scif(uart) => {
                uart.scftdr.set(byte);
                uart.scfsr.modify(SCFSR::TDFE::CLEAR + SCFSR::TEND::CLEAR);
            }
            Self::Mini(uart) => uart.io.set(byte.into()),
            Self::Cadence(uart) => uart.fifo.set(byte.into()),
            Self::Imx(uart) => uart.utxd.set(byte.into()),
        }
    }

    /// Sends a byte as soon as there is room for it, or the UART has been asked too often.
    fn send_in_time(&self, byte: u8) {
        // Bound: PATIENCE reads of the UART's flag register.
        for _ in 0..PATIENCE {
            if !self.is_full() {
                break;
            }
            crate::barrier::yield_hint();
        }
        self.send(byte);
    }
}

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
        let uart = Self { kind, page };
        uart.device().enable();
        uart
    }

    fn device(self) -> Device {
        let device = match self.kind {
            uart::SCIF => self.page.block().map(Device::Scif),
            uart::MINI => self.page.block().map(Device::Mini),
            uart::CADENCE => self.page.block().map(Device::Cadence),
            uart::IMX => self.page.block().map(Device::Imx),
            _ => self.page.block().map(Device::Pl011),
        };
        device.unwrap_or(Device::None)
    }

    /// Writes text; a newline gets its carriage return.
    pub fn text(self, text: &str) {
        let device = self.device();
        // Bound: bytes of a constant text.
        for byte in text.bytes() {
            if byte == b'\n' {
                device.send_in_time(b'\r');
            }
            device.send_in_time(byte);
        }
    }

    /// Writes a number as `0x` and 16 hexadecimal digits.
    pub fn hex(self, value: u64) {
        self.text("0x");
        let device = self.device();
        // Bound: 16 digits.
        for shift in (0..64).step_by(4).rev() {
            let digit = (value >> shift) as u8 & 0xf;
            device.send_in_time(if digit < 10 {
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
