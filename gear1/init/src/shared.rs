//! Memory that several VMs have from boot on (`/shared-memory`): at its physical address in each, zero at first.
//!
//! Invariants: nobody else has it; who only reads it cannot write it; nobody executes it. It is no VM's own, so that no
//! VM can share, lend or donate it, and it stays what it is when a VM ends.
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

/// Tells it, for Linux, from the regions of the device model, which are counted from 1.
const FIRST_NUMBER: u8 = 0x80;

/// Takes it, before anything else is placed.
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

/// Zeroes it, describes it to Linux, and maps it in the VMs that have it.
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
