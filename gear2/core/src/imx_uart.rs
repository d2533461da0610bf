//! The UART of NXP's i.MX SoCs (i.MX 8M Plus reference manual, "Universal Asynchronous
//! Receiver/Transmitter"), which firmware has set up.
//!
//! Owns the use of its flags and interrupts; the registers are the platform's. Rate, format and
//! FIFO levels stay as firmware left them. Both interrupts are levels that end with their cause.

use crate::console::Uart;

#[cfg(test)]
mod tests;

/// Received data: a byte, and whether it is one.
const URXD: usize = 0x00;
/// Data to send.
const UTXD: usize = 0x40;
/// Control 1, 2 and 4.
const UCR1: usize = 0x80;
const UCR2: usize = 0x84;
const UCR4: usize = 0x8c;
/// Test, which has the state of the FIFOs.
const UTS: usize = 0xb4;

/// The byte of URXD was received.
const URXD_CHARRDY: u32 = 1 << 15;
const UCR1_UARTEN: u32 = 1 << 0;
/// An interrupt while the transmit FIFO has room by its level (TRDYEN).
const UCR1_ROOM: u32 = 1 << 13;
const UCR2_RXEN: u32 = 1 << 1;
const UCR2_TXEN: u32 = 1 << 2;
/// The software reset, which is off while the bit is 1.
const UCR2_SRST: u32 = 1 << 0;
/// An interrupt while anything is received (DREN).
const UCR4_RECEIVED: u32 = 1 << 0;
const UTS_TXFULL: u32 = 1 << 4;

/// An i.MX UART's registers.
pub trait Registers {
    /// Reads a register.
    fn read(&self, offset: usize) -> u32;
    /// Writes a register.
    fn write(&mut self, offset: usize, value: u32);
}

/// An i.MX UART.
#[derive(Debug)]
pub struct ImxUart<R>(R);

impl<R: Registers> ImxUart<R> {
    /// Names a UART that is set up already.
    pub const fn new(registers: R) -> Self {
        Self(registers)
    }

    /// Takes the UART over for good, and lets it interrupt when something was received. The other
    /// interrupts, and DMA requests, are firmware's and end here.
    pub fn take(mut registers: R) -> Self {
        registers.write(UCR1, UCR1_UARTEN);
        let format = registers.read(UCR2);
        registers.write(UCR2, format | UCR2_SRST | UCR2_TXEN | UCR2_RXEN);
        registers.write(UCR4, UCR4_RECEIVED);
        Self(registers)
    }
}

impl<R: Registers> Uart for ImxUart<R> {
    fn send(&mut self, byte: u8) -> bool {
        let room = self.0.read(UTS) & UTS_TXFULL == 0;
        if room {
            self.0.write(UTXD, byte.into());
        }
        room
    }

    fn receive(&mut self) -> Option<u8> {
        let data = self.0.read(URXD);
        (data & URXD_CHARRDY != 0).then(|| data.to_le_bytes()[0])
    }

    fn interrupt_when_room(&mut self, enable: bool) {
        let room = if enable { UCR1_ROOM } else { 0 };
        self.0.write(UCR1, UCR1_UARTEN | room);
    }
}
