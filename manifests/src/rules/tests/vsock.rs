//! Rules for sockets between guests and the device VM.
//!
//! Requirements: G1-BOOT-002.

use std::string::{String, ToString};
use std::vec::Vec;

use super::{errors, flat, served};
use crate::testing::{Tree, cells, text};

const SOCKETS: &str = "/vms/linux/virtio/sockets";
const OTHERS: &str = "/vms/other/virtio/sockets";

/// Adds a device to a manifest.
fn with(tree: Tree, path: &str, cid: u32, socket: &str) -> Tree {
    tree.set(path, "type", text("vsock"))
        .set(path, "cid", cells(&[cid]))
        .set(path, "socket", text(socket))
}

/// Returns a manifest with a guest that has sockets.
fn one() -> Tree {
    with(served(), SOCKETS, 3, "/run/linux")
}

/// Returns the errors' beginnings: rule, node and property.
fn places(tree: &Tree) -> Vec<String> {
    let errors = errors(&tree.flatten());
    let words = errors
        .iter()
        .map(|(_, message)| message.split(": ").take(3));
    words
        .map(|words| words.collect::<Vec<_>>().join(" "))
        .collect()
}

#[test]
fn a_guest_has_an_identifier_of_its_own() {
    assert_eq!(places(&one()), [""; 0]);
    let place = ["M-VIO-027", SOCKETS, "cid"].join(" ");
    for cid in [0, 1, 2, u32::MAX] {
        let tree = one().set(SOCKETS, "cid", cells(&[cid]));
        assert_eq!(places(&tree), [place.as_str()], "{cid}");
    }
    assert_eq!(places(&one().unset(SOCKETS, "cid")), [place]);
    assert_eq!(
        places(&one().set(SOCKETS, "cid", cells(&[u32::MAX - 1]))),
        [""; 0]
    );
    let two = |cid| with(flat(one(), "/vms/other"), OTHERS, cid, "/run/other");
    assert_eq!(places(&two(4)), [""; 0]);
    assert_eq!(places(&two(3)), [["M-VIO-028", OTHERS, "cid"].join(" ")]);
}

#[test]
fn a_guest_has_one_such_device() {
    let second = "/vms/linux/virtio/second";
    let tree = with(one(), second, 4, "/run/second");
    assert_eq!(places(&tree), [["M-VIO-029", second, "type"].join(" ")]);
    let tree = one()
        .set(second, "type", text("vhost-user"))
        .set(second, "device", text("vsock"))
        .set(second, "socket", text("/run/second"));
    assert_eq!(places(&tree), [["M-VIO-029", second, "type"].join(" ")]);
}

#[test]
fn a_socket_has_room_for_ports() {
    let place = ["M-VIO-020", SOCKETS, "socket"].join(" ");
    let path = |length: usize| ["/", &"x".repeat(length - 1)].concat();
    for socket in ["", "run/x", "/run/", &path(97)] {
        let tree = one().set(SOCKETS, "socket", text(socket));
        assert_eq!(places(&tree), [place.as_str()], "{socket}");
    }
    assert_eq!(places(&one().unset(SOCKETS, "socket")), [place]);
    assert_eq!(
        places(&one().set(SOCKETS, "socket", text(&path(96)))),
        [""; 0]
    );
}

/// A guest would reach by the port what serves another guest.
#[test]
fn a_socket_is_no_port_of_another_one() {
    let two = |socket: &str| with(flat(one(), "/vms/other"), OTHERS, 4, socket);
    let place = ["M-VIO-011", OTHERS, "socket"].join(" ");
    for socket in ["/run/linux", "/run/linux_0", "/run/linux_4294967295"] {
        assert_eq!(places(&two(socket)), [place.as_str()], "{socket}");
    }
    for socket in [
        "/run/linux_",
        "/run/linux_4294967296",
        "/run/linux_a",
        "/run/linux1",
    ] {
        assert_eq!(places(&two(socket)), [""; 0], "{socket}");
    }
    let program = "/vms/other/virtio/program";
    let tree = flat(with(served(), SOCKETS, 3, "/run/linux_9"), "/vms/other")
        .set(program, "type", text("vsock"))
        .set(program, "cid", cells(&[4]))
        .set(program, "socket", text("/run/linux"));
    let place = ["M-VIO-011", program, "socket"].join(" ");
    assert_eq!(places(&tree), [place]);
}

#[test]
fn properties_go_with_their_type() {
    for (property, value) in [
        ("backend", text("/dev/vda")),
        ("read-only", Vec::new()),
        ("mac", text("02:00:00:00:00:01")),
        ("device", text("vsock")),
        ("queues", cells(&[1])),
        ("tag", text("x")),
    ] {
        let place = ["M-VIO-007", SOCKETS, property].join(" ");
        assert_eq!(places(&one().set(SOCKETS, property, value)), [place]);
    }
    let disk = "/vms/linux/virtio/disk";
    let place = ["M-VIO-007", disk, "cid"].join(" ");
    assert_eq!(
        places(&one().set(disk, "cid", cells(&[5]))),
        [place.to_string()]
    );
}
