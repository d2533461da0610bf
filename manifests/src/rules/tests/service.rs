//! Rules for disks and network cards that the device model serves itself.
//!
//! Requirements: G1-BOOT-002.

use super::vhost_user::{assert_refused, first};
use super::{DISK, served};
use crate::testing::{Tree, cells, text};

fn card() -> Tree {
    served()
        .set(DISK, "type", text("net"))
        .set(DISK, "backend", text("tap0"))
}

#[test]
fn a_disk_has_a_serial_number_that_a_guest_can_show() {
    let with = |serial: &str| served().set(DISK, "serial", text(serial));
    for serial in ["A", "system-disk-0001.raw", "#1"] {
        assert_eq!(first(&with(serial)), "");
    }
    for serial in ["", "with blank", "a/b", "twenty-one-characters", "tür"] {
        assert_refused(&with(serial), "M-VIO-025: /vms/linux/virtio/disk: serial: ");
    }
}

#[test]
fn limits_can_be_kept() {
    let with = |numbers: &[(&str, u32)]| {
        let set =
            |tree: Tree, (name, number): &(&str, u32)| tree.set(DISK, name, cells(&[*number]));
        numbers.iter().fold(served(), set)
    };
    for good in [
        &[("iops-limit", 1)][..],
        &[("iops-limit", 10_000_000), ("burst-ms", 1)],
        &[("bytes-per-second-limit", 65_536), ("burst-ms", 10_000)],
        &[("bytes-per-second-limit", u32::MAX), ("iops-limit", 5)],
    ] {
        assert_eq!(first(&with(good)), "");
    }
    for (bad, property) in [
        (&[("iops-limit", 0)][..], "iops-limit"),
        (&[("iops-limit", 10_000_001)], "iops-limit"),
        (
            &[("bytes-per-second-limit", 65_535)],
            "bytes-per-second-limit",
        ),
        (&[("iops-limit", 5), ("burst-ms", 0)], "burst-ms"),
        (&[("iops-limit", 5), ("burst-ms", 10_001)], "burst-ms"),
        (&[("burst-ms", 5)], "burst-ms"),
    ] {
        let place = std::format!("M-VIO-024: {DISK}: {property}: ");
        assert_refused(&with(bad), &place);
    }
}

#[test]
fn a_card_announces_packets_that_linux_takes() {
    let with = |mtu| card().set(DISK, "mtu", cells(&[mtu]));
    for mtu in [68, 1500, 9000, 65_521] {
        assert_eq!(first(&with(mtu)), "");
    }
    for mtu in [0, 67, 65_522] {
        assert_refused(&with(mtu), "M-VIO-026: /vms/linux/virtio/disk: mtu: ");
    }
}

#[test]
fn properties_go_with_their_type() {
    let other = |property: &str| std::format!("M-VIO-007: {DISK}: {property}: ");
    assert_refused(&card().set(DISK, "serial", text("A")), &other("serial"));
    assert_refused(&served().set(DISK, "mtu", cells(&[1500])), &other("mtu"));
    assert_eq!(first(&card().set(DISK, "iops-limit", cells(&[5]))), "");
    let console = served()
        .set(DISK, "type", text("console"))
        .set(DISK, "backend", text("pty"));
    for property in ["iops-limit", "bytes-per-second-limit", "burst-ms"] {
        let tree = console.clone().set(DISK, property, cells(&[100_000]));
        assert_refused(&tree, &other(property));
    }
}

#[test]
fn a_disk_and_a_card_have_up_to_four_queues_or_pairs() {
    for device in [served(), card()] {
        let with = |queues| device.clone().set(DISK, "queues", cells(&[queues]));
        assert_eq!(first(&with(1)), "");
        assert_eq!(first(&with(4)), "");
        for queues in [0, 5] {
            assert_refused(&with(queues), "M-VIO-031: /vms/linux/virtio/disk: queues: ");
        }
    }
    let console = served()
        .set(DISK, "type", text("console"))
        .set(DISK, "backend", text("pty"));
    assert_refused(
        &console.set(DISK, "queues", cells(&[1])),
        "M-VIO-007: /vms/linux/virtio/disk: queues: ",
    );
}
