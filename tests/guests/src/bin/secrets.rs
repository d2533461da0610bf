//! Fills every register with a secret, leaves the VM in each way that leads to Gear2, and finds its
//! registers unchanged. xtask looks at Gear2's registers meanwhile
//! (`tests/suite/src/gear2_registers.rs` knows the patterns): only what the guest hands over may be
//! there. Run twice on one CPU.
//!
//! Requirements: G1-RUN-003.
#![no_std]
#![no_main]

use core::arch::asm;

use test_guests::fp::{self, Registers};
use test_guests::uart::{self, register as pl011};
use test_guests::{Machine, gic, guest, read_sysreg, report, timer, write_sysreg};

guest!(main);

/// Each round leaves the VM in all ways once.
const ROUNDS: u64 = 100;
/// Turns of a loop of two instructions: some of them take longer than the rest of a time slice.
const TURNS: u64 = 1 << 21;
/// Longer than a stop at a breakpoint, so that the timer is still to come at the WFI.
const SLEEP_US: u64 = 5_000;
/// PL011: integer divisor, which nothing depends on.
const IBRD: u64 = 0x24;
/// Numbers of secrets beyond those of X0 to X30. Numbers are distinct over all registers, so that a
/// secret found in Gear2 tells where it is from.
const SP_EL0: u64 = 32;
const TPIDR_EL0: u64 = 33;
const TPIDRRO_EL0: u64 = 34;
const V0: u64 = 64;

/// X0 to X30.
type General = [u64; 31];

/// Returns a value that Gear2 must never see, in either half.
const fn secret(number: u64) -> u64 {
    0xa55e_c200_a55e_c200 | number << 32 | number
}

/// Returns a value that Gear2 is given. The pattern differs from that of secrets, so that the host
/// tells both apart.
const fn given(number: u64) -> u64 {
    0x617e_4000_617e_4000 | number << 32 | number
}

macro_rules! crossing {
    // All general registers are loaded, so that none is left for an address: X0 is loaded last and
    // the results go to the stack first. X18, X19 and X29 are saved by hand, as they cannot be
    // operands here.
    ($(#[$doc:meta])* $name:ident, $($instruction:literal),+) => {
        $(#[$doc])*
        #[inline(never)]
        fn $name(x: &mut General) {
            // SAFETY: changes general registers only, all of which are declared or saved, its own
            // piece of the stack, and `x`; the instructions touch a device's registers at most.
            unsafe {
                asm!(
                    "stp x18, x19, [sp, #-32]!",
                    "stp x29, x0, [sp, #16]",
                    "sub sp, sp, #256",
                    ".irp n, 1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,0",
                    "ldr x\\n, [x0, #(8 * \\n)]",
                    ".endr",
                    $($instruction,)+
                    ".irp n, 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30",
                    "str x\\n, [sp, #(8 * \\n)]",
                    ".endr",
                    "ldr x0, [sp, #(256 + 24)]",
                    ".irp n, 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30",
                    "ldr x1, [sp, #(8 * \\n)]",
                    "str x1, [x0, #(8 * \\n)]",
                    ".endr",
                    "add sp, sp, #256",
                    "ldr x29, [sp, #16]",
                    "ldp x18, x19, [sp], #32",
                    inout("x0") x.as_mut_ptr() => _,
                    out("x20") _, out("x21") _, out("x22") _, out("x23") _, out("x24") _,
                    out("x25") _, out("x26") _, out("x27") _, out("x28") _,
                    clobber_abi("C"),
                );
            }
        }
    };
}

crossing!(
    /// Calls Gear2: X0 to X4 are handed over.
    hypercall, "hvc #0"
);
crossing!(
    /// Stores W9 to the device register at X10.
    store, "str w9, [x10]"
);
crossing!(
    /// Loads W9 from the device register at X10.
    load, "ldr w9, [x10]"
);
crossing!(
    /// Waits for the timer.
    wait, "wfi"
);
crossing!(
    /// Counts W0 down, and X0's upper half stays.
    spin, "2: sub x0, x0, #1", "cbnz w0, 2b"
);

/// Leaves the VM in all ways in each round. The test fails at the first register that is lost. A
/// secret that Gear2 sees would let a Gear2 that is taken over read guests' keys (G1-RUN-003).
fn main(machine: &Machine) {
    fp::enable();
    gic::enable(timer::INTID);
    fill_rest();
    for round in 0..ROUNDS {
        let lost = if machine.gearv { over_call() } else { None }
            .or_else(over_devices)
            .or_else(over_wait)
            .or_else(over_slices)
            .or_else(rest_lost);
        if let Some(register) = lost {
            report::fail(
                "registers-kept",
                format_args!("{register} in round {round}"),
            );
            return;
        }
    }
    report::pass("registers-kept");
}

/// Returns the secrets of all general registers.
fn secrets() -> General {
    core::array::from_fn(|number| secret(number as u64))
}

/// Runs `leave` and returns the first register that is not as expected, `ignored` apart.
fn cross(leave: fn(&mut General), before: General, ignored: usize) -> Option<usize> {
    let mut after = before;
    leave(&mut after);
    (0..after.len()).find(|&number| number != ignored && after[number] != before[number])
}

/// Calls Gear2. X0 is ignored behind the call, as the result is there. `Event::Hypercall` has X0 to
/// X4 and no other register.
fn over_call() -> Option<usize> {
    let mut before = secrets();
    before[0] = gear1_abi::guest::GEAR2_NOP.into();
    for (number, argument) in before.iter_mut().enumerate().take(5).skip(1) {
        *argument = given(number as u64);
    }
    cross(hypercall, before, 0)
}

/// Stores to and loads from a device that Gear2 emulates. A store hands over the value and a load
/// the place alone; the load's register changes.
fn over_devices() -> Option<usize> {
    let mut before = secrets();
    before[9] = given(9);
    before[10] = uart::base() + IBRD;
    let lost = cross(store, before, usize::MAX);
    before[9] = secret(9);
    before[10] = uart::base() + pl011::FR;
    lost.or_else(|| cross(load, before, 9))
}

/// Waits in WFI for the timer, which is still to come when the wait begins.
fn over_wait() -> Option<usize> {
    timer::arm(timer::now() + timer::from_us(SLEEP_US));
    let lost = cross(wait, secrets(), usize::MAX);
    timer::disarm();
    let intid = gic::acknowledge();
    if gic::is_real(intid) {
        gic::end(intid);
    }
    lost
}

/// Computes until the slice ends: an exit that the guest did not ask for, and so hands nothing
/// over. Gear2 learns of the end of a slice from its own timer.
fn over_slices() -> Option<usize> {
    let mut before = secrets();
    before[0] = secret(0) >> 32 << 32 | TURNS;
    cross(spin, before, 0)
}

/// The FP registers' secrets.
fn vectors() -> Registers {
    let q = |number| u128::from(secret(V0 + number)) << 64 | u128::from(secret(V0 + number));
    Registers {
        q: core::array::from_fn(|number| q(number as u64)),
        fpcr: 0,
        fpsr: 0,
    }
}

/// Fills what [`cross`] does not.
fn fill_rest() {
    write_sysreg!("sp_el0", secret(SP_EL0));
    write_sysreg!("tpidr_el0", secret(TPIDR_EL0));
    write_sysreg!("tpidrro_el0", secret(TPIDRRO_EL0));
    vectors().load();
}

/// Returns the number of the first secret of [`fill_rest`] that is lost.
fn rest_lost() -> Option<usize> {
    let special = [
        (SP_EL0, read_sysreg!("sp_el0")),
        (TPIDR_EL0, read_sysreg!("tpidr_el0")),
        (TPIDRRO_EL0, read_sysreg!("tpidrro_el0")),
    ];
    let special = special.iter().find(|(number, is)| *is != secret(*number));
    let (vectors, current) = (vectors().q, Registers::current().q);
    let vector = (0..32).find(|&number| vectors[number] != current[number]);
    special
        .map(|(number, _)| *number as usize)
        .or_else(|| vector.map(|number| V0 as usize + number))
}
