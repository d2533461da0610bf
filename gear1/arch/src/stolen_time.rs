//! The pages that tell each VM how much time its vCPUs lost (Arm DEN 0057). Only Gear1 writes
//! them, the VM reads.
//!
//! Requirements: G1-TIM-007.

use core::sync::atomic::Ordering;

use gear1_abi::guest::StolenTime;
use gear1_abi::id::{MAX_VCPUS_PER_VM, VmId};
use gear1_abi::layout::{PAGE_SIZE, el2};
use gear1_core::timer::nanoseconds;

use crate::regs::{CNTFRQ_EL0, Readable as _};

/// Updates how many ticks were stolen from the vCPU with `index` in the VM. Only a vCPU's owner CPU
/// does so.
///
/// # Safety
///
/// The VM is one of the manifest's.
pub unsafe fn update(vm: VmId, index: usize, ticks: u64) {
    let page = el2::STOLEN_TIME.wrapping_add(vm.reg().wrapping_mul(PAGE_SIZE));
    let page = page as *const [StolenTime; MAX_VCPUS_PER_VM];
    // SAFETY: init mapped a zeroed page for each VM of the manifest, such as the caller's, for
    // good; what is written in it is atomic.
    let entries = unsafe { &*page };
    if let Some(entry) = entries.get(index) {
        let time = nanoseconds(ticks, CNTFRQ_EL0.get());
        entry.nanoseconds.store(time, Ordering::Relaxed);
    }
}
