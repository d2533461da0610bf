//! Rules on scheduling: pools, windows and values that a policy can work with.
//!
//! Rules that need no placement are here and in [`windows`]; those on what is started where are in
//! [`placed`], with the arithmetic of [`load`].

use super::{common, error, is_name, number};
use crate::error::{Found, ManifestError, NodePath, Report, Rule};
use crate::limits::{
    BUDGET_US, CAP_PERCENT, CEILING_US, FRAME_US, LATENCY_US, PERIOD_US, PRIORITY, SLICE_US, WEIGHT,
};
use crate::model::{CpuSet, Manifest, Parameters, Policy, Pool, Vm, VmKind};
use crate::nearest::nearest;
use crate::{CpuIndex, MAX_CPUS};

pub(super) mod advice;
pub(super) mod load;
pub(super) mod placed;
#[cfg(test)]
mod tests;
mod windows;

/// Name of the pool of all other CPUs.
const DEFAULT_POOL: &str = "default";

/// Judges what needs no placement; `complete` says that no VM was left out.
pub(super) fn check<'a>(manifest: &Manifest<'a>, complete: bool, report: &mut Report<'_, 'a>) {
    // CPUs of no pool have the policy of /gear2, and are judged as one more pool.
    check_policy(&manifest.gear2.policy, pool_path(manifest, None), report);
    windows::check(manifest, None, complete, report);
    for (index, pool) in manifest.pools.iter().enumerate() {
        check_policy(&pool.policy, Pool::path(pool.name), report);
        check_pool_name(pool, report);
        check_pool_cpus(manifest, index, pool, report);
        windows::check(manifest, Some(index), complete, report);
    }
    for vm in manifest.vms.iter() {
        check_parameters(vm, report);
        match vm.kind {
            VmKind::RealTime => refuse_pool(vm, report),
            VmKind::Guest | VmKind::Device => check_vm_pool(manifest, vm, report),
        }
    }
}

/// Returns the path of a pool's node.
fn pool_path<'a>(manifest: &Manifest<'a>, pool: Option<usize>) -> NodePath<'a> {
    let pool = pool.and_then(|index| manifest.pools.get(index));
    pool.map_or(NodePath::ROOT.child("gear2"), |pool| Pool::path(pool.name))
}

/// Judges the numbers of a policy.
fn check_policy<'a>(policy: &Policy, node: NodePath<'a>, report: &mut Report<'_, 'a>) {
    // 0 stands for a time that the manifest does not give.
    let given = |us: u32| Some(us).filter(|us| *us != 0);
    let values = [
        ("slice-us", policy.slice_us, SLICE_US),
        ("ceiling-us", given(policy.ceiling_us), CEILING_US),
        ("frame-us", given(policy.frame_us), FRAME_US),
    ];
    for (property, value, range) in values {
        if let Some(value) = value.filter(|value| !range.contains(value)) {
            let place = ManifestError::at_property(Rule::OutOfRange, node, property);
            report.error(place.found(Found::Us(value)));
        }
    }
}

/// Judges the name of a pool.
fn check_pool_name<'a>(pool: &Pool<'a>, report: &mut Report<'_, 'a>) {
    // planted: a pool has the name of all other CPUs
    if !is_name(pool.name) || pool.name == DEFAULT_POOL {
        report.error(ManifestError::at(Rule::PoolName, Pool::path(pool.name)));
    }
}

/// Judges the CPUs of a pool: Gear2's, and those of one pool alone. Each of the mistakes is told,
/// whatever else is wrong.
fn check_pool_cpus<'a>(
    manifest: &Manifest<'a>,
    index: usize,
    pool: &Pool<'a>,
    report: &mut Report<'_, 'a>,
) {
    // planted: a pool has no CPU
    if pool.cpus.is_empty() {
        let path = Pool::path(pool.name);
        report.error(ManifestError::at_property(
            Rule::PoolWithoutCpus,
            path,
            "cpus",
        ));
    }
    let before = manifest.pools.iter().take(index);
    before.for_each(|other| check_shared(pool, other, report));
    check_owner(manifest, pool, report);
}

/// Refuses a CPU that a pool shares with another one.
fn check_shared<'a>(pool: &Pool<'a>, other: &Pool<'a>, report: &mut Report<'_, 'a>) {
    // planted: a CPU is in two pools
    if let Some(cpu) = common(pool.cpus.set(), other.cpus.set()) {
        let place = ManifestError::at_property(Rule::CpuInTwoPools, Pool::path(pool.name), "cpus");
        let place = place.found(number(cpu));
        report.error(place.conflicts(Pool::path(other.name)));
    }
}

/// Refuses CPUs of a pool that Gear2 does not have, with the real-time VM that owns one of them as
/// the likelier mistake.
fn check_owner<'a>(manifest: &Manifest<'a>, pool: &Pool<'a>, report: &mut Report<'_, 'a>) {
    let cpus = pool.cpus.set();
    let place = |rule| ManifestError::at_property(rule, Pool::path(pool.name), "cpus");
    if let Some((cpu, owner)) = real_time_owner(manifest, cpus) {
        let place = place(Rule::CpuTaken).found(number(cpu));
        report.error(place.conflicts(NodePath::vm(owner.name)));
        return;
    }
    // planted: a pool has a CPU that Gear2 does not run on
    if let Some(cpu) = cpus.without(manifest.gear2_cpus(MAX_CPUS)).iter().next() {
        let place = place(Rule::PoolCpuNotGear2s).found(number(cpu));
        report.error(place.conflicts(NodePath::ROOT.child("gear2")));
    }
}

/// Returns a CPU of the set that a real-time VM owns, and that VM.
fn real_time_owner<'m, 'a>(
    manifest: &'m Manifest<'a>,
    cpus: CpuSet,
) -> Option<(CpuIndex, &'m Vm<'a>)> {
    let vms = manifest.vms.iter().filter(|vm| vm.kind == VmKind::RealTime);
    // The first owner is enough for a message.
    let mut owners = vms.filter_map(|vm| Some((common(cpus, vm.cpus.set())?, vm)));
    owners.next()
}

/// Refuses the pool of a real-time VM: pools divide Gear2's CPUs, of which the VM has none.
fn refuse_pool<'a>(vm: &Vm<'a>, report: &mut Report<'_, 'a>) {
    if vm.pool.is_some() {
        report.error(error(Rule::RealTimeParameter, vm, "pool"));
    }
}

/// Judges the pool of a VM, and that all of the VM's CPUs are in it.
fn check_vm_pool<'a>(manifest: &Manifest<'a>, vm: &Vm<'a>, report: &mut Report<'_, 'a>) {
    // planted: a VM is in a pool that is not there
    if let Some(name) = vm.pool
        && manifest.pool_named(name).is_none()
    {
        let names = manifest.pools.iter().map(|pool| pool.name);
        let place = error(Rule::UnknownPool, vm, "pool").found(Found::Text(name));
        report.error(place.near(nearest(name, names)));
        return;
    }
    // Without a pool of its own name, a VM is in the pool of its first CPU.
    let pool = manifest.pool_of(vm);
    let mut cpus = vm.cpus.iter();
    // planted: a VM is in two pools
    if let Some(cpu) = cpus.find(|cpu| manifest.pool_of_cpu(*cpu) != pool) {
        let place = error(Rule::VmInTwoPools, vm, "cpus").found(number(cpu));
        report.error(place.conflicts(pool_path(manifest, manifest.pool_of_cpu(cpu).or(pool))));
    }
}

/// Judges the parameters of a VM by themselves.
fn check_parameters<'a>(vm: &Vm<'a>, report: &mut Report<'_, 'a>) {
    let parameters = &vm.parameters;
    for (property, value) in parameters.named() {
        // The unit is part of the name of each time.
        let found = match property.ends_with("-us") {
            true => Found::Us(value),
            false => Found::Number(value.into()),
        };
        if let Some(rule) = broken_by(vm, property, value) {
            report.error(error(rule, vm, property).found(found));
        }
    }
    check_budget(vm, parameters, report);
}

/// Returns the rule that a parameter of a VM breaks, the most telling one first.
fn broken_by(vm: &Vm<'_>, property: &str, value: u32) -> Option<Rule> {
    // planted: a real-time VM has a weight
    if vm.kind == VmKind::RealTime {
        return Some(Rule::RealTimeParameter);
    }
    // A rule of its own, as the repair says why: the number is possible, and useless.
    // planted: a period is spent on switches
    if property == "period-us" && value < *PERIOD_US.start() {
        return Some(Rule::ShortPeriod);
    }
    (!is_in_range(property, value)).then_some(Rule::OutOfRange)
}

/// Tells whether a parameter is in its range.
fn is_in_range(property: &str, value: u32) -> bool {
    let range = match property {
        "weight" => WEIGHT,
        "cap-percent" => CAP_PERCENT,
        "budget-us" => BUDGET_US,
        "period-us" => PERIOD_US,
        "priority" => PRIORITY,
        "latency-us" => LATENCY_US,
        // A name of which no range is known cannot be out of it.
        _ => return true,
    };
    range.contains(&value)
}

/// Refuses a budget that does not fit into its period.
fn check_budget<'a>(vm: &Vm<'a>, parameters: &Parameters, report: &mut Report<'_, 'a>) {
    if let Some(server) = parameters.server()
        // planted: a budget is longer than its period
        && server.budget_us > server.period_us
        // That VM has an error for the budget itself.
        && vm.kind != VmKind::RealTime
    {
        let place = error(Rule::BudgetTooLong, vm, "budget-us");
        report.error(place.found(Found::Budget(server)));
    }
}
