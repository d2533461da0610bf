//! The boot UART, a PL011, a SCIF, a mini-UART, Cadence's or i.MX's, that firmware or Gear1 has set
//! up.
//!
//! Gear1 uses it before Gear2's first loop, and for the reason of a halt: one owner writes the
//! registers at a time. A last message is sent whoever owns the UART: its bytes may mix
//! with those of a loop that is sending just now.

use core::fmt;

use gear1_abi::info::uart;
use gear1_abi::layout::gear2::UART;
use gear2_core::Uart;
use gear2_core::cadence::{self, Cadence};
use gear2_core::imx_uart::{self, ImxUart};
use gear2_core::mini_uart::{self, MiniUart};
use gear2_core::scif::{Registers, Scif};

/// Offsets of a PL011's registers (Arm DDI 0183, 3.2).
const DR: usize = 0x00;
const FR: usize = 0x18;
const LCR_H: usize = 0x2c;
const CR: usize = 0x30;
const IMSC: usize = 0x38;
const ICR: usize = 0x44;

/// UARTFR: nothing received; no room to send.
const FR_RXFE: u32 = 1 << 4;
const FR_TXFF: u32 = 1 << 5;
/// 8 bits, FIFOs enabled.
const LCR_H_8BIT_FIFO: u32 = 0x70;
/// UARTEN, TXE, RXE.
const CR_ENABLED: u32 = 0x301;
/// Interrupts: received enough, room to send, received something and the line is quiet; all.
const INT_RX: u32 = 1 << 4;
const INT_TX: u32 = 1 << 5;
const INT_RT: u32 = 1 << 6;
const INT_ALL: u32 = 0x7ff;

/// The boot UART, if the machine has one that is known.
pub(crate) enum BootUart {
    /// A machine without a UART that is known: output is dropped.
    None,
    Pl011(Pl011),
    Scif(Scif<Page>),
    Mini(MiniUart<Page>),
    Cadence(Cadence<Page>),
    Imx(ImxUart<Page>),
}

impl BootUart {
    /// Takes the UART over for good, if there is one, and enables its receive interrupt. The baud
    /// rate stays as it is.
    pub(crate) fn take(kind: u32) -> Option<Self> {
        match kind {
            uart::PL011 => Some(Self::Pl011(Pl011::take(Page))),
            uart::SCIF => Some(Self::Scif(Scif::take(Page))),
            uart::MINI => Some(Self::Mini(MiniUart::take(Page))),
            uart::CADENCE => Some(Self::Cadence(Cadence::take(Page))),
            uart::IMX => Some(Self::Imx(ImxUart::take(Page))),
            _ => None,
        }
    }

    /// Returns the UART for a last message, whoever owns it.
    pub(crate) fn borrow() -> Self {
        match crate::inputs::info().uart_kind {
            uart::PL011 => Self::Pl011(Pl011(Page)),
            uart::SCIF => Self::Scif(Scif::new(Page)),
            uart::MINI => Self::Mini(MiniUart::new(Page)),
            uart::CADENCE => Self::Cadence(Cadence::new(Page)),
            uart::IMX => Self::Imx(ImxUart::new(Page)),
            _ => Self::None,
        }
    }
}

/// The page with the boot UART's registers. It is made only where [`uart`] says that there is one.
#[derive(Debug)]
pub(crate) struct Page;

impl Page {
    /// Reads a register of 32 bits.
    fn read_word(&self, offset: usize) -> u32 {
        let register = (UART as usize + offset) as *const u32;
        // SAFETY: whoever made a `Page` knows that Gear1 maps a UART at `UART`. Only the registers
        // of a PL011, those named above, of a mini-UART, of Cadence's and of i.MX's are read as
        // words; they may be read at any time.
        unsafe { register.read_volatile() }
    }

    /// Writes a register of 32 bits.
    fn write_word(&self, offset: usize, value: u32) {
        let register = (UART as usize + offset) as *mut u32;
        // SAFETY: as for `read_word`; a PL011 cannot reach memory unless DMACR says so, which is
        // not written here, and the others never.
        unsafe { register.write_volatile(value) }
    }
}

impl Registers for Page {
    fn read(&self, offset: usize) -> u16 {
        let register = (UART as usize + offset) as *const u16;
        // SAFETY: as for `read_word`; only a SCIF's registers are read as halfwords, at multiples
        // of four.
        unsafe { register.read_volatile() }
    }

    fn write(&mut self, offset: usize, value: u16) {
        let register = (UART as usize + offset) as *mut u16;
        // SAFETY: as for `read`; a SCIF reaches memory by the DMA controller alone, which is not
        // Gear2's.
        unsafe { register.write_volatile(value) }
    }

    fn read_byte(&self, offset: usize) -> u8 {
        let register = (UART as usize + offset) as *const u8;
        // SAFETY: as for `read`.
        unsafe { register.read_volatile() }
    }

    fn write_byte(&mut self, offset: usize, value: u8) {
        let register = (UART as usize + offset) as *mut u8;
        // SAFETY: as for `write`.
        unsafe { register.write_volatile(value) }
    }
}

impl mini_uart::Registers for Page {
    fn read(&self, offset: usize) -> u32 {
        self.read_word(uart::MINI_OFFSET as usize + offset)
    }

    fn write(&mut self, offset: usize, value: u32) {
        self.write_word(uart::MINI_OFFSET as usize + offset, value);
    }
}

impl cadence::Registers for Page {
    fn read(&self, offset: usize) -> u32 {
        self.read_word(offset)
    }

    fn write(&mut self, offset: usize, value: u32) {
        self.write_word(offset, value);
    }
}

impl imx_uart::Registers for Page {
    fn read(&self, offset: usize) -> u32 {
        self.read_word(offset)
    }

    fn write(&mut self, offset: usize, value: u32) {
        self.write_word(offset, value);
    }
}

/// A PL011.
pub(crate) struct Pl011(Page);

impl Pl011 {
    /// Takes the UART over: enabled, with FIFOs, and with no interrupt left from firmware's use.
    fn take(registers: Page) -> Self {
        registers.write_word(CR, CR_ENABLED);
        registers.write_word(LCR_H, LCR_H_8BIT_FIFO);
        registers.write_word(ICR, INT_ALL);
        // Received bytes alone interrupt, until there is something to send.
        let mut uart = Self(registers);
        uart.interrupt_when_room(false);
        uart
    }
}

impl Uart for Pl011 {
    fn send(&mut self, byte: u8) -> bool {
        let room = self.0.read_word(FR) & FR_TXFF == 0;
        if room {
            self.0.write_word(DR, byte.into());
        }
        room
    }

    fn receive(&mut self) -> Option<u8> {
        if self.0.read_word(FR) & FR_RXFE != 0 {
            return None;
        }
        // Errors in the upper bits are for people to see in what they typed.
        Some(self.0.read_word(DR).to_le_bytes()[0])
    }

    fn interrupt_when_room(&mut self, enable: bool) {
        // The mask is written whole: received bytes interrupt in either case.
        let room = if enable { INT_TX } else { 0 };
        self.0.write_word(IMSC, INT_RX | INT_RT | room);
    }
}

impl Uart for BootUart {
    fn send(&mut self, byte: u8) -> bool {
        match self {
            Self::None => true,
            Self::Pl011(uart) => uart.send(byte),
            Self::Scif(uart) => uart.send(byte),
            Self::Mini(uart) => uart.send(byte),
            Self::Cadence(uart) => uart.send(byte),
            Self::Imx(uart) => uart.send(byte),
        }
    }

    fn receive(&mut self) -> Option<u8> {
        match self {
            Self::None => None,
            Self::Pl011(uart) => uart.receive(),
            Self::Scif(uart) => uart.receive(),
            Self::Mini(uart) => uart.receive(),
            Self::Cadence(uart) => uart.receive(),
            Self::Imx(uart) => uart.receive(),
        }
    }

    fn interrupt_when_room(&mut self, enable: bool) {
        match self {
            Self::None => {}
            Self::Pl011(uart) => uart.interrupt_when_room(enable),
            Self::Scif(uart) => uart.interrupt_when_room(enable),
            Self::Mini(uart) => uart.interrupt_when_room(enable),
            Self::Cadence(uart) => uart.interrupt_when_room(enable),
            Self::Imx(uart) => uart.interrupt_when_room(enable),
        }
    }
}

impl fmt::Write for BootUart {
    /// Waits for room for each byte: only last messages are written so, when no loop goes on.
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            while !self.send(byte) {
                crate::svc::pause();
            }
        }
        Ok(())
    }
}
