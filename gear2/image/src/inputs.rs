//! Memory that Gear1 prepared: the description of the machine, the manifest, and the region shared
//! with the device model.

use alloc::vec::Vec;
use core::sync::atomic::AtomicU64;

use gear1_abi::id::{MAX_CPUS, MAX_VMS};
use gear1_abi::info::Gear2Info;
use gear1_abi::layout::el2::TRACE_STRIDE;
use gear1_abi::layout::gear2::{HEAP, INFO, MANIFEST, REGISTERS, SHARED, TRACE};
use gear1_abi::trace::{HEADER_OFFSET, HEADER_SIZE};
use gear2_core::{Gear1Ring, Kept, Shared};
use gear2_protocol::{REGION_SIZE, Region, RegisterPage};

/// Returns the description of the machine. Only its first two fields mean anything
/// before [`gear2_core::config::check_abi`] has accepted them.
pub(crate) fn info() -> &'static Gear2Info {
    // SAFETY: Gear1 maps at least a page at `INFO` for good, readable and never written again
    // (`gear1_abi::layout`); it is page aligned, the structure fits, and any bits are valid in it.
    unsafe { &*(INFO as *const Gear2Info) }
}

/// Returns the manifest's blob.
pub(crate) fn manifest(info: &Gear2Info) -> &'static [u8] {
    // SAFETY: Gear1 maps `manifest_size` bytes at `MANIFEST` for good, readable and never written
    // again, and says so in an `info` of our ABI version.
    unsafe { core::slice::from_raw_parts(MANIFEST as *const u8, info.manifest_size as usize) }
}

/// Returns what is shared with the device model, if there is a region of the size that this build
/// knows.
pub(crate) fn shared(info: &Gear2Info) -> Option<Shared> {
    if info.shared_size != REGION_SIZE as u64 {
        return None;
    }
    // SAFETY: Gear1 maps `shared_size` bytes at `SHARED` for good, read-write and write-back, and
    // says so in an `info` of our ABI version; it is page aligned, as `Region` demands. The region
    // consists of atomics only, of which any bits are valid, so that what the device VM stores
    // there meanwhile is no data race.
    let region = unsafe { &*(SHARED as *const Region) };
    let pages = pages(info);
    Some(Shared { region, pages })
}

/// Returns the register pages of served VMs.
fn pages(info: &Gear2Info) -> &'static [RegisterPage] {
    let count = info.register_pages.min(MAX_VMS as u64) as usize;
    // SAFETY: Gear1 maps `register_pages` pages at `REGISTERS` for good, read-write and uncached,
    // and says so in an `info` of our ABI version; they are page aligned, as `RegisterPage`
    // demands. A page consists of atomics only, which are read and written by plain loads and
    // stores, so that what the device VM stores there meanwhile is no data race.
    unsafe { core::slice::from_raw_parts(REGISTERS as *const RegisterPage, count) }
}

/// Returns Gear1's rings of trace records, by CPU.
pub(crate) fn rings(info: &Gear2Info) -> Vec<Gear1Ring> {
    let cpus = match info.trace_size {
        0 => 0,
        _ => info.cpu_count.min(MAX_CPUS as u32) as usize,
    };
    let length = (HEADER_SIZE + info.trace_size) as usize / 8;
    let ring = |cpu: usize| {
        let header = TRACE as usize + cpu * TRACE_STRIDE as usize + HEADER_OFFSET as usize;
        // SAFETY: Gear1 maps a page and `trace_size` bytes behind it for each CPU for good, readable,
        // and says so in an `info` of our ABI version; the header is at the page's end, aligned. The
        // words are atomics that are only loaded, so that what Gear1 stores there meanwhile is no data
        // race.
        Gear1Ring::new(unsafe { core::slice::from_raw_parts(header as *const AtomicU64, length) })
    };
    (0..cpus).map(ring).collect()
}

/// Returns what outlives a restart: the first page of the memory for the heap.
pub(crate) fn kept() -> &'static Kept {
    // SAFETY: Gear1 maps the heap read-write for Gear2 alone, aligned to 2 MiB and at least that
    // large; `heap::give` leaves the first page out. It consists of atomics, of which any bits are
    // valid.
    unsafe { &*(HEAP as *const Kept) }
}

const _: () = assert!(size_of::<Gear2Info>() <= 4096);
