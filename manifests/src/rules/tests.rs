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
mod cases;
mod give_up;
mod input;
mod overlaps;
mod service;
mod vhost_user;
mod vsock;

/// Returns the messages of all errors that a manifest has on a board.
pub(super) fn messages(tree: &Tree, board: &Board<'_>) -> Vec<String> {
    let blob = tree.flatten();
    let mut list = Vec::new();
    // The verdict is the list: a manifest is refused by one message or more.
    let _ = validate(blob.as_slice(), board, &mut |error| {
        list.push(error.to_string());
    });
    list
}

pub(super) const VM: &str = "/vms/linux";
pub(super) const DEVICE: &str = "/vms/device";
pub(super) const DISK: &str = "/vms/linux/virtio/disk";
pub(super) const BOARD: Board<'_> = Board {
    cpu_count: 4,
    memory: &[
        Region::new(0x4000_0000, 0x8000_0000),
        Region::new(0x1_0000_0000, 0x1_4000_0000),
    ],
    reserved: &[Region::new(0x4000_0000, 0x4020_0000)],
    devices: &[Region::new(0x0800_0000, 0x0900_0000)],
    pmu: true,
    lacks_sve: false,
    kinds: &[VmKind::Guest, VmKind::Device, VmKind::RealTime],
    privileges: &[Privilege::El0],
};

/// Like [`BOARD`], with a build that runs nothing but guests.
const GUESTS_ONLY: Board<'_> = Board {
    kinds: &[VmKind::Guest],
    pmu: false,
    lacks_sve: true,
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
pub(super) fn two() -> Tree {
    flat(smallest(), "/vms/other")
}

fn flat(tree: Tree, path: &str) -> Tree {
    tree.set(path, "memory-mib", cells(&[2]))
        .set(path, "image", text("flat.bin"))
}

/// Returns a manifest with a real-time VM that has CPU 1.
pub(super) fn real_time() -> Tree {
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

/// Returns a manifest with a device VM and a guest that has a disk.
pub(super) fn served() -> Tree {
    flat(smallest(), DEVICE)
        .set(DEVICE, "kind", text("device"))
        .set(DEVICE, "devices", text("/virtio_mmio@*"))
        .set(DISK, "type", text("block"))
        .set(DISK, "backend", text("/dev/vda"))
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

#[test]
fn refuses_with_one_message_naming_node_and_property() {
    for (tree, expected) in cases::cases() {
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

/// The lengths are the architecture's, and a model of CPUs without SVE has none of them.
#[test]
fn vectors_have_a_length_that_there_is() {
    let found = |bits: u32, board| {
        let tree = smallest().set(VM, "sve-bits", cells(&[bits]));
        let errors = errors_on(board, &tree.flatten());
        errors.into_iter().map(|(_, text)| text).collect::<Vec<_>>()
    };
    for bits in [0, 128, 384, 512, 2048] {
        assert!(found(bits, &BOARD).is_empty(), "{bits}");
    }
    for (bits, board, id) in [
        (64, &BOARD, "M-CPU-010"),
        (200, &BOARD, "M-CPU-010"),
        (2176, &BOARD, "M-CPU-010"),
        (512, &GUESTS_ONLY, "M-CPU-011"),
    ] {
        let found = found(bits, board);
        let start = std::format!("{id}: /vms/linux: sve-bits: ");
        assert!(
            matches!(&found[..], [one] if one.starts_with(&start)),
            "{found:?}"
        );
    }
}

/// A device model that ends itself for a thread that hangs must be restarted before its VM is.
#[test]
fn warns_of_a_watchdog_that_is_faster_than_the_device_models() {
    let cases = [(0, 0), (1, 1), (11_999, 1), (12_000, 0), (60_000, 0)];
    for (watchdog_ms, expected) in cases {
        let tree = served().set(DEVICE, "watchdog-ms", cells(&[watchdog_ms]));
        let warned = warnings(&tree);
        let early = warned.iter().filter(|text| text.starts_with("M-WRN-007: "));
        assert_eq!(early.count(), expected, "{watchdog_ms}");
    }
}

/// A guest whose console does not exist shows nothing.
#[test]
fn warns_of_consoles_that_a_vm_lacks() {
    let cases = [
        ("console=ttyAMA0", None),
        ("console=ttyAMA0,115200n8 quiet", None),
        ("console=tty0 console=ttynull", None),
        ("quiet -- console=ttyS0", None),
        ("console=ttyAMA1", Some("ttyAMA1")),
        ("console=ttyS0,115200", Some("ttyS0,115200")),
        ("console=hvc0", Some("hvc0")),
        ("console=ttyAMA", Some("ttyAMA")),
    ];
    for (cmdline, expected) in cases {
        let tree = smallest().set("/vms/linux/console", "interrupt", cells(&[33]));
        let warned = warnings(&tree.set(VM, "cmdline", text(cmdline)));
        let start = expected.map(|name| {
            format!("M-WRN-009: {VM}: cmdline: the VM has no such console (\"{name}\");")
        });
        let is_so = match (&warned[..], &start) {
            ([], None) => true,
            ([one], Some(start)) => one.starts_with(start),
            _ => false,
        };
        assert!(is_so, "{cmdline}: {warned:?}");
    }
}

/// A VM that owns devices has the UARTs among them.
#[test]
fn warns_of_uarts_that_a_vm_does_not_own() {
    let cases = [
        ("/virtio_mmio@*", "console=ttyAMA0", 1),
        ("/pl011@9000000", "console=ttyAMA0", 0),
        ("/pl011@9000000", "console=ttyS0", 1),
        ("/soc/serial@7e215040", "console=ttyS0", 0),
        ("/soc", "console=ttyS0", 0),
        ("/*", "console=ttySC0", 0),
        ("/pl011@9000000", "earlycon=pl011,0x9000000", 0),
        (
            "/pl011@9000000",
            "earlycon=pl011,mmio32,0x9000000,115200",
            0,
        ),
        ("/pl011@9040000", "earlycon=pl011,0x9000000", 1),
        // The bus may translate this address.
        ("/soc/serial@7e201000", "earlycon=pl011,0xfe201000", 0),
        ("/pl011@9040000", "earlycon", 0),
    ];
    for (devices, cmdline, count) in cases {
        let tree = smallest()
            .set(VM, "kind", text("device"))
            .set(VM, "devices", text(devices))
            .set(VM, "cmdline", text(cmdline));
        let warned = warnings(&tree);
        let consoles = warned.iter().filter(|one| one.starts_with("M-WRN-009"));
        assert_eq!(consoles.count(), count, "{devices} {cmdline}: {warned:?}");
    }
    let guest = smallest().set("/vms/linux/console", "interrupt", cells(&[33]));
    for (early, count) in [("0x9000000", 0), ("0x9040000", 1)] {
        let tree = guest
            .clone()
            .set(VM, "cmdline", text(&format!("earlycon=pl011,{early}")));
        assert_eq!(warnings(&tree).len(), count, "{early}");
    }
}

/// Linux keeps the first 2,047 bytes of its command line.
#[test]
fn warns_of_a_command_line_that_linux_cuts_off() {
    for (length, expected) in [(2047, 0), (2048, 1)] {
        let tree = smallest().set(VM, "cmdline", text(&"a".repeat(length)));
        assert_eq!(warnings(&tree).len(), expected, "{length}");
    }
}

/// Returns what is warned of.
pub(super) fn warnings(tree: &Tree) -> Vec<String> {
    let blob = tree.flatten();
    let mut warned = Vec::new();
    let manifest = validate(blob.as_slice(), &BOARD, &mut |error| panic!("{error}")).unwrap();
    crate::warn(&manifest, None, &mut |error| warned.push(error.to_string()));
    warned
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
