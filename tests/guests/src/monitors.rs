//! Debug exceptions of EL1, taken from EL1 and recorded, and the performance monitors.

use core::arch::asm;
use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};

use crate::{read_sysreg, write_sysreg};

/// Exception classes.
pub const BREAKPOINT: u64 = 0x31;
/// Software step.
pub const STEP: u64 = 0x33;
/// Watchpoint.
pub const WATCHPOINT: u64 = 0x35;
const CLASSES: core::ops::RangeInclusive<u64> = 0x30..=0x35;

/// MDSCR_EL1: single step.
pub const SS: u64 = 1;
/// MDSCR_EL1: debug exceptions at EL1, breakpoints and watchpoints.
pub const KDE_MDE: u64 = 1 << 13 | 1 << 15;
/// SPSR_EL1.SS.
const SPSR_SS: u64 = 1 << 21;
/// DBGBCR: at EL1, all bytes of a word.
pub const BCR_EL1: u64 = 0xf << 5 | 1 << 1 | 1;
/// DBGWCR: at EL1, loads and stores; without the bytes.
pub const WCR_EL1: u64 = 3 << 3 | 1 << 1 | 1;

/// The PMU's interrupt.
pub const PMU_INTID: u32 = 23;

const MAX_SEEN: usize = 8;
static SEEN: [(AtomicU64, AtomicU64); MAX_SEEN] =
    [const { (AtomicU64::new(0), AtomicU64::new(0)) }; MAX_SEEN];
static COUNT: AtomicUsize = AtomicUsize::new(0);
static STEP_OUT: AtomicBool = AtomicBool::new(false);

/// Debug exceptions that arrived: class and address, at most eight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Number of exceptions.
    pub count: usize,
    /// Class and ELR_EL1 of the first.
    pub first: (u64, u64),
    /// Class and ELR_EL1 of the second.
    pub second: (u64, u64),
}

/// Forgets what came. `step_out`: a breakpoint's handler steps over the instruction it stands at.
pub fn forget(step_out: bool) {
    COUNT.store(0, Relaxed);
    STEP_OUT.store(step_out, Relaxed);
}

/// Returns what has come since.
pub fn seen() -> Seen {
    let at = |index: usize| (SEEN[index].0.load(Relaxed), SEEN[index].1.load(Relaxed));
    Seen {
        count: COUNT.load(Relaxed),
        first: at(0),
        second: at(1),
    }
}

/// Runs `body` with debug exceptions unmasked, and returns what came.
pub fn watch(step_out: bool, body: impl FnOnce()) -> Seen {
    forget(step_out);
    // SAFETY: the vector records each debug exception and turns off what caused it.
    unsafe { asm!("msr daifclr, #8", "isb") };
    body();
    // SAFETY: masks them again.
    unsafe { asm!("msr daifset, #8", "isb") };
    seen()
}

/// The vector's part: records a debug exception, turns off what caused it, and returns SPSR_EL1 to
/// go on with. `None`: it is none.
pub(crate) fn taken(class: u64, elr: u64, spsr: u64) -> Option<u64> {
    if !CLASSES.contains(&class) {
        return None;
    }
    let index = COUNT.fetch_add(1, Relaxed);
    if let Some((seen_class, seen_elr)) = SEEN.get(index) {
        seen_class.store(class, Relaxed);
        seen_elr.store(elr, Relaxed);
    }
    let control = read_sysreg!("mdscr_el1");
    match class {
        BREAKPOINT => {
            write_sysreg!("dbgbcr0_el1", 0);
            if STEP_OUT.load(Relaxed) {
                write_sysreg!("mdscr_el1", control | SS);
                return Some(spsr | SPSR_SS);
            }
        }
        WATCHPOINT => write_sysreg!("dbgwcr0_el1", 0),
        _ => write_sysreg!("mdscr_el1", control & !SS),
    }
    Some(spsr)
}

/// Steps one instruction of EL1 with X1 as its operand, and returns what came and the address
/// behind it.
#[macro_export]
macro_rules! step {
    ($instruction:literal, $x1:expr) => {{
        let behind: u64;
        $crate::monitors::forget(false);
        let x1: u64 = $x1;
        let control = $crate::read_sysreg!("mdscr_el1");
        $crate::write_sysreg!("mdscr_el1", control | $crate::monitors::SS);
        // SAFETY: ERET leads to the instruction, at EL1 with only debug exceptions unmasked; the
        // vector ends the stepping.
        unsafe {
            core::arch::asm!(
                "adr {behind}, 2f",
                "msr elr_el1, {behind}",
                "msr spsr_el1, {spsr}",
                "adr {behind}, 3f",
                "isb",
                "eret",
                "2:",
                $instruction,
                "3:",
                "nop",
                "nop",
                "msr daifset, #8",
                "isb",
                behind = out(reg) behind,
                spsr = in(reg) 0x0020_01c5_u64,
                inout("x1") x1 => _,
                inout("x0") 0x8400_0000_u64 => _,
                out("x2") _,
                out("x3") _,
            );
        }
        ($crate::monitors::seen(), behind)
    }};
}

/// Counts down and returns how long the loop is: two instructions a round.
#[inline(never)]
pub fn spin(rounds: u64) {
    // SAFETY: no memory is touched.
    unsafe { asm!("2: subs {0}, {0}, #1", "b.ne 2b", inout(reg) rounds => _) };
}
