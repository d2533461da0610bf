//! Values that break rules, as messages show them.

use core::fmt;

use crate::CpuIndex;
use crate::blob::BlobError;
use crate::limits::SWITCH_NS;
use crate::model::{Budget, Scheduler};

/// The value that breaks a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found<'a> {
    /// Nothing that could be shown.
    Nothing,
    /// A number.
    Number(u64),
    /// A size in MiB.
    Mib(u64),
    /// Bytes that all VMs together ask for, and bytes that there are.
    Memory(u64, u64),
    /// A text.
    Text(&'a str),
    /// Detail of the value, or the reason.
    Reason(&'a str),
    /// A word of a text, and the reason.
    Word(&'a str, &'static str),
    /// Addresses from the first up to, but without, the second.
    Range(u64, u64),
    /// A damaged blob.
    Blob(BlobError),
    /// A file with this SHA-256.
    Digest([u8; 32]),
    /// A time in microseconds.
    Us(u32),
    /// A time in milliseconds.
    Ms(u32),
    /// A budget and its period.
    Budget(Budget),
    /// Times in a major frame: from, to.
    Span(u64, u64),
    /// End of a window and length of its frame, in microseconds.
    Overflow(u64, u32),
    /// Period of a budget, and the longest wait for a window, in microseconds.
    Wait(u32, u64),
    /// Demand on a CPU.
    Load(Load),
    /// Part of a CPU that is left, in millionths.
    Left(CpuIndex, u64),
    /// Scheduler, and those that would do.
    Scheduler(Scheduler, &'static str),
}

impl fmt::Display for Found<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing => Ok(()),
            Self::Number(number @ 0..=9999) => write!(f, " ({number})"),
            Self::Number(number) => write!(f, " ({number:#x})"),
            Self::Mib(mib) => write!(f, " ({mib} MiB)"),
            Self::Memory(asked, there) => {
                let (asked, there) = (asked >> 20, there >> 20);
                write!(f, " ({asked} MiB asked for, {there} MiB there)")
            }
            Self::Text(text) => write!(f, " (\"{}\")", text.escape_debug()),
            Self::Reason(reason) => write!(f, " ({reason})"),
            Self::Word(word, why) => write!(f, " (\"{}\": {why})", word.escape_debug()),
            Self::Range(start, end) => write!(f, " ({start:#x} to {end:#x})"),
            Self::Blob(error) => write!(f, " ({error})"),
            Self::Digest(digest) => {
                f.write_str(" (it has ")?;
                digest.iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
                f.write_str(")")
            }
            Self::Us(us) => write!(f, " ({us} us)"),
            Self::Ms(ms) => write!(f, " ({ms} ms)"),
            Self::Budget(Budget {
                budget_us,
                period_us,
            }) => write!(f, " ({budget_us} us in each {period_us} us)"),
            Self::Span(start, end) => write!(f, " ({start} us to {end} us)"),
            Self::Overflow(end, frame) => {
                write!(f, " (the window ends at {end} us, the frame at {frame} us)")
            }
            Self::Wait(period, wait) => {
                write!(f, " (a period of {period} us, a wait of up to {wait} us)")
            }
            Self::Load(load) => write!(f, " ({load})"),
            Self::Left(cpu, ppm) => write!(f, " ({} of CPU {} left)", Percent(*ppm), cpu.index()),
            Self::Scheduler(scheduler, others) => {
                write!(f, " (they have {}; {others})", scheduler.name())
            }
        }
    }
}

/// Demand of the budgets on a CPU, and what there is for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// The CPU.
    pub cpu: CpuIndex,
    /// Part that the budgets take, in millionths.
    pub budgets_ppm: u64,
    /// Part that two switches for each period take, in millionths.
    pub switches_ppm: u64,
    /// Part that there is: the whole CPU, or its windows without a VM.
    pub there_ppm: u64,
    /// Longest wait for such a window, in microseconds, by which periods count as shorter.
    pub delay_us: u64,
}

impl Load {
    /// Returns what is asked for, in millionths.
    #[must_use]
    pub const fn asked_ppm(&self) -> u64 {
        self.budgets_ppm.saturating_add(self.switches_ppm)
    }

    /// Tells whether more is asked for than is there.
    #[must_use]
    pub const fn is_too_much(&self) -> bool {
        self.asked_ppm() > self.there_ppm
    }

    /// Returns what is left, in millionths.
    #[must_use]
    pub const fn left_ppm(&self) -> u64 {
        self.there_ppm.saturating_sub(self.asked_ppm())
    }
}

impl fmt::Display for Load {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = [self.asked_ppm(), self.budgets_ppm, self.switches_ppm];
        let [asked, budgets, switches] = parts.map(Percent);
        let cpu = self.cpu.index();
        let us = SWITCH_NS / 1000;
        write!(
            f,
            "CPU {cpu}: {asked} asked for, which is {budgets} of budgets and {switches} of two \
             switches of {us} us in each period; {} there",
            Percent(self.there_ppm)
        )?;
        match self.delay_us {
            0 => Ok(()),
            delay => write!(f, ", for which a period waits up to {delay} us"),
        }
    }
}

/// A part in millionths, shown in percent, rounded up so that too much is never shown as enough.
struct Percent(u64);

impl fmt::Display for Percent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hundredths = self.0.div_ceil(100);
        write!(f, "{}.{:02} %", hundredths / 100, hundredths % 100)
    }
}
