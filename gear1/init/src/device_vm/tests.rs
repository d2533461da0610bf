//! Tests of a whole boot with a device VM: `prepare/tests.rs` has the other boots.
//!
//! Requirements: G1-CHN-001, G1-RUN-009.

use alloc::vec;
use alloc::vec::Vec;

use gear1_abi::boot::{BootChannel, BootInfo, BootPl061, ChannelKind, IrqOwner};
use gear1_abi::info::uart;
use gear1_abi::layout::gear2;
use gearv_manifest::blob::Blob;

use crate::prepare::tests::{Case, stage2};
use crate::region::Region;
use crate::testing::{FakeMemory, Mapping, POISON, tree};
use crate::trees::{Tree, cells, text};

const MIB: u64 = 1 << 20;
const WRITE: u64 = 1 << 7;
const NEVER_EXECUTE: u64 = 1 << 54;
const MEMORY_TYPE: u64 = 0b1111 << 2;
const UNCACHED: u64 = 0b0101 << 2;
const DEVICE_NGNRE: u64 = 0b0001 << 2;
const WINDOW: u64 = 0xc00_0000;
const DISK: &str = "/vms/linux/virtio/disk";
const DEVICE: &str = "/vms/device";

/// VM 0 is a guest with two virtio devices, 1 a guest without, 2 the device VM.
fn case() -> Case {
    let mut case = Case::new();
    case.manifest = case
        .manifest
        .set(DISK, "type", text("block"))
        .set(DISK, "backend", text("/dev/vda"))
        .set("/vms/linux/virtio/random", "type", text("rng"))
        .set(DEVICE, "kind", text("device"))
        .set(DEVICE, "memory-mib", cells(&[2]))
        .set(DEVICE, "image", text("guest.bin"))
        .set(
            DEVICE,
            "devices",
            b"/pl011@9000000\0/virtio_mmio@a003e00\0".to_vec(),
        );
    case
}

fn leaf(mappings: &[Mapping], ipa: u64) -> Option<Mapping> {
    let covers = |leaf: &&Mapping| (leaf.input..leaf.input + leaf.output.bytes()).contains(&ipa);
    mappings.iter().find(covers).copied()
}

/// Returns what `ipa` is translated to.
fn translate(mappings: &[Mapping], ipa: u64) -> Option<u64> {
    let leaf = leaf(mappings, ipa)?;
    Some(leaf.output.start + (ipa - leaf.input))
}

/// Returns the device VM's device tree, as the runtime would load it.
fn device_tree(memory: &FakeMemory, info: &BootInfo) -> Tree {
    let load = info.vms[2].loads[1];
    tree(&memory.read(load.source, load.size as usize))
}

fn long(tree: &mut Tree, path: &str, name: &str, index: usize) -> u64 {
    let node = tree.at(path);
    let (_, value) = node
        .properties
        .iter()
        .find(|(known, _)| known == name)
        .unwrap();
    u64::from_be_bytes(value[index * 8..][..8].try_into().unwrap())
}

#[test]
fn the_device_vm_sees_its_devices_and_whom_it_serves() {
    let (memory, info) = case().booted();
    let own = stage2(&memory, info.vms[2].root);
    let ram = info.vms[2].regions;
    assert_eq!(
        (ram[0].ipa, ram[0].size, ram[1].size),
        (ram[0].pa, 2 * MIB, 0)
    );
    assert_eq!(translate(&own, ram[0].ipa), Some(ram[0].pa));
    for page in [0x900_0000, 0xa00_3000] {
        let leaf = leaf(&own, page).unwrap();
        assert_eq!(
            (leaf.output.start, leaf.descriptor & MEMORY_TYPE),
            (page, DEVICE_NGNRE)
        );
        assert_ne!(leaf.descriptor & NEVER_EXECUTE, 0);
    }
    for hole in [
        0xa00_0000,
        WINDOW,
        WINDOW + 0x1000,
        WINDOW + 0x8_0000,
        WINDOW + 0x9_1000,
    ] {
        assert_eq!(leaf(&own, hole), None, "{hole:#x}");
    }
    let guest = info.vms[0].regions[0];
    for at in [guest.pa - 2 * MIB, guest.pa, guest.pa + guest.size - 1] {
        let leaf = leaf(&own, at).unwrap();
        assert_eq!(translate(&own, at), Some(at));
        assert!(leaf.descriptor & WRITE != 0 && leaf.descriptor & NEVER_EXECUTE != 0);
    }
    // The device VM does not serve the other guest.
    assert_eq!(leaf(&own, info.vms[1].regions[0].pa), None);
    let guest_view = stage2(&memory, info.vms[0].root);
    assert_eq!(leaf(&guest_view, guest.ipa - 1), None);
}

/// G1-RUN-009: the device VM reads a served VM's memory from boot on, whether that one runs or not.
#[test]
fn the_device_vm_finds_nothing_from_before_the_boot() {
    let beside_real_time = case()
        .manifest
        .set("/gear2", "cpus", cells(&[0]))
        .set("/vms/linux", "cpus", cells(&[0]))
        .set(DEVICE, "cpus", cells(&[0]))
        .set("/vms/flat", "kind", text("real-time"))
        .set("/vms/flat", "cpus", cells(&[1]));
    let asleep = beside_real_time.clone();
    let asleep = asleep.set("/vms/linux", "no-autostart", Vec::new());
    for (manifest, loaded) in [(beside_real_time, true), (asleep, false)] {
        let mut case = case();
        case.manifest = manifest;
        let (prepared, memory, _) = case.run();
        prepared.unwrap();
        let served = memory.boot_info.as_ref().unwrap().1.vms[0];
        assert_eq!(served.loaded, loaded);
        let end = served.regions[0].pa + served.regions[0].size;
        for pa in [served.regions[0].pa, end - 1] {
            assert_ne!(memory.read(pa, 1), [POISON]);
        }
    }
}

#[test]
fn a_register_page_can_be_written_by_the_device_model_and_gear2_and_cached_by_none() {
    let (memory, info) = case().booted();
    let (_, gear2_info) = memory.gear2_info.unwrap();
    assert_eq!(gear2_info.register_pages, 1);
    let by_gear2 = stage2(&memory, info.gear2.root);
    assert_eq!(leaf(&by_gear2, gear2::REGISTERS + 0x1000), None);
    let by_gear2 = leaf(&by_gear2, gear2::REGISTERS).unwrap();
    let guest = leaf(&stage2(&memory, info.vms[0].root), 0xa00_0000).unwrap();
    let device = leaf(&stage2(&memory, info.vms[2].root), WINDOW + 0x9_0000).unwrap();
    assert_eq!(guest.output, device.output);
    assert_eq!(guest.output, by_gear2.output);
    let leaves = [guest, device, by_gear2];
    assert_eq!(
        leaves.each_ref().map(|leaf| leaf.descriptor & WRITE),
        [0, WRITE, WRITE]
    );
    for leaf in leaves {
        assert_eq!(leaf.descriptor & MEMORY_TYPE, UNCACHED);
        assert_ne!(leaf.descriptor & NEVER_EXECUTE, 0);
    }
    // A driver finds its devices before a device model serves them.
    let mut expected = vec![0; 4096];
    expected[..16].copy_from_slice(b"virt\x02\0\0\0\x02\0\0\0GEAR");
    expected[0x200..0x210].copy_from_slice(b"virt\x02\0\0\0\x04\0\0\0GEAR");
    assert_eq!(memory.read(guest.output.start, 4096), expected);
    assert!(!memory.dirty.contains(&(guest.output.start / 4096)));
    assert_eq!(leaf(&stage2(&memory, info.vms[1].root), 0xa00_0000), None);
}

#[test]
fn gear2_and_the_device_vm_share_a_region() {
    let (memory, info) = case().booted();
    let (_, gear2_info) = memory.gear2_info.unwrap();
    assert_eq!(gear2_info.shared_size, 2 * MIB);
    let gear2_view = stage2(&memory, info.gear2.root);
    let control = translate(&gear2_view, gear2::SHARED).unwrap();
    let own = stage2(&memory, info.vms[2].root);
    assert_eq!(translate(&own, control), Some(control));
    assert_eq!(
        long(&mut device_tree(&memory, &info), "/gearv", "control", 0),
        control
    );
    assert_eq!(
        memory.read(control, 2 * MIB as usize),
        vec![0; 2 * MIB as usize]
    );
    for start in [control, info.vms[0].regions[0].pa] {
        let block = memory.read(start - 2 * MIB + 0x1000, 15);
        assert_eq!(block, b"NVDIMM_DAX_INFO");
        assert!(!memory.dirty.contains(&((start - 2 * MIB) / 4096 + 1)));
    }
}

/// G1-MEM-004: no page of RAM is seen by two VMs unless the device VM serves one of them.
#[test]
fn nothing_else_is_shared() {
    let (memory, info) = case().booted();
    let guest = info.vms[0].regions[0];
    let registers = translate(&stage2(&memory, info.vms[0].root), 0xa00_0000).unwrap();
    let control = translate(&stage2(&memory, info.gear2.root), gear2::SHARED).unwrap();
    let shared = [
        Region::new(guest.pa, guest.pa + guest.size),
        Region::new(registers, registers + 4096),
        Region::new(control, control + 2 * MIB),
    ];
    let roots = [
        info.vms[0].root,
        info.vms[1].root,
        info.vms[2].root,
        info.gear2.root,
    ];
    let views = roots.map(|root| stage2(&memory, root));
    for (index, view) in views.iter().enumerate() {
        let others = || views[index + 1..].iter().flatten();
        for leaf in view {
            let twice = others().any(|other| other.output.overlaps(&leaf.output));
            let may_be = shared.iter().any(|shared| shared.contains(&leaf.output));
            assert!(!twice || may_be, "{leaf:x?}");
        }
    }
}

#[test]
fn interrupts_go_to_the_owner() {
    let (memory, info) = case().booted();
    let device = IrqOwner::vm(2).unwrap();
    assert_eq!((info.irq_owner[33], info.irq_owner[79]), (device, device));
    let owned = info
        .irq_owner
        .iter()
        .filter(|owner| **owner != IrqOwner::NONE);
    assert_eq!(owned.count(), 2);
    assert_eq!((info.irq_edge[1] & 2, info.irq_edge[2]), (0, 1 << 15));
    // Gear1 says on the UART why it halts; Gear2 has none.
    assert_eq!((info.uart_kind, info.uart_intid), (uart::PL011, 0));
    let (_, gear2_info) = memory.gear2_info.unwrap();
    assert_eq!(
        (gear2_info.uart_kind, gear2_info.uart_intid),
        (uart::NONE, 0)
    );
    assert_eq!(leaf(&stage2(&memory, info.gear2.root), gear2::UART), None);
}

#[test]
fn gear2_keeps_a_uart_that_nobody_owns() {
    let mut case = case();
    case.manifest = case.manifest.unset(DEVICE, "devices");
    let (memory, info) = case.booted();
    assert_eq!((info.irq_owner[33], info.uart_intid), (IrqOwner::GEAR2, 33));
    assert!(leaf(&stage2(&memory, info.gear2.root), gear2::UART).is_some());
}

#[test]
fn channels_and_pl061_are_listed() {
    let (_, info) = case().booted();
    let [guest, other, device, ..] = info.vms;
    assert_eq!((guest.first_channel, guest.channel_count), (0, 4));
    assert_eq!(
        (
            other.channel_count,
            device.first_channel,
            device.channel_count
        ),
        (0, 4, 5)
    );
    let channel = |ipa, kind, target, number| BootChannel {
        ipa,
        kind,
        target,
        number,
    };
    let gdms = WINDOW + 0x8_0000;
    let doorbells = gdms + 0x1000;
    let expected = [
        channel(0xa00_0050, ChannelKind::Pl061, 1, 0),
        channel(0xa00_0064, ChannelKind::Acknowledge, 0, 0),
        channel(0xa00_0250, ChannelKind::Pl061, 1, 1),
        channel(0xa00_0264, ChannelKind::Acknowledge, 0, 0),
        channel(doorbells, ChannelKind::Interrupt, 0, 48),
        channel(doorbells + 8, ChannelKind::Interrupt, 0, 49),
        channel(gdms + 0x800, ChannelKind::Gear2, 0, 0),
        channel(doorbells + 0x800, ChannelKind::Gear2, 0, 0),
        channel(doorbells + 0x908, ChannelKind::Arm, 1, 0b11),
        BootChannel::default(),
    ];
    assert_eq!(info.channels[..10], expected);
    let pl061 = |ipa, intid| BootPl061 { ipa, intid, vm: 2 };
    let expected = [
        pl061(WINDOW, 232),
        pl061(WINDOW + 0x1000, 233),
        BootPl061::default(),
    ];
    assert_eq!(info.pl061[..3], expected);
}

#[test]
fn the_device_model_finds_whom_it_serves() {
    let (memory, info) = case().booted();
    let mut tree = device_tree(&memory, &info);
    let guest = info.vms[0].regions[0];
    for (index, expected) in [guest.ipa, guest.pa, guest.size].into_iter().enumerate() {
        assert_eq!(
            long(&mut tree, "/gearv/device@1", "guest-memory", index),
            expected
        );
    }
    let slices = tree
        .children
        .iter()
        .filter(|(name, _)| name.starts_with("pmem-region@"));
    assert_eq!(slices.count(), 2);
    let load = info.vms[2].loads[1];
    let bytes = memory.read(load.source, load.size as usize);
    assert!(Blob::new(crate::trees::Aligned::new(&bytes).as_slice()).is_ok());
    assert_eq!(info.vms[2].argument, load.destination);
}

/// VMs of the largest system, each with the number of PL061 blocks that its devices are on: the
/// first one has two devices, and moves the others' eight by two.
const ARMINGS: usize = 1 + 2 + 2 + 2 + 1;

/// The largest number of guests and devices fits into the tables of the ABI.
#[test]
fn the_largest_system_fits() {
    let mut case = case();
    for vm in 0..4 {
        let path = std::format!("/vms/g{vm}");
        case.manifest = case.manifest.set(&path, "memory-mib", cells(&[2])).set(
            &path,
            "image",
            text("guest.bin"),
        );
        for device in 0..if vm == 3 { 6 } else { 8 } {
            let path = std::format!("{path}/virtio/d{device}");
            case.manifest = case.manifest.set(&path, "type", text("rng"));
        }
    }
    let (memory, info) = case.booted();
    let used = info
        .channels
        .iter()
        .filter(|channel| channel.kind != ChannelKind::None);
    // Three for each device; for Gear2 one of GDM's own and one for each of five VMs; one for each
    // VM and PL061 of its devices.
    assert_eq!(used.count(), 32 * 3 + 6 + ARMINGS);
    let armed = (info.channels.iter()).filter(|channel| channel.kind == ChannelKind::Arm);
    let armed: Vec<(u32, u32)> = armed
        .map(|channel| (channel.target, channel.number))
        .collect();
    // Each line of the four is armed at one place.
    for pl061 in 1..=4 {
        let lines = armed.iter().filter(|(target, _)| *target == pl061);
        assert_eq!(lines.map(|(_, lines)| lines).sum::<u32>(), 0xff);
    }
    assert!(info.pl061.iter().all(|pl061| pl061.ipa != 0));
    let mut addresses: Vec<(u64, usize)> = Vec::new();
    for (index, vm) in info.vms.iter().enumerate() {
        let own = info.channels.iter().skip(vm.first_channel.into());
        addresses.extend(own.take(vm.channel_count.into()).map(|c| (c.ipa, index)));
    }
    addresses.sort_unstable();
    addresses.dedup();
    assert_eq!(addresses.len(), 32 * 3 + 6 + ARMINGS);
    let own = stage2(&memory, info.vms[2].root);
    assert!(leaf(&own, WINDOW + 0x9_4000).is_some());
}

#[test]
fn refusals() {
    let with = |path: &str, name: &str, value: Vec<u8>| {
        let mut case = case();
        case.manifest = case.manifest.set(path, name, value);
        case.refused()
    };
    let refused = with(DEVICE, "devices", text("/nothing"));
    assert!(
        refused.starts_with("manifest: M-DEV-007: /vms/device: devices: "),
        "{refused}"
    );
    let refused = with(DEVICE, "window-address", cells(&[0x0a00_0000]));
    assert!(
        refused.starts_with(
            "manifest: M-DEV-006: /vms/device: window-address: the window lies over memory, the \
            console or a device (/virtio_mmio@"
        ),
        "{refused}"
    );
    let refused = with(DEVICE, "window-address", cells(&[0x4010_0000]));
    assert!(
        refused.starts_with("manifest: M-DEV-006: /vms/device: window-address"),
        "{refused}"
    );
    // There is no room for what describes the memory of a guest that is served.
    let refused = with("/vms/linux", "memory-address", cells(&[0, 0x4040_0000]));
    assert!(
        refused.starts_with("manifest: M-MEM-006: /vms/linux: memory-address"),
        "{refused}"
    );
}
