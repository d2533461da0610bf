//! Tests of reading the device tree.

use std::fs;
use std::time::Duration;

use super::{Board, DeviceKind};
use crate::testing::Directory;

fn tree() -> Directory {
    let tree = Directory::new("tree");
    let device = tree.path().join("gearv/device@3");
    fs::create_dir_all(&device).unwrap();
    let wide = |numbers: &[u64]| {
        let bytes: Vec<u8> = numbers.iter().flat_map(|n| n.to_be_bytes()).collect();
        bytes
    };
    let gearv = tree.path().join("gearv");
    fs::write(gearv.join("compatible"), "gearv,device-vm\0").unwrap();
    fs::write(gearv.join("control"), wide(&[0x8020_0000, 0x20_0000])).unwrap();
    fs::write(gearv.join("window"), wide(&[0xc00_0000, 0x10_0000])).unwrap();
    fs::write(device.join("channel"), [0, 0, 0, 3]).unwrap();
    fs::write(device.join("vm"), "linux\0").unwrap();
    fs::write(device.join("vm-id"), [0, 0, 0, 2]).unwrap();
    fs::write(device.join("type"), "block\0").unwrap();
    fs::write(device.join("backend"), "/dev/vda\0").unwrap();
    let memory = [0x4000_0000, 0x9000_0000, 0x2000_0000];
    fs::write(device.join("guest-memory"), wide(&memory)).unwrap();
    fs::write(device.join("register-page"), [0, 0, 0, 1, 0, 0, 2, 0]).unwrap();
    tree
}

#[test]
fn a_device_is_read() {
    let tree = tree();
    let board = Board::read(tree.path()).unwrap();
    assert_eq!((board.control, board.window), (0x8020_0000, 0xc00_0000));
    let device = &board.devices[0];
    assert_eq!((device.channel, device.vm_id), (3, 2));
    assert_eq!(device.kind, DeviceKind::Block);
    assert_eq!(
        (device.vm.as_str(), device.backend.as_str()),
        ("linux", "/dev/vda")
    );
    assert_eq!(device.memory, [0x4000_0000, 0x9000_0000, 0x2000_0000]);
    assert_eq!(device.registers, [1, 0x200]);
    assert!(!device.read_only);
}

#[test]
fn what_a_device_serves_is_read() {
    let tree = tree();
    let device = tree.path().join("gearv/device@3");
    let read = || Board::read(tree.path()).unwrap().devices[0].clone();
    let without = read();
    assert_eq!((&*without.serial, &*without.label), ("", ""));
    assert_eq!((without.mtu, without.limits), (0, [0; 3]));
    let limits = [500_u32, 0, 100].map(u32::to_be_bytes).concat();
    for (name, value) in [
        ("label", b"system\0".as_slice()),
        ("serial", b"A-1\0"),
        ("mtu", &9000_u32.to_be_bytes()),
        ("limits", &limits),
        ("queues", &3_u32.to_be_bytes()),
    ] {
        fs::write(device.join(name), value).unwrap();
    }
    let with = read();
    assert_eq!((&*with.serial, &*with.label), ("A-1", "system"));
    assert_eq!((with.mtu, with.limits), (9000, [500, 0, 100]));
    assert_eq!((without.queues, with.queues), (0, 3));
}

#[test]
fn a_device_of_another_program_is_read() {
    let tree = tree();
    let device = tree.path().join("gearv/device@3");
    let numbers = [26_u32, 2, 40].map(u32::to_be_bytes).concat();
    for (name, value) in [
        ("type", b"vhost-user\0".as_slice()),
        ("vhost-user", &numbers),
        ("backend", b"/run/fs/socket\0"),
        ("tag", b"shared\0"),
        ("timeout-ms", &[0, 0, 0x13, 0x88]),
        ("command", b"/usr/bin/fsd\0\0--verbose\0"),
    ] {
        fs::write(device.join(name), value).unwrap();
    }
    let device = &Board::read(tree.path()).unwrap().devices[0];
    assert_eq!(device.kind, DeviceKind::VhostUser(26));
    assert_eq!((device.queues, device.config_size), (2, 40));
    assert_eq!(device.limit, Some(Duration::from_secs(5)));
    assert_eq!(
        (&*device.backend, &*device.tag),
        ("/run/fs/socket", "shared")
    );
    assert_eq!(device.command, ["/usr/bin/fsd", "", "--verbose"]);
    assert!(device.files.is_empty());
}

/// The card's address is the manifest's, or else the board's: another one on another board, and the
/// same with each start.
#[test]
fn a_network_card_has_an_address() {
    let tree = tree();
    let device = tree.path().join("gearv/device@3");
    let mac = || Board::read(tree.path()).unwrap().devices[0].mac;
    assert_eq!(mac(), [0; 6], "a disk has none");
    fs::write(device.join("type"), "net\0").unwrap();
    fs::write(tree.path().join("serial-number"), "1000\0").unwrap();
    let first = mac();
    assert_eq!((first[0], mac()), (2, first));
    assert_eq!(first, crate::address::derive(b"1000\0", "linux", 1));
    fs::write(tree.path().join("serial-number"), "1001\0").unwrap();
    assert_ne!(mac(), first, "another board");
    fs::write(device.join("mac"), [2, 0, 0, 0, 0, 9]).unwrap();
    assert_eq!(mac(), [2, 0, 0, 0, 0, 9]);
    fs::write(device.join("mac"), [2, 0]).unwrap();
    let error = Board::read(tree.path()).unwrap_err();
    assert!(error.ends_with("mac: is not 6 bytes"), "{error}");
}

#[test]
fn what_is_missing_or_short_is_named() {
    let tree = tree();
    let memory = tree.path().join("gearv/device@3/guest-memory");
    fs::write(&memory, [0; 12]).unwrap();
    let error = Board::read(tree.path()).unwrap_err();
    assert!(
        error.contains("guest-memory: is not 3 pairs of cells"),
        "{error}"
    );
    fs::remove_file(&memory).unwrap();
    assert!(
        Board::read(tree.path())
            .unwrap_err()
            .contains("guest-memory")
    );
    let error = Board::read(std::path::Path::new("/nonexistent")).unwrap_err();
    assert!(error.contains("not a GearV device VM"), "{error}");
}
