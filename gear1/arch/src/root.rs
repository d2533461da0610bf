//! Freezing of a VM's memory: the entries of the stage-2 root become invalid at once, and valid
//! again later. For a guest that has no other reason to leave (Arm ARM D8.14: break, then TLBI).
//!
//! Invariant: a frozen entry keeps all its bits but the valid one, and a mark that hardware ignores
//! in an invalid descriptor.
//!
//! Requirements: G1-RT-005.

use core::ptr;

use gear1_abi::boot::RealTime;
use gear1_abi::id::VmId;
use gear1_abi::layout::el2;

use crate::barrier;
use crate::handover::Handover;

const VALID: u64 = 1;
const FROZEN: u64 = 1 << 63;
/// Bytes of the four entries that are passed over together if they are empty.
const GROUP_SIZE: u64 = 32;

/// Makes all entries of the VM's root invalid. The caller invalidates the TLBs.
pub fn freeze(boot: Handover, vm: VmId) {
    change(boot, vm, VALID, FROZEN);
}

/// Makes the entries valid again.
pub fn thaw(boot: Handover, vm: VmId) {
    change(boot, vm, FROZEN, VALID);
}

/// Replaces a bit of the entries that have it. Only a VM with pass-through is frozen: it shares no
/// memory, so its entries are what init made them, and nobody else rewrites its root.
fn change(boot: Handover, vm: VmId, from: u64, to: u64) {
    let vm = vm.select(&boot.vms);
    if vm.real_time != RealTime::PassThrough {
        return;
    }
    let root = vm.root;
    let offset = root.wrapping_sub(boot.pool);
    if offset >= boot.pool_size || boot.root_size > boot.pool_size.wrapping_sub(offset) {
        return;
    }
    let mut group = el2::POOL.wrapping_add(offset) as *mut u64;
    // Bound: 16 tables of a root x 512 entries / 4.
    for _ in 0..boot.root_size / GROUP_SIZE {
        let [b, c, d] = [
            group.wrapping_add(1),
            group.wrapping_add(2),
            group.wrapping_add(3),
        ];
        // SAFETY: init maps the pool read-write at `POOL`; the entries lie in it and are aligned,
        // as roots are.
        let first = unsafe { ptr::read_volatile(group) };
        // SAFETY: as above.
        let second = unsafe { ptr::read_volatile(b) };
        // SAFETY: as above.
        let third = unsafe { ptr::read_volatile(c) };
        // SAFETY: as above.
        let fourth = unsafe { ptr::read_volatile(d) };
        // Most of a root is empty.
        if first | second | third | fourth != 0 {
            // Bound: 4 entries.
            for entry in [group, b, c, d] {
                // SAFETY: as above.
                let old = unsafe { ptr::read_volatile(entry) };
                let new = old & !from | if old & from != 0 { to } else { 0 };
                // SAFETY: as above. Hardware may walk it meanwhile: the store is one word.
                unsafe { ptr::write_volatile(entry, new) };
            }
        }
        group = group.wrapping_add(4);
    }
    barrier::dsb_ishst();
    barrier::isb();
}
