//! The hand-over from init to the runtime, as the proof that the addresses in it are init's.
//!
//! Requirements: G1-BOOT-009.

use core::ops::Deref;

use gear1_abi::abi_compatible;
use gear1_abi::boot::{BOOT_MAGIC, BootInfo};
use gear1_abi::layout::el2;

/// Why the hand-over cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BootError {
    /// Another magic number.
    Magic,
    /// Built for an incompatible ABI version.
    AbiVersion,
}

/// The checked hand-over: its addresses are those that init assigned.
///
/// Only [`Handover::receive`] makes one, so a function that takes a `Handover` and an index into it
/// reaches no physical address but those that init assigned.
#[derive(Clone, Copy, Debug)]
pub struct Handover(&'static BootInfo);

impl Handover {
    /// Returns what init handed over to this image.
    ///
    /// # Safety
    ///
    /// The image is the runtime's, entered by init or from the boot page.
    pub unsafe fn receive() -> Result<Self, BootError> {
        // SAFETY: the caller's condition.
        unsafe { boot_info() }.map(Self)
    }

    /// Returns the structure, for as long as the image runs.
    #[must_use]
    pub const fn info(self) -> &'static BootInfo {
        self.0
    }
}

impl Deref for Handover {
    type Target = BootInfo;

    fn deref(&self) -> &BootInfo {
        self.0
    }
}

/// Reads the structure where init maps it.
///
/// # Safety
///
/// As for [`Handover::receive`].
unsafe fn boot_info() -> Result<&'static BootInfo, BootError> {
    let words = el2::BOOT_INFO as *const [u64; 2];
    // SAFETY: init maps the structure read-only at this address for good; its first
    // word is the magic number and the second holds the version in its low half,
    // whatever the version.
    let [magic, version] = unsafe { words.read() };
    let version = version as u32;
    if magic != BOOT_MAGIC {
        return Err(BootError::Magic);
    }
    if !abi_compatible(version) {
        return Err(BootError::AbiVersion);
    }
    // SAFETY: magic and version say that init wrote this very structure; nobody
    // writes it again.
    Ok(unsafe { &*words.cast::<BootInfo>() })
}
