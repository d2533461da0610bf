//! Requirements: G1-BOOT-002, G1-BOOT-008, G1-BOOT-012, G1-SUP-004.

use alloc::string::{String, ToString};
use alloc::vec::Vec;
use std::collections::HashMap;

use gear1_abi::boot::{BootInfo, EnableMethod, IrqOwner};
use gear1_abi::image::{GEAR2_MAGIC, RUNTIME_MAGIC};
use gear1_abi::layout::{PAGE_SIZE, el2, gear2};
use gear1_core::sve::Lengths;

use super::{Given, HandOver, prepare};
use crate::fdt;
use crate::region::Region;
use crate::smmu::ipmmu;
use crate::testing::{
    FakeBus, FakeMemory, Files, Mapping, VIRT_GICV2, VIRT_GICV3, flat_image, guest_tree, kernel,
    mappings, tree,
};
use crate::trees::{Aligned, Tree, cells, smallest, text};
use crate::vm;
use gearv_manifest::blob::Blob;

mod loading;
use self::loading::seed_of;

const MIB: u64 = 1 << 20;
const KERNEL: &str = "artifact:debian-kernel";
const INIT: Region = Region::new(0x4020_0000, 0x4030_0000);
const DEVICE_TREE: Region = Region::new(0x4a00_0000, 0x4a00_2000);
const WRITE: u64 = 1 << 7;
const NEVER_EXECUTE: u64 = 1 << 54;

/// Inputs of a boot.
pub(crate) struct Case {
    pub(crate) board: Tree,
    pub(crate) manifest: Tree,
    files: Files,
    runtime: Vec<u8>,
    boot_cpu: u64,
    /// Registers of devices, with the last value of each.
    pub(crate) registers: Vec<(u64, u64)>,
    /// Identification registers of the SMMU that differ from QEMU's.
    pub(crate) smmu: HashMap<u64, u32>,
    /// The SMMU does not answer.
    pub(crate) smmu_hangs: bool,
    /// The SMMU is an SMMUv2.
    pub(crate) has_smmu_v2: bool,
    /// The SMMU is an IPMMU.
    pub(crate) has_ipmmu: bool,
    /// The first PCI bus; without one there is no machine to ask.
    pub(crate) pci: Option<FakeBus>,
}

/// Files of a Linux guest, of a flat one and of Gear2.
fn two_guests() -> Files {
    let guest = guest_tree().flatten();
    Files::default()
        .with("gear2.bin", &flat_image(GEAR2_MAGIC, gear2::IMAGE))
        .with(KERNEL, &kernel(0, 2 * MIB, 5000))
        .with("guest.bin", &[0x33; 100])
        .with("dtb/linux", guest.as_slice())
        .with("dtb/flat", guest.as_slice())
}

impl Case {
    /// Two guests: one Linux, one flat with an address of its own and without autostart.
    pub(crate) fn new() -> Self {
        Self {
            board: tree(VIRT_GICV3),
            manifest: smallest()
                .set("/vms/linux", "memory-mib", cells(&[4]))
                .set("/vms/linux", "vcpus", cells(&[2]))
                .set("/vms/flat", "memory-mib", cells(&[4]))
                .set("/vms/flat", "memory-address", cells(&[0, 0x6000_0000]))
                .set("/vms/flat", "image", text("guest.bin")),
            files: two_guests(),
            runtime: flat_image(RUNTIME_MAGIC, el2::RUNTIME),
            boot_cpu: 0,
            registers: Vec::new(),
            smmu: HashMap::new(),
            smmu_hangs: false,
            has_smmu_v2: false,
            has_ipmmu: false,
            pci: None,
        }
    }

    /// Boots a machine that nothing is wrong with, and returns what the runtime is told.
    pub(crate) fn booted(&self) -> (FakeMemory, BootInfo) {
        let (prepared, memory, _) = self.run();
        prepared.unwrap();
        let info = *memory.boot_info.as_ref().unwrap().1;
        (memory, info)
    }

    pub(crate) fn run(&self) -> (Result<HandOver, String>, FakeMemory, Vec<u8>) {
        let files = self
            .files
            .clone()
            .with("manifest.dtb", self.manifest.flatten().as_slice());
        let archive = Aligned::new(&files.pack());
        let blob = self.board.flatten();
        let mut board = fdt::read(blob.as_slice()).board.unwrap();
        board.archive.end = board.archive.start + archive.as_slice().len() as u64;
        let mut memory = FakeMemory::new(board.gic.gicr, &[0, 1]);
        memory.registers.extend(self.registers.iter().copied());
        memory.smmu.id.clone_from(&self.smmu);
        memory.smmu.is_hung = self.smmu_hangs;
        memory.smmu.is_v2 = self.has_smmu_v2;
        memory.smmu.is_ipmmu = self.has_ipmmu;
        memory.pci.clone_from(&self.pci);
        ipmmu::settle(&mut board, &memory);
        let mut index = Vec::new();
        let given = Given {
            board: &board,
            archive: archive.as_slice(),
            runtime: &self.runtime,
            init: INIT,
            device_tree: DEVICE_TREE,
            tree: fdt::indexed(blob.as_slice(), &mut index, fdt::BOARD_NODES).unwrap(),
            boot_cpu: self.boot_cpu,
            pa_range: 4,
            counter_hz: 62_500_000,
            vector_lengths: || Lengths::from_bits(0b1011),
        };
        let prepared = prepare(&given, &mut memory).map_err(|refusal| refusal.to_string());
        (prepared, memory, archive.as_slice().to_vec())
    }

    pub(crate) fn refused(&self) -> String {
        self.run().0.unwrap_err()
    }
}

fn booted() -> (HandOver, FakeMemory, BootInfo) {
    let (prepared, memory, _) = Case::new().run();
    let info = *memory.boot_info.as_ref().unwrap().1;
    (prepared.unwrap(), memory, info)
}

pub(crate) fn stage2(memory: &FakeMemory, root: u64) -> Vec<Mapping> {
    mappings(memory, root, 1024, 30)
}

fn pages(mappings: &[Mapping]) -> impl Iterator<Item = u64> {
    mappings
        .iter()
        .flat_map(|leaf| (leaf.output.start..leaf.output.end).step_by(PAGE_SIZE as usize))
}

#[test]
fn the_boot_information_is_complete() {
    let (hand_over, _, info) = booted();
    assert_eq!((info.cpu_count, info.vm_count, info.vcpu_count), (2, 2, 3));
    assert_eq!(info.enable_method, EnableMethod::PsciSmc);
    assert!(info.cpus[0].gear2 && info.cpus[1].gear2 && info.cpus[1].mpidr == 1);
    assert_eq!(
        (info.ttbr0_el2, hand_over.entry.get()),
        (hand_over.root.get(), el2::RUNTIME + 0x100)
    );
    assert_eq!((info.tcr_el2, info.vtcr_el2), (0x8084_3510, 0x8002_3558));
    assert_eq!(info.boot_page, info.image + PAGE_SIZE);
    assert_eq!((info.init, info.init_size), (INIT.start, INIT.bytes()));
    assert!(info.pool_used <= info.pool_size && info.pool_used != 0);
    assert_eq!(info.irq_owner[33], IrqOwner::GEAR2);
    assert_eq!(
        info.irq_owner
            .iter()
            .filter(|owner| **owner != IrqOwner::NONE)
            .count(),
        1
    );
    assert_eq!(info.owner_cpu[..3], [0, 1, 0]);
    let [linux, flat, ..] = info.vms;
    assert_eq!(
        (linux.first_vcpu, linux.vcpu_count, flat.first_vcpu),
        (0, 2, 2)
    );
    assert_eq!(
        (info.gear2.vmid, linux.vmid, flat.vmid, info.null_vmid),
        (1, 2, 3, 255)
    );
    assert_eq!((linux.gicd_ipa, linux.gicr_ipa), (0x800_0000, 0x80a_0000));
    assert_eq!(flat.regions[0].pa, 0x6000_0000);
    assert_eq!(linux.argument, linux.regions[0].ipa + 4 * MIB - 0x1_0000);
}

/// G1-MEM-001, G1-MEM-003: EL2 maps nothing writable and executable, and no guest's memory.
#[test]
fn the_runtime_maps_only_its_own() {
    let (hand_over, memory, info) = booted();
    let mapped = mappings(&memory, hand_over.root.get(), 512, 39);
    for leaf in &mapped {
        let executable = leaf.descriptor & NEVER_EXECUTE == 0;
        assert!(!executable || leaf.descriptor & WRITE != 0, "{leaf:x?}");
        let in_image =
            leaf.output.start >= info.image && leaf.output.end <= info.image + 2 * PAGE_SIZE;
        assert!(!executable || in_image, "{leaf:x?}");
        for vm in &info.vms[..2] {
            let region = Region::new(vm.regions[0].pa, vm.regions[0].pa + vm.regions[0].size);
            assert!(!region.overlaps(&leaf.output), "{leaf:x?}");
        }
    }
    let at = |va: u64| {
        mapped
            .iter()
            .find(|leaf| leaf.input == va)
            .map(|leaf| leaf.output.start)
    };
    assert_eq!(
        at(el2::BOOT_INFO),
        Some(memory.boot_info.as_ref().unwrap().0)
    );
    assert_eq!(at(info.boot_page), Some(info.boot_page));
    assert_eq!(at(el2::GICD), Some(0x800_0000));
    assert_eq!(at(el2::GICR + 0x2_0000), Some(0x80c_0000));
    assert_eq!(at(el2::GICR + 0x4_0000), None);
    assert_eq!(at(el2::UART), Some(0x900_0000));
    for cpu in 0..2 {
        let top = el2::STACKS + (cpu + 1) * el2::STACK_STRIDE;
        assert!(at(top - PAGE_SIZE).is_some() && at(top - el2::STACK_SIZE).is_some());
        assert_eq!(
            (at(top - el2::STACK_SIZE - PAGE_SIZE), at(top)),
            (None, None)
        );
        assert!(at(el2::WINDOW_TABLES + cpu * PAGE_SIZE).is_some());
        assert_eq!(at(el2::WINDOWS + cpu * el2::WINDOW_STRIDE), None);
    }
}

/// G1-TIM-007: a VM reads its own page of stolen time, which Gear1 writes.
#[test]
fn stolen_time_is_told_to_its_vm_only() {
    let (hand_over, memory, info) = booted();
    let at_el2 = mappings(&memory, hand_over.root.get(), 512, 39);
    let stolen_time = info.vms[..2].iter().map(|vm| vm.stolen_time_ipa);
    for (page, index) in stolen_time.zip(0..) {
        let leaf_of = |root: u64| {
            let leaves = stage2(&memory, root);
            leaves.into_iter().find(|leaf| leaf.output.start == page)
        };
        for (vm, root) in info.vms[..2].iter().zip(0..) {
            let leaf = leaf_of(vm.root);
            assert_eq!(leaf.is_some(), root == index);
            if let Some(leaf) = leaf {
                assert_eq!((leaf.input, leaf.output.bytes()), (page, PAGE_SIZE));
                assert_eq!(leaf.descriptor & WRITE, 0);
                assert_ne!(leaf.descriptor & NEVER_EXECUTE, 0);
            }
        }
        let va = el2::STOLEN_TIME + index * PAGE_SIZE;
        let own = at_el2.iter().find(|leaf| leaf.input == va);
        assert_eq!(own.map(|leaf| leaf.output.start), Some(page));
        assert_eq!(memory.read(page, 4096), [0; 4096]);
    }
}

/// G1-SUP-004: a real-time VM writes the page that Gear1 reads, at the manifest's address, and
/// nobody else has the page.
#[test]
fn a_heartbeat_is_its_vms_only() {
    let mut case = Case::new();
    case.manifest = case
        .manifest
        .set("/gear2", "cpus", cells(&[0]))
        .set("/vms/flat", "kind", text("real-time"))
        .set("/vms/flat", "cpus", cells(&[1]))
        .set("/vms/flat", "watchdog-ms", cells(&[10]))
        .set("/vms/flat", "watchdog-address", cells(&[1, 0]));
    let (prepared, memory, _) = case.run();
    let root = prepared.unwrap().root.get();
    let info = *memory.boot_info.as_ref().unwrap().1;
    // 10 ms of a counter of 62.5 MHz; the guest has none.
    assert_eq!([0, 1].map(|vm: usize| info.vms[vm].heartbeat), [0, 625_000]);
    let at_el2 = mappings(&memory, root, 512, 39);
    let va = el2::STOLEN_TIME + PAGE_SIZE;
    let page = at_el2.iter().find(|leaf| leaf.input == va);
    let page = page.unwrap().output.start;
    for (vm, has_it) in [(0, false), (1, true)] {
        let leaves = stage2(&memory, info.vms[vm].root);
        let leaf = leaves.iter().find(|leaf| leaf.output.start == page);
        assert_eq!(leaf.is_some(), has_it);
        if let Some(leaf) = leaf {
            assert_eq!((leaf.input, leaf.output.bytes()), (1 << 32, PAGE_SIZE));
            assert_ne!(leaf.descriptor & WRITE, 0);
            assert_ne!(leaf.descriptor & NEVER_EXECUTE, 0);
        }
    }
}

/// G1-MEM-004: no page is mapped by two stage 2 trees, or by one of them and Gear1, but those with
/// stolen time.
#[test]
fn every_page_has_one_owner() {
    let (hand_over, memory, info) = booted();
    let stolen_time = info.vms[..2].iter().map(|vm| vm.stolen_time_ipa);
    let stolen_time: Vec<u64> = stolen_time.collect();
    let roots = [info.gear2.root, info.vms[0].root, info.vms[1].root];
    let mut owners: HashMap<u64, usize> = HashMap::new();
    let uart = 0x900_0000;
    for (owner, root) in roots.into_iter().enumerate() {
        for page in pages(&stage2(&memory, root)) {
            assert_eq!(owners.insert(page, owner), None, "page {page:#x}");
        }
    }
    for page in
        pages(&mappings(&memory, hand_over.root.get(), 512, 39)).filter(|page| *page != uart)
    {
        let is_own = !owners.contains_key(&page) || stolen_time.contains(&page);
        assert!(is_own, "page {page:#x} is Gear1's");
    }
    for reserved in [INIT, DEVICE_TREE] {
        assert!(
            !owners
                .keys()
                .any(|page| reserved.start <= *page && *page < reserved.end)
        );
    }
    assert!(stage2(&memory, info.null_root).is_empty());
}

#[test]
fn gear2_sees_what_its_layout_says() {
    let (_, memory, info) = booted();
    let mapped = stage2(&memory, info.gear2.root);
    let rights = |ipa: u64| {
        let leaf = mapped.iter().find(|leaf| leaf.input == ipa)?;
        Some((
            leaf.descriptor & WRITE != 0,
            leaf.descriptor & NEVER_EXECUTE == 0,
        ))
    };
    assert_eq!(rights(gear2::IMAGE), Some((false, true)));
    assert_eq!(rights(gear2::IMAGE + 2 * PAGE_SIZE), Some((false, false)));
    assert_eq!(rights(gear2::IMAGE + 3 * PAGE_SIZE), Some((true, false)));
    assert_eq!(rights(gear2::IMAGE + 4 * PAGE_SIZE), Some((true, false)));
    assert_eq!(rights(gear2::IMAGE + 5 * PAGE_SIZE), None);
    assert_eq!(rights(gear2::INFO), Some((false, false)));
    assert_eq!(rights(gear2::MANIFEST), Some((false, false)));
    assert_eq!(rights(gear2::HEAP), Some((true, false)));
    assert_eq!(rights(gear2::UART), Some((true, false)));
    assert_eq!(
        rights(gear2::STACKS + gear2::STACK_STRIDE - PAGE_SIZE),
        Some((true, false))
    );
    assert_eq!(
        rights(gear2::STACKS + gear2::STACK_STRIDE - gear2::STACK_SIZE - PAGE_SIZE),
        None
    );
    let found = memory.gear2_info.unwrap().1;
    assert_eq!(
        (found.cpu_mask, found.vm_count, found.counter_hz),
        (3, 2, 62_500_000)
    );
    assert_eq!(
        (found.first_vcpu[..2].to_vec(), found.heap_size),
        ([0, 2].to_vec(), 4 * MIB)
    );
}

#[test]
fn a_guest_finds_its_payload_and_zeroes_and_nothing_in_caches() {
    let (prepared, memory, archive) = Case::new().run();
    prepared.unwrap();
    let info = *memory.boot_info.as_ref().unwrap().1;
    let vm = info.vms[0];
    let [region, ..] = vm.regions;
    assert!(vm.loaded && region.size == 4 * MIB && region.ipa == region.pa);
    let bytes = memory.read(region.pa, region.size as usize);
    let mut expected = std::vec![0; region.size as usize];
    for load in vm.loads.iter().filter(|load| load.size != 0) {
        let at = (load.destination - region.pa) as usize;
        let end = at + load.size as usize;
        expected[at..end].copy_from_slice(&bytes[at..end]);
        let from_archive = load.source.wrapping_sub(0x4800_0000) as usize;
        if let Some(source) = archive.get(from_archive..from_archive + load.size as usize) {
            assert_eq!(&bytes[at..end], source);
        } else {
            let is_tree = bytes[at..at + 4] == [0xd0, 0x0d, 0xfe, 0xed];
            assert!(is_tree != load.is_seed);
            let source = match load.is_seed {
                true => seed_of(&info, vm.vmid - vm::FIRST_VMID, 0)[load.source as usize..].into(),
                false => memory.read(load.source, load.size as usize),
            };
            assert_eq!(bytes[at..end], source[..load.size as usize]);
        }
    }
    assert!(bytes == expected);
    let first = region.pa / PAGE_SIZE;
    assert!(
        !memory
            .dirty
            .iter()
            .any(|page| (first..first + region.size / PAGE_SIZE).contains(page))
    );
}

#[test]
fn another_guest_address_is_mapped_there() {
    let mut case = Case::new();
    case.manifest = case
        .manifest
        .set("/vms/linux", "memory-ipa", cells(&[0, 0x8000_0000]));
    let (prepared, memory, _) = case.run();
    prepared.unwrap();
    let vm = memory.boot_info.as_ref().unwrap().1.vms[0];
    assert_eq!((vm.regions[0].ipa, vm.entry), (0x8000_0000, 0x8000_0000));
    assert_ne!(vm.regions[0].pa, 0x8000_0000);
    let mapped = stage2(&memory, vm.root);
    let memory = mapped.iter().find(|leaf| leaf.input == 0x8000_0000);
    assert_eq!(memory.map(|leaf| leaf.output.start), Some(vm.regions[0].pa));
}

/// Everything that is wrong ends in one message, and never in a hand-over.
#[test]
fn refusals() {
    let with = |change: &dyn Fn(&mut Case)| {
        let mut case = Case::new();
        change(&mut case);
        case
    };
    let manifest = |name: &str, value: &[u32]| {
        with(&|case| case.manifest = case.manifest.clone().set("/vms/linux", name, cells(value)))
    };
    let file =
        |name: &str, data: &[u8]| with(&|case| case.files = case.files.clone().with(name, data));
    let mut old = flat_image(GEAR2_MAGIC, gear2::IMAGE);
    old[10] = 9;
    let cases = [
        (
            with(&|case| case.boot_cpu = 1),
            "device tree: /cpus: reg: the first CPU is not the one that boots",
        ),
        (
            with(&|case| case.files = case.files.clone().without("gear2.bin")),
            "gear2.bin: missing",
        ),
        (file("gear2.bin", &old), "gear2.bin: built for ABI 9."),
        (file("gear2.bin", &[0; 20]), "gear2.bin: not the image"),
        (
            file("gear2.bin", &flat_image(GEAR2_MAGIC, 0)),
            "gear2.bin: its segments",
        ),
        (
            with(&|case| case.runtime.truncate(80)),
            "the Gear1 runtime: shorter",
        ),
        (
            file("dtb/linux", &[0; 64]),
            "dtb/linux: no device tree magic",
        ),
        (
            manifest("memory-mib", &[2000]),
            "manifest: M-MEM-007: /vms/",
        ),
        (
            manifest("memory-mib", &[1000]),
            "manifest: M-MEM-009: /vms/linux: memory-mib: ",
        ),
        (
            manifest("memory-address", &[0, 0x6000_0000]),
            "manifest: M-MEM-003: /vms/",
        ),
        (
            manifest("memory-address", &[0, 0x4020_0000]),
            "manifest: M-MEM-006: /vms/linux: memory-address",
        ),
        (
            manifest("cpus", &[0, 7]),
            "manifest: M-CPU-003: /vms/linux: cpus",
        ),
        (
            manifest("memory-ipa", &[0x1000, 0]),
            "manifest: addresses up to",
        ),
        (
            with(&|case| case.manifest = Tree::default().set("/", "x", Vec::new())),
            "manifest: M-BLB-002: /",
        ),
    ];
    for (case, message) in cases {
        let refused = case.refused();
        assert!(
            refused.starts_with(message),
            "{refused:?} is not {message:?}"
        );
    }
}

#[test]
fn a_file_has_the_digest_that_the_manifest_gives() {
    /// Of 100 bytes of 0x33, which `guest.bin` is, by sha256sum.
    const GUEST: &str = "de577cc8152fad5ddc31d41026a136384d24a6e0c44f2033dc30819652b94a73";
    let mut case = Case::new();
    case.manifest = case.manifest.set("/vms/flat", "image-sha256", text(GUEST));
    assert!(case.run().0.is_ok());
    let wrong = "0".repeat(64);
    case.manifest = case.manifest.set("/vms/flat", "image-sha256", text(&wrong));
    let refused = case.refused();
    let expected = "manifest: M-PAY-007: /vms/flat: image-sha256: ";
    assert!(
        refused.starts_with(expected) && refused.contains(GUEST),
        "{refused}"
    );
}

#[test]
fn a_damaged_archive_is_refused() {
    let case = Case::new();
    let blob = case.board.flatten();
    let board = fdt::read(blob.as_slice()).board.unwrap();
    let mut memory = FakeMemory::new(board.gic.gicr, &[0, 1]);
    let given = Given {
        board: &board,
        archive: b"070701 what?",
        runtime: &case.runtime,
        init: INIT,
        device_tree: DEVICE_TREE,
        tree: Blob::new(blob.as_slice()).unwrap(),
        boot_cpu: 0,
        pa_range: 4,
        counter_hz: 1,
        vector_lengths: || Lengths::NONE,
    };
    let refused = prepare(&given, &mut memory).unwrap_err().to_string();
    assert!(
        refused.starts_with("the boot archive ends too early"),
        "{refused}"
    );
    assert!(memory.boot_info.is_none());
}

/// A guest on a GICv2 board finds the virtual CPU interface where GICC is.
#[test]
fn gicv2_guests_get_gicv_as_their_cpu_interface() {
    let mut case = Case::new();
    case.board = tree(VIRT_GICV2);
    let (prepared, memory, _) = case.run();
    prepared.unwrap();
    let info = *memory.boot_info.as_ref().unwrap().1;
    assert_eq!(
        (info.gic.version, info.gic.gicr, info.gic.gicv),
        (2, 0x801_0000, 0x804_0000)
    );
    for vm in &info.vms[..2] {
        let mapped = stage2(&memory, vm.root);
        let gicc = mapped
            .iter()
            .filter(|leaf| (0x801_0000..0x801_2000).contains(&leaf.input));
        let at: Vec<_> = gicc.map(|leaf| leaf.output.start - leaf.input).collect();
        assert!(
            !at.is_empty() && at.iter().all(|distance| *distance == 0x3_0000),
            "{at:x?}"
        );
    }
}
