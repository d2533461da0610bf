//! Which VMs init loads, and their seeds.
//!
//! Requirements: G1-BOOT-007, G1-RT-006.

use alloc::vec::Vec;

use gear1_abi::boot::BootInfo;
use gear1_abi::layout::PAGE_SIZE;
use gear1_core::seed::{self, Start};

use super::Case;
use crate::testing::POISON;
use crate::trees::{cells, text};

/// Returns the seed of a VM's start.
pub(super) fn seed_of(info: &BootInfo, vm: u16, number: u32) -> [u8; 40] {
    let (key, vm) = (&info.seed_key, vm.into());
    Start { key, vm, number }.seed()
}

/// G1-BOOT-007: with each start the VM's device tree gets other seeds, in the same places.
#[test]
fn each_start_has_its_own_seeds() {
    let (prepared, memory, _) = Case::new().run();
    prepared.unwrap();
    let info = *memory.boot_info.as_ref().unwrap().1;
    let mut seen = std::collections::BTreeSet::new();
    for (vm, number) in info.vms[..info.vm_count as usize].iter().zip(0..) {
        let parts = vm.loads.iter().filter(|load| load.is_seed);
        let parts: Vec<_> = parts.map(|load| (load.source, load.size)).collect();
        assert_eq!(parts, [(0, 32), (32, 8)]);
        for start in 0..100 {
            let seed = seed_of(&info, number, start);
            for (from, size) in &parts {
                let part = seed[*from as usize..][..*size as usize].to_vec();
                assert!(seen.insert(part), "start {start}");
            }
        }
    }
    // The machine's seed decides.
    assert_ne!(info.seed_key, seed::key(&[]));
}

/// Secondary CPUs fetch the runtime's first instructions with their MMU and caches off, and a VM
/// may read its stolen time so.
#[test]
fn what_is_read_with_caches_off_is_in_memory() {
    let (prepared, memory, _) = Case::new().run();
    prepared.unwrap();
    let info = *memory.boot_info.as_ref().unwrap().1;
    let text = [info.image, info.boot_page];
    let stolen_time = info.vms[..2].iter().map(|vm| vm.stolen_time_ipa);
    for page in text.into_iter().chain(stolen_time) {
        assert!(!memory.dirty.contains(&(page / PAGE_SIZE)), "{page:#x}");
    }
    // The fake memory notes what is not cleaned: the runtime's data among others.
    assert!(memory.dirty.contains(&(info.image / PAGE_SIZE + 2)));
}

#[test]
fn a_guest_without_autostart_is_left_to_the_runtime() {
    let mut case = Case::new();
    case.manifest = case.manifest.set("/vms/flat", "no-autostart", Vec::new());
    let (prepared, memory, _) = case.run();
    prepared.unwrap();
    let vm = memory.boot_info.as_ref().unwrap().1.vms[1];
    assert!(!vm.loaded);
    assert_eq!(memory.read(vm.regions[0].pa, 1), [POISON]);
}

/// G1-RT-006: a real-time VM does not wait until init has filled the memory of others.
#[test]
fn a_guest_beside_a_real_time_vm_is_left_to_the_runtime() {
    let mut case = Case::new();
    case.manifest = case
        .manifest
        .set("/gear2", "cpus", cells(&[0]))
        .set("/vms/linux", "cpus", cells(&[0]))
        .set("/vms/flat", "kind", text("real-time"))
        .set("/vms/flat", "cpus", cells(&[1]));
    let with_autostart = case.manifest.clone();
    for (has_autostart, loaded) in [(true, [false, true]), (false, [true, false])] {
        if !has_autostart {
            case.manifest = with_autostart
                .clone()
                .set("/vms/flat", "no-autostart", Vec::new());
        }
        let (prepared, memory, _) = case.run();
        prepared.unwrap();
        let info = &memory.boot_info.as_ref().unwrap().1;
        assert_eq!([0, 1].map(|vm: usize| info.vms[vm].loaded), loaded);
        let start = info.vms[0].regions[0].pa;
        assert_eq!(memory.read(start, 1) == [POISON], !loaded[0]);
    }
}
