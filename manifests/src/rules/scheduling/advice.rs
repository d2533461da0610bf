//! Warnings on scheduling: what the policy of a VM's CPUs does not read, and what is left over.
#![cfg(any(test, feature = "host"))]

use super::super::error;
use super::placed::{scheduled, server_of, starved_on};
use super::pool_path;
use crate::error::{Found, ManifestError, NodePath, Report, Rule};
use crate::model::{Balancer, Manifest, Policy, Pool, Scheduler, Vm, VmKind};

/// Warns of all that.
pub(in crate::rules) fn check<'a>(
    manifest: &Manifest<'a>,
    cpu_count: Option<usize>,
    report: &mut Report<'_, 'a>,
) {
    check_policy(&manifest.gear2.policy, pool_path(manifest, None), report);
    check_pools(manifest, report);
    for vm in scheduled(manifest) {
        check_parameters(manifest, vm, report);
        // Without a board nobody knows which CPU a vCPU starts on.
        let starved = cpu_count.and_then(|count| starved_on(manifest, vm, count));
        if let Some((cpu, ppm)) = starved
            && vm.kind != VmKind::Device
        {
            let place = ManifestError::at(Rule::LittleLeft, NodePath::vm(vm.name));
            report.error(place.found(Found::Left(cpu, ppm)));
        }
    }
}

/// Warns of useless times of the pools, and of pools that no VM is in.
fn check_pools<'a>(manifest: &Manifest<'a>, report: &mut Report<'_, 'a>) {
    for (index, pool) in manifest.pools.iter().enumerate() {
        let path = Pool::path(pool.name);
        // Times that no policy reads are told for each pool: a pool may have another policy.
        check_policy(&pool.policy, path, report);
        check_balancer(manifest, pool, report);
        // A VM that was left out may be in the pool, or mean this one.
        // planted: a pool is unused because its name is misspelled
        let may_be_used = !manifest.is_complete;
        let mut vms = scheduled(manifest);
        if !may_be_used && !vms.any(|vm| manifest.pool_of(vm) == Some(index)) {
            report.error(ManifestError::at(Rule::UnusedPool, path));
        }
    }
}

/// Warns of a balancer that has one CPU to balance, unless it is that of `/gear2`.
fn check_balancer<'a>(manifest: &Manifest<'a>, pool: &Pool<'a>, report: &mut Report<'_, 'a>) {
    let own = pool.policy.balancer != manifest.gear2.policy.balancer;
    if own && pool.policy.balancer != Balancer::None && pool.cpus.len() == 1 {
        let place = ManifestError::at_property(Rule::NoEffect, Pool::path(pool.name), "balancer");
        let why = "the pool has one CPU, from which no vCPU can move";
        report.error(place.found(Found::Reason(why)));
    }
}

/// Warns of a time that the policy of a pool has no use for.
fn check_policy<'a>(policy: &Policy, node: NodePath<'a>, report: &mut Report<'_, 'a>) {
    let mut useless = |property, why| {
        let place = ManifestError::at_property(Rule::NoEffect, node, property);
        report.error(place.found(Found::Reason(why)));
    };
    if policy.ceiling_us != 0 && policy.scheduler != Scheduler::Priority {
        useless("ceiling-us", "only the scheduler priority has a ceiling");
    }
    if policy.slice_us.is_some() && policy.scheduler == Scheduler::Null {
        useless("slice-us", "null runs one vCPU, and takes no turns");
    }
}

/// Warns of parameters that the policy of a VM's CPUs does not read.
fn check_parameters<'a>(manifest: &Manifest<'a>, vm: &Vm<'a>, report: &mut Report<'_, 'a>) {
    let scheduler = manifest.policy_of(manifest.pool_of(vm)).scheduler;
    let mut windows = manifest.windows_of(manifest.pool_of(vm));
    let has_window = windows.any(|window| window.vm == Some(vm.name));
    let has_server = server_of(manifest, vm).is_some();
    for (property, _) in vm.parameters.named() {
        let place = |rule| error(rule, vm, property);
        if !readers(property).0.contains(&scheduler) {
            let found = Found::Scheduler(scheduler, readers(property).1);
            report.error(place(Rule::Unread).found(found));
        } else if let Some(why) = useless(vm, property, has_window, has_server) {
            report.error(place(Rule::NoEffect).found(Found::Reason(why)));
        }
    }
}

/// Returns the schedulers that read a parameter, as a list and in words. Those with an inner policy
/// read what that one reads.
fn readers(property: &str) -> (&'static [Scheduler], &'static str) {
    use Scheduler::{Arinc653, Bvt, Edf, Fair, Priority};
    match property {
        "weight" => (
            &[Fair, Bvt, Edf, Arinc653],
            "fair, bvt, edf and arinc653 do",
        ),
        "cap-percent" => (&[Fair, Edf, Arinc653], "fair, edf and arinc653 do"),
        "budget-us" => (&[Edf, Arinc653], "edf and arinc653 do"),
        "period-us" => (&[Fair, Edf, Arinc653], "fair, edf and arinc653 do"),
        "priority" => (&[Priority], "priority does"),
        _ => (&[Bvt], "bvt does"),
    }
}

/// Says why a parameter that the scheduler reads has no effect in this VM.
fn useless(
    vm: &Vm<'_>,
    property: &str,
    has_window: bool,
    has_server: bool,
) -> Option<&'static str> {
    let parameters = &vm.parameters;
    match property {
        _ if has_window => Some("the VM runs in its windows, and by nothing else"),
        "weight" | "cap-percent" if has_server => Some("the VM has a budget, and runs by that"),
        "period-us" if (parameters.budget_us, parameters.cap_percent) == (None, None) => {
            Some("it is the period of budget-us and cap-percent, and the VM has neither")
        }
        _ => None,
    }
}
