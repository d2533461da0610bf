//! PCI host bridges: windows onto configuration space, memory and I/O, and interrupts.
//!
//! A generic host bridge (Linux's binding `pci-host-ecam-generic`) has no registers beside
//! configuration space, so a VM may own all of it. Functions interrupt by INTx: `interrupt-map`
//! leads each line to a shared interrupt of the GIC. Messages (MSI) write to the interrupt
//! controller, which is no VM's, and abort.
//!
//! Requirements: G1-BOOT-005, G1-DMA-001.

use alloc::vec::Vec;

use gear1_core::pci::BUS_SIZE;
use gearv_manifest::blob::{Node, Texts};

use super::{Interrupt, Walk, cell, phandle, shared, specifier};
use crate::fdt::bus::{Bus, PciWindow};
use crate::fdt::is_of_type;
use crate::refusal::{Refusal, refusal};
use crate::region::Region;

/// Compatible string of the bridge that a VM may own.
pub(super) const GENERIC: Texts = Texts::new(&["pci-host-ecam-generic"]);
/// The last bus that there can be.
const LAST_BUS: u32 = 0xff;
/// Lines of a function: INTA to INTD (PCI Local Bus Specification 3.0, 2.2.6).
pub(super) const LINES: usize = 4;
/// Cells of a PCI address and of a PCI interrupt in a row of `interrupt-map`.
const CHILD_CELLS: usize = 4;

/// Tells whether the node is a PCI host bridge.
pub(super) fn is_bridge(node: &Node<'_>) -> bool {
    is_of_type(node, "pci")
}

/// Returns the first and the last of a bridge's buses, `None` if the node does not tell.
pub(super) fn buses(node: &Node<'_>) -> Option<(u32, u32)> {
    let buses: Vec<u32> = node.property("bus-range")?.cells()?.collect();
    match buses[..] {
        [first, last] if first <= last && last <= LAST_BUS => Some((first, last)),
        _ => None,
    }
}

/// Returns configuration space and the windows. Of configuration space, which begins with the first
/// bus, there is no more than the bridge's buses have: a function takes its bus number from an
/// access to its configuration space (PCI Express Base Specification, 2.2.6.2), and by a number of
/// another bridge's buses it would have a stream that another VM may own.
pub(super) fn regions(
    node: &Node<'_>,
    path: &str,
    bus: &Bus<'_, '_>,
) -> Result<Vec<Region>, Refusal> {
    let mut regions = bus.regions(node, path)?;
    let (first, last) = buses(node).unwrap_or((0, LAST_BUS));
    if let Some(space) = regions.first_mut() {
        let size = u64::from(last - first + 1) * BUS_SIZE;
        // planted: a VM has configuration space beyond its buses
        space.end = space.end.min(space.start.saturating_add(size));
    }
    let windows = windows(node, path, bus)?;
    regions.extend(windows.iter().map(|window| window.region));
    Ok(regions)
}

/// Returns the windows of a bridge.
pub(super) fn windows(
    node: &Node<'_>,
    path: &str,
    bus: &Bus<'_, '_>,
) -> Result<Vec<PciWindow>, Refusal> {
    let Some(ranges) = node.property("ranges") else {
        return Ok(Vec::new());
    };
    let windows = bus.pci_windows(ranges);
    windows.ok_or_else(|| refusal!(Board, "{path}: ranges: no whole windows"))
}

/// Line of a function below a bridge, as a row of `interrupt-map` names it: the three cells of the
/// function's address, and the line's number.
#[derive(Clone, Copy)]
pub(super) struct Line([u32; CHILD_CELLS]);

impl Line {
    /// Returns a line, 1 for INTA, of the function with a requester ID.
    pub(super) const fn new(requester: u32, pin: u32) -> Self {
        Self([requester << 8, 0, 0, pin])
    }

    /// Tells whether the two are the same where the mask has bits.
    fn is(&self, other: &Self, mask: &Self) -> bool {
        let mut cells = self.0.iter().zip(other.0).zip(mask.0);
        cells.all(|((own, other), mask)| own & mask == other & mask)
    }
}

impl Walk<'_, '_, '_> {
    /// Returns the shared interrupts that the lines of a bridge lead to. The rows of
    /// `interrupt-map` are a function's address and line, the phandle of a controller, and an
    /// address and a specifier there (Devicetree Specification 0.4, 2.4.3.1). Rows of other owners'
    /// bridges end where they cannot be read.
    pub(super) fn bridge_interrupts(
        &self,
        node: &Node<'_>,
        path: &str,
    ) -> Result<Vec<Interrupt>, Refusal> {
        let map = node.property("interrupt-map");
        let Some(mut cells) = map.and_then(|map| map.cells()) else {
            return Ok(Vec::new());
        };
        let mut list: Vec<Interrupt> = Vec::new();
        while cells.len() != 0 {
            let row = self.row(&mut cells);
            let (_, interrupt) = row.ok_or_else(|| {
                refusal!(
                    Board,
                    "{path}: interrupt-map: not whole rows that lead to shared interrupts of the \
                     GIC"
                )
            })?;
            if !list.contains(&interrupt) {
                list.push(interrupt);
            }
        }
        Ok(list)
    }

    /// Returns the interrupt that a line leads to; `None`: there is none that a VM can have. The
    /// mask says which bits of a row count (Devicetree Specification 0.4, 2.4.3.2).
    pub(super) fn line_interrupt(&self, node: &Node<'_>, line: Line) -> Option<Interrupt> {
        let mask = node.property("interrupt-map-mask");
        let mask: Vec<u32> = mask
            .and_then(|mask| mask.cells())
            .into_iter()
            .flatten()
            .collect();
        let mask = Line(<[u32; CHILD_CELLS]>::try_from(mask).unwrap_or([u32::MAX; CHILD_CELLS]));
        let mut cells = node.property("interrupt-map")?.cells()?;
        while cells.len() != 0 {
            let (row, interrupt) = self.row(&mut cells)?;
            if row.is(&line, &mask) {
                return Some(interrupt);
            }
        }
        None
    }

    /// Reads a row of `interrupt-map`.
    fn row(&self, cells: &mut impl Iterator<Item = u32>) -> Option<(Line, Interrupt)> {
        let mut line = [0; CHILD_CELLS];
        for cell in &mut line {
            *cell = cells.next()?;
        }
        let named = cells.next()?;
        let gic = self.gic.filter(|gic| phandle(gic) == Some(named))?;
        for _ in 0..cell(&gic, "#address-cells").unwrap_or(0) {
            cells.next()?;
        }
        Some((Line(line), shared(&specifier(&gic, cells)?)?))
    }
}
