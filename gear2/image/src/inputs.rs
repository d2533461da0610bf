//! What Gear1 left in memory: the description of the machine and the manifest.

use gear1_abi::info::Gear2Info;
use gear1_abi::layout::gear2::{INFO, MANIFEST};

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

const _: () = assert!(size_of::<Gear2Info>() <= 4096);
