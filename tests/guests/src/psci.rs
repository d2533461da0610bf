//! Calls to what runs below: SMCCC (Arm DEN 0028), PSCI (Arm DEN 0022) and GearV's own.

use core::arch::asm;

use gear1_abi::guest;

use crate::cpu;

/// Function identifiers of PSCI and of the Arm architecture service.
pub mod function {
    /// PSCI_VERSION.
    pub const VERSION: u32 = 0x8400_0000;
    /// CPU_SUSPEND, SMC64.
    pub const CPU_SUSPEND: u32 = 0xC400_0001;
    /// CPU_DEFAULT_SUSPEND, SMC64.
    pub const CPU_DEFAULT_SUSPEND: u32 = 0xC400_000C;
    /// NODE_HW_STATE, SMC64.
    pub const NODE_HW_STATE: u32 = 0xC400_000D;
    /// SYSTEM_SUSPEND, SMC64.
    pub const SYSTEM_SUSPEND: u32 = 0xC400_000E;
    /// SYSTEM_RESET2, SMC64.
    pub const SYSTEM_RESET2: u32 = 0xC400_0012;
    /// CPU_OFF.
    pub const CPU_OFF: u32 = 0x8400_0002;
    /// CPU_ON, SMC64.
    pub const CPU_ON: u32 = 0xC400_0003;
    /// AFFINITY_INFO, SMC64.
    pub const AFFINITY_INFO: u32 = 0xC400_0004;
    /// SYSTEM_OFF.
    pub const SYSTEM_OFF: u32 = 0x8400_0008;
    /// SYSTEM_RESET.
    pub const SYSTEM_RESET: u32 = 0x8400_0009;
    /// PSCI_FEATURES.
    pub const FEATURES: u32 = 0x8400_000A;
    /// SMCCC_VERSION.
    pub const SMCCC_VERSION: u32 = 0x8000_0000;
    /// SMCCC_ARCH_FEATURES.
    pub const ARCH_FEATURES: u32 = 0x8000_0001;
}

/// Paravirtualized time (Arm DEN 0057).
pub mod time {
    /// PV_TIME_FEATURES.
    pub const FEATURES: u32 = 0xC500_0020;
    /// PV_TIME_ST.
    pub const STOLEN: u32 = 0xC500_0021;
}

/// Results of PSCI calls, as 32-bit numbers.
pub mod result {
    /// Success.
    pub const SUCCESS: i32 = 0;
    /// The function is not there.
    pub const NOT_SUPPORTED: i32 = -1;
    /// An argument makes no sense.
    pub const INVALID_PARAMETERS: i32 = -2;
    /// The state does not allow it.
    pub const DENIED: i32 = -3;
    /// The CPU is on.
    pub const ALREADY_ON: i32 = -4;
    /// The CPU is being turned on.
    pub const ON_PENDING: i32 = -5;
    /// The entry point is not memory of the caller's.
    pub const INVALID_ADDRESS: i32 = -9;
}

/// Answers of AFFINITY_INFO.
pub mod affinity {
    /// The CPU is on.
    pub const ON: i32 = 0;
    /// The CPU is off.
    pub const OFF: i32 = 1;
    /// The CPU is being turned on.
    pub const ON_PENDING: i32 = 2;
}

macro_rules! conduit {
    ($(#[$doc:meta])* $name:ident, $instruction:literal) => {
        $(#[$doc])*
        #[inline(always)]
        pub fn $name(function: u32, arguments: [u64; 3]) -> [u64; 4] {
            let mut x = [function.into(), arguments[0], arguments[1], arguments[2]];
            // SAFETY: by the calling convention, X0 to X17 may change and nothing else does.
            unsafe {
                asm!(
                    $instruction,
                    inout("x0") x[0], inout("x1") x[1], inout("x2") x[2], inout("x3") x[3],
                    out("x4") _, out("x5") _, out("x6") _, out("x7") _, out("x8") _, out("x9") _,
                    out("x10") _, out("x11") _, out("x12") _, out("x13") _, out("x14") _,
                    out("x15") _, out("x16") _, out("x17") _, options(nostack),
                );
            }
            x
        }
    };
}

conduit!(
    /// Calls `function` by HVC and returns X0 to X3.
    hvc, "hvc #0"
);
conduit!(
    /// Calls `function` by SMC and returns X0 to X3.
    smc, "smc #0"
);

unsafe extern "C" {
    fn _secondary();
}

/// Returns where a CPU of this guest starts; its context is its index.
pub fn entry() -> u64 {
    _secondary as *const () as u64
}

/// Turns CPU `index` on: it runs the guest's `other_cpu`.
pub fn cpu_on(index: usize) -> i32 {
    hvc(function::CPU_ON, [index as u64, entry(), index as u64])[0] as i32
}

/// Returns the state of CPU `index`.
pub fn affinity_info(index: usize) -> i32 {
    hvc(function::AFFINITY_INFO, [index as u64, 0, 0])[0] as i32
}

/// Turns this CPU off; returns only if that was refused.
pub fn cpu_off() {
    hvc(function::CPU_OFF, [0; 3]);
}

/// Turns the machine off.
pub fn system_off() {
    hvc(function::SYSTEM_OFF, [0; 3]);
}

/// Starts the machine anew.
pub fn system_reset() -> ! {
    hvc(function::SYSTEM_RESET, [0; 3]);
    cpu::halt()
}

/// Tells whether GearV answers.
pub fn is_gearv() -> bool {
    hvc(guest::CALL_UID, [0; 3]) == guest::UID.map(u64::from)
}

/// Has a Gear2 built for it fail in some way if it was restarted so often, and returns how often it
/// was then.
pub fn fail_gear2(way: u64, restarts: u64) -> u64 {
    hvc(guest::GEAR2_FAIL, [way, restarts, 0])[0]
}

/// Goes to Gear2 and back.
pub fn gear2_nop() -> u64 {
    hvc(guest::GEAR2_NOP, [0; 3])[0]
}
