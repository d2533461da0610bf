//! The role of a VM that has windows in a time table: how late each window begins.

use test_guests::{Machine, report, say, timer};

use crate::samples::Samples;
use crate::{Plan, work};

/// A longer time between two reads of the counter is the end of a window. An interrupt's way
/// through Gear1 is shorter, and the pause between two windows longer.
const GAP_US: u64 = 50;

/// Reads the counter after each `unit` instructions, without `unit` all the time. Frames are
/// multiples of `frame-us` of the physical counter, and a window begins `window-us` behind the
/// beginning of a frame. The physical counter counts frames for all VMs alike; `offset` is what the
/// virtual one lacks. The first window may have begun before the first read, and is no sample: its
/// begin was not seen.
pub(crate) fn run(machine: &Machine, plan: &Plan) {
    let us = |name, otherwise| timer::from_us(machine.option(name).unwrap_or(otherwise));
    let frame = us("frame-us", 10_000);
    let window = us("window-us", 0);
    let gap = us("gap-us", GAP_US);
    let unit = machine.option("unit").unwrap_or(0);
    let mut samples = Samples::new();
    let (mut longest_run, mut begin) = (0, None::<u64>);
    if !plan.sleep_until_start() {
        return;
    }
    let mut last = timer::now();
    while last < plan.end {
        work(unit);
        let now = timer::now();
        if now - last > gap {
            if let Some(begin) = begin {
                longest_run = (last - begin).max(longest_run);
            }
            begin = Some(now);
            samples.add(now.wrapping_add(plan.offset).wrapping_sub(window) % frame);
        }
        last = now;
    }
    plan.sleep_until_report();
    let Some(spread) = samples.spread() else {
        return report::fail("window", format_args!("no window began"));
    };
    let (id, run_max) = (plan.id, timer::to_ns(longest_run));
    // The start and the end are within frames, whose windows may be outside.
    let frames = (plan.end - plan.start) / frame;
    say!("SCHED role=window id={id} frames={frames} {spread} run_max={run_max}");
}
