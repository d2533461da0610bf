//! The emulated generic watchdog of a guest (Arm DEN 0094, Base System Architecture, "Generic
//! Watchdog"; Linux: `arm,sbsa-gwdt`).
//!
//! Owns one device's registers and its two signals. A guest refreshes the watchdog; a stage without
//! a refresh raises the first signal (WS0), an interrupt of the guest, and a second one after that
//! raises the second signal (WS1), which ends the VM. A stage is as long as the guest says (WOR),
//! and half of the manifest's `watchdog-ms` at most, so the end comes in time whatever the guest
//! has set.
//!
//! The watchdog runs from the VM's start on, with stages four times as long until the guest first
//! touches it: a kernel that hangs before its driver is there ends, too. A guest may turn the
//! watchdog off (WCS.EN), as Linux does on a regular reboot. WS1 stays set through the restart, and
//! tells the next kernel why it starts.

#[cfg(test)]
mod tests;

/// Size of each of the two register pages: the control frame, then the refresh frame.
pub(crate) const FRAME_BYTES: u64 = 0x1000;

/// Registers of the control frame.
const WCS: u64 = 0x000;
const WOR: u64 = 0x008;
const WOR_HIGH: u64 = 0x00c;
const WCV: u64 = 0x010;
const WCV_HIGH: u64 = 0x014;
/// The register of the refresh frame.
const WRR: u64 = FRAME_BYTES;
/// The identification, in both frames.
const W_IIDR: u64 = 0xfcc;

/// Fields of WCS.
const WCS_EN: u32 = 1 << 0;
const WCS_WS0: u32 = 1 << 1;
const WCS_WS1: u32 = 1 << 2;

/// W_IIDR: architecture revision 1, whose WOR has 48 bits; no implementer.
const IIDR: u32 = 1 << 16;
/// Bits of WOR.
const WOR_MASK: u64 = (1 << 48) - 1;
const HIGH: u64 = 0xffff_ffff << 32;

/// A kernel is so many times as long without its driver as it may be with it.
const BOOT_FACTOR: u64 = 4;
/// The longest stage has so many of the shortest: each end of a stage costs Gear2's time.
const SHORTEST: u64 = 1024;

/// State of a watchdog that outlives a Gear2: WOR, and the bits of WCS above.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Word(pub(crate) u64);

const WORD_FLAGS: u32 = 48;
/// Flag beside those of WCS: the guest has touched the watchdog since its start.
const TOUCHED: u32 = 1 << 3;

/// Signal that a check raises.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Signal {
    /// No signal; the next check is due at this time, or with an access if there is none.
    None(Option<u64>),
    /// WS1: the VM has to end.
    Second,
}

/// A watchdog.
#[derive(Debug)]
pub(crate) struct Watchdog {
    /// WCS.
    status: u32,
    /// WOR as the guest has written it.
    offset: u64,
    /// End of the stage, in ticks of the physical counter.
    end: u64,
    /// Longest stage once the guest has touched the watchdog, in ticks.
    longest: u64,
    /// Whether the guest has touched the watchdog since its start.
    touched: bool,
    /// Physical count at which the guest's virtual count was 0.
    origin: u64,
    /// The level of WS0 that Gear1 was last told.
    level: bool,
}

impl Watchdog {
    /// Returns a watchdog that is off, of a VM that may go without a refresh for `period` ticks.
    pub(crate) const fn new(period: u64) -> Self {
        Self {
            status: 0,
            offset: WOR_MASK,
            end: 0,
            longest: period / 2,
            touched: false,
            origin: 0,
            level: false,
        }
    }

    /// Brings the registers to their state at a start of the VM. WS1 stays if it has ended the
    /// former life.
    pub(crate) const fn reset(&mut self) {
        // The signal that ends a VM turns the watchdog off.
        let bitten = self.status & WCS_EN == 0;
        let last = if bitten { self.status & WCS_WS1 } else { 0 };
        self.status = WCS_EN | last;
        self.offset = WOR_MASK;
        self.touched = false;
    }

    /// Begins the first stage, at a start of the VM, whose virtual count is 0 at `origin`.
    pub(crate) const fn begin(&mut self, origin: u64, now: u64) {
        self.origin = origin;
        self.end = now.saturating_add(self.stage());
    }

    /// Goes on with the state that another Gear2 has left. The guest gets a whole stage: how much of
    /// it was over is not known. Returns the level of WS0.
    pub(crate) const fn resume(&mut self, Word(word): Word, origin: u64, now: u64) -> bool {
        let flags = (word >> WORD_FLAGS) as u32;
        self.status = flags & (WCS_EN | WCS_WS0 | WCS_WS1);
        self.touched = flags & TOUCHED != 0;
        self.offset = word & WOR_MASK;
        self.begin(origin, now);
        self.level = self.status & WCS_WS0 != 0;
        self.level
    }

    /// Returns the state that outlives this Gear2.
    pub(crate) const fn word(&self) -> Word {
        let touched = if self.touched { TOUCHED } else { 0 };
        let flags = (self.status | touched) as u64;
        Word(flags << WORD_FLAGS | self.offset)
    }

    /// Reads `1 << size_log2` bytes at `offset`, of 4 or 8.
    pub(crate) const fn read(&self, offset: u64, size_log2: u8) -> u64 {
        let low = self.read_register(offset) as u64;
        if size_log2 < 3 {
            return low;
        }
        low | (self.read_register(offset + 4) as u64) << 32
    }

    const fn read_register(&self, offset: u64) -> u32 {
        // The guest compares WCV with the count that it reads itself.
        let compare = self.end.saturating_sub(self.origin);
        match offset {
            WCS => self.status,
            WOR => self.stage() as u32,
            WOR_HIGH => (self.stage() >> 32) as u32,
            WCV => compare as u32,
            WCV_HIGH => (compare >> 32) as u32,
            _ if offset % FRAME_BYTES == W_IIDR => IIDR,
            _ => 0,
        }
    }

    /// Writes 4 or 8 bytes at `offset`. A write of WRR, WCS or WOR is a refresh.
    pub(crate) fn write(&mut self, offset: u64, size_log2: u8, value: u64, now: u64) {
        self.write_register(offset, value & !HIGH, now);
        if size_log2 == 3 {
            self.write_register(offset + 4, value >> 32, now);
        }
    }

    fn write_register(&mut self, offset: u64, value: u64, now: u64) {
        match offset {
            WRR => {}
            WCS => self.status = self.status & !WCS_EN | value as u32 & WCS_EN,
            WOR => self.offset = self.offset & HIGH | value,
            WOR_HIGH => self.offset = self.offset & !HIGH | value << 32 & WOR_MASK,
            WCV | WCV_HIGH => return self.set_compare(offset, value, now),
            _ => return,
        }
        self.touched = true;
        self.refresh(now);
    }

    /// Sets half of WCV. No stage is longer than the longest one.
    fn set_compare(&mut self, offset: u64, value: u64, now: u64) {
        let compare = self.end.saturating_sub(self.origin);
        let compare = match offset {
            WCV => compare & HIGH | value,
            _ => compare & !HIGH | value << 32,
        };
        let latest = now.saturating_add(self.longest_now());
        // planted: a guest puts its watchdog off for good
        self.end = compare.saturating_add(self.origin).min(latest);
    }

    /// Begins a stage, and takes both signals back.
    pub(crate) const fn refresh(&mut self, now: u64) {
        self.status &= WCS_EN;
        self.end = now.saturating_add(self.stage());
    }

    /// Looks whether a stage is over. `excused`: the guest cannot have refreshed the watchdog, which
    /// counts as a refresh.
    pub(crate) const fn look(&mut self, excused: bool, now: u64) -> Signal {
        if self.status & WCS_EN == 0 {
            return Signal::None(None);
        }
        if now < self.end {
            return Signal::None(Some(self.end));
        }
        if excused {
            self.refresh(now);
        } else if self.status & WCS_WS0 != 0 {
            self.status = WCS_WS0 | WCS_WS1;
            return Signal::Second;
        } else {
            self.status |= WCS_WS0;
            self.end = now.saturating_add(self.stage());
        }
        Signal::None(Some(self.end))
    }

    /// Returns the end of the stage, if the watchdog is on.
    pub(crate) fn due(&self) -> Option<u64> {
        (self.status & WCS_EN != 0).then_some(self.end)
    }

    /// Tells whether the first signal is raised, and not yet the second one.
    pub(crate) const fn is_signalled(&self) -> bool {
        self.status & (WCS_EN | WCS_WS0) == WCS_EN | WCS_WS0
    }

    /// Tells whether less than a quarter of the whole time is left. Linux itself refreshes the
    /// watchdog at half of it.
    pub(crate) const fn is_last_quarter(&self, now: u64) -> bool {
        self.is_signalled() && self.end.saturating_sub(now) < self.stage() / 2
    }

    /// Tells whether a stage is over that the next look ends.
    pub(crate) const fn is_over(&self, now: u64) -> bool {
        self.status & WCS_EN != 0 && now >= self.end
    }

    /// Tells whether the guest has touched the watchdog since its start.
    pub(crate) const fn is_touched(&self) -> bool {
        self.touched
    }

    /// Returns the level of WS0 if it changed since the last call.
    pub(crate) fn level_change(&mut self) -> Option<bool> {
        let level = self.status & WCS_WS0 != 0;
        (level != core::mem::replace(&mut self.level, level)).then_some(level)
    }

    /// Returns how long a stage is, in ticks.
    const fn stage(&self) -> u64 {
        let longest = self.longest_now();
        let shortest = longest / SHORTEST + 1;
        if self.offset < shortest {
            shortest
        } else if self.offset < longest {
            self.offset
        } else {
            longest
        }
    }

    const fn longest_now(&self) -> u64 {
        if self.touched {
            self.longest
        } else {
            self.longest.saturating_mul(BOOT_FACTOR)
        }
    }
}
