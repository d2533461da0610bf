//! The boot UART, a PL011 that firmware or Gear1 has set up.

use core::fmt;

use gear1_abi::info::uart::PL011;
use gear1_abi::layout::gear2::UART;
use gear2_core::Uart;

const DR: usize = 0x00;
const FR: usize = 0x18;
const LCR_H: usize = 0x2c;
const CR: usize = 0x30;
const IMSC: usize = 0x38;
const ICR: usize = 0x44;

const FR_RXFE: u32 = 1 << 4;
const FR_TXFF: u32 = 1 << 5;
/// 8 bits, FIFOs enabled.
const LCR_H_8BIT_FIFO: u32 = 0x70;
/// UARTEN, TXE, RXE.
const CR_ENABLED: u32 = 0x301;
const INT_RX: u32 = 1 << 4;
const INT_TX: u32 = 1 << 5;
const INT_RT: u32 = 1 << 6;
const INT_ALL: u32 = 0x7ff;

/// The boot UART, if the machine has one that is known.
pub(crate) struct BootUart {
    present: bool,
}

impl BootUart {
    /// Takes the UART over for good, if there is one, and lets it interrupt when something was
    /// received. The baud rate stays what it is.
    pub(crate) fn take(kind: u32) -> Option<Self> {
        if kind != PL011 {
            return None;
        }
        let mut uart = Self { present: true };
        uart.write(CR, CR_ENABLED);
        uart.write(LCR_H, LCR_H_8BIT_FIFO);
        uart.write(ICR, INT_ALL);
        uart.interrupt_when_room(false);
        Some(uart)
    }

    /// Returns the UART for a last message, whoever has it.
    pub(crate) fn borrow() -> Self {
        Self {
            present: crate::inputs::info().uart_kind == PL011,
        }
    }

    fn read(&self, offset: usize) -> u32 {
        let register = (UART as usize + offset) as *const u32;
        // SAFETY: `present` says that Gear1 maps a PL011 at `UART`; its registers are words at
        // multiples of four below 0x1000, and those named above may be read at any time.
        unsafe { register.read_volatile() }
    }

    fn write(&self, offset: usize, value: u32) {
        let register = (UART as usize + offset) as *mut u32;
        // SAFETY: as for `read`; a PL011 cannot reach memory unless DMACR says so, which is not
        // written here.
        unsafe { register.write_volatile(value) }
    }
}

impl Uart for BootUart {
    fn send(&mut self, byte: u8) -> bool {
        if !self.present {
            return true;
        }
        let room = self.read(FR) & FR_TXFF == 0;
        if room {
            self.write(DR, byte.into());
        }
        room
    }

    fn receive(&mut self) -> Option<u8> {
        if !self.present || self.read(FR) & FR_RXFE != 0 {
            return None;
        }
        // Errors in the upper bits are for people to see in what they typed.
        Some(self.read(DR).to_le_bytes()[0])
    }

    fn interrupt_when_room(&mut self, enable: bool) {
        if self.present {
            self.write(IMSC, INT_RX | INT_RT | if enable { INT_TX } else { 0 });
        }
    }
}

impl fmt::Write for BootUart {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            while !self.send(byte) {
                crate::svc::pause();
            }
        }
        Ok(())
    }
}
