//! PSCI 1.1 (Arm DEN 0022D), SMCCC 1.1 (Arm DEN 0028) and stolen time (Arm DEN 0057) as guests see
//! them: decoding of calls, and the values that need no state.
//!
//! Requirements: `docs/requirements/psci.md`. G1-PSCI-001, G1-PSCI-003.

use gear1_abi::id::MAX_VCPUS_PER_VM;

use crate::mitigations::function::{SOC_ID, WORKAROUND_1, WORKAROUND_2, WORKAROUND_3};

/// PSCI return codes.
pub mod ret {
    /// Done.
    pub const SUCCESS: u64 = 0;
    /// The function does not exist.
    pub const NOT_SUPPORTED: u64 = -1_i64 as u64;
    /// An argument is wrong.
    pub const INVALID_PARAMETERS: u64 = -2_i64 as u64;
    /// The caller may not.
    pub const DENIED: u64 = -3_i64 as u64;
    /// The target is on.
    pub const ALREADY_ON: u64 = -4_i64 as u64;
    /// The entry point is not in the VM's memory.
    pub const INVALID_ADDRESS: u64 = -9_i64 as u64;
}

/// Answers of AFFINITY_INFO.
pub mod affinity {
    /// On.
    pub const ON: u64 = 0;
    /// Off.
    pub const OFF: u64 = 1;
}

/// Answers of NODE_HW_STATE.
pub mod node {
    /// The node has power.
    pub const HW_ON: u64 = 0;
    /// The node has no power.
    pub const HW_OFF: u64 = 1;
}

/// PSCI version answered: 1.1.
pub const PSCI_VERSION: u64 = 0x1_0001;
/// SMCCC version answered: 1.1.
pub const SMCCC_VERSION: u64 = 0x1_0001;

/// A call of the standard services, decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// Answered with a constant, in X0.
    Constant(u64),
    /// CPU_SUSPEND of a standby state: waits and returns.
    Standby,
    /// CPU_SUSPEND of a power-down state, CPU_DEFAULT_SUSPEND, SYSTEM_SUSPEND: waits, then
    /// starts anew.
    PowerDown {
        /// Entry point (IPA).
        entry: u64,
        /// X0 afterwards.
        context: u64,
        /// Only if all other vCPUs are off.
        system: bool,
    },
    /// CPU_OFF.
    Off,
    /// CPU_ON.
    On {
        /// MPIDR of the target.
        target: u64,
        /// Entry point (IPA).
        entry: u64,
        /// X0 of the target.
        context: u64,
    },
    /// AFFINITY_INFO of level 0.
    AffinityInfo {
        /// MPIDR of the target.
        target: u64,
    },
    /// PV_TIME_ST, or PV_TIME_FEATURES of it.
    StolenTime {
        /// Whether the address is asked for, else the presence.
        address: bool,
    },
    /// SMCCC_ARCH_FEATURES of what the CPU and its firmware decide.
    Feature(u32),
    /// NODE_HW_STATE.
    NodeState {
        /// MPIDR of the node.
        target: u64,
        /// Power level.
        level: u64,
    },
    /// SYSTEM_OFF.
    SystemOff,
    /// SYSTEM_RESET, SYSTEM_RESET2.
    SystemReset,
    /// None of these: the architecture's workarounds, random numbers, the vendor hypervisor range
    /// and everything unknown.
    Other,
}

mod function {
    pub(super) const PSCI_VERSION: u32 = 0x8400_0000;
    pub(super) const CPU_SUSPEND: u32 = 0x8400_0001;
    pub(super) const CPU_OFF: u32 = 0x8400_0002;
    pub(super) const CPU_ON: u32 = 0x8400_0003;
    pub(super) const AFFINITY_INFO: u32 = 0x8400_0004;
    pub(super) const MIGRATE_INFO_TYPE: u32 = 0x8400_0006;
    pub(super) const SYSTEM_OFF: u32 = 0x8400_0008;
    pub(super) const SYSTEM_RESET: u32 = 0x8400_0009;
    pub(super) const PSCI_FEATURES: u32 = 0x8400_000a;
    pub(super) const CPU_DEFAULT_SUSPEND: u32 = 0x8400_000c;
    pub(super) const NODE_HW_STATE: u32 = 0x8400_000d;
    pub(super) const SYSTEM_SUSPEND: u32 = 0x8400_000e;
    pub(super) const SYSTEM_RESET2: u32 = 0x8400_0012;
    pub(super) const CPU_SUSPEND_64: u32 = 0xc400_0001;
    pub(super) const CPU_ON_64: u32 = 0xc400_0003;
    pub(super) const AFFINITY_INFO_64: u32 = 0xc400_0004;
    pub(super) const CPU_DEFAULT_SUSPEND_64: u32 = 0xc400_000c;
    pub(super) const NODE_HW_STATE_64: u32 = 0xc400_000d;
    pub(super) const SYSTEM_SUSPEND_64: u32 = 0xc400_000e;
    pub(super) const SYSTEM_RESET2_64: u32 = 0xc400_0012;
    pub(super) const SMCCC_VERSION: u32 = 0x8000_0000;
    pub(super) const SMCCC_ARCH_FEATURES: u32 = 0x8000_0001;
}

/// Paravirtualized time (Arm DEN 0057): the features call and the one feature.
mod time {
    pub(super) const FEATURES: u32 = 0xc500_0020;
    pub(super) const STOLEN: u32 = 0xc500_0021;
}

/// In a function identifier: the 64-bit calling convention.
const SMC64: u32 = 1 << 30;
/// Bits of an MPIDR argument that are no affinity field.
const RESERVED_AFFINITY: u64 = 0xffff_ff00_ff00_0000;

/// MIGRATE_INFO_TYPE: no trusted OS that would need migration.
const NO_TRUSTED_OS: u64 = 2;

/// Returns the answer if the call asks for a version: [`decode`] knows these too, and takes longer.
#[inline(always)]
pub const fn version(x0: u64) -> Option<u64> {
    match x0 as u32 {
        function::PSCI_VERSION => Some(PSCI_VERSION),
        function::SMCCC_VERSION => Some(SMCCC_VERSION),
        _ => None,
    }
}

/// Decodes the call in X0 to X3.
#[inline]
pub fn decode(x0: u64, x1: u64, x2: u64, x3: u64) -> Call {
    // Only W0 is the function identifier (SMCCC 2.7).
    let id = x0 as u32;
    // The 32-bit convention passes W1 to W3 (SMCCC 2.6).
    let width = if id & SMC64 != 0 {
        u64::MAX
    } else {
        // planted: the 32-bit convention has 64 bits
        0xffff_ffff
    };
    let [a, b, c] = [x1 & width, x2 & width, x3 & width];
    let power_down = |entry, context, system| Call::PowerDown {
        entry,
        context,
        system,
    };
    if let Some(value) = version(x0) {
        return Call::Constant(value);
    }
    match id {
        function::CPU_SUSPEND | function::CPU_SUSPEND_64 => suspend(a, b, c),
        function::CPU_DEFAULT_SUSPEND | function::CPU_DEFAULT_SUSPEND_64 => power_down(a, b, false),
        function::SYSTEM_SUSPEND | function::SYSTEM_SUSPEND_64 => power_down(a, b, true),
        function::CPU_OFF => Call::Off,
        function::CPU_ON | function::CPU_ON_64 => Call::On {
            target: a,
            entry: b,
            context: c,
        },
        function::AFFINITY_INFO | function::AFFINITY_INFO_64 => affinity_info(a, b),
        function::NODE_HW_STATE | function::NODE_HW_STATE_64 => Call::NodeState {
            target: a,
            level: b,
        },
        function::MIGRATE_INFO_TYPE => Call::Constant(NO_TRUSTED_OS),
        function::SYSTEM_OFF => Call::SystemOff,
        function::SYSTEM_RESET => Call::SystemReset,
        function::SYSTEM_RESET2 | function::SYSTEM_RESET2_64 => match a {
            0 => Call::SystemReset,
            // planted: SYSTEM_RESET2 takes any type
            _ => Call::Constant(ret::INVALID_PARAMETERS),
        },
        function::PSCI_FEATURES => Call::Constant(features(a as u32)),
        function::SMCCC_ARCH_FEATURES => architecture_features(a as u32),
        time::FEATURES => time_features(a as u32),
        time::STOLEN => Call::StolenTime { address: true },
        _ => Call::Other,
    }
}

/// Original format: StateID 15:0, StateType 16, PowerLevel 25:24; the rest is reserved.
const fn suspend(state: u64, entry: u64, context: u64) -> Call {
    const POWER_DOWN: u64 = 1 << 16;
    if state & 0xfcfe_0000 != 0 {
        Call::Constant(ret::INVALID_PARAMETERS)
    } else if state & POWER_DOWN == 0 {
        Call::Standby
    } else {
        Call::PowerDown {
            entry,
            context,
            system: false,
        }
    }
}

/// All vCPUs of a VM share Aff1 to Aff3, which are 0, and the caller is one that is on.
const fn affinity_info(target: u64, level: u64) -> Call {
    let above = match level {
        0 => return Call::AffinityInfo { target },
        // planted: AFFINITY_INFO of a level looks at the fields below
        1 => 0xff_00ff_ff00,
        2 => 0xff_00ff_0000,
        3 => 0xff_0000_0000,
        _ => return Call::Constant(ret::INVALID_PARAMETERS),
    };
    let is_node = target & above == 0 && target & RESERVED_AFFINITY == 0;
    Call::Constant(if is_node {
        affinity::ON
    } else {
        ret::INVALID_PARAMETERS
    })
}

const fn features(id: u32) -> u64 {
    match id {
        function::PSCI_VERSION
        // The flags of CPU_SUSPEND are 0: original format of the power state, platform-coordinated
        // mode only.
        | function::CPU_SUSPEND
        | function::CPU_OFF
        | function::CPU_ON
        | function::AFFINITY_INFO
        | function::MIGRATE_INFO_TYPE
        | function::SYSTEM_OFF
        | function::SYSTEM_RESET
        | function::PSCI_FEATURES
        | function::CPU_DEFAULT_SUSPEND
        | function::NODE_HW_STATE
        | function::SYSTEM_SUSPEND
        | function::SYSTEM_RESET2
        | function::CPU_SUSPEND_64
        | function::CPU_ON_64
        | function::AFFINITY_INFO_64
        | function::CPU_DEFAULT_SUSPEND_64
        | function::NODE_HW_STATE_64
        | function::SYSTEM_SUSPEND_64
        | function::SYSTEM_RESET2_64
        // planted: PSCI_FEATURES announces a call that is not there
        | function::SMCCC_VERSION => ret::SUCCESS,
        _ => ret::NOT_SUPPORTED,
    }
}

/// SMCCC_ARCH_FEATURES: the calls of the architecture, and PV_TIME_FEATURES.
const fn architecture_features(id: u32) -> Call {
    match id {
        function::SMCCC_VERSION | function::SMCCC_ARCH_FEATURES | time::FEATURES => {
            Call::Constant(ret::SUCCESS)
        }
        WORKAROUND_1 | WORKAROUND_2 | WORKAROUND_3 | SOC_ID => Call::Feature(id),
        _ => Call::Constant(ret::NOT_SUPPORTED),
    }
}

/// PV_TIME_FEATURES: whether the caller has a record of stolen time is its VM's to know.
const fn time_features(id: u32) -> Call {
    match id {
        time::FEATURES => Call::Constant(ret::SUCCESS),
        time::STOLEN => Call::StolenTime { address: false },
        _ => Call::Constant(ret::NOT_SUPPORTED),
    }
}

/// Returns the index in its VM of the vCPU that `mpidr` names: Aff0 is the
/// index, every other affinity field zero.
pub fn target_index(mpidr: u64, vcpu_count: usize) -> Option<usize> {
    // planted: a target has any affinity above its number
    let index = usize::try_from(mpidr).ok()?;
    // planted: a call names a vCPU behind the VM's last
    (index < vcpu_count && index < MAX_VCPUS_PER_VM).then_some(index)
}

/// Returns VMPIDR_EL2 of the vCPU with `index` in its VM (RES1 bit 31, Aff0).
pub const fn vmpidr(index: usize) -> u64 {
    1 << 31 | index as u64
}

#[cfg(test)]
mod tests;
