//! An SMMUv2 through the whole of init, on QEMU's `virt` with a GICv2 and an MMU-500 that QEMU does
//! not have.
//!
//! Requirements: G1-DMA-001, G1-DMA-002, G1-DMA-005, G1-DMA-006.

use alloc::vec::Vec;
use std::string::{String, ToString};

use gear1_abi::boot::{BootInfo, BootStreams, IrqOwner};
use gearv_manifest::blob::Blob;

use crate::devices::bus_masters;
use crate::fdt;
use crate::prepare::tests::{Case, stage2};
use crate::testing::{FakeMemory, VIRT_GICV2, VIRT_GICV3, tree};
use crate::trees::{Tree, cells, text};

const RT: &str = "/vms/rt";
const SMMU: &str = "/iommu@9050000";
const BRIDGE: &str = "/pcie@10000000";
const CLOCK: &str = "/pl031@9010000";
const PHANDLE: u32 = 0x8100;
/// GICC's page where VMs have GICV (IPA).
const GICC: u64 = 0x801_0000;

/// Adds an MMU-500 whose faults come by one interrupt, as a ZCU102's do.
fn with_smmu(board: Tree) -> Tree {
    let interrupts = [0, 155, 4].repeat(17);
    board
        .set(SMMU, "compatible", text("arm,mmu-500"))
        .set(SMMU, "reg", cells(&[0, 0x905_0000, 0, 0x2_0000]))
        .set(SMMU, "interrupts", cells(&interrupts))
        .set(SMMU, "#global-interrupts", cells(&[1]))
        .set(SMMU, "phandle", cells(&[PHANDLE]))
        .set(SMMU, "#iommu-cells", cells(&[1]))
}

/// A machine whose clock is a real-time VM's, and masters the bus with these streams.
fn case(streams: &[u32]) -> Case {
    let mut case = Case::new();
    case.has_smmu_v2 = true;
    case.manifest = case
        .manifest
        .set("/vms/linux", "vcpus", cells(&[1]))
        .set(RT, "kind", text("real-time"))
        .set(RT, "cpus", cells(&[1]))
        .set(RT, "memory-mib", cells(&[4]))
        .set(RT, "image", text("guest.bin"))
        .set(RT, "devices", text(CLOCK));
    let iommus = streams.iter().flat_map(|stream| [PHANDLE, *stream]);
    let iommus: Vec<u32> = iommus.collect();
    case.board = with_smmu(tree(VIRT_GICV2)).set(CLOCK, "iommus", cells(&iommus));
    case
}

/// A change of a board's tree.
type Change = fn(Tree) -> Tree;

/// A stage 2 as the SMMU has it: root, VMID, and SMMU_CBn_TCR.
type Context = (u64, u64, u64);

/// Follows a stream through the registers as the SMMU does (Arm IHI 0062, 2.3); `None`: it aborts.
fn translated(memory: &FakeMemory, stream: u64) -> Option<Context> {
    let get = |offset: u64| memory.smmu.written.get(&offset).copied().unwrap_or(0);
    assert_eq!(get(0) & 1, 0, "the SMMU is on");
    assert_ne!(get(0) & 1 << 10, 0, "streams without a register abort");
    let matched = (0..48).filter(|group| {
        let pattern = get(0x800 + group * 4);
        pattern >> 31 != 0 && (pattern ^ stream) & 0x7fff & !(pattern >> 16) == 0
    });
    let groups: Vec<u64> = matched.collect();
    let [group] = groups[..] else {
        assert!(groups.is_empty(), "{stream:#x} has several registers");
        return None;
    };
    let context = get(0xc00 + group * 4);
    assert_ne!(context >> 16 & 3, 1, "it passes");
    (context >> 16 & 3 == 0).then(|| {
        let bank = 0x1_0000 + (context & 0xff) * 0x1000;
        let attributes = get(0x1000 + (context & 0xff) * 4);
        assert_eq!((attributes >> 16, get(bank) & 1), (0, 1), "stage 2 alone");
        let root = get(bank + 0x24) << 32 | get(bank + 0x20);
        (root, attributes & 0xff, get(bank + 0x30))
    })
}

/// Returns what a VM's devices have, beside their root.
fn shape(info: &BootInfo, vm: usize) -> (u64, u64) {
    let vtcr = info.vtcr_el2 & 0x7_ffff | 1 << 31;
    (info.vms[vm].vmid.into(), vtcr)
}

/// Requirement: G1-DMA-001.
#[test]
fn a_device_has_its_own_streams_and_no_others() {
    let (memory, info) = case(&[0x874, 0x875, 7]).booted();
    for stream in 0..0x8000 {
        let own = translated(&memory, stream).map(|(_, vmid, tcr)| (vmid, tcr));
        let expected = [0x874, 0x875, 7].contains(&stream);
        assert_eq!(own, expected.then(|| shape(&info, 2)), "{stream:#x}");
    }
    let of = |first| BootStreams {
        first,
        count: 1,
        vm: 2,
    };
    assert_eq!(info.smmu.streams[..3], [0x874, 0x875, 7].map(of));
    assert_eq!(info.smmu.streams[3], BootStreams::default());
    // One context bank, behind 16 pages of global registers; one interrupt for all, by level.
    let smmu = &info.smmu;
    assert_eq!(
        (smmu.registers, smmu.size, smmu.banks),
        (0x905_0000, 0x1_1000, 1)
    );
    assert_eq!((smmu.intid, smmu.stream_tables, smmu.ignored), (187, 0, 0));
    assert_eq!(smmu.patience, 62_500_000);
    assert_eq!(info.irq_owner[187], IrqOwner::GEAR2);
    assert_eq!(info.irq_edge[5] >> 27 & 1, 0);
}

/// Devices have all that the VM's CPUs have, but for the CPU interface.
///
/// Requirement: G1-DMA-006.
#[test]
fn a_device_does_not_reach_the_cpu_interface() {
    let mut case = case(&[7]);
    case.manifest = case.manifest.set(RT, "gic", text("pass-through"));
    let (passed, info) = case.booted();
    case.manifest = case.manifest.set(RT, "gic", text("emulated"));
    let (emulated, other) = case.booted();
    for (memory, info, bytes) in [(passed, info, 0x2000), (emulated, other, 0x1000)] {
        let (root, _, _) = translated(&memory, 7).unwrap();
        assert_ne!(root, info.vms[2].root);
        let mut cpus = stage2(&memory, info.vms[2].root);
        let interface = GICC..GICC + bytes;
        let hidden = cpus.extract_if(.., |leaf| interface.contains(&leaf.input));
        assert_eq!(hidden.count() as u64, bytes / 0x1000);
        assert_eq!(stage2(&memory, root), cpus);
    }
}

/// The SMMU's walks do not look into caches: what it walks is in memory.
///
/// Requirement: G1-DMA-006.
#[test]
fn what_the_smmu_walks_is_in_memory() {
    let (memory, info) = case(&[7]).booted();
    let pool = info.pool / 4096..(info.pool + info.pool_used) / 4096;
    let dirty: Vec<_> = memory
        .dirty
        .iter()
        .filter(|page| pool.contains(page))
        .collect();
    assert!(dirty.is_empty(), "{dirty:x?}");
    let (root, _, _) = translated(&memory, 7).unwrap();
    assert!(pool.contains(&(root / 4096)));
}

/// Requirement: G1-DMA-002.
#[test]
fn the_streams_of_a_vm_that_is_not_loaded_are_shut() {
    let mut case = case(&[7]);
    case.manifest = case.manifest.set(RT, "no-autostart", Vec::new());
    let (memory, info) = case.booted();
    assert!(!info.vms[2].loaded);
    assert_eq!(translated(&memory, 7), None);
    // Its register is there, for the runtime to make valid, and leads to its context.
    let written = &memory.smmu.written;
    assert_eq!((written[&0x800], written[&0xc00]), (7, 0));
}

/// Nobody owns a stream: nothing gets through.
///
/// Requirement: G1-DMA-001.
#[test]
fn without_an_owner_everything_aborts() {
    let mut case = case(&[7]);
    case.manifest = case.manifest.set(RT, "devices", text("/pl061@9030000"));
    let (memory, info) = case.booted();
    assert_eq!(info.smmu, Default::default());
    for stream in 0..0x8000 {
        assert_eq!(translated(&memory, stream), None, "{stream:#x}");
    }
}

/// Two VMs have a context bank each. The functions of a bridge are a range, which takes a register
/// for each block of a power of 2.
///
/// Requirement: G1-DMA-001.
#[test]
fn each_vm_has_a_context_bank() {
    let mut case = case(&[7]);
    case.manifest = case.manifest.set("/vms/linux", "kind", text("device")).set(
        "/vms/linux",
        "devices",
        text(BRIDGE),
    );
    case.board = case.board.set(BRIDGE, "bus-range", cells(&[0, 3])).set(
        BRIDGE,
        "iommu-map",
        cells(&[0, PHANDLE, 0x1003, 0x400]),
    );
    // The device VM is loaded behind the real-time VM's start, and its streams are shut until then.
    for loaded in [2, 0] {
        if loaded == 0 {
            case.manifest = case.manifest.set(RT, "no-autostart", Vec::new());
        }
        let (memory, info) = case.booted();
        for stream in 0..0x8000 {
            let vm = match stream {
                7 => Some(2),
                0x1003..0x1403 => Some(0),
                _ => None,
            };
            let vm = vm.filter(|vm| *vm == loaded);
            let found = translated(&memory, stream).map(|(_, vmid, tcr)| (vmid, tcr));
            assert_eq!(found, vm.map(|vm| shape(&info, vm)), "{stream:#x}");
        }
        assert_eq!((info.smmu.banks, info.smmu.size), (2, 0x1_2000));
    }
}

/// Bits that do not count are in no name of a stream, and no bit of one is compared.
///
/// Requirement: G1-DMA-001.
#[test]
fn bits_that_the_tree_masks_do_not_count() {
    let mut case = case(&[0x4007, 0x407]);
    case.board = case.board.set(SMMU, "stream-match-mask", cells(&[0x7c00]));
    let (memory, info) = case.booted();
    for stream in 0..0x8000 {
        let own = translated(&memory, stream).is_some();
        assert_eq!(
            own,
            [7, 0x7].contains(&(stream & 0x3ff)) || stream & 0x3ff == 7
        );
    }
    assert_eq!(info.smmu.ignored, 0x7c00);
    assert_eq!(info.smmu.streams[0].first, 7);
}

/// Requirements: G1-DMA-001, G1-DMA-006.
#[test]
fn what_an_smmuv2_cannot_keep_is_refused() {
    let path = "device tree: /iommu@9050000: a VM owns devices behind it, and";
    let refused = |change: fn(&mut Case)| {
        let mut case = case(&[7]);
        change(&mut case);
        case.refused()
    };
    let expect = |change: fn(&mut Case), what: &str| {
        let refused = refused(change);
        let expected = std::format!("{path} {what}");
        assert!(refused.starts_with(&expected), "{refused}");
    };
    expect(
        |case| {
            case.manifest = case
                .manifest
                .clone()
                .set("/vms/linux", "kind", text("device"))
                .set("/vms/linux", "devices", text(CLOCK))
                .set("/vms/linux", "ffa-peers", text("flat"))
                .set(RT, "devices", text("/pl061@9030000"));
        },
        "linux has ffa-peers",
    );
    expect(
        |case| {
            case.board = case
                .board
                .clone()
                .set(SMMU, "interrupts", cells(&[0, 155, 4, 0, 156, 4]))
        },
        "its faults come by several interrupts",
    );
    expect(
        |case| {
            case.manifest = case
                .manifest
                .clone()
                .set("/vms/linux", "kind", text("device"))
                .set("/vms/linux", "devices", text("/pl061@9030000"));
            case.board = case
                .board
                .clone()
                .set("/pl061@9030000", "iommus", cells(&[PHANDLE, 0x407]))
                .set(SMMU, "stream-match-mask", cells(&[0x7c00]));
        },
        "another VM owns the same stream",
    );
    let ids: [(u64, u32, &str); 5] = [
        (0x20, 1 << 27 | 15 << 9 | 48, "it has no stage 2"),
        (0x20, 1 << 29 | 15 << 9 | 48, "it has fewer StreamIDs"),
        (
            0x20,
            1 << 29 | 1 << 27 | 15 << 9,
            "it has fewer stream match registers",
        ),
        (0x24, 3 << 28, "it has fewer contexts"),
        (
            0x28,
            1 << 12 | 1 << 4,
            "its physical addresses have fewer bits",
        ),
    ];
    for (offset, id, what) in ids {
        let mut case = case(&[7]);
        case.smmu.insert(offset, id);
        let refused = case.refused();
        let expected = std::format!("{path} {what}");
        assert!(refused.starts_with(&expected), "{refused}");
    }
    let mut hung = case(&[7]);
    hung.smmu_hangs = true;
    let expected = "device tree: /iommu@9050000: the SMMU does not answer";
    assert_eq!(hung.refused(), expected);
    let mut small = case(&[7]);
    small.smmu.insert(0x24, 1 << 31 | 3 << 28 | 16);
    let expected =
        "device tree: /iommu@9050000: reg: 0x20000 bytes, and the registers take 0x110000";
    assert_eq!(small.refused(), expected);
}

/// Beside a GICv3, whose runtime has no driver of it, an SMMUv2 is as it was before Gear1 drove any:
/// what is behind it reaches all memory. So is one that is disabled.
///
/// Requirement: G1-DMA-001.
#[test]
fn an_smmuv2_that_nobody_drives_is_not_touched() {
    let mut v3 = case(&[7]);
    v3.board = with_smmu(tree(VIRT_GICV3)).set(CLOCK, "iommus", cells(&[PHANDLE, 7]));
    let mut off = case(&[7]);
    off.board = off.board.set(SMMU, "status", text("disabled"));
    for case in [v3, off] {
        let (memory, info) = case.booted();
        assert!(memory.smmu.written.is_empty());
        assert_eq!(info.smmu, Default::default());
    }
}

/// Requirement: G1-DMA-001.
#[test]
fn a_damaged_node_is_refused_where_it_matters() {
    let refused = |change: Change, gic: &[u8]| -> Option<String> {
        let board = change(with_smmu(tree(gic)));
        let board = fdt::read(board.flatten().as_slice()).board;
        board.err().map(|refusal| refusal.to_string())
    };
    let cases: [(Change, &str); 3] = [
        (
            |board| board.set(SMMU, "reg", cells(&[0, 0x905_0000, 0, 0x3000])),
            "reg: not four pages of 4 KiB, as an SMMUv2 has them at least",
        ),
        (
            |board| board.set(SMMU, "#iommu-cells", cells(&[2])),
            "#iommu-cells: not 1, as an SMMUv2 names streams",
        ),
        (
            |board| {
                board
                    .set("/iommu@a050000", "compatible", text("arm,smmu-v2"))
                    .set(
                        "/iommu@a050000",
                        "reg",
                        cells(&[0, 0xa05_0000, 0, 0x2_0000]),
                    )
                    .set("/iommu@a050000", "#iommu-cells", cells(&[1]))
            },
            "a second SMMU, beside /iommu@9050000: one is supported",
        ),
    ];
    for (change, what) in cases {
        let message = refused(change, VIRT_GICV2).unwrap();
        assert!(message.contains(what), "{message}");
        assert_eq!(refused(change, VIRT_GICV3), None);
    }
}

/// What `check` warns of, and what a guest may own without `trusts-dma`.
///
/// Requirements: G1-DMA-001, G1-DMA-005.
#[test]
fn what_goes_through_the_smmu_does_not_reach_all_memory() {
    let reaches = |board: Tree| {
        let flat = board.flatten();
        let manifest = gearv_manifest::Manifest::EMPTY;
        let masters: Vec<String> = bus_masters(&manifest, &Blob::new(flat.as_slice()).unwrap());
        masters.iter().any(|master| master == CLOCK)
    };
    let behind = |gic: &[u8]| {
        with_smmu(tree(gic))
            .set(CLOCK, "iommus", cells(&[PHANDLE, 7]))
            .set(CLOCK, "dma-coherent", Vec::new())
    };
    assert!(!reaches(behind(VIRT_GICV2)));
    assert!(reaches(behind(VIRT_GICV3)), "nobody drives it");
    let off = behind(VIRT_GICV2).set(SMMU, "status", text("disabled"));
    assert!(reaches(off), "nobody drives it");
    let mut case = case(&[7]);
    case.manifest = case
        .manifest
        .set(RT, "devices", text("/pl061@9030000"))
        .set("/vms/linux", "devices", text(CLOCK));
    case.board = case.board.set(CLOCK, "compatible", text("acme,dma"));
    case.booted();
    case.board = case.board.set(SMMU, "status", text("disabled"));
    assert!(case.refused().contains("M-DEV-011"));
}

/// Requirement: G1-DMA-001.
#[test]
fn the_smmu_is_no_vms() {
    let mut case = case(&[7]);
    case.manifest = case.manifest.set(RT, "devices", text(SMMU));
    let refused = case.refused();
    assert!(
        refused.contains("M-DEV-008") && refused.contains("it is Gear1's"),
        "{refused}"
    );
}
