//! Calls into firmware: PSCI, the mitigations of Arm's architecture, and random numbers, by SMC. A
//! spin-table is `window::release_cpu`.
//!
//! Requirements: G1-PSCI-003, G1-CPU-012, G1-CPU-017.

use core::arch::asm;

use gear1_abi::boot::EnableMethod;
use gear1_core::mitigations::{Answers, NO_FIRMWARE, SocId, function};
use gear1_core::trng;

const PSCI_VERSION: u64 = 0x8400_0000;
const PSCI_FEATURES: u64 = 0x8400_000a;
const SMCCC_VERSION: u64 = 0x8000_0000;
const SMCCC_ARCH_FEATURES: u64 = 0x8000_0001;
/// PSCI 1.0, which has PSCI_FEATURES.
const PSCI_1_0: i32 = 0x1_0000;
/// SMCCC 1.1, which has SMCCC_ARCH_FEATURES.
const SMCCC_1_1: i32 = 0x1_0001;
const CPU_ON_64: u64 = 0xc400_0003;
const CPU_OFF: u64 = 0x8400_0002;
const SYSTEM_OFF: u64 = 0x8400_0008;
const SYSTEM_RESET: u64 = 0x8400_0009;

fn call(method: EnableMethod, function: u64, a: u64, b: u64, c: u64) -> i64 {
    let [result, ..] = call_all(method, [function, a, b, c]);
    result as i64
}

/// Calls the function in X0 with arguments in X1 to X3, and returns X0 to X3.
#[inline(always)]
fn call_all(method: EnableMethod, [function, a, b, c]: [u64; 4]) -> [u64; 4] {
    let (x0, x1, x2, x3): (u64, u64, u64, u64);
    match method {
        EnableMethod::PsciSmc => {
            // SAFETY: SMC goes to EL3 firmware, which keeps X18 to X30 and SP
            // (SMCCC 1.0 keeps less than 1.1; X0 to X17 are declared lost).
            unsafe {
                asm!("smc #0", inout("x0") function => x0, inout("x1") a => x1, inout("x2") b => x2,
                    inout("x3") c => x3, out("x4") _, out("x5") _, out("x6") _, out("x7") _, out("x8") _,
                    out("x9") _, out("x10") _, out("x11") _, out("x12") _, out("x13") _, out("x14") _,
                    out("x15") _, out("x16") _, out("x17") _, options(nostack));
            }
        }
        // HVC from EL2 would come back to our own vectors, and a spin-table has no calls.
        EnableMethod::PsciHvc | EnableMethod::SpinTable => return [u64::MAX, 0, 0, 0],
    }
    [x0, x1, x2, x3]
}

/// Turns on the CPU with `mpidr` at the physical address `entry`, MMU off. Returns the PSCI error.
///
/// # Safety
///
/// Code of this image that starts a CPU is at `entry`, and the CPU's arguments are in memory.
pub(crate) unsafe fn cpu_on(method: EnableMethod, mpidr: u64, entry: u64) -> Result<(), i64> {
    match call(method, CPU_ON_64, mpidr, entry, 0) {
        0 => Ok(()),
        error => Err(error),
    }
}

/// Turns this CPU off.
pub fn cpu_off(method: EnableMethod) -> ! {
    call(method, CPU_OFF, 0, 0, 0);
    crate::cpu::park()
}

/// Powers the machine off, or resets it.
pub fn system(method: EnableMethod, reset: bool) -> ! {
    call(
        method,
        if reset { SYSTEM_RESET } else { SYSTEM_OFF },
        0,
        0,
        0,
    );
    crate::cpu::park()
}

/// Calls a function of SMC32, whose result is a signed word.
#[inline(never)]
fn call_32(method: EnableMethod, function: u64, argument: u64) -> i32 {
    call(method, function, argument, 0, 0) as i32
}

/// Tells whether firmware has SMCCC_ARCH_FEATURES. Older firmware may take a function that it does
/// not know for an error, so that each step asks for the next one (Arm DEN 0028, appendix B).
fn has_features(method: EnableMethod) -> bool {
    call_32(method, PSCI_VERSION, 0) >= PSCI_1_0
        && call_32(method, PSCI_FEATURES, SMCCC_VERSION) >= 0
        && call_32(method, SMCCC_VERSION, 0) >= SMCCC_1_1
}

/// Asks firmware for what the calling CPU needs of workarounds 1 to 3. The answer is this CPU's:
/// CPUs of two clusters may get different ones (Arm DEN 0028, 7.4.2).
pub fn workarounds(method: EnableMethod) -> Answers {
    if !has_features(method) {
        return NO_FIRMWARE;
    }
    // Bound: 3 workarounds.
    [
        function::WORKAROUND_1,
        function::WORKAROUND_2,
        function::WORKAROUND_3,
    ]
    .map(|id| call_32(method, SMCCC_ARCH_FEATURES, id.into()))
}

/// Asks firmware for the SoC's version and revision.
pub fn soc_id(method: EnableMethod) -> SocId {
    let id = function::SOC_ID.into();
    if !has_features(method) || call_32(method, SMCCC_ARCH_FEATURES, id) < 0 {
        return SocId::NONE;
    }
    // Bound: 2 values.
    SocId([0, 1].map(|kind| call_32(method, id, kind)))
}

/// Has firmware carry out workaround 1 or 3 on this CPU.
pub fn work_around(method: EnableMethod, function: u32) {
    call_32(method, function.into(), 0);
}

/// Tells whether firmware has the TRNG service. A version is not negative (Arm DEN 0098).
pub fn has_trng(method: EnableMethod) -> bool {
    let version = trng::function::VERSION.into();
    has_features(method) && call_32(method, version, 0) >= trng::VERSION as i32
}

/// Calls a function of the TRNG service. Lasts as long as firmware waits for its source.
#[inline(never)]
pub fn trng(method: EnableMethod, function: u64, argument: u64) -> trng::Results {
    call_all(method, [function, argument, 0, 0])
}
