//! The device of the board that has an interrupt, whoever owns it.
//!
//! A node has an interrupt of the GIC's in one of three ways (Devicetree Specification 0.4, 2.4):
//! `interrupts` of a node whose interrupt parent is the GIC, `interrupts-extended`, which names the
//! controller of each interrupt, and `interrupt-map` of a nexus such as a PCI host bridge, which
//! passes on what the nodes below it raise. All three are read here, and each node alone: whatever
//! way an interrupt takes, the last node of the way names the GIC.
//!
//! A property that does not parse ends where its cells stop making sense, and is no error: the node
//! is of an owner who may be nobody, and a board with a damaged node boots without it.
//!
//! Requirements: G1-CHN-007.

use alloc::collections::BTreeMap;
use alloc::string::String;

use gearv_manifest::blob::{Blob, Node};

use super::{cell, find_gic, phandle, shared, specifier};
use crate::fdt::{is_disabled, path_below};

#[cfg(test)]
mod tests;

/// Address cells of a nexus that does not say how many it has (Devicetree Specification 0.4,
/// 2.3.5).
const ADDRESS_CELLS: u32 = 2;

/// Returns the path of an enabled device that names this shared interrupt of the GIC's.
#[must_use]
pub fn source_of(tree: &Blob<'_>, intid: u32) -> Option<String> {
    let root = tree.root();
    let gic = find_gic(&root)?;
    let mut controllers = BTreeMap::new();
    note_controllers(&root, &mut controllers);
    let search = Search {
        gic,
        controllers,
        intid,
    };
    search.below(&root, "", cell(&root, "interrupt-parent"))
}

/// Notes the nodes that a phandle leads to. One walk finds all of them, since a lookup in the tree
/// for each phandle of a long property would take a boot minutes. Of two nodes with one phandle
/// the first counts, as for every other reader of the tree.
fn note_controllers<'t>(node: &Node<'t>, controllers: &mut BTreeMap<u32, Node<'t>>) {
    if let Some(phandle) = phandle(node) {
        controllers.entry(phandle).or_insert(*node);
    }
    // The blob's reader has bounded how deep nodes nest.
    for child in node.children() {
        note_controllers(&child, controllers);
    }
}

/// A search for the source of an interrupt.
struct Search<'t> {
    /// Node of the GIC.
    gic: Node<'t>,
    /// Nodes by phandle.
    controllers: BTreeMap<u32, Node<'t>>,
    /// The interrupt's INTID.
    intid: u32,
}

impl<'t> Search<'t> {
    /// Looks at the nodes below one. `parent` is the phandle of the interrupt controller that the
    /// node names, which its children have unless they name another, or the node is a controller
    /// itself (Devicetree Specification 0.4, 2.4.1).
    fn below(&self, node: &Node<'t>, path: &str, parent: Option<u32>) -> Option<String> {
        let is_controller = node.property("#interrupt-cells").is_some();
        let parent = if is_controller { phandle(node) } else { parent };
        let mut enabled = node.children().filter(|child| !is_disabled(child));
        enabled.find_map(|child| {
            let path = path_below(path, child.name());
            let parent = cell(&child, "interrupt-parent").or(parent);
            if self.has(&child, parent) {
                return Some(path);
            }
            self.below(&child, &path, parent)
        })
    }

    /// Tells whether a node has the interrupt. A node with both properties has the interrupts of
    /// `interrupts-extended` only (Devicetree Specification 0.4, 2.4.1.3).
    fn has(&self, node: &Node<'t>, parent: Option<u32>) -> bool {
        let cells = |name| node.property(name).and_then(|one| one.cells());
        let own = match cells("interrupts-extended") {
            Some(extended) => self.extended_has(extended),
            None => {
                let is_at_gic = parent == phandle(&self.gic);
                is_at_gic && cells("interrupts").is_some_and(|plain| self.plain_has(plain))
            }
        };
        // planted: a doorbell has an interrupt that a bridge passes on
        own || cells("interrupt-map").is_some_and(|map| self.map_has(node, map).unwrap_or(false))
    }

    /// Tells whether specifiers of the GIC's name the interrupt.
    fn plain_has(&self, mut cells: impl Iterator<Item = u32>) -> bool {
        let mut specifiers = core::iter::from_fn(|| specifier(&self.gic, &mut cells));
        specifiers.any(|specifier| self.is_wanted(&self.gic, &specifier))
    }

    /// Tells whether pairs of a phandle and a specifier name the interrupt. Phandle 0 stands for an
    /// interrupt that the device does not have, and has no specifier.
    fn extended_has(&self, mut cells: impl Iterator<Item = u32>) -> bool {
        let mut specifiers = core::iter::from_fn(|| {
            let named = cells.by_ref().find(|phandle| *phandle != 0)?;
            let controller = self.controllers.get(&named)?;
            Some((controller, specifier(controller, &mut cells)?))
        });
        specifiers.any(|(controller, specifier)| self.is_wanted(controller, &specifier))
    }

    /// Tells whether a row of a nexus's `interrupt-map` leads to the interrupt; `None`: the rows
    /// end before one does. A row is the address and the specifier of a child, the phandle of a
    /// controller, and an address and a specifier there (Devicetree Specification 0.4, 2.4.3.1).
    /// A controller without `#address-cells` has no address in the row.
    fn map_has(&self, nexus: &Node<'t>, mut cells: impl Iterator<Item = u32>) -> Option<bool> {
        let address = cell(nexus, "#address-cells").unwrap_or(ADDRESS_CELLS);
        let interrupt = cell(nexus, "#interrupt-cells")?;
        loop {
            skip(&mut cells, address)?;
            skip(&mut cells, interrupt)?;
            // Each turn takes this cell at least, so the loop ends with the property.
            let controller = self.controllers.get(&cells.next()?)?;
            skip(&mut cells, cell(controller, "#address-cells").unwrap_or(0))?;
            let specifier = specifier(controller, &mut cells)?;
            if self.is_wanted(controller, &specifier) {
                return Some(true);
            }
        }
    }

    /// Tells whether a specifier of this controller's is the interrupt.
    fn is_wanted(&self, controller: &Node<'t>, specifier: &[u32]) -> bool {
        let is_gic = phandle(controller) == phandle(&self.gic);
        is_gic && shared(specifier).is_some_and(|interrupt| interrupt.intid == self.intid)
    }
}

/// Passes over cells; `None`: there are fewer. The count comes from the tree, and may be any.
fn skip(cells: &mut impl Iterator<Item = u32>, count: u32) -> Option<()> {
    (0..count).try_for_each(|_| cells.next().map(|_| ()))
}
