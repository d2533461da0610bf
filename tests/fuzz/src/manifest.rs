//! The manifest.

use gear1_abi::id::{MAX_CPUS, MAX_VCPUS, MAX_VMS};
use gearv_manifest::Vm;

/// A manifest that is accepted keeps the limits that Gear1 and Gear2 count on.
pub(crate) fn run(bytes: &[u8]) {
    let mut complaints = 0_usize;
    let read = gearv_manifest::read(bytes, &mut |error| {
        complaints += usize::from(!error.to_string().is_empty());
    });
    let Ok(manifest) = read else {
        assert!(complaints > 0, "it is refused, and nobody says why");
        return;
    };
    assert!(!manifest.vms.is_empty() && manifest.vms.len() <= MAX_VMS);
    let vcpus: usize = manifest.vms.iter().map(|vm| vm.vcpu_count).sum();
    assert!(vcpus <= MAX_VCPUS);
    for (place, vm) in manifest.vms.iter().enumerate() {
        assert_eq!(vm.id.index(), place);
        keeps_limits(vm);
        let devices = manifest.virtio_of(vm.id).count();
        assert!(devices == 0 || manifest.device_vm().is_some());
    }
}

fn keeps_limits(vm: &Vm<'_>) {
    assert!(vm.vcpu_count > 0 && !vm.name.is_empty());
    assert!(vm.cpus.iter().all(|cpu| cpu.index() < MAX_CPUS));
    assert!(vm.memory.bytes > 0 && vm.memory.bytes.is_multiple_of(2 << 20));
    let end = vm.memory.ipa.unwrap_or(0).checked_add(vm.memory.bytes);
    assert!(end.is_some(), "its memory wraps around");
}
