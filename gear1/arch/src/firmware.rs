//! Calls into firmware: PSCI by SMC. A spin-table is `window::release_cpu`.
//!
//! Requirements: G1-PSCI-003.

use core::arch::asm;

use gear1_abi::boot::EnableMethod;

const CPU_ON_64: u64 = 0xc400_0003;
const CPU_OFF: u64 = 0x8400_0002;
const SYSTEM_OFF: u64 = 0x8400_0008;
const SYSTEM_RESET: u64 = 0x8400_0009;

fn call(method: EnableMethod, function: u64, a: u64, b: u64, c: u64) -> i64 {
    let result: u64;
    match method {
        EnableMethod::PsciSmc => {
            // SAFETY: SMC goes to EL3 firmware, which keeps X18 to X30 and SP
            // (SMCCC 1.0 keeps less than 1.1; X0 to X17 are declared lost).
            unsafe {
                asm!("smc #0", inout("x0") function => result, inout("x1") a => _, inout("x2") b => _,
                    inout("x3") c => _, out("x4") _, out("x5") _, out("x6") _, out("x7") _, out("x8") _,
                    out("x9") _, out("x10") _, out("x11") _, out("x12") _, out("x13") _, out("x14") _,
                    out("x15") _, out("x16") _, out("x17") _, options(nostack));
            }
        }
        // HVC from EL2 would come back to our own vectors, and a spin-table has no calls.
        EnableMethod::PsciHvc | EnableMethod::SpinTable => return -1,
    }
    result as i64
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
