//! Watchdogs of boards, which reset the machine unless Gear1 feeds them, and the line that Gear1
//! toggles for a microcontroller outside of the SoC.
//!
//! Owns the use of the registers. The caller has mapped them, and decides when to feed. No register
//! here makes a device access memory. Register names are the manuals': i.MX 8M Plus reference
//! manual, "Watchdog Timer"; R-Car Gen3 user's manual, "RCLK Watchdog Timer"; Arm DDI 0190
//! (PL061). The BCM2711's power manager has no public manual: registers and bits are those that
//! Linux's bcm2835_wdt and the firmware's headers name.
//!
//! Requirements: G1-SUP-005, G1-SUP-006.

use core::ops::RangeInclusive;

use gear1_abi::boot::board_watchdog as kind;

#[cfg(test)]
mod tests;

/// i.MX: control, service, reset status, and the counter that turns the board off.
const IMX2_WCR: usize = 0x00;
const IMX2_WSR: usize = 0x02;
const IMX2_WRSR: usize = 0x04;
const IMX2_WMCR: usize = 0x08;
/// WCR: the timeout less one, in half seconds.
const WCR_WT_SHIFT: u32 = 8;
/// WCR: the timeout asserts WDOG_B, which resets the board and not the SoC alone.
const WCR_WDT: u16 = 1 << 3;
/// WCR: enabled; firmware or Gear1 sets the bit once, and only a reset clears it.
const WCR_WDE: u16 = 1 << 2;
/// WCR: the counter stops in WAIT, STOP and DOZE mode. WFI of all CPUs may be WAIT.
const WCR_STOPS: u16 = 1 << 7 | 1 << 0;
/// WCR: no assertion of WDOG_B and no reset by software, both of which a 0 causes at once.
const WCR_NOT_NOW: u16 = 1 << 5 | 1 << 4;
const WSR_FIRST: u16 = 0x5555;
const WSR_SECOND: u16 = 0xaaaa;
const WRSR_SOFTWARE: u16 = 1 << 0;
const WRSR_TIMEOUT: u16 = 1 << 1;
const WRSR_POWER_ON: u16 = 1 << 4;
/// Half a second, the unit of WT.
const IMX2_TICK_MS: u32 = 500;

/// RWDT: counter, and control and status A and B.
const RWTCNT: usize = 0x0;
const RWTCSRA: usize = 0x4;
const RWTCSRB: usize = 0x8;
/// Codes in the upper bits of a written word, without which the write has no effect.
const RWTCNT_CODE: u32 = 0x5a5a_0000;
const RWTCSR_CODE: u32 = 0xa5a5_a500;
/// RWTCSRA: the counter counts.
const RWTCSRA_TME: u8 = 1 << 7;
/// RWTCSRA: a write of RWTCNT is under way.
const RWTCSRA_WRFLG: u8 = 1 << 5;
/// RWTCSRA: the counter has overflowed, which only a power-on reset forgets.
const RWTCSRA_WOVF: u8 = 1 << 4;
/// RWTCSRA.CKS: RCLK / 64, which is 512 Hz of 32.768 kHz.
const RWTCSRA_CKS: u8 = 4;
const RWDT_HZ: u32 = 512;
/// The counter overflows here.
const RWTCNT_END: u32 = 1 << 16;

/// BCM2835: reset control, reset status, counter.
const PM_RSTC: usize = 0x1c;
const PM_RSTS: usize = 0x20;
const PM_WDOG: usize = 0x24;
/// Upper bits of a written word, without which the write has no effect.
const PM_PASSWORD: u32 = 0x5a00_0000;
/// RSTC: kind of reset at the counter's end, and of the whole SoC.
const PM_RSTC_WRCFG: u32 = 0x30;
const PM_RSTC_FULL: u32 = 0x20;
const PM_WDOG_TIME: u32 = 0xf_ffff;
const PM_HZ: u32 = 1 << 16;
/// RSTS: the watchdog has reset the SoC; a debugger or software has; power was off. Between these
/// bits, bits 0, 2, 4, 6, 8 and 10 name the partition to boot from.
const PM_RSTS_WATCHDOG: u32 = 1 << 5;
const PM_RSTS_SOFTWARE: u32 = 1 << 9;
const PM_RSTS_POWER_ON: u32 = 1 << 12;

/// PL061: direction, and whether hardware has the line.
const GPIODIR: usize = 0x400;
const GPIOAFSEL: usize = 0x420;

/// Reads of a flag before the hardware is given up.
const PATIENCE: u32 = 10_000;

/// Contents of a device's registers, as they were read.
pub trait Status {
    /// Reads a register of 8 bits.
    fn read8(&self, offset: usize) -> u8;
    /// Reads a register of 16 bits.
    fn read16(&self, offset: usize) -> u16;
    /// Reads a register of 32 bits.
    fn read32(&self, offset: usize) -> u32;
}

/// Registers of a device.
pub trait Registers: Status {
    /// Writes a register of 16 bits.
    fn write16(&self, offset: usize, value: u16);
    /// Writes a register of 32 bits.
    fn write32(&self, offset: usize, value: u32);
    /// Waits for two cycles of a clock of 32 kHz at least.
    fn settle(&self);
}

/// Cause of the last reset, as far as the device's status tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The status tells of no reset by the watchdog, and of no other cause that it has a bit for.
    Unknown,
    /// Power was off.
    PowerOn,
    /// Software asked for the reset.
    Software,
    /// The watchdog was not fed.
    Watchdog,
}

/// A kind of device that is fed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Watchdog {
    /// i.MX's WDOG.
    Imx2 {
        /// Whether the timeout asserts the pin WDOG_B.
        asserts_pin: bool,
    },
    /// R-Car's RWDT.
    Rwdt,
    /// The watchdog in the BCM2835's power manager, and in its successors'.
    Bcm2835,
    /// A line of a PL061, which each feeding toggles.
    Pl061 {
        /// Line, from 0 to 7.
        line: u32,
    },
}

impl Watchdog {
    /// Returns the kind of a hand-over's numbers, if it is one.
    #[must_use]
    pub const fn of(number: u32, parameter: u32) -> Option<Self> {
        match number {
            kind::IMX2 => Some(Self::Imx2 {
                asserts_pin: parameter != 0,
            }),
            kind::RWDT => Some(Self::Rwdt),
            kind::BCM2835 => Some(Self::Bcm2835),
            kind::PL061 if parameter < 8 => Some(Self::Pl061 { line: parameter }),
            _ => None,
        }
    }

    /// Returns the numbers that [`Self::of`] takes.
    #[must_use]
    pub const fn numbers(self) -> (u32, u32) {
        match self {
            Self::Imx2 { asserts_pin } => (kind::IMX2, asserts_pin as u32),
            Self::Rwdt => (kind::RWDT, 0),
            Self::Bcm2835 => (kind::BCM2835, 0),
            Self::Pl061 { line } => (kind::PL061, line),
        }
    }

    /// Returns the timeouts that the device counts, in milliseconds; of a line, none.
    #[must_use]
    pub const fn timeouts(self) -> Option<RangeInclusive<u32>> {
        match self {
            // QEMU's resets at once with the shortest time that the manual has, 500 ms.
            Self::Imx2 { .. } => Some(2 * IMX2_TICK_MS..=256 * IMX2_TICK_MS),
            Self::Rwdt => Some(100..=127_000),
            Self::Bcm2835 => Some(100..=15_000),
            Self::Pl061 { .. } => None,
        }
    }

    /// Returns the cause of the last reset. Read before [`Self::start`].
    #[must_use]
    pub fn cause(self, status: &impl Status) -> Cause {
        let causes = match self {
            Self::Imx2 { .. } => {
                let status = status.read16(IMX2_WRSR);
                [WRSR_TIMEOUT, WRSR_SOFTWARE, WRSR_POWER_ON].map(|bit| status & bit != 0)
            }
            Self::Rwdt => [status.read8(RWTCSRA) & RWTCSRA_WOVF != 0, false, false],
            Self::Bcm2835 => {
                let status = status.read32(PM_RSTS);
                [PM_RSTS_WATCHDOG, PM_RSTS_SOFTWARE, PM_RSTS_POWER_ON].map(|bit| status & bit != 0)
            }
            Self::Pl061 { .. } => [false; 3],
        };
        // planted: the watchdog's reset is not told
        match causes {
            [true, ..] => Cause::Watchdog,
            [_, true, _] => Cause::Software,
            [.., true] => Cause::PowerOn,
            [false, false, false] => Cause::Unknown,
        }
    }

    /// Starts the device, which resets the machine `timeout_ms` after the last feeding, or at most
    /// one unit of its counter later.
    pub fn start(self, registers: &impl Registers, timeout_ms: u32) {
        match self {
            Self::Imx2 { asserts_pin } => start_imx2(registers, timeout_ms, asserts_pin),
            Self::Rwdt => start_rwdt(registers, timeout_ms),
            Self::Bcm2835 => feed_bcm2835(registers, timeout_ms),
            Self::Pl061 { line } => start_line(registers, line),
        }
    }

    /// Feeds the device.
    pub fn feed(self, registers: &impl Registers, timeout_ms: u32) {
        match self {
            Self::Imx2 { .. } => feed_imx2(registers),
            Self::Rwdt => count_rwdt(registers, timeout_ms),
            Self::Bcm2835 => feed_bcm2835(registers, timeout_ms),
            Self::Pl061 { line } => toggle(registers, line),
        }
    }
}

/// Sets the timeout, then enables: WDE and the low-power bits can be written once.
fn start_imx2(registers: &impl Registers, timeout_ms: u32, asserts_pin: bool) {
    let count = timeout_ms.div_ceil(IMX2_TICK_MS).wrapping_sub(1) & 0xff;
    let kept = registers.read16(IMX2_WCR) & !(0xff << WCR_WT_SHIFT | WCR_WDT | WCR_STOPS);
    let pin = if asserts_pin { WCR_WDT } else { 0 };
    let control = kept | WCR_NOT_NOW | (count << WCR_WT_SHIFT) as u16 | pin;
    // The counter that turns the board off 16 s after power-on, whatever is fed (PDE).
    registers.write16(IMX2_WMCR, 0);
    registers.write16(IMX2_WCR, control);
    registers.write16(IMX2_WCR, control | WCR_WDE);
    // A counter that firmware has started takes the new timeout with the service sequence.
    feed_imx2(registers);
}

fn feed_imx2(registers: &impl Registers) {
    registers.write16(IMX2_WSR, WSR_FIRST);
    registers.write16(IMX2_WSR, WSR_SECOND);
}

/// Stops the counter before its clock is chosen, as the manual asks.
fn start_rwdt(registers: &impl Registers, timeout_ms: u32) {
    let stopped = registers.read8(RWTCSRA) & !RWTCSRA_TME;
    registers.write32(RWTCSRA, RWTCSR_CODE | u32::from(stopped));
    registers.settle();
    await_write(registers);
    registers.write32(RWTCSRA, RWTCSR_CODE | u32::from(RWTCSRA_CKS));
    registers.write32(RWTCSRB, RWTCSR_CODE);
    count_rwdt(registers, timeout_ms);
    await_write(registers);
    let running = RWTCSRA_CKS | RWTCSRA_TME;
    registers.write32(RWTCSRA, RWTCSR_CODE | u32::from(running));
}

/// Waits until the counter has taken what was written to it.
fn await_write(registers: &impl Registers) {
    // Bound: PATIENCE reads.
    for _ in 0..PATIENCE {
        if registers.read8(RWTCSRA) & RWTCSRA_WRFLG == 0 {
            return;
        }
    }
}

/// Lets the counter overflow after this time.
fn count_rwdt(registers: &impl Registers, timeout_ms: u32) {
    let count = in_ticks(timeout_ms, RWDT_HZ);
    let begin = RWTCNT_END.wrapping_sub(count) & (RWTCNT_END - 1);
    registers.write32(RWTCNT, RWTCNT_CODE | begin);
}

/// Writes the time and the kind of reset, which also starts the counter.
fn feed_bcm2835(registers: &impl Registers, timeout_ms: u32) {
    let count = in_ticks(timeout_ms, PM_HZ) & PM_WDOG_TIME;
    registers.write32(PM_WDOG, PM_PASSWORD | count);
    let kept = registers.read32(PM_RSTC) & !PM_RSTC_WRCFG & 0x00ff_ffff;
    registers.write32(PM_RSTC, PM_PASSWORD | kept | PM_RSTC_FULL);
}

/// Returns a time in ticks of a counter, at least one.
fn in_ticks(ms: u32, hz: u32) -> u32 {
    let ticks = u64::from(ms).wrapping_mul(u64::from(hz)) / 1000;
    ticks.max(1) as u32
}

/// Makes a line an output of software's.
fn start_line(registers: &impl Registers, line: u32) {
    let bit = 1_u32.wrapping_shl(line);
    registers.write32(GPIOAFSEL, registers.read32(GPIOAFSEL) & !bit);
    registers.write32(GPIODIR, registers.read32(GPIODIR) | bit);
}

/// Turns a line over. The address of the data register selects the lines that an access concerns.
fn toggle(registers: &impl Registers, line: u32) {
    let (bit, data) = (1_u32.wrapping_shl(line), 4_usize.wrapping_shl(line));
    registers.write32(data, registers.read32(data) ^ bit);
}
