//! An SMMUv2's context banks, one for each VM that owns streams, and the registers that match the
//! streams (Arm IHI 0062).
//!
//! A range of StreamIDs takes a register for each block of a power of 2 in it.
//!
//! Requirements: G1-DMA-001, G1-DMA-006.

use alloc::vec::Vec;

use gear1_abi::boot::BootInfo;
use gear1_core::addr::Pa;
use gear1_core::physical::PhysicalMemory;
use gear1_core::smmu::v2::{self, Match, Needs, Shape};
use gearv_manifest::Manifest;

use super::{OwnedStreams, Registers, lacks, stuck, view};
use crate::devices::Streams;
use crate::fdt::{Smmu, SmmuV2};
use crate::refusal::{Refusal, refusal};
use crate::region::{Region, merged};
use crate::table_memory::BootTables;

#[cfg(test)]
mod tests;

/// Context banks and matches.
#[derive(Clone, Debug)]
pub struct Contexts {
    is_mmu500: bool,
    /// Bits of a StreamID that do not count.
    ignored: u32,
    /// The VM of each context bank, from the first on.
    vms: Vec<usize>,
    /// Blocks of StreamIDs, with the context bank of each.
    blocks: Vec<(Streams, usize)>,
}

/// Refuses what an SMMUv2 cannot keep.
pub(super) fn check(
    path: &str,
    kind: &SmmuV2,
    owned: &[OwnedStreams],
    manifest: &Manifest<'_>,
) -> Result<(), Refusal> {
    let refuse = |what: &str| refusal!(Board, "{path}: a VM owns devices behind it, and {what}");
    if kind.has_several_interrupts {
        return Err(refuse("its faults come by several interrupts"));
    }
    let varies = |streams: &Streams| {
        let bits = u64::from(kind.ignored);
        (u64::from(streams.first) ^ (streams.end() - 1)) & bits != 0
    };
    if owned.iter().any(|one| varies(&one.streams)) {
        return Err(refuse(
            "stream-match-mask has bits that their streams differ in",
        ));
    }
    let named = without_ignored(owned.to_vec(), kind.ignored);
    let is_shared = |one: &OwnedStreams, other: &OwnedStreams| {
        one.vm != other.vm && one.streams.overlaps(&other.streams)
    };
    if named
        .iter()
        .any(|one| named.iter().any(|other| is_shared(one, other)))
    {
        return Err(refuse(
            "another VM owns the same stream, but for stream-match-mask",
        ));
    }
    super::check_peers(path, "an SMMUv2", owned, manifest)
}

/// Returns streams by the bits that tell them apart.
pub(super) fn without_ignored(mut owned: Vec<OwnedStreams>, ignored: u32) -> Vec<OwnedStreams> {
    for one in &mut owned {
        one.streams.first &= !ignored;
    }
    owned
}

/// Finds registers for the streams, and returns the bytes of registers that are used as well.
pub(super) fn place<M: PhysicalMemory>(
    found: &Smmu,
    kind: &SmmuV2,
    owned: &[OwnedStreams],
    pa_range: u64,
    device: &Registers<'_, M>,
) -> Result<(u64, Contexts), Refusal> {
    let vms = super::vms_of(owned);
    let blocks: Vec<_> = vms
        .iter()
        .enumerate()
        .flat_map(|(bank, vm)| {
            blocks_of(owned, *vm)
                .into_iter()
                .map(move |block| (block, bank))
        })
        .collect();
    let needs = Needs {
        pa_range,
        banks: vms.len(),
        matches: blocks.len(),
        stream_bits: super::stream_bits(owned),
    };
    if let Some(unfit) = v2::unfit(device, &needs) {
        return Err(lacks(found, unfit));
    }
    let size = Shape::of(device).size(vms.len() as u32);
    if size > found.registers.bytes() {
        let (path, bytes) = (&found.path, found.registers.bytes());
        return Err(refusal!(
            Board,
            "{path}: reg: {bytes:#x} bytes, and the registers take {size:#x}"
        ));
    }
    let contexts = Contexts {
        is_mmu500: kind.is_mmu500,
        ignored: kind.ignored,
        vms,
        blocks,
    };
    Ok((size, contexts))
}

impl Contexts {
    /// Makes the tables that the devices walk and starts the SMMU. `info` has each VM's stage 2.
    pub(super) fn start<M: PhysicalMemory>(
        &self,
        found: &Smmu,
        machine: &view::Machine<'_>,
        info: &mut BootInfo,
        tables: &mut BootTables<'_, M>,
    ) -> Result<(), Refusal> {
        // The SMMU's walks need not be coherent with the CPUs' caches (SMMU_IDR0.CTTW).
        let stages = super::stages_of(&self.vms, machine, info, tables)?;
        let matches: Vec<Match> = self
            .blocks
            .iter()
            .map(|block| self.matched(block, info))
            .collect();
        let mut device = Registers::new(tables.memory, found.registers.start, Pa::new(0));
        let started = v2::start(&mut device, &stages, &matches, self.is_mmu500);
        started.map_err(|_| stuck(found))?;
        info.smmu.banks = self.vms.len() as u32;
        info.smmu.ignored = self.ignored;
        Ok(())
    }

    /// Returns the match of a block. The streams of a VM that is not loaded are shut.
    fn matched(&self, (block, bank): &(Streams, usize), info: &BootInfo) -> Match {
        let vm = self.vms.get(*bank).and_then(|vm| info.vms.get(*vm));
        Match {
            id: block.first,
            mask: (block.count - 1) | self.ignored,
            bank: *bank as u32,
            is_open: vm.is_some_and(|vm| vm.loaded),
        }
    }
}

/// Returns a VM's streams as blocks of a power of 2, each at a multiple of its size. No two overlap:
/// a stream that several registers match faults.
fn blocks_of(owned: &[OwnedStreams], vm: usize) -> Vec<Streams> {
    let own = owned.iter().filter(|one| one.vm == vm);
    let ranges = own.map(|one| Region::new(one.streams.first.into(), one.streams.end()));
    let mut blocks = Vec::new();
    for range in merged(ranges.collect()) {
        let mut first = range.start;
        while first < range.end {
            let left = range.end - first;
            // Both are below 2^33.
            let fits = first.trailing_zeros().min(left.ilog2());
            let count = 1_u64 << fits;
            blocks.push(Streams {
                first: first as u32,
                count: count as u32,
            });
            first += count;
        }
    }
    blocks
}
