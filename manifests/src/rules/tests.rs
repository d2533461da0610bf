//! Tests of the refusals: manifests that break a rule and nothing else.
//!
//! Each rule has one in `manifests/invalid` too, which `cargo xtask test` judges; what stands here
//! are the other ways to break it, and what dtc cannot write.

use std::format;
use std::string::{String, ToString};
use std::vec;
use std::vec::Vec;

use super::Board;
use crate::judge::validate;
use crate::testing::{Aligned, Tree, cells, smallest, text};
use crate::{Privilege, Region, Rule, Severity, VmKind};

mod backends;
mod overlaps;

const VM: &str = "/vms/linux";
const DEVICE: &str = "/vms/device";
const DISK: &str = "/vms/linux/virtio/disk";
const BOARD: Board<'_> = Board {
    cpu_count: 4,
    clusters: &[0, 0, 1, 1],
    memory: &[
        Region::new(0x4000_0000, 0x8000_0000),
        Region::new(0x1_0000_0000, 0x1_4000_0000),
    ],
    reserved: &[Region::new(0x4000_0000, 0x4020_0000)],
    devices: &[Region::new(0x0800_0000, 0x0900_0000)],
    pmu: true,
    kinds: &[VmKind::Guest, VmKind::Device, VmKind::RealTime],
    privileges: &[Privilege::El0],
    masters: &[],
};

/// A manifest and the beginning of the only message that it must give.
type Case = (Tree, &'static str);

/// Like [`BOARD`], with a build that runs nothing but guests.
const GUESTS_ONLY: Board<'_> = Board {
    kinds: &[VmKind::Guest],
    pmu: false,
    ..BOARD
};

fn errors(blob: &Aligned) -> Vec<(Rule, String)> {
    errors_on(&BOARD, blob)
}

fn errors_on(board: &Board<'_>, blob: &Aligned) -> Vec<(Rule, String)> {
    let mut errors = Vec::new();
    let outcome = validate(blob.as_slice(), board, &mut |error| {
        if error.rule.severity() == Severity::Error {
            errors.push((error.rule, error.to_string()));
        }
    });
    assert_eq!(
        outcome.err().map_or(0, |refused| refused.error_count),
        errors.len()
    );
    errors
}

/// Returns a manifest with a second guest.
fn two() -> Tree {
    flat(smallest(), "/vms/other")
}

fn flat(tree: Tree, path: &str) -> Tree {
    tree.set(path, "memory-mib", cells(&[2]))
        .set(path, "image", text("flat.bin"))
}

/// Returns a manifest with a real-time VM that has CPU 1.
fn real_time() -> Tree {
    flat(smallest(), "/vms/rt")
        .set("/vms/rt", "kind", text("real-time"))
        .set("/vms/rt", "cpus", cells(&[1]))
}

fn many(count: usize, vcpus: u32) -> Tree {
    let root = smallest().unset(VM, "memory-mib").unset(VM, "kernel");
    let mut root = root;
    root.at("/vms").children.clear();
    (0..count).fold(root, |tree, index| {
        let path = format!("/vms/vm-{index}");
        flat(tree, &path).set(&path, "vcpus", cells(&[vcpus]))
    })
}

fn named(name: &str) -> Tree {
    let mut tree = smallest();
    tree.at("/vms").children[0].0 = name.to_string();
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

fn syntax_cases() -> Vec<Case> {
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
        (
            smallest().set(VM, "may-power-off", cells(&[1])),
            "M-SYN-003: /vms/linux: may-power-off: "
        ),
        (
            smallest().set("/vms/linux/console", "interrupt", text("33")),
            "M-SYN-003: /vms/linux/console: interrupt: "
        ),
        (
            twice(smallest(), VM, "kernel"),
            "M-SYN-004: /vms/linux: kernel: "
        ),
        (two_consoles, "M-SYN-004: /vms/linux/console: "),
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
    ]
}

fn vm_cases() -> Vec<Case> {
    let mut same_name = two();
    same_name.at("/vms").children[1].0 = "linux".to_string();
    std::vec![
        (same_name, "M-VM-003: /vms/linux: "),
        (named("0linux"), "M-VM-004: /vms/0linux: "),
        (named("linux@0"), "M-VM-004: /vms/linux@0: "),
        (named("a-name-that-is-a-bit-long"), "M-VM-004: "),
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

/// Returns a manifest with a device VM and a guest that has a disk.
fn served() -> Tree {
    flat(smallest(), DEVICE)
        .set(DEVICE, "kind", text("device"))
        .set(DEVICE, "devices", text("/virtio_mmio@*"))
        .set(DISK, "type", text("block"))
        .set(DISK, "backend", text("/dev/vda"))
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
            smallest().set(VM, "watchdog-ms", cells(&[1000])),
            "M-DEV-001: /vms/linux: watchdog-ms: "
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

/// Naming a peer in one of the two nodes is enough, and says nothing about a third.
#[test]
fn peers_are_each_others() {
    let tree = flat(two(), "/vms/third").set("/vms/other", "ffa-peers", text("linux"));
    let blob = tree.flatten();
    let manifest = validate(blob.as_slice(), &BOARD, &mut |error| panic!("{error}")).unwrap();
    let peers = |vm: &crate::Vm<'_>| -> Vec<String> {
        let peers = manifest.peers(vm);
        peers.map(|peer| peer.name.to_string()).collect()
    };
    let all: Vec<_> = manifest.vms.iter().map(peers).collect();
    assert_eq!(all, [vec!["other"], vec!["linux"], vec![]]);
}

fn cases() -> Vec<Case> {
    let parts = [
        syntax_cases(),
        vm_cases(),
        cpu_cases(),
        memory_cases(),
        payload_cases(),
        console_cases(),
        device_vm_cases(),
        virtio_cases(),
        peer_cases(),
    ];
    parts.into_iter().flatten().collect()
}

#[test]
fn refuses_with_one_message_naming_node_and_property() {
    for (tree, expected) in cases() {
        let rules = [Rule::KindNotSupported, Rule::NoPmu];
        let board = if rules.iter().any(|rule| expected.starts_with(rule.id())) {
            &GUESTS_ONLY
        } else {
            &BOARD
        };
        let errors = errors_on(board, &tree.flatten());
        let messages: Vec<_> = errors.iter().map(|(_, message)| message.as_str()).collect();
        assert!(
            matches!(messages[..], [one] if one.starts_with(expected)),
            "{expected}: {messages:#?}"
        );
    }
}

/// A device model that ends itself for a thread that hangs must be restarted before its VM is.
#[test]
fn warns_of_a_watchdog_that_is_faster_than_the_device_models() {
    let cases = [(0, 0), (1, 1), (11_999, 1), (12_000, 0), (60_000, 0)];
    for (watchdog_ms, expected) in cases {
        let tree = served().set(DEVICE, "watchdog-ms", cells(&[watchdog_ms]));
        let blob = tree.flatten();
        let mut warned = 0;
        let outcome = validate(blob.as_slice(), &BOARD, &mut |error| {
            warned += u32::from(error.rule == Rule::EarlyWatchdog);
        });
        assert!(outcome.is_ok());
        assert_eq!(warned, expected, "{watchdog_ms}");
    }
}

#[test]
fn refuses_what_is_no_device_tree() {
    let good = smallest().flatten();
    for count in [0, 4, 39, good.as_slice().len() - 1] {
        let short = Aligned::new(&good.as_slice()[..count]);
        let errors = errors(&short);
        assert!(
            matches!(&errors[..], [(Rule::BadBlob, message)] if message.starts_with("M-BLB-001: /: "))
        );
    }
}

#[test]
fn accepts_the_limits() {
    let largest = smallest()
        .set(VM, "memory-mib", cells(&[1022]))
        .set(VM, "memory-address", cells(&[0x4020_0000]))
        .set(VM, "vcpus", cells(&[8]))
        .set("/vms/linux/console", "interrupt", cells(&[511]));
    for tree in [
        smallest(),
        two(),
        real_time(),
        many(16, 2),
        many(4, 8),
        largest,
        served(),
    ] {
        assert_eq!(errors(&tree.flatten()), []);
    }
}
