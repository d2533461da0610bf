//! The mini-UART of Raspberry Pis (BCM2711 peripherals, 2.2), which firmware has set up.
//!
//! Owns how its flags and interrupts are used; the registers are the platform's. Rate and format
//! stay what they are. Its registers are a 16550's, four bytes apart, but for what the manual
//! swaps: bit 0 of IER is for reception, bit 1 for transmission.

use crate::console::Uart;

#[cfg(test)]
mod tests;

/// Data.
const IO: usize = 0x00;
/// Interrupt enable.
const IER: usize = 0x04;
/// Status.
const LSR: usize = 0x14;

const IER_RECEIVED: u32 = 1 << 0;
const IER_ROOM: u32 = 1 << 1;
const LSR_RECEIVED: u32 = 1 << 0;
/// The FIFO takes a byte at least.
const LSR_ROOM: u32 = 1 << 5;

/// A mini-UART's registers.
pub trait Registers {
    /// Reads a register.
    fn read(&self, offset: usize) -> u32;
    /// Writes a register.
    fn write(&mut self, offset: usize, value: u32);
}

/// A mini-UART.
#[derive(Debug)]
pub struct MiniUart<R>(R);

impl<R: Registers> MiniUart<R> {
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
}

impl<R: Registers> Uart for MiniUart<R> {
    fn send(&mut self, byte: u8) -> bool {
        let room = self.0.read(LSR) & LSR_ROOM != 0;
        if room {
            self.0.write(IO, byte.into());
        }
        room
    }

    fn receive(&mut self) -> Option<u8> {
        if self.0.read(LSR) & LSR_RECEIVED == 0 {
            return None;
        }
        Some(self.0.read(IO).to_le_bytes()[0])
    }

    fn interrupt_when_room(&mut self, enable: bool) {
        let room = if enable { IER_ROOM } else { 0 };
        self.0.write(IER, IER_RECEIVED | room);
    }
}
