//! An IPMMU's contexts, one for each VM that owns micro-TLBs.
//!
//! Until the VMs' stage 2 is built, and for ever where no VM owns a micro-TLB, all of them lead to
//! an empty table. That is the one thing that init takes memory for before it reads the manifest.
//!
//! Requirements: G1-DMA-001, G1-DMA-008.

use alloc::string::String;
use alloc::vec::Vec;

use gear1_abi::boot::{BootInfo, BootStreams, MAX_STREAM_RANGES};
use gear1_core::addr::Pa;
use gear1_core::physical::PhysicalMemory;
use gear1_core::smmu::Stuck;
use gear1_core::smmu::ipmmu::{self, EMPTY_ROOT_SIZE, FIRST_OWN, UNIT_SIZE};
use gear1_core::smmu::v2::Device;

use super::{OwnedStreams, lacks, stages_of, stuck, view, vms_of};
use crate::fdt::{Board, Ipmmu, Smmu, SmmuKind};
use crate::layout::FreeMemory;
use crate::refusal::{Refusal, refusal};
use crate::region::{Region, merged};
use crate::table_memory::BootTables;

#[cfg(test)]
mod tests;

/// The VMs that own micro-TLBs.
#[derive(Clone, Debug)]
pub struct Contexts {
    /// Registers of the units, the main one's first.
    pub(super) units: Vec<Region>,
    /// The VM of each context, from the first of a VM's on.
    vms: Vec<usize>,
    /// Owners of contexts and of micro-TLBs, for the runtime.
    streams: Vec<BootStreams>,
}

/// Leaves an IPMMU alone that cannot walk the CPUs' stage 2, and returns what is to be said of the
/// board's IPMMU, if it has one.
pub fn settle<M: PhysicalMemory>(board: &mut Board, memory: &M) -> Option<String> {
    let smmu = board.smmu.as_ref()?;
    let SmmuKind::Ipmmu(units) = &smmu.kind else {
        return None;
    };
    let path = &smmu.path;
    let why = match units.product {
        Some(at) => {
            let product = memory.read_register32(Pa::new(at));
            if ipmmu::has_stage2(product) {
                let (driven, left) = (units.driven, units.others.len() - units.driven);
                return Some(alloc::format!(
                    "{path}: Gear1 drives this IPMMU with {driven} cache units; {left} are left alone"
                ));
            }
            alloc::format!("no stage 2 in this SoC ({product:#x})")
        }
        None => "no \"renesas,prr\" tells the SoC's revision".into(),
    };
    let said = alloc::format!("{path}: left alone, bus masters reach all memory: {why}");
    board.smmu = None;
    Some(said)
}

/// Takes memory for the empty table, which is not `taken`, for good.
pub(super) fn take_empty<M: PhysicalMemory>(
    board: &Board,
    taken: &[Region],
    memory: &mut M,
) -> Result<Region, Refusal> {
    let mut free = FreeMemory::new(&board.memory, taken);
    let what = "the IPMMU's empty table";
    let empty = free.take(EMPTY_ROOT_SIZE, EMPTY_ROOT_SIZE, what)?;
    memory.wipe(empty, EMPTY_ROOT_SIZE);
    Ok(Region::new(empty.get(), empty.get() + EMPTY_ROOT_SIZE))
}

/// Makes every access of every device behind the units abort. `empty`: address of an empty table
/// (PA).
pub(super) fn seize<M: PhysicalMemory>(
    found: &Smmu,
    kind: &Ipmmu,
    empty: u64,
    memory: &mut M,
) -> Result<(), Stuck> {
    let mut units = Units::new(found, kind, memory);
    let count = units.registers.len() as u32;
    ipmmu::seize(&mut units, count, empty)?;
    // A device that firmware left writing may have written there until now.
    // planted: what a device wrote into the empty table is walked
    units.memory.wipe(Pa::new(empty), EMPTY_ROOT_SIZE);
    ipmmu::forget_empty(&mut units, count)
}

/// Finds a context for each VM that owns micro-TLBs.
pub(super) fn place<M: PhysicalMemory>(
    found: &Smmu,
    owned: &[OwnedStreams],
    pa_range: u64,
    units: &Units<'_, M>,
) -> Result<Contexts, Refusal> {
    let vms = vms_of(owned);
    if let Some(unfit) = ipmmu::unfit(units, pa_range, vms.len()) {
        return Err(lacks(found, unfit));
    }
    let contexts = vms.iter().zip(FIRST_OWN..);
    let streams = contexts.flat_map(|(vm, context)| {
        let own = owned.iter().filter(|one| one.vm == *vm);
        let own = own.map(|one| Region::new(one.streams.first.into(), one.streams.end()));
        let context = Region::new(context.into(), u64::from(context) + 1);
        let ranges = [context].into_iter().chain(merged(own.collect()));
        ranges.map(|range| BootStreams {
            first: range.start as u32,
            count: range.bytes() as u32,
            vm: *vm as u32,
        })
    });
    let streams: Vec<BootStreams> = streams.collect();
    if streams.len() > MAX_STREAM_RANGES {
        let (path, count) = (&found.path, streams.len());
        return Err(refusal!(
            Board,
            "{path}: {count} contexts and ranges of micro-TLBs of VMs; {MAX_STREAM_RANGES} fit"
        ));
    }
    Ok(Contexts {
        units: units.registers.clone(),
        vms,
        streams,
    })
}

impl Contexts {
    /// Returns the bytes of the units' registers.
    pub(super) fn size(&self) -> u64 {
        self.units.len() as u64 * UNIT_SIZE
    }

    /// Makes the tables that the devices walk and starts the IPMMU. `info` has each VM's stage 2.
    /// The streams of a VM that is not loaded are shut.
    pub(super) fn start<M: PhysicalMemory>(
        &self,
        found: &Smmu,
        machine: &view::Machine<'_>,
        info: &mut BootInfo,
        tables: &mut BootTables<'_, M>,
    ) -> Result<(), Refusal> {
        let stages = stages_of(&self.vms, machine, info, tables)?;
        let is_open = |vm: u32| info.vms.get(vm as usize).is_some_and(|vm| vm.loaded);
        let mut units = Units {
            memory: tables.memory,
            registers: self.units.clone(),
        };
        let count = self.units.len() as u32;
        let started = ipmmu::start(&mut units, count, &stages, &self.streams, is_open);
        started.map_err(|Stuck| stuck(found))?;
        info.smmu.units = count;
        info.smmu.banks = self.vms.len() as u32;
        info.smmu.streams = Default::default();
        for (slot, range) in info.smmu.streams.iter_mut().zip(&self.streams) {
            *slot = *range;
        }
        Ok(())
    }
}

/// The units' registers at their physical addresses, one unit behind the other.
pub(super) struct Units<'m, M> {
    memory: &'m mut M,
    registers: Vec<Region>,
}

impl<'m, M: PhysicalMemory> Units<'m, M> {
    /// Names the registers of the units that Gear1 drives.
    pub(super) fn new(found: &Smmu, kind: &Ipmmu, memory: &'m mut M) -> Self {
        Self {
            memory,
            registers: found.regions().take(kind.driven + 1).collect(),
        }
    }

    fn at(&self, offset: usize) -> Pa {
        let (unit, register) = (offset / UNIT_SIZE as usize, offset % UNIT_SIZE as usize);
        Pa::new(self.registers[unit].start + register as u64)
    }
}

impl<M: PhysicalMemory> Device for Units<'_, M> {
    fn read32(&self, offset: usize) -> u32 {
        self.memory.read_register32(self.at(offset))
    }

    fn write32(&mut self, offset: usize, value: u32) {
        self.memory.write_register32(self.at(offset), value);
    }

    fn order(&self) {
        self.memory.order();
    }
}
