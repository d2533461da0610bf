//! Memory that several VMs share from boot on (`/shared-memory`): at its physical address in each,
//! zero at first.
//!
//! Invariants: no other VM has the memory; a reader cannot write it; no VM can execute it. The
//! memory belongs to no VM, so that no VM can share, lend or donate it, and the end of a VM does
//! not change it.
//!
//! Requirements: G1-MEM-021.

use gear1_core::addr::{Ipa, Pa};
use gear1_core::physical::PhysicalMemory;
use gear1_core::stage2::{Attributes, Stage2};
use gearv_manifest::Manifest;

use crate::dax;
use crate::layout::FreeMemory;
use crate::refusal::{Refusal, refusal};
use crate::region::Region;
use crate::table_memory::BootTables;

#[cfg(test)]
mod tests;

/// First number of shared memory for Linux: the device model's regions are counted from 1.
const FIRST_NUMBER: u8 = 0x80;

/// Takes the shared memory, before anything else is placed.
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

/// Zeroes the shared memory, describes it to Linux, and maps it in its VMs.
pub fn map<M: PhysicalMemory>(
    manifest: &Manifest<'_>,
    roots: &[Stage2],
    tables: &mut BootTables<'_, M>,
) -> Result<(), Refusal> {
    for (shared, number) in manifest.shared.iter().zip(FIRST_NUMBER..) {
        let region = shared.region();
        tables.memory.zero(Pa::new(region.start), region.bytes());
        tables.memory.clean(Pa::new(region.start), region.bytes());
        dax::describe(region, number, tables.memory);
        let lead = Region::new(shared.with_lead().start, region.start);
        for (vm, root) in manifest.vms.iter().zip(roots) {
            let Some(write) = shared.access(vm.name) else {
                continue;
            };
            let data = Attributes {
                // planted: who reads shared memory writes it
                write,
                ..Attributes::TOLD
            };
            for (part, attributes) in [(lead, Attributes::TOLD), (region, data)] {
                let (ipa, pa) = (Ipa::new(part.start), Pa::new(part.start));
                let mapped = root.map(tables, ipa, pa, part.bytes(), attributes);
                let name = shared.name;
                mapped.map_err(|error| {
                    refusal!(
                        Machine,
                        "/shared-memory/{name}: cannot be mapped: {error:?}"
                    )
                })?;
            }
        }
    }
    Ok(())
}
