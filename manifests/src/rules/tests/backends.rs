//! Rules for the backends of virtio devices: no disk with two writers, no tap device with two
//! users, nothing of the device VM's own, and only names that Linux and the control protocol
//! accept.
//!
//! Requirements: G1-BOOT-002.

use std::string::{String, ToString};
use std::vec::Vec;

use super::{DEVICE, errors, flat, served};
use crate::testing::{Tree, text};

/// Returns a manifest whose guests `linux` and `other` have one device each.
fn pair(kind: &str, first: &str, second: &str) -> Tree {
    let tree = served()
        .set("/vms/linux/virtio/disk", "type", text(kind))
        .set("/vms/linux/virtio/disk", "backend", text(first));
    flat(tree, "/vms/other")
        .set("/vms/other/virtio/mine", "type", text(kind))
        .set("/vms/other/virtio/mine", "backend", text(second))
}

fn ids(tree: &Tree) -> Vec<String> {
    let errors = errors(&tree.flatten());
    errors
        .iter()
        .map(|(rule, _)| rule.id().to_string())
        .collect()
}

fn read_only(tree: Tree, device: &str) -> Tree {
    tree.set(device, "read-only", Vec::new())
}

#[test]
fn a_disk_has_one_user_unless_all_only_read() {
    let same = [
        ("/dev/vda", "/dev/vda"),
        ("/dev/vda", "/dev/./vda"),
        ("/dev/vda", "//dev//vda"),
        ("/dev/vda", "/dev/disk/../vda"),
        ("/dev/vda", "/../dev/vda"),
        ("/dev/vda", "/tmp/x/../../dev/vda"),
        ("/dev/vda", "/dev/vda1"),
        ("/dev/vda12", "/dev/vda"),
        ("/dev/./vda", "/dev/vda2"),
        ("/dev/sdb", "/dev/sdb3"),
        ("/dev/nvme0n1", "/dev/nvme0n1p1"),
        ("/dev/mmcblk0p2", "/dev/mmcblk0"),
        ("/dev/loop0", "/dev/loop0p1"),
        (
            "/dev/disk/by-id/usb-Card_1",
            "/dev/disk/by-id/usb-Card_1-part2",
        ),
        ("/data/a.img", "/data/a.img"),
        ("/data/a.img", "/data/b/../a.img"),
    ];
    for (one, two) in same {
        for (first, second) in [(one, two), (two, one)] {
            let tree = pair("block", first, second);
            let [mine, theirs] = ["/vms/other/virtio/mine", "/vms/linux/virtio/disk"];
            let message = &errors(&tree.flatten())[0].1;
            let expected = std::format!(
                "M-VIO-011: {mine}: backend: two virtio devices have the same backend \
                 (\"{second}\"), in conflict with {theirs}; "
            );
            assert!(message.starts_with(&expected), "{message}");
            // A single writer is enough for a conflict.
            for writer_removed in [mine, theirs] {
                let tree = read_only(tree.clone(), writer_removed);
                assert_eq!(ids(&tree), ["M-VIO-011"], "{first} {second}");
            }
            let tree = read_only(read_only(tree, mine), theirs);
            assert_eq!(ids(&tree), Vec::<String>::new(), "{first} {second}");
        }
    }
}

#[test]
fn disks_that_differ_are_taken() {
    let different = [
        ("/dev/vda", "/dev/vdb"),
        ("/dev/vda1", "/dev/vda2"),
        ("/dev/vda1", "/dev/vda11"),
        ("/dev/nvme0n1", "/dev/nvme0n2"),
        ("/dev/nvme0n1", "/dev/nvme0n11"),
        ("/dev/mmcblk0", "/dev/mmcblk1p1"),
        ("/dev/mmcblk0", "/dev/mmcblk0boot0"),
        ("/dev/loop1", "/dev/loop11"),
        ("/dev/sda", "/dev/sdaa"),
        ("/dev/sda", "/dev/sdaa1"),
        ("/data/disk", "/data/disk1"),
        ("/data/disk", "/srv/disk"),
        ("/dev/vda", "/data/vda"),
        ("/data/dev/vda", "/data/dev/vda1"),
        ("/dev/disk/by-id/a-part1", "/dev/disk/by-id/a-part2"),
    ];
    for (first, second) in different {
        let none = Vec::<String>::new();
        assert_eq!(ids(&pair("block", first, second)), none, "{first} {second}");
        assert_eq!(ids(&pair("block", second, first)), none, "{second} {first}");
    }
}

/// The reviewer's finding: three guests, all with `/dev/vda` writable and with `tap0`.
#[test]
fn three_guests_with_one_disk_and_one_tap_are_refused() {
    let tree = ["one", "two", "three"].iter().fold(served(), |tree, name| {
        let vm = std::format!("/vms/{name}");
        let [disk, net] = ["disk", "net"].map(|name| std::format!("{vm}/virtio/{name}"));
        flat(tree, &vm)
            .set(&disk, "type", text("block"))
            .set(&disk, "backend", text("/dev/vda"))
            .set(&net, "type", text("net"))
            .set(&net, "backend", text("tap0"))
    });
    // The disk of each against one before it; the tap device of all but the first.
    assert_eq!(ids(&tree), ["M-VIO-011"; 5]);
}

#[test]
fn the_devices_of_one_guest_are_judged_too() {
    let twice = |kind: &str, backend: &str| {
        served()
            .set("/vms/linux/virtio/a", "type", text(kind))
            .set("/vms/linux/virtio/a", "backend", text(backend))
            .set("/vms/linux/virtio/b", "type", text(kind))
            .set("/vms/linux/virtio/b", "backend", text(backend))
    };
    assert_eq!(ids(&twice("block", "/dev/vdb")), ["M-VIO-011"]);
    assert_eq!(ids(&twice("net", "tap3")), ["M-VIO-011"]);
    // A guest's consoles have the socket that is named after the guest, whatever the backend.
    assert_eq!(ids(&twice("console", "pty")), ["M-VIO-011"]);
    assert_eq!(ids(&pair("console", "pty", "pty")), Vec::<String>::new());
    assert_eq!(ids(&pair("net", "tap0", "tap0")), ["M-VIO-011"]);
    assert_eq!(ids(&pair("net", "tap0", "tap1")), Vec::<String>::new());
    // A tap device may have the name of a console.
    let mixed = pair("net", "pty", "tap1");
    let mixed = mixed.set("/vms/other/virtio/mine", "type", text("console"));
    let mixed = mixed.set("/vms/other/virtio/mine", "backend", text("pty"));
    assert_eq!(ids(&mixed), Vec::<String>::new());
}

#[test]
fn control_characters_are_in_no_backend() {
    for (kind, good) in [("block", "/x"), ("net", "x"), ("console", "/x")] {
        for bad in ["a\nb", "tap0\n", "\ttap0", "a\rb", "a\u{7f}", "a\u{1b}[2J"] {
            let found = ids(&pair(kind, good, bad));
            assert_eq!(found, ["M-VIO-012"], "{kind} {bad:?}");
        }
    }
    let spaces = pair("block", "/dev/vda", "/data/my disk \u{e4}.img");
    assert_eq!(ids(&spaces), Vec::<String>::new());
}

#[test]
fn a_tap_device_has_a_name_that_linux_takes() {
    let bad = [
        "tap-of-sixteen-b",
        "a-name-of-a-tap-with-27-let",
        "tap/0",
        "tap 0",
        "tap\u{a0}0",
        "tap:0",
        "tap%d",
        ".",
        "..",
        "täpäpäpäpäp",
    ];
    for name in bad {
        assert_eq!(ids(&pair("net", "tap0", name)), ["M-VIO-013"], "{name}");
    }
    for name in ["tap-of-15-bytes", "a", "...", "tap.0", "TAP_0", "täp0"] {
        let none = Vec::<String>::new();
        assert_eq!(ids(&pair("net", "tap0", name)), none, "{name}");
    }
}

#[test]
fn a_card_has_an_address_of_its_own() {
    let with = |first: &str, second: &str| {
        pair("net", "tap0", "tap1")
            .set("/vms/linux/virtio/disk", "mac", text(first))
            .set("/vms/other/virtio/mine", "mac", text(second))
    };
    let good = "02:00:00:00:00:01";
    let bad = [
        "",
        "02:00:00:00:00",
        "02:00:00:00:00:01:02",
        "02:00:00:00:00:1",
        "02:00:00:00:00:0g",
        "02:00:00:00:00:+1",
        "02-00-00-00-00-01",
        "020000000001",
        " 02:00:00:00:00:01",
        "00:00:00:00:00:00",
        // Of several stations, and of all.
        "03:00:00:00:00:01",
        "01:00:5e:00:00:01",
        "ff:ff:ff:ff:ff:ff",
    ];
    for mac in bad {
        assert_eq!(ids(&with(good, mac)), ["M-VIO-015"], "{mac}");
    }
    assert_eq!(ids(&with(good, good)), ["M-VIO-016"]);
    assert_eq!(
        ids(&with("dc:a6:32:AB:00:01", "DC:A6:32:ab:00:01")),
        ["M-VIO-016"]
    );
    for mac in [
        "02:00:00:00:00:02",
        "dc:a6:32:01:02:03",
        "FE:FF:FF:FF:FF:FF",
    ] {
        assert_eq!(ids(&with(good, mac)), Vec::<String>::new(), "{mac}");
    }
    let disk = pair("block", "/dev/vda", "/dev/vdb");
    let disk = disk.set("/vms/other/virtio/mine", "mac", text(good));
    assert_eq!(ids(&disk), ["M-VIO-007"]);
}

#[test]
fn a_disk_is_not_the_device_vms_own() {
    let with = |cmdline: &str, backend: &str| {
        pair("block", "/dev/vdc", backend)
            .unset(DEVICE, "image")
            .set(DEVICE, "kernel", text("Image"))
            .set(DEVICE, "cmdline", text(cmdline))
    };
    let refused = [
        ("root=/dev/vda rw", "/dev/vda"),
        ("console=ttyAMA0 root=/dev/vda2 ro", "/dev/vda2"),
        ("root=/dev/vda2", "/dev/vda"),
        ("root=/dev/vda", "/dev/./vda1"),
        ("root=\"/dev/vda\"", "/dev/vda"),
        ("root=/dev/vdb root=/dev/vda", "/dev/vda"),
        ("root=/dev/vdb resume=/dev/vda3", "/dev/vda3"),
        ("\"quiet\"  \troot=/dev/nvme0n1p2", "/dev/nvme0n1"),
    ];
    for (cmdline, backend) in refused {
        let tree = with(cmdline, backend);
        let found = errors(&tree.flatten());
        let [(_, message)] = &found[..] else {
            panic!("{cmdline}: {backend}: {found:?}")
        };
        let expected = "M-VIO-014: /vms/other/virtio/mine: backend: ";
        assert!(message.starts_with(expected), "{message}");
        assert!(
            message.contains("in conflict with /vms/device;"),
            "{message}"
        );
        // A writer would change the disk under its reader.
        let tree = read_only(tree, "/vms/other/virtio/mine");
        assert_eq!(ids(&tree), ["M-VIO-014"]);
    }
    let taken = [
        ("root=/dev/vda1", "/dev/vda2"),
        ("root=UUID=0-1-2", "/dev/vda"),
        ("root=/dev/vda root=/dev/vdb", "/dev/vda"),
        ("notroot=/dev/vda", "/dev/vda"),
        ("root=/dev/ram0", "/dev/vda"),
        ("init=/bin/sh -- root=/dev/vda", "/dev/vda"),
    ];
    for (cmdline, backend) in taken {
        let none = Vec::<String>::new();
        assert_eq!(ids(&with(cmdline, backend)), none, "{cmdline} {backend}");
    }
    // A tap device of that name is none of it.
    let net = pair("net", "tap0", "vda").set(DEVICE, "cmdline", text("root=vda"));
    assert_eq!(ids(&net), Vec::<String>::new());
}

/// Paths that the device model cannot open, or that are no disk when it has.
#[test]
fn a_disk_is_an_absolute_path_and_a_console_a_terminal() {
    let bad = [
        "disk.img",
        "vda",
        "./a.img",
        "~/a.img",
        "/dev/null",
        "/dev/ttyAMA0",
        "/dev/tty",
        "/dev/",
        "/dev",
        "/",
        "/dev/vdb ",
        " /dev/vdb",
    ];
    for path in bad {
        assert_eq!(
            ids(&pair("block", "/dev/vda", path)),
            ["M-VIO-017"],
            "{path}"
        );
    }
    for path in [
        "/dev/vdb",
        "/data/a.img",
        "/dev/disk/by-id/x",
        "/dev/nullb0",
    ] {
        let none = Vec::<String>::new();
        assert_eq!(ids(&pair("block", "/dev/vda", path)), none, "{path}");
    }
    for text in ["stdio", "pts", "PTY", "pty "] {
        assert_eq!(ids(&pair("console", "pty", text)), ["M-VIO-018"], "{text}");
    }
    assert_eq!(
        ids(&pair("console", "pty", "/run/a.sock")),
        Vec::<String>::new()
    );
}
