//! Guests' real-time clocks: a PL031 (Arm DDI 0224) that shows this VM's wall clock.
//!
//! All guests have one time, the device VM's, so that there is no state to keep for a guest: a gdm
//! that starts anew goes on where the one before ended. A guest cannot set the clock: a store is
//! dropped. The alarm has no interrupt line, which a guest's device tree says.

use std::sync::atomic::Ordering;
use std::time::{SystemTime, UNIX_EPOCH};

use gear2_protocol::{MmioSlot, RTC_DEVICE, slot};

#[cfg(test)]
mod tests;

/// RTCDR: seconds since 1970.
const DATA: u32 = 0x000;
/// RTCCR: bit 0 tells that the clock runs.
const CONTROL: u32 = 0x00c;
/// RTCPeriphID0 to RTCPCellID3, of which each register shows a byte.
const IDENTIFICATION: (u32, [u8; 8]) = (0xfe0, [0x31, 0x10, 0x04, 0x00, 0x0d, 0xf0, 0x05, 0xb1]);
/// Bit of [`MmioSlot::access`] that says that the access is a store.
const STORE: u32 = 1 << 2;

/// Answers the access of a slot if it is to a real-time clock, and tells whether it was.
pub(crate) fn answer(slot: &MmioSlot) -> bool {
    if slot.device.load(Ordering::Relaxed) != RTC_DEVICE {
        return false;
    }
    let is_store = slot.access.load(Ordering::Relaxed) & STORE != 0;
    if !is_store {
        let value = read(slot.register.load(Ordering::Relaxed), SystemTime::now());
        slot.value.store(value.into(), Ordering::Relaxed);
    }
    // Last, with release: Gear2 reads the value once it sees the state.
    slot.set_state(slot::DONE);
    true
}

/// Returns what a register shows at a time. RTCDR wraps in 2106, as the hardware's does.
fn read(register: u32, now: SystemTime) -> u32 {
    let (first, bytes) = IDENTIFICATION;
    match register {
        DATA => {
            let since = now.duration_since(UNIX_EPOCH).unwrap_or_default();
            since.as_secs() as u32
        }
        // The clock runs, and cannot be stopped.
        CONTROL => 1,
        _ => {
            let index = register.checked_sub(first).map(|offset| offset / 4);
            let byte = index.and_then(|index| bytes.get(index as usize));
            byte.copied().map_or(0, u32::from)
        }
    }
}
