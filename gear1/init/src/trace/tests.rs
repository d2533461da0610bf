//! Requirements: G1-TRC-003.

use alloc::vec::Vec;

use gear1_abi::layout::{PAGE_SIZE, el2, gear2};

use crate::prepare::tests::Case;
use crate::testing::{Mapping, mappings};
use crate::trees::cells;

const WRITE_AT_STAGE_2: u64 = 1 << 7;
const READ_ONLY_AT_EL2: u64 = 1 << 7;
const RING: u64 = 64 << 10;

/// Returns what is mapped from `base` on, in pieces of `TRACE_STRIDE`, of a CPU.
fn piece(leaves: &[Mapping], base: u64, cpu: u64) -> Vec<&Mapping> {
    let start = base + cpu * el2::TRACE_STRIDE;
    let is_in = |leaf: &&Mapping| (start..start + el2::TRACE_STRIDE).contains(&leaf.input);
    leaves.iter().filter(is_in).collect()
}

fn bytes(leaves: &[&Mapping]) -> u64 {
    leaves.iter().map(|leaf| leaf.output.bytes()).sum()
}

#[test]
fn gear2_reads_the_ring_of_each_cpu_and_gear1_writes_it() {
    let mut case = Case::new();
    case.manifest = case.manifest.set("/gear2", "trace-kib", cells(&[100]));
    let (prepared, memory, _) = case.run();
    let root = prepared.unwrap().root.get();
    let info = *memory.boot_info.as_ref().unwrap().1;
    let gear2_info = memory.gear2_info.as_ref().unwrap().1;
    assert_eq!((info.trace_size, info.trace_from_boot), (RING, false));
    assert_eq!(gear2_info.trace_size, RING);
    let at_el2 = mappings(&memory, root, 512, 39);
    let in_gear2 = crate::prepare::tests::stage2(&memory, info.gear2.root);
    for cpu in 0..u64::from(info.cpu_count) {
        let (own, seen) = (
            piece(&at_el2, el2::TRACE, cpu),
            piece(&in_gear2, gear2::TRACE, cpu),
        );
        assert_eq!([bytes(&own), bytes(&seen)], [PAGE_SIZE + RING; 2]);
        assert!(
            own.iter()
                .all(|leaf| leaf.descriptor & READ_ONLY_AT_EL2 == 0)
        );
        assert!(
            seen.iter()
                .all(|leaf| leaf.descriptor & WRITE_AT_STAGE_2 == 0)
        );
        let first = |leaves: &[&Mapping]| leaves.iter().map(|leaf| leaf.output.start).min();
        assert_eq!(first(&own), first(&seen));
        let start = first(&own).unwrap();
        assert!(
            memory
                .read(start, (PAGE_SIZE + RING) as usize)
                .iter()
                .all(|byte| *byte == 0)
        );
    }
    for vm in &info.vms[..2] {
        let of_vm = crate::prepare::tests::stage2(&memory, vm.root);
        let rings = piece(&at_el2, el2::TRACE, 0);
        assert!(
            of_vm
                .iter()
                .all(|leaf| rings.iter().all(|ring| ring.output != leaf.output))
        );
    }
}

#[test]
fn without_the_property_there_is_no_ring() {
    let (prepared, memory, _) = Case::new().run();
    let root = prepared.unwrap().root.get();
    let info = *memory.boot_info.as_ref().unwrap().1;
    assert_eq!(info.trace_size, 0);
    assert!(piece(&mappings(&memory, root, 512, 39), el2::TRACE, 0).is_empty());
    let in_gear2 = crate::prepare::tests::stage2(&memory, info.gear2.root);
    assert!(piece(&in_gear2, gear2::TRACE, 0).is_empty());
}

/// The largest rings have enough tables.
#[test]
fn the_largest_rings_are_mapped() {
    let mut case = Case::new();
    case.manifest = (case.manifest)
        .set("/gear2", "trace-kib", cells(&[8192]))
        .set("/gear2", "trace-from-boot", Vec::new());
    let (prepared, memory, _) = case.run();
    prepared.unwrap();
    let info = *memory.boot_info.as_ref().unwrap().1;
    assert_eq!((info.trace_size, info.trace_from_boot), (8 << 20, true));
}
