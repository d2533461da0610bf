//! Tests of the disks and the network card in QEMU's command line.

use std::fs;

use super::{Disk, Format, Forward, Network, Protocol};
use crate::qemu::Machine;
use crate::workspace::scratch;

/// Returns the arguments for disks and network, those of the machine itself left out.
fn arguments(machine: &Machine) -> String {
    let all = machine.arguments().join(" ");
    let (_, devices) = all.split_once("-nic none").unwrap();
    devices.trim_start().to_owned()
}

fn raw(file: &str) -> Disk {
    Disk {
        file: file.into(),
        format: Format::Raw,
    }
}

#[test]
fn a_machine_with_its_own_disk_is_as_ever() {
    let machine = Machine {
        disk: Some("own.img".into()),
        ..Machine::default()
    };
    assert_eq!(
        arguments(&machine),
        "-drive file=own.img,if=none,id=d0,format=raw,werror=report,rerror=report -global virtio-mmio.force-legacy=false \
         -device virtio-blk-device,drive=d0 -netdev user,id=n0,restrict=on \
         -device virtio-net-device,netdev=n0"
    );
    assert_eq!(arguments(&Machine::default()), "");
}

/// Linux names disks by their addresses, from below, and QEMU places devices from above.
#[test]
fn disks_stand_behind_the_machines_own_by_name() {
    let machine = Machine {
        disk: Some("own.img".into()),
        more_disks: vec![raw("b,c.img"), raw("c.img")],
        snapshot: true,
        ..Machine::default()
    };
    assert_eq!(
        arguments(&machine),
        "-drive file=own.img,if=none,id=d0,format=raw,werror=report,rerror=report \
         -drive file=b,,c.img,if=none,id=d1,format=raw,werror=report,rerror=report -drive file=c.img,if=none,id=d2,format=raw,werror=report,rerror=report \
         -global virtio-mmio.force-legacy=false -device virtio-blk-device,drive=d2 \
         -device virtio-blk-device,drive=d1 -device virtio-blk-device,drive=d0 \
         -netdev user,id=n0,restrict=on -device virtio-net-device,netdev=n0 -snapshot"
    );
}

#[test]
fn a_network_leads_where_it_is_told() {
    let forward = |protocol, host_port, address: &str, port| Forward {
        protocol,
        host_port,
        address: address.to_owned(),
        port,
    };
    let machine = Machine {
        network: Network {
            outside: true,
            forwards: vec![
                forward(Protocol::Tcp, 8080, "10.0.2.101", 80),
                forward(Protocol::Udp, 5353, "10.0.2.100", 53),
            ],
        },
        ..Machine::default()
    };
    assert_eq!(
        arguments(&machine),
        "-global virtio-mmio.force-legacy=false -netdev user,id=n0,restrict=off,\
         hostfwd=tcp:127.0.0.1:8080-10.0.2.101:80,hostfwd=udp:127.0.0.1:5353-10.0.2.100:53 \
         -device virtio-net-device,netdev=n0"
    );
}

#[test]
fn the_first_bytes_tell_an_image_format() {
    let folder = scratch("formats");
    for (name, bytes, format) in [
        ("raw", &b"\0\0\0\0\0\0"[..], Format::Raw),
        ("short", b"Q", Format::Raw),
        ("qcow2", b"QFI\xfb\0\0\0\x03", Format::Qcow2),
    ] {
        let file = folder.join(name);
        fs::write(&file, bytes).unwrap();
        assert_eq!(Format::of(&file).unwrap(), format, "{name}");
    }
    fs::remove_dir_all(folder).unwrap();
}
