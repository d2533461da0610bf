//! Memory that several VMs share from boot on (`/shared-memory`): at its physical address in each,
//! zero at first.
//!
//! Invariants: no other VM has the memory; a reader cannot write it; no VM can execute it. The
//! memory belongs to no VM, so that no VM can share, lend or donate it, and the end of a VM does
//! not change it.
//!
//! Requirements: G1-MEM-021.

use alloc::vec::Vec;

use gear1_core::addr::Pa;
use gear1_core::physical::PhysicalMemory;
use gear1_core::stage2::Attributes;
use gearv_manifest::{Manifest, SharedMemory};

use crate::dax;
use crate::layout::FreeMemory;
use crate::partition::{Mapping, Purpose, Space};
use crate::refusal::{Refusal, refusal};
use crate::region::Region;

#[cfg(test)]
mod tests;

/// First number of shared memory for Linux: the device model's regions are counted from 1.
const FIRST_NUMBER: u8 = 0x80;

/// Takes the shared memory, before anything else is placed: its address is the manifest's, and each
/// VM that has it sees it there.
pub fn take(free: &mut FreeMemory, manifest: &Manifest<'_>) -> Result<(), Refusal> {
    let mut all = manifest.shared.iter();
    let taken = all.find(|shared| !free.take_at(shared.with_lead()));
    taken.map_or(Ok(()), |shared| {
        let name = shared.name;
        Err(refusal!(
            Manifest,
            "/shared-memory/{name}: address: not free"
        ))
    })
}

/// Zeroes the shared memory and describes it to Linux.
pub fn fill<M: PhysicalMemory>(manifest: &Manifest<'_>, memory: &mut M) {
    for (shared, number) in manifest.shared.iter().zip(FIRST_NUMBER..) {
        let region = shared.region();
        memory.wipe(Pa::new(region.start), region.bytes());
        dax::describe(region, number, dax::DATA_OFFSET, memory);
    }
}

/// Returns the mappings of the memory in the VMs that have it: the description, which no VM
/// writes, and the data.
#[must_use]
pub fn mappings(manifest: &Manifest<'_>) -> Vec<Mapping> {
    let mut mappings = Vec::new();
    for (number, shared) in manifest.shared.iter().enumerate() {
        for vm in manifest.vms.iter() {
            let Some(write) = shared.access(vm.name) else {
                continue;
            };
            mappings.extend(parts(shared, write).map(|(part, attributes)| Mapping {
                space: Space::Vm(vm.id),
                ipa: part.start,
                pa: part.start,
                size: part.bytes(),
                attributes,
                why: Purpose::SharedMemory(number),
            }));
        }
    }
    mappings
}

/// Returns the description and the data of shared memory, with the rights of a VM that may `write`
/// the data. No VM owns either: a page with an owner could be lent on, and then a VM that the
/// manifest does not name would have it.
fn parts(shared: &SharedMemory<'_>, write: bool) -> [(Region, Attributes); 2] {
    let region = shared.region();
    let lead = Region::new(shared.with_lead().start, region.start);
    let data = Attributes {
        // planted: who reads shared memory writes it
        write,
        ..Attributes::READ_ONLY_UNOWNED
    };
    [(lead, Attributes::READ_ONLY_UNOWNED), (region, data)]
}
