//! Real-time VMs and guests with devices of their own, through the whole of init.
//!
//! Requirements: G1-BOOT-005, G1-DMA-002, G1-DMA-005.

use alloc::string::ToString;
use alloc::vec::Vec;

use gear1_abi::boot::{IrqOwner, MAX_MASTERS, RealTime};

use crate::prepare::tests::{Case, stage2};
use crate::trees::{cells, text};

const RT: &str = "/vms/rt";
const CLOCK: &[u8] = b"/pl031@9010000\0";

/// A machine whose CPU 1 is a real-time VM's that owns the clock.
fn case(gic: &str) -> Case {
    let mut case = Case::new();
    case.manifest = case
        .manifest
        .set("/vms/linux", "vcpus", cells(&[1]))
        .set(RT, "kind", text("real-time"))
        .set(RT, "cpus", cells(&[1]))
        .set(RT, "memory-mib", cells(&[4]))
        .set(RT, "image", text("guest.bin"))
        .set(RT, "gic", text(gic))
        .set(RT, "devices", CLOCK.to_vec());
    case
}

#[test]
fn a_real_time_vm_has_its_cpu_and_its_device_alone() {
    let (memory, info) = case("pass-through").booted();
    let rt = &info.vms[2];
    assert_eq!(rt.real_time, RealTime::PassThrough);
    assert!(info.cpus[1].real_time && !info.cpus[1].gear2 && !info.cpus[0].real_time);
    assert_eq!(info.owner_cpu[usize::from(rt.first_vcpu)], 1);
    assert_eq!(info.irq_owner[34], IrqOwner::vm(2).unwrap());
    let own = stage2(&memory, rt.root);
    assert!(own.iter().any(|leaf| leaf.output.start == 0x901_0000));
    for vm in &info.vms[..2] {
        assert_eq!(vm.real_time, RealTime::No);
        let others = stage2(&memory, vm.root);
        assert!(!others.iter().any(|leaf| leaf.output.start == 0x901_0000));
    }
}

#[test]
fn the_virtual_interrupt_controller_is_the_default() {
    assert_eq!(
        case("emulated").booted().1.vms[2].real_time,
        RealTime::Emulated
    );
}

#[test]
fn a_device_has_one_owner() {
    let mut case = case("emulated");
    case.manifest = case.manifest.set("/vms/linux", "kind", text("device")).set(
        "/vms/linux",
        "devices",
        CLOCK.to_vec(),
    );
    let expected = "manifest: M-DEV-009: /vms/linux: devices: the device has another owner too (the \
        device at 0x9010000), in conflict with /vms/rt; ";
    assert!(case.refused().starts_with(expected));
}

/// Two devices of the board share an interrupt: one VM has both, or neither.
#[test]
fn an_interrupt_has_one_owner() {
    let mut case = case("emulated");
    let linux = "/vms/linux";
    case.manifest = case.manifest.set(linux, "kind", text("device")).set(
        linux,
        "devices",
        text("/pl061@9030000"),
    );
    let shared = cells(&[0, 2, 4]);
    case.board = case.board.set("/pl061@9030000", "interrupts", shared);
    let refused = case.refused();
    assert!(
        refused.contains("M-DEV-009") && refused.contains("(INTID 34)"),
        "{refused}"
    );
}

#[test]
fn every_bus_master_that_is_given_away_can_be_stopped() {
    let with = |count: usize| {
        let mut case = case("emulated");
        case.manifest = case.manifest.set(RT, "devices", b"/disk@*\0".to_vec());
        for index in 0..count as u32 {
            let at = 0x0b00_0000 + index * 0x1000;
            let path = alloc::format!("/disk@{at:x}");
            case.board = case
                .board
                .set(&path, "compatible", text("virtio,mmio"))
                .set(&path, "reg", cells(&[0, at, 0, 0x200]));
        }
        case
    };
    let (_, info) = with(MAX_MASTERS).booted();
    assert!(
        info.masters
            .iter()
            .all(|master| master.vm == 2 && master.register != 0)
    );
    let refused = with(MAX_MASTERS + 1).refused();
    let expected = "manifest: M-DEV-010: /vms/rt: devices: more devices master the bus than Gear1 can stop \
        (65 bus masters; 64 fit); ";
    assert!(refused.starts_with(expected), "{refused}");
}

/// Eight transports are in a page. Who owns one of them reaches all, and what is started there has
/// to stop with its VM.
///
/// Requirement: G1-DMA-002.
#[test]
fn the_bus_masters_beside_a_device_stop_with_it() {
    let mut case = case("emulated");
    case.manifest = case
        .manifest
        .set(RT, "devices", text("/virtio_mmio@a003e00"));
    let (_, info) = case.booted();
    let masters = info.masters.iter().filter(|master| master.register != 0);
    let mut registers: Vec<u64> = masters.map(|master| master.register).collect();
    registers.sort_unstable();
    let page: Vec<u64> = (0..8).map(|number| 0xa00_3070 + 0x200 * number).collect();
    assert_eq!(registers, page);
}

/// A machine whose real-time VM owns a device with this word, and how the manifest stops it.
fn with_engine(compatible: &str) -> Case {
    const ENGINE: &str = "/engine@b000000";
    const KIND: &str = "/bus-masters/engine";
    let mut case = case("emulated");
    case.manifest = case
        .manifest
        .set(RT, "devices", text(ENGINE))
        .set(KIND, "compatible", text("acme,engine"))
        .set(KIND, "offset", cells(&[0x24]))
        .set(KIND, "value", cells(&[0x8000_0001]))
        .set(KIND, "busy", cells(&[2]));
    case.board = case.board.set(ENGINE, "compatible", text(compatible)).set(
        ENGINE,
        "reg",
        cells(&[0, 0x0b00_0000, 0, 0x1000]),
    );
    case
}

/// Requirement: G1-DMA-002.
#[test]
fn the_manifest_says_how_a_bus_master_is_stopped() {
    let (_, info) = with_engine("acme,engine").booted();
    let master = info.masters[0];
    let place = (master.register, master.value, master.busy, master.vm);
    assert_eq!(place, (0x0b00_0024, 0x8000_0001, 2, 2));
    assert_eq!(info.masters[1].register, 0);
}

/// The manifest's way is taken before the one that GearV knows.
#[test]
fn the_manifest_goes_before_what_is_known() {
    let mut case = with_engine("cdns,gem");
    let kind = "/bus-masters/engine";
    case.manifest = case.manifest.set(kind, "compatible", text("cdns,gem"));
    assert_eq!(case.booted().1.masters[0].register, 0x0b00_0024);
    let mut case = with_engine("cdns,gem");
    case.manifest
        .at("/")
        .children
        .retain(|(name, _)| name != "bus-masters");
    let master = case.booted().1.masters[0];
    assert_eq!(
        (master.register, master.value, master.busy),
        (0x0b00_0000, 0, 0xc)
    );
}

/// An SD host controller of the board's own kind, as the tree names it.
#[test]
fn an_sd_host_controller_is_reset() {
    let mut case = with_engine("brcm,bcm2711-emmc2");
    let root = case.manifest.at("/");
    root.children.retain(|(name, _)| name != "bus-masters");
    let master = case.booted().1.masters[0];
    let place = (master.register, master.value, master.busy);
    assert_eq!(place, (0x0b00_002c, 0x0100_0000, 0x0100_0000));
}

/// The words of a device go from itself to what it is like: the first that is known says how it is
/// stopped, whatever the manifest says first.
#[test]
fn a_device_is_stopped_as_itself() {
    let mut case = with_engine("acme,engine-2\0acme,engine");
    let own = "/bus-masters/own";
    case.manifest = case
        .manifest
        .set(own, "compatible", text("acme,engine-2"))
        .set(own, "offset", cells(&[0x40]))
        .set(own, "value", cells(&[1]))
        .set(own, "busy", cells(&[1]))
        .set(RT, "devices", b"/engine@b000000\0/old@c000000\0".to_vec());
    case.board = case
        .board
        .set("/old@c000000", "compatible", text("acme,engine"))
        .set("/old@c000000", "reg", cells(&[0, 0x0c00_0000, 0, 0x1000]));
    let (_, info) = case.booted();
    let registers = [0, 1].map(|master: usize| info.masters[master].register);
    assert!(registers.contains(&0x0b00_0040) && registers.contains(&0x0c00_0024));
}

/// A misspelled word would leave the device running.
#[test]
fn a_way_to_stop_is_of_some_device() {
    let refused = with_engine("acme,engine-2").refused();
    let expected = "manifest: M-BUS-005: /bus-masters/engine: compatible: no VM owns a device of \
        this kind (\"acme,engine\")";
    assert!(refused.starts_with(expected), "{refused}");
}

/// The register has to be one of the device's own: another device's could be behind it.
#[test]
fn the_register_is_the_devices_own() {
    let mut case = with_engine("acme,engine");
    case.manifest = case
        .manifest
        .set("/bus-masters/engine", "offset", cells(&[0x1000]));
    let refused = case.refused();
    assert!(
        refused.contains("it has no register to stop it by"),
        "{refused}"
    );
}

const GUEST: &str = "/vms/flat";

/// A machine with a guest that Gear2 schedules and that owns `devices`, each with its NUL.
fn guest(devices: &[u8]) -> Case {
    let mut case = Case::new();
    case.manifest = case
        .manifest
        .set(GUEST, "memory-mib", cells(&[4]))
        .set(GUEST, "image", text("guest.bin"))
        .set(GUEST, "devices", devices.to_vec());
    case
}

#[test]
fn a_guest_has_its_device_alone() {
    let (memory, info) = guest(CLOCK).booted();
    assert_eq!(info.vms[1].real_time, RealTime::No);
    assert_eq!(info.irq_owner[34], IrqOwner::vm(1).unwrap());
    let has = |vm: usize| {
        let leaves = stage2(&memory, info.vms[vm].root);
        leaves.iter().any(|leaf| leaf.output.start == 0x901_0000)
    };
    assert_eq!([0, 1].map(has), [false, true]);
}

/// Of what no SMMU keeps back, a guest has only what is known to leave memory alone, unless the
/// manifest trusts it. A device that nobody knows counts as a master of the bus.
#[test]
fn a_guest_is_trusted_with_a_bus_master_by_the_manifest_alone() {
    const UNKNOWN: &str = "/new@b000000";
    let with_unknown = |devices: &[u8]| {
        let mut case = guest(devices);
        case.board = case
            .board
            .set(UNKNOWN, "compatible", text("gearv,unknown"))
            .set(UNKNOWN, "reg", cells(&[0, 0xb00_0000, 0, 0x1000]));
        case
    };
    let prefix = "manifest: M-DEV-011: /vms/flat: devices: a device of a guest may reach all \
        memory, as no SMMU keeps it back ";
    for (devices, why, stopped) in [
        (
            "/virtio_mmio@a003e00\0",
            "(/virtio_mmio@a003e00, and 7 more); ",
            8,
        ),
        (
            "/virtio_mmio@*\0",
            "(/virtio_mmio@a000000, and 31 more); ",
            32,
        ),
        ("/pcie@10000000\0", "(/pcie@10000000); ", 1),
        ("/new@b000000\0/pl031@9010000\0", "(/new@b000000); ", 0),
    ] {
        let mut case = with_unknown(devices.as_bytes());
        let refused = case.refused();
        assert!(
            refused.starts_with(&(prefix.to_string() + why)),
            "{refused}"
        );
        case.manifest = case.manifest.set(GUEST, "trusts-dma", Vec::new());
        let (_, info) = case.booted();
        let masters = info.masters.iter().filter(|one| one.register != 0);
        let owners: Vec<u32> = masters.map(|one| one.vm).collect();
        assert_eq!(owners, alloc::vec![1; stopped], "{devices}");
    }
    let mut beside = with_unknown(CLOCK);
    let registers = cells(&[0, 0x901_0800, 0, 0x100]);
    beside.board = beside.board.set(UNKNOWN, "reg", registers);
    let why = "(/new@b000000, by its page); ";
    // The hardware is there, whatever the tree says of it.
    for status in ["okay", "disabled"] {
        beside.board = beside.board.set(UNKNOWN, "status", text(status));
        let refused = beside.refused();
        assert!(
            refused.starts_with(&(prefix.to_string() + why)),
            "{refused}"
        );
    }
    let harmless = b"/pl011@9000000\0/pl061@9030000\0/gpio-keys\0/apb-pclk\0";
    let (_, info) = guest(harmless).booted();
    assert_eq!(info.irq_owner[39], IrqOwner::vm(1).unwrap());
}

/// A UART with a DMA engine of its own names the plain one behind itself.
///
/// Requirement: G1-DMA-005.
#[test]
fn a_device_is_no_more_passive_than_its_first_word() {
    const UART: &str = "/uart@b000000";
    let with = |compatible: &str| {
        let mut case = guest(b"/uart@b000000\0");
        case.board = case
            .board
            .set(UART, "compatible", text(compatible))
            .set(UART, "reg", cells(&[0, 0xb00_0000, 0, 0x1000]))
            .set(UART, "interrupts", cells(&[0, 100, 4]));
        case
    };
    with("ns16550a").booted();
    with("arm,pl011\0arm,primecell").booted();
    let refused = with("brcm,bcm7271-uart\0ns16550a").refused();
    let expected = "manifest: M-DEV-011: /vms/flat: devices: a device of a guest may reach all \
        memory, as no SMMU keeps it back (/uart@b000000); ";
    assert!(refused.starts_with(expected), "{refused}");
}

/// An interrupt of the guest's distributor has one source, and a page one meaning.
#[test]
fn a_guests_device_is_no_emulated_one() {
    let prefix = "manifest: M-DEV-008: /vms/flat: devices: this device cannot be given away (";
    let watched = |devices: &[u8]| {
        let mut case = guest(devices);
        case.manifest = case.manifest.set(GUEST, "watchdog-ms", cells(&[5000])).set(
            GUEST,
            "restart",
            text("on-failure"),
        );
        case
    };
    let refused = watched(CLOCK).refused();
    let why = "interrupt 34 is also that of this VM's emulated watchdog); ";
    assert!(
        refused.starts_with(&(prefix.to_string() + why)),
        "{refused}"
    );
    let mut case = watched(b"/pl061@9030000\0");
    case.booted();
    let address = cells(&[0x902_f000]);
    case.manifest = case.manifest.set(GUEST, "watchdog-address", address);
    let refused = case.refused();
    let why = "the device at 0x9030000 lies where this VM has its emulated watchdog); ";
    assert!(
        refused.starts_with(&(prefix.to_string() + why)),
        "{refused}"
    );
}
