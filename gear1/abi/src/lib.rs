//! Definitions that both sides of every GearV interface share.
//!
//! Owns: the calls and events between Gear1 and Gear2, the hand-over from
//! Gear1's *init* image to its *runtime* image, the flat image header, the
//! address-space layouts, the identifiers and their limits, and the function
//! numbers a guest may use. Plain data and encodings only: no behaviour, no
//! dependency, no `unsafe`.
//!
//! Requirements: G1-BOOT-009.
#![no_std]
#![forbid(unsafe_code)]

pub mod boot;
pub mod call;
pub mod event;
pub mod exit;
pub mod guest;
pub mod id;
pub mod image;
pub mod info;
pub mod layout;
pub mod record;
pub mod regs;
pub mod trace;

/// Version of every structure and call in this crate: major in the upper half,
/// minor in the lower. Images whose major versions differ refuse each other.
pub const ABI_VERSION: u32 = 0x0001_000a;

/// Tells whether an image built for ABI `version` can work with this one.
pub const fn abi_compatible(version: u32) -> bool {
    // planted: Gear2 of another ABI is started
    version >> 16 == ABI_VERSION >> 16
}
