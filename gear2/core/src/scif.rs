//! The boot UART of R-Car boards: a SCIF (R-Car Gen3 user's manual, "Serial Communication Interface
//! with FIFO") that firmware has set up.
//!
//! Owns how its FIFOs and flags are used; the registers are the platform's. Rate, format and clock
//! stay what they are. A flag is cleared by writing 0 after it was read as 1; writing 1 does
//! nothing.

use crate::console::Uart;

#[cfg(test)]
mod tests;

/// Serial control.
const SCSCR: usize = 0x08;
/// Transmit FIFO data, one byte.
const SCFTDR: usize = 0x0c;
/// Status.
const SCFSR: usize = 0x10;
/// Receive FIFO data, one byte.
const SCFRDR: usize = 0x14;
/// FIFO data counts.
const SCFDR: usize = 0x1c;
/// Line status: overrun.
const SCLSR: usize = 0x24;

const SCSCR_TIE: u16 = 1 << 7;
const SCSCR_RIE: u16 = 1 << 6;
const SCSCR_TE: u16 = 1 << 5;
const SCSCR_RE: u16 = 1 << 4;
/// The choice of clock.
const SCSCR_CKE: u16 = 0b11;
const SCFSR_TEND: u16 = 1 << 6;
const SCFSR_TDFE: u16 = 1 << 5;
/// RDF and DR: something was received.
const SCFSR_RECEIVED: u16 = 0b11;
/// ER and BRK, and what goes with them: reception stops until they are cleared.
const SCFSR_ERRORS: u16 = 0x9c;
const SCLSR_ORER: u16 = 1;
const FIFO_BYTES: u16 = 16;

/// A SCIF's registers.
pub trait Registers {
    /// Reads a 16-bit register.
    fn read(&self, offset: usize) -> u16;
    /// Writes a 16-bit register.
    fn write(&mut self, offset: usize, value: u16);
    /// Reads an 8-bit register.
    fn read_byte(&self, offset: usize) -> u8;
    /// Writes an 8-bit register.
    fn write_byte(&mut self, offset: usize, value: u8);
}

/// A SCIF.
#[derive(Debug)]
pub struct Scif<R>(R);

impl<R: Registers> Scif<R> {
    /// Names a UART that is set up already.
    pub const fn new(registers: R) -> Self {
        Self(registers)
    }

    /// Takes the UART over for good, and lets it interrupt when something was received.
    pub fn take(registers: R) -> Self {
        let mut uart = Self(registers);
        uart.interrupt_when_room(false);
        uart
    }

    /// Clears the flags in `flags` that are set.
    fn clear(&mut self, register: usize, flags: u16) {
        let set = self.0.read(register);
        if set & flags != 0 {
            self.0.write(register, set & !flags);
        }
    }
}

impl<R: Registers> Uart for Scif<R> {
    fn send(&mut self, byte: u8) -> bool {
        let room = self.0.read(SCFDR) >> 8 & 0x1f < FIFO_BYTES;
        if room {
            self.0.write_byte(SCFTDR, byte);
            self.clear(SCFSR, SCFSR_TDFE | SCFSR_TEND);
        }
        room
    }

    fn receive(&mut self) -> Option<u8> {
        self.clear(SCFSR, SCFSR_ERRORS);
        self.clear(SCLSR, SCLSR_ORER);
        if self.0.read(SCFDR) & 0x1f == 0 {
            // The interrupt ends with the flags, which what comes meanwhile sets again.
            self.clear(SCFSR, SCFSR_RECEIVED);
            if self.0.read(SCFDR) & 0x1f == 0 {
                return None;
            }
        }
        Some(self.0.read_byte(SCFRDR))
    }

    fn interrupt_when_room(&mut self, enable: bool) {
        let clock = self.0.read(SCSCR) & SCSCR_CKE;
        let room = if enable { SCSCR_TIE } else { 0 };
        let control = clock | SCSCR_RIE | SCSCR_TE | SCSCR_RE | room;
        self.0.write(SCSCR, control);
    }
}
