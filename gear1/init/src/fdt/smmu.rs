//! The board's SMMU, which Gear1 drives (Linux's bindings `arm,smmu-v3` and `arm,smmu`, of which
//! the latter is the SMMUv2's). [`ipmmu`] reads an R-Car's IPMMU.
//!
//! Requirements: G1-DMA-001, G1-DMA-006.

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use gear1_abi::layout::PAGE_SIZE;
use gear1_core::smmu::{REGISTERS_SIZE, v2};
use gearv_manifest::blob::{Node, Texts};

use super::bus::Bus;
use super::{FIRST_SPI, SPI};
use crate::refusal::{Refusal, refusal};
use crate::region::{Region, pages};

mod ipmmu;

pub(crate) use self::ipmmu::is_ipmmu;
pub use self::ipmmu::{Ipmmu, Unit};

/// Compatible string of an SMMUv3.
const SMMU_V3: &str = "arm,smmu-v3";
/// Compatible strings of SMMUv2s, of which the first is the general one.
const SMMU_V2: Texts = Texts::new(&["arm,smmu-v2", MMU_500]);
/// Arm's own SMMUv2, whose errata Gear1 knows.
const MMU_500: &str = "arm,mmu-500";
/// Names of the interrupt that tells of events: its own, or the one for everything.
const EVENT_INTERRUPTS: [&[u8]; 2] = [b"eventq", b"combined"];
/// Trigger types of an interrupt that are edges.
const EDGES: u32 = 0b11;

/// The SMMU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Smmu {
    /// Path of the node.
    pub path: String,
    /// Phandles, by which nodes of devices name the SMMU.
    pub names: Names,
    /// Registers, of which Gear1 uses the first; of an IPMMU those of the main unit. No VM has any.
    pub registers: Region,
    /// INTID of the events' interrupt, and whether it is edge-triggered.
    pub interrupt: Option<(u32, bool)>,
    /// Version.
    pub kind: SmmuKind,
}

impl Smmu {
    /// Iterates over all registers, of which no VM has any.
    pub fn regions(&self) -> impl Iterator<Item = Region> {
        let others = match &self.kind {
            SmmuKind::Ipmmu(ipmmu) => ipmmu.others.as_slice(),
            SmmuKind::V2(_) | SmmuKind::V3 => &[],
        };
        let others = others.iter().map(|unit| unit.registers);
        [self.registers].into_iter().chain(others)
    }

    /// Iterates over the registers that init uses, that of an IPMMU's SoC included.
    pub fn reached(&self) -> impl Iterator<Item = Region> {
        let (others, product) = match &self.kind {
            SmmuKind::Ipmmu(ipmmu) => (ipmmu.driven, ipmmu.product_page()),
            SmmuKind::V2(_) | SmmuKind::V3 => (0, None),
        };
        self.regions().take(others + 1).chain(product)
    }
}

/// A name of the SMMU in nodes of devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Name {
    phandle: u32,
    /// The SMMU's stream that is number 0 behind this phandle.
    first: u32,
    /// How many streams there are.
    count: u64,
}

/// Phandles by which nodes of devices name an SMMU: one, or one for each unit of an IPMMU.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names(Vec<Name>);

impl Names {
    /// Returns the names of an SMMU with one phandle, if it has that.
    pub(crate) fn of_one(phandle: Option<u32>) -> Self {
        let name = phandle.map(|phandle| Name {
            phandle,
            first: 0,
            count: 1 << u32::BITS,
        });
        Self(name.into_iter().collect())
    }

    /// Returns the SMMU's number of the first of `count` streams that a node names by a phandle;
    /// `None`: they are not this SMMU's.
    pub(crate) fn stream(&self, phandle: u32, first: u32, count: u32) -> Option<u32> {
        let end = u64::from(first) + u64::from(count);
        let mut names = self.0.iter().filter(|name| name.phandle == phandle);
        let name = names.find(|name| end <= name.count)?;
        name.first.checked_add(first)
    }
}

/// Versions of an SMMU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SmmuKind {
    /// IPMMU of an R-Car Gen3.
    Ipmmu(Ipmmu),
    /// SMMUv2.
    V2(SmmuV2),
    /// SMMUv3.
    V3,
}

/// Facts of an SMMUv2 that its node tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SmmuV2 {
    /// Whether the SMMU is Arm's MMU-500.
    pub is_mmu500: bool,
    /// Bits of a StreamID that do not count (`stream-match-mask`).
    pub ignored: u32,
    /// Global and context faults do not come by one interrupt.
    pub has_several_interrupts: bool,
}

/// Tells whether the name is one of an SMMU.
pub(super) fn is_known(name: &[u8]) -> bool {
    SMMU_V2.contains(name) || name == SMMU_V3.as_bytes() || ipmmu::is_known(name)
}

/// Tells whether Gear1 drives the SMMU of this node on a board with this version of the GIC, if the
/// node is an SMMU's. The runtime for a GICv3 has no driver of an SMMUv2.
pub(crate) fn is_driven(node: &Node<'_>, gic_version: u32) -> bool {
    const V3: Texts = Texts::new(&[SMMU_V3]);
    node.is_compatible(&V3) || gic_version == 2 && node.is_compatible(&SMMU_V2)
}

/// The SMMUs of a board, as a walk over its nodes finds them.
#[derive(Default)]
pub(super) struct Smmus {
    v3: Option<Smmu>,
    /// An SMMUv2, or what is wrong with it: which GIC there is decides whether that matters.
    v2: Option<Result<Smmu, Refusal>>,
    ipmmu: ipmmu::Nodes,
}

impl Smmus {
    /// Reads the node of an SMMU that is compatible with `name`.
    pub(super) fn add(
        &mut self,
        node: &Node<'_>,
        name: &[u8],
        path: &str,
        bus: &Bus<'_, '_>,
    ) -> Result<(), Refusal> {
        if ipmmu::is_known(name) {
            self.ipmmu.add(node, name, path, bus);
            return Ok(());
        }
        let is_v2 = name != SMMU_V3.as_bytes();
        let found = read(node, path, bus, is_v2);
        if is_v2 {
            self.add_v2(found);
        } else {
            self.v3 = Some(only(self.v3.as_ref(), found?)?);
        }
        Ok(())
    }

    /// Adds an SMMUv2, or what is wrong with it.
    fn add_v2(&mut self, found: Result<Smmu, Refusal>) {
        self.v2 = Some(match self.v2.take() {
            Some(Ok(first)) => found.and_then(|found| only(Some(&first), found)),
            Some(Err(refused)) => Err(refused),
            None => found,
        });
    }

    /// Returns the SMMU that Gear1 drives on a board with this version of the GIC. Beside a GICv3,
    /// an SMMUv2 or an IPMMU is as if it was not there ([`is_driven`]).
    pub(super) fn driven(self, gic_version: u32) -> Result<Option<Smmu>, Refusal> {
        if gic_version != 2 {
            return Ok(self.v3);
        }
        let mut first = self.v3;
        let v2 = self.v2.transpose()?;
        for found in v2.into_iter().chain(self.ipmmu.whole()?) {
            first = Some(only(first.as_ref(), found)?);
        }
        Ok(first)
    }
}

/// Returns an SMMU that is the board's only one. The runtime drives one; a second would let its
/// devices reach all memory unseen, so the board is refused.
fn only(first: Option<&Smmu>, found: Smmu) -> Result<Smmu, Refusal> {
    match first {
        Some(first) => {
            let (path, first) = (&found.path, &first.path);
            Err(refusal!(
                Board,
                "{path}: a second SMMU, beside {first}: one is supported"
            ))
        }
        None => Ok(found),
    }
}

/// Reads the node of an SMMU, `is_v2` or not.
fn read(node: &Node<'_>, path: &str, bus: &Bus<'_, '_>, is_v2: bool) -> Result<Smmu, Refusal> {
    let name = if is_v2 { "SMMUv2" } else { "SMMUv3" };
    let (size, align, what) = if is_v2 {
        (
            v2::LEAST_SIZE,
            PAGE_SIZE,
            "four pages of 4 KiB, as an SMMUv2 has them at least",
        )
    } else {
        (
            REGISTERS_SIZE,
            REGISTERS_SIZE / 2,
            "two pages of 64 KiB, as an SMMUv3 has them",
        )
    };
    let regions = bus.regions(node, path)?;
    let fits = |region: &&Region| region.bytes() >= size && region.start.is_multiple_of(align);
    let registers = regions.first().filter(fits);
    let registers = registers.ok_or_else(|| refusal!(Board, "{path}: reg: not {what}"))?;
    if cell(node, "#iommu-cells") != Some(1) {
        return Err(refusal!(
            Board,
            "{path}: #iommu-cells: not 1, as an {name} names streams"
        ));
    }
    let (interrupt, kind) = match is_v2 {
        true => of_v2(node),
        false => (event_interrupt(node), SmmuKind::V3),
    };
    Ok(Smmu {
        path: path.to_string(),
        names: Names::of_one(cell(node, "phandle")),
        registers: pages(registers),
        interrupt,
        kind,
    })
}

/// Returns the interrupt of an SMMUv2's faults and what else its node tells. Global interrupts come
/// first, and then one for each context bank (`#global-interrupts`): Gear2 has one for all of them,
/// or hears of none.
fn of_v2(node: &Node<'_>) -> (Option<(u32, bool)>, SmmuKind) {
    let cells = node.property("interrupts").and_then(|one| one.cells());
    let cells: Vec<u32> = cells.into_iter().flatten().collect();
    let mut interrupts = cells.as_chunks::<3>().0.iter();
    let first = interrupts.next();
    let has_several_interrupts = interrupts.any(|other| Some(other) != first);
    let ignored = cell(node, "stream-match-mask").unwrap_or(0);
    let kind = SmmuV2 {
        is_mmu500: node.is_compatible(&const { Texts::new(&[MMU_500]) }),
        // A match register has no bits beyond.
        ignored: ignored & ((1 << v2::STREAM_BITS) - 1),
        has_several_interrupts,
    };
    let one = first.filter(|_| !has_several_interrupts);
    (one.and_then(|one| shared(*one)), SmmuKind::V2(kind))
}

/// Returns a property of one cell.
fn cell(node: &Node<'_>, name: &str) -> Option<u32> {
    node.property(name)?.cells()?.next()
}

/// Returns the interrupt of the event queue. Without one, Gear2 hears of no event.
fn event_interrupt(node: &Node<'_>) -> Option<(u32, bool)> {
    let names = node.property("interrupt-names")?.value;
    let mut names = names.split(|byte| *byte == 0);
    let index = names.position(|name| EVENT_INTERRUPTS.contains(&name))?;
    let cells = node.property("interrupts")?.cells()?;
    let mut cells = cells.skip(index * 3);
    shared([cells.next()?, cells.next()?, cells.next()?])
}

/// Returns the INTID of a shared interrupt, and whether it is edge-triggered.
fn shared(cells: [u32; 3]) -> Option<(u32, bool)> {
    let [SPI, number, flags] = cells else {
        return None;
    };
    let intid = number.checked_add(FIRST_SPI)?;
    let is_shared = (intid as usize) < gear1_abi::boot::MAX_INTIDS;
    is_shared.then_some((intid, flags & EDGES != 0))
}
