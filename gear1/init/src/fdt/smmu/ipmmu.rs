//! The IPMMU of an R-Car Gen3 (Linux's bindings `renesas,ipmmu-vmsa` and `renesas,prr`): a node for
//! each unit. A cache unit's names the main unit, which has no such property, in
//! `renesas,ipmmu-main`.
//!
//! Gear1 drives the units in the main unit's power domain, which is always on. The registers of a
//! unit in another domain do not answer while the domain is off, and Gear1 turns none on. What is
//! behind such a unit reaches all memory.
//!
//! Requirement: G1-DMA-008.

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use gear1_abi::layout::PAGE_SIZE;
use gear1_core::smmu::ipmmu::{MAX_UNITS, MICRO_TLBS, UNIT_SIZE, UNIT_STREAMS};
use gearv_manifest::blob::{Node, Texts};

use super::{Bus, Name, Names, Smmu, SmmuKind, cell, shared};
use crate::refusal::{Refusal, refusal};
use crate::region::Region;

/// Compatible strings of the units on SoCs that may have stage 2's format: H3, M3-W, M3-W+, M3-N.
const UNITS: Texts = Texts::new(&[
    "renesas,ipmmu-r8a7795",
    "renesas,ipmmu-r8a7796",
    "renesas,ipmmu-r8a77961",
    "renesas,ipmmu-r8a77965",
]);
/// Compatible string of the SoC's product register, which tells the revision.
const PRODUCT: &str = "renesas,prr";

/// Facts of an IPMMU that its nodes tell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ipmmu {
    /// Cache units, first those that Gear1 drives: all but the main one.
    pub others: Vec<Unit>,
    /// How many of them Gear1 drives.
    pub driven: usize,
    /// Address of the SoC's product register (PA), if the tree has its node.
    pub product: Option<u64>,
}

/// A cache unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unit {
    /// Registers: a page.
    pub registers: Region,
    phandle: Option<u32>,
}

impl Ipmmu {
    /// Returns the page of the SoC's product register.
    #[must_use]
    pub fn product_page(&self) -> Option<Region> {
        let page = self.product? & !(PAGE_SIZE - 1);
        Some(Region::new(page, page + PAGE_SIZE))
    }
}

/// Tells whether the node is one of an IPMMU's units.
pub(crate) fn is_ipmmu(node: &Node<'_>) -> bool {
    node.is_compatible(&UNITS)
}

/// Tells whether the name is one of a unit, or of the SoC's product register.
pub(super) fn is_known(name: &[u8]) -> bool {
    UNITS.contains(name) || name == PRODUCT.as_bytes()
}

/// Nodes of an IPMMU, as a walk over the board's nodes finds them.
#[derive(Default)]
pub(super) struct Nodes {
    units: Vec<Result<Found, Refusal>>,
    product: Option<Result<Region, Refusal>>,
}

/// The node of a unit.
struct Found {
    path: String,
    unit: Unit,
    is_main: bool,
    /// Cells of `power-domains`.
    domain: Vec<u32>,
    interrupt: Option<(u32, bool)>,
}

impl Nodes {
    /// Reads a node that is compatible with `name`.
    pub(super) fn add(&mut self, node: &Node<'_>, name: &[u8], path: &str, bus: &Bus<'_, '_>) {
        if name == PRODUCT.as_bytes() {
            let first = |regions: Vec<Region>| regions.first().copied();
            let region = bus.regions(node, path).map(first).transpose();
            self.product = region;
        } else {
            self.units.push(read(node, path, bus));
        }
    }

    /// Returns the IPMMU, if the tree has its main unit: without that nothing translates.
    pub(super) fn whole(self) -> Result<Option<Smmu>, Refusal> {
        let found: Vec<Found> = self.units.into_iter().collect::<Result<_, _>>()?;
        let product = self.product.transpose()?.map(|region| region.start);
        let (mains, caches): (Vec<_>, Vec<_>) = found.into_iter().partition(|one| one.is_main);
        let Some(main) = only(mains)? else {
            return Ok(None);
        };
        let is_driven = |one: &Found| one.domain == main.domain;
        // planted: a unit that may have no power is touched
        let (driven, left): (Vec<_>, Vec<_>) = caches.into_iter().partition(is_driven);
        if driven.len() >= MAX_UNITS as usize {
            let (path, count, most) = (&main.path, driven.len(), MAX_UNITS - 1);
            return Err(refusal!(Board, "{path}: {count} cache units; {most} fit"));
        }
        let names = names(&driven);
        let ipmmu = Ipmmu {
            driven: driven.len(),
            others: driven.into_iter().chain(left).map(|one| one.unit).collect(),
            product,
        };
        Ok(Some(Smmu {
            path: main.path,
            names,
            registers: main.unit.registers,
            interrupt: main.interrupt,
            kind: SmmuKind::Ipmmu(ipmmu),
        }))
    }
}

/// Returns the board's only main unit.
fn only(mains: Vec<Found>) -> Result<Option<Found>, Refusal> {
    let mut mains = mains.into_iter();
    match (mains.next(), mains.next()) {
        (Some(first), Some(second)) => {
            let (first, second) = (first.path, second.path);
            Err(refusal!(
                Board,
                "{second}: a second main unit of an IPMMU, beside {first}"
            ))
        }
        (main, _) => Ok(main),
    }
}

/// Returns the names of units, of which the first is unit 1.
fn names(units: &[Found]) -> Names {
    let numbered = units.iter().zip(1..);
    let name = |(found, unit): (&Found, u32)| {
        Some(Name {
            phandle: found.unit.phandle?,
            first: unit * UNIT_STREAMS,
            // planted: a micro-TLB that there is not is another unit's
            count: MICRO_TLBS.into(),
        })
    };
    Names(numbered.filter_map(name).collect())
}

/// Reads the node of a unit.
fn read(node: &Node<'_>, path: &str, bus: &Bus<'_, '_>) -> Result<Found, Refusal> {
    let regions = bus.regions(node, path)?;
    let is_page =
        |region: &&Region| region.bytes() >= UNIT_SIZE && region.start.is_multiple_of(UNIT_SIZE);
    let registers = regions.first().filter(is_page);
    let start = registers.map(|region| region.start).ok_or_else(|| {
        refusal!(
            Board,
            "{path}: reg: not a page of 4 KiB, as a unit of an IPMMU has it"
        )
    })?;
    if cell(node, "#iommu-cells") != Some(1) {
        return Err(refusal!(
            Board,
            "{path}: #iommu-cells: not 1, as an IPMMU names micro-TLBs"
        ));
    }
    let cells = |name: &str| node.property(name).and_then(|one| one.cells());
    // The first is of the non-secure world, the second of the secure one.
    let interrupt = cells("interrupts").and_then(|mut cells| {
        let mut next = || cells.next();
        shared([next()?, next()?, next()?])
    });
    Ok(Found {
        path: path.to_string(),
        unit: Unit {
            registers: Region::new(start, start + UNIT_SIZE),
            phandle: cell(node, "phandle"),
        },
        is_main: node.property("renesas,ipmmu-main").is_none(),
        domain: cells("power-domains").into_iter().flatten().collect(),
        interrupt,
    })
}
