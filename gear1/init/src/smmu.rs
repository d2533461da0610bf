//! The SMMU at boot: closed before any memory is given out, its stream table and queues in memory,
//! started when every stage 2 is built.
//!
//! Invariants: from [`seize`] on no device reaches memory that its VM's stage 2 does not map;
//! tables and queues are Gear1's own memory, and the registers are no VM's.
//!
//! Requirements: G1-DMA-001, G1-DMA-002.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use gear1_abi::boot::{BootInfo, BootSmmu, BootStreams, IrqOwner, MAX_STREAM_TABLES};
use gear1_abi::layout::PAGE_SIZE;
use gear1_core::addr::Pa;
use gear1_core::physical::PhysicalMemory;
use gear1_core::smmu::stream::{self, SPLIT, STREAMS, TABLE_SIZE};
use gear1_core::smmu::{self, Device, Memory, Stuck, Unfit};

use crate::devices::Streams;
use crate::fdt::{Board, Smmu};
use crate::layout::FreeMemory;
use crate::refusal::{Refusal, refusal};
use crate::region::Region;

#[cfg(test)]
mod tests;

/// Bytes of an entry of the first level.
const FIRST_SIZE: u64 = 8;
/// Seconds after which the runtime takes the SMMU as stuck: no access of a device that works takes
/// as long (PCI Express Base Specification, 2.8: completion timeouts are below 64 s, and 50 ms
/// where nobody has changed them).
const PATIENCE_S: u64 = 1;
/// Bytes of both queues.
pub const QUEUES_SIZE: u64 = 2 * PAGE_SIZE;

/// Streams of a VM, by its place in the manifest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnedStreams {
    /// The streams.
    pub streams: Streams,
    /// The VM's index.
    pub vm: usize,
}

/// Owner of each stream in a table of the second level.
type Owners = Vec<Option<usize>>;

/// The SMMU's memory.
#[derive(Clone, Debug)]
pub struct Placed {
    /// Registers (PA).
    pub registers: u64,
    /// Both queues, a page each.
    pub queues: Pa,
    /// Tables of the second level, one after the other.
    pub entries: Region,
    /// INTID of the event queue, and whether the interrupt is edge-triggered; `None`: the board has
    /// none, and Gear2 hears of no event.
    interrupt: Option<(u32, bool)>,
    /// First level of the stream table.
    first: Pa,
    /// Width of a StreamID that the first level covers. Streams above abort, as no VM owns one.
    stream_bits: u32,
    /// Tables of the second level: one for all blocks of streams with the same owners.
    tables: BTreeMap<Owners, Pa>,
    owned: Vec<OwnedStreams>,
}

/// Makes every access of every device behind the board's SMMU abort. Firmware may have left devices
/// that still write, as a network card by which it has loaded the archive.
pub fn seize<M: PhysicalMemory>(board: &Board, memory: &mut M) -> Result<(), Refusal> {
    let Some(found) = &board.smmu else {
        return Ok(());
    };
    let mut device = Registers::new(memory, found.registers.start, Pa::new(0));
    smmu::seize(&mut device).map_err(|Stuck| stuck(found))
}

/// Refuses streams on a board whose interrupt controller is in the VMs' stage 2: a GICv2's CPU
/// interface takes an access of a device for one of a CPU (GICv2, 4.1.4).
pub fn check(board: &Board, owned: &[OwnedStreams]) -> Result<(), Refusal> {
    match &board.smmu {
        // planted: a device reaches the CPU interface of a GICv2
        Some(found) if board.gic.version == 2 && !owned.is_empty() => {
            let path = &found.path;
            Err(refusal!(
                Board,
                "{path}: a VM owns devices behind it, and the interrupt controller is a GICv2, \
                 whose CPU interface they would reach"
            ))
        }
        _ => Ok(()),
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
    let Some((found, last)) = board.smmu.as_ref().zip(last_stream(&owned)) else {
        return Ok(None);
    };
    // Streams below this power of 2 have an entry; the first level has one at least.
    let stream_bits = (u32::BITS - last.leading_zeros()).max(SPLIT);
    let device = Registers::new(memory, found.registers.start, Pa::new(0));
    if let Some(unfit) = smmu::unfit(&device, stream_bits, pa_range) {
        return Err(lacks(found, unfit));
    }
    // STRTAB_BASE has no bits below the table's size (Arm IHI 0070, SMMU_STRTAB_BASE).
    let first_size = FIRST_SIZE << (stream_bits - SPLIT);
    let what = "the SMMU's stream table";
    let first = free.take(first_size, first_size.max(PAGE_SIZE), what)?;
    // One at a time: a bridge has hundreds of blocks, all of one kind.
    let mut kinds = BTreeSet::new();
    for block in blocks(&owned) {
        kinds.insert(owners_of(&owned, block));
    }
    if kinds.len() > MAX_STREAM_TABLES {
        let (path, count) = (&found.path, kinds.len());
        return Err(refusal!(
            Board,
            "{path}: StreamIDs of VMs' devices lie in {count} different blocks of {STREAMS}, of \
             which {MAX_STREAM_TABLES} fit"
        ));
    }
    let size = kinds.len() as u64 * TABLE_SIZE;
    let entries = free.take(size, TABLE_SIZE, what)?.get();
    let places = (entries..).step_by(TABLE_SIZE as usize).map(Pa::new);
    let tables = kinds.into_iter().zip(places).collect();
    let queues = free.take(QUEUES_SIZE, PAGE_SIZE, "the SMMU's queues")?;
    Ok(Some(Placed {
        registers: found.registers.start,
        queues,
        entries: Region::new(entries, entries + size),
        interrupt: found.interrupt,
        first,
        stream_bits,
        tables,
        owned,
    }))
}

impl Placed {
    /// Returns the INTID of the event queue; 0: it has no interrupt.
    #[must_use]
    pub fn intid(&self) -> u32 {
        self.interrupt.map_or(0, |(intid, _)| intid)
    }

    /// Writes the stream table, starts the SMMU, and tells the runtime. `info` has each VM's stage
    /// 2.
    pub fn start<M: PhysicalMemory>(
        &self,
        board: &Board,
        counter_hz: u32,
        info: &mut BootInfo,
        memory: &mut M,
    ) -> Result<(), Refusal> {
        memory.zero(self.queues, QUEUES_SIZE);
        self.write_second_levels(info, memory);
        self.write_first_level(memory);
        let mut device = Registers::new(memory, self.registers, self.queues);
        let places = Memory {
            streams: self.first.get(),
            stream_bits: self.stream_bits,
            commands: self.queues.get(),
            events: self.queues.get() + PAGE_SIZE,
        };
        let started = smmu::start(&mut device, &places);
        let found = board.smmu.as_ref();
        started.map_err(|Stuck| found.map_or_else(|| refusal!(Board, "no SMMU"), stuck))?;
        self.tell(info, counter_hz);
        Ok(())
    }

    /// Writes the tables of the second level. A stream without an owner keeps an entry of zeroes,
    /// which aborts. The streams of a VM that is not loaded are shut.
    fn write_second_levels<M: PhysicalMemory>(&self, info: &BootInfo, memory: &mut M) {
        for (owners, table) in &self.tables {
            memory.zero(*table, TABLE_SIZE);
            let entries = (table.get()..).step_by(stream::ENTRY_SIZE as usize);
            for (owner, at) in owners.iter().zip(entries) {
                let vm = owner.and_then(|vm| info.vms.get(vm));
                let Some(vm) = vm else {
                    continue;
                };
                let stage2 = stream::Stage2 {
                    root: vm.root,
                    vmid: vm.vmid,
                    vtcr: info.vtcr_el2,
                };
                let entry = stream::entry(&stage2, vm.loaded);
                for (word, value) in (at..).step_by(8).zip(entry) {
                    memory.write_word(Pa::new(word), value);
                }
            }
            memory.clean(*table, TABLE_SIZE);
        }
    }

    /// Writes the first level. A block of streams without any owner has no second level, and
    /// aborts.
    fn write_first_level<M: PhysicalMemory>(&self, memory: &mut M) {
        let size = FIRST_SIZE << (self.stream_bits - SPLIT);
        memory.zero(self.first, size);
        for block in blocks(&self.owned) {
            if let Some(table) = self.tables.get(&owners_of(&self.owned, block)) {
                let at = self.first.get() + u64::from(block) * FIRST_SIZE;
                memory.write_word(Pa::new(at), stream::first_level(table.get()));
            }
        }
        memory.clean(self.first, size);
    }

    /// Tells the runtime of the SMMU and whose the streams are. Gear2 has the interrupt.
    fn tell(&self, info: &mut BootInfo, counter_hz: u32) {
        info.smmu = BootSmmu {
            registers: self.registers,
            patience: u64::from(counter_hz) * PATIENCE_S,
            intid: self.intid(),
            stream_tables: self.tables.len() as u32,
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

    /// Gives the event queue's interrupt to Gear2, if the board's tree names one.
    fn tell_interrupt(&self, info: &mut BootInfo) {
        let Some((intid, is_edge)) = self.interrupt else {
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

/// Returns the last StreamID with an owner.
fn last_stream(owned: &[OwnedStreams]) -> Option<u32> {
    let ends = owned.iter().map(|owned| owned.streams.end());
    let last = ends.max()?.checked_sub(1)?;
    u32::try_from(last).ok()
}

/// Returns the blocks of streams, one of the first level's entries each, in which a stream has an
/// owner; one may come again.
fn blocks(owned: &[OwnedStreams]) -> impl Iterator<Item = u32> {
    owned.iter().flat_map(|owned| {
        let end = owned.streams.end().div_ceil(STREAMS.into());
        owned.streams.first / STREAMS..end as u32
    })
}

/// Returns the owner of each stream in a block.
fn owners_of(owned: &[OwnedStreams], block: u32) -> Owners {
    let first = block * STREAMS;
    let owner = |offset: u32| {
        let stream = u64::from(first) + u64::from(offset);
        let has = |owned: &&OwnedStreams| {
            (u64::from(owned.streams.first)..owned.streams.end()).contains(&stream)
        };
        owned.iter().find(has).map(|owned| owned.vm)
    };
    (0..STREAMS).map(owner).collect()
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
