//! Tests of the ways in which a node has an interrupt of the GIC's, and of properties that lie.
//!
//! Requirements: G1-CHN-007.

use alloc::string::String;
use alloc::vec::Vec;

use gearv_manifest::blob::Blob;

use super::source_of;
use crate::testing::{VIRT_GICV2, VIRT_GICV3, tree};
use crate::trees::{Tree, cells, text};

/// A free interrupt of the machine, and its number in a specifier.
const INTID: u32 = 250;
const SPI: u32 = INTID - 32;
/// A phandle that the machine has not, and one that no node has.
const OTHER: u32 = 0x7777;
const NOBODY: u32 = 0x7778;
const NODE: &str = "/new@b000000";

fn found(board: &Tree, intid: u32) -> Option<String> {
    let bytes = board.flatten();
    source_of(&Blob::new(bytes.as_slice()).unwrap(), intid)
}

/// Returns the machine with a node that has this property, and the phandle of its GIC.
fn with(property: &str, value: impl Fn(u32) -> Vec<u32>) -> Tree {
    let virt = tree(VIRT_GICV3);
    let parent = virt
        .properties
        .iter()
        .find(|(name, _)| name == "interrupt-parent");
    let gic = u32::from_be_bytes(parent.unwrap().1[..].try_into().unwrap());
    virt.set(NODE, property, cells(&value(gic)))
        .set("/other@c000000", "phandle", cells(&[OTHER]))
        .set("/other@c000000", "#interrupt-cells", cells(&[1]))
}

/// QEMU's PCI host bridge has SPIs 3 to 6. The GICv3 has address cells, for its ITS; the GICv2 of
/// QEMU has them for its MSI frame.
#[test]
fn a_pci_host_bridge_has_the_interrupts_that_it_passes_on() {
    for machine in [VIRT_GICV2, VIRT_GICV3] {
        for intid in 35..=38 {
            let pcie = found(&tree(machine), intid);
            assert_eq!(pcie.as_deref(), Some("/pcie@10000000"), "{intid}");
        }
        assert_eq!(found(&tree(machine), INTID), None);
        let off = tree(machine).set("/pcie@10000000", "status", text("disabled"));
        assert_eq!(found(&off, 35), None);
    }
}

#[test]
fn each_interrupt_names_its_controller() {
    let node = Some(NODE);
    let extended = |value: &dyn Fn(u32) -> Vec<u32>| with("interrupts-extended", value);
    let found = |board: &Tree| found(board, INTID);
    assert_eq!(
        found(&extended(&|gic| [gic, 0, SPI, 4].into())).as_deref(),
        node
    );
    // Behind an interrupt of another controller, and behind one that the device does not have.
    let behind = |gic| [OTHER, SPI, 0, gic, 0, SPI, 4].into();
    assert_eq!(found(&extended(&behind)).as_deref(), node);
    // The other controller's interrupt of that number is another one.
    assert_eq!(found(&extended(&|_| [OTHER, SPI].into())), None);
    // Private interrupts have numbers of their own.
    assert_eq!(found(&extended(&|gic| [gic, 1, SPI, 4].into())), None);
    // `interrupts` does not count beside `interrupts-extended`.
    let both = extended(&|_| [OTHER, 1].into()).set(NODE, "interrupts", cells(&[0, SPI, 4]));
    assert_eq!(found(&both), None);
    assert_eq!(
        found(&with("interrupts", |_| [0, SPI, 4].into())).as_deref(),
        node
    );
}

#[test]
fn a_child_of_a_controller_has_its_interrupts_there() {
    let below = with("reg", |_| Vec::new());
    let below = below.set("/other@c000000/key@0", "interrupts", cells(&[0, SPI, 4]));
    assert_eq!(found(&below, INTID), None);
    // Unless it names another one.
    let own = cell(&below, "interrupt-parent");
    let named = below.set("/other@c000000/key@0", "interrupt-parent", own);
    assert_eq!(
        found(&named, INTID).as_deref(),
        Some("/other@c000000/key@0")
    );
}

fn cell(tree: &Tree, name: &str) -> Vec<u8> {
    let mut properties = tree.properties.iter();
    properties
        .find(|(known, _)| known == name)
        .unwrap()
        .1
        .clone()
}

/// Returns a nexus whose second row leads to the interrupt, with the first one's controller.
fn nexus(first: u32) -> Tree {
    // The GICv3 of the machine has two address cells.
    let rows = |gic| [0, 1, first, 9, 0, 2, gic, 0, 0, 0, SPI, 4].into();
    with("interrupt-map", rows)
        .set(NODE, "#address-cells", cells(&[1]))
        .set(NODE, "#interrupt-cells", cells(&[1]))
}

#[test]
fn a_nexus_is_read_row_by_row() {
    assert_eq!(found(&nexus(OTHER), INTID).as_deref(), Some(NODE));
    // A row that leads nowhere has an unknown length.
    assert_eq!(found(&nexus(NOBODY), INTID), None);
    // Without its own cells the rows cannot be told apart.
    assert_eq!(
        found(&nexus(OTHER).unset(NODE, "#interrupt-cells"), INTID),
        None
    );
}

/// No length of a property, and no number in one or in a controller's, panics or takes for ever.
#[test]
fn properties_that_lie_end_the_search_of_their_node() {
    let odd = [0, 1, OTHER, NOBODY, 0x8000_0000, u32::MAX];
    let spoiled = |board: Tree, node: &str, property: &str| {
        for value in odd {
            found(&board.clone().set(node, property, cells(&[value])), INTID);
        }
    };
    for count in ["#address-cells", "#interrupt-cells"] {
        spoiled(nexus(OTHER), NODE, count);
        spoiled(nexus(OTHER), "/other@c000000", count);
        spoiled(nexus(OTHER), "/intc@8000000", count);
    }
    for property in ["interrupt-map", "interrupts-extended", "interrupts"] {
        for length in 0..14 {
            for value in odd {
                let spoiled = nexus(OTHER).set(NODE, property, cells(&[value; 14][..length]));
                found(&spoiled, INTID);
            }
        }
        found(&nexus(OTHER).set(NODE, property, [1, 2, 3].into()), INTID);
    }
    // A node with a good property behind a bad one's node is found.
    let bad = nexus(NOBODY).set("/z@d000000", "interrupts", cells(&[0, SPI, 4]));
    assert_eq!(found(&bad, INTID).as_deref(), Some("/z@d000000"));
}
