//! The word that a real-time VM changes as a sign of life: the first of the VM's page among those
//! of [`el2::STOLEN_TIME`]. A real-time VM has no use for the page else, as nothing is stolen from it.
//!
//! Requirements: G1-SUP-004.

use core::sync::atomic::{AtomicU64, Ordering};

use gear1_abi::id::VmId;
use gear1_abi::layout::{PAGE_SIZE, el2};

/// Returns the word of a VM.
///
/// # Safety
///
/// The VM is one of the manifest's.
#[must_use]
pub unsafe fn word(vm: VmId) -> u64 {
    let page = el2::STOLEN_TIME.wrapping_add(vm.reg().wrapping_mul(PAGE_SIZE));
    // SAFETY: init mapped a zeroed page for each VM of the manifest, such as the caller's, for
    // good; the VM writes it meanwhile, so the word is an atomic.
    let word = unsafe { &*(page as *const AtomicU64) };
    word.load(Ordering::Relaxed)
}
