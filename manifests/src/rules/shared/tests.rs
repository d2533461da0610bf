//! Tests of memory shared from boot on: its reader, and each violation of its rules.

use std::string::String;

use std::vec::Vec;

use super::super::Board;
use super::super::tests::messages as all_messages;
use crate::testing::{Tree, cells, smallest, text};
use crate::{Privilege, Region, VmKind, read};

const BOARD: Board<'_> = Board {
    cpu_count: 4,
    memory: &[Region::new(0x4000_0000, 0x8000_0000)],
    reserved: &[Region::new(0x4000_0000, 0x4020_0000)],
    devices: &[],
    pmu: true,
    lacks_sve: false,
    kinds: &[VmKind::Guest, VmKind::Device, VmKind::RealTime],
    privileges: &[Privilege::El0],
};
const BOARD_NODE: &str = "/shared-memory/board";

/// A VM `other` beside `linux`; both share 2 MiB at 0x50000000.
fn tree() -> Tree {
    smallest()
        .set("/vms/other", "memory-mib", cells(&[2]))
        .set("/vms/other", "image", text("flat.bin"))
        .set(BOARD_NODE, "address", cells(&[0x5000_0000]))
        .set(BOARD_NODE, "size-mib", cells(&[2]))
        .set(BOARD_NODE, "vms", text("linux"))
        .set(BOARD_NODE, "readers", text("other"))
}

fn messages(tree: &Tree) -> Vec<String> {
    all_messages(tree, &BOARD)
}

#[test]
fn it_is_read() {
    let blob = tree().flatten();
    let manifest = read(blob.as_slice(), &mut |error| panic!("{error}")).unwrap();
    let shared = manifest.shared.get(0).unwrap();
    assert_eq!(shared.region(), Region::new(0x5000_0000, 0x5020_0000));
    assert_eq!(shared.with_lead().start, 0x4fe0_0000);
    let access = ["linux", "other", "board"].map(|name| shared.access(name));
    assert_eq!(access, [Some(true), Some(false), None]);
    let of = |index| manifest.shared_of(manifest.vms.get(index).unwrap()).count();
    assert_eq!([of(0), of(1)], [1, 1]);
    assert_eq!(messages(&tree()), Vec::<String>::new());
}

#[test]
fn each_rule_is_kept() {
    let set = |property: &str, value: Vec<u8>| tree().set(BOARD_NODE, property, value);
    let vm = |property: &str, value: u32| tree().set("/vms/linux", property, cells(&[value]));
    let both = [text("linux"), text("other")].concat();
    let cases = [
        (
            set("address", cells(&[0x5000_1000])),
            "M-SHM-001: /shared-memory/board: address:",
        ),
        (
            tree().unset(BOARD_NODE, "address"),
            "M-SHM-001: /shared-memory/board: address:",
        ),
        (
            tree().unset(BOARD_NODE, "size-mib"),
            "M-SHM-001: /shared-memory/board: size-mib:",
        ),
        (
            set("size-mib", cells(&[3])),
            "M-SHM-001: /shared-memory/board: size-mib:",
        ),
        (set("address", cells(&[0xffff, 0xffe0_0000])), "M-MEM-005:"),
        (set("address", cells(&[0x1_0000, 0])), "M-MEM-004:"),
        (set("address", cells(&[0x3000_0000])), "M-MEM-005:"),
        // The metadata reaches into memory of firmware, or out of memory.
        (set("address", cells(&[0x4020_0000])), "M-MEM-006:"),
        (set("address", cells(&[0x4000_0000])), "M-MEM-005:"),
        // Over a VM's memory, where it lies or where the VM sees it, and what describes it too.
        (vm("memory-address", 0x5000_0000), "M-SHM-002:"),
        (
            vm("memory-address", 0x4fc0_0000).set("/vms/linux", "memory-mib", cells(&[2])),
            "",
        ),
        (
            vm("memory-address", 0x5000_0000 - (256 << 20)),
            "M-SHM-002:",
        ),
        (vm("memory-ipa", 0x5000_0000), "M-SHM-002:"),
        // A VM that does not have the memory may see anything else there.
        (
            set("readers", text("third"))
                .set("/vms/third", "memory-mib", cells(&[2]))
                .set("/vms/third", "image", text("flat.bin"))
                .set("/vms/other", "memory-ipa", cells(&[0x5000_0000])),
            "",
        ),
        (
            tree()
                .set("/shared-memory/more", "address", cells(&[0x5020_0000]))
                .set("/shared-memory/more", "size-mib", cells(&[2]))
                .set("/shared-memory/more", "vms", both.clone()),
            "M-SHM-002: /shared-memory/more: address:",
        ),
        (tree().unset(BOARD_NODE, "readers"), "M-SHM-003:"),
        (
            set("readers", text("linux")),
            "M-SHM-004: /shared-memory/board: readers:",
        ),
        (
            set("vms", text("stranger")),
            "M-SHM-004: /shared-memory/board: vms:",
        ),
        (set("vms", cells(&[1])), "M-SYN-003:"),
        (set("writers", both), "M-SYN-001:"),
        (
            tree().set("/shared-memory", "address", cells(&[1])),
            "M-SYN-001:",
        ),
    ];
    for (tree, expected) in cases {
        let messages = messages(&tree);
        let is_right = match &messages[..] {
            [] => expected.is_empty(),
            [first, ..] => !expected.is_empty() && first.starts_with(expected),
        };
        assert!(is_right, "{expected:?}: {messages:#?}");
    }
}

#[test]
fn nothing_is_judged_by_who_was_left_out() {
    // The VM is left out for its own error; that its name is not known then says nothing.
    let tree = tree().set("/vms/other", "vcpu", cells(&[1]));
    let messages = messages(&tree);
    assert!(
        matches!(&messages[..], [one] if one.starts_with("M-SYN-001: /vms/other")),
        "{messages:#?}"
    );
}
