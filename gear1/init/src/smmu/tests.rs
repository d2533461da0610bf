//! The SMMU through the whole of init, on QEMU's `virt`.
//!
//! Requirements: G1-DMA-001, G1-DMA-002, G1-DMA-004.

use alloc::vec::Vec;
use std::string::{String, ToString};

use gear1_abi::boot::{BootInfo, BootStreams, IrqOwner};
use gearv_manifest::blob::Blob;

use crate::devices::bus_masters;
use crate::fdt;
use crate::prepare::tests::{Case, stage2};
use crate::testing::{FakeMemory, FakeSmmu, VIRT_GICV2, tree};
use crate::trees::{Tree, cells, text};

const RT: &str = "/vms/rt";
const SMMU: &str = "/smmuv3@9050000";
const BRIDGE: &str = "/pcie@10000000";
const PHANDLE: u32 = 0x8100;

/// Adds QEMU's SMMUv3, in front of all functions of the host bridge.
fn with_smmu(board: Tree) -> Tree {
    let interrupts = [0, 74, 1, 0, 75, 1, 0, 76, 1, 0, 77, 1];
    board
        .set(SMMU, "compatible", text("arm,smmu-v3"))
        .set(SMMU, "reg", cells(&[0, 0x905_0000, 0, 0x2_0000]))
        .set(SMMU, "interrupts", cells(&interrupts))
        .set(
            SMMU,
            "interrupt-names",
            b"eventq\0priq\0cmdq-sync\0gerror\0".to_vec(),
        )
        .set(SMMU, "dma-coherent", Vec::new())
        .set(SMMU, "phandle", cells(&[PHANDLE]))
        .set(SMMU, "#iommu-cells", cells(&[1]))
        .set(BRIDGE, "iommu-map", cells(&[0, PHANDLE, 0, 0x1_0000]))
}

/// A machine whose host bridge is a real-time VM's.
fn case() -> Case {
    let mut case = Case::new();
    case.manifest = case
        .manifest
        .set("/vms/linux", "vcpus", cells(&[1]))
        .set(RT, "kind", text("real-time"))
        .set(RT, "cpus", cells(&[1]))
        .set(RT, "memory-mib", cells(&[4]))
        .set(RT, "image", text("guest.bin"))
        .set(RT, "devices", text(BRIDGE));
    case.board = with_smmu(case.board);
    case
}

/// A guest has a bridge without `trusts-dma` if all of its functions go through the SMMU.
///
/// Requirement: G1-DMA-005.
#[test]
fn a_guest_has_what_the_smmu_keeps_in_its_stage_2() {
    let mut case = Case::new();
    case.manifest = case.manifest.set("/vms/linux", "devices", text(BRIDGE));
    let untrusted = "manifest: M-DEV-011: /vms/linux: devices: ";
    assert!(case.refused().starts_with(untrusted));
    case.board = with_smmu(case.board);
    let (memory, info) = case.booted();
    let own = Some((info.vms[0].vmid.into(), info.vms[0].root));
    assert_eq!(translated(&memory, &info, 8), own);
    let rows = cells(&[0, PHANDLE, 0, 0xffff]);
    case.board = case.board.set(BRIDGE, "iommu-map", rows);
    assert!(case.refused().starts_with(untrusted));
}

/// A change of what peers share waits for the accesses of the guest's devices, and a device may
/// never end one.
///
/// Requirement: G1-DMA-005.
#[test]
fn a_guest_behind_the_smmu_shares_no_memory_at_run_time() {
    let mut case = Case::new();
    case.manifest = case
        .manifest
        .set("/vms/linux", "devices", text(BRIDGE))
        .set("/vms/linux", "ffa-peers", text("other"))
        .set("/vms/other", "memory-mib", cells(&[4]))
        .set("/vms/other", "image", text("guest.bin"));
    case.board = with_smmu(case.board);
    let refused = case.refused();
    let expected = "manifest: M-DEV-012: /vms/linux: devices: ";
    assert!(refused.starts_with(expected), "{refused}");
    case.manifest = case.manifest.set("/vms/linux", "trusts-dma", Vec::new());
    case.booted();
}

/// A function's stream follows from its bus number, which it takes from configuration space. The
/// buses that the bridge does not have may be another's.
///
/// Requirement: G1-DMA-001.
#[test]
fn a_vm_has_configuration_space_of_its_own_buses_alone() {
    let with = |buses: [u32; 2]| {
        let mut case = Case::new();
        case.manifest = case.manifest.set("/vms/linux", "devices", text(BRIDGE));
        case.board = with_smmu(case.board)
            .set(BRIDGE, "bus-range", cells(&buses))
            .set(BRIDGE, "iommu-map", cells(&[0, PHANDLE, 0, 0x1000]));
        case
    };
    let (memory, info) = with([0, 0xf]).booted();
    let space = info.masters[0].register;
    let leaves = stage2(&memory, info.vms[0].root);
    let has = |bus: u64| {
        let at = space + (bus << 20);
        leaves
            .iter()
            .any(|leaf| (leaf.output.start..leaf.output.end).contains(&at))
    };
    assert_eq!([0, 0xf, 0x10, 0xff].map(has), [true, true, false, false]);
    for damaged in [[0xf, 0], [0, 0x100]] {
        let refused = with(damaged).refused();
        assert!(refused.contains("M-DEV-011"), "{refused}");
    }
}

/// Reads words of memory.
fn words(memory: &FakeMemory, at: u64, count: usize) -> Vec<u64> {
    let bytes = memory.read(at, count * 8);
    let words = bytes.as_chunks::<8>().0.iter();
    words.map(|word| u64::from_le_bytes(*word)).collect()
}

/// Returns the stream table entry that the SMMU finds for a stream; `None`: the first level has
/// none. Read as the SMMU does, from its registers on (Arm IHI 0070, 3.3.1.2).
fn entry(memory: &FakeMemory, stream: u64) -> Option<Vec<u64>> {
    let written = &memory.smmu.written;
    let (base, shape) = (written[&0x80], written[&0x88]);
    let (split, bits) = (shape >> 6 & 0x1f, shape & 0x3f);
    assert_eq!((shape >> 16, split), (1, 8), "two levels");
    if stream >> bits != 0 {
        return None;
    }
    let first = (base & 0x000f_ffff_ffff_ffc0) + (stream >> split) * 8;
    let first = words(memory, first, 1)[0];
    let span = first & 0x1f;
    (span != 0).then(|| {
        assert_eq!(span, split + 1);
        let table = first & 0x000f_ffff_ffff_ffc0;
        assert!(table.is_multiple_of(0x4000));
        words(memory, table + (stream & 0xff) * 64, 8)
    })
}

/// Returns VTTBR_EL2 of a stream as its entry says, if its accesses are translated.
fn translated(memory: &FakeMemory, info: &BootInfo, stream: u64) -> Option<(u64, u64)> {
    let entry = entry(memory, stream)?;
    let config = entry[0] >> 1 & 7;
    (entry[0] & 1 != 0 && config != 0).then(|| {
        assert_eq!(config, 0b110, "stage 2 alone");
        assert_eq!(entry[2] >> 32 & 0x7_ffff, info.vtcr_el2 & 0x7_ffff);
        (entry[2] & 0xffff, entry[3])
    })
}

/// Requirement: G1-DMA-001.
#[test]
fn a_bridge_of_a_vms_has_the_vms_stage_2() {
    let (memory, info) = case().booted();
    let rt = &info.vms[2];
    for stream in [0, 8, 0xff, 0x100, 0xffff] {
        let own = Some((rt.vmid.into(), rt.root));
        assert_eq!(translated(&memory, &info, stream), own, "{stream:#x}");
    }
    assert_eq!(entry(&memory, 0x1_0000), None);
    let streams = BootStreams {
        first: 0,
        count: 0x1_0000,
        vm: 2,
    };
    assert_eq!(info.smmu.streams[0], streams);
    assert_eq!(info.smmu.streams[1], BootStreams::default());
    assert_eq!((info.smmu.registers, info.smmu.intid), (0x905_0000, 106));
    // A second, and one table for all buses.
    assert_eq!(
        (info.smmu.patience, info.smmu.stream_tables),
        (62_500_000, 1)
    );
    // The event queue interrupts Gear2, by an edge; INTx the VM, by levels.
    assert_eq!(info.irq_owner[106], IrqOwner::GEAR2);
    assert_ne!(info.irq_edge[3] >> 10 & 1, 0);
    for intid in 35..39 {
        assert_eq!(info.irq_owner[intid], IrqOwner::vm(2).unwrap());
        assert_eq!(info.irq_edge[1] >> (intid - 32) & 1, 0);
    }
    // Translation is on, after all else.
    assert_eq!(memory.smmu.written[&0x20], 0b1101);
}

/// Requirement: G1-DMA-001.
#[test]
fn a_bridges_windows_are_its_owners_alone() {
    let (memory, info) = case().booted();
    let has = |vm: usize, at: u64| {
        let leaves = stage2(&memory, info.vms[vm].root);
        leaves
            .iter()
            .any(|leaf| leaf.input <= at && at - leaf.input < leaf.output.bytes())
    };
    // Memory, I/O, configuration, and the last page of the window above 512 GiB.
    for at in [
        0x1000_0000,
        0x3efe_f000,
        0x3eff_0000,
        0x40_1000_0000,
        0xff_ffff_f000,
    ] {
        assert!(has(2, at), "{at:#x}");
        assert!(!has(0, at) && !has(1, at), "{at:#x}");
    }
    assert!(!has(2, FakeSmmu::BASE), "the SMMU is Gear1's");
}

/// Nobody owns a stream: the SMMU stays off, and lets nothing through.
///
/// Requirement: G1-DMA-001.
#[test]
fn without_an_owner_everything_aborts() {
    let mut case = case();
    case.manifest = case.manifest.set(RT, "devices", text("/pl031@9010000"));
    let (memory, info) = case.booted();
    let written = &memory.smmu.written;
    assert_eq!((written[&0x44] >> 20 & 1, written[&0x20]), (1, 0));
    assert!(!written.contains_key(&0x80));
    assert_eq!(info.smmu, Default::default());
}

/// Streams of a block that are not the VM's abort, whatever the others do.
///
/// Requirement: G1-DMA-001.
#[test]
fn a_device_has_its_own_streams_and_no_others() {
    let clock = "/pl031@9010000";
    let mut case = case();
    case.manifest = case.manifest.set(RT, "devices", text(clock));
    case.board = case
        .board
        .set(clock, "iommus", cells(&[PHANDLE, 0x203, PHANDLE, 7]));
    let (memory, info) = case.booted();
    let own = Some((info.vms[2].vmid.into(), info.vms[2].root));
    for stream in 0..0x400 {
        let expected = own.filter(|_| [0x203, 7].contains(&stream));
        assert_eq!(translated(&memory, &info, stream), expected, "{stream:#x}");
    }
    assert_eq!(entry(&memory, 0x100), None, "a block without any owner");
}

/// Nothing that firmware had a device do reaches the memory of a VM that is not loaded.
///
/// Requirement: G1-DMA-002.
#[test]
fn the_streams_of_a_vm_that_is_not_loaded_are_shut() {
    let mut case = case();
    case.manifest = case.manifest.set(RT, "no-autostart", Vec::new());
    let (memory, info) = case.booted();
    assert!(!info.vms[2].loaded);
    assert_eq!(translated(&memory, &info, 8), None);
    // The entry is there, for the runtime to open.
    let entry = entry(&memory, 8).unwrap();
    assert_eq!((entry[0], entry[3]), (1, info.vms[2].root));
}

/// Bridges are stopped by configuration space of their first bus.
///
/// Requirement: G1-DMA-002.
#[test]
fn the_functions_of_a_bridge_can_be_stopped() {
    let (_, info) = case().booted();
    let bus = &info.masters[0];
    assert_eq!(
        (bus.register, bus.functions, bus.vm),
        (0x40_1000_0000, 256, 2)
    );
    assert_eq!(info.masters[1].register, 0);
}

/// What devices walk has no block of the VM's own memory, if pages of it may go: a block that is
/// split is away for a moment.
///
/// Requirement: G1-DMA-004.
#[test]
fn a_vm_with_devices_that_shares_memory_has_pages_only() {
    let sizes = |peers: bool| {
        let mut case = case();
        case.manifest = case
            .manifest
            .set(RT, "devices", text("/pl031@9010000"))
            .set("/vms/linux", "kind", text("device"))
            .set("/vms/linux", "devices", text(BRIDGE));
        if peers {
            case.manifest = case.manifest.set("/vms/linux", "ffa-peers", text("flat"));
        }
        let (memory, info) = case.booted();
        let (vm, own) = (&info.vms[0], &info.vms[0].regions[0]);
        let leaves = stage2(&memory, vm.root);
        let own = own.ipa..own.ipa + own.size;
        let leaves = leaves.iter().filter(|leaf| own.contains(&leaf.input));
        let sizes: Vec<u64> = leaves.map(|leaf| leaf.output.bytes()).collect();
        (sizes.len(), sizes.into_iter().max().unwrap())
    };
    assert_eq!(sizes(true), (1024, 4096));
    assert_eq!(sizes(false).1, 2 << 20);
}

/// Requirement: G1-DMA-001.
#[test]
fn an_smmuv3_beside_a_gicv2_is_refused() {
    let mut case = case();
    case.board = with_smmu(tree(VIRT_GICV2));
    let refused = case.refused();
    let expected = "device tree: /smmuv3@9050000: a VM owns devices behind it, and Gear1 does not \
                    drive an SMMUv3 beside a GICv2";
    assert_eq!(refused, expected);
}

/// Requirement: G1-DMA-001.
#[test]
fn a_device_in_the_smmus_registers_is_no_vms() {
    let clock = "/pl031@9010000";
    let mut case = case();
    case.manifest = case.manifest.set(RT, "devices", text(clock));
    // Behind the first 128 KiB, which are all that Gear1 uses.
    case.board = case
        .board
        .set(SMMU, "reg", cells(&[0, 0x905_0000, 0, 0x4_0000]))
        .set(clock, "reg", cells(&[0, 0x908_0000, 0, 0x1000]));
    let refused = case.refused();
    assert!(
        refused.contains("M-DEV-008") && refused.contains("registers of the SMMU"),
        "{refused}"
    );
}

/// Another IOMMU may name a stream by several cells; an SMMUv3 does not.
///
/// Requirement: G1-DMA-001.
#[test]
fn an_iommu_says_how_it_names_streams() {
    let clock = "/pl031@9010000";
    let with = |iommus: &[u32]| {
        let mut case = case();
        case.manifest = case.manifest.set(RT, "devices", text(clock));
        case.board = case
            .board
            .set("/other-iommu", "phandle", cells(&[PHANDLE + 1]))
            .set("/other-iommu", "#iommu-cells", cells(&[2]))
            .set(clock, "iommus", cells(iommus));
        case
    };
    let (_, info) = with(&[PHANDLE + 1, PHANDLE, 5, PHANDLE, 9]).booted();
    let streams = info.smmu.streams.map(|range| (range.first, range.count));
    assert_eq!(streams[..2], [(9, 1), (0, 0)]);
    for wrong in [&[PHANDLE + 1, 9][..], &[PHANDLE + 2, 9], &[PHANDLE]] {
        let refused = with(wrong).refused();
        assert!(refused.contains("iommus: not whole pairs"), "{refused}");
    }
    let mut two = with(&[PHANDLE, 9]);
    two.board = two.board.set(SMMU, "#iommu-cells", cells(&[2]));
    let board = fdt::read(two.board.flatten().as_slice()).board;
    let refused = board.unwrap_err().to_string();
    assert!(refused.contains("#iommu-cells: not 1"), "{refused}");
}

/// Requirement: G1-DMA-001.
#[test]
fn rows_have_as_many_streams_as_a_segment_has_functions() {
    for count in [0, 0x1_0001, u32::MAX] {
        let mut case = case();
        case.board = case
            .board
            .set(BRIDGE, "iommu-map", cells(&[0, PHANDLE, 0, count]));
        let refused = case.refused();
        assert!(
            refused.contains("iommu-map: not whole rows of 1 to 65536 StreamIDs"),
            "{refused}"
        );
    }
}

/// Requirement: G1-DMA-001.
#[test]
fn streams_that_are_too_scattered_are_refused() {
    let with = |blocks: u32| {
        let clock = "/pl031@9010000";
        let mut case = case();
        case.manifest = case.manifest.set(RT, "devices", text(clock));
        let iommus = (0..blocks).flat_map(|block| [PHANDLE, block * 0x101]);
        let iommus: Vec<u32> = iommus.collect();
        case.board = case.board.set(clock, "iommus", cells(&iommus));
        case
    };
    let (_, info) = with(8).booted();
    assert_eq!(info.smmu.stream_tables, 8);
    let refused = with(9).refused();
    assert!(refused.contains("lie in 9 different blocks"), "{refused}");
}

/// Requirement: G1-DMA-001.
#[test]
fn a_stream_has_one_owner() {
    let mut case = case();
    let clock = "/pl031@9010000";
    case.manifest = case.manifest.set("/vms/linux", "kind", text("device")).set(
        "/vms/linux",
        "devices",
        text(clock),
    );
    case.board = case.board.set(clock, "iommus", cells(&[PHANDLE, 0x10]));
    let refused = case.refused();
    assert!(
        refused.contains("M-DEV-009") && refused.contains("StreamID 0x0"),
        "{refused}"
    );
}

/// Requirement: G1-DMA-001.
#[test]
fn an_smmu_that_cannot_be_driven_is_refused_by_name() {
    let with = |offset: u64, id: u32| {
        let mut case = case();
        case.smmu.insert(offset, id);
        case.refused()
    };
    let path = "device tree: /smmuv3@9050000: a VM owns devices behind it, and";
    let cases = [
        (0x0, 0x0d44_101a, "it has no stage 2"),
        (0x0, 0x0d44_100b, "its walks are not coherent"),
        (0x4, 0x0273_000f, "it has fewer StreamIDs"),
        (0x0, 0x0e44_101b, "it stalls each access"),
        (0x14, 0x71, "its physical addresses have fewer bits"),
        (0x4, 0x2273_0010, "its queues have less than a page"),
    ];
    for (offset, id, what) in cases {
        let refused = with(offset, id);
        let expected = std::format!("{path} {what}");
        assert!(refused.starts_with(&expected), "{refused}");
    }
    let mut hung = case();
    hung.smmu_hangs = true;
    let expected = "device tree: /smmuv3@9050000: the SMMU does not answer";
    assert_eq!(hung.refused(), expected);
}

/// Requirement: G1-DMA-001.
#[test]
fn the_smmu_is_no_vms() {
    let mut case = case();
    case.manifest = case.manifest.set(RT, "devices", text(SMMU));
    let refused = case.refused();
    assert!(
        refused.contains("M-DEV-008") && refused.contains("it is Gear1's"),
        "{refused}"
    );
}

/// What `check` warns of: a bridge counts unless each function goes through the SMMU.
///
/// Requirement: G1-DMA-001.
#[test]
fn what_goes_through_the_smmu_does_not_reach_all_memory() {
    let reaches = |board: &Tree, path: &str| {
        let flat = board.flatten();
        let masters: Vec<String> = bus_masters(
            &gearv_manifest::Manifest::EMPTY,
            &Blob::new(flat.as_slice()).unwrap(),
        );
        masters.iter().any(|master| master == path)
    };
    let open = Case::new().board;
    assert!(reaches(&open, BRIDGE));
    let board = with_smmu(open);
    assert!(!reaches(&board, BRIDGE) && !reaches(&board, SMMU));
    let rows = |rows: &[u32]| board.clone().set(BRIDGE, "iommu-map", cells(rows));
    let halves = [0, PHANDLE, 0x8000, 0x8000, 0x8000, PHANDLE, 0, 0x8000];
    assert!(!reaches(&rows(&halves), BRIDGE));
    assert!(
        reaches(&rows(&[0, PHANDLE, 0, 0xffff]), BRIDGE),
        "the last one"
    );
    assert!(
        reaches(&rows(&[8, PHANDLE, 8, 0xfff8]), BRIDGE),
        "the first ones"
    );
    assert!(reaches(&rows(&[0, PHANDLE + 1, 0, 0x1_0000]), BRIDGE));
    let off = board.clone().set(SMMU, "status", text("disabled"));
    assert!(reaches(&off, BRIDGE), "nobody drives it");
    let clock = "/pl031@9010000";
    let behind = board.clone().set(clock, "iommus", cells(&[PHANDLE, 1]));
    let coherent = |board: Tree| board.set(clock, "dma-coherent", Vec::new());
    assert!(!reaches(&coherent(behind), clock) && reaches(&coherent(board), clock));
}
