//! The roles that sleep for a timer: periodic, with or without work, and bursts.
//!
//! No role prints before all have ended, since the console of one VM takes time on the CPU of
//! another.

use test_guests::{Machine, report, say, timer};

use crate::samples::Samples;
use crate::{Plan, instructions, wait, work};

/// Period, and the lengths of a burst's parts, where the command line has none. 1 kHz is a common
/// rate of control loops.
const PERIOD_US: u64 = 1_000;
const BURST_US: u64 = 3_000;

/// Wakes up at each multiple of the period behind the start, and works.
///
/// Without work, a period that is over when its predecessor's handler runs is missed: no interrupt
/// of its own tells of it. With work, each period has a job, which is late if it ends after the
/// next period has begun; jobs that never ran count as late. The second half of the time is
/// settled: all others have had turns by then. A periodic task whose release is the multiple of a
/// period, and not the end of the last job plus a period, shows a delay that adds up as a missed
/// period. Latency is measured at the handler's first instruction, as cyclictest does it on Linux
/// at the return from its sleep.
pub(crate) fn periodic(machine: &Machine, plan: &Plan) {
    let period_us = machine.option("period-us").unwrap_or(PERIOD_US);
    let period = timer::from_us(period_us);
    let job = instructions(machine.option("work-us").unwrap_or(0));
    let mut samples = Samples::new();
    let half = plan.start + (plan.end - plan.start) / 2;
    let (mut missed, mut late, mut slowest, mut settled) = (0, 0, 0, 0);
    if !plan.sleep_until_start() {
        return;
    }
    let mut due = plan.start + period;
    while due < plan.end {
        let handler = wait::until(due);
        let latency = handler.saturating_sub(due);
        samples.add(latency);
        if due >= half {
            settled = latency.max(settled);
        }
        work(job);
        let response = timer::now() - due;
        slowest = response.max(slowest);
        if job == 0 {
            missed += response / period;
            due += period * (response / period);
        } else if response > period {
            late += 1;
        }
        due += period;
        if job != 0 && timer::now() > plan.end {
            late += plan.end.saturating_sub(due) / period;
            break;
        }
    }
    plan.sleep_until_report();
    let Some(spread) = samples.spread() else {
        return report::fail("periodic", format_args!("no period ended"));
    };
    let id = plan.id;
    let [settled, response_max] = [settled, slowest].map(timer::to_ns);
    say!(
        "SCHED role=periodic id={id} period_us={period_us} {spread} max_settled={settled} missed={missed} late={late} response_max={response_max}"
    );
}

/// Works and sleeps in turns.
///
/// What the work took is the time from its first instruction to its last. The response is the time
/// from the deadline of the timer that ended the sleep. Interactive guests behave like that. A
/// scheduler that lets them run first after a sleep keeps the response near the work itself, and
/// one that does not adds a time slice. The mean is over all bursts, and the greatest response one
/// burst's.
pub(crate) fn burst(machine: &Machine, plan: &Plan) {
    let busy = instructions(machine.option("busy-us").unwrap_or(BURST_US));
    let idle = timer::from_us(machine.option("idle-us").unwrap_or(BURST_US));
    let mut samples = Samples::new();
    let (mut slowest, mut sum, mut count) = (0, 0, 0);
    if !plan.sleep_until_start() {
        return;
    }
    let mut due = plan.start + idle;
    while due < plan.end {
        wait::until(due);
        let begin = timer::now();
        work(busy);
        let end = timer::now();
        samples.add(end - begin);
        slowest = (end - due).max(slowest);
        sum += end - due;
        count += 1;
        due = end + idle;
    }
    plan.sleep_until_report();
    let Some(spread) = samples.spread() else {
        return report::fail("burst", format_args!("no burst ended"));
    };
    let (id, response_max) = (plan.id, timer::to_ns(slowest));
    let response_mean = timer::to_ns(sum) / count;
    say!(
        "SCHED role=burst id={id} {spread} response_mean={response_mean} response_max={response_max}"
    );
}
