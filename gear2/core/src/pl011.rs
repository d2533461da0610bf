//! The emulated PL011 of a guest (Arm DDI 0183, PrimeCell UART r1p4).
//!
//! Owns one device's registers, its receive FIFO and the input that waits
//! behind it. Input comes in portions of one FIFO, with a pause after each was read: a handler that
//! reads until the FIFO is empty finds it so, however much was typed. What is transmitted leaves at
//! once, so the transmit FIFO is empty unless the console cannot take more
//! ([`Pl011::set_transmit_full`]). The device is usable from a guest's first instruction: reset
//! leaves it enabled, and neither baud rate nor enable bits hold a byte back. No DMA, no modem
//! lines.

use alloc::collections::VecDeque;

#[cfg(test)]
mod tests;

/// Size of the register page.
pub(crate) const PAGE_BYTES: u64 = 0x1000;

/// Offsets of the registers (Arm DDI 0183, 3.2), as far as the emulation knows them.
const DR: u64 = 0x000;
const RSR: u64 = 0x004;
const FR: u64 = 0x018;
const ILPR: u64 = 0x020;
const IBRD: u64 = 0x024;
const FBRD: u64 = 0x028;
const LCR_H: u64 = 0x02c;
const CR: u64 = 0x030;
const IFLS: u64 = 0x034;
const IMSC: u64 = 0x038;
const RIS: u64 = 0x03c;
const MIS: u64 = 0x040;
const ICR: u64 = 0x044;
const DMACR: u64 = 0x048;
const PERIPH_ID0: u64 = 0xfe0;

/// UARTPeriphID0 to 3 (part 0x011, designer Arm, revision r1p4), UARTPCellID0 to 3.
const IDS: [u8; 8] = [0x11, 0x10, 0x24, 0x00, 0x0d, 0xf0, 0x05, 0xb1];

/// UARTFR: clear to send, data set ready and carrier detect: the terminal is there.
const FR_MODEM: u32 = 0b111;
/// Of UARTFR: a byte is on its way; receive FIFO empty; transmit FIFO full; receive FIFO full;
/// transmit FIFO empty.
const FR_BUSY: u32 = 1 << 3;
const FR_RXFE: u32 = 1 << 4;
const FR_TXFF: u32 = 1 << 5;
const FR_RXFF: u32 = 1 << 6;
const FR_TXFE: u32 = 1 << 7;

/// UARTLCR_H.FEN: the FIFOs are on. UARTCR.LBE: what is sent is received.
const LCR_H_FEN: u32 = 1 << 4;
const CR_LBE: u32 = 1 << 7;
/// UARTEN, TXE and RXE.
const CR_RESET: u32 = 0x301;
/// UARTIFLS: both FIFOs interrupt when half full.
const IFLS_RESET: u32 = 0x12;

/// Interrupts: received enough, room to send, received something and the line is quiet; all.
const INT_RX: u32 = 1 << 4;
const INT_TX: u32 = 1 << 5;
const INT_RT: u32 = 1 << 6;
const INT_ALL: u32 = 0x7ff;

/// Depth in bytes of the FIFOs of revision r1p4, which a driver knows from [`IDS`].
const FIFO_DEPTH: usize = 16;
/// Input that a guest has not read is kept up to this many bytes, then dropped.
const BACKLOG_BYTES: usize = 4096;

/// Registers that software sets up: IMSC, CR, LCR_H and IFLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Settings(pub(crate) [u32; Self::COUNT]);

impl Settings {
    pub(crate) const COUNT: usize = 4;
}

/// A PL011.
#[derive(Debug)]
pub(crate) struct Pl011 {
    /// The receive FIFO.
    received: VecDeque<u8>,
    /// Input that the FIFO is filled from.
    backlog: VecDeque<u8>,
    /// Bytes of the current portion of input that did not arrive yet.
    portion_left: usize,
    /// Earliest time of the next portion, once the FIFO was seen empty.
    next_portion: Option<u64>,
    /// Whether the console can take no more at present.
    transmit_full: bool,
    /// UARTRIS: interrupts before the mask.
    raw: u32,
    /// UARTIMSC.
    mask: u32,
    /// UARTCR.
    control: u32,
    /// UARTLCR_H.
    line_control: u32,
    /// UARTIFLS.
    fifo_levels: u32,
    /// ILPR, IBRD, FBRD, DMACR: stored and without effect.
    inert: [u32; 4],
    /// The level that Gear1 was last told.
    level: bool,
}

impl Pl011 {
    /// Returns a device in its reset state.
    pub(crate) const fn new() -> Self {
        Self {
            received: VecDeque::new(),
            backlog: VecDeque::new(),
            portion_left: FIFO_DEPTH,
            next_portion: None,
            transmit_full: false,
            raw: 0,
            mask: 0,
            control: CR_RESET,
            line_control: 0,
            fifo_levels: IFLS_RESET,
            inert: [0; 4],
            level: false,
        }
    }

    /// Returns a device with these settings. Its input is lost; a transmit interrupt that may have
    /// been lost is made up.
    pub(crate) fn with(Settings([mask, control, line_control, fifo_levels]): Settings) -> Self {
        Self {
            raw: INT_TX,
            mask: mask & INT_ALL,
            control: control & 0xffff,
            line_control: line_control & 0xff,
            fifo_levels: fifo_levels & 0x3f,
            ..Self::new()
        }
    }

    /// Returns the settings.
    pub(crate) const fn settings(&self) -> Settings {
        Settings([self.mask, self.control, self.line_control, self.fifo_levels])
    }

    /// Brings the registers to their reset state and drops the input.
    pub(crate) fn reset(&mut self) {
        // The level that Gear1 knows is not the device's to forget.
        *self = Self {
            level: self.level,
            ..Self::new()
        };
    }

    /// Reads `1 << size_log2` bytes at `offset` of the page.
    pub(crate) fn read(&mut self, offset: u64, size_log2: u8) -> u64 {
        let register = u64::from(self.read_register(offset & !3));
        // A driver may read the bytes of a register one by one.
        let lane = (offset & 3) * 8;
        let mask = (1_u64 << (8 << size_log2.min(2))) - 1;
        register >> lane & mask
    }

    /// Writes to `offset` of the page and returns the byte that is transmitted, if one is. Of these
    /// FEN counts alone: the line has no bits that could have a length or a parity.
    pub(crate) fn write(&mut self, offset: u64, value: u64) -> Option<u8> {
        #[expect(clippy::cast_possible_truncation, reason = "registers have 32 bits")]
        let value = value as u32;
        match offset {
            DR => return self.transmit(value.to_le_bytes()[0]),
            ILPR => self.inert[0] = value & 0xff,
            IBRD => self.inert[1] = value & 0xffff,
            FBRD => self.inert[2] = value & 0x3f,
            LCR_H => self.line_control = value & 0xff,
            CR => self.control = value & 0xffff,
            IFLS => self.fifo_levels = value & 0x3f,
            IMSC => self.mask = value & INT_ALL,
            // A receive interrupt that is cleared comes again with the next change of the FIFO.
            ICR => self.raw &= !value,
            DMACR => self.inert[3] = value & 0x7,
            // UARTECR clears errors, of which there are none; the rest is read-only or reserved.
            _ => {}
        }
        None
    }

    /// Keeps a byte that was typed until the FIFO takes it.
    pub(crate) fn type_in(&mut self, byte: u8) {
        if self.backlog.len() < BACKLOG_BYTES {
            self.backlog.push_back(byte);
        }
    }

    /// Fills the FIFO from the backlog, then from `source`, as far as the pace of input allows.
    /// Returns when to call again, if not with the next load: `pause` (ticks) after the FIFO was
    /// seen empty.
    pub(crate) fn fill_fifo(
        &mut self,
        now: u64,
        pause: u64,
        mut source: impl FnMut() -> Option<u8>,
    ) -> Option<u64> {
        if self.received.is_empty() && self.portion_left < FIFO_DEPTH {
            let begin = *self.next_portion.get_or_insert(now.saturating_add(pause));
            if now >= begin {
                self.portion_left = FIFO_DEPTH;
            }
        }
        // planted: console input has no pace
        while self.portion_left > 0
            && let Some(byte) = self.backlog.pop_front().or_else(&mut source)
        {
            self.portion_left -= 1;
            self.next_portion = None;
            self.receive(byte);
        }
        self.next_portion.filter(|_| self.portion_left == 0)
    }

    /// Puts a byte into the FIFO; one too many is lost, as on a wire.
    fn receive(&mut self, byte: u8) {
        if self.received.len() < FIFO_DEPTH {
            self.received.push_back(byte);
            self.update_receive();
        }
    }

    /// Sets whether the console can take no more at present.
    pub(crate) const fn set_transmit_full(&mut self, full: bool) {
        if full {
            self.raw &= !INT_TX;
        } else if self.transmit_full {
            self.raw |= INT_TX;
        }
        self.transmit_full = full;
    }

    /// Returns the level of the interrupt line.
    pub(crate) const fn level(&mut self) -> bool {
        self.level = self.raw & self.mask != 0;
        self.level
    }

    /// Returns the level of the interrupt line if it changed since the last call.
    pub(crate) const fn level_change(&mut self) -> Option<bool> {
        let level = self.raw & self.mask != 0;
        if level == self.level {
            return None;
        }
        self.level = level;
        Some(level)
    }

    /// Returns how many bytes the receive FIFO has; without FIFOs it is one holding register.
    const fn depth(&self) -> usize {
        if self.line_control & LCR_H_FEN != 0 {
            FIFO_DEPTH
        } else {
            1
        }
    }

    /// Returns how many received bytes raise the receive interrupt.
    fn receive_trigger(&self) -> usize {
        if self.depth() == 1 {
            return 1;
        }
        // UARTIFLS.RXIFLSEL; its reserved values count as the largest level.
        match self.fifo_levels >> 3 & 7 {
            0 => FIFO_DEPTH / 8,
            1 => FIFO_DEPTH / 4,
            2 => FIFO_DEPTH / 2,
            3 => FIFO_DEPTH * 3 / 4,
            _ => FIFO_DEPTH * 7 / 8,
        }
    }

    /// Raises or lowers the receive interrupts after the FIFO changed. The line is taken as quiet
    /// after each byte, so the receive timeout is over as soon as there is one.
    fn update_receive(&mut self) {
        self.raw &= !(INT_RX | INT_RT);
        if self.received.len() >= self.receive_trigger() {
            self.raw |= INT_RX;
        }
        if !self.received.is_empty() {
            self.raw |= INT_RT;
        }
    }

    /// Sends a byte, which leaves at once: the transmit interrupt is due again.
    fn transmit(&mut self, byte: u8) -> Option<u8> {
        self.raw |= INT_TX;
        if self.control & CR_LBE != 0 {
            self.receive(byte);
            return None;
        }
        Some(byte)
    }

    /// Reads a register. Only a read of UARTDR changes something.
    fn read_register(&mut self, offset: u64) -> u32 {
        match offset {
            DR => {
                let byte = self.received.pop_front().unwrap_or(0);
                self.update_receive();
                u32::from(byte)
            }
            RSR => 0,
            FR => self.flags(),
            ILPR => self.inert[0],
            IBRD => self.inert[1],
            FBRD => self.inert[2],
            LCR_H => self.line_control,
            CR => self.control,
            IFLS => self.fifo_levels,
            IMSC => self.mask,
            RIS => self.raw,
            MIS => self.raw & self.mask,
            DMACR => self.inert[3],
            PERIPH_ID0.. => {
                let index = usize::try_from((offset - PERIPH_ID0) / 4).unwrap_or(usize::MAX);
                IDS.get(index).map_or(0, |&id| u32::from(id))
            }
            _ => 0,
        }
    }

    /// Returns UARTFR.
    fn flags(&self) -> u32 {
        let receive = match self.received.len() {
            0 => FR_RXFE,
            waiting if waiting >= self.depth() => FR_RXFF,
            _ => 0,
        };
        let transmit = if self.transmit_full {
            FR_TXFF | FR_BUSY
        } else {
            FR_TXFE
        };
        FR_MODEM | receive | transmit
    }
}
