//! StreamIDs of devices behind an SMMU (Linux's bindings `iommus` and `iommu-map`).
//!
//! Requirements: G1-DMA-001.

use alloc::vec::Vec;

use gearv_manifest::blob::Node;

use super::{cell, find, phandle};
use crate::fdt::Names;
use crate::refusal::{Refusal, refusal};

/// Consecutive StreamIDs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Streams {
    /// First StreamID.
    pub first: u32,
    /// Number of StreamIDs.
    pub count: u32,
}

impl Streams {
    /// Returns the first StreamID behind the range, which is whole.
    #[must_use]
    pub const fn end(&self) -> u64 {
        self.first as u64 + self.count as u64
    }

    /// Tells whether a StreamID is in both ranges.
    #[must_use]
    pub const fn overlaps(&self, other: &Self) -> bool {
        (self.first as u64) < other.end() && (other.first as u64) < self.end()
    }

    /// Returns the SMMU's own numbers of streams that a node names by this phandle; `None`: they
    /// are not the SMMU's.
    pub(super) fn of(&self, smmu: &Names, phandle: u32) -> Option<Self> {
        let first = smmu.stream(phandle, self.first, self.count)?;
        Some(Self { first, ..*self })
    }
}

/// A row of `iommu-map`: the first requester ID of the bridge, the phandle of its SMMU, and the
/// streams that it and those behind it have.
pub(super) type Row = (u32, u32, Streams);

/// Most StreamIDs of a row: as many functions as a PCI segment has.
const MAX_COUNT: u32 = 0x1_0000;

/// Returns the streams of a device or a PCI host bridge in the tree below `root`, with the phandle
/// of the SMMU of each.
pub(super) fn of(
    node: &Node<'_>,
    path: &str,
    root: &Node<'_>,
) -> Result<Vec<(u32, Streams)>, Refusal> {
    let mut list = own(node, root).ok_or_else(|| {
        refusal!(
            Board,
            "{path}: iommus: not whole pairs of an IOMMU and what it names a stream by"
        )
    })?;
    let rows = rows(node).ok_or_else(|| {
        refusal!(
            Board,
            "{path}: iommu-map: not whole rows of 1 to {MAX_COUNT} StreamIDs"
        )
    })?;
    list.extend(rows.iter().map(|(_, smmu, streams)| (*smmu, *streams)));
    Ok(list)
}

/// Returns the streams of a device itself. Each IOMMU says by how many cells it names a stream; the
/// first is the StreamID, where the IOMMU is an SMMU, or the number of a micro-TLB.
pub(super) fn own(node: &Node<'_>, root: &Node<'_>) -> Option<Vec<(u32, Streams)>> {
    let mut list = Vec::new();
    let Some(property) = node.property("iommus") else {
        return Some(list);
    };
    let mut cells = property.cells()?;
    while let Some(smmu) = cells.next() {
        let iommu = find(root, &|node| phandle(node) == Some(smmu))?;
        let named_by = cell(&iommu, "#iommu-cells")?;
        let mut name = Vec::new();
        for _ in 0..named_by {
            name.push(cells.next()?);
        }
        let streams = name.first().map(|first| Streams {
            first: *first,
            count: 1,
        });
        list.extend(streams.map(|streams| (smmu, streams)));
    }
    Some(list)
}

/// Returns the stream of a PCI function behind a bridge, with the phandle of its SMMU; `None`: it
/// has none, or the bridge's rows cannot be read.
pub(super) fn of_requester(bridge: &Node<'_>, requester: u32) -> Option<(u32, Streams)> {
    let rows = rows(bridge)?;
    let found = rows.into_iter().find_map(|(first, smmu, streams)| {
        let offset = requester.checked_sub(first)?;
        (offset < streams.count).then_some((smmu, streams.first + offset))
    });
    found.map(|(smmu, first)| (smmu, Streams { first, count: 1 }))
}

/// Returns the rows of a PCI host bridge's `iommu-map`. One that maps requester IDs which
/// `iommu-map-mask` has folded before is none that counts IDs.
pub(super) fn rows(node: &Node<'_>) -> Option<Vec<Row>> {
    let mut list = Vec::new();
    let Some(property) = node.property("iommu-map") else {
        return Some(list);
    };
    if node.property("iommu-map-mask").is_some() {
        return None;
    }
    let mut cells = property.cells()?;
    while let Some(requester) = cells.next() {
        let (smmu, first, count) = (cells.next()?, cells.next()?, cells.next()?);
        if !(1..=MAX_COUNT).contains(&count) || first.checked_add(count).is_none() {
            return None;
        }
        list.push((requester, smmu, Streams { first, count }));
    }
    Some(list)
}
