//! A guest's device tree: init writes facts of this boot over cells of fixed size.
//!
//! xtask makes the tree with the manifest's facts. `patch` adds addresses and seeds, and removes
//! nodes that this boot lacks: the other interrupt controller, and an initial RAM disk. Software
//! finds a node by `compatible` alone and a RAM disk by the presence of its properties, so neither
//! may stay there with zeroes. Invariant: the tree keeps its size; removed tokens become `FDT_NOP`.
//!
//! Requirements: G1-BOOT-007.

use alloc::vec::Vec;
use core::ops::Range;

use gear1_core::seed::SEED_SIZE;
use gearv_manifest::blob::{Blob, FDT_NOP, Node, Property};

use crate::refusal::{Refusal, refusal};
use crate::region::Region;

#[cfg(test)]
mod tests;

/// Bytes of `rng-seed`; `kaslr-seed` has the rest.
pub(crate) const RNG_SEED_SIZE: usize = 32;

/// Facts about a guest that init has established. Addresses are the guest's (IPA).
#[derive(Clone, Debug)]
pub struct GuestFacts {
    /// Memory.
    pub memory: Region,
    /// Initial RAM disk; empty if there is none.
    pub initrd: Region,
    /// `rng-seed`, then `kaslr-seed`.
    pub seed: [u8; SEED_SIZE],
    /// Version of the guest's interrupt controller.
    pub gic_version: u32,
    /// Two register regions of the guest's interrupt controller.
    pub gic: [Region; 2],
}

/// Returns a copy of the tree in `template`, finished with `facts`. `file` is its name.
pub fn patch(template: &[u8], file: &str, facts: &GuestFacts) -> Result<Vec<u8>, Refusal> {
    let blob = Blob::new(template).map_err(|error| refusal!(Archive, "{file}: {error}"))?;
    let root = blob.root();
    let mut patches = Patches {
        file,
        list: Vec::new(),
    };
    patches.chosen(&root, facts)?;
    patches.memory(&root, facts)?;
    patches.interrupt_controller(&root, facts)?;
    Ok(patches.apply(blob.bytes()))
}

/// Tells whether the template has this node for one of the interrupt controllers.
fn is_gic(node: &Node<'_>) -> bool {
    node.name().starts_with("interrupt-controller-v")
}

/// Changes of a template, to be made all at once.
struct Patches<'f> {
    /// Name of the template, for messages.
    file: &'f str,
    /// Offsets in the template, and the bytes that replace what is there.
    list: Vec<(usize, Vec<u8>)>,
}

impl Patches<'_> {
    /// Writes where the initial RAM disk is, and the seeds.
    fn chosen(&mut self, root: &Node<'_>, facts: &GuestFacts) -> Result<(), Refusal> {
        let chosen = self.child(root, "chosen")?;
        let Region { start, end } = facts.initrd;
        for (name, address) in [("linux,initrd-start", start), ("linux,initrd-end", end)] {
            // planted: a guest without an initial RAM disk is told of one at 0
            if facts.initrd.bytes() == 0 {
                self.remove(self.property(&chosen, name)?.tokens());
            } else {
                self.add(&chosen, name, address.to_be_bytes().to_vec())?;
            }
        }
        let (rng, kaslr) = facts.seed.split_at(RNG_SEED_SIZE);
        self.add(&chosen, "rng-seed", rng.to_vec())?;
        self.add(&chosen, "kaslr-seed", kaslr.to_vec())
    }

    /// Writes where the VM's memory is.
    fn memory(&mut self, root: &Node<'_>, facts: &GuestFacts) -> Result<(), Refusal> {
        let is_memory = |node: &Node<'_>| {
            let kind = node.property("device_type");
            kind.and_then(|property| property.text()) == Some("memory")
        };
        let memory = root.children().find(is_memory);
        let file = self.file;
        let memory = memory.ok_or_else(|| refusal!(Archive, "{file}: /: no memory node"))?;
        // planted: a guest is not told where its memory is
        self.add(&memory, "reg", reg(&[facts.memory]))
    }

    /// Leaves the node of the machine's own interrupt controller, and makes it the parent of all
    /// interrupts.
    fn interrupt_controller(&mut self, root: &Node<'_>, facts: &GuestFacts) -> Result<(), Refusal> {
        let own = alloc::format!("interrupt-controller-v{}", facts.gic_version);
        let is_other = |node: &Node<'_>| is_gic(node) && node.name() != own;
        for other in root.children().filter(is_other) {
            // planted: a guest finds the interrupt controller that the machine has not
            self.remove(other.tokens());
        }
        let gic = self.child(root, &own)?;
        self.add(&gic, "reg", reg(&facts.gic))?;
        let phandle = self.property(&gic, "phandle")?.value.to_vec();
        self.add(root, "interrupt-parent", phandle)
    }

    /// Returns the tree with all patches. Patches keep the size of what they replace, so their
    /// order does not matter.
    fn apply(self, template: &[u8]) -> Vec<u8> {
        let mut tree = template.to_vec();
        for (offset, bytes) in self.list {
            // The blob's reader gave the offsets: they lie inside.
            if let Some(place) = tree.get_mut(offset..offset + bytes.len()) {
                place.copy_from_slice(&bytes);
            }
        }
        tree
    }

    /// Returns a node of the root that every template has.
    fn child<'a>(&self, node: &Node<'a>, name: &str) -> Result<Node<'a>, Refusal> {
        let child = node.child(name);
        child.ok_or_else(|| refusal!(Archive, "{}: /: no node \"{name}\"", self.file))
    }

    /// Returns a property that the template has room for.
    fn property<'a>(&self, node: &Node<'a>, name: &str) -> Result<Property<'a>, Refusal> {
        let property = node.property(name);
        property
            .ok_or_else(|| refusal!(Archive, "{}: /{}: {name}: missing", self.file, node.name()))
    }

    /// Replaces a property's value by another of its size.
    fn add(&mut self, node: &Node<'_>, name: &str, bytes: Vec<u8>) -> Result<(), Refusal> {
        let property = self.property(node, name)?;
        if property.value.len() != bytes.len() {
            let (file, node, size) = (self.file, node.name(), bytes.len());
            return Err(refusal!(
                Archive,
                "{file}: /{node}: {name}: not {size} bytes"
            ));
        }
        self.list.push((property.offset, bytes));
        Ok(())
    }

    /// Takes tokens out of the tree.
    fn remove(&mut self, tokens: Range<usize>) {
        let nops = tokens.clone().step_by(size_of::<u32>());
        let nops = nops.flat_map(|_| FDT_NOP.to_be_bytes());
        self.list.push((tokens.start, nops.collect()));
    }
}

/// Returns a `reg` of two cells for each address and size, as xtask's templates have.
fn reg(regions: &[Region]) -> Vec<u8> {
    let words = regions
        .iter()
        .flat_map(|region| [region.start, region.bytes()]);
    words.flat_map(u64::to_be_bytes).collect()
}
