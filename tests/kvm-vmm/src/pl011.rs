//! A PL011 (Arm DDI 0183) that sends at once and never receives: what a console needs.

#[cfg(test)]
mod tests;

/// Register offsets in bytes. Arm DDI 0183, 3.2.
mod register {
    pub(super) const DR: u64 = 0x00;
    pub(super) const FR: u64 = 0x18;
    pub(super) const IMSC: u64 = 0x38;
    pub(super) const RIS: u64 = 0x3c;
    pub(super) const MIS: u64 = 0x40;
    pub(super) const ICR: u64 = 0x44;
    pub(super) const PERIPH_ID: u64 = 0xfe0;
}

/// FR: nothing is being sent, nothing was received.
const IDLE: u32 = 1 << 7 | 1 << 4;
/// The interrupt of a transmit FIFO that has room. TXRIS and TXMIS.
const TRANSMIT: u32 = 1 << 5;
/// PeriphID0 to 3 and PCellID0 to 3, r1p5. Linux binds its driver by these (drivers/amba).
const IDENTITY: [u32; 8] = [0x11, 0x10, 0x34, 0x00, 0x0d, 0xf0, 0x05, 0xb1];
/// Number of plain register words: baud rate, line control, FIFO levels, DMA.
const PLAIN_WORDS: usize = 0x4c / 4;

/// The registers' state. Plain registers keep what is written, and do nothing.
#[derive(Clone, Debug, Default)]
pub struct Pl011 {
    /// UARTIMSC.
    mask: u32,
    /// UARTRIS.
    raw: u32,
    plain: [u32; PLAIN_WORDS],
}

impl Pl011 {
    /// Returns what a load from `offset` reads.
    pub fn read(&self, offset: u64) -> u32 {
        match offset {
            register::FR => IDLE,
            register::IMSC => self.mask,
            register::RIS => self.raw,
            register::MIS => self.raw & self.mask,
            register::DR => 0,
            register::PERIPH_ID.. => {
                let word = (offset - register::PERIPH_ID) / 4;
                IDENTITY.get(word as usize).copied().unwrap_or(0)
            }
            _ => self.plain.get((offset / 4) as usize).copied().unwrap_or(0),
        }
    }

    /// Stores `value`; returns the byte that is sent, if one is.
    pub fn write(&mut self, offset: u64, value: u32) -> Option<u8> {
        match offset {
            register::DR => {
                self.raw |= TRANSMIT;
                return Some(value as u8);
            }
            register::IMSC => self.mask = value & 0x7ff,
            register::ICR => self.raw &= !value,
            register::FR | register::RIS | register::MIS => {}
            _ => {
                if let Some(word) = self.plain.get_mut((offset / 4) as usize) {
                    *word = value;
                }
            }
        }
        None
    }

    /// Tells whether the interrupt line is active.
    pub fn line(&self) -> bool {
        self.raw & self.mask != 0
    }
}
