//! Tests of the advice.

use std::string::{String, ToString};
use std::vec::Vec;

use crate::rules::tests::{DEVICE, VM, real_time, served, two, warnings};
use crate::testing::{Tree, cells, smallest, text};

const NET: &str = "/vms/linux/virtio/net";
const PROGRAM: &str = "/vms/linux/virtio/program";

/// Returns id, node and property of each warning of the rules of this file.
fn warned(tree: &Tree) -> Vec<String> {
    let warned = warnings(tree);
    let places = warned.iter().map(|one| {
        let parts: Vec<&str> = one.splitn(4, ": ").take(3).collect();
        parts.join(" ")
    });
    let advice = places.filter(|one| {
        let late = ["M-WRN-027", "M-WRN-028"];
        ("M-WRN-013".."M-WRN-020").contains(&one.as_str())
            || late.iter().any(|id| one.starts_with(id))
    });
    advice.collect()
}

#[test]
fn warns_of_a_device_vm_that_cannot_serve() {
    assert_eq!(warned(&served()), [""; 0]);
    let none = served().unset(DEVICE, "devices");
    assert_eq!(warned(&none), ["M-WRN-013 /vms/device devices"]);
    for devices in ["/pl011@9000000", "/sdhci@fe340000"] {
        let uart = served().set(DEVICE, "devices", text(devices));
        assert_eq!(warned(&uart), ["M-WRN-013 /vms/device devices"]);
        let other = uart.set(crate::rules::tests::DISK, "backend", text("/dev/mmcblk0p3"));
        assert_eq!(warned(&other), [""; 0]);
    }
    for devices in ["/virtio_mmio@a003e00", "/virtio*", "/v*"] {
        let tree = served().set(DEVICE, "devices", text(devices));
        assert_eq!(warned(&tree), [""; 0], "{devices}");
    }
    let off = served().set(DEVICE, "no-autostart", Vec::new());
    assert_eq!(warned(&off), ["M-WRN-013 /vms/device no-autostart"]);
    let both = off.set(VM, "no-autostart", Vec::new());
    assert_eq!(warned(&both), [""; 0]);
    let late = served().set(DEVICE, "boot-order", cells(&[1]));
    assert_eq!(warned(&late), ["M-WRN-013 /vms/device boot-order"]);
    for also in [
        late.clone().set(VM, "boot-order", cells(&[1])),
        late.set(VM, "no-autostart", Vec::new()),
    ] {
        assert_eq!(warned(&also), [""; 0]);
    }
}

#[test]
fn warns_of_devices_that_an_entry_before_stands_for() {
    let devices = |list: &str| warned(&served().set(DEVICE, "devices", text(list)));
    for list in [
        "/virtio_mmio@*\0/pl011@9000000\0/virtio_mmio@*",
        "/virtio_mmio@*\0/virtio_mmio@a003e00",
        "/virtio_mmio@a003e00\0/virtio_mmio@a003e00",
    ] {
        assert_eq!(devices(list), ["M-WRN-027 /vms/device devices"], "{list}");
    }
    for list in [
        "/virtio_mmio@*\0/pl011@9000000",
        "/virtio_mmio@a003e00\0/virtio_mmio@*",
    ] {
        assert_eq!(devices(list), [""; 0], "{list}");
    }
}

/// A device of another program, with one more property.
fn program(property: &'static str, value: &str) -> Tree {
    let tree = served()
        .set(PROGRAM, "type", text("vhost-user"))
        .set(PROGRAM, "device", text("gpio"))
        .set(PROGRAM, "socket", text("/run/gpio"))
        .set(PROGRAM, "command", text("/bin/x"));
    tree.set(PROGRAM, property, text(value))
}

/// A virtio console with a backend.
fn console(backend: &str) -> Tree {
    let node = "/vms/linux/virtio/console";
    let tree = served().set(node, "type", text("console"));
    tree.set(node, "backend", text(backend))
}

#[test]
fn warns_of_a_program_that_makes_another_socket() {
    let with = |command: &str| warned(&program("command", command));
    let place = ["M-WRN-028", PROGRAM, "command"].join(" ");
    assert_eq!(with("/bin/x\0--socket-path=/run/gpi"), [place]);
    for command in [
        "/bin/x\0--socket-path=/run/gpio",
        "/bin/x\0--fd=3",
        "/bin/x",
    ] {
        assert_eq!(with(command), [""; 0], "{command}");
    }
}

#[test]
fn warns_of_taps_with_names_of_other_devices() {
    let cases = [
        ("eth0", 1),
        ("br0", 1),
        ("user", 1),
        ("bridge=br0", 1),
        ("tap,id=0", 1),
        ("lo", 1),
        ("tap0", 0),
        ("brake", 0),
    ];
    for (name, count) in cases {
        let tree = served().set(NET, "type", text("net"));
        let tree = tree.set(NET, "backend", text(name));
        let expected = ["M-WRN-014 /vms/linux/virtio/net backend"];
        assert_eq!(warned(&tree), expected[..count], "{name}");
    }
}

#[test]
fn warns_of_what_has_no_effect() {
    let cases = [
        (
            smallest().set(VM, "cpus", cells(&[0, 1])),
            "/vms/linux cpus",
        ),
        (
            smallest()
                .set(VM, "boot-order", cells(&[1]))
                .set(VM, "no-autostart", Vec::new()),
            "/vms/linux boot-order",
        ),
        (
            served().set(DEVICE, "virtio-address", cells(&[0x0b00_0000])),
            "/vms/device virtio-address",
        ),
        (
            smallest().set(VM, "watchdog-address", cells(&[0x0903_0000])),
            "/vms/linux watchdog-address",
        ),
        (
            real_time().set("/vms/rt", "watchdog-address", cells(&[0x0903_0000])),
            "/vms/rt watchdog-address",
        ),
        (
            served().set(DEVICE, "progress-ms", cells(&[10_000])),
            "/vms/device progress-ms",
        ),
        (
            smallest().set(VM, "trusts-dma", Vec::new()),
            "/vms/linux trusts-dma",
        ),
        (
            served().set(DEVICE, "trusts-dma", Vec::new()),
            "/vms/device trusts-dma",
        ),
        (
            program("command", "/bin/x\0>/dev/null"),
            "/vms/linux/virtio/program command",
        ),
        (
            program("command", "/bin/x\x002>&1"),
            "/vms/linux/virtio/program command",
        ),
        (
            program("command", "/bin/x\0&"),
            "/vms/linux/virtio/program command",
        ),
        (
            program("files", "/srv/*"),
            "/vms/linux/virtio/program files",
        ),
        (console("/dev/ttyAMA0"), "/vms/linux/virtio/console backend"),
    ];
    let quiet = [
        program("command", "/bin/x\0a&b\0-o\0x=1>2"),
        console("pty"),
        smallest()
            .set(VM, "watchdog-address", cells(&[0x0903_0000]))
            .set(VM, "watchdog-ms", cells(&[60_000]))
            .set(VM, "restart", text("on-failure")),
        // The page of its heartbeat.
        real_time()
            .set("/vms/rt", "watchdog-address", cells(&[0x0903_0000]))
            .set("/vms/rt", "watchdog-ms", cells(&[10]))
            .set("/vms/rt", "restart", text("on-failure")),
        smallest()
            .set(VM, "devices", text("/disk"))
            .set(VM, "trusts-dma", Vec::new()),
        smallest()
            .set(VM, "progress-ms", cells(&[10_000]))
            .set(VM, "restart", text("on-failure")),
    ];
    for tree in quiet {
        assert_eq!(warned(&tree), [""; 0]);
    }
    for (tree, place) in cases {
        assert_eq!(warned(&tree), ["M-WRN-017 ".to_string() + place]);
    }
    let two_cpus = smallest().set(VM, "cpus", cells(&[0, 1]));
    let all_used = two_cpus.clone().set(VM, "vcpus", cells(&[2]));
    assert_eq!(warned(&all_used), [""; 0]);
    // The list says where the balancer may move the vCPU.
    let balanced = two_cpus.set("/gear2", "balancer", text("load"));
    assert_eq!(warned(&balanced), [""; 0]);
}

#[test]
fn warns_of_restarts_that_are_none_or_have_no_end() {
    let on = |policy: &str| smallest().set(VM, "restart", text(policy));
    let limits = |limit: u32, window: u32, backoff: u32| {
        on("on-failure")
            .set(VM, "restart-limit", cells(&[limit]))
            .set(VM, "restart-window-ms", cells(&[window]))
            .set(VM, "restart-backoff-ms", cells(&[backoff]))
    };
    // The pauses before the last of n restarts are 2^(n-1) - 1 times the first.
    let cases = [
        (on("on-failure"), None),
        (
            on("always").set(VM, "may-power-off", Vec::new()),
            Some("restart"),
        ),
        (on("on-failure").set(VM, "may-power-off", Vec::new()), None),
        (limits(0, 60_000, 0), Some("restart-limit")),
        (limits(0, 60_000, 100), None),
        (limits(3, 10_000, 3_333), None),
        (limits(3, 10_000, 3_334), Some("restart-backoff-ms")),
        (limits(1, 1_000, 60_000), None),
        (
            limits(0, 60_000, 100).set(VM, "on-give-up", text("power-off")),
            Some("on-give-up"),
        ),
        (
            limits(3, 60_000, 100).set(VM, "on-give-up", text("power-off")),
            None,
        ),
        (
            real_time().set(VM, "on-give-up", text("power-off")),
            Some("on-give-up"),
        ),
        (limits(16, 3_600_000, 3_600_000), Some("restart-backoff-ms")),
        (
            served().set(DEVICE, "watchdog-ms", cells(&[60_000])),
            Some("watchdog-ms"),
        ),
        (
            smallest().set(VM, "progress-ms", cells(&[60_000])),
            Some("progress-ms"),
        ),
        (
            smallest().set(VM, "watchdog-ms", cells(&[60_000])).set(
                VM,
                "on-give-up",
                text("power-off"),
            ),
            None,
        ),
    ];
    for (tree, property) in cases {
        let warned = warned(&tree);
        let found: Vec<&str> = warned
            .iter()
            .filter_map(|one| one.rsplit(' ').next())
            .collect();
        assert_eq!(found, Vec::from_iter(property), "{warned:?}");
    }
}

#[test]
fn warns_of_memory_that_nobody_writes() {
    let memory = "/shared-memory/table";
    let tree =
        two()
            .set(memory, "address", cells(&[0x7000_0000]))
            .set(memory, "size-mib", cells(&[2]));
    let readers = [text("linux"), text("other")].concat();
    let read = tree.clone().set(memory, "readers", readers.clone());
    assert_eq!(warned(&read), ["M-WRN-019 /shared-memory/table readers"]);
    assert_eq!(warned(&tree.set(memory, "vms", readers)), [""; 0]);
}
