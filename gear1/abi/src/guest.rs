//! Function identifiers a guest may call with HVC or SMC beside the standard
//! ones (SMCCC, Arm DEN 0028: the vendor-specific hypervisor service range).
//!
//! Requirements: G1-RUN-007.

/// Returned for unknown functions (SMCCC 1.x `NOT_SUPPORTED`).
pub const NOT_SUPPORTED: u64 = u64::MAX;
/// Returned for arguments that make no sense (`INVALID_PARAMETERS`).
pub const INVALID_PARAMETERS: u64 = -3i64 as u64;

/// First function of the vendor hypervisor range, SMC32 convention.
pub const VENDOR_HYP_32: u32 = 0x8600_0000;
/// First function of the vendor hypervisor range, SMC64 convention.
pub const VENDOR_HYP_64: u32 = 0xC600_0000;

/// Tells whether the function in W0 is in the vendor hypervisor range.
pub const fn is_vendor(x0: u64) -> bool {
    matches!(x0 as u32 & 0xffff_0000, VENDOR_HYP_32 | VENDOR_HYP_64)
}

/// Does nothing, in Gear2: returns 0. Measures the way to Gear2 and back.
pub const GEAR2_NOP: u32 = 0x8600_0001;
/// Returns in X0 how often the calling vCPU left its VM for the
/// [`crate::exit::ExitReason`] numbered in X1, and in X1 the counter ticks
/// spent in exits of that reason that went to Gear2. Answered in Gear1.
pub const EXIT_STATS: u32 = 0xC600_0010;
/// Returns the GearV ABI version ([`crate::ABI_VERSION`]). Answered in Gear1.
pub const GEARV_VERSION: u32 = 0x8600_0011;
/// Makes Gear2 fail (X1: how, X2: only if it was restarted so often), in its build for tests of
/// that and no other. Answered by Gear2 with the count of restarts.
pub const GEAR2_FAIL: u32 = 0x8600_00FE;
/// Asks for the UID of the hypervisor (SMCCC "call UID query").
pub const CALL_UID: u32 = 0x8600_FF01;

/// Tells whether Gear1 may answer this function of the vendor hypervisor range: the two functions in
/// the middle, and the upper half of the numbers, in which SMCCC has its general queries (Arm DEN
/// 0028, 6.2). Each other one is Gear2's, and each of these that Gear1 does not know.
pub const fn may_be_gear1s(x0: u64) -> bool {
    const UPPER_HALF: u64 = 1 << 15;
    x0 & UPPER_HALF != 0 || x0 & 0xfffe == EXIT_STATS as u64 & 0xfffe
}
const _: () = assert!(may_be_gear1s(EXIT_STATS as u64) && may_be_gear1s(GEARV_VERSION as u64));
const _: () = assert!(may_be_gear1s(CALL_UID as u64) && !may_be_gear1s(GEAR2_NOP as u64));

/// The UID that [`CALL_UID`] returns in W0 to W3.
pub const UID: [u32; 4] = [0x6765_6172, 0x4d0f_4b76, 0x9a31_c2f1, 0x0d5b_7e55];

/// Stolen time of one vCPU (Arm DEN 0057, table 3): 64 bytes, read by the guest.
#[derive(Debug)]
#[repr(C)]
pub struct StolenTime {
    /// 0.
    pub revision: u32,
    /// 0.
    pub attributes: u32,
    /// Nanoseconds in which the vCPU was ready but did not run.
    pub nanoseconds: core::sync::atomic::AtomicU64,
    /// 0.
    pub reserved: [u64; 6],
}
const _: () = assert!(size_of::<StolenTime>() == 64);
