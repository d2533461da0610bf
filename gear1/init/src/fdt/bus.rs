//! Addresses in a device tree: `reg`, `ranges` and the cells that they are written with.
//!
//! A device's `reg` is an address of the bus that the device is on. Each bus above translates the
//! address by its `ranges`, up to the CPU's (Devicetree Specification 0.4, 2.3.8). A bus borrows
//! the bus above, as the walk over the tree goes down.
//!
//! Requirements: G1-BOOT-001.

use alloc::vec::Vec;
use core::ops::Range;

use gearv_manifest::blob::{Node, Property};

use crate::refusal::{Refusal, refusal};
use crate::region::Region;

/// A window of a PCI host bridge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PciWindow {
    /// Bits 25:24 of the first cell: which space of the bus it leads to.
    pub(crate) space: u32,
    /// The first address there.
    pub(crate) pci: u64,
    /// Where the CPU sees the window (PA).
    pub(crate) region: Region,
}

impl PciWindow {
    /// Numbers of the memory spaces of 32 and of 64 bits.
    pub(crate) const MEMORY: [u32; 2] = [2, 3];
}

/// Address format of a bus, and its translation to the CPU's addresses.
pub(crate) struct Bus<'b, 'a> {
    address_cells: u32,
    size_cells: u32,
    /// `ranges` of the bus's node, and the bus above; `None` for the root, where addresses are the
    /// CPU's.
    ranges: Option<(Property<'a>, &'b Bus<'b, 'a>)>,
}

impl<'b, 'a> Bus<'b, 'a> {
    /// Returns the bus of the tree's root, `node`.
    pub(crate) fn root(node: &Node<'a>) -> Result<Self, Refusal> {
        let (address_cells, size_cells) = cell_counts(node, "/")?;
        Ok(Self {
            address_cells,
            size_cells,
            ranges: None,
        })
    }

    /// Returns the bus below `node`, whose `ranges` these are.
    pub(crate) fn below(
        &'b self,
        node: &Node<'a>,
        ranges: Property<'a>,
        path: &str,
    ) -> Result<Self, Refusal> {
        let (address_cells, size_cells) = cell_counts(node, path)?;
        Ok(Self {
            address_cells,
            size_cells,
            ranges: Some((ranges, self)),
        })
    }

    /// Returns the CPU's address for `address` on this bus; `None` if no entry of `ranges` covers
    /// it. Empty `ranges` stand for the same addresses above.
    fn translate(&self, address: u64) -> Option<u64> {
        let Some((ranges, parent)) = self.ranges else {
            return Some(address);
        };
        if ranges.value.is_empty() {
            return parent.translate(address);
        }
        let mut cells = ranges.cells()?;
        loop {
            let start = number(&mut cells, self.address_cells)?;
            let target = number(&mut cells, parent.address_cells)?;
            let size = number(&mut cells, self.size_cells)?;
            if let Some(offset) = address.checked_sub(start).filter(|offset| *offset < size) {
                return parent.translate(target.checked_add(offset)?);
            }
        }
    }

    /// Returns the regions that the node's `reg` names, as the CPU sees them. A region that wraps
    /// around, or that a bus above does not translate, is refused with the node.
    pub(crate) fn regions(&self, node: &Node<'_>, path: &str) -> Result<Vec<Region>, Refusal> {
        let wrong = || {
            refusal!(
                Board,
                "{path}: reg: missing, or not whole addresses and sizes"
            )
        };
        let mut cells = node
            .property("reg")
            .and_then(|reg| reg.cells())
            .ok_or_else(wrong)?;
        let mut regions = Vec::new();
        while cells.len() != 0 {
            regions.push(self.region(&mut cells).ok_or_else(wrong)?);
        }
        Ok(regions)
    }

    /// Returns the windows of a PCI host bridge on this bus: `ranges` has for each the type and the
    /// PCI address in three cells, the address here, and the size in two cells (the PCI bus binding
    /// to Open Firmware). `None`: no whole windows, or one that no bus above translates.
    pub(crate) fn pci_windows(&self, ranges: Property<'_>) -> Option<Vec<PciWindow>> {
        let mut cells = ranges.cells()?;
        let mut windows = Vec::new();
        while cells.len() != 0 {
            let space = cells.next()? >> 24 & 3;
            let pci = number(&mut cells, 2)?;
            let start = self.translate(number(&mut cells, self.address_cells)?)?;
            let size = number(&mut cells, 2)?;
            pci.checked_add(size)?;
            windows.push(PciWindow {
                space,
                pci,
                region: Region::new(start, start.checked_add(size)?),
            });
        }
        Some(windows)
    }

    /// Reads one region of a `reg`, and returns where the CPU sees it; `None`: the cells end within
    /// the region, no bus above translates it, or it wraps around.
    fn region(&self, cells: &mut impl Iterator<Item = u32>) -> Option<Region> {
        let address = number(cells, self.address_cells)?;
        let size = number(cells, self.size_cells)?;
        let start = self.translate(address)?;
        Some(Region::new(start, start.checked_add(size)?))
    }
}

/// Returns `#address-cells` and `#size-cells` of a node: how the nodes below write addresses and
/// sizes. Without them 2 and 1 count (Devicetree Specification 0.4, 2.3.5).
pub(crate) fn cell_counts(node: &Node<'_>, path: &str) -> Result<(u32, u32), Refusal> {
    let count = |name: &str, default: u32, allowed: Range<u32>| {
        let value = node
            .property(name)
            .map_or(Some(default), |property| property.cells()?.next());
        value
            .filter(|value| allowed.contains(value))
            .ok_or_else(|| refusal!(Board, "{path}: {name}: not a number that is supported"))
    };
    // PCI nodes have three address cells; nothing below them is of interest, but it is visited.
    Ok((
        count("#address-cells", 2, 0..4)?,
        count("#size-cells", 1, 0..3)?,
    ))
}

/// Takes a number of `count` cells, the most significant first; `None` if there are fewer, or if it
/// has more than 64 bits.
pub(crate) fn number(cells: &mut impl Iterator<Item = u32>, count: u32) -> Option<u64> {
    (0..count).try_fold(0_u64, |value, _| {
        let high = value.checked_mul(1 << 32)?;
        Some(high | u64::from(cells.next()?))
    })
}
