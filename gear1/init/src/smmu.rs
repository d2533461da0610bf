//! The SMMU at boot: closed before any memory is given out, its tables in memory or in registers,
//! started when every stage 2 is built.
//!
//! Invariants: from [`seize`] on no device reaches memory that its VM's stage 2 does not map;
//! tables and queues are Gear1's own memory, and the registers are no VM's.
//!
//! Requirements: G1-DMA-001, G1-DMA-002.

use alloc::vec::Vec;

use gear1_abi::boot::{BootInfo, BootSmmu, BootStreams, BootVm, IrqOwner};
use gear1_abi::layout::PAGE_SIZE;
use gear1_core::addr::Pa;
use gear1_core::physical::PhysicalMemory;
use gear1_core::smmu::stream::Stage2;
use gear1_core::smmu::{self, Device, Stuck, Unfit};
use gearv_manifest::Manifest;

use crate::devices::Streams;
use crate::fdt::{Board, Smmu, SmmuKind};
use crate::layout::FreeMemory;
use crate::refusal::{Refusal, refusal};
use crate::region::Region;
use crate::table_memory::BootTables;

pub mod ipmmu;
#[cfg(test)]
mod tests;
pub mod v2;
pub mod v3;
pub mod view;

/// Seconds after which the runtime takes the SMMU as stuck: no access of a device that works takes
/// as long (PCI Express Base Specification, 2.8: completion timeouts are below 64 s, and 50 ms
/// where nobody has changed them).
const PATIENCE_S: u64 = 1;

/// Streams of a VM, by its place in the manifest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnedStreams {
    /// The streams.
    pub streams: Streams,
    /// The VM's index.
    pub vm: usize,
}

/// The SMMU, of which a VM owns streams.
#[derive(Clone, Debug)]
pub struct Placed {
    /// The board's.
    found: Smmu,
    /// Bytes of registers that the runtime uses.
    size: u64,
    owned: Vec<OwnedStreams>,
    /// Registers or memory of this version.
    pub parts: Parts,
}

/// Registers or memory of an SMMU, by its version.
#[derive(Clone, Debug)]
pub enum Parts {
    /// An IPMMU's registers.
    Ipmmu(ipmmu::Contexts),
    /// An SMMUv2's registers.
    V2(v2::Contexts),
    /// An SMMUv3's memory.
    V3(v3::Tables),
}

/// Makes every access of every device behind the board's SMMU abort. Firmware may have left devices
/// that still write, as a network card by which it has loaded the archive. Returns the memory that
/// an IPMMU needs for that for good, of what is not `taken`.
pub fn seize<M: PhysicalMemory>(
    board: &Board,
    taken: &[Region],
    memory: &mut M,
) -> Result<Option<Region>, Refusal> {
    let Some(found) = &board.smmu else {
        return Ok(None);
    };
    if let SmmuKind::Ipmmu(kind) = &found.kind {
        let empty = ipmmu::take_empty(board, taken, memory)?;
        let seized = ipmmu::seize(found, kind, empty.start, memory);
        return seized.map(|()| Some(empty)).map_err(|Stuck| stuck(found));
    }
    let mut device = Registers::new(memory, found.registers.start, Pa::new(0));
    let seized = match found.kind {
        SmmuKind::V2(_) => smmu::v2::seize(&mut device, found.registers.bytes()),
        _ => smmu::seize(&mut device),
    };
    seized.map(|()| None).map_err(|Stuck| stuck(found))
}

/// Refuses streams that their VM's stage 2 cannot keep: those of an SMMUv3 beside a GICv2, whose
/// runtime has no driver of it, and what an SMMUv2 and an IPMMU ask of the VMs.
pub fn check(
    board: &Board,
    owned: &[OwnedStreams],
    manifest: &Manifest<'_>,
) -> Result<(), Refusal> {
    let Some(found) = board.smmu.as_ref().filter(|_| !owned.is_empty()) else {
        return Ok(());
    };
    let path = &found.path;
    match &found.kind {
        SmmuKind::Ipmmu(_) => check_peers(path, "an IPMMU", owned, manifest),
        SmmuKind::V2(v2) => v2::check(path, v2, owned, manifest),
        // planted: an SMMUv3 is given to the runtime of a GICv2
        SmmuKind::V3 if board.gic.version == 2 => Err(refusal!(
            Board,
            "{path}: a VM owns devices behind it, and Gear1 does not drive an SMMUv3 beside a GICv2"
        )),
        SmmuKind::V3 => Ok(()),
    }
}

/// Refuses a VM whose stage 2 may change: devices of an SMMUv2 or an IPMMU, `what`, walk tables that
/// are copies in part, and in memory alone.
fn check_peers(
    path: &str,
    what: &str,
    owned: &[OwnedStreams],
    manifest: &Manifest<'_>,
) -> Result<(), Refusal> {
    let mut vms = owned
        .iter()
        .filter_map(|one| manifest.vms.iter().nth(one.vm));
    // planted: a device behind an SMMUv2 keeps what its VM has shared
    match vms.find(|vm| manifest.peers(vm).next().is_some()) {
        Some(vm) => {
            let name = vm.name;
            Err(refusal!(
                Board,
                "{path}: a VM owns devices behind it, and {name} has ffa-peers: what devices of \
                 {what} reach does not change"
            ))
        }
        None => Ok(()),
    }
}

/// Takes memory for the tables and queues of the board's SMMU, if a VM owns a stream.
pub fn place<M: PhysicalMemory>(
    board: &Board,
    owned: Vec<OwnedStreams>,
    pa_range: u64,
    free: &mut FreeMemory,
    memory: &mut M,
) -> Result<Option<Placed>, Refusal> {
    let Some(found) = board.smmu.as_ref().filter(|_| !owned.is_empty()) else {
        return Ok(None);
    };
    let (size, owned, parts) = match &found.kind {
        SmmuKind::Ipmmu(kind) => {
            let units = ipmmu::Units::new(found, kind, memory);
            let contexts = ipmmu::place(found, &owned, pa_range, &units)?;
            (contexts.size(), owned, Parts::Ipmmu(contexts))
        }
        SmmuKind::V2(v2) => {
            let owned = v2::without_ignored(owned, v2.ignored);
            let device = Registers::new(memory, found.registers.start, Pa::new(0));
            let (size, contexts) = v2::place(found, v2, &owned, pa_range, &device)?;
            (size, owned, Parts::V2(contexts))
        }
        SmmuKind::V3 => {
            let tables = v3::place(found, &owned, pa_range, free, memory)?;
            (smmu::REGISTERS_SIZE, owned, Parts::V3(tables))
        }
    };
    Ok(Some(Placed {
        found: found.clone(),
        size,
        owned,
        parts,
    }))
}

impl Placed {
    /// Returns the INTID of the SMMU's events; 0: it has no interrupt.
    #[must_use]
    pub fn intid(&self) -> u32 {
        self.found.interrupt.map_or(0, |(intid, _)| intid)
    }

    /// Returns the registers that the runtime uses, which it sees side by side.
    #[must_use]
    pub fn registers(&self) -> Vec<Region> {
        match &self.parts {
            Parts::Ipmmu(contexts) => contexts.units.clone(),
            Parts::V2(_) | Parts::V3(_) => {
                let start = self.found.registers.start;
                alloc::vec![Region::new(start, start + self.size)]
            }
        }
    }

    /// Starts the SMMU and tells the runtime. `info` has each VM's stage 2, in `tables`.
    pub fn start<M: PhysicalMemory>(
        &self,
        machine: &view::Machine<'_>,
        counter_hz: u32,
        info: &mut BootInfo,
        tables: &mut BootTables<'_, M>,
    ) -> Result<(), Refusal> {
        self.tell(info, counter_hz);
        match &self.parts {
            Parts::Ipmmu(contexts) => contexts.start(&self.found, machine, info, tables),
            Parts::V2(contexts) => contexts.start(&self.found, machine, info, tables),
            Parts::V3(v3) => v3.start(&self.found, &self.owned, info, tables.memory),
        }
    }

    /// Tells the runtime of the SMMU and whose the streams are. Gear2 has the interrupt.
    fn tell(&self, info: &mut BootInfo, counter_hz: u32) {
        info.smmu = BootSmmu {
            registers: self.found.registers.start,
            size: self.size,
            patience: u64::from(counter_hz) * PATIENCE_S,
            intid: self.intid(),
            ..BootSmmu::default()
        };
        for (slot, owned) in info.smmu.streams.iter_mut().zip(&self.owned) {
            *slot = BootStreams {
                first: owned.streams.first,
                count: owned.streams.count,
                vm: owned.vm as u32,
            };
        }
        self.tell_interrupt(info);
    }

    /// Gives the interrupt of events to Gear2, if the board's tree names one.
    fn tell_interrupt(&self, info: &mut BootInfo) {
        let Some((intid, is_edge)) = self.found.interrupt else {
            return;
        };
        let at = intid as usize;
        if let Some(owner) = info.irq_owner.get_mut(at) {
            *owner = IrqOwner::GEAR2;
        }
        if let Some(word) = info.irq_edge.get_mut(at / 32) {
            *word |= u32::from(is_edge) << (at % 32);
        }
    }
}

/// Returns the bits of a StreamID that VMs' streams need.
fn stream_bits(owned: &[OwnedStreams]) -> u32 {
    let last = owned.iter().map(|owned| owned.streams.end() - 1).max();
    u64::BITS - last.unwrap_or(0).leading_zeros()
}

/// Returns the stage 2 that the CPUs have for a VM.
const fn stage2_of(info: &BootInfo, vm: &BootVm) -> Stage2 {
    Stage2 {
        root: vm.root,
        vmid: vm.vmid,
        vtcr: info.vtcr_el2,
    }
}

/// Returns the VMs that own streams, in order.
fn vms_of(owned: &[OwnedStreams]) -> Vec<usize> {
    let mut vms: Vec<usize> = owned.iter().map(|one| one.vm).collect();
    vms.sort_unstable();
    vms.dedup();
    vms
}

/// Makes the stage 2 of each VM's devices, in memory: an SMMU that walks without a look into the
/// CPUs' caches finds them there, and nobody changes them (G1-DMA-006). `info` has each VM's.
fn stages_of<M: PhysicalMemory>(
    vms: &[usize],
    machine: &view::Machine<'_>,
    info: &BootInfo,
    tables: &mut BootTables<'_, M>,
) -> Result<Vec<Stage2>, Refusal> {
    let mut stages = Vec::new();
    for vm in vms {
        let cpus = info.vms.get(*vm).map(|vm| stage2_of(info, vm));
        let cpus = cpus.ok_or_else(|| refusal!(Manifest, "no VM {vm}"))?;
        let root = view::of(machine, *vm, Pa::new(cpus.root), tables)?.get();
        stages.push(Stage2 { root, ..cpus });
    }
    // planted: an SMMUv2 walks what is still in a cache
    tables
        .memory
        .clean(Pa::new(machine.pool.start), machine.pool.bytes());
    Ok(stages)
}

/// Says what the SMMU lacks.
fn lacks(found: &Smmu, unfit: Unfit) -> Refusal {
    let path = &found.path;
    let what = match unfit {
        Unfit::Stage2 => "it has no stage 2 by little-endian AArch64 tables with pages of 4 KiB",
        Unfit::Stalls => "it stalls each access that faults",
        Unfit::Coherency => "its walks are not coherent with the CPUs' caches",
        Unfit::Streams => "it has fewer StreamIDs than devices, or no stream table of two levels",
        Unfit::Addresses => "its physical addresses have fewer bits than stage 2",
        Unfit::Queues => "its queues have less than a page, or cannot be moved",
        Unfit::Matches => "it has fewer stream match registers than their streams take",
        Unfit::Contexts => "it has fewer contexts than VMs own devices",
    };
    refusal!(Board, "{path}: a VM owns devices behind it, and {what}")
}

/// Says that the SMMU does not take part.
fn stuck(found: &Smmu) -> Refusal {
    let path = &found.path;
    refusal!(Board, "{path}: the SMMU does not answer")
}

/// The SMMU's registers and queues at their physical addresses.
struct Registers<'m, M> {
    memory: &'m mut M,
    base: u64,
    queues: Pa,
}

impl<'m, M: PhysicalMemory> Registers<'m, M> {
    fn new(memory: &'m mut M, base: u64, queues: Pa) -> Self {
        Self {
            memory,
            base,
            queues,
        }
    }

    fn at(&self, offset: usize) -> Pa {
        Pa::new(self.base + offset as u64)
    }
}

impl<M: PhysicalMemory> Device for Registers<'_, M> {
    fn read32(&self, offset: usize) -> u32 {
        self.memory.read_register32(self.at(offset))
    }

    fn write32(&mut self, offset: usize, value: u32) {
        self.memory.write_register32(self.at(offset), value);
    }

    fn write64(&mut self, offset: usize, value: u64) {
        self.memory.write_register(self.at(offset), value);
    }

    fn put_command(&mut self, slot: u32, command: [u64; 2]) {
        let at = self.queues.get() + u64::from(slot) * 16;
        self.memory.write_word(Pa::new(at), command[0]);
        self.memory.write_word(Pa::new(at + 8), command[1]);
    }

    fn event(&self, slot: u32) -> [u64; 4] {
        let at = self.queues.get() + PAGE_SIZE + u64::from(slot) * 32;
        [0, 8, 16, 24].map(|word| self.memory.read_word(Pa::new(at + word)))
    }

    fn order(&self) {
        self.memory.order();
    }
}

impl<M: PhysicalMemory> smmu::v2::Device for Registers<'_, M> {
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
