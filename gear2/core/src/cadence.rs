//! The UART of Cadence in Zynq SoCs (Zynq UltraScale+ MPSoC, AMD UG1087, module UART), which
//! firmware has set up.
//!
//! Owns the use of its flags and interrupts; the registers are the platform's. Rate and format stay
//! as firmware left them. The flag of an interrupt stays until a 1 is written to it, whatever its
//! cause does.

use crate::console::Uart;

#[cfg(test)]
mod tests;

/// Control.
const CR: usize = 0x00;
/// Interrupts to turn on, and off.
const IER: usize = 0x08;
const IDR: usize = 0x0c;
/// Interrupt status.
const ISR: usize = 0x14;
/// At how many received bytes there is an interrupt.
const RX_TRIGGER: usize = 0x20;
/// Status.
const SR: usize = 0x2c;
/// Data, both ways.
const FIFO: usize = 0x30;

/// RXEN, TXEN; RXDIS and TXDIS are 0.
const CR_ENABLED: u32 = 1 << 2 | 1 << 4;
const SR_RX_EMPTY: u32 = 1 << 1;
const SR_TX_FULL: u32 = 1 << 4;
/// The receive FIFO has reached the trigger level.
const INT_RX: u32 = 1 << 0;
const INT_TX_EMPTY: u32 = 1 << 3;
const INT_ALL: u32 = 0x1fff;

/// A Cadence UART's registers.
pub trait Registers {
    /// Reads a register.
    fn read(&self, offset: usize) -> u32;
    /// Writes a register.
    fn write(&mut self, offset: usize, value: u32);
}

/// A Cadence UART.
#[derive(Debug)]
pub struct Cadence<R>(R);

impl<R: Registers> Cadence<R> {
    /// Names a UART that is set up already.
    pub const fn new(registers: R) -> Self {
        Self(registers)
    }

    /// Takes the UART over for good, and lets it interrupt when something was received.
    pub fn take(mut registers: R) -> Self {
        registers.write(CR, CR_ENABLED);
        registers.write(IDR, INT_ALL);
        registers.write(RX_TRIGGER, 1);
        registers.write(IER, INT_RX);
        Self(registers)
    }
}

impl<R: Registers> Uart for Cadence<R> {
    fn send(&mut self, byte: u8) -> bool {
        let room = self.0.read(SR) & SR_TX_FULL == 0;
        if room {
            self.0.write(FIFO, byte.into());
            self.0.write(ISR, INT_TX_EMPTY);
        }
        room
    }

    fn receive(&mut self) -> Option<u8> {
        if self.0.read(SR) & SR_RX_EMPTY != 0 {
            // A byte that arrives after the clear sets the flag again; one that arrived before is
            // seen by the second read of SR.
            self.0.write(ISR, INT_RX);
            if self.0.read(SR) & SR_RX_EMPTY != 0 {
                return None;
            }
        }
        Some(self.0.read(FIFO).to_le_bytes()[0])
    }

    fn interrupt_when_room(&mut self, enable: bool) {
        self.0.write(if enable { IER } else { IDR }, INT_TX_EMPTY);
    }
}
