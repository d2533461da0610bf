//! Faults of an IPMMU: a status of each context. It tells neither which micro-TLB the access came
//! by nor whether it was a write, so the event's stream is the context's number and its access is
//! unknown. Nor does it tell of faults that came behind: each event says that others may be lost.
//! The address that two registers (IMELAR, IMEUAR) have beside the status is not told.
//!
//! Requirements: G1-DMA-003.

use tock_registers::register_bitfields;

use super::{FIRST_OWN, IMSTR, NOBODYS, of_context};
use crate::smmu::event::{Event, number};
use crate::smmu::v2::Device;

register_bitfields! { u32,
    /// IMSTR.
    STATUS [
        /// Several translations of one address.
        MHIT OFFSET(4) NUMBITS(1) [],
        /// A walk that memory refuses.
        ABORT OFFSET(2) NUMBITS(1) [],
        /// A permission that the page lacks.
        PF OFFSET(1) NUMBITS(1) [],
        /// No translation.
        TF OFFSET(0) NUMBITS(1) [],
    ],
}

/// Takes a fault out of the registers: of one of the `own` contexts of VMs, or of the micro-TLBs
/// that no VM owns. A device without an owner may fault all the time, and comes last: VMs' faults
/// have to be seen. Calls do not overlap.
pub fn take(device: &mut impl Device, own: u32) -> Option<Event> {
    let contexts = FIRST_OWN..FIRST_OWN.wrapping_add(own);
    // Bound: contexts (8).
    // planted: a device without an owner hides the faults of VMs
    for context in contexts.chain([NOBODYS]) {
        let at = of_context(0, context, IMSTR);
        let status = device.read32(at);
        let Some(number) = number_of(status) else {
            continue;
        };
        // Zeroes clear a status, and not ones.
        // planted: a fault of an IPMMU is told for ever
        device.write32(at, 0);
        return Some(Event {
            number,
            stream: context,
            access: None,
            is_overflow: true,
        });
    }
    None
}

/// Returns the number of the event that says what a context's status says; `None`: no fault.
fn number_of(status: u32) -> Option<u8> {
    if STATUS::PF.is_set(status) {
        Some(number::PERMISSION)
    } else if STATUS::TF.is_set(status) {
        Some(number::TRANSLATION)
    } else if STATUS::ABORT.is_set(status) {
        Some(number::WALK)
    } else if STATUS::MHIT.is_set(status) {
        Some(number::TLB_CONFLICT)
    } else {
        None
    }
}
