//! An SMMUv3's stream table of two levels, and its queues.
//!
//! Requirements: G1-DMA-001, G1-DMA-002.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use gear1_abi::boot::{BootInfo, MAX_STREAM_TABLES};
use gear1_abi::layout::PAGE_SIZE;
use gear1_core::addr::Pa;
use gear1_core::physical::PhysicalMemory;
use gear1_core::smmu::stream::{self, SPLIT, STREAMS, TABLE_SIZE};
use gear1_core::smmu::{self, Memory};

use super::{OwnedStreams, Registers, lacks, stage2_of, stuck};
use crate::fdt::Smmu;
use crate::layout::FreeMemory;
use crate::refusal::{Refusal, refusal};
use crate::region::Region;

/// Bytes of an entry of the first level.
const FIRST_SIZE: u64 = 8;
/// Bytes of both queues.
pub const QUEUES_SIZE: u64 = 2 * PAGE_SIZE;

/// Owner of each stream in a table of the second level.
type Owners = Vec<Option<usize>>;

/// The SMMU's memory.
#[derive(Clone, Debug)]
pub struct Tables {
    /// Both queues, a page each.
    pub queues: Pa,
    /// Tables of the second level, one after the other.
    pub entries: Region,
    /// First level of the stream table.
    first: Pa,
    /// Width of a StreamID that the first level covers. Streams above abort, as no VM owns one.
    stream_bits: u32,
    /// Tables of the second level: one for all blocks of streams with the same owners.
    tables: BTreeMap<Owners, Pa>,
}

/// Takes memory for the tables and queues.
pub(super) fn place<M: PhysicalMemory>(
    found: &Smmu,
    owned: &[OwnedStreams],
    pa_range: u64,
    free: &mut FreeMemory,
    memory: &mut M,
) -> Result<Tables, Refusal> {
    // Streams below this power of 2 have an entry; the first level has one at least.
    let stream_bits = super::stream_bits(owned).max(SPLIT);
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
    for block in blocks(owned) {
        kinds.insert(owners_of(owned, block));
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
    Ok(Tables {
        queues,
        entries: Region::new(entries, entries + size),
        first,
        stream_bits,
        tables,
    })
}

impl Tables {
    /// Writes the stream table and starts the SMMU. `info` has each VM's stage 2.
    pub(super) fn start<M: PhysicalMemory>(
        &self,
        found: &Smmu,
        owned: &[OwnedStreams],
        info: &mut BootInfo,
        memory: &mut M,
    ) -> Result<(), Refusal> {
        memory.zero(self.queues, QUEUES_SIZE);
        self.write_second_levels(info, memory);
        self.write_first_level(owned, memory);
        let mut device = Registers::new(memory, found.registers.start, self.queues);
        let places = Memory {
            streams: self.first.get(),
            stream_bits: self.stream_bits,
            commands: self.queues.get(),
            events: self.queues.get() + PAGE_SIZE,
        };
        smmu::start(&mut device, &places).map_err(|_| stuck(found))?;
        info.smmu.stream_tables = self.tables.len() as u32;
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
                let entry = stream::entry(&stage2_of(info, vm), vm.loaded);
                for (word, value) in (at..).step_by(8).zip(entry) {
                    memory.write_word(Pa::new(word), value);
                }
            }
            memory.clean(*table, TABLE_SIZE);
        }
    }

    /// Writes the first level. A block of streams without any owner has no second level, and
    /// aborts.
    fn write_first_level<M: PhysicalMemory>(&self, owned: &[OwnedStreams], memory: &mut M) {
        let size = FIRST_SIZE << (self.stream_bits - SPLIT);
        memory.zero(self.first, size);
        for block in blocks(owned) {
            if let Some(table) = self.tables.get(&owners_of(owned, block)) {
                let at = self.first.get() + u64::from(block) * FIRST_SIZE;
                memory.write_word(Pa::new(at), stream::first_level(table.get()));
            }
        }
        memory.clean(self.first, size);
    }
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
