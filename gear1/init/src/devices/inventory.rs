//! All devices of a board: what may be given away, and what then reaches memory by itself.
//!
//! Only hosts have this (feature `host`): xtask on the developer's machine reads a board's tree as
//! a boot does, to warn of what masters the bus and to show who gets which device.
//!
//! Requirements: G1-BOOT-005.
#![cfg(feature = "host")]

use alloc::string::String;
use alloc::vec::Vec;

use gearv_manifest::Manifest;
use gearv_manifest::blob::{Blob, Node, Texts};

use super::masters::{is_translated, stop_of};
use super::{
    GIC_PARTS, NOT_DEVICES, cell, find, find_gic, is_driven, is_gic, pci, phandle, shared,
};
use crate::fdt::bus::Bus;
use crate::fdt::{Names, is_disabled, path_below};
use crate::refusal::Refusal;
use crate::region::Region;

/// Properties that mark the node of a bus master (Devicetree Specification 0.4, 2.3.10; the
/// kernel's `dma` and `iommu` bindings).
const DMA: &[&str] = &["dma-coherent", "dma-noncoherent", "iommus", "dmas"];

/// A device with registers that the CPU reaches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// Path of the node.
    pub path: String,
    /// Register ranges.
    pub registers: Vec<Region>,
    /// Shared interrupts at the GIC, as far as the node names them by plain specifiers.
    pub intids: Vec<u32>,
    /// Whether the device is the interrupt controller or a part of it.
    pub is_gic: bool,
}

/// Returns the enabled devices of the board that `tree` describes, in the tree's order.
pub fn inventory(tree: &Blob<'_>) -> Result<Vec<Device>, Refusal> {
    let root = tree.root();
    let mut list = Vec::new();
    let gic = find_gic(&root);
    let parent = cell(&root, "interrupt-parent");
    let bus = Bus::root(&root)?;
    add_devices(&root, "", &bus, (gic.as_ref(), parent), &mut list)?;
    Ok(list)
}

/// Tells whether a node below `path` is an enabled device, or has devices below.
fn is_device(node: &Node<'_>, path: &str) -> bool {
    let other = path.is_empty() && NOT_DEVICES.contains(&node.name());
    let kind = node.property("device_type").and_then(|kind| kind.text());
    !other && !is_disabled(node) && !matches!(kind, Some("cpu" | "memory"))
}

/// Adds the devices below a node. `gic` is the interrupt controller, and `parent` the phandle of
/// the controller that the nodes' interrupts go to.
fn add_devices<'t>(
    node: &Node<'t>,
    path: &str,
    bus: &Bus<'_, 't>,
    (gic, parent): (Option<&Node<'t>>, Option<u32>),
    list: &mut Vec<Device>,
) -> Result<(), Refusal> {
    for child in node.children().filter(|child| is_device(child, path)) {
        let path = path_below(path, child.name());
        let parent = cell(&child, "interrupt-parent").or(parent);
        if child.property("reg").is_some() {
            let at_gic = gic.is_some_and(|gic| phandle(gic) == parent && parent.is_some());
            list.push(device(&child, &path, bus, at_gic)?);
        }
        if let Some(ranges) = child.property("ranges") {
            let below = bus.below(&child, ranges, &path)?;
            add_devices(&child, &path, &below, (gic, parent), list)?;
        }
    }
    Ok(())
}

/// Returns a device with registers. `at_gic`: its interrupts go to the GIC.
fn device(node: &Node<'_>, path: &str, bus: &Bus<'_, '_>, at_gic: bool) -> Result<Device, Refusal> {
    Ok(Device {
        registers: bus.regions(node, path)?,
        intids: if at_gic { intids(node) } else { Vec::new() },
        is_gic: is_gic(node) || node.is_compatible(&GIC_PARTS),
        path: path.into(),
    })
}

/// Returns a node's shared interrupts, three cells each. Private ones are left out: no VM can own
/// them.
fn intids(node: &Node<'_>) -> Vec<u32> {
    let cells = node
        .property("interrupts")
        .and_then(|property| property.cells());
    let cells: Vec<u32> = cells.into_iter().flatten().collect();
    let interrupts = cells.chunks(3).filter_map(shared);
    interrupts.map(|interrupt| interrupt.intid).collect()
}

/// Returns the paths of the enabled devices that master the bus and reach all memory: those that
/// can be stopped, those whose nodes tell of DMA, and PCI host bridges. Devices behind the SMMU
/// that Gear1 drives are not among them.
#[must_use]
pub fn bus_masters(manifest: &Manifest<'_>, tree: &Blob<'_>) -> Vec<String> {
    let (root, mut list) = (tree.root(), Vec::new());
    let version = gic_version(find_gic(&root).as_ref());
    let is_smmu = |node: &Node<'_>| is_driven(node, version) && !is_disabled(node);
    let smmu = Names::of_one(find(&root, &is_smmu).and_then(|smmu| phandle(&smmu)));
    add_masters(manifest, (&root, ""), (&root, &smmu), &mut list);
    list
}

/// Returns the version of a board's interrupt controller, of which nothing but the node is known.
fn gic_version(gic: Option<&Node<'_>>) -> u32 {
    match gic.is_some_and(|gic| gic.is_compatible(&const { Texts::new(&["arm,gic-v3"]) })) {
        true => 3,
        false => 2,
    }
}

/// Adds the bus masters below a node, a node's children before itself.
/// `smmu`: its names, in the tree below the root.
fn add_masters(
    manifest: &Manifest<'_>,
    (node, path): (&Node<'_>, &str),
    (root, smmu): (&Node<'_>, &Names),
    list: &mut Vec<String>,
) {
    for child in node.children().filter(|child| !is_disabled(child)) {
        let path = path_below(path, child.name());
        let tells = DMA.iter().any(|name| child.property(name).is_some());
        add_masters(manifest, (&child, &path), (root, smmu), list);
        let masters = stop_of(manifest, &child).is_some() || tells || pci::is_bridge(&child);
        let is_smmu = phandle(&child).is_some_and(|own| smmu.stream(own, 0, 1).is_some());
        if masters && !is_smmu && !is_translated(&child, root, smmu) {
            list.push(path);
        }
    }
}
