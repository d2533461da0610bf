//! The guest of `cargo xtask bench --sched`: one image in five roles, which the command line names.
//!
//! | `role=` | what runs between start and end | reported |
//! |---|---|---|
//! | `periodic` | a timer period of `period-us`, WFI, then `work-us` of work | latency, periods missed, jobs late |
//! | `spin` | work without a pause, on each CPU of the VM | work, longest gap, longest run |
//! | `burst` | `busy-us` of work, then WFI for `idle-us` | what the work took |
//! | `busy` | nothing: works from its boot until shortly before the start | nothing |
//! | `window` | a loop of counter reads | how late the windows of a time table begin |
//!
//! Words of all roles: `id` (a number in each line of the report), `start-ms` (the physical counter
//! at which the measurement starts, in milliseconds; without it, shortly after boot) and `ms` (its
//! length). All VMs of a machine get the same start and the same length. Each sleeps in WFI until
//! the start, and sleeps again after the end until all others have ended. Only then it prints, and
//! VMs with other `id`s print at other times: no report disturbs a measurement.
//!
//! Work is a fixed number of instructions, a thousand a microsecond; a share of the CPU is the work
//! that was done. Times are of the virtual counter, in nanoseconds in the report. A guest that
//! boots too late for its start reports a failure.
#![no_std]
#![no_main]

use test_guests::timer::{self, Kind};
use test_guests::{Machine, gic, guest, report, say};

#[path = "sched/samples.rs"]
mod samples;
#[path = "sched/spin.rs"]
mod spin;
#[path = "sched/timed.rs"]
mod timed;
#[path = "sched/wait.rs"]
mod wait;
#[path = "sched/window.rs"]
mod window;

guest!(
    main,
    irq = test_guests::exception::ignore,
    other_cpu = spin::other_cpu
);

/// Length of a measurement without `ms`.
const DEFAULT_MS: u64 = 1_000;
/// Time until the start, without `start-ms`: long enough to turn on seven CPUs.
const DEFAULT_START_US: u64 = 20_000;
/// Time from the end to the first report: a vCPU that another one delays ends later.
const REPORT_US: u64 = 50_000;
/// Time between the reports of two VMs, longer than a report takes.
const REPORT_STEP_US: u64 = 20_000;

/// Time from the end of `busy` to the start: until then all CPUs are idle.
const BUSY_MARGIN_US: u64 = 20_000;

/// When a guest measures, in ticks of the virtual counter.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    /// First instant.
    pub(crate) start: u64,
    /// The command line says when to start, so that all guests start together.
    is_dated: bool,
    /// Last instant.
    pub(crate) end: u64,
    /// Value of the physical counter when the virtual one is 0.
    pub(crate) offset: u64,
    /// Number in each line of the report.
    pub(crate) id: u64,
}

impl Plan {
    fn of(machine: &Machine) -> Plan {
        // Both counters have one frequency. Between the reads are a few instructions.
        let offset = Kind::Physical.now().wrapping_sub(timer::now());
        let start = match machine.option("start-ms") {
            Some(ms) => timer::from_us(ms * 1_000).wrapping_sub(offset),
            None => timer::now() + timer::from_us(DEFAULT_START_US),
        };
        let length = timer::from_us(machine.option("ms").unwrap_or(DEFAULT_MS) * 1_000);
        Plan {
            start,
            is_dated: machine.option("start-ms").is_some(),
            end: start + length,
            offset,
            id: machine.option("id").unwrap_or(0),
        }
    }

    /// Sleeps until the start. Returns false, and reports that, if a start that the command line
    /// says is over. A guest without one, which a busy host keeps waiting meanwhile, starts late.
    fn sleep_until_start(&self) -> bool {
        let now = timer::now();
        if self.is_dated && now >= self.start {
            let late = timer::to_ns(now - self.start) / 1_000;
            report::fail("start", format_args!("booted {late} us too late"));
            return false;
        }
        wait::until(self.start);
        true
    }

    /// Sleeps until this guest may print.
    fn sleep_until_report(&self) {
        let us = REPORT_US + REPORT_STEP_US * self.id;
        wait::until(self.end + timer::from_us(us));
    }
}

fn main(machine: &Machine) {
    let plan = Plan::of(machine);
    set_up_cpu();
    match machine.word("role") {
        None | Some("periodic") => timed::periodic(machine, &plan),
        Some("burst") => timed::burst(machine, &plan),
        Some("spin") => spin::boot_cpu(machine, &plan),
        Some("busy") => busy(&plan),
        Some("window") => window::run(machine, &plan),
        Some(role) => return report::fail("role", format_args!("there is no {role}")),
    }
    report::pass("sched");
}

/// Works until shortly before the start.
fn busy(plan: &Plan) {
    while timer::now() + timer::from_us(BUSY_MARGIN_US) < plan.start {
        work(instructions(1));
    }
    plan.sleep_until_report();
    say!("SCHED role=busy id={}", plan.id);
}

/// Lets the timer of this CPU wake it.
fn set_up_cpu() {
    wait::set_vectors();
    gic::enable(timer::INTID);
}

/// Number of instructions of one turn of the loop in [`work`].
const TURN: u64 = 100;

/// Executes `instructions` instructions, rounded down to hundreds.
#[inline(always)]
fn work(instructions: u64) {
    let turns = instructions / TURN;
    if turns == 0 {
        return;
    }
    // SAFETY: counts a register down.
    unsafe {
        core::arch::asm!(
            "2: subs {turns}, {turns}, #1",
            ".rept 98",
            "nop",
            ".endr",
            "b.ne 2b",
            turns = inout(reg) turns => _,
            options(nomem, nostack),
        );
    }
}

/// Returns the number of instructions that count as `us` microseconds of work.
const fn instructions(us: u64) -> u64 {
    us * 1_000
}
