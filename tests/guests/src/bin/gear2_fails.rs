//! Makes Gear2 fail in every possible way, and continues each time; or, with `times=` in its
//! command line, that often at once, in one `way=` and `after-ms=`; or, with `once`, a single time, whatever failed before.
//!
//! Requirements: G1-CHN-008, G1-RUN-012, G1-SUP-001, G1-SUP-002, G1-SUP-003.
#![no_std]
#![no_main]

use test_guests::{Machine, check, guest, psci, report, say, timer};

guest!(main);

/// `watchdog-ms` of the manifest, unless the command line says otherwise.
const PERIOD_MS: u64 = 100;
/// Allowance on top: the restart, time slices of another VM on this CPU, and the turns in which
/// QEMU runs CPUs under icount.
const MORE_US: u64 = 30_000;
/// Pause between two failures, in which others compute.
const PAUSE_US: u64 = 20_000;
/// Failure: Gear2 hangs.
const HANG: u64 = 0;
/// Number of restarts at which no failure comes.
const NEVER: u64 = u64::MAX;
/// Failure: Gear2 accesses an address that is not mapped for it.
const FAULT: u64 = 1;
/// Failure: Gear2 makes calls that Gear1 must refuse.
const MISUSE: u64 = 5;
const WAYS: [(&str, u64); 5] = [
    ("hangs", HANG),
    ("touches-nothing", FAULT),
    ("writes-its-code", 2),
    ("executes-nothing", 3),
    ("panics", 4),
];

fn main(machine: &Machine) {
    if let Some(times) = machine.option("times") {
        let way = machine.option("way").unwrap_or(FAULT);
        timer::sleep_us(1_000 * machine.option("after-ms").unwrap_or(0));
        for restarts in 0..times {
            psci::fail_gear2(way, restarts);
        }
        report::fail("ends", format_args!("it goes on"));
        return;
    }
    if machine.option("once").is_some() {
        return fail_once();
    }
    // G1-RUN-010: a bit for each call that was not answered as it must be.
    let wrong = psci::fail_gear2(MISUSE, NEVER);
    report::equal("wrong-calls-are-refused", wrong, 0);
    report::equal("gear2-goes-on", psci::gear2_nop(), 0);
    let period_us = machine.option("watchdog-ms").unwrap_or(PERIOD_MS) * 1000;
    for (name, way) in WAYS {
        timer::sleep_us(PAUSE_US);
        fail(name, way, period_us);
    }
}

/// Makes Gear2 fail, for a part that looks at what its restart finds.
fn fail_once() {
    let before = psci::fail_gear2(FAULT, NEVER);
    let after = psci::fail_gear2(FAULT, before);
    report::equal("restarts", after, before + 1);
}

/// Makes Gear2 fail, and checks how long its restart takes. Only the watchdog ends a hang.
fn fail(name: &str, way: u64, period_us: u64) {
    let before = psci::fail_gear2(way, NEVER);
    let start = timer::now();
    let after = psci::fail_gear2(way, before);
    let us = timer::to_ns(timer::now() - start) / 1000;
    say!("{name}: {us} us");
    report::equal(name, after, before + 1);
    let least = if way == HANG { period_us } else { 0 };
    let in_time = (least..least + MORE_US).contains(&us);
    check!("time-of-restart", in_time, "{name}: {us} us");
    report::equal("gear2-answers", psci::gear2_nop(), 0);
}
