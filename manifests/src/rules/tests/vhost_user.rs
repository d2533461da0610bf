//! Rules for devices that another program serves.
//!
//! Requirements: G1-BOOT-002.

use std::string::{String, ToString};
use std::vec::Vec;

use super::{BOARD, errors, flat, served};
use crate::testing::{Tree, cells, text};
use crate::validate;

const DEVICE: &str = "/vms/linux/virtio/program";

/// Returns a manifest with a disk that another program serves.
fn disk() -> Tree {
    served()
        .set(DEVICE, "type", text("vhost-user"))
        .set(DEVICE, "device", text("block"))
        .set(DEVICE, "socket", text("/run/disk.socket"))
}

pub(super) fn first(tree: &Tree) -> String {
    let errors = errors(&tree.flatten());
    errors
        .first()
        .map(|(_, message)| message.clone())
        .unwrap_or_default()
}

/// Tells whether the first error begins so.
pub(super) fn assert_refused(tree: &Tree, expected: &str) {
    let message = first(tree);
    assert!(
        message.starts_with(expected),
        "{message:?}, not {expected:?}"
    );
}

#[test]
fn a_function_has_its_numbers() {
    let tree = disk();
    assert_eq!(first(&tree), "");
    let numbers = |tree: &Tree| {
        let blob = tree.flatten();
        let manifest = validate(blob.as_slice(), &BOARD, &mut |_| {}).unwrap();
        let mut devices = manifest.virtio.iter();
        let device = devices.find(|device| device.name == "program").unwrap();
        let vhost_user = &device.vhost_user;
        [
            device.device_id(),
            vhost_user.queue_count(),
            vhost_user.config_bytes(),
        ]
    };
    assert_eq!(numbers(&tree), [2, 1, 60]);
    let more = tree.clone().set(DEVICE, "queues", cells(&[4]));
    assert_eq!(
        numbers(&more.set(DEVICE, "config-size", cells(&[36]))),
        [2, 4, 36]
    );
    let tree = served()
        .set(DEVICE, "type", text("vhost-user"))
        .set(DEVICE, "device-id", cells(&[41]))
        .set(DEVICE, "socket", text("/run/x"));
    assert_eq!((first(&tree).as_str(), numbers(&tree)), ("", [41, 1, 0]));
}

#[test]
fn a_device_has_one_function_and_a_socket() {
    let without = |name: &str| disk().unset(DEVICE, name);
    assert_refused(
        &without("device"),
        "M-VIO-019: /vms/linux/virtio/program: device: ",
    );
    let two = disk().set(DEVICE, "device-id", cells(&[2]));
    assert_refused(&two, "M-VIO-019: /vms/linux/virtio/program: device-id: ");
    for id in [0, 64] {
        let tree = without("device").set(DEVICE, "device-id", cells(&[id]));
        assert_refused(&tree, "M-VIO-019: /vms/linux/virtio/program: device-id: ");
    }
    assert_refused(
        &without("socket"),
        "M-VIO-020: /vms/linux/virtio/program: socket: ",
    );
    let long = ["/run/", &"x".repeat(103)].concat();
    for socket in ["", "run/x", "/run/", "/run/a\nb", &long] {
        let tree = disk().set(DEVICE, "socket", text(socket));
        assert_refused(&tree, "M-VIO-020: /vms/linux/virtio/program: socket: ");
    }
    let most = ["/run/", &"x".repeat(102)].concat();
    assert_eq!(first(&disk().set(DEVICE, "socket", text(&most))), "");
}

#[test]
fn numbers_have_limits() {
    for (property, values) in [("queues", [0, 5]), ("config-size", [257, u32::MAX])] {
        for value in values {
            let tree = disk().set(DEVICE, property, cells(&[value]));
            let place = std::format!("M-VIO-021: /vms/linux/virtio/program: {property}: ");
            assert_refused(&tree, &place);
        }
    }
    assert_eq!(first(&disk().set(DEVICE, "config-size", cells(&[0]))), "");
}

#[test]
fn a_file_system_has_a_tag_and_nothing_else_has() {
    let fs = || disk().set(DEVICE, "device", text("fs"));
    assert_refused(&fs(), "M-VIO-022: ");
    let long = "x".repeat(37);
    for tag in ["", &long] {
        assert_refused(&fs().set(DEVICE, "tag", text(tag)), "M-VIO-022: ");
    }
    assert_eq!(first(&fs().set(DEVICE, "tag", text("shared"))), "");
    assert_refused(&disk().set(DEVICE, "tag", text("x")), "M-VIO-007: ");
}

/// A type whose requests cannot fail is refused, by name and by number.
#[test]
fn requests_fail_by_time_where_they_can() {
    let place = "M-VIO-030: /vms/linux/virtio/program: timeout-ms: ";
    let with = |tree: &Tree, time: u32| tree.clone().set(DEVICE, "timeout-ms", cells(&[time]));
    for time in [100, 30_000, 3_600_000] {
        assert_eq!(first(&with(&disk(), time)), "");
    }
    for time in [0, 99, 3_600_001] {
        assert_refused(&with(&disk(), time), place);
    }
    for function in ["input", "vsock", "scmi"] {
        let tree = disk().set(DEVICE, "device", text(function));
        assert_refused(&with(&tree, 1000), place);
    }
    let number = |id: u32| {
        disk()
            .unset(DEVICE, "device")
            .set(DEVICE, "device-id", cells(&[id]))
    };
    assert_eq!(first(&with(&number(26), 1000)), "");
    assert_refused(&with(&number(1), 1000), place);
}

#[test]
fn a_program_is_named_by_its_path() {
    let with = |command: &str| disk().set(DEVICE, "command", text(command));
    assert_eq!(first(&with("/usr/bin/daemon\0--export\0disk")), "");
    let long = ["/bin/x", &"y".repeat(1019)].concat();
    let with_blank = with("/opt/my programs/daemon\0--export");
    assert_eq!(first(&with_blank), "");
    for command in ["daemon", "", "/usr/bin/daemon --export", &long] {
        let place = "M-VIO-023: /vms/linux/virtio/program: command: ";
        assert_refused(&with(command), place);
    }
    let place = "M-VIO-023: /vms/linux/virtio/program: files: ";
    assert_refused(&disk().set(DEVICE, "files", text("/dev/vdb")), place);
    let files = |files: &str| with("/bin/x").set(DEVICE, "files", text(files));
    assert_refused(&files("/dev/vdb\0vdc"), place);
    assert_eq!(first(&files("/dev/vdb\0/dev/vdc")), "");
}

#[test]
fn properties_go_with_their_type() {
    for (property, value) in [
        ("backend", text("/dev/vda")),
        ("read-only", Vec::new()),
        ("mac", text("02:00:00:00:00:01")),
    ] {
        let tree = disk().set(DEVICE, property, value);
        assert_refused(&tree, "M-VIO-007: ");
    }
    for (property, value) in [
        ("socket", text("/run/x")),
        ("device", text("block")),
        ("device-id", cells(&[2])),
        ("config-size", cells(&[60])),
        ("tag", text("x")),
        ("timeout-ms", cells(&[1000])),
        ("command", text("/bin/x")),
        ("files", text("/dev/vda")),
    ] {
        let tree = served().set("/vms/linux/virtio/disk", property, value);
        let place = std::format!("M-VIO-007: /vms/linux/virtio/disk: {property}: ");
        assert_refused(&tree, &place);
    }
}

#[test]
fn a_socket_serves_one_device() {
    let mine = "/vms/other/virtio/mine";
    let tree = flat(disk(), "/vms/other")
        .set(mine, "type", text("vhost-user"))
        .set(mine, "device", text("gpio"));
    let same = tree.clone().set(mine, "socket", text("/run/disk.socket"));
    let message = first(&same).to_string();
    assert!(
        message.starts_with("M-VIO-011: /vms/other/virtio/mine: socket: "),
        "{message}"
    );
    assert_eq!(
        first(&tree.set(mine, "socket", text("/run/gpio.socket"))),
        ""
    );
}
