//! Scheduling in a manifest: the policies of CPUs, and the parameters of VMs.

use super::Section;
use super::binding::{BALANCERS, POOL_NODES, POOL_PROPERTIES, SCHEDULERS, WINDOW_PROPERTIES};
use crate::error::{ManifestError, Report, Rule};
use crate::model::{Balancer, Manifest, PARAMETERS, Parameters, Policy, Pool, Window};

/// Reads the pools below `/gear2`, and the windows of its own CPUs.
pub(super) fn read_pools<'a>(
    gear2: &Section<'a>,
    manifest: &mut Manifest<'a>,
    report: &mut Report<'_, 'a>,
) {
    // Windows directly below /gear2 are those of the CPUs of no pool.
    read_windows(None, gear2, manifest, report);
    let Some(pools) = gear2.child("pools") else {
        return;
    };
    pools.check_properties(&[], report);
    // Numbers of pools are places in the file: windows and VMs refer to them by these.
    for (index, pool) in pools.children().enumerate() {
        pool.check_names(POOL_PROPERTIES, POOL_NODES, report);
        pools.check_repeated(index, &pool, report);
        let read = Pool {
            name: pool.node.name(),
            cpus: pool.cpus(report).unwrap_or_default(),
            // A manifest that names one balancer means all pools.
            policy: read_policy(&pool, manifest.gear2.policy.balancer, report),
        };
        // The rest is not read: each further pool would be one more message of the same.
        // planted: a ninth pool is left out
        if manifest.pools.push(read).is_err() {
            report.error(ManifestError::at(Rule::TooManyPools, pool.path));
            break;
        }
        read_windows(Some(index), &pool, manifest, report);
    }
}

/// Reads the windows of a pool.
fn read_windows<'a>(
    pool: Option<usize>,
    section: &Section<'a>,
    manifest: &mut Manifest<'a>,
    report: &mut Report<'_, 'a>,
) {
    let Some(windows) = section.child("windows") else {
        return;
    };
    windows.check_properties(&[], report);
    for (index, window) in windows.children().enumerate() {
        window.check_names(WINDOW_PROPERTIES, &[], report);
        windows.check_repeated(index, &window, report);
        // Its errors are reported; half a window would overlap with others.
        let Some(read) = read_window(pool, &window, report) else {
            continue;
        };
        // planted: a window that has no room is left out
        if manifest.windows.push(read).is_err() {
            report.error(ManifestError::at(Rule::TooManyWindows, window.path));
            break;
        }
    }
}

/// Reads a window; one without a place is none.
fn read_window<'a>(
    pool: Option<usize>,
    window: &Section<'a>,
    report: &mut Report<'_, 'a>,
) -> Option<Window<'a>> {
    // All properties are read before a missing one ends the reading, so that each fault is told.
    check_window_place(window, report);
    let vm = window.text("vm", report);
    let start_us = window.number("start-us", report);
    let length_us = window.number("length-us", report);
    Some(Window {
        pool,
        name: window.node.name(),
        vm,
        start_us: start_us?,
        length_us: length_us?,
    })
}

/// Refuses a window without beginning or length: neither has a default.
fn check_window_place<'a>(window: &Section<'a>, report: &mut Report<'_, 'a>) {
    // planted: a window without a place is left out
    for name in ["start-us", "length-us"] {
        if window.node.property(name).is_none() {
            let place = ManifestError::at_property(Rule::WindowPlace, window.path, name);
            report.error(place);
        }
    }
}

/// Reads how CPUs are scheduled, from `/gear2` or a pool. `balancer`: the one without `balancer`.
pub(super) fn read_policy<'a>(
    section: &Section<'a>,
    balancer: Balancer,
    report: &mut Report<'_, 'a>,
) -> Policy {
    const DEFAULT: Policy = Policy::DEFAULT;
    // Properties that the scheduler has no use for are read, too: a warning names them.
    let scheduler = section.choice("scheduler", SCHEDULERS, report);
    let slice_us = section.number("slice-us", report);
    let ceiling_us = section.number("ceiling-us", report);
    let own_balancer = section.choice("balancer", BALANCERS, report);
    let frame_us = section.number("frame-us", report);
    Policy {
        scheduler: scheduler.unwrap_or(DEFAULT.scheduler),
        slice_us,
        ceiling_us: ceiling_us.unwrap_or(DEFAULT.ceiling_us),
        balancer: own_balancer.unwrap_or(balancer),
        frame_us: frame_us.unwrap_or(DEFAULT.frame_us),
    }
}

/// Reads the parameters of a VM.
pub(super) fn read_parameters<'a>(vm: &Section<'a>, report: &mut Report<'_, 'a>) -> Parameters {
    let [
        weight,
        cap_percent,
        budget_us,
        period_us,
        priority,
        latency_us,
        // By the list that names the fields elsewhere, so the two cannot differ in order.
    ] = PARAMETERS.map(|name| vm.number(name, report));
    Parameters {
        weight,
        cap_percent,
        budget_us,
        period_us,
        priority,
        latency_us,
    }
}
