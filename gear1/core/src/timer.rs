//! The timers of a vCPU (Arm ARM D12.2) as far as they need no hardware: the emulated EL1
//! physical timer, and when a virtual timer is due.
//!
//! Times are ticks of the physical counter, which every VM sees as it is (CNTPCT_EL0); a VM's
//! virtual count is that since its start. Requirements: `docs/requirements/timers.md`.

use gear1_abi::regs::NO_DEADLINE;

use crate::syndrome::SysregId;

/// CNTx_CTL_EL0.ENABLE.
const ENABLE: u64 = 1;
/// CNTx_CTL_EL0.IMASK.
const IMASK: u64 = 2;
/// CNTx_CTL_EL0.ISTATUS.
const ISTATUS: u64 = 4;

/// A register of the EL1 physical timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PhysicalReg {
    /// CNTP_CTL_EL0.
    Control,
    /// CNTP_CVAL_EL0.
    CompareValue,
    /// CNTP_TVAL_EL0.
    TimerValue,
}

impl PhysicalReg {
    /// Tells which register `id` is, if it is one of them.
    #[inline]
    pub const fn from_id(id: SysregId) -> Option<Self> {
        const TVAL: SysregId = SysregId::new(3, 3, 14, 2, 0);
        const CTL: SysregId = SysregId::new(3, 3, 14, 2, 1);
        const CVAL: SysregId = SysregId::new(3, 3, 14, 2, 2);
        match id {
            TVAL => Some(Self::TimerValue),
            CTL => Some(Self::Control),
            CVAL => Some(Self::CompareValue),
            _ => None,
        }
    }
}

/// The EL1 physical timer of a vCPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PhysicalTimer {
    /// ENABLE and IMASK.
    control: u64,
    compare: u64,
}

impl PhysicalTimer {
    /// At a vCPU's reset.
    pub const OFF: Self = Self::new(0, 0);

    /// A timer with these values of CNTP_CTL_EL0 and CNTP_CVAL_EL0.
    pub const fn new(control: u64, compare: u64) -> Self {
        Self {
            control: control & (ENABLE | IMASK),
            compare,
        }
    }

    const fn is_met(self, now: u64) -> bool {
        self.control & ENABLE != 0 && self.compare <= now
    }

    /// Returns whether the timer's interrupt line is high (G1-TIM-003).
    #[inline]
    pub const fn is_high(self, now: u64) -> bool {
        // planted: a masked timer interrupts
        self.is_met(now) && self.control & IMASK == 0
    }

    /// Returns the time at which the timer's line rises without a further write.
    #[inline]
    pub const fn deadline(self) -> u64 {
        deadline(self.control, self.compare, 0)
    }

    /// Returns what a guest reads (G1-TIM-002).
    pub const fn read(self, reg: PhysicalReg, now: u64) -> u64 {
        match reg {
            PhysicalReg::Control => self.control | if self.is_met(now) { ISTATUS } else { 0 },
            PhysicalReg::CompareValue => self.compare,
            PhysicalReg::TimerValue => self.compare.wrapping_sub(now) & 0xffff_ffff,
        }
    }

    /// Takes what a guest writes (G1-TIM-002).
    pub const fn write(&mut self, reg: PhysicalReg, value: u64, now: u64) {
        match reg {
            PhysicalReg::Control => self.control = value & (ENABLE | IMASK),
            PhysicalReg::CompareValue => self.compare = value,
            // TVAL is a signed 32-bit distance.
            PhysicalReg::TimerValue => {
                // planted: TVAL is a distance without sign
                self.compare = now.wrapping_add(value as u32 as i32 as i64 as u64);
            }
        }
    }
}

/// Returns when a timer's line is high, in physical ticks: `control` and `compare` are its
/// registers, `offset` is what its count lags behind the physical one.
#[inline]
pub const fn deadline(control: u64, compare: u64, offset: u64) -> u64 {
    if control & (ENABLE | IMASK) == ENABLE {
        // planted: a deadline forgets the offset
        compare.saturating_add(offset)
    } else {
        NO_DEADLINE
    }
}

/// Returns nanoseconds, rounded down, without overflow below 584 years.
pub const fn nanoseconds(ticks: u64, frequency: u64) -> u64 {
    const SECOND: u64 = 1_000_000_000;
    let (Some(seconds), Some(rest)) = (ticks.checked_div(frequency), ticks.checked_rem(frequency))
    else {
        return 0;
    };
    // The frequency is below 2^32 Hz (CNTFRQ_EL0), and so is the rest.
    let Some(part) = rest.wrapping_mul(SECOND).checked_div(frequency) else {
        return 0;
    };
    seconds.wrapping_mul(SECOND).wrapping_add(part)
}

#[cfg(test)]
mod tests;
