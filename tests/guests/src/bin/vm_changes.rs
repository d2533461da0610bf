//! Firmware's mitigations as a guest finds them, and changes of VM for the firmware that counts
//! (`el3`). The guest knows how many changes it brings about; the host compares the firmware's
//! counts between two marks, which are calls of workaround 1, with the numbers that are printed.
//!
//! Requirements: G1-CPU-012, G1-CPU-013.
#![no_std]
#![no_main]

use core::sync::atomic::{AtomicU64, Ordering};

use test_guests::ffa::{self, regs, task};
use test_guests::psci::{self, function, hvc, smc};
use test_guests::{Machine, cpu, gic, guest, read_sysreg, report, say, timer};

guest!(main, irq = on_interrupt, other_cpu = other);

/// SMCCC_ARCH_SOC_ID and SMCCC_ARCH_WORKAROUND_1 to 3 (Arm DEN 0028, 7).
const SOC_ID: u32 = 0x8000_0002;
const WORKAROUND_1: u32 = 0x8000_8000;
const WORKAROUND_2: u32 = 0x8000_7fff;
const WORKAROUND_3: u32 = 0x8000_3fff;
/// Answers of SMCCC_ARCH_FEATURES: needed, not needed here, no such call, and nothing that a caller
/// could change.
const NEEDED: i32 = 0;
const NOT_NEEDED: i32 = 1;
const NOT_SUPPORTED: i32 = -1;
const NOT_REQUIRED: i32 = -2;
/// Messages to the other VM, which shares the CPU: each is two changes of VM.
const MESSAGES: u64 = 100;
/// Turns of the two vCPUs of this VM, and sleeps of a machine in which nothing else runs.
const TURNS: u64 = 100;
const SLEEPS: u64 = 20;
/// Calls of workaround 3 by the guest itself.
const CALLS: u64 = 3;
/// Identifier of the other VM, the second of the manifest.
const OTHER: u64 = 2;
const SGI: u32 = 7;

/// Steps of each vCPU; each word has one writer.
static STEP: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

/// On a CPU with FEAT_CSV2 the marks do not reach firmware: workaround 1 is not needed there.
fn main(_machine: &Machine) {
    answers();
    gic::enable(SGI);
    gic::enable(timer::INTID);
    phase("start", 0, || while !ask(0) {});
    phase("messages", 2 * MESSAGES, messages);
    phase("siblings", 0, siblings);
    phase("sleeps", 0, || {
        (0..SLEEPS).for_each(|_| timer::sleep_us(100))
    });
    phase("own-calls", CALLS, || {
        (0..CALLS).for_each(|_| call_workaround(WORKAROUND_3));
    });
}

/// Announces a phase that brings about `changes`, and marks its end.
fn phase(name: &str, changes: u64, run: impl FnOnce()) {
    run();
    say!("phase {name} {changes}");
    call_workaround(WORKAROUND_1);
}

/// A void function returns 0 here, as KVM's.
fn call_workaround(function: u32) {
    let status = hvc(function, [0; 3])[0];
    if status != 0 {
        report::equal("workaround", status, 0);
    }
}

/// The firmware offers all workarounds on each CPU, and identifies an SoC. FEAT_CSV2 makes the
/// first one needless, FEAT_SSBS is offered in place of the second (Arm ARM, ID_AA64PFR0_EL1 and
/// ID_AA64PFR1_EL1). By both conduits.
fn answers() {
    let has_csv2 = read_sysreg!("id_aa64pfr0_el1") >> 56 & 0xf != 0;
    let has_ssbs = read_sysreg!("id_aa64pfr1_el1") >> 4 & 0xf != 0;
    let targets = if has_csv2 { NOT_NEEDED } else { NEEDED };
    let bypass = if has_ssbs {
        NOT_SUPPORTED
    } else {
        NOT_REQUIRED
    };
    for call in [hvc, smc] {
        let feature = |id: u32| call(function::ARCH_FEATURES, [id.into(), 0, 0])[0] as i32;
        report::equal("workaround-1", feature(WORKAROUND_1), targets);
        report::equal("workaround-2", feature(WORKAROUND_2), bypass);
        report::equal("workaround-3", feature(WORKAROUND_3), NEEDED);
        report::equal("soc", feature(SOC_ID), NEEDED);
        let id = |kind| call(SOC_ID, [kind, 0, 0])[0] as i32;
        report::equal("soc-id", [0, 1, 2].map(id), [0x0426_8123, 7, -3]);
        let refused = call(WORKAROUND_2, [0; 3])[0] as i32;
        report::equal("workaround-2-is-no-call", refused, NOT_SUPPORTED);
    }
}

/// The request blocks this vCPU until the response: each way is one change.
fn messages() {
    let right = (0..MESSAGES).filter(|&round| ask(round)).count();
    report::equal("messages", right as u64, MESSAGES);
}

/// Asks the other VM, and tells whether the response is right: none comes while it does not wait.
fn ask(round: u64) -> bool {
    let ends = ffa::own_endpoint() << 16 | OTHER;
    let request = regs([ffa::function::DIRECT_REQ, ends, 0, task::ECHO, round]);
    let response = ffa::hvc(request);
    response[0] == ffa::function::DIRECT_RESP && response[4] == round + 1
}

/// Two vCPUs of this VM take turns on the CPU. The other VM waits for a message all the time.
fn siblings() {
    report::equal("cpu-on", psci::cpu_on(1), psci::result::SUCCESS);
    for turn in 1..=TURNS {
        step(0, turn);
        await_step(1, turn);
    }
    cpu::wait_until(|| psci::affinity_info(1) == psci::affinity::OFF);
}

fn other(_index: usize) {
    gic::enable(SGI);
    for turn in 1..=TURNS {
        await_step(0, turn);
        step(1, turn);
    }
}

fn step(me: usize, to: u64) {
    STEP[me].store(to, Ordering::Release);
    gic::send_sgi(1 - me, SGI);
}

fn await_step(of: usize, turn: u64) {
    cpu::sleep_until(|| STEP[of].load(Ordering::Acquire) >= turn);
}

fn on_interrupt(intid: u32) {
    if intid == timer::INTID {
        timer::disarm();
    }
}
