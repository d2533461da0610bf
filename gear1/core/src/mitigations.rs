//! Firmware's mitigations of attacks on speculation, as one CPU needs them (Arm DEN 0028, 7): what
//! guests are told of them, and when Gear1 has to call them itself.
//!
//! A branch predictor that tags its entries by context (FEAT_CSV2) keeps one VM from training the
//! other's branches. The predictors of Cortex-A57 and A72 do not, so that firmware empties them
//! when another VM comes (CVE-2017-5715). A VM protects its own kernel from its own EL0, by the
//! calls that [`Mitigations::feature`] offers.
//!
//! Requirements: G1-CPU-012, G1-CPU-013.

use gear1_abi::id::VmId;

/// Functions of Arm's architecture that firmware may have (Arm DEN 0028, 7.4 to 7.7).
pub mod function {
    /// SMCCC_ARCH_SOC_ID.
    pub const SOC_ID: u32 = 0x8000_0002;
    /// SMCCC_ARCH_WORKAROUND_3: branch targets and branch history (CVE-2017-5715, CVE-2022-23960).
    pub const WORKAROUND_3: u32 = 0x8000_3fff;
    /// SMCCC_ARCH_WORKAROUND_2: loads that bypass stores (CVE-2018-3639).
    pub const WORKAROUND_2: u32 = 0x8000_7fff;
    /// SMCCC_ARCH_WORKAROUND_1: branch targets (CVE-2017-5715).
    pub const WORKAROUND_1: u32 = 0x8000_8000;
}

/// Answers of SMCCC_ARCH_FEATURES about a workaround.
pub mod answer {
    /// The CPU needs the call.
    pub const NEEDED: i32 = 0;
    /// The call does nothing on this CPU, which does not need it.
    pub const NOT_NEEDED: i32 = 1;
    /// There is no call.
    pub const NOT_SUPPORTED: i32 = -1;
    /// There is no call, as there is nothing that a caller could change.
    pub const NOT_REQUIRED: i32 = -2;
}

/// Identification of a CPU, from which its mitigations follow.
#[derive(Clone, Copy, Debug)]
pub struct Core {
    /// MIDR_EL1.
    pub midr: u64,
    /// ID_AA64PFR0_EL1.CSV2.
    pub csv2: u64,
    /// Whether the CPU has FEAT_SSBS.
    pub ssbs: bool,
}

/// Answers of a CPU's firmware to SMCCC_ARCH_FEATURES about workarounds 1 to 3.
pub type Answers = [i32; 3];

/// Firmware without SMCCC 1.1, or none.
pub const NO_FIRMWARE: Answers = [answer::NOT_SUPPORTED; 3];

/// Mitigations of one CPU.
#[derive(Clone, Copy, Debug)]
pub struct Mitigations {
    /// Answers to guests about workarounds 1 to 3.
    answers: Answers,
    /// Function that Gear1 calls when another VM comes; 0: none.
    at_change: u32,
    /// VM that this CPU ran last.
    last: Option<VmId>,
}

impl Mitigations {
    /// Of a CPU that is not up; all zero.
    pub const NONE: Self = Self {
        answers: [0; 3],
        at_change: 0,
        last: None,
    };

    /// Returns what holds on a CPU whose firmware has given these answers.
    ///
    /// A core that executes in order, or has FEAT_CSV2, is not affected whatever firmware says, as
    /// Linux and KVM take it. FEAT_CSV2 is about branch targets alone: branch history is tagged
    /// from FEAT_CSV2_3 on.
    pub const fn of(core: Core, [targets, bypass, history]: Answers) -> Self {
        let in_order = is_in_order(core.midr);
        // planted: a guest is told that a CPU needs what it does not
        let targets = unless(in_order || core.csv2 >= CSV2, call_answer(targets));
        let history = unless(in_order || core.csv2 >= CSV2_3, call_answer(history));
        let at_change = match (core.csv2, history, targets) {
            // planted: a CPU that tags its branches calls firmware too
            (CSV2.., _, _) => 0,
            // Workaround 3 does what 1 does as well.
            (_, answer::NEEDED, _) => function::WORKAROUND_3,
            (_, _, answer::NEEDED) => function::WORKAROUND_1,
            _ => 0,
        };
        Self {
            answers: [targets, bypass_answer(core, in_order, bypass), history],
            at_change,
            last: None,
        }
    }

    /// Returns the answer of SMCCC_ARCH_FEATURES to a guest about a workaround.
    pub const fn feature(&self, id: u32) -> i32 {
        let [targets, bypass, history] = self.answers;
        match id {
            function::WORKAROUND_1 => targets,
            function::WORKAROUND_2 => bypass,
            function::WORKAROUND_3 => history,
            _ => answer::NOT_SUPPORTED,
        }
    }

    /// Tells whether [`Mitigations::moves_in`] has to be told of every vCPU that is loaded.
    #[inline(always)]
    pub const fn is_needed(&self) -> bool {
        self.at_change != 0
    }

    /// Notes that a vCPU of `vm` is loaded. Returns whether the CPU ran another VM last, and then
    /// the function to call before it enters this one. What boot left trains nobody.
    pub fn moves_in(&mut self, vm: VmId) -> Option<u32> {
        // planted: branches of one VM train another's
        let is_another = self.last.replace(vm).is_some_and(|last| last != vm);
        is_another.then_some(self.at_change)
    }
}

/// ID_AA64PFR0_EL1.CSV2 of FEAT_CSV2: branch targets are tagged by context.
const CSV2: u64 = 1;
/// ID_AA64PFR0_EL1.CSV2 of FEAT_CSV2_3: branch history is tagged as well.
const CSV2_3: u64 = 3;

/// MIDR_EL1 without variant and revision: Arm's Cortex-A35, A53, A55, A510 and A520, which execute
/// in order and are in none of the three attacks' lists.
const IN_ORDER: [u64; 5] = [
    0x410f_d040,
    0x410f_d030,
    0x410f_d050,
    0x410f_d460,
    0x410f_d800,
];

const fn is_in_order(midr: u64) -> bool {
    let core = midr & 0xff0f_fff0;
    // Without a loop over the cores.
    let [a35, a53, a55, a510, a520] = IN_ORDER;
    core == a35 || core == a53 || core == a55 || core == a510 || core == a520
}

const fn unless(unaffected: bool, firmware: i32) -> i32 {
    if unaffected {
        answer::NOT_NEEDED
    } else {
        firmware
    }
}

/// Returns what firmware says of a workaround that is a call: another answer than those of the
/// specification offers no call.
const fn call_answer(firmware: i32) -> i32 {
    match firmware {
        answer::NEEDED | answer::NOT_NEEDED => firmware,
        _ => answer::NOT_SUPPORTED,
    }
}

/// Returns the answer to a guest about workaround 2. Firmware has the mitigation on from reset on,
/// and Gear1 leaves it on, since a guest that turned it off would do so for what runs next. So
/// there is nothing left for a guest to do, as under KVM. With FEAT_SSBS a guest has a bit of its
/// own, PSTATE.SSBS, and firmware's switch is not the way.
const fn bypass_answer(core: Core, in_order: bool, firmware: i32) -> i32 {
    match firmware {
        _ if in_order => answer::NOT_REQUIRED,
        answer::NEEDED if core.ssbs => answer::NOT_SUPPORTED,
        answer::NEEDED | answer::NOT_NEEDED | answer::NOT_REQUIRED => answer::NOT_REQUIRED,
        _ => answer::NOT_SUPPORTED,
    }
}

/// SoC version and revision, as firmware's SMCCC_ARCH_SOC_ID gives them at boot.
#[derive(Clone, Copy, Debug)]
pub struct SocId(pub [i32; 2]);

impl SocId {
    /// Firmware does not tell.
    pub const NONE: Self = Self([answer::NOT_SUPPORTED; 2]);

    /// Returns the answer of SMCCC_ARCH_FEATURES about SMCCC_ARCH_SOC_ID.
    pub const fn feature(self) -> i32 {
        let Self([version, _]) = self;
        if version < 0 {
            answer::NOT_SUPPORTED
        } else {
            0
        }
    }

    /// Returns the answer of SMCCC_ARCH_SOC_ID.
    pub const fn answer(self, kind: u32) -> i32 {
        /// INVALID_PARAMETER of the calling convention.
        const INVALID_PARAMETER: i32 = -3;
        let Self([version, revision]) = self;
        match (self.feature(), kind) {
            (answer::NOT_SUPPORTED, _) => answer::NOT_SUPPORTED,
            (_, 0) => version,
            (_, 1) => revision,
            _ => INVALID_PARAMETER,
        }
    }
}

#[cfg(test)]
mod tests;
