//! The device of the board that has an interrupt, whoever owns it.
//!
//! Requirements: G1-CHN-007.

use alloc::string::String;

use gearv_manifest::blob::{Blob, Node};

use super::{cell, find, is_disabled, is_gic, phandle, shared, specifier};

/// Returns the path of an enabled device that names this shared interrupt of the GIC's. What a PCI
/// bridge passes on by `interrupt-map` is not looked at.
pub(crate) fn source_of(tree: &Blob<'_>, intid: u32) -> Option<String> {
    let root = tree.root();
    let gic = find(&root, &is_gic)?;
    source_below(&root, "", cell(&root, "interrupt-parent"), &gic, intid)
}

/// Looks at the nodes below one. `parent` is the phandle of the interrupt controller that the node
/// names, which its children have unless they name another (Devicetree Specification 0.4, 2.4.1).
fn source_below(
    node: &Node<'_>,
    path: &str,
    parent: Option<u32>,
    gic: &Node<'_>,
    intid: u32,
) -> Option<String> {
    let mut enabled = node.children().filter(|child| !is_disabled(child));
    enabled.find_map(|child| {
        let path = alloc::format!("{path}/{}", child.name());
        let parent = cell(&child, "interrupt-parent").or(parent);
        if parent == phandle(gic) && names_interrupt(&child, gic, intid) {
            return Some(path);
        }
        source_below(&child, &path, parent, gic, intid)
    })
}

/// Tells whether a node, whose interrupts go to the GIC, names this one.
fn names_interrupt(node: &Node<'_>, gic: &Node<'_>, intid: u32) -> bool {
    let cells = node.property("interrupts").and_then(|one| one.cells());
    let Some(mut cells) = cells else { return false };
    let specifiers = core::iter::from_fn(|| specifier(gic, &mut cells));
    let mut interrupts = specifiers.filter_map(|specifier| shared(&specifier));
    interrupts.any(|interrupt| interrupt.intid == intid)
}
