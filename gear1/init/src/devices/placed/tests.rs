//! PCI functions apart from their bridge, through the whole of init, on a bus that answers to
//! configuration space.
//!
//! Requirements: G1-DMA-007, G1-DMA-005, G1-BOOT-005.

use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use gear1_abi::boot::{BootFunction, IrqOwner};

use super::{COMMAND, FIRST_BAR, FUNCTION_SIZE, INTX_DISABLE, MEMORY};
use crate::prepare::tests::{Case, stage2};
use crate::testing::{FakeBus, FakeFunction, FakeMemory, tree};
use crate::trees::{cells, text};

const RT: &str = "/vms/rt";
const LINUX: &str = "/vms/linux";
const BRIDGE: &str = "/pcie@10000000";
/// Devices 1 and 2, function 0, and device 2, function 1.
const DISK: u64 = 0x08;
const CARD: u64 = 0x10;
const SECOND: u64 = 0x11;
/// Class of a disk controller and of a network card.
const STORAGE: u32 = 0x0100;
const NETWORK: u32 = 0x0200;
/// Of QEMU's `virt`: the first interrupt of the lines, and the windows.
const FIRST_LINE: usize = 35;
const WINDOW: u64 = 0x1000_0000;
const HIGH_WINDOW: u64 = 0x80_0000_0000;

/// A disk with registers of 4 KiB and 16 KiB and an I/O BAR, and a card of two functions, the first
/// of which needs more than the window of 32 bits.
fn bus() -> FakeBus {
    FakeBus::new([
        (
            DISK,
            FakeFunction::new(STORAGE, 0, 1)
                .with_io_bar(0, 0x80)
                .with_bar(1, 0x1000)
                .with_long_bar(4, 0x4000),
        ),
        (
            CARD,
            FakeFunction::new(NETWORK, 0x80, 1)
                .with_bar(0, 0x200)
                .with_long_bar(2, 4 << 30),
        ),
        (
            SECOND,
            FakeFunction::new(NETWORK, 0x80, 2).with_bar(0, 0x2000),
        ),
    ])
}

/// A machine whose CPU 1 is a real-time VM's, which owns these functions.
fn case(functions: &[&str]) -> Case {
    let mut case = Case::new();
    case.pci = Some(bus());
    case.manifest = case
        .manifest
        .set(LINUX, "vcpus", cells(&[1]))
        .set(RT, "kind", text("real-time"))
        .set(RT, "cpus", cells(&[1]))
        .set(RT, "memory-mib", cells(&[4]))
        .set(RT, "image", text("guest.bin"))
        .set(RT, "devices", list(functions));
    case
}

/// Returns functions of the bridge as strings of a property.
fn list(functions: &[&str]) -> Vec<u8> {
    let paths = functions.iter();
    let paths = paths.map(|function| alloc::format!("{BRIDGE}/pci@{function}\0"));
    paths.collect::<String>().into_bytes()
}

/// Returns the function that the runtime is told of for this place of the bus.
fn told(functions: &[BootFunction], place: u64) -> BootFunction {
    let space = FakeBus::BASE + place * FUNCTION_SIZE;
    let mut functions = functions.iter();
    *functions.find(|one| one.space == space).unwrap()
}

/// Returns a BAR of a function as the bus has it.
fn bar(memory: &FakeMemory, place: u64, bar: u64) -> u32 {
    let bus = memory.pci.as_ref().unwrap();
    bus.functions[&place].read(FIRST_BAR + 4 * bar)
}

#[test]
fn a_function_gets_addresses_that_its_vm_alone_has() {
    let (memory, info) = case(&["1,0", "2,0"]).booted();
    let disk = told(&info.functions, DISK);
    let low = WINDOW as u32;
    assert_eq!(disk.bars, [0, low, 0, 0, 0xc, 0x80]);
    assert_eq!(disk.sizes, [0, 0xffff_f000, 0, 0, 0xffff_c00c, 0xffff_ffff]);
    let card = told(&info.functions, CARD);
    assert_eq!(card.bars, [low + 0x1000, 0, 0xc, 0x81, 0, 0]);
    for (place, function) in [(DISK, &disk), (CARD, &card)] {
        for (index, value) in (0..).zip(function.bars) {
            if function.sizes[index as usize] != 0 {
                assert_eq!(bar(&memory, place, index), value);
            }
        }
        assert_eq!(
            memory.pci.as_ref().unwrap().functions[&place].read(COMMAND),
            MEMORY
        );
    }
    let long = HIGH_WINDOW + (4 << 30);
    let ends = [
        (WINDOW, WINDOW + 0x1000),
        // Less than a page has a page.
        (WINDOW + 0x1000, WINDOW + 0x2000),
        (HIGH_WINDOW, HIGH_WINDOW + 0x4000),
        (long, long + (4 << 30)),
    ];
    let reached = |vm: usize, at: u64| {
        let leaves = stage2(&memory, info.vms[vm].root);
        leaves
            .iter()
            .any(|leaf| leaf.output.start <= at && at < leaf.output.end)
    };
    for (start, end) in ends {
        assert!(reached(2, start) && reached(2, end - 0x1000), "{start:#x}");
        assert!(!reached(0, start) && !reached(1, start), "{start:#x}");
    }
    for space in [
        FakeBus::BASE,
        disk.space,
        WINDOW + 0x2000,
        HIGH_WINDOW + 0x4000,
    ] {
        assert!(!reached(2, space), "{space:#x}");
    }
    assert_eq!(info.vms[2].pci_space, FakeBus::BASE);
    assert_eq!(info.vms[0].pci_space, 0);
}

#[test]
fn a_function_has_the_interrupt_of_its_line_and_stops_with_its_vm() {
    let (_, info) = case(&["1,0", "2,0", "2,1"]).booted();
    let rt = IrqOwner::vm(2).unwrap();
    // Line 1 of device 1, and line 2 of device 2: QEMU's lines rotate by the device.
    let owned = (0..4).map(|line| info.irq_owner[FIRST_LINE + line] == rt);
    assert_eq!(owned.collect::<Vec<_>>(), [false, true, true, true]);
    let masters = info.masters.iter().filter(|master| master.register != 0);
    let masters: Vec<_> = masters
        .map(|master| (master.register, master.functions, master.vm))
        .collect();
    let space = |place: u64| FakeBus::BASE + place * FUNCTION_SIZE;
    let functions = [DISK, CARD, SECOND];
    assert_eq!(masters, functions.map(|place| (space(place), 1, 2)));
}

/// Firmware's function has an extended capability of virtual functions, which are on.
#[test]
fn functions_that_nobody_owns_are_off() {
    let mut case = case(&["1,0"]);
    let mut bus = bus();
    for place in [CARD, SECOND] {
        let left_on = bus.functions.get_mut(&place).unwrap();
        left_on.write(COMMAND, 7);
        left_on
            .words
            .extend([(0x100, 0x1400_0001), (0x140, 0x0001_0010)]);
        left_on.write(0x148, 9);
    }
    case.pci = Some(bus);
    let (memory, _) = case.booted();
    for place in [CARD, SECOND] {
        let function = &memory.pci.as_ref().unwrap().functions[&place];
        assert_eq!(function.read(COMMAND), INTX_DISABLE);
        assert_eq!(function.read(0x148), 0);
    }
}

#[test]
fn two_vms_own_functions_of_one_bridge() {
    let mut case = case(&["1,0"]);
    case.manifest =
        case.manifest
            .set(LINUX, "kind", text("device"))
            .set(LINUX, "devices", list(&["2,0"]));
    let (memory, info) = case.booted();
    let vms: Vec<_> = info.functions.iter().filter(|one| one.space != 0).collect();
    assert_eq!(vms.len(), 2);
    let pages = |place: u64| {
        let bars = told(&info.functions, place).bars;
        bars.map(|bar| u64::from(bar & !0xf))
    };
    let device_vm = stage2(&memory, info.vms[0].root);
    let rt = stage2(&memory, info.vms[2].root);
    assert!(
        device_vm
            .iter()
            .any(|leaf| leaf.output.start == pages(CARD)[0])
    );
    assert!(!rt.iter().any(|leaf| leaf.output.start == pages(CARD)[0]));
    assert!(
        !device_vm
            .iter()
            .any(|leaf| leaf.output.start == pages(DISK)[1])
    );
}

/// The tree, the manifest and the bus say what is not possible, each with its place.
#[test]
fn what_cannot_be_given_away_ends_the_boot() {
    let stays = "manifest: M-DEV-008: /vms/rt: devices: this device cannot be given away \
        (/pcie@10000000/pci@";
    let cases: Vec<(Vec<&str>, String)> = vec![
        (
            vec!["3,0"],
            "device tree: /pcie@10000000/pci@3,0: no PCI function".into(),
        ),
        (
            vec!["0,0", "20,0"],
            alloc::format!("{stays}20,0: no device and function"),
        ),
        (
            vec!["1,8"],
            alloc::format!("{stays}1,8: no device and function"),
        ),
        (
            vec!["1"],
            alloc::format!("{stays}1: no device and function"),
        ),
        (
            vec!["+1,0"],
            alloc::format!("{stays}+1,0: no device and function"),
        ),
        (
            vec!["*"],
            alloc::format!("{stays}*: no device and function"),
        ),
        (
            vec!["2,0", "02,0"],
            alloc::format!("{stays}02,0: the function is named twice"),
        ),
        (
            vec!["2,1"],
            alloc::format!("{stays}2,1: function 0 of its device is not this VM's"),
        ),
        (
            vec!["1,0", "1,1"],
            "device tree: /pcie@10000000/pci@1,1: no PCI function".into(),
        ),
    ];
    for (functions, expected) in cases {
        let refused = case(&functions).refused();
        assert!(refused.starts_with(&expected), "{functions:?}: {refused}");
    }
}

#[test]
fn what_the_bus_has_is_judged() {
    let with = |function: FakeFunction| {
        let mut case = case(&["1,0"]);
        case.pci = Some(FakeBus::new([(DISK, function)]));
        case.refused()
    };
    let bridge = with(FakeFunction::new(0x0604, 1, 0));
    assert!(bridge.contains("pci@1,0: a bridge:"), "{bridge}");
    let host = with(FakeFunction::new(0x0600, 0, 0));
    assert!(host.contains("pci@1,0: a bridge:"), "{host}");
    let mut phantom = FakeFunction::new(STORAGE, 0, 1);
    let words = [(4, 1 << 20), (0x34, 0x40), (0x40, 0x10), (0x44, 1 << 3)];
    phantom.words.extend(words);
    let phantom = with(phantom);
    assert!(phantom.contains("(Phantom Functions)"), "{phantom}");
    let mut fixed = FakeFunction::new(STORAGE, 0, 1);
    fixed
        .words
        .extend([(4, 1 << 20), (0x34, 0x40), (0x40, 0x5001), (0x50, 0x14)]);
    let fixed = with(fixed);
    assert!(fixed.contains("(Enhanced Allocation)"), "{fixed}");
    // 4 GiB in a BAR of 32 bits would have no address; 2 GiB are more than the window has.
    let large = with(FakeFunction::new(STORAGE, 0, 1).with_bar(0, 0x8000_0000));
    assert!(
        large.contains("no room left for 0x80000000 bytes of BAR 0"),
        "{large}"
    );
    // The bit above the size does not stay, where the first address of the window has one.
    let mut stuck = FakeFunction::new(STORAGE, 0, 1).with_bar(0, 0x1000);
    stuck.keeps_address = false;
    let stuck = with(stuck);
    assert!(
        stuck.contains("BAR 0 does not keep the address 0x10000000"),
        "{stuck}"
    );
    let odd = with(FakeFunction::new(STORAGE, 0, 5));
    assert!(odd.contains("leads line 5 to no shared interrupt"), "{odd}");
}

/// A list of capabilities that leads back to itself ends.
#[test]
fn capabilities_in_a_circle_end() {
    let mut case = case(&["1,0"]);
    let mut bus = bus();
    let disk = bus.functions.get_mut(&DISK).unwrap();
    disk.words
        .extend([(4, 1 << 20), (0x34, 0x40), (0x40, 0x4001)]);
    case.pci = Some(bus);
    case.booted();
}

#[test]
fn a_function_has_one_owner() {
    let both = |own: &[u8], kind: &str| {
        let mut case = case(&["1,0"]);
        case.manifest =
            case.manifest
                .set(LINUX, "kind", text(kind))
                .set(LINUX, "devices", own.to_vec());
        case.refused()
    };
    let same = both(&list(&["1,0"]), "device");
    assert!(
        same.contains("M-DEV-009") && same.contains("/pcie@10000000/pci@1,0"),
        "{same}"
    );
    let whole = both(b"/pcie@10000000\0", "device");
    assert!(
        whole.contains("M-DEV-009") && whole.contains("/pcie@10000000/pci@1,0"),
        "{whole}"
    );
    // Device 5 has the line of device 1, which the bus alone tells.
    let mut case = case(&["1,0"]);
    let mut bus = bus();
    bus.functions
        .insert(0x28, FakeFunction::new(NETWORK, 0, 1).with_bar(0, 0x1000));
    case.pci = Some(bus);
    case.manifest =
        case.manifest
            .set(LINUX, "kind", text("device"))
            .set(LINUX, "devices", list(&["5,0"]));
    let line = case.refused();
    assert!(
        line.contains("M-DEV-009") && line.contains("(INTID 36)"),
        "{line}"
    );
    let mut own = self::case(&["1,0"]);
    own.manifest = own.manifest.set(
        RT,
        "devices",
        [b"/pcie@10000000\0".to_vec(), list(&["1,0"])].concat(),
    );
    let own = own.refused();
    assert!(own.contains("the VM owns the whole bridge"), "{own}");
}

/// Without an SMMU a function reaches all memory.
#[test]
fn a_guest_has_a_function_that_is_kept_back_or_trust() {
    let mut case = case(&[]);
    case.manifest = case
        .manifest
        .set(RT, "devices", text("/pl031@9010000"))
        .set(LINUX, "devices", list(&["1,0"]));
    let refused = case.refused();
    let expected = "manifest: M-DEV-011: /vms/linux: devices: ";
    assert!(
        refused.starts_with(expected) && refused.contains("pci@1,0"),
        "{refused}"
    );
    case.manifest = case.manifest.set(LINUX, "trusts-dma", Vec::new());
    case.booted();
}

/// The VM's tree shows one bus, whose functions stay where they are.
#[test]
fn the_vm_sees_a_bridge_with_one_bus() {
    let (memory, info) = case(&["1,0"]).booted();
    let load = info.vms[2].loads[1];
    let mut tree = tree(&memory.read(load.source, load.size as usize));
    let mut property = |path: &str, name: &str| {
        let mut properties = tree.at(path).properties.iter();
        let found = properties.find(|(known, _)| known == name);
        found.map(|(_, value)| value.clone())
    };
    assert_eq!(property(BRIDGE, "bus-range"), Some(cells(&[0, 0])));
    assert_eq!(property(BRIDGE, "linux,pci-probe-only"), Some(cells(&[1])));
    for dropped in ["status", "iommu-map", "msi-map", "msi-parent"] {
        assert_eq!(property(BRIDGE, dropped), None, "{dropped}");
    }
    assert_eq!(
        property("/chosen", "linux,pci-probe-only"),
        Some(cells(&[1]))
    );
    assert!(property(BRIDGE, "interrupt-map").is_some());
}

/// A device with one function answers at the place of another one too.
#[test]
fn an_alias_is_no_function() {
    let mut case = case(&["1,0", "1,1"]);
    let mut bus = bus();
    let disk = bus.functions[&DISK].clone();
    bus.functions.insert(DISK + 1, disk);
    case.pci = Some(bus);
    let refused = case.refused();
    assert!(
        refused.contains("pci@1,1: its device has one function"),
        "{refused}"
    );
}

/// Functions of one device may reach each other behind the SMMU's back.
#[test]
fn a_device_has_one_owner() {
    let mut case = case(&["2,0"]);
    case.manifest =
        case.manifest
            .set(LINUX, "kind", text("device"))
            .set(LINUX, "devices", list(&["2,1"]));
    let refused = case.refused();
    assert!(
        refused.contains("2,1: function 0 of its device"),
        "{refused}"
    );
}

/// A window onto the bus is none onto memory.
#[test]
fn a_bridge_over_memory_is_refused() {
    let mut case = case(&["1,0"]);
    let window = [0x0200_0000, 0, 0x1000_0000, 0, 0x5000_0000, 0, 0x1000_0000];
    case.board = case.board.set(BRIDGE, "ranges", cells(&window));
    let refused = case.refused();
    assert!(
        refused.contains("(/pcie@10000000: it lies in memory)"),
        "{refused}"
    );
}

/// Which line a function has, the bus alone tells: none may be that of an emulated device.
#[test]
fn a_line_is_not_that_of_an_emulated_device() {
    let mut case = case(&[]);
    let interrupt = cells(&[FIRST_LINE as u32]);
    case.manifest = case
        .manifest
        .set(RT, "devices", text("/pl031@9010000"))
        .set(LINUX, "devices", list(&["1,0"]))
        .set(LINUX, "trusts-dma", Vec::new())
        .set("/vms/linux/console", "interrupt", interrupt);
    let refused = case.refused();
    let expected = "interrupt 35 is also that of this VM's emulated console";
    assert!(refused.contains(expected), "{refused}");
}
