//! Rules on what is scheduled where: they need to know how many CPUs the machine has.

use super::super::{error, number};
use super::load::{Sum, Supply, starting_on};
use crate::CpuIndex;
use crate::error::{Found, ManifestError, NodePath, Report, Rule};
use crate::found::Load;
use crate::limits::LEAST_PPM;
use crate::model::{Budget, CpuSet, Manifest, Pool, Scheduler, Vm, VmKind};

/// Judges a manifest that broke no rule so far, on a machine with `cpu_count` CPUs.
pub(crate) fn check<'a>(manifest: &Manifest<'a>, cpu_count: usize, report: &mut Report<'_, 'a>) {
    let before = report.error_count;
    // Pools before VMs: a pool on a CPU that is not there has no place for its VMs.
    check_pool_cpus(manifest, cpu_count, report);
    for vm in scheduled(manifest) {
        check_vm(manifest, vm, cpu_count, report);
    }
    // Sums on a CPU mean nothing while a VM has none.
    // What follows counts on places that are good.
    if before == report.error_count {
        for cpu in manifest.gear2_cpus(cpu_count).iter() {
            check_null(manifest, cpu, cpu_count, report);
            check_budgets(manifest, cpu, cpu_count, report);
        }
        if let Some(device) = manifest.device_vm() {
            check_time_left(manifest, device, cpu_count, report);
            check_higher_priorities(manifest, device, cpu_count, report);
        }
    }
}

/// Refuses CPUs of a pool that the machine does not have.
fn check_pool_cpus<'a>(manifest: &Manifest<'a>, cpu_count: usize, report: &mut Report<'_, 'a>) {
    for pool in manifest.pools.iter() {
        let unknown = pool.cpus.set().without(CpuSet::first(cpu_count));
        if let Some(cpu) = unknown.iter().next() {
            let path = Pool::path(pool.name);
            let place = ManifestError::at_property(Rule::UnknownCpu, path, "cpus");
            report.error(place.found(number(cpu)));
        }
    }
}

/// Iterates over the VMs that Gear2 schedules: a real-time VM has its CPUs to itself.
pub(super) fn scheduled<'m, 'a>(manifest: &'m Manifest<'a>) -> impl Iterator<Item = &'m Vm<'a>> {
    manifest.vms.iter().filter(|vm| vm.kind != VmKind::RealTime)
}

/// Tells whether a VM has a window of its pool.
fn has_window(manifest: &Manifest<'_>, vm: &Vm<'_>) -> bool {
    let mut windows = manifest.windows_of(manifest.pool_of(vm));
    windows.any(|window| window.vm == Some(vm.name))
}

/// Returns the scheduler of a VM's CPUs.
fn scheduler_of(manifest: &Manifest<'_>, vm: &Vm<'_>) -> Scheduler {
    manifest.policy_of(manifest.pool_of(vm)).scheduler
}

/// Judges whether a VM has a CPU and a time to run.
fn check_vm<'a>(
    manifest: &Manifest<'a>,
    vm: &Vm<'a>,
    cpu_count: usize,
    report: &mut Report<'_, 'a>,
) {
    // planted: a VM has no CPU outside of pools
    // Without pools the machine has no CPU for Gear2 at all, which is another rule's message.
    if manifest.cpus_of(vm, cpu_count).is_empty() && !manifest.pools.is_empty() {
        report.error(error(Rule::NoCpuOutsidePools, vm, "pool"));
    }
    check_window(manifest, vm, report);
}

/// Refuses a VM on CPUs of `arinc653` that no window lets run.
fn check_window<'a>(manifest: &Manifest<'a>, vm: &Vm<'a>, report: &mut Report<'_, 'a>) {
    let mut windows = manifest.windows_of(manifest.pool_of(vm));
    // Any other policy gives each vCPU some time, if little.
    let is_arinc = scheduler_of(manifest, vm) == Scheduler::Arinc653;
    // A window without a VM is for all VMs of the pool that have none of their own.
    // planted: a VM has no window
    let runs = |name: Option<&str>| name.is_none_or(|name| name == vm.name);
    if is_arinc && !windows.any(|window| runs(window.vm)) {
        report.error(ManifestError::at(Rule::NeverRuns, NodePath::vm(vm.name)));
    }
}

/// Refuses a second vCPU that starts on a CPU of `null`, which would never run.
fn check_null<'a>(
    manifest: &Manifest<'a>,
    cpu: CpuIndex,
    cpu_count: usize,
    report: &mut Report<'_, 'a>,
) {
    let pool = manifest.pool_of_cpu(cpu);
    if manifest.policy_of(pool).scheduler != Scheduler::Null {
        return;
    }
    let mut here = starting_on(manifest, cpu, cpu_count);
    // planted: two vCPUs start on a CPU of null
    if let (Some(first), Some(second)) = (here.next(), here.next()) {
        let place = error(Rule::NullTwice, second, "cpus").found(number(cpu));
        report.error(place.conflicts(NodePath::vm(first.name)));
    }
}

/// Refuses the first budget that a CPU, beside the budgets before it in the file, has no time for.
fn check_budgets<'a>(
    manifest: &Manifest<'a>,
    cpu: CpuIndex,
    cpu_count: usize,
    report: &mut Report<'_, 'a>,
) {
    let pool = manifest.pool_of_cpu(cpu);
    // Without a policy that knows budgets there is nothing to add up.
    let Some(mut sum) = supply_of(manifest, pool).map(|supply| Sum::new(cpu, supply)) else {
        return;
    };
    for vm in starting_on(manifest, cpu, cpu_count) {
        let Some(server) = server_of(manifest, vm) else {
            continue;
        };
        if !sum.add(server) {
            let found = Found::Wait(server.period_us, sum.load.delay_us);
            report.error(error(Rule::WaitsTooLong, vm, "period-us").found(found));
            return;
        }
        if sum.load.is_too_much() {
            report.error(error(Rule::Overload, vm, "budget-us").found(Found::Load(sum.load)));
            return;
        }
    }
}

/// Returns what there is for budgets on the CPUs of a pool; `None`: the scheduler knows none.
#[must_use]
pub fn supply_of(manifest: &Manifest<'_>, pool: Option<usize>) -> Option<Supply> {
    match manifest.policy_of(pool).scheduler {
        // Servers run before everything else, so all of the CPU is theirs to promise.
        Scheduler::Edf => Some(Supply::WHOLE),
        Scheduler::Arinc653 => Supply::of_free_windows(manifest, pool),
        _ => None,
    }
}

/// Returns the budget of each vCPU of a VM, if its scheduler reads that: a VM with windows needs
/// none.
#[must_use]
pub fn server_of(manifest: &Manifest<'_>, vm: &Vm<'_>) -> Option<Budget> {
    let reads = match scheduler_of(manifest, vm) {
        Scheduler::Edf => true,
        Scheduler::Arinc653 => !has_window(manifest, vm),
        _ => false,
    };
    vm.parameters.server().filter(|_| reads)
}

/// Returns what the budgets on a CPU ask for; `None`: the scheduler reads none.
#[must_use]
pub fn load_on(manifest: &Manifest<'_>, cpu: CpuIndex, cpu_count: usize) -> Option<Load> {
    // As check_budgets, without its refusals: the figure is for a report.
    let mut sum = Sum::new(cpu, supply_of(manifest, manifest.pool_of_cpu(cpu))?);
    for vm in starting_on(manifest, cpu, cpu_count) {
        if let Some(server) = server_of(manifest, vm) {
            sum.add(server);
        }
    }
    Some(sum.load)
}

/// Returns a CPU on which the vCPUs of a VM without budget and window have too little, and what
/// they have.
pub(super) fn starved_on(
    manifest: &Manifest<'_>,
    vm: &Vm<'_>,
    cpu_count: usize,
) -> Option<(CpuIndex, u64)> {
    if server_of(manifest, vm).is_some() || has_window(manifest, vm) {
        return None;
    }
    let cpus = (0..vm.vcpu_count).filter_map(|vcpu| manifest.start_cpu(vm, vcpu, cpu_count));
    let left = cpus.filter_map(|cpu| Some((cpu, load_on(manifest, cpu, cpu_count)?.left_ppm())));
    left.min_by_key(|(_, ppm)| *ppm)
        // planted: budgets starve the device VM
        .filter(|(_, ppm)| *ppm < LEAST_PPM)
}

/// Refuses budgets that leave the device VM too little time: the VMs that it serves wait for it,
/// and without it there is no `gearctl` to change the budgets.
fn check_time_left<'a>(
    manifest: &Manifest<'a>,
    device: &Vm<'a>,
    cpu_count: usize,
    report: &mut Report<'_, 'a>,
) {
    let Some((cpu, ppm)) = starved_on(manifest, device, cpu_count) else {
        return;
    };
    let path = NodePath::vm(device.name);
    // The last budget is the one that went too far, as in check_budgets.
    let on_cpu = starting_on(manifest, cpu, cpu_count);
    let last = on_cpu.filter(|vm| server_of(manifest, vm).is_some()).last();
    let place = match last {
        Some(vm) => error(Rule::DeviceStarved, vm, "budget-us").conflicts(path),
        None => ManifestError::at(Rule::DeviceStarved, path),
    };
    report.error(place.found(Found::Left(cpu, ppm)));
}

/// Refuses VMs that, by a higher priority and without a ceiling, may run for ever before the device
/// VM does.
fn check_higher_priorities<'a>(
    manifest: &Manifest<'a>,
    device: &Vm<'a>,
    cpu_count: usize,
    report: &mut Report<'_, 'a>,
) {
    let policy = manifest.policy_of(manifest.pool_of(device));
    // With a ceiling each vCPU gets a slice at times, whatever its priority.
    if policy.scheduler != Scheduler::Priority || policy.ceiling_us != 0 {
        return;
    }
    for vm in scheduled(manifest) {
        let cpus = manifest.cpus_of(vm, cpu_count);
        // By the CPUs they may use, not only by where they start: a balancer may bring them
        // together.
        let shared = super::common(cpus, manifest.cpus_of(device, cpu_count)).is_some();
        // planted: a higher priority starves the device VM
        if shared && vm.parameters.priority() > device.parameters.priority() {
            let place = error(Rule::DeviceStarved, vm, "priority");
            let place = place.conflicts(NodePath::vm(device.name));
            report.error(place.found(Found::Reason("a higher priority, and no ceiling-us")));
        }
    }
}
