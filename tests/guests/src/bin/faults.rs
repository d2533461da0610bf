//! Accesses unmapped addresses from every exception level and stack, and walks unmapped tables:
//! each access ends in a synchronous external abort with the right syndrome. The same holds
//! natively.
//!
//! In a VM, the guest then brings itself into states in which it cannot continue. Each state ends
//! its life; the guest learns the number of its life from the number of hypercalls that GearV has
//! counted.
//!
//! Requirements: G1-FLT-001, G1-FLT-003, G1-FLT-005.
#![no_std]
#![no_main]

use core::arch::{asm, global_asm};

use gear1_abi::exit::ExitReason;
use test_guests::exception::{Caught, catch, esr};
use test_guests::{
    Machine, check, cpu, guest, mmio, psci, read_sysreg, report, say, stats, write_sysreg,
};

guest!(main);

/// Nobody's, in every machine of the tests. Gear2 refuses it too, so an access that Gear1 forwards
/// is an abort in the end.
const NOWHERE: u64 = 0xf000_0000;
/// The last of the blocks that the identity map has, of 1 GiB.
const LAST_BLOCK: u64 = 511;
/// In the upper half, of 39 bits. Bits 63:39 are ones, which choose TTBR1_EL1.
const HIGH: u64 = 0xffff_ff80_0000_1000;
/// TCR_EL1 of the library with a walk for the upper half: no EPD1, T1SZ 25, 4 KiB. TG1 is 2 for 4
/// KiB, where TG0 would be 0; the walk begins at level 1.
const TCR_BOTH: u64 = 0x2_0000_3519 | 25 << 16 | 2 << 30;

/// All checks are in the first life; `die` comes last, as nothing runs behind it.
fn main(machine: &Machine) {
    let life = if machine.gearv { count_life() } else { 0 };
    if life == 0 {
        aborts();
        walks();
        if machine.gearv {
            counted();
        }
    } else {
        report::pass("started-again");
    }
    if machine.gearv {
        die(life);
    }
}

/// Returns how often the VM was restarted before, and counts this life. Exit statistics outlive a
/// restart, and memory does not.
fn count_life() -> u64 {
    let life = stats::exits(ExitReason::HypercallGear2);
    psci::gear2_nop();
    life
}

/// Exception level and stack pointer of an access; the address is in X0. Each has a vector of its
/// own: a handler entered by another one would find another stack and another frame.
#[derive(Clone, Copy)]
enum From {
    El0,
    El1t,
    El1h,
}

/// X2 leads to EL0 and back: ERET with SPSR 0x3c0 is EL0t with DAIF masked. Accesses at EL0 need
/// the MMU off, since the library's map gives EL0 nothing.
macro_rules! access {
    ($from:expr, $instruction:literal) => {
        catch(|| match $from {
            // SAFETY: the access aborts; at EL0 nothing but it runs, with the MMU off.
            From::El0 => unsafe {
                asm!(
                    "adr x2, 2f", "msr elr_el1, x2", "mov x2, #0x3c0", "msr spsr_el1, x2",
                    "adr x2, 3f", "eret",
                    "2:", $instruction, "svc #0", "3:",
                    in("x0") NOWHERE, out("x2") _, out("x4") _, out("x5") _, out("x30") _,
                )
            },
            // SAFETY: as above; nothing but it runs on the other stack.
            From::El1t => unsafe {
                asm!(
                    "msr spsel, #0", $instruction, "msr spsel, #1",
                    in("x0") NOWHERE, out("x4") _, out("x5") _, out("x30") _,
                )
            },
            // SAFETY: as above.
            From::El1h => unsafe {
                asm!($instruction, in("x0") NOWHERE, out("x4") _, out("x5") _, out("x30") _)
            },
        })
    };
}

/// External aborts from everywhere: class by level, vector by level and stack, address, flags.
/// Vectors are numbered from VBAR_EL1 in steps of 0x80: 0 is EL1t, 4 EL1h, 8 EL0. SPSR_EL1 must be
/// the PSTATE of the access; N, Z, C and V are left out of the comparison.
fn aborts() {
    for (name, from, vector, pstate) in [
        ("abort-from-el0", From::El0, 8, 0x3c0),
        ("abort-from-el1t", From::El1t, 0, 0x3c4),
        ("abort-from-el1h", From::El1h, 4, 0x3c5),
    ] {
        let [data, code] = match from {
            From::El0 => [esr::EC_DATA_ABORT_EL0, esr::EC_INSTRUCTION_ABORT_EL0],
            From::El1t | From::El1h => [esr::EC_DATA_ABORT, esr::EC_INSTRUCTION_ABORT],
        };
        let expected = [(data, 0), (data, esr::WNR), (data, 0), (code, 0)];
        let mut caught = accesses(from).into_iter().zip(expected);
        let came_from =
            |caught: Caught| caught.entry == (vector, 0x3c0) && caught.spsr & 0x3df == pstate;
        let wrong = caught.find(|(caught, (class, flags))| {
            let is_it = is_abort(*caught, *class, esr::EXTERNAL | flags, NOWHERE);
            !is_it || !caught.is_some_and(came_from)
        });
        check!(name, wrong.is_none(), "{:x?}", wrong);
    }
}

/// A load, a store, a load of a pair and a fetch, with the MMU off. A pair has no valid syndrome,
/// so Gear1 injects at once; a load and a store go to Gear2 first, whose answer becomes the abort.
/// Both ways have to look the same (G1-FLT-001).
fn accesses(from: From) -> [Option<Caught>; 4] {
    cpu::without_mmu(|| {
        [
            access!(from, "ldr x4, [x0]"),
            access!(from, "str w4, [x0]"),
            access!(from, "ldp x4, x5, [x0]"),
            access!(from, "blr x0"),
        ]
    })
}

/// An abort that Gear1 gives by itself is counted. `mmio-gear2` counts those that Gear2 refuses: a
/// pair is none of them.
fn counted() {
    let before = stats::exits(ExitReason::Abort);
    _ = access!(From::El1h, "ldp x4, x5, [x0]");
    let after = stats::exits(ExitReason::Abort);
    report::equal("abort-is-counted", after, before + 1);
}

/// Returns whether the exception is an abort with this class, syndrome and address. The kind of
/// external abort (EA) is implementation defined.
fn is_abort(caught: Option<Caught>, class: u64, syndrome: u64, far: u64) -> bool {
    let expected = class << esr::EC_SHIFT | esr::IL | syndrome;
    caught.is_some_and(|caught| caught.esr & !esr::EA == expected && caught.far == far)
}

/// Tables that are not there: an abort on the walk, with the level.
fn walks() {
    walk_of_the_first_table();
    walk_of_the_second_table();
}

/// Gear1 compares the table's address with TTBR1_EL1 and knows the level of the first table by
/// TCR_EL1.
fn walk_of_the_first_table() {
    let tcr = read_sysreg!("tcr_el1");
    write_sysreg!("ttbr1_el1", NOWHERE);
    write_sysreg!("tcr_el1", TCR_BOTH);
    let caught = catch(|| _ = mmio::read32(HIGH));
    let syndrome = esr::EXTERNAL_WALK | 1;
    let right = is_abort(caught, esr::EC_DATA_ABORT, syndrome, HIGH);
    check!("walk-of-the-first-table", right, "{caught:x?}");
    write_sysreg!("tcr_el1", tcr);
}

/// Level 2 is the one behind the first: Gear1 reads no table of a guest's (G1-FLT-002).
fn walk_of_the_second_table() {
    let entry = read_sysreg!("ttbr0_el1") + 8 * LAST_BLOCK;
    let block = mmio::read64(entry);
    let address = LAST_BLOCK << 30 | 0x123_4568;
    set_entry(entry, NOWHERE | 0b11);
    let caught = catch(|| _ = mmio::read32(address));
    set_entry(entry, block);
    let syndrome = esr::EXTERNAL_WALK | 2;
    let right = is_abort(caught, esr::EC_DATA_ABORT, syndrome, address);
    check!("walk-of-the-second-table", right, "{caught:x?}");
}

/// Replaces an entry of the identity map, break before make. The Arm ARM demands it of a block that
/// becomes a table: otherwise two translations may be in the TLB.
fn set_entry(entry: u64, value: u64) {
    mmio::write64(entry, 0);
    forget_translations();
    mmio::write64(entry, value);
    forget_translations();
}

/// DSB in front has the walker see the new entry, DSB behind waits for the TLBI.
fn forget_translations() {
    // SAFETY: what the tables say is still true.
    unsafe { asm!("dsb sy", "tlbi vmalle1", "dsb sy", "isb", options(nostack)) };
}

// Vectors whose handlers do again what they are entered for, each table for one way.
global_asm!(
    ".macro handler name, instruction:vararg",
    ".balign 2048",
    "\\name: .skip 0x200",
    "\\instruction",
    "b .",
    ".balign 2048",
    ".endm",
    ".section .text.handlers, \"ax\"",
    "handler handler_pair, ldp x4, x5, [x0]",
    "handler handler_load, ldr x4, [x0]",
    "handler handler_undefined, mrs x4, pmccntr_el0",
);

unsafe extern "C" {
    /// At 0x200, where a synchronous exception from EL1h goes.
    static handler_pair: u8;
    static handler_load: u8;
    static handler_undefined: u8;
}

/// Goes where no guest can go on; a different way in each life, the last of which ends well.
/// Vectors at nothing cannot be fetched: the VM ends at once. A handler that repeats an abort or an
/// UNDEFINED instruction ends it after 16 in a row (G1-FLT-004); natively the CPU would loop for
/// ever. PMCCNTR_EL0 is UNDEFINED in a VM without performance monitors.
fn die(life: u64) {
    say!("life {life}");
    let vectors = match life {
        0 => NOWHERE,
        1 => (&raw const handler_pair).addr() as u64,
        2 => (&raw const handler_load).addr() as u64,
        3 => (&raw const handler_undefined).addr() as u64,
        4 => lose_tables(),
        _ => return report::pass("lives-on"),
    };
    write_sysreg!("vbar_el1", vectors);
    _ = access!(From::El1h, "ldr x4, [x0]");
    report::fail("die", format_args!("life {life} goes on"));
}

/// Puts the tables where nothing is; not even the next instruction is found. TLBI takes the old
/// translations away; until then the CPU may go on by them.
fn lose_tables() -> u64 {
    // SAFETY: nothing runs afterwards.
    unsafe {
        asm!("msr ttbr0_el1, {}", "isb", "tlbi vmalle1", "dsb sy", "isb", in(reg) NOWHERE);
    }
    0
}
