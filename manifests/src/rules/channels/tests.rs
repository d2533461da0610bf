//! Tests of doorbells: their reader, and each violation of their rules.
//!
//! Requirements: G1-BOOT-002.

use std::string::{String, ToString as _};
use std::vec::Vec;

use super::super::Board;
use super::super::tests::messages as all_messages;
use crate::testing::{Tree, cells, smallest, text};
use crate::{ChannelEnd, Privilege, Region, VmKind, read};

const BOARD: Board<'_> = Board {
    cpu_count: 4,
    memory: &[Region::new(0x4000_0000, 0x8000_0000)],
    reserved: &[Region::new(0x4000_0000, 0x4020_0000)],
    devices: &[Region::new(0x0800_0000, 0x0801_0000)],
    pmu: true,
    lacks_sve: false,
    kinds: &[VmKind::Guest, VmKind::Device, VmKind::RealTime],
    privileges: &[Privilege::El0],
};
const BELL: &str = "/channels/bell";
const BACK: &str = "/channels/back";

/// VMs `linux` and `other`, which ring each other and share memory.
fn tree() -> Tree {
    smallest()
        .set("/vms/other", "memory-mib", cells(&[2]))
        .set("/vms/other", "image", text("flat.bin"))
        .set("/shared-memory/board", "address", cells(&[0x5000_0000]))
        .set("/shared-memory/board", "size-mib", cells(&[2]))
        .set("/shared-memory/board", "vms", text("linux"))
        .set("/shared-memory/board", "readers", text("other"))
        .set(BELL, "from", text("linux"))
        .set(BELL, "to", text("other"))
        .set(BELL, "memory", text("board"))
        .set(BACK, "from", text("other"))
        .set(BACK, "to", text("linux"))
        .set(BACK, "min-interval-us", cells(&[100]))
}

/// The tree with `other` as a real-time VM.
fn real_time(gic: &str) -> Tree {
    tree()
        .set("/vms/other", "kind", text("real-time"))
        .set("/vms/other", "cpus", cells(&[1]))
        .set("/vms/other", "gic", text(gic))
        .set(BELL, "min-interval-us", cells(&[0]))
        .unset(BACK, "min-interval-us")
}

/// The tree with only the channel to `other`, which is real-time.
fn into_real_time(gic: &str) -> Tree {
    let mut tree = real_time(gic);
    let channels = tree.at("/channels");
    channels.children.retain(|(name, _)| name == "bell");
    tree
}

fn messages(tree: &Tree) -> Vec<String> {
    all_messages(tree, &BOARD)
}

#[test]
fn they_are_read() {
    let blob = tree().flatten();
    let manifest = read(blob.as_slice(), &mut |error| panic!("{error}")).unwrap();
    let [bell, back] = [0, 1].map(|place| *manifest.channels.get(place).unwrap());
    assert_eq!((bell.from, bell.to), ("linux", "other"));
    assert_eq!((bell.ipa, bell.intid), (0x0b00_0000, 240));
    assert_eq!((back.ipa, back.intid), (0x0b00_1000, 241));
    let intervals = [bell, back].map(|channel| channel.min_interval_us);
    assert_eq!(intervals, [None, Some(100)]);
    let memory = [bell, back].map(|channel| manifest.memory_of(&channel).map(|one| one.name));
    assert_eq!(memory, [Some("board"), None]);
    let linux = manifest.vm_named("linux").unwrap();
    let ends: Vec<ChannelEnd<'_>> = manifest.channel_ends(linux).collect();
    let memory = Region::new(0x5000_0000, 0x5020_0000);
    let registers: Vec<_> = ends[0].registers().collect();
    let expected = [("doorbell", bell.doorbell()), ("memory", memory)];
    assert_eq!((registers, ends[0].intid), (expected.to_vec(), None));
    assert_eq!((ends[1].registers().count(), ends[1].intid), (0, Some(241)));
    assert_eq!((ends[1].name, ends.len()), ("back", 2));
    assert_eq!(messages(&tree()), Vec::<String>::new());
    assert_eq!(
        messages(&into_real_time("pass-through")),
        Vec::<String>::new()
    );
}

#[test]
fn each_rule_on_names_is_kept() {
    let set = |property: &str, value: Vec<u8>| tree().set(BELL, property, value);
    let alone = tree().set("/shared-memory/board", "vms", text("other"));
    let cases = [
        (
            set("from", text("linus")),
            "M-CHN-002: /channels/bell: from:",
        ),
        (set("to", text("linux")), "M-CHN-002: /channels/bell: to:"),
        (
            tree().set("/vms/linux", "tells", text("back")),
            "M-CHN-013: /vms/linux: tells: this is no channel of the VM's own (\"back\")",
        ),
        (
            tree().set("/vms/linux", "tells", text("belt")),
            "M-CHN-013: /vms/linux: tells: this is no channel of the VM's own (\"belt\"); did you \
             mean bell?",
        ),
        (tree().unset(BELL, "to"), "M-CHN-002: /channels/bell: to:"),
        // What follows from a wrong type is not told beside it.
        (set("to", cells(&[1])), "M-SYN-003: /channels/bell: to:"),
        (
            set("memory", text("bored")),
            "M-CHN-008: /channels/bell: memory:",
        ),
        (
            alone.unset("/shared-memory/board", "readers"),
            "M-CHN-008: /channels/bell: memory:",
        ),
        (
            tree().set("/channels/Bell", "from", text("linux")).set(
                "/channels/Bell",
                "to",
                text("other"),
            ),
            "M-CHN-003: /channels/Bell:",
        ),
        (
            set("min-interval-us", cells(&[60_000_001])),
            "M-SYN-006: /channels/bell: min-interval-us:",
        ),
    ];
    is_refused(&cases);
}

#[test]
fn each_rule_on_places_is_kept() {
    let set = |property: &str, value: &[u32]| tree().set(BELL, property, cells(value));
    let console = tree().set("/vms/other/console", "interrupt", cells(&[240]));
    let cases = [
        (set("address", &[0x0b00_0800]), "M-CHN-009:"),
        (set("address", &[0x1_0000, 0]), "M-CHN-009:"),
        (set("address", &[0x5000_0000]), "M-CHN-010:"),
        (set("address", &[0x4fe0_0000]), "M-CHN-010:"),
        // Memory without an address may lie there, and so may the interrupt controller.
        (set("address", &[0x7000_0000]), "M-CHN-010:"),
        (set("address", &[0x0800_1000]), "M-CHN-010:"),
        (
            tree()
                .set(BACK, "from", text("linux"))
                .set(BACK, "to", text("other"))
                .set(BACK, "address", cells(&[0x0b00_0000])),
            "M-CHN-010: /channels/back: address:",
        ),
        (set("interrupt", &[31]), "M-CHN-011:"),
        (set("interrupt", &[512]), "M-CHN-011:"),
        (console, "M-CHN-012: /channels/bell: interrupt:"),
        (
            tree()
                .set(BACK, "from", text("linux"))
                .set(BACK, "to", text("other"))
                .set(BACK, "interrupt", cells(&[240])),
            "M-CHN-012: /channels/back: interrupt:",
        ),
    ];
    is_refused(&cases);
}

/// Shared memory, and what describes it, are in the way of a doorbell on each board: the rule needs
/// none. With a board, all of its memory is in the way of a VM whose memory has no address.
#[test]
fn shared_memory_is_in_the_way_without_a_board() {
    for address in [0x5000_0000, 0x4fe0_0000] {
        let tree = tree().set(BELL, "address", cells(&[address]));
        let (blob, mut told) = (tree.flatten(), Vec::new());
        // The verdict is the list.
        let _ = read(blob.as_slice(), &mut |error| told.push(error.to_string()));
        let is_told = |message: &String| message.starts_with("M-CHN-010: /channels/bell:");
        assert!(told.iter().any(is_told), "{address:#x}: {told:?}");
    }
}

#[test]
fn each_rule_on_real_time_vms_is_kept() {
    let back = real_time("pass-through").set("/channels/bell", "to", text("linux"));
    let back = back.set("/channels/bell", "from", text("other"));
    let third = real_time("pass-through")
        .set("/vms/third", "kind", text("real-time"))
        .set("/vms/third", "cpus", cells(&[2]))
        .set("/vms/third", "gic", text("pass-through"))
        .set("/vms/third", "memory-mib", cells(&[2]))
        .set("/vms/third", "image", text("flat.bin"))
        .set(BACK, "from", text("other"))
        .set(BACK, "to", text("third"))
        .set(BACK, "min-interval-us", cells(&[0]));
    assert_eq!(messages(&third), Vec::<String>::new());
    let cases = [
        (into_real_time("emulated"), "M-CHN-004: /channels/bell: to:"),
        (back, "M-CHN-005: /channels/bell: to:"),
        (
            into_real_time("pass-through").unset(BELL, "min-interval-us"),
            "M-CHN-006: /channels/bell: min-interval-us:",
        ),
        (
            third.clone().set(BACK, "min-interval-us", cells(&[10])),
            "M-CHN-007: /channels/back: min-interval-us:",
        ),
        (
            third.set(BACK, "interrupt", cells(&[240])),
            "M-CHN-012: /channels/back: interrupt:",
        ),
    ];
    is_refused(&cases);
}

/// The tree with a power button for each of both VMs.
fn with_buttons() -> Tree {
    ["linux", "other"].into_iter().fold(tree(), |tree, vm| {
        let path = std::format!("/channels/{vm}-off");
        tree.set(&path, "to", text(vm))
            .set(&path, "power-button", Vec::new())
    })
}

#[test]
fn power_buttons_are_gear2s() {
    let blob = with_buttons().flatten();
    let manifest = read(blob.as_slice(), &mut |error| panic!("{error}")).unwrap();
    assert_eq!(messages(&with_buttons()), Vec::<String>::new());
    let of_gear2: Vec<bool> = manifest
        .channels
        .iter()
        .map(|channel| manifest.is_gear2s(channel))
        .collect();
    assert_eq!(of_gear2, [false, false, true, true]);
    let linux = manifest.vm_named("linux").unwrap();
    assert_eq!(manifest.power_button_of(linux), Some(2));
    let ends: Vec<ChannelEnd<'_>> = manifest.channel_ends(linux).collect();
    let (ring, button) = (ends[1], ends[2]);
    assert_eq!((ring.key(), button.key()), (0x100, 116));
    assert_eq!(button.compatible(), ["gearv,power-button", "gpio-keys"]);
    assert_eq!((button.registers().count(), button.intid), (0, Some(242)));
    let real_time = into_real_time("pass-through").set("/channels/off", "to", text("other"));
    let real_time = real_time.set("/channels/off", "power-button", Vec::new());
    assert_eq!(messages(&real_time), Vec::<String>::new());
}

#[test]
fn each_rule_on_power_buttons_is_kept() {
    const OFF: &str = "/channels/other-off";
    let set = |property: &str, value: Vec<u8>| with_buttons().set(OFF, property, value);
    let second = with_buttons().set("/channels/off", "to", text("other"));
    let device = with_buttons().set("/vms/other", "kind", text("device"));
    let emulated = into_real_time("emulated").unset(BELL, "memory");
    let emulated = emulated
        .set(BELL, "from", Vec::new())
        .unset(BELL, "from")
        .set(BELL, "power-button", Vec::new());
    let cases = [
        (
            set("from", text("linux")),
            "M-CHN-014: /channels/other-off: from: Gear2 alone presses a power button;",
        ),
        (
            set("memory", text("board")),
            "M-CHN-014: /channels/other-off: memory:",
        ),
        (
            set("address", cells(&[0x0b00_0000])),
            "M-CHN-014: /channels/other-off: address:",
        ),
        (
            second.set("/channels/off", "power-button", Vec::new()),
            "M-CHN-015: /channels/off: to:",
        ),
        (device, "M-CHN-016: /channels/other-off: to:"),
        (emulated, "M-CHN-004: /channels/bell: to:"),
        (
            set("to", text("nobody")),
            "M-CHN-002: /channels/other-off: to:",
        ),
    ];
    is_refused(&cases);
}

#[test]
fn there_are_at_most_sixteen() {
    let all = (0..17).fold(smallest(), |tree, number| {
        let path = std::format!("/channels/bell{number}");
        tree.set(&path, "from", text("linux"))
            .set(&path, "to", text("linux"))
    });
    let all = messages(&all);
    let is_too_many = |message: &&String| message.starts_with("M-CHN-001: /channels/bell16:");
    assert_eq!(all.iter().filter(is_too_many).count(), 1, "{all:?}");
}

/// Checks that each tree is refused by a message with this beginning.
fn is_refused(cases: &[(Tree, &str)]) {
    for (tree, expected) in cases {
        let list = messages(tree);
        let is_told = list.iter().any(|message| message.starts_with(expected));
        assert!(is_told, "{expected} is missing in {list:?}");
    }
}
