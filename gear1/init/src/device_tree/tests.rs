//! Requirements: G1-BOOT-006, G1-BOOT-014.

use alloc::string::{String, ToString};
use alloc::vec::Vec;
use std::borrow::ToOwned;

use gear1_abi::boot::BootPl061;
use gearv_manifest::blob::Blob;
use proptest::prelude::{any, prop, proptest};

use super::{Facts, Served, make};
use crate::devices;
use crate::fdt;
use crate::refusal::none_of;
use crate::region::Region;
use crate::testing::{VIRT_GICV2, VIRT_GICV3, tree};
use crate::trees::{Aligned, Tree, cells, smallest, text};

const DEVICE: &str = "/vms/device";

/// A network card's address goes from the manifest to the device model, as bytes, and so do the
/// pairs of its queues.
#[test]
fn a_card_has_the_address_and_the_pairs_that_the_manifest_gives() {
    let disk = "/vms/linux/virtio/disk";
    let net = manifest()
        .unset(disk, "read-only")
        .unset(disk, "serial")
        .set(disk, "type", text("net"))
        .set(disk, "backend", text("tap0"));
    let told = |manifest: &Tree, name: &str| {
        let made = made(manifest, tree(VIRT_GICV3).flatten().as_slice()).unwrap();
        value(&tree(&made), "/gearv/device@3", name)
    };
    assert_eq!(told(&net, "mac"), None);
    assert_eq!(told(&net, "queues"), Some(cells(&[2])));
    assert_eq!(told(&net.clone().unset(disk, "queues"), "queues"), None);
    let given = net.set(disk, "mac", text("02:00:5E:10:00:0f"));
    let mac = told(&given, "mac");
    assert_eq!(mac, Some([2, 0, 0x5e, 0x10, 0, 0xf].to_vec()));
}

/// The device model gets all that it needs to reach another program, and to start it.
#[test]
fn a_device_of_another_program_is_described() {
    let disk = "/vms/linux/virtio/disk";
    let manifest = manifest()
        .unset(disk, "read-only")
        .unset(disk, "serial")
        .unset(disk, "iops-limit")
        .unset(disk, "backend")
        .set(disk, "type", text("vhost-user"))
        .set(disk, "device", text("fs"))
        .set(disk, "socket", text("/run/fs/socket"))
        .set(disk, "tag", text("shared"))
        .set(disk, "queues", cells(&[3]))
        .set(disk, "timeout-ms", cells(&[5000]))
        .set(disk, "command", text("/usr/bin/fsd\0--verbose"))
        .set(disk, "files", text("/srv"));
    let made = tree(&made(&manifest, tree(VIRT_GICV3).flatten().as_slice()).unwrap());
    let device = |name: &str| value(&made, "/gearv/device@3", name);
    assert_eq!(device("type"), Some(text("vhost-user")));
    assert_eq!(device("vhost-user"), Some(cells(&[26, 3, 40])));
    assert_eq!(device("backend"), Some(text("/run/fs/socket")));
    assert_eq!(device("tag"), Some(text("shared")));
    assert_eq!(device("timeout-ms"), Some(cells(&[5000])));
    assert_eq!(device("command"), Some(text("/usr/bin/fsd\0--verbose")));
    assert_eq!(device("files"), Some(text("/srv")));
}

#[test]
fn the_device_model_is_told_of_sockets() {
    let disk = "/vms/linux/virtio/disk";
    let manifest = manifest()
        .unset(disk, "read-only")
        .unset(disk, "backend")
        .unset(disk, "serial")
        .unset(disk, "iops-limit")
        .unset(disk, "queues")
        .set(disk, "type", text("vsock"))
        .set(disk, "cid", cells(&[7]))
        .set(disk, "socket", text("/run/gearv/linux.vsock"));
    let made = tree(&made(&manifest, tree(VIRT_GICV3).flatten().as_slice()).unwrap());
    let device = |name: &str| value(&made, "/gearv/device@3", name);
    assert_eq!(device("type"), Some(text("vsock")));
    assert_eq!(device("cid"), Some(cells(&[7])));
    assert_eq!(device("backend"), Some(text("/run/gearv/linux.vsock")));
    assert_eq!(device("vhost-user"), None);
}

fn manifest() -> Tree {
    let devices = b"/pl011@9000000\0/virtio_mmio@a003e00\0".to_vec();
    smallest()
        .set("/vms/linux/virtio/disk", "type", text("block"))
        .set("/vms/linux/virtio/disk", "backend", text("/dev/vda"))
        .set("/vms/linux/virtio/disk", "read-only", Vec::new())
        .set("/vms/linux/virtio/disk", "serial", text("A-1"))
        .set("/vms/linux/virtio/disk", "iops-limit", cells(&[500]))
        .set("/vms/linux/virtio/disk", "queues", cells(&[2]))
        .set(DEVICE, "kind", text("device"))
        .set(DEVICE, "memory-mib", cells(&[2]))
        .set(DEVICE, "image", text("flat"))
        .set(DEVICE, "devices", devices)
}

/// Makes the tree of the manifest's device VM from the board's tree in `blob`.
fn made(manifest: &Tree, blob: &[u8]) -> Result<Vec<u8>, String> {
    made_for("device", manifest, blob)
}

/// Makes the tree of a VM, by name.
fn made_for(vm: &str, manifest: &Tree, blob: &[u8]) -> Result<Vec<u8>, String> {
    let manifest = manifest.flatten();
    let manifest = gearv_manifest::read(manifest.as_slice(), &mut |error| panic!("{error}"));
    let manifest = manifest.unwrap();
    let vm = manifest.vm_named(vm).unwrap();
    let own = manifest.virtio_of(vm.id).map(|(_, device)| *device);
    let board = fdt::read(blob)
        .board
        .map_err(|refusal| refusal.to_string())?;
    let blob = Blob::new(blob).map_err(|error| error.to_string())?;
    let refused = |refusal: crate::refusal::Refusal| refusal.to_string();
    let mut faults = Vec::new();
    let owned =
        devices::resolve(&manifest, vm, 232..234, &blob, &board, &mut faults).map_err(refused)?;
    none_of(&faults).map_err(refused)?;
    let served = manifest.virtio.iter().map(|device| Served {
        channel: 3,
        vm: "linux",
        device: *device,
        guest_ipa: 0x8000_0000,
        guest: Region::new(0x5020_0000, 0x6020_0000),
        page: 1,
    });
    let facts = Facts {
        vm,
        owned: &owned,
        memory: Region::new(0x4400_0000, 0x4420_0000),
        initrd: Region::new(0x4410_0000, 0x4411_0000),
        bootargs: "console=ttyAMA0",
        seed: core::array::from_fn(|at| at as u8),
        pl061: &[BootPl061 {
            ipa: 0xc00_0000,
            intid: 232,
            vm: 1,
        }],
        virtio: &own.collect::<Vec<_>>(),
        slices: &[Region::new(0x5000_0000, 0x6020_0000)],
        channels: &[],
        control: Some(Region::new(0x7020_0000, 0x7040_0000)),
        served: &served.collect::<Vec<_>>(),
    };
    make(&blob, &facts).map_err(refused)
}

fn made_from(board: &Tree) -> Tree {
    tree(&made(&manifest(), board.flatten().as_slice()).unwrap())
}

fn node<'t>(tree: &'t Tree, path: &str) -> Option<&'t Tree> {
    let mut names = path.split('/').filter(|name| !name.is_empty());
    names.try_fold(tree, |node, name| {
        let (_, child) = node.children.iter().find(|(child, _)| child == name)?;
        Some(child)
    })
}

fn value(tree: &Tree, path: &str, name: &str) -> Option<Vec<u8>> {
    let mut properties = node(tree, path)?.properties.iter();
    let found = properties.find(|(known, _)| known == name);
    found.map(|(_, value)| value.clone())
}

fn is_there(tree: &Tree, path: &str) -> bool {
    node(tree, path).is_some()
}

fn is_disabled(tree: &Tree, path: &str) -> bool {
    value(tree, path, "status") == Some(text("disabled"))
}

/// Tells whether no driver finds the node.
fn is_off(tree: &Tree, path: &str) -> bool {
    is_disabled(tree, path) || !is_there(tree, path)
}

#[test]
fn what_is_not_the_vms_is_off() {
    let made = made_from(&tree(VIRT_GICV3));
    for path in [
        "/pl031@9010000",
        "/virtio_mmio@a003c00",
        "/pcie@10000000",
        "/flash@0",
        "/pmu",
        "/gpio-keys",
        "/intc@8000000/its@8080000",
        "/fw-cfg@9020000",
    ] {
        assert!(is_off(&made, path), "{path}");
    }
    let enabled = [
        "/pl011@9000000",
        "/virtio_mmio@a003e00",
        "/intc@8000000",
        "/timer",
        "/apb-pclk",
    ];
    for path in enabled {
        assert!(
            is_there(&made, path) && value(&made, path, "status").is_none(),
            "{path}"
        );
    }
    // A disabled node keeps its phandle and nearly all other properties.
    let virt = tree(VIRT_GICV3);
    let phandle = value(&virt, "/pl061@9030000", "phandle");
    assert!(phandle.is_some());
    assert_eq!(value(&made, "/pl061@9030000", "phandle"), phandle);
    assert_eq!(
        value(&made, "/", "interrupt-parent"),
        value(&virt, "/", "interrupt-parent")
    );
}

/// A node of the VM's may name a node with a phandle, itself or one below it: such a node stays, so
/// that the name leads somewhere. One that an alias names stays too. No other node of another
/// owner's is in the tree.
#[test]
fn what_nobody_can_refer_to_is_left_out() {
    let board = tree(VIRT_GICV3)
        .set("/named@1", "reg", cells(&[0, 1, 0, 1]))
        .set("/named@1", "phandle", cells(&[0x7001]))
        .set("/above@2", "compatible", text("bus"))
        .set("/above@2/line", "linux,phandle", cells(&[0x7002]))
        .set("/nobody@3", "compatible", text("bus"))
        .set("/nobody@3/line", "reg", cells(&[0]))
        .set("/numbered@4", "compatible", text("bus"))
        .set("/numbered@4/card", "reg", cells(&[0]))
        .set("/numbered@44", "reg", cells(&[0, 44, 0, 1]))
        .set("/aliases", "mmc0", text("/numbered@4/card"));
    let made = made_from(&board);
    assert!(is_disabled(&made, "/named@1") && is_disabled(&made, "/above@2"));
    assert!(is_there(&made, "/above@2/line"));
    assert!(is_disabled(&made, "/numbered@4") && is_there(&made, "/numbered@4/card"));
    for path in ["/nobody@3", "/numbered@44", "/virtio_mmio@a003c00"] {
        assert!(!is_there(&made, path), "{path}");
    }
}

/// A guest's own device is enabled, and what is emulated for it stands beside. QEMU's transports
/// may lie where the guest has its virtio devices, and have other names.
#[test]
fn a_guest_has_its_own_devices_and_the_emulated_ones() {
    let guest = "/vms/linux";
    let manifest = manifest()
        .set(guest, "devices", text("/pl031@9010000"))
        .set(guest, "watchdog-ms", cells(&[5500]))
        .set("/vms/linux/rtc", "address", cells(&[0x904_0000]));
    let board = tree(VIRT_GICV3).flatten();
    let made = tree(&made_for("linux", &manifest, board.as_slice()).unwrap());
    assert!(!is_disabled(&made, "/pl031@9010000") && is_there(&made, "/pl031@9010000"));
    assert!(is_off(&made, "/pl011@9000000") && is_off(&made, "/virtio_mmio@a000000"));
    assert_eq!(value(&made, "/", "model"), Some(text("GearV VM linux")));
    let virtio = |name: &str| value(&made, "/virtio@a000000", name);
    assert_eq!(virtio("compatible"), Some(text("virtio,mmio")));
    assert_eq!(virtio("reg"), Some(cells(&[0, 0xa00_0000, 0, 0x200])));
    assert_eq!(virtio("interrupts"), Some(cells(&[0, 16, 1])));
    assert_eq!(virtio("dma-coherent"), Some(Vec::new()));
    let watchdog = |name: &str| value(&made, "/watchdog@9020000", name);
    let frames = cells(&[0, 0x902_0000, 0, 0x1000, 0, 0x902_1000, 0, 0x1000]);
    assert_eq!(watchdog("reg"), Some(frames));
    assert_eq!(watchdog("interrupts"), Some(cells(&[0, 2, 4])));
    assert_eq!(watchdog("timeout-sec"), Some(cells(&[5])));
    let clock = value(&made, "/rtc@9040000", "reg");
    assert_eq!(clock, Some(cells(&[0, 0x904_0000, 0, 0x1000])));
}

/// Linux asks a GICv2m frame for this property and not for its status.
#[test]
fn a_disabled_msi_controller_is_none() {
    let frame = "/intc@8000000/v2m@8020000";
    assert!(value(&tree(VIRT_GICV2), frame, "msi-controller").is_some());
    let made = made_from(&tree(VIRT_GICV2));
    assert!(is_disabled(&made, frame));
    assert_eq!(value(&made, frame, "msi-controller"), None);
}

#[test]
fn memory_cpus_and_firmware_are_the_vms() {
    let board = tree(VIRT_GICV3)
        .set("/cpus/cpu@0", "cpu-idle-states", cells(&[1]))
        .set("/cpus/cpu@0", "reg", cells(&[0x100]))
        .set(
            "/cpus/idle-states/deep",
            "compatible",
            text("arm,idle-state"),
        )
        .node("/cpus/cpu-map/cluster0")
        .set("/reserved-memory", "#address-cells", cells(&[2]))
        .set("/reserved-memory", "#size-cells", cells(&[2]))
        .set("/reserved-memory", "ranges", Vec::new())
        .set(
            "/reserved-memory/a",
            "reg",
            cells(&[0, 0x4100_0000, 0, 0x1000]),
        );
    let made = made_from(&board);
    let memory = made
        .children
        .iter()
        .filter(|(name, _)| name.starts_with("memory"));
    assert_eq!(memory.count(), 1);
    assert_eq!(
        value(&made, "/memory@44000000", "reg"),
        Some(cells(&[0, 0x4400_0000, 0, 0x20_0000]))
    );
    assert_eq!(value(&made, "/cpus/cpu@0", "reg"), Some(cells(&[0])));
    assert_eq!(
        value(&made, "/cpus/cpu@0", "enable-method"),
        Some(text("psci"))
    );
    assert_eq!(value(&made, "/cpus/cpu@0", "cpu-idle-states"), None);
    assert!(value(&made, "/cpus/cpu@0", "phandle").is_some());
    for path in ["/cpus/cpu@1", "/cpus/cpu-map"] {
        assert!(!is_there(&made, path), "{path}");
    }
    assert_eq!(value(&made, "/psci", "method"), Some(text("hvc")));
    assert_eq!(value(&made, "/psci", "cpu_on"), None);
    assert!(is_there(&made, "/reserved-memory/a"));
}

#[test]
fn more_vcpus_than_cpus_have_no_phandle() {
    let board = tree(VIRT_GICV3);
    let manifest = manifest().set(DEVICE, "vcpus", cells(&[3]));
    let made = tree(&made(&manifest, board.flatten().as_slice()).unwrap());
    assert!(value(&made, "/cpus/cpu@1", "phandle").is_some());
    assert_eq!(value(&made, "/cpus/cpu@2", "reg"), Some(cells(&[2])));
    assert_eq!(value(&made, "/cpus/cpu@2", "phandle"), None);
}

#[test]
fn the_boot_says_what_only_it_knows() {
    let made = made_from(&tree(VIRT_GICV3));
    let chosen = |name: &str| value(&made, "/chosen", name);
    assert_eq!(chosen("bootargs"), Some(text("console=ttyAMA0")));
    assert_eq!(chosen("stdout-path"), Some(text("/pl011@9000000")));
    assert_eq!(chosen("linux,initrd-start"), Some(cells(&[0, 0x4410_0000])));
    assert_eq!(chosen("linux,initrd-end"), Some(cells(&[0, 0x4411_0000])));
    assert_eq!(chosen("rng-seed").unwrap(), (0..32).collect::<Vec<u8>>());
    assert_eq!(chosen("kaslr-seed").unwrap(), (32..40).collect::<Vec<u8>>());
}

#[test]
fn what_gear1_adds_is_described() {
    let made = made_from(&tree(VIRT_GICV3));
    let pl061 = |name: &str| value(&made, "/pl061@c000000", name);
    assert_eq!(pl061("reg"), Some(cells(&[0, 0xc00_0000, 0, 0x1000])));
    assert_eq!(pl061("interrupts"), Some(cells(&[0, 200, 4])));
    assert_eq!(
        pl061("interrupt-parent"),
        value(&made, "/intc@8000000", "phandle")
    );
    assert_eq!(pl061("clocks"), value(&made, "/gearv-clock", "phandle"));
    let pmem = |name: &str| value(&made, "/pmem-region@50000000", name);
    assert_eq!(pmem("reg"), Some(cells(&[0, 0x5000_0000, 0, 0x1020_0000])));
    assert_eq!(pmem("volatile"), Some(Vec::new()));
    let gearv = |name: &str| value(&made, "/gearv", name);
    assert_eq!(
        gearv("control"),
        Some(cells(&[0, 0x7020_0000, 0, 0x20_0000]))
    );
    assert_eq!(gearv("window"), Some(cells(&[0, 0xc00_0000, 0, 0x10_0000])));
    let device = |name: &str| value(&made, "/gearv/device@3", name);
    assert_eq!(device("channel"), Some(cells(&[3])));
    assert_eq!(device("vm"), Some(text("linux")));
    assert_eq!(device("vm-id"), Some(cells(&[0])));
    assert_eq!(device("type"), Some(text("block")));
    assert_eq!(device("backend"), Some(text("/dev/vda")));
    assert_eq!(device("read-only"), Some(Vec::new()));
    assert_eq!(device("label"), Some(text("disk")));
    assert_eq!(device("serial"), Some(text("A-1")));
    assert_eq!(device("limits"), Some(cells(&[500, 0, 100])));
    assert_eq!(device("mtu"), None);
    assert_eq!(device("queues"), Some(cells(&[2])));
    let memory = cells(&[0, 0x8000_0000, 0, 0x5020_0000, 0, 0x1000_0000]);
    assert_eq!(device("guest-memory"), Some(memory));
    assert_eq!(device("register-page"), Some(cells(&[1, 0])));
}

#[test]
fn phandles_stay_unique() {
    fn phandles(tree: &Tree, list: &mut Vec<Vec<u8>>) {
        list.extend(value(tree, "", "phandle"));
        tree.children
            .iter()
            .for_each(|(_, child)| phandles(child, list));
    }
    let mut list = Vec::new();
    phandles(&made_from(&tree(VIRT_GICV2)), &mut list);
    let count = list.len();
    list.sort();
    list.dedup();
    assert!(count > 3 && list.len() == count);
}

#[test]
fn an_emulated_console_is_the_vms_console() {
    let manifest = manifest()
        .set(DEVICE, "devices", text("/virtio_mmio@a003e00"))
        .node("/vms/device/console");
    let made = tree(&made(&manifest, tree(VIRT_GICV3).flatten().as_slice()).unwrap());
    assert_eq!(
        value(&made, "/chosen", "stdout-path"),
        Some(text("/uart@9000000"))
    );
    assert_eq!(
        value(&made, "/uart@9000000", "interrupts"),
        Some(cells(&[0, 1, 4]))
    );
    assert!(is_off(&made, "/pl011@9000000"));
}

#[test]
fn devices_on_a_bus_keep_the_bus_alive() {
    let board = tree(VIRT_GICV3)
        .set("/soc", "compatible", text("simple-bus"))
        .set("/soc", "#address-cells", cells(&[2]))
        .set("/soc", "#size-cells", cells(&[2]))
        .set("/soc", "ranges", Vec::new())
        .set(
            "/soc/net@fe000000",
            "reg",
            cells(&[0, 0xfe00_0000, 0, 0x1000]),
        )
        .set("/soc/net@fe000000/phy", "reg", cells(&[1]))
        .set(
            "/soc/gpu@fe100000",
            "reg",
            cells(&[0, 0xfe10_0000, 0, 0x1000]),
        );
    let manifest = manifest().set(DEVICE, "devices", text("/soc/net@*"));
    let made = tree(&made(&manifest, board.flatten().as_slice()).unwrap());
    for path in ["/soc", "/soc/net@fe000000", "/soc/net@fe000000/phy"] {
        assert_eq!(value(&made, path, "status"), None, "{path}");
    }
    assert!(is_off(&made, "/soc/gpu@fe100000") && is_off(&made, "/pl011@9000000"));
    assert_eq!(value(&made, "/chosen", "stdout-path"), None);
}

/// The path of a device that a VM uses as firmware left it, and of something on its own bus.
const KEPT: &str = "/pl011@9000000";
const BELOW: &str = "/pl011@9000000/phy@1";

/// A board whose UART asks for what firmware has, with clocks of two providers and one that is not
/// there.
fn board_of_firmware() -> Tree {
    let provider = |cells_of: u32, phandle: u32| {
        let node = alloc::format!("/firmware/provider-{phandle:x}");
        (node, cells(&[cells_of]), cells(&[phandle]))
    };
    let mut board = tree(VIRT_GICV3);
    for (node, count, phandle) in [provider(2, 0x9001), provider(0, 0x9002)] {
        board = board
            .set(&node, "compatible", text("acme,clocks"))
            .set(&node, "#clock-cells", count)
            .set(&node, "phandle", phandle);
    }
    for name in ["resets", "power-domains", "vmmc-supply", "cd-gpios", "phys"] {
        board = board.set(KEPT, name, cells(&[0x9001, 1]));
    }
    board
        .set(KEPT, "clocks", cells(&[0x9001, 5, 6, 0, 0x9002]))
        .set(KEPT, "phy-handle", cells(&[0x9003]))
        .set(BELOW, "reg", cells(&[1]))
        .set(BELOW, "phandle", cells(&[0x9003]))
        .set(BELOW, "reset-gpios", cells(&[0x9001, 2]))
}

fn kept(rates: &[u32]) -> Tree {
    manifest().set("/as-booted/uart", "device", text(KEPT)).set(
        "/as-booted/uart",
        "clocks-hz",
        cells(rates),
    )
}

#[test]
fn a_device_as_booted_has_fixed_clocks_and_asks_for_nothing() {
    let board = board_of_firmware();
    let flat = board.flatten();
    let made = tree(&made(&kept(&[10, 20, 30]), flat.as_slice()).unwrap());
    let clocks = value(&made, KEPT, "clocks").unwrap();
    for (number, rate) in [10, 20, 30].into_iter().enumerate() {
        let node = alloc::format!("/as-booted-uart-{number}");
        let at = |name: &str| value(&made, &node, name).unwrap();
        assert_eq!(at("clock-frequency"), cells(&[rate]));
        assert_eq!(at("compatible"), text("fixed-clock"));
        assert_eq!(at("#clock-cells"), cells(&[0]));
        assert_eq!(clocks[4 * number..][..4], at("phandle"));
    }
    assert_eq!(clocks.len(), 12);
    for name in ["resets", "power-domains", "vmmc-supply", "cd-gpios", "phys"] {
        assert_eq!(value(&made, KEPT, name), None, "{name}");
    }
    assert_eq!(value(&made, BELOW, "reset-gpios"), None);
    // What is the device's own stays.
    for (path, name) in [(KEPT, "phy-handle"), (KEPT, "clock-names"), (BELOW, "reg")] {
        assert_eq!(
            value(&made, path, name),
            value(&board, path, name),
            "{name}"
        );
    }
}

#[test]
fn a_device_that_is_not_as_booted_keeps_what_it_asks_for() {
    let board = board_of_firmware();
    let made = tree(&made(&manifest(), board.flatten().as_slice()).unwrap());
    for name in ["clocks", "resets", "vmmc-supply", "cd-gpios"] {
        let asked = value(&made, KEPT, name);
        assert_eq!(asked, value(&board, KEPT, name), "{name}");
    }
    assert!(value(&made, BELOW, "reset-gpios").is_some());
}

#[test]
fn each_clock_of_a_device_as_booted_has_a_rate() {
    let board = board_of_firmware();
    let refused = made(&kept(&[10, 20]), board.flatten().as_slice()).unwrap_err();
    let expected = "manifest: M-ASB-005: /as-booted/uart: clocks-hz: these are not the rates of the \
        device's clocks (/pl011@9000000: clocks: 3, rates: 2)";
    assert!(refused.starts_with(expected), "{refused}");
}

/// A list of clocks that ends within a reference is refused, not counted.
#[test]
fn half_a_reference_to_a_clock_is_refused() {
    let board = board_of_firmware().set(KEPT, "clocks", cells(&[0x9001, 5]));
    let refused = made(&kept(&[10]), board.flatten().as_slice()).unwrap_err();
    assert!(
        refused.contains("/pl011@9000000: clocks: not whole references"),
        "{refused}"
    );
}

#[test]
fn addresses_without_room_are_refused() {
    let board = tree(VIRT_GICV3).set("/", "#size-cells", cells(&[0]));
    let blob = board.flatten();
    let refused = made(&manifest(), blob.as_slice()).unwrap_err();
    assert!(refused.starts_with("device tree: "), "{refused}");
}

/// dtc, where there is one, finds nothing wrong with the tree that it would not find in the
/// board's.
#[test]
fn dtc_reads_it() {
    use std::io::Write as _;
    use std::process::{Command, Stdio};

    let made = made(&manifest(), tree(VIRT_GICV3).flatten().as_slice()).unwrap();
    let dtc = Command::new("dtc")
        .args(["-q", "-I", "dtb", "-O", "dts"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn();
    let Ok(mut dtc) = dtc else {
        return;
    };
    dtc.stdin.take().unwrap().write_all(&made).unwrap();
    let output = dtc.wait_with_output().unwrap();
    assert!(output.status.success());
    let source = String::from_utf8(output.stdout).unwrap();
    assert!(source.contains("gearv,device-vm") && source.contains("volatile;"));
}

proptest! {
    /// No tree panics, and what comes out can be read.
    #[test]
    fn damage_never_panics(damage in prop::collection::vec((0..VIRT_GICV3.len(), any::<u8>()), 1..6)) {
        let mut bytes: Vec<u8> = VIRT_GICV3.to_owned();
        for (at, value) in damage {
            bytes[at] = value;
        }
        if let Ok(made) = made(&manifest(), Aligned::new(&bytes).as_slice()) {
            assert!(Blob::new(Aligned::new(&made).as_slice()).is_ok());
        }
    }
}
