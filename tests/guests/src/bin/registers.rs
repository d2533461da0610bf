//! Fills its registers, leaves the VM in every way, and finds them unchanged. Two instances run on
//! one CPU, so that each wait runs the other one.
//!
//! Requirements: G1-RUN-003.
#![no_std]
#![no_main]

use core::arch::asm;

use test_guests::uart::{self, register as pl011};
use test_guests::{Machine, gic, guest, mmio, psci, read_sysreg, report, timer, write_sysreg};

guest!(main);

/// Enough that other vCPUs run between. A time slice is longer than most rounds. The other instance
/// has the same patterns with another seed: a register that is not exchanged shows that one's
/// value.
const ROUNDS: u64 = 500;

/// One list makes the fill, the read and the names: a register cannot be in two of them alone.
macro_rules! system_registers {
    ($($name:literal & $mask:literal),+ $(,)?) => {
        const NAMES: &[&str] = &[$($name),+];
        const COUNT: usize = NAMES.len();

        /// Writes a pattern to every register.
        fn fill(seed: u64) {
            let mut value = seed;
            $(
                value = value.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
                write_sysreg!($name, value & $mask);
            )+
            let _ = value;
        }

        /// Reads every register.
        fn read() -> [u64; COUNT] {
            [$(read_sysreg!($name) & $mask),+]
        }
    };
}

// With the bits that a guest can set without changing how it runs.
system_registers! {
    "sp_el0" & 0xffff_ffff_ffff_fff0,
    "tpidr_el0" & 0xffff_ffff_ffff_ffff,
    // EL0 cannot write it, EL1 can.
    "tpidrro_el0" & 0xffff_ffff_ffff_ffff,
    // TCR_EL1.EPD1 is set, so no walk uses it.
    "ttbr1_el1" & 0x0000_00ff_ffff_f000,
    "contextidr_el1" & 0xffff_ffff,
    // EL0PCTEN and EL0VCTEN: nothing runs at EL0 here.
    "cntkctl_el1" & 0x3,
    // Each exception to EL1 writes these four; interrupts are masked, and none comes.
    "far_el1" & 0x0000_ffff_ffff_ffff,
    "esr_el1" & 0x01ff_ffff,
    "elr_el1" & 0x0000_ffff_ffff_fffc,
    // NZCV, DAIF and M. Other bits are RES0 on CPUs without their features.
    "spsr_el1" & 0xf000_03c5,
    // Gear1 translates a guest's address by AT for some aborts, and restores this register.
    "par_el1" & 0x0000_ffff_ffff_f001,
    "csselr_el1" & 0xe,
    // The timer is off: a deadline in the past asks for no interrupt.
    "cntv_cval_el0" & 0xffff_ffff_ffff_ffff,
}

/// Each way out of the VM saves and restores by code of its own. A hypercall that Gear1 answers
/// keeps the guest loaded; Gear2's device and Gear2's call exchange the world, and may run the
/// other guest; a slice's end does so by an interrupt.
fn main(machine: &Machine) {
    let seed = machine.ram.start;
    kept("over-hypercall", seed, || {
        _ = psci::hvc(psci::function::VERSION, [0; 3])
    });
    kept("over-mmio", seed, || {
        _ = mmio::read32(uart::base() + pl011::FR)
    });
    results();
    if machine.gearv {
        kept("over-gear2", seed, || _ = psci::gear2_nop());
        general_registers();
        // Gear2's answer arrives by the short way back.
        let other = (0..ROUNDS).map(|_| psci::gear2_nop()).find(|x0| *x0 != 0);
        report::equal("gear2-answer", other, None);
    }
    kept("over-time-slices", seed, || timer::delay_us(100));
    asleep(seed);
}

/// The first register that differs is named. One failure tells enough: a register that is lost once
/// is lost in each round as a rule.
fn kept(name: &str, seed: u64, leave: impl Fn()) {
    for round in 0..ROUNDS {
        fill(seed ^ round);
        let before = read();
        leave();
        let after = read();
        if let Some(index) = (0..COUNT).find(|&index| before[index] != after[index]) {
            let (was, is) = (before[index], after[index]);
            report::fail(
                name,
                format_args!("{} was {was:#x}, is {is:#x}", NAMES[index]),
            );
            return;
        }
    }
    report::pass(name);
}

/// As [`kept`], but waiting takes the timer's own registers. The compare value is the sleep's own,
/// so it is left out. WFI runs the other guest as a rule, so all registers go through Gear1's
/// context of the vCPU.
fn asleep(seed: u64) {
    let but_timer = |registers: [u64; COUNT]| {
        let mut registers = registers;
        for (index, name) in NAMES.iter().enumerate() {
            if *name == "cntv_cval_el0" {
                registers[index] = 0;
            }
        }
        registers
    };
    let lost = (0..ROUNDS).find(|round| {
        fill(seed ^ round);
        let before = but_timer(read());
        timer::sleep_us(20);
        before != but_timer(read())
    });
    report::equal("over-wfi", lost, None);
}

/// By SMCCC 1.1, X4 to X17 survive a call; X18 to X30 always did. Each register has a value of its
/// own, so that exchanged ones are seen. The differences are gathered in X0, the register of the
/// result. KVM keeps them likewise, and compilers of guests rely on that: Linux's
/// `arm_smccc_1_1_hvc` declares X4 and up as kept.
fn general_registers() {
    let lost: u64;
    // SAFETY: the call changes X0 to X3 only, if it is right; the rest is saved around it.
    unsafe {
        asm!(
            "stp x19, x29, [sp, #-16]!",
            ".irp n, 4,5,6,7,8,9,10,11,12,13,14,15,16,17,19,20,21,22,23,24,25,26,27,28,29,30",
            "mov x\\n, #(0x1100 + \\n)",
            ".endr",
            "hvc #0",
            "mov x0, xzr",
            ".irp n, 4,5,6,7,8,9,10,11,12,13,14,15,16,17,19,20,21,22,23,24,25,26,27,28,29,30",
            "mov x1, #(0x1100 + \\n)",
            "eor x1, x1, x\\n",
            "orr x0, x0, x1",
            ".endr",
            "ldp x19, x29, [sp], #16",
            inout("x0") u64::from(gear1_abi::guest::GEAR2_NOP) => lost,
            out("x20") _, out("x21") _, out("x22") _, out("x23") _, out("x24") _, out("x25") _,
            out("x26") _, out("x27") _, out("x28") _,
            clobber_abi("C"),
        );
    }
    report::equal("general-registers", lost, 0);
}

/// An answer of Gear1's own arrives in the register that the instruction names. X19 to X29 stay
/// in the CPU while Gear1 runs, unless the syndrome of the trap names one of X16 to X31: each kind
/// of syndrome has the number elsewhere. KVM stores all registers at each trap. A read of CTR_EL0
/// traps on CPUs without FEAT_EVT, as Cortex-A57 is (HCR_EL2.TID2). On others it comes from the
/// CPU.
fn results() {
    /// Value of the register before, which no device or System register has.
    const BEFORE: u64 = 0x5ca1_ab1e_5ca1_ab1e;
    let address = gic::distributor() + gic::register::TYPER;
    let [low, high, last] = {
        let (mut low, mut high, mut last) = (BEFORE, BEFORE, BEFORE);
        // SAFETY: loads from a register that only tells what the controller has.
        unsafe {
            asm!(
                "ldr w9, [{address}]",
                "ldr w20, [{address}]",
                "ldr w28, [{address}]",
                address = in(reg) address,
                inout("x9") low,
                inout("x20") high,
                inout("x28") last,
                options(nostack, preserves_flags),
            );
        }
        [low, high, last]
    };
    report::equal("a-load-into-x20-and-x28", (high, last), (low, low));
    report::equal("a-load-into-x9", low >> 32, 0);
    let (mut low, mut high, mut last) = (BEFORE, BEFORE, BEFORE);
    // SAFETY: reads a register that only tells what the caches are like.
    unsafe {
        asm!(
            "mrs x9, ctr_el0",
            "mrs x20, ctr_el0",
            "mrs x28, ctr_el0",
            inout("x9") low,
            inout("x20") high,
            inout("x28") last,
            options(nomem, nostack, preserves_flags),
        );
    }
    report::equal("ctr-el0-into-x20-and-x28", (high, last), (low, low));
}
