//! Does a known number of each thing that leaves the VM, and compares with GearV's own counters.
//!
//! Each deed is done 1,000 times: its reason has grown by exactly that, and no other reason that
//! only the guest itself can cause has. A WFI is one exit: no interrupt is pending when it is
//! executed, which holds under `icount`, where the timer cannot overtake the guest.
//!
//! Requirements: G1-RUN-007.
#![no_std]
#![no_main]

use gear1_abi::exit::ExitReason;
use test_guests::fp::{self, Registers};
use test_guests::uart::{self, register as pl011};
use test_guests::{
    Machine, check, cpu, gic, guest, mmio, psci, read_sysreg, report, say, stats, timer,
};

guest!(main);

/// An error of one in a thousand shows.
const COUNT: u64 = 1000;
/// Any that nobody else uses. The guest sends the SGI to its own vCPU.
const SGI: u32 = 3;
/// Sleep that is long enough for a WFI to begin before the timer fires. A WFI with the timer's
/// interrupt pending already would end at once, and may be no exit at all.
const SLEEP_US: u64 = 20;

/// Exit reasons that only the guest itself can cause. Interrupts of others (`IrqOther`, `Kick`) and
/// Gear2's decisions are not among them, as they come at any time.
const CAUSED: [ExitReason; 12] = [
    ExitReason::Hvc,
    ExitReason::Smc,
    ExitReason::HypercallGear2,
    ExitReason::Sysreg,
    ExitReason::Sgi,
    ExitReason::MmioGic,
    ExitReason::MmioGear2,
    ExitReason::Abort,
    ExitReason::Wfi,
    ExitReason::Wfe,
    ExitReason::Fp,
    ExitReason::Undefined,
];

/// FP comes last: once this guest has the registers, its first instruction traps no more.
fn main(machine: &Machine) {
    if !machine.gearv {
        say!("native: nothing to count");
        return;
    }
    gic::enable(SGI);
    gic::enable(timer::INTID);
    calls();
    accesses();
    interrupts();
    each("wfi", ExitReason::Wfi, sleep);
    fp::enable();
    expect("fp-of-a-lone-user", ExitReason::Fp, 1, use_fp);
}

/// HVC and SMC are counted apart. Gear1 answers PSCI_VERSION by itself, and passes the NOP on to
/// Gear2.
fn calls() {
    let version = psci::function::VERSION;
    each("hvc", ExitReason::Hvc, || _ = psci::hvc(version, [0; 3]));
    each("smc", ExitReason::Smc, || _ = psci::smc(version, [0; 3]));
    let gear2 = ExitReason::HypercallGear2;
    each("gear2-nop", gear2, || _ = psci::gear2_nop());
}

/// A trapped register, one of Gear1's devices, and one of Gear2's. The ID register traps by
/// HCR_EL2.TID3. The distributor's page and the UART's have no stage-2 mapping, so that each load
/// is a data abort to EL2.
fn accesses() {
    let typer = gic::distributor() + gic::register::TYPER;
    each("id-register", ExitReason::Sysreg, || {
        _ = read_sysreg!("id_aa64mmfr0_el1");
    });
    each("gicd-typer", ExitReason::MmioGic, || {
        _ = mmio::read32(typer);
    });
    each("pl011", ExitReason::MmioGear2, || {
        _ = mmio::read32(uart::base() + pl011::FR);
    });
}

/// SGIs and the timer's interrupts, and that Gear2 has no part in them. Time in Gear2 must be 0,
/// since a guest's interrupts must not wait for Gear2's loop.
fn interrupts() {
    // A GICv2 generates SGIs in the distributor.
    let sgi = match gic::version() {
        gic::Version::V2 => ExitReason::MmioGic,
        gic::Version::V3 => ExitReason::Sgi,
    };
    each("sgi", sgi, send_and_end);
    let before = stats::exits(ExitReason::Timer);
    each("timer", ExitReason::Timer, let_timer_fire);
    let fired = stats::exits(ExitReason::Timer) - before;
    report::equal("timer-exits", fired, COUNT);
    for (name, reason) in [
        ("sgi-without-gear2", sgi),
        ("timer-without-gear2", ExitReason::Timer),
        ("sysreg-without-gear2", ExitReason::Sysreg),
    ] {
        report::equal(name, stats::ticks_in_gear2(reason), 0);
    }
}

/// Checks that a deed, done [`COUNT`] times, causes as many exits for `reason`. The loop is one
/// deed for `expect`, so that reading the counters costs once.
fn each(name: &str, reason: ExitReason, mut deed: impl FnMut()) {
    expect(name, reason, COUNT, || {
        for _ in 0..COUNT {
            deed();
        }
    });
}

/// By polling: no exception of the guest's is involved. The SGI is in a list register when the exit
/// ends, and the acknowledge is none.
fn send_and_end() {
    gic::send_sgi(0, SGI);
    gic::end(gic::acknowledge());
}

/// Takes one interrupt of the timer: acknowledges and ends it. The physical interrupt comes to EL2,
/// which is the one exit; the end by the list register is none.
fn let_timer_fire() {
    timer::arm(timer::now());
    let mut acknowledged = gic::acknowledge();
    while !gic::is_real(acknowledged) {
        acknowledged = gic::acknowledge();
    }
    timer::disarm();
    gic::end(acknowledged);
}

/// Executes one WFI, which the timer ends. WFI traps only if it would suspend the CPU (Arm ARM,
/// HCR_EL2.TWI), so that nothing may be pending before.
fn sleep() {
    timer::arm(timer::now() + timer::from_us(SLEEP_US));
    cpu::wfi();
    timer::disarm();
    gic::end(gic::acknowledge());
}

/// Uses FP between calls to Gear1 and to Gear2, and sleeps; nobody else does. With one user of FP,
/// Gear1 leaves the registers in place over calls and sleeps, and the trap is on only before the
/// first use.
fn use_fp() {
    for seed in 0..100 {
        let pattern = Registers::pattern(seed);
        pattern.load();
        psci::gear2_nop();
        timer::sleep_us(SLEEP_US);
        if Registers::current() != pattern {
            report::fail("fp-kept", format_args!("pattern {seed}"));
            return;
        }
    }
}

/// Checks that `deed` causes `expected` exits for `reason`, and, with the others being the company
/// that the deed keeps, none of those that it does not involve. Each reading makes twelve calls, so
/// that the HVC reason grows by the readings themselves. The difference of two readings in a row
/// says by how much.
fn expect(name: &str, reason: ExitReason, expected: u64, deed: impl FnOnce()) {
    let count = || CAUSED.map(stats::exits);
    // Two readings in a row differ by their own calls.
    let (first, before) = (count(), count());
    deed();
    let after = count();
    let mut exact = true;
    for (index, &each) in CAUSED.iter().enumerate() {
        let own = before[index] - first[index];
        let grown = after[index] - before[index] - own;
        let involved = name == "fp-of-a-lone-user" && each != ExitReason::Fp;
        let wanted = if each == reason { expected } else { 0 };
        if grown != wanted && !involved {
            let label = each.label();
            report::fail(name, format_args!("{label} grew by {grown}, not {wanted}"));
            exact = false;
        }
    }
    check!(name, exact, "see above");
}
