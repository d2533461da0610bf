//! Rules for input devices.
//!
//! Requirements: G1-BOOT-002.

use std::string::String;

use super::{errors, flat, served};
use crate::testing::{Tree, cells, text};

const KEYS: &str = "/vms/linux/virtio/keys";

fn with(tree: Tree, path: &str, backend: &str) -> Tree {
    tree.set(path, "type", text("input"))
        .set(path, "backend", text(backend))
}

/// Returns the beginning of the first error: rule, node and property.
fn first(tree: &Tree) -> String {
    let errors = errors(&tree.flatten());
    let first = errors.first().map(|(_, message)| {
        let words: std::vec::Vec<&str> = message.split(": ").take(3).collect();
        words.join(" ")
    });
    first.unwrap_or_default()
}

#[test]
fn a_backend_is_a_device_or_a_socket() {
    let place = ["M-VIO-032", KEYS, "backend"].join(" ");
    let path = |length: usize| ["socket:/", &"x".repeat(length - 1)].concat();
    for backend in [
        "event0",
        "socket:",
        "socket:run/x",
        "socket:/run/",
        "/dev/input/",
        "/dev/input",
        "/run/x",
        &path(108),
    ] {
        assert_eq!(first(&with(served(), KEYS, backend)), place, "{backend}");
    }
    for backend in [
        "/dev/input/event0",
        "/dev/input/by-path/x:y",
        "socket:/run/x",
        &path(107),
    ] {
        assert_eq!(first(&with(served(), KEYS, backend)), "", "{backend}");
    }
    let nothing = served().set(KEYS, "type", text("input"));
    assert_eq!(first(&nothing), ["M-VIO-006", KEYS, "backend"].join(" "));
}

#[test]
fn a_device_is_one_guests() {
    let others = "/vms/other/virtio/keys";
    let two = |backend| {
        let one = with(served(), KEYS, "/dev/input/event0");
        with(flat(one, "/vms/other"), others, backend)
    };
    let place = ["M-VIO-011", others, "backend"].join(" ");
    assert_eq!(first(&two("/dev/input/event0")), place);
    assert_eq!(first(&two("/dev/input/event1")), "");
}

/// GDM makes the socket of an input device, and a vsock's or a program's is another.
#[test]
fn a_socket_is_of_one_type() {
    let others = "/vms/other/virtio/sockets";
    let two = |socket: &str| {
        let one = with(served(), KEYS, "socket:/run/x");
        flat(one, "/vms/other")
            .set(others, "type", text("vsock"))
            .set(others, "cid", cells(&[3]))
            .set(others, "socket", text(socket))
    };
    let place = ["M-VIO-011", others, "socket"].join(" ");
    assert_eq!(first(&two("/run/x")), place);
    assert_eq!(first(&two("/run/y")), "");
    let keys = "/vms/third/virtio/keys";
    let behind = |backend| with(flat(two("/run/y"), "/vms/third"), keys, backend);
    let place = ["M-VIO-011", keys, "backend"].join(" ");
    assert_eq!(first(&behind("socket:/run/y")), place);
    assert_eq!(first(&behind("socket:/run/y_7")), place);
    assert_eq!(first(&behind("socket:/run/z")), "");
}
