//! Arms breakpoints, watchpoints and single-step against Gear2, then calls it thousands of times:
//! it must not notice. Natively, that arming them leaves the guest itself alone.
//!
//! A hypervisor may refuse these registers as undefined or ignore writes: both are fine.
//!
//! KVM switches the debug registers of a guest that uses them. GearV keeps them from a guest
//! without `debug` in the manifest: RAZ/WI (G1-CPU-003).
#![no_std]
#![no_main]

use gear1_abi::layout::gear2;
use test_guests::exception::{catch, esr};
use test_guests::{Machine, check, guest, psci, read_sysreg, report, say, write_sysreg};

guest!(main);

/// Each call enters Gear2 while the registers hold. A step that is active at one of these entries
/// would be taken at Gear2's first instruction.
const CALLS: u64 = 5000;
/// MDE, KDE and SS of MDSCR_EL1. MDE lets breakpoints and watchpoints act, and SS steps at the next
/// ERET.
const MONITOR_STEP: u64 = 1 << 15 | 1 << 13 | 1;
/// Enabled at EL0 and EL1, all bytes of a word. EL0 is included, as Gear2's code runs there.
const BREAKPOINT: u64 = 0xf << 5 | 3 << 1 | 1;
/// Enabled at EL0 and EL1, loads and stores, all bytes of 2 GiB. MASK (bits 28:24) of 31 leaves out
/// 31 bits of the address.
const WATCHPOINT: u64 = 31 << 24 | 0xff << 5 | 3 << 3 | 3 << 1 | 1;

/// Gear2 runs at EL0, where EL1's breakpoints would apply. PSTATE.D masks debug exceptions only of
/// the level that takes them, and so none of EL0's: MDSCR_EL1 has to be off there.
fn main(machine: &Machine) {
    arm();
    let refused = (0..CALLS).find(|_| machine.gearv && psci::gear2_nop() != 0);
    check!(
        "gear2-does-not-notice",
        refused.is_none(),
        "call {refused:?} failed"
    );
    disarm();
    pmu();
    trace();
}

/// MSR has its register in the instruction, so that no loop over registers is possible.
macro_rules! try_write {
    ($undefined:ident, $($name:literal = $value:expr),+ $(,)?) => {
        $(if !written(|| write_sysreg!($name, $value)) { $undefined += 1; })+
    };
}

/// Tells whether the write was taken; anything but an undefined instruction is reported.
fn written(write: impl FnOnce()) -> bool {
    let Some(caught) = catch(write) else {
        return true;
    };
    if caught.class() != esr::EC_UNKNOWN {
        report::fail("debug-register", format_args!("{caught:x?}"));
    }
    false
}

/// OS lock and OS double lock are opened first, or nothing would be armed. Breakpoints compare the
/// addresses of whatever code runs: nothing in them names the VM that set them.
fn arm() {
    let mut undefined = 0;
    try_write!(
        undefined,
        "oslar_el1" = 0,
        "osdlr_el1" = 0,
        "dbgbvr0_el1" = gear2::IMAGE,
        "dbgbcr0_el1" = BREAKPOINT,
        "dbgbvr1_el1" = gear2::IMAGE + 0x48, // right behind the image's header
        "dbgbcr1_el1" = BREAKPOINT,
        "dbgwvr0_el1" = 0,
        "dbgwcr0_el1" = WATCHPOINT & !(1 << 1 | 1 << 2) | 2 << 1, // EL0 alone: not this guest
        "dbgwvr1_el1" = gear2::STACKS,
        "dbgwcr1_el1" = 0xff << 5 | 3 << 3 | 3 << 1 | 1,
        "mdscr_el1" = MONITOR_STEP,
    );
    say!("{undefined} of 11 debug registers undefined");
    report::pass("arming-is-harmless");
}

/// Whatever was refused before is refused again. Natively the registers hold what was written, and
/// must not stay armed.
fn disarm() {
    let mut undefined = 0;
    try_write!(
        undefined,
        "mdscr_el1" = 0,
        "dbgbcr0_el1" = 0,
        "dbgbcr1_el1" = 0,
        "dbgwcr0_el1" = 0,
        "dbgwcr1_el1" = 0,
    );
    let _ = undefined;
}

/// A PMU is there, or neither announced nor usable. Linux touches PMCR_EL0 if PMUVer announces a
/// PMU, and dies of an UNDEFINED instruction otherwise.
fn pmu() {
    let version = read_sysreg!("id_aa64dfr0_el1") >> 8 & 0xf;
    let caught = catch(|| _ = read_sysreg!("pmcr_el0"));
    let undefined = caught.is_some_and(|caught| caught.class() == esr::EC_UNKNOWN);
    let announced = !matches!(version, 0 | 0xf);
    check!(
        "pmu-as-announced",
        announced != undefined,
        "version {version}, {caught:x?}"
    );
}

/// A trace unit is announced or UNDEFINED, as the PMU. The debug version is 6 (Armv8.0) at least,
/// since debug itself cannot be absent.
fn trace() {
    let dfr0 = read_sysreg!("id_aa64dfr0_el1");
    check!("debug-version", dfr0 & 0xf >= 6, "ID_AA64DFR0 {dfr0:#x}");
    let caught = catch(|| _ = read_sysreg!("s2_1_c0_c0_0")); // TRCTRACEIDR
    let undefined = caught.is_some_and(|caught| caught.class() == esr::EC_UNKNOWN);
    check!(
        "trace-as-announced",
        (dfr0 >> 4 & 0xf != 0) != undefined,
        "{dfr0:#x}, {caught:x?}"
    );
}
