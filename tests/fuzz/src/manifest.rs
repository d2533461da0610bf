//! The manifest.
//!
//! The sums that a rule bounds are computed without a check later on. So each limit that Gear1 or
//! Gear2 indexes by, or adds up to, is looked at again here, by code that shares nothing with the
//! rules.

use gear1_abi::id::{MAX_CPUS, MAX_VCPUS, MAX_VMS};
use gearv_manifest::{Manifest, Vm, VmKind};

/// A manifest that is accepted keeps the limits that Gear1 and Gear2 count on.
pub(crate) fn run(bytes: &[u8]) {
    let mut complaints = 0_usize;
    let read = gearv_manifest::read(bytes, &mut |error| {
        complaints += usize::from(!error.to_string().is_empty());
    });
    let Ok(manifest) = read else {
        // A refusal without a message leaves a person with a machine that does not boot.
        assert!(complaints > 0, "it is refused, and nobody says why");
        return;
    };
    check(&manifest);
}

/// Checks a manifest that was accepted.
fn check(manifest: &Manifest<'_>) {
    assert!(!manifest.vms.is_empty() && manifest.vms.len() <= MAX_VMS);
    let vcpus: usize = manifest.vms.iter().map(|vm| vm.vcpu_count).sum();
    assert!(vcpus <= MAX_VCPUS);
    for (place, vm) in manifest.vms.iter().enumerate() {
        // Arrays of Gear1 are in this order.
        assert_eq!(vm.id.index(), place);
        keeps_limits(vm);
        has_server(manifest, vm);
    }
    // Every machine that the manifest may boot on; none at all is what a damaged board tree gives.
    for cpu_count in 0..=MAX_CPUS {
        keeps_plans(manifest, cpu_count);
    }
}

/// A VM with virtio devices has a device VM that serves them. Gear2 would wait for ever for the
/// answer to the first access.
fn has_server(manifest: &Manifest<'_>, vm: &Vm<'_>) {
    let devices = manifest.virtio_of(vm.id).count();
    assert!(devices == 0 || manifest.device_vm().is_some());
}

/// A plan that is accepted has a place for each vCPU, and time for each budget and each window.
fn keeps_plans(manifest: &Manifest<'_>, cpu_count: usize) {
    let mut complaints = 0_usize;
    let judged = gearv_manifest::judge_scheduling(manifest, cpu_count, &mut |error| {
        complaints += usize::from(!error.to_string().is_empty());
    });
    assert_eq!(judged.is_err(), complaints > 0);
    if judged.is_err() {
        return;
    }
    for cpu in manifest.gear2_cpus(cpu_count).iter() {
        let load = gearv_manifest::load_on(manifest, cpu, cpu_count);
        assert!(load.is_none_or(|load| !load.is_too_much()));
    }
    starts_in_pools(manifest, cpu_count);
    keeps_windows_apart(manifest);
}

/// Each vCPU starts on a CPU of its VM's pool. A vCPU elsewhere would be under another policy than
/// its parameters are for.
fn starts_in_pools(manifest: &Manifest<'_>, cpu_count: usize) {
    for vm in manifest.vms.iter().filter(|vm| vm.kind != VmKind::RealTime) {
        for vcpu in 0..vm.vcpu_count {
            let cpu = manifest.start_cpu(vm, vcpu, cpu_count);
            assert!(cpu.is_none_or(|cpu| manifest.pool_of_cpu(cpu) == manifest.pool_of(vm)));
        }
    }
}

/// Windows of a pool lie in its frame, and no two of them overlap.
fn keeps_windows_apart(manifest: &Manifest<'_>) {
    for (index, window) in manifest.windows.iter().enumerate() {
        assert!(window.end_us() <= manifest.policy_of(window.pool).frame_us.into());
        let others = manifest.windows.iter().take(index);
        for other in others.filter(|other| other.pool == window.pool) {
            let [one, two] = [window, other].map(|one| u64::from(one.start_us)..one.end_us());
            assert!(
                one.end <= two.start || two.end <= one.start,
                "{one:?} {two:?}"
            );
        }
    }
}

/// Judges one VM: vCPUs, CPUs and memory. Memory that wraps around would begin below its own start.
fn keeps_limits(vm: &Vm<'_>) {
    assert!(vm.vcpu_count > 0 && !vm.name.is_empty());
    assert!(vm.cpus.iter().all(|cpu| cpu.index() < MAX_CPUS));
    assert!(vm.memory.bytes > 0 && vm.memory.bytes.is_multiple_of(2 << 20));
    let end = vm.memory.ipa.unwrap_or(0).checked_add(vm.memory.bytes);
    assert!(end.is_some(), "its memory wraps around");
}
