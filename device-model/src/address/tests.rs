//! Tests of the board's identity and of the addresses derived from it.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use super::{board_identity, derive};
use crate::testing::Directory;

const FIRST: [u8; 6] = [0xdc, 0xa6, 0x32, 1, 2, 3];
const SECOND: [u8; 6] = [0xdc, 0xa6, 0x32, 1, 2, 4];

fn card(folder: &Path, name: &str, address: &str, assigned: &str) {
    let card = folder.join("net").join(name);
    fs::create_dir_all(card.join("device")).unwrap();
    fs::write(card.join("address"), format!("{address}\n")).unwrap();
    fs::write(card.join("addr_assign_type"), format!("{assigned}\n")).unwrap();
}

fn identity(folder: &Path) -> Option<Vec<u8>> {
    board_identity(&folder.join("tree"), &folder.join("net"))
}

#[test]
fn the_identity_is_the_best_that_the_board_has() {
    let directory = Directory::new("identity");
    let folder = directory.path();
    fs::create_dir_all(folder.join("tree/soc/ethernet@1")).unwrap();
    assert_eq!(identity(folder), None);
    // Whatever is no card's own: random, set by a person, a bridge's, nonsense.
    card(folder, "eth9", "02:00:00:00:00:01", "1");
    card(folder, "eth8", "02:00:00:00:00:02", "3");
    card(folder, "eth7", "nonsense", "0");
    card(folder, "eth6", "00:00:00:00:00:00", "0");
    fs::create_dir_all(folder.join("net/br0")).unwrap();
    fs::write(folder.join("net/br0/address"), "02:00:00:00:00:03\n").unwrap();
    fs::write(folder.join("net/br0/addr_assign_type"), "0\n").unwrap();
    assert_eq!(identity(folder), None);
    card(folder, "eth1", "52:54:00:12:34:57", "0");
    card(folder, "eth0", "52:54:00:12:34:56", "0");
    let own = [0x52, 0x54, 0, 0x12, 0x34, 0x56];
    assert_eq!(identity(folder), Some(own.to_vec()));
    let write =
        |path: &str, bytes: &[u8]| fs::write(folder.join("tree").join(path), bytes).unwrap();
    write("soc/ethernet@1/local-mac-address", &[2, 1, 1, 1, 1, 1]);
    write("soc/ethernet@1/mac-address", &[0; 6]);
    write("soc/mac-address", &[0xff; 6]);
    assert_eq!(identity(folder), Some(own.to_vec()), "made up at this boot");
    write("soc/ethernet@1/local-mac-address", &SECOND);
    assert_eq!(identity(folder), Some(SECOND.to_vec()));
    write("soc/mac-address", &FIRST);
    assert_eq!(identity(folder), Some(FIRST.to_vec()));
    write("serial-number", b"0000000000000000\0");
    assert_eq!(identity(folder), Some(FIRST.to_vec()));
    write("serial-number", b"100000003d1f2a55\0");
    assert_eq!(identity(folder), Some(b"100000003d1f2a55\0".to_vec()));
}

#[test]
fn addresses_are_stable_and_differ_by_board_vm_and_card() {
    let first = derive(b"board 1", "linux", 1);
    assert_eq!(first, derive(b"board 1", "linux", 1));
    let mut seen = BTreeSet::new();
    for board in 0..200 {
        for vm in ["linux", "linux2", "camera", ""] {
            for place in 0..8 {
                let mac = derive(format!("board {board}").as_bytes(), vm, place);
                assert_eq!(mac[0], 2, "one station, locally administered");
                assert!(seen.insert(mac), "{board} {vm} {place}: {mac:x?}");
            }
        }
    }
    // Boards whose serial numbers differ in their last digit differ in every byte behind the
    // prefix.
    let [one, two] = [&b"serial 1"[..], b"serial 2"].map(|board| derive(board, "linux", 0));
    assert!(
        one.iter().zip(&two).skip(1).all(|(a, b)| a != b),
        "{one:x?} {two:x?}"
    );
}
