//! Exits again and again for a reason of each group, on vCPUs that share a CPU: for traces. A
//! real-time VM leaves out what Gear2 answers.
//!
//! Requirements: G1-TRC-002.
//!
//! A group of reasons that is missing from a trace is a hook that Gear1 does not reach.
#![no_std]
#![no_main]

use test_guests::fp::{self, Registers};
use test_guests::uart::{self, register as pl011};
use test_guests::{Machine, gic, guest, mmio, psci, read_sysreg, say, timer};

guest!(
    main,
    irq = test_guests::exception::ignore,
    other_cpu = other_cpu
);

/// Any that nobody else uses. The SGI goes to the sender itself.
const SGI: u32 = 3;
/// Sleep between two rounds: the device VM, which reads the records, is slower than the guest.
const SLEEP_US: u64 = 10_000;

fn main(machine: &Machine) {
    say!("traced: begins");
    if machine.cpus > 1 {
        psci::cpu_on(1);
    }
    go_on(0)
}

/// Never returns, as the runtime would turn the CPU off.
fn other_cpu(index: usize) {
    gic::init_cpu();
    go_on(index)
}

/// Does a round after the other. Each vCPU uses FP, which the other one has had in between. The FP
/// trap is taken again and again only where two users take turns.
fn go_on(index: usize) -> ! {
    gic::enable(SGI);
    gic::enable(timer::INTID);
    fp::enable();
    loop {
        calls();
        accesses();
        interrupts(index);
        Registers::pattern(index as u64).load();
        timer::sleep_us(SLEEP_US);
    }
}

/// HVC and SMC, to Gear1 and, unless the VM is real-time, to Gear2. SMC traps by HCR_EL2.TSC, and
/// is another reason than HVC.
fn calls() {
    _ = psci::hvc(psci::function::VERSION, [0; 3]);
    _ = psci::smc(psci::function::VERSION, [0; 3]);
    if has_gear2() {
        _ = psci::gear2_nop();
    }
}

/// A trapped register, one of Gear1's devices, and one of Gear2's. The three exits have different
/// classes: a trapped MRS, and two data aborts, of which one ends in Gear2.
fn accesses() {
    _ = read_sysreg!("id_aa64mmfr0_el1");
    _ = mmio::read32(gic::distributor() + gic::register::TYPER);
    if has_gear2() {
        _ = mmio::read32(uart::base() + pl011::FR);
    }
}

/// Tells whether the VM is one that Gear2 runs, which alone has an emulated UART here.
fn has_gear2() -> bool {
    uart::base() != 0
}

/// An SGI to itself, and an interrupt of the timer while it runs. The timer's interrupt is taken by
/// polling, so that the vCPU runs when it comes.
fn interrupts(index: usize) {
    gic::send_sgi(index, SGI);
    gic::end(gic::acknowledge());
    timer::arm(timer::now());
    let mut acknowledged = gic::acknowledge();
    while !gic::is_real(acknowledged) {
        acknowledged = gic::acknowledge();
    }
    timer::disarm();
    gic::end(acknowledged);
}
