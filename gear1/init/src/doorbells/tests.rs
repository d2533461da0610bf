//! Tests of doorbells through the whole of init.
//!
//! Requirements: G1-CHN-001, G1-CHN-004, G1-CHN-007, G1-CHN-008.

use gear1_abi::boot::{BootChannel, BootDoorbell, ChannelKind, IrqOwner};

use crate::prepare::tests::{Case, stage2};
use crate::testing::tree;
use crate::trees::{cells, text};

const RT: &str = "/vms/rt";
const IN: &str = "/channels/in";
const OUT: &str = "/channels/out";
const OFF: &str = "/channels/off";
const DOORBELL: u64 = 0x0b00_0000;

/// VM 0 rings VM 2, which is real-time and owns the clock, and VM 1.
fn case() -> Case {
    let mut case = Case::new();
    case.manifest = case
        .manifest
        .set("/vms/linux", "vcpus", cells(&[1]))
        .set(RT, "kind", text("real-time"))
        .set(RT, "cpus", cells(&[1]))
        .set(RT, "memory-mib", cells(&[4]))
        .set(RT, "image", text("guest.bin"))
        .set(RT, "gic", text("pass-through"))
        .set(RT, "devices", text("/pl031@9010000"))
        .set(IN, "from", text("linux"))
        .set(IN, "to", text("rt"))
        .set(IN, "min-interval-us", cells(&[100]))
        .set(OUT, "from", text("linux"))
        .set(OUT, "to", text("flat"))
        .set("/vms/linux", "tells", text("in"))
        .set(OFF, "to", text("linux"))
        .set(OFF, "power-button", cells(&[]));
    case
}

#[test]
fn the_runtime_hears_of_each_store_and_each_interrupt() {
    let (memory, info) = case().booted();
    let bell = |number: u32| BootChannel {
        ipa: DOORBELL + u64::from(number) * 0x1000,
        kind: ChannelKind::Doorbell,
        target: number,
        number: 0,
    };
    let linux = &info.vms[0];
    assert_eq!((linux.first_channel, linux.channel_count), (0, 2));
    assert_eq!(info.channels[..2], [bell(0), bell(1)]);
    assert!(info.vms[1..].iter().all(|vm| vm.channel_count == 0));
    // The counter of the case's machine has 62.5 MHz.
    let doorbell = |interval, vm, intid, gear2| BootDoorbell {
        interval,
        vm,
        intid,
        gear2,
    };
    // G1-CHN-008: Gear2 may ring the one that `tells` names, and the power button.
    let expected = [
        doorbell(6250, 2, 240, 1),
        doorbell(0, 1, 241, 0),
        doorbell(0, 0, 242, 1),
    ];
    assert_eq!(info.doorbells[..3], expected);
    assert_eq!(info.irq_owner[240], IrqOwner::vm(2).unwrap());
    assert_eq!(info.irq_edge[240 / 32] >> (240 % 32) & 1, 1);
    assert_eq!(info.irq_owner[241], IrqOwner::NONE);
    let pages = stage2(&memory, linux.root);
    assert!(!pages.iter().any(|leaf| leaf.input == DOORBELL));
}

#[test]
fn a_vm_with_devices_is_told_in_its_tree() {
    let (memory, info) = case().booted();
    let load = info.vms[2].loads[1];
    let mut told = tree(&memory.read(load.source, load.size as usize));
    let node = told.at("/in");
    let property = |name: &str| {
        let known = node.properties.iter().find(|(known, _)| known == name);
        known.map(|(_, value)| value.clone())
    };
    assert_eq!(
        property("compatible"),
        Some(b"gearv,channel\0generic-uio\0gpio-keys\0".to_vec())
    );
    assert_eq!(property("linux,uio-name"), Some(b"in\0".to_vec()));
    assert_eq!(property("interrupts"), Some(cells(&[0, 240 - 32, 1])));
    assert_eq!(property("reg"), None);
}

#[test]
fn an_interrupt_has_no_other_source() {
    let mut case = case();
    // The clock's own interrupt, then that of a UART that nobody owns, then none of the machine's.
    let cases = [
        (34, "M-CHN-012: /channels/in: interrupt: "),
        (33, "M-CHN-012: /channels/in: interrupt: "),
        (
            300,
            "machine: /channels/in: interrupt: the interrupt controller has 288 interrupts",
        ),
    ];
    for (intid, expected) in cases {
        case.manifest = case.manifest.set(IN, "interrupt", cells(&[intid]));
        let message = case.refused();
        assert!(message.contains(expected), "{message}");
    }
}

#[test]
fn a_doorbell_is_no_device_of_its_vm() {
    let mut case = case();
    case.manifest = case
        .manifest
        .set(RT, "devices", text("/pl011@9000000"))
        .set("/vms/flat", "kind", text("device"))
        .set("/vms/flat", "devices", text("/pl031@9010000"))
        .set(OUT, "from", text("flat"))
        .set(OUT, "to", text("linux"))
        .set(OUT, "address", cells(&[0x901_0000]));
    let message = case.refused();
    let expected = "M-CHN-010: /channels/out: address: ";
    assert!(message.contains(expected), "{message}");
}

#[test]
fn an_emulated_pl061_has_its_interrupt_to_itself() {
    let mut case = case();
    case.manifest =
        case.manifest
            .set("/vms/flat", "kind", text("device"))
            .set(OUT, "interrupt", cells(&[232]));
    let message = case.refused();
    let expected = "M-CHN-012: /channels/out: interrupt: ";
    assert!(message.contains(expected), "{message}");
}
