//! Devices that their VM uses as firmware has left them: how many clocks each has.
//!
//! A VM cannot ask for a clock, a reset or power of a device that another owner has, firmware
//! above all. The manifest says which devices do without, and at which rates their clocks run.
//!
//! Requirements: G1-BOOT-014.

use alloc::vec::Vec;

use gearv_manifest::blob::Node;
use gearv_manifest::{Manifest, Rule};

use super::{Owned, Walk, cell, find, phandle};
use crate::refusal::{Fault, Refusal, refusal};

impl<'t> Walk<'_, '_, 't> {
    /// Notes that the VM uses the device at `path` as firmware has left it, if the manifest says
    /// so. A driver takes its clocks by their place in the list, so each needs a rate.
    pub(super) fn note_as_booted(&mut self, node: &Node<'t>, path: &str) -> Result<(), Refusal> {
        let mut kept = self.manifest.as_booted.iter();
        let Some(kept) = kept.find(|kept| kept.device == path) else {
            return Ok(());
        };
        let (clocks, rates) = (self.clock_count(node, path)?, kept.rates().count());
        // planted: a device's clock has no rate
        if clocks != rates {
            let why = alloc::format!("{path}: clocks: {clocks}, rates: {rates}");
            self.faults.push(Fault {
                parent: "as-booted",
                ..Fault::new(Rule::AsBootedClocks, kept.name, "clocks-hz", why)
            });
        }
        self.as_booted.push(*kept);
        Ok(())
    }

    /// Returns how many clocks a device has. Each entry is a provider's phandle and as many cells
    /// as the provider says; phandle 0 stands for a clock that is not there, and has no cells.
    fn clock_count(&self, node: &Node<'t>, path: &str) -> Result<usize, Refusal> {
        let wrong = || refusal!(Board, "{path}: clocks: not whole references");
        let Some(clocks) = node.property("clocks") else {
            return Ok(0);
        };
        let mut cells = clocks.cells().ok_or_else(wrong)?;
        let mut count = 0;
        // Each turn takes a cell at least.
        while let Some(wanted) = cells.next() {
            count += 1;
            if wanted == 0 {
                continue;
            }
            let provider = find(&self.root, &|node| phandle(node) == Some(wanted));
            let provider = provider.ok_or_else(wrong)?;
            for _ in 0..cell(&provider, "#clock-cells").unwrap_or(0) {
                cells.next().ok_or_else(wrong)?;
            }
        }
        Ok(count)
    }
}

/// Refuses a node of `/as-booted` that stands for no VM's device: with a misspelled path the device
/// would wait for its clocks.
pub(crate) fn check<'p, 'a: 'p>(
    manifest: &Manifest<'a>,
    owners: impl Iterator<Item = &'p Owned<'a>>,
    faults: &mut Vec<Fault>,
) {
    let used = owners.flat_map(|owned| &owned.as_booted);
    let used: Vec<&str> = used.map(|kept| kept.device).collect();
    let all = manifest.as_booted.iter();
    for kept in all.filter(|kept| !used.contains(&kept.device)) {
        faults.push(Fault {
            parent: "as-booted",
            ..Fault::new(Rule::NoSuchAsBooted, kept.name, "device", kept.device)
        });
    }
}
