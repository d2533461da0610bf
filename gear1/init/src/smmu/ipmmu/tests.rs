//! An IPMMU through the whole of init, on QEMU's `virt` with a GICv2 and an IPMMU that QEMU does not
//! have: a main unit, two cache units, and one whose power domain may be off.
//!
//! Requirements: G1-DMA-001, G1-DMA-002, G1-DMA-005, G1-DMA-006, G1-DMA-008.

use alloc::vec::Vec;
use std::string::{String, ToString};

use gear1_abi::boot::{BootStreams, IrqOwner};
use gear1_abi::layout::el2;
use gearv_manifest::blob::Blob;

use super::settle;
use crate::devices::bus_masters;
use crate::fdt;
use crate::prepare::tests::{Case, stage2};
use crate::region::Region;
use crate::testing::{FakeMemory, VIRT_GICV2, VIRT_GICV3, mappings, tree};
use crate::trees::{Tree, cells, text};

const RT: &str = "/vms/rt";
const CLOCK: &str = "/pl031@9010000";
const LINES: &str = "/pl061@9030000";
const MAIN: &str = "/iommu@9050000";
/// Cache units; the last one is in a power domain of its own.
const CACHES: [&str; 3] = ["/iommu@9051000", "/iommu@9053000", "/iommu@9052000"];
const PRODUCT: &str = "/chipid@9300044";
const MAIN_PHANDLE: u32 = 0x8100;
const PHANDLES: [u32; 3] = [0x8101, 0x8103, 0x8102];
const DOMAINS: [u32; 3] = [32, 32, 24];
const H3_ES3_0: u64 = 0x4f20;
const H3_ES2_0: u64 = 0x4f10;
/// Addresses of the units that Gear1 drives, less that of the main one.
const UNITS: [u64; 3] = [0, 0x1000, 0x3000];
/// IMTTBCR of all tables here: long descriptors, no stage 1, level 1, 40 bits.
const SHAPE: u64 = 1 << 31 | 1 << 30 | 1 << 6 | 24;

/// A change of a board's tree.
type Change = fn(Tree) -> Tree;

/// Adds the IPMMU.
fn with_ipmmu(board: Tree) -> Tree {
    let unit = |board: Tree, path: &str, at: u32, phandle: u32, domain: u32| {
        board
            .set(path, "compatible", text("renesas,ipmmu-r8a7795"))
            .set(path, "reg", cells(&[0, at, 0, 0x1000]))
            .set(path, "power-domains", cells(&[0x8110, domain]))
            .set(path, "phandle", cells(&[phandle]))
            .set(path, "#iommu-cells", cells(&[1]))
    };
    let mut board = unit(board, MAIN, 0x905_0000, MAIN_PHANDLE, 32).set(
        MAIN,
        "interrupts",
        cells(&[0, 155, 4, 0, 156, 4]),
    );
    for (index, path) in CACHES.into_iter().enumerate() {
        let at = u32::from_str_radix(&path[7..], 16).unwrap();
        board = unit(board, path, at, PHANDLES[index], DOMAINS[index]).set(
            path,
            "renesas,ipmmu-main",
            cells(&[MAIN_PHANDLE, index as u32]),
        );
    }
    board.set(PRODUCT, "compatible", text("renesas,prr")).set(
        PRODUCT,
        "reg",
        cells(&[0, 0x930_0044, 0, 4]),
    )
}

/// A machine whose clock is a real-time VM's, and masters the bus by micro-TLBs: a cache unit, and
/// the number in it.
fn case(micro_tlbs: &[(usize, u32)]) -> Case {
    let mut case = Case::new();
    case.has_ipmmu = true;
    case.registers = alloc::vec![(0x930_0044, H3_ES3_0)];
    case.manifest = case
        .manifest
        .set("/vms/linux", "vcpus", cells(&[1]))
        .set(RT, "kind", text("real-time"))
        .set(RT, "cpus", cells(&[1]))
        .set(RT, "memory-mib", cells(&[4]))
        .set(RT, "image", text("guest.bin"))
        .set(RT, "devices", text(CLOCK));
    case.board = with_ipmmu(tree(VIRT_GICV2)).set(CLOCK, "iommus", iommus(micro_tlbs));
    case
}

/// Returns the property by which a device names its micro-TLBs.
fn iommus(micro_tlbs: &[(usize, u32)]) -> Vec<u8> {
    let cells_of = |(unit, number): &(usize, u32)| [PHANDLES[*unit], *number];
    let list: Vec<u32> = micro_tlbs.iter().flat_map(cells_of).collect();
    cells(&list)
}

/// Gives a device VM the PL061, which has a micro-TLB too.
fn with_second(mut case: Case, micro_tlbs: &[(usize, u32)]) -> Case {
    case.manifest = case.manifest.set("/vms/linux", "kind", text("device")).set(
        "/vms/linux",
        "devices",
        text(LINES),
    );
    case.board = case.board.set(LINES, "iommus", iommus(micro_tlbs));
    case
}

fn written(memory: &FakeMemory, offset: u64) -> u64 {
    memory.smmu.written.get(&offset).copied().unwrap_or(0)
}

/// Follows a micro-TLB through the registers, and returns root and context.
fn translated(memory: &FakeMemory, unit: u64, number: u64) -> (u64, u64) {
    let get = |offset: u64| written(memory, offset);
    let first = if number < 32 { 0x300 } else { 0x600 };
    let control = get(unit + first + number % 32 * 16);
    assert_ne!(control & 1, 0, "{unit:#x} {number} passes");
    let context = control >> 4 & 0xf;
    let at = context * 0x40;
    assert_ne!(get(at) & get(unit + at) & 1, 0, "{unit:#x} {number} passes");
    assert_ne!(get(at) & 1 << 29, 0, "tables of AArch64");
    assert_eq!((get(0x504) & 8, get(at + 8)), (8, SHAPE));
    (get(at + 0x14) << 32 | get(at + 0x10), context)
}

/// All micro-TLBs of the units that Gear1 drives, with the stream of each.
fn micro_tlbs() -> impl Iterator<Item = (u64, u64, u64)> {
    let units = UNITS.into_iter().zip(0..).skip(1);
    units.flat_map(|(at, unit)| (0..48).map(move |number| (at, number, unit * 64 + number)))
}

/// Returns the root of the empty table, which is in memory.
fn empty_root(memory: &FakeMemory) -> u64 {
    let root = translated(memory, UNITS[1], 47).0;
    assert_eq!(memory.read(root, 0x2000), [0; 0x2000]);
    let pages = [root / 4096, root / 4096 + 1];
    assert!(!pages.iter().any(|page| memory.dirty.contains(page)));
    root
}

/// Requirement: G1-DMA-001.
#[test]
fn the_empty_table_is_nobodys() {
    let (prepared, memory, _) = case(&[(0, 16)]).run();
    let root = empty_root(&memory);
    let prepared = prepared.unwrap();
    let is_free = |region: &Region| region.contains(&Region::new(root, root + 0x2000));
    assert!(!prepared.left.iter().any(is_free), "{:x?}", prepared.left);
    let info = &memory.boot_info.as_ref().unwrap().1;
    let gear1 = [(info.pool, info.pool_size), (info.image, 0x10_0000)];
    let regions = info.vms.iter().flat_map(|vm| vm.regions);
    let regions = regions.map(|region| (region.pa, region.size));
    for (start, size) in regions.chain(gear1) {
        assert!(!(start..start + size).contains(&root), "{start:#x}");
    }
}

/// Requirements: G1-DMA-001, G1-DMA-008.
#[test]
fn a_device_has_its_own_micro_tlbs_and_no_others() {
    let (memory, info) = case(&[(0, 16), (0, 17), (1, 40)]).booted();
    let empty = empty_root(&memory);
    for (unit, number, stream) in micro_tlbs() {
        let (root, context) = translated(&memory, unit, number);
        let is_own = [80, 81, 168].contains(&stream);
        assert_eq!((root != empty, context == 3), (is_own, is_own), "{stream}");
    }
    let smmu = &info.smmu;
    let expected = [(3, 1), (80, 2), (168, 1)].map(|(first, count)| BootStreams {
        first,
        count,
        vm: 2,
    });
    assert_eq!(smmu.streams[..3], expected);
    assert_eq!(smmu.streams[3], BootStreams::default());
    // The first interrupt, of the non-secure world, by level.
    assert_eq!((smmu.registers, smmu.size), (0x905_0000, 0x3000));
    assert_eq!((smmu.units, smmu.banks, smmu.intid), (3, 1, 187));
    assert_eq!(smmu.patience, 62_500_000);
    assert_eq!(info.irq_owner[187], IrqOwner::GEAR2);
    assert_eq!(info.irq_edge[5] >> 27 & 1, 0);
    // The unit whose power domain may be off is not touched.
    let touched = |offset: &u64| (0x2000..0x3000).contains(offset);
    assert!(!memory.smmu.written.keys().any(touched));
}

/// Devices have all that the VM's CPUs have, but for the CPU interface of a GICv2, in memory.
///
/// Requirement: G1-DMA-006.
#[test]
fn a_device_does_not_reach_the_cpu_interface() {
    let (memory, info) = case(&[(0, 16)]).booted();
    let (root, _) = translated(&memory, UNITS[1], 16);
    let mut cpus = stage2(&memory, info.vms[2].root);
    let hidden = cpus.extract_if(.., |leaf| leaf.input == 0x801_0000);
    assert_eq!(hidden.count(), 1);
    assert_eq!(stage2(&memory, root), cpus);
    let pool = info.pool / 4096..(info.pool + info.pool_used) / 4096;
    assert!(pool.contains(&(root / 4096)));
    assert!(!memory.dirty.iter().any(|page| pool.contains(page)));
}

/// Requirements: G1-DMA-001, G1-DMA-002.
#[test]
fn each_vm_has_a_context_and_one_that_is_not_loaded_an_empty_one() {
    let mut case = with_second(case(&[(0, 16)]), &[(0, 15), (1, 2)]);
    let contexts = |case: &Case| {
        let (memory, info) = case.booted();
        let of = |unit: usize, number| translated(&memory, UNITS[unit], number);
        let found = [of(1, 15), of(1, 16), of(2, 2), of(1, 14)];
        (found, info)
    };
    let (found, info) = contexts(&case);
    // The device VM is loaded behind the real-time VM's start.
    assert!(!info.vms[0].loaded && info.vms[2].loaded);
    assert_eq!(found.map(|(_, context)| context), [2, 4, 2, 1]);
    assert_eq!(found[0].0, found[3].0, "an empty table");
    assert_ne!(found[0].0, found[1].0);
    let owners = [(3, 0), (79, 0), (130, 0), (4, 2), (80, 2)];
    let told = info.smmu.streams.map(|range| (range.first, range.vm));
    assert_eq!(told[..5], owners);
    assert_eq!(info.smmu.banks, 2);
    case.manifest = case.manifest.set(RT, "no-autostart", Vec::new());
    let (found, info) = contexts(&case);
    assert!(info.vms[0].loaded && !info.vms[2].loaded);
    assert_eq!(found.map(|(_, context)| context), [3, 2, 3, 1]);
    assert_eq!(found[1].0, found[3].0, "an empty table");
}

/// Nobody owns a micro-TLB: nothing gets through.
///
/// Requirement: G1-DMA-001.
#[test]
fn without_an_owner_everything_aborts() {
    let mut case = case(&[(0, 16)]);
    case.manifest = case.manifest.set(RT, "devices", text(LINES));
    let (memory, info) = case.booted();
    assert_eq!(info.smmu, Default::default());
    let empty = empty_root(&memory);
    for (unit, number, stream) in micro_tlbs() {
        assert_eq!(translated(&memory, unit, number), (empty, 1), "{stream}");
    }
}

/// Requirement: G1-DMA-001.
#[test]
fn the_runtime_has_the_units_side_by_side() {
    let (prepared, memory, _) = case(&[(0, 16)]).run();
    let mapped = mappings(&memory, prepared.unwrap().root.get(), 512, 39);
    let at = |va: u64| {
        let leaf = mapped.iter().find(|leaf| leaf.input == va);
        leaf.map(|leaf| leaf.output.start)
    };
    let pages = [0, 1, 2, 3].map(|page| at(el2::SMMU + page * 0x1000));
    assert_eq!(
        pages,
        [Some(0x905_0000), Some(0x905_1000), Some(0x905_3000), None]
    );
}

/// Requirements: G1-DMA-001, G1-DMA-006, G1-DMA-008.
#[test]
fn what_an_ipmmu_cannot_keep_is_refused() {
    let path = "device tree: /iommu@9050000: ";
    let mut peers = with_second(case(&[(0, 16)]), &[(0, 15)]);
    peers.manifest = peers.manifest.set("/vms/linux", "ffa-peers", text("flat"));
    let mut hung = case(&[(0, 16)]);
    hung.smmu_hangs = true;
    // The bit does not stay.
    let mut unfit = case(&[(0, 16)]);
    unfit.smmu.insert(0x504, 0);
    let mut many = case(&[(0, 16)]);
    let numbers: Vec<(usize, u32)> = (0..16).map(|number| (0, number * 2)).collect();
    many.board = many.board.set(CLOCK, "iommus", iommus(&numbers));
    let owns = "a VM owns devices behind it, and ";
    let cases = [
        (peers, owns, "linux has ffa-peers: what devices of an IPMMU"),
        (hung, "", "the SMMU does not answer"),
        (unfit, owns, "it has no stage 2 by"),
        (
            many,
            "",
            "17 contexts and ranges of micro-TLBs of VMs; 16 fit",
        ),
    ];
    for (case, owns, what) in cases {
        let refused = case.refused();
        let expected = std::format!("{path}{owns}{what}");
        assert!(refused.starts_with(&expected), "{refused}");
    }
}

/// Tells whether a guest needs `trusts-dma` for a device that no IPMMU keeps back.
fn is_refused_to_a_guest(change: impl Fn(&mut Case)) -> bool {
    let mut case = case(&[]);
    case.manifest =
        case.manifest
            .set(RT, "devices", text(LINES))
            .set("/vms/linux", "devices", text(CLOCK));
    case.board = case.board.set(CLOCK, "compatible", text("acme,dma"));
    change(&mut case);
    let (prepared, memory, _) = case.run();
    match prepared {
        Ok(_) => {
            assert!(!memory.smmu.written.is_empty());
            false
        }
        Err(refused) => {
            assert!(refused.contains("M-DEV-011"), "{refused}");
            true
        }
    }
}

/// Requirements: G1-DMA-005, G1-DMA-008.
#[test]
fn what_goes_by_no_driven_micro_tlb_reaches_all_memory() {
    let with = |micro_tlbs: &[(usize, u32)]| {
        let iommus = iommus(micro_tlbs);
        is_refused_to_a_guest(|case| {
            case.board = case.board.clone().set(CLOCK, "iommus", iommus.clone());
        })
    };
    assert!(!with(&[(0, 16)]));
    assert!(!with(&[(0, 47), (1, 0)]));
    // A unit that may be off, another beside it, and a number that no unit has.
    assert!(with(&[(2, 16)]));
    assert!(with(&[(0, 16), (2, 16)]));
    assert!(with(&[(0, 48)]));
    assert!(is_refused_to_a_guest(|case| {
        let main = cells(&[MAIN_PHANDLE, 3]);
        case.board = case.board.clone().set(CLOCK, "iommus", main);
    }));
}

/// An IPMMU of a revision without stage 2, or of an unknown one, is as it was before Gear1 drove
/// any. So is one beside a GICv3, whose runtime has no driver of it, and one whose main unit is off.
///
/// Requirement: G1-DMA-008.
#[test]
fn an_ipmmu_that_nobody_drives_is_not_touched() {
    let changes: [fn(&mut Case); 4] = [
        |case| case.registers = alloc::vec![(0x930_0044, H3_ES2_0)],
        |case| {
            let status = text("disabled");
            case.board = case.board.clone().set(PRODUCT, "status", status);
        },
        |case| case.board = with_ipmmu(tree(VIRT_GICV3)).set(CLOCK, "iommus", iommus(&[(0, 16)])),
        |case| case.board = case.board.clone().set(MAIN, "status", text("disabled")),
    ];
    for change in changes {
        let mut case = case(&[(0, 16)]);
        change(&mut case);
        let (memory, info) = case.booted();
        assert!(memory.smmu.written.is_empty());
        assert_eq!(info.smmu, Default::default());
    }
    assert!(is_refused_to_a_guest(|case| {
        case.registers = alloc::vec![(0x930_0044, H3_ES2_0)];
        let iommus = iommus(&[(0, 16)]);
        case.board = case.board.clone().set(CLOCK, "iommus", iommus);
    }));
}

/// Requirement: G1-DMA-008.
#[test]
fn init_says_whether_gear1_drives_the_ipmmu() {
    let said = |product: Option<u64>, change: Change| {
        let board = change(with_ipmmu(tree(VIRT_GICV2)));
        let mut board = fdt::read(board.flatten().as_slice()).board.unwrap();
        let mut memory = FakeMemory::default();
        memory
            .registers
            .extend(product.map(|value| (0x930_0044, value)));
        let said = settle(&mut board, &memory);
        (said, board.smmu.is_some())
    };
    let left = "/iommu@9050000: left alone, bus masters reach all memory: ";
    let cases: [(Option<u64>, Change, bool, String); 3] = [
        (
            Some(H3_ES3_0),
            |board| board,
            true,
            "/iommu@9050000: Gear1 drives this IPMMU with 2 cache units; 1 are left alone".into(),
        ),
        (
            Some(H3_ES2_0),
            |board| board,
            false,
            std::format!("{left}no stage 2 in this SoC (0x4f10)"),
        ),
        (
            None,
            |board| board.set(PRODUCT, "status", text("disabled")),
            false,
            std::format!("{left}no \"renesas,prr\" tells the SoC's revision"),
        ),
    ];
    for (product, change, is_driven, text) in cases {
        assert_eq!(said(product, change), (Some(text), is_driven));
    }
    let no_ipmmu: Change = |board| board.set(MAIN, "status", text("disabled"));
    assert_eq!(said(None, no_ipmmu), (None, false));
}

/// `check` reads a tree, which does not tell the revision: it warns of what is behind an IPMMU.
///
/// Requirement: G1-DMA-008.
#[test]
fn check_warns_of_what_is_behind_an_ipmmu() {
    let board = with_ipmmu(tree(VIRT_GICV2)).set(CLOCK, "iommus", iommus(&[(0, 16)]));
    let flat = board.flatten();
    let manifest = gearv_manifest::Manifest::EMPTY;
    let masters = bus_masters(&manifest, &Blob::new(flat.as_slice()).unwrap());
    assert!(masters.iter().any(|master| master == CLOCK));
}

/// A VM with a unit's registers could lead a micro-TLB to another VM's context.
///
/// Requirement: G1-DMA-001.
#[test]
fn no_unit_is_a_vms() {
    for path in [MAIN, CACHES[0], CACHES[2]] {
        let mut case = case(&[(0, 16)]);
        case.manifest = case.manifest.set(RT, "devices", text(path));
        let refused = case.refused();
        let expected = "it decides what bus masters reach";
        assert!(
            refused.contains("M-DEV-008") && refused.contains(expected),
            "{refused}"
        );
        // Nor by the registers of another node.
        let mut case = self::case(&[(0, 16)]);
        let at = u32::from_str_radix(&path[7..], 16).unwrap();
        let registers = cells(&[0, at, 0, 0x1000]);
        case.board = case.board.set(CLOCK, "reg", registers);
        let refused = case.refused();
        assert!(refused.contains("registers of the SMMU"), "{refused}");
    }
}

/// Requirement: G1-DMA-008.
#[test]
fn a_damaged_node_is_refused_where_it_matters() {
    let refused = |change: Change, gic: &[u8]| -> Option<String> {
        let board = change(with_ipmmu(tree(gic)));
        let board = fdt::read(board.flatten().as_slice()).board;
        board.err().map(|refusal| refusal.to_string())
    };
    let cases: [(Change, &str); 5] = [
        (
            |board| board.set(CACHES[0], "reg", cells(&[0, 0x905_1000, 0, 0x800])),
            "/iommu@9051000: reg: not a page of 4 KiB, as a unit of an IPMMU has it",
        ),
        (
            |board| board.set(MAIN, "#iommu-cells", cells(&[2])),
            "/iommu@9050000: #iommu-cells: not 1, as an IPMMU names micro-TLBs",
        ),
        (
            |board| board.set(PRODUCT, "reg", cells(&[0])),
            "/chipid@9300044: reg: missing, or not whole addresses and sizes",
        ),
        (
            |board| {
                let second = "/iommu@9054000";
                let compatible = text("renesas,ipmmu-r8a7795");
                board
                    .set(second, "compatible", compatible)
                    .set(second, "reg", cells(&[0, 0x905_4000, 0, 0x1000]))
                    .set(second, "#iommu-cells", cells(&[1]))
            },
            "a second main unit of an IPMMU, beside /iommu@9050000",
        ),
        (
            |board| {
                let second = "/smmu@9060000";
                board
                    .set(second, "compatible", text("arm,mmu-500"))
                    .set(second, "reg", cells(&[0, 0x906_0000, 0, 0x1_0000]))
                    .set(second, "#iommu-cells", cells(&[1]))
            },
            "/iommu@9050000: a second SMMU, beside /smmu@9060000: one is supported",
        ),
    ];
    for (change, what) in cases {
        let message = refused(change, VIRT_GICV2).unwrap();
        assert!(message.contains(what), "{message}");
        assert_eq!(refused(change, VIRT_GICV3), None);
    }
}
