//! The board's SMMUv3, which Gear1 drives (Linux's binding `arm,smmu-v3`).
//!
//! Requirements: G1-DMA-001.

use alloc::string::{String, ToString};

use gear1_core::smmu::REGISTERS_SIZE;
use gearv_manifest::blob::Node;

use super::bus::Bus;
use super::{FIRST_SPI, SPI};
use crate::refusal::{Refusal, refusal};
use crate::region::{Region, pages};

/// Compatible string.
pub(crate) const SMMU: &str = "arm,smmu-v3";
/// Names of the interrupt that tells of events: its own, or the one for everything.
const EVENT_INTERRUPTS: [&[u8]; 2] = [b"eventq", b"combined"];
/// Trigger types of an interrupt that are edges.
const EDGES: u32 = 0b11;

/// The SMMU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Smmu {
    /// Path of the node.
    pub path: String,
    /// Phandle, by which nodes of devices name the SMMU.
    pub phandle: Option<u32>,
    /// Registers, of which Gear1 uses the first [`REGISTERS_SIZE`] bytes. No VM has any.
    pub registers: Region,
    /// INTID of the event queue's interrupt, and whether it is edge-triggered.
    pub interrupt: Option<(u32, bool)>,
}

/// Reads the SMMU's node. The runtime drives one; a second would let its devices reach all memory
/// unseen, so the board is refused.
pub(super) fn read(
    node: &Node<'_>,
    path: &str,
    bus: &Bus<'_, '_>,
    seen: &mut Option<Smmu>,
) -> Result<(), Refusal> {
    if let Some(first) = seen {
        let first = &first.path;
        return Err(refusal!(
            Board,
            "{path}: a second SMMUv3, beside {first}: one is supported"
        ));
    }
    let regions = bus.regions(node, path)?;
    let registers = regions.first().filter(|region| {
        region.bytes() >= REGISTERS_SIZE && region.start.is_multiple_of(REGISTERS_SIZE / 2)
    });
    let registers = registers.ok_or_else(|| {
        refusal!(
            Board,
            "{path}: reg: not two pages of 64 KiB, as an SMMUv3 has them"
        )
    })?;
    if node
        .property("#iommu-cells")
        .and_then(|cells| cells.cells()?.next())
        != Some(1)
    {
        return Err(refusal!(
            Board,
            "{path}: #iommu-cells: not 1, as an SMMUv3 names streams"
        ));
    }
    *seen = Some(Smmu {
        path: path.to_string(),
        phandle: node.property("phandle").and_then(|one| one.cells()?.next()),
        registers: pages(registers),
        interrupt: event_interrupt(node),
    });
    Ok(())
}

/// Returns the interrupt of the event queue. Without one, Gear2 hears of no event.
fn event_interrupt(node: &Node<'_>) -> Option<(u32, bool)> {
    let names = node.property("interrupt-names")?.value;
    let mut names = names.split(|byte| *byte == 0);
    let index = names.position(|name| EVENT_INTERRUPTS.contains(&name))?;
    let cells = node.property("interrupts")?.cells()?;
    let mut cells = cells.skip(index * 3);
    let (SPI, number, flags) = (cells.next()?, cells.next()?, cells.next()?) else {
        return None;
    };
    let intid = number.checked_add(FIRST_SPI)?;
    let is_shared = (intid as usize) < gear1_abi::boot::MAX_INTIDS;
    is_shared.then_some((intid, flags & EDGES != 0))
}
