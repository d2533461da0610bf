//! The virtual timer, and registers of both timers of EL1.
//!
//! The physical timer costs exits in a VM, so that all waits here use the virtual one.

use crate::{cpu, gic, read_sysreg, write_sysreg};

/// INTID of the virtual timer: PPI 11. PPI numbers begin at INTID 16. Linux finds the number in the
/// device tree, which GearV makes with this one (Arm DEN 0094).
pub const INTID: u32 = 27;

/// Returns the counter.
#[inline(always)]
/// Without the ISB the counter may be read before instructions that precede it (Arm ARM D12.2).
pub fn now() -> u64 {
    cpu::isb();
    read_sysreg!("cntvct_el0")
}

/// Returns the counter's frequency in Hz. Firmware writes it, and no other clock tells a guest what
/// a tick is.
pub fn frequency() -> u64 {
    read_sysreg!("cntfrq_el0")
}

/// Returns the ticks in `us` microseconds.
pub fn from_us(us: u64) -> u64 {
    us * frequency() / 1_000_000
}

/// Returns the nanoseconds in `ticks` ticks. In 128 bits, as 64 overflow after 18 s of a counter of
/// 1 GHz.
pub fn to_ns(ticks: u64) -> u64 {
    (u128::from(ticks) * 1_000_000_000 / u128::from(frequency())) as u64
}

/// Arms the timer for the counter value `deadline`. CVAL comes first: with the former compare value
/// in the past, the line would rise at the write of CTL.
pub fn arm(deadline: u64) {
    write_sysreg!("cntv_cval_el0", deadline);
    write_sysreg!("cntv_ctl_el0", 1);
}

/// Turns the timer off.
pub fn disarm() {
    write_sysreg!("cntv_ctl_el0", 0);
}

/// Lets `us` microseconds pass, with YIELD. No interrupt and no exit is involved, so that a delay
/// measures nothing but time.
pub fn delay_us(us: u64) {
    let end = now() + from_us(us);
    cpu::wait_until(|| now() >= end);
}

/// Waits in WFI, with interrupts masked, for `us` microseconds. An interrupt that is pending at the
/// end, the timer's as a rule, is acknowledged and ended. WFI may end early (Arm ARM, "Wait for
/// Interrupt"), hence the loop.
pub fn sleep_us(us: u64) {
    gic::enable(INTID);
    let deadline = now() + from_us(us);
    arm(deadline);
    while now() < deadline {
        cpu::wfi();
    }
    disarm();
    let intid = gic::acknowledge();
    if gic::is_real(intid) {
        gic::end(intid);
    }
}

/// A timer of EL1, register by register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The virtual one.
    Virtual = 0,
    /// The physical one.
    Physical = 1,
}

macro_rules! registers {
    ($($get:ident, $set:ident: $virtual:literal, $physical:literal;)+) => {
        impl Kind {
            $(
                #[doc = concat!("Reads ", $virtual, " or ", $physical, ".")]
                pub fn $get(self) -> u64 {
                    match self {
                        Self::Virtual => read_sysreg!($virtual),
                        Self::Physical => read_sysreg!($physical),
                    }
                }

                #[doc = concat!("Writes ", $virtual, " or ", $physical, ".")]
                pub fn $set(self, value: u64) {
                    match self {
                        Self::Virtual => write_sysreg!($virtual, value),
                        Self::Physical => write_sysreg!($physical, value),
                    }
                }
            )+
        }
    };
}

registers! {
    control, set_control: "cntv_ctl_el0", "cntp_ctl_el0";
    compare, set_compare: "cntv_cval_el0", "cntp_cval_el0";
    value, set_value: "cntv_tval_el0", "cntp_tval_el0";
}

impl Kind {
    /// Returns the timer's INTID.
    pub const fn intid(self) -> u32 {
        match self {
            Self::Virtual => INTID,
            Self::Physical => 30,
        }
    }

    /// Returns the timer's count.
    pub fn now(self) -> u64 {
        cpu::isb();
        match self {
            Self::Virtual => read_sysreg!("cntvct_el0"),
            Self::Physical => read_sysreg!("cntpct_el0"),
        }
    }
}
