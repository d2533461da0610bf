//! Manifests that break one rule each, by the subject of the rule.

use std::string::ToString;
use std::vec;
use std::vec::Vec;

use super::{DEVICE, DISK, VM, flat, real_time, served, two};
use crate::testing::{Tree, cells, smallest, text};

/// A manifest and the beginning of the only message that it must give.
pub(super) type Case = (Tree, &'static str);

fn named(name: &str) -> Tree {
    let mut tree = smallest();
    tree.at("/vms").children[0].0 = name.to_string();
    tree
}

/// A manifest whose VMs stand in a node of another name; a channel names two of them.
fn misnamed(name: &str) -> Tree {
    let mut tree = two().set("/channels/bell", "from", text("linux")).set(
        "/channels/bell",
        "to",
        text("other"),
    );
    let mut nodes = tree.at("/").children.iter_mut();
    nodes.find(|(name, _)| name == "vms").unwrap().0 = name.to_string();
    tree
}

fn twice(mut tree: Tree, path: &str, property: &str) -> Tree {
    let node = tree.at(path);
    let again = node
        .properties
        .iter()
        .find(|(name, _)| name == property)
        .unwrap()
        .clone();
    node.properties.push(again);
    tree
}

/// Cases of nodes and properties that the binding does not have, or has once.
fn tree_cases() -> Vec<Case> {
    let two_consoles = {
        let mut tree = smallest().node("/vms/linux/console");
        let again = tree.at(VM).children[0].clone();
        tree.at(VM).children.push(again);
        tree
    };
    std::vec![
        (
            smallest().set("/", "compatible", text("linux,dummy-virt")),
            "M-BLB-002: /: compatible: "
        ),
        (
            smallest().set("/", "version", cells(&[2])),
            "M-BLB-003: /: version: this version of the \
            binding is not known here (2); "
        ),
        (
            smallest().set(VM, "vcpu", cells(&[1])),
            "M-SYN-001: /vms/linux: vcpu: the binding has \
            no such property here; did you mean vcpus?"
        ),
        (
            smallest().set("/vms", "kind", text("guest")),
            "M-SYN-001: /vms: kind: "
        ),
        (
            smallest().set("/gear2", "kernel", text("x")),
            "M-SYN-001: /gear2: kernel: "
        ),
        (
            smallest().set("/vms/linux/console", "reg", cells(&[1])),
            "M-SYN-001: /vms/linux/console: "
        ),
        (
            smallest().node("/vms/linux/uart"),
            "M-SYN-002: /vms/linux/uart: "
        ),
        (smallest().node("/gear2/cpus"), "M-SYN-002: /gear2/cpus: "),
        (
            misnamed("VMs"),
            "M-SYN-002: /VMs: the binding has no such node here; did you mean vms?"
        ),
        (
            twice(smallest(), VM, "kernel"),
            "M-SYN-004: /vms/linux: kernel: "
        ),
        (two_consoles, "M-SYN-004: /vms/linux/console: "),
    ]
}

/// Cases of values that are not of the type of their property.
fn type_cases() -> Vec<Case> {
    std::vec![
        (
            smallest().set(VM, "vcpus", text("2")),
            "M-SYN-003: /vms/linux: vcpus: "
        ),
        (
            smallest().set(VM, "vcpus", cells(&[0, 2])),
            "M-SYN-003: /vms/linux: vcpus: "
        ),
        (
            smallest().set(VM, "cpus", cells(&[])),
            "M-SYN-003: /vms/linux: cpus: "
        ),
        (
            smallest().set(VM, "memory-mib", std::vec![1, 2, 3]),
            "M-SYN-003: /vms/linux: memory-mib: "
        ),
        (
            smallest().set(VM, "memory-ipa", cells(&[0, 0, 0])),
            "M-SYN-003: /vms/linux: memory-ipa: "
        ),
        (
            smallest().set(VM, "kernel", cells(&[1])),
            "M-SYN-003: /vms/linux: kernel: "
        ),
        (
            smallest().set(VM, "initrd", std::vec![0xff, 0]),
            "M-SYN-003: /vms/linux: initrd: "
        ),
        (
            smallest().set(VM, "cmdline", std::vec![]),
            "M-SYN-003: /vms/linux: cmdline: "
        ),
        (
            smallest().set(VM, "cmdline", b"a\0b\0".to_vec()),
            "M-SYN-003: /vms/linux: cmdline: "
        ),
        // As bytes, two strings.
        (
            smallest().set(VM, "devices", cells(&[0x904_0000])),
            "M-SYN-003: /vms/linux: devices: "
        ),
        (
            smallest().set(VM, "may-power-off", cells(&[1])),
            "M-SYN-003: /vms/linux: may-power-off: "
        ),
        (
            smallest().set("/vms/linux/console", "interrupt", text("33")),
            "M-SYN-003: /vms/linux/console: interrupt: "
        ),
    ]
}

/// Cases of values that the property does not take.
fn value_cases() -> Vec<Case> {
    std::vec![
        (
            smallest().set(VM, "restart", text("sometimes")),
            "M-SYN-005: /vms/linux: restart: "
        ),
        (
            smallest().set(VM, "gic", text("none")),
            "M-SYN-005: /vms/linux: gic: "
        ),
        (
            smallest().set("/gear2", "scheduler", text("cfs")),
            "M-SYN-005: /gear2: scheduler: "
        ),
        (
            smallest().set("/gear2", "privilege", text("el2")),
            "M-SYN-005: /gear2: privilege: "
        ),
        (
            smallest().set("/gear2", "slice-us", cells(&[1_000_001])),
            "M-SYN-006: /gear2: slice-us: "
        ),
        (
            smallest().set("/gear2", "restart-limit", cells(&[17])),
            "M-SYN-006: /gear2: restart-limit: "
        ),
        (
            smallest().set("/gear2", "restart-window-ms", cells(&[0])),
            "M-SYN-006: /gear2: restart-window-ms: "
        ),
        (
            smallest().set("/gear2", "trace-kib", cells(&[15])),
            "M-SYN-006: /gear2: trace-kib: "
        ),
        (
            smallest().set("/gear2", "trace-from-boot", Vec::new()),
            "M-GR2-002: /gear2: trace-from-boot: "
        ),
    ]
}

fn vm_cases() -> Vec<Case> {
    let mut same_name = two();
    same_name.at("/vms").children[1].0 = "linux".to_string();
    std::vec![
        (same_name, "M-VM-003: /vms/linux: "),
        (
            smallest().set(VM, "dump", Vec::new()),
            "M-VM-012: /vms/linux: dump: ",
        ),
        (named("0linux"), "M-VM-004: /vms/0linux: "),
        (named("linux@0"), "M-VM-004: /vms/linux@0: "),
        (named("a-name-that-is-a-bit-long"), "M-VM-004: "),
        (
            smallest().set(VM, "on-give-up", text("reboot")),
            "M-SYN-005: /vms/linux: on-give-up: "
        ),
        (real_time(), "M-VM-006: /vms/rt: kind: "),
        (
            smallest().set(VM, "boot-order", cells(&[1001])),
            "M-SYN-006: /vms/linux: boot-order: "
        ),
        (
            smallest().set(VM, "restart-limit", cells(&[17])),
            "M-SYN-006: /vms/linux: restart-limit: "
        ),
        (
            smallest().set(VM, "restart-window-ms", cells(&[0])),
            "M-SYN-006: /vms/linux: restart-window-ms: "
        ),
        (
            smallest().set(VM, "watchdog-ms", cells(&[3_600_001])),
            "M-SYN-006: /vms/linux: watchdog-ms: the number is out of range (3600001 ms); "
        ),
        (
            smallest().set("/gear2", "watchdog-ms", cells(&[3_600_001])),
            "M-SYN-006: /gear2: watchdog-ms: "
        ),
        (
            smallest().set("/gear2", "boot-order-timeout-ms", cells(&[3_600_001])),
            "M-SYN-006: /gear2: boot-order-timeout-ms: "
        ),
        (
            smallest().set(VM, "restart-backoff-ms", cells(&[3_600_001])),
            "M-SYN-006: /vms/linux: restart-backoff-ms: "
        ),
        (
            smallest().set(VM, "pmu", std::vec![]),
            "M-CPU-009: /vms/linux: pmu: "
        ),
        (
            smallest().set("/gear2", "privilege", text("el1")),
            "M-GR2-001: /gear2: privilege: "
        ),
    ]
}

fn cpu_cases() -> Vec<Case> {
    let rt = "/vms/rt";
    std::vec![
        (
            smallest().set(VM, "vcpus", cells(&[9])),
            "M-CPU-001: /vms/linux: vcpus: "
        ),
        (
            smallest().set(VM, "vcpus", cells(&[u32::MAX])),
            "M-CPU-001: /vms/linux: vcpus: "
        ),
        (
            smallest().set(VM, "cpus", cells(&[8])),
            "M-CPU-003: /vms/linux: cpus: "
        ),
        (
            smallest().set(VM, "cpus", cells(&[u32::MAX])),
            "M-CPU-003: /vms/linux: cpus: "
        ),
        (
            smallest().set("/gear2", "cpus", cells(&[0, 7])),
            "M-CPU-003: /gear2: cpus: "
        ),
        (
            real_time().set(rt, "vcpus", cells(&[2])),
            "M-CPU-005: /vms/rt: cpus: "
        ),
        (
            real_time().set(VM, "cpus", cells(&[0, 1])),
            "M-CPU-006: /vms/rt: cpus: "
        ),
        (
            real_time().set(rt, "boot-order", cells(&[1])),
            "M-VM-007: /vms/rt: boot-order: "
        ),
        (
            real_time().set(rt, "restart-backoff-ms", cells(&[0])),
            "M-VM-008: /vms/rt: restart-backoff-ms: "
        ),
        (
            flat(real_time(), "/vms/rt2")
                .set("/vms/rt2", "kind", text("real-time"))
                .set("/vms/rt2", "cpus", cells(&[1])),
            "M-CPU-006: /vms/rt2: cpus: ",
        ),
    ]
}

fn memory_cases() -> Vec<Case> {
    let at = |low: u32| smallest().set(VM, "memory-address", cells(&[low]));
    std::vec![
        (
            smallest().set(VM, "memory-mib", cells(&[0])),
            "M-MEM-001: /vms/linux: memory-mib: "
        ),
        (at(0x5010_0000), "M-MEM-002: /vms/linux: memory-address: "),
        (
            smallest().set(VM, "memory-ipa", cells(&[0x1000])),
            "M-MEM-002: /vms/linux: memory-ipa: "
        ),
        (
            smallest().set("/gear2", "memory-mib", cells(&[3])),
            "M-MEM-002: /gear2: memory-mib: "
        ),
        (
            smallest().set("/gear2", "memory-mib", cells(&[0])),
            "M-MEM-002: /gear2: memory-mib: "
        ),
        (
            smallest().set(VM, "memory-address", cells(&[0xffff, 0xffe0_0000])),
            "M-MEM-004: /vms/linux: memory-address: "
        ),
        (
            smallest().set(VM, "memory-ipa", cells(&[u32::MAX, 0xffe0_0000])),
            "M-MEM-004: /vms/linux: memory-ipa: "
        ),
        (
            smallest().set(VM, "memory-align-mib", cells(&[1])),
            "M-MEM-010: /vms/linux: memory-align-mib: "
        ),
        (
            smallest().set(VM, "memory-align-mib", cells(&[6])),
            "M-MEM-010: /vms/linux: memory-align-mib: "
        ),
        (
            smallest().set(VM, "memory-align-mib", cells(&[0])),
            "M-MEM-010: /vms/linux: memory-align-mib: "
        ),
        (
            at(0x5020_0000).set(VM, "memory-align-mib", cells(&[4])),
            "M-MEM-011: /vms/linux: memory-address: "
        ),
        (at(0x7800_0000), "M-MEM-005: /vms/linux: memory-address: "),
        (
            two().set("/vms/other", "memory-mib", cells(&[2048 - 254])),
            "M-MEM-007: /vms/other: memory-mib: ",
        ),
    ]
}

fn payload_cases() -> Vec<Case> {
    let file = |name: &str| smallest().set(VM, "kernel", text(name));
    let other = "/vms/other";
    std::vec![
        (
            smallest().set(VM, "entry-offset", cells(&[0])),
            "M-PAY-003: /vms/linux: entry-offset: "
        ),
        (
            two().set(other, "initrd", text("x")),
            "M-PAY-003: /vms/other: initrd: "
        ),
        (file("artifact:"), "M-PAY-004: /vms/linux: kernel: "),
        (file("manifest.dtb"), "M-PAY-004: /vms/linux: kernel: "),
        (file("gear2.bin"), "M-PAY-004: /vms/linux: kernel: "),
        (file("dtb/linux"), "M-PAY-004: /vms/linux: kernel: "),
        (
            file("a\nb"),
            "M-PAY-004: /vms/linux: kernel: this is no file name (\"a\\nb\"); "
        ),
        (file(&"x".repeat(256)), "M-PAY-004: /vms/linux: kernel: "),
        (file("TRAILER!!!"), "M-PAY-004: /vms/linux: kernel: "),
        (
            smallest().set(VM, "initrd", text("")),
            "M-PAY-004: /vms/linux: initrd: "
        ),
        (
            two().set(other, "image", text("")),
            "M-PAY-004: /vms/other: image: "
        ),
        (
            smallest().set("/gear2", "image", text("")),
            "M-PAY-004: /gear2: image: "
        ),
        (
            smallest().set(VM, "kernel-sha256", text("1234")),
            "M-PAY-006: /vms/linux: kernel-sha256: this is no SHA-256 (\"1234\"); "
        ),
        (
            smallest()
                .set("/gear2", "image", text("g"))
                .set("/gear2", "image-sha256", text("")),
            "M-PAY-006: /gear2: image-sha256: "
        ),
        (
            smallest().set(VM, "initrd-sha256", text("1234")),
            "M-PAY-008: /vms/linux: initrd-sha256: "
        ),
        (
            smallest().set(VM, "image-sha256", text("1234")),
            "M-PAY-008: /vms/linux: image-sha256: "
        ),
        (
            smallest().set("/gear2", "image-sha256", text("1234")),
            "M-PAY-008: /gear2: image-sha256: "
        ),
        (
            two().set(other, "load-offset", cells(&[2])),
            "M-PAY-005: /vms/other: load-offset: "
        ),
        (
            two().set(other, "load-offset", cells(&[1 << 20])).set(
                other,
                "entry-offset",
                cells(&[1 << 20])
            ),
            "M-PAY-005: /vms/other: entry-offset: ",
        ),
    ]
}

fn console_cases() -> Vec<Case> {
    let console = "/vms/linux/console";
    let address = |cell: u32| smallest().set(console, "address", cells(&[cell]));
    let interrupt = |cell: u32| smallest().set(console, "interrupt", cells(&[cell]));
    std::vec![
        (
            smallest().set(console, "address", cells(&[0x1_0000, 0])),
            "M-CON-001: /vms/linux/console: "
        ),
        (interrupt(512), "M-CON-002: /vms/linux/console: interrupt: "),
        (
            address(0x0800_0000),
            "M-CON-003: /vms/linux/console: address: "
        ),
        (
            address(0x4800_0000),
            "M-CON-003: /vms/linux/console: address: "
        ),
    ]
}

fn rtc_cases() -> Vec<Case> {
    let rtc = "/vms/linux/rtc";
    let at = |cell: u32| served().set(rtc, "address", cells(&[cell]));
    let default = |tree: Tree, node| tree.set(node, "address", cells(&[0x0901_0000]));
    std::vec![
        (at(0x0901_0800), "M-RTC-001: /vms/linux/rtc: address: "),
        (at(0x4800_0000), "M-RTC-002: /vms/linux/rtc: address: "),
        (at(0x0a00_0000), "M-RTC-002: /vms/linux/rtc: address: "),
        (
            default(served(), "/vms/device/rtc"),
            "M-RTC-003: /vms/device/rtc: "
        ),
        (default(smallest(), rtc), "M-RTC-004: /vms/linux/rtc: "),
    ]
}

fn watchdog_cases() -> Vec<Case> {
    let watched = || smallest().set(VM, "watchdog-ms", cells(&[10_000]));
    let at = |address: &[u32]| watched().set(VM, "watchdog-address", cells(address));
    let console = |intid: u32| watched().set("/vms/linux/console", "interrupt", cells(&[intid]));
    let beating = |address: &[u32]| {
        let tree = real_time().set("/vms/rt", "watchdog-ms", cells(&[10]));
        tree.set("/vms/rt", "watchdog-address", cells(address))
    };
    std::vec![
        (
            at(&[0x0902_0800]),
            "M-WDG-001: /vms/linux: watchdog-address: "
        ),
        // The second page ends behind the limit.
        (
            at(&[0xffff, 0xffff_f000]),
            "M-WDG-001: /vms/linux: watchdog-address: "
        ),
        (
            at(&[0x08ff_f000]).node("/vms/linux/console"),
            "M-WDG-002: /vms/linux: watchdog-address: "
        ),
        (console(34), "M-WDG-003: /vms/linux/console: interrupt: "),
        // A heartbeat has one page.
        (
            beating(&[0x0902_0004]),
            "M-WDG-001: /vms/rt: watchdog-address: "
        ),
        (
            beating(&[0x1_0000, 0]),
            "M-WDG-001: /vms/rt: watchdog-address: "
        ),
        (
            beating(&[0x0900_0000]).set("/vms/rt", "memory-ipa", cells(&[0x0900_0000])),
            "M-WDG-002: /vms/rt: watchdog-address: "
        ),
    ]
}

fn device_vm_cases() -> Vec<Case> {
    let devices = |pattern: &str| served().set(DEVICE, "devices", text(pattern));
    let window = |cells: Vec<u8>| served().set(DEVICE, "window-address", cells);
    std::vec![
        (
            smallest().set(VM, "window-address", cells(&[0x1000_0000])),
            "M-DEV-001: /vms/linux: window-address: "
        ),
        (
            devices("/soc/*/uart"),
            "M-DEV-003: /vms/device: devices: this is no path of a device in the board's device \
            tree (\"/soc/*/uart\"); "
        ),
        (devices("/"), "M-DEV-003: /vms/device: devices: "),
        (devices("//a"), "M-DEV-003: /vms/device: devices: "),
        (devices(""), "M-DEV-003: /vms/device: devices: "),
        (
            served().set(DEVICE, "devices", b"/a".to_vec()),
            "M-SYN-003: /vms/device: devices: "
        ),
        (
            window(cells(&[0x1_0000, 0])),
            "M-DEV-005: /vms/device: window-address: "
        ),
        (
            window(cells(&[0x0800_0000])),
            "M-DEV-006: /vms/device: window-address: "
        ),
        (
            served().set("/vms/device/console", "address", cells(&[0x0c00_1000])),
            "M-DEV-006: /vms/device: window-address: "
        ),
    ]
}

fn virtio_cases() -> Vec<Case> {
    let served = served();
    std::vec![
        (
            served.clone().set(DISK, "type", text("blk")),
            "M-SYN-005: /vms/linux/virtio/disk: type: "
        ),
        (
            served
                .clone()
                .set(DISK, "type", text("net"))
                .set(DISK, "backend", text("tap0"))
                .set(DISK, "read-only", std::vec![]),
            "M-VIO-007: /vms/linux/virtio/disk: read-only: "
        ),
        (
            served.clone().set(DISK, "size", cells(&[1])),
            "M-SYN-001: /vms/linux/virtio/disk: size: "
        ),
        (
            served.clone().set("/vms/linux/virtio", "x", cells(&[1])),
            "M-SYN-001: /vms/linux/virtio: x: "
        ),
        (
            served.clone().node("/vms/linux/virtio/disk/part"),
            "M-SYN-002: /vms/linux/virtio/disk/"
        ),
        (
            served
                .clone()
                .set(VM, "virtio-address", cells(&[0x5000_0000])),
            "M-VIO-009: /vms/linux: virtio-address: "
        ),
    ]
}

fn peer_cases() -> Vec<Case> {
    vec![
        (
            two().set(VM, "ffa-peers", text("linux")),
            "M-FFA-001: /vms/linux: ffa-peers: ",
        ),
        (
            flat(served(), "/vms/other").set(VM, "ffa-peers", text("other")),
            "M-FFA-002: /vms/linux: ffa-peers: ",
        ),
    ]
}

/// Returns all cases.
pub(super) fn cases() -> Vec<Case> {
    let parts = [
        super::give_up::cases(),
        tree_cases(),
        type_cases(),
        value_cases(),
        vm_cases(),
        cpu_cases(),
        memory_cases(),
        payload_cases(),
        console_cases(),
        rtc_cases(),
        watchdog_cases(),
        device_vm_cases(),
        virtio_cases(),
        peer_cases(),
    ];
    parts.into_iter().flatten().collect()
}
