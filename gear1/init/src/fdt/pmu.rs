//! Performance monitors of the board's CPUs.
//!
//! Requirements: G1-BOOT-001.

use gear1_abi::boot::PMU_INTID;
use gearv_manifest::blob::{Node, Texts};

/// A private interrupt.
const PPI: u32 = 1;
/// INTID of the first private interrupt, which specifiers count from 0.
const FIRST_PPI: u32 = 16;

/// The PMUs of Armv8 CPUs.
pub(crate) const PMUS: Texts = Texts::new(&[
    "arm,armv8-pmuv3",
    "arm,cortex-a53-pmu",
    "arm,cortex-a55-pmu",
    "arm,cortex-a57-pmu",
    "arm,cortex-a72-pmu",
    "arm,cortex-a76-pmu",
    "arm,neoverse-n1-pmu",
]);

/// Tells whether a PMU interrupts by the PPI that guests have. The interrupt is handed on as it is,
/// so a guest on another board would wait for the wrong one.
pub(super) fn has_guests_ppi(pmu: &Node<'_>) -> bool {
    let cells = pmu.property("interrupts").and_then(|list| list.cells());
    let cells = cells.map(|cells| cells.take(2));
    cells.is_some_and(|cells| cells.eq([PPI, PMU_INTID - FIRST_PPI]))
}
