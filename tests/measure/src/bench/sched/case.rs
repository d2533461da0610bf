//! A case: a question, and the system that is asked.

use super::figures::Question;
use super::vm::Run;

/// A question to one system.
#[derive(Clone, Debug)]
pub(super) struct Case {
    /// Question, the same for all systems.
    pub(super) what: String,
    /// Systems that are asked.
    pub(super) system: System,
    /// The machines that are started for it, one after the other.
    pub(super) runs: Vec<Run>,
    /// Number of the machine's CPUs, on all of which each VM may run.
    pub(super) cpus: u32,
    /// Figures that are computed from the reports.
    pub(super) question: Question,
}

/// A policy of Gear2, or a class of Linux. The name of either is what its row in the table is
/// called.
#[derive(Clone, Debug)]
pub(super) enum System {
    /// GearV.
    GearV {
        /// The policy in the manifest.
        policy: &'static str,
        /// More properties and nodes of `/gear2`.
        settings: String,
    },
    /// KVM on Debian's kernel.
    Kvm {
        /// The class, as the table calls it.
        class: &'static str,
    },
}

impl Case {
    /// Returns what the row is called, and what `--only` compares with.
    pub(super) fn name(&self) -> String {
        format!("{}, {}", self.what, self.system.name())
    }
}

impl System {
    /// Returns a policy of Gear2 with its defaults. The defaults are measured wherever a case does
    /// not ask for a setting, as most systems keep them.
    pub(super) fn gearv(policy: &'static str) -> System {
        let settings = String::new();
        System::GearV { policy, settings }
    }

    /// Returns a policy of Gear2 with more properties of `/gear2`.
    pub(super) fn gearv_with(policy: &'static str, settings: &str) -> System {
        let settings = settings.to_owned();
        System::GearV { policy, settings }
    }

    /// Returns the name in the table.
    pub(super) fn name(&self) -> String {
        match self {
            System::GearV { policy, .. } => format!("GearV {policy}"),
            System::Kvm { class } => format!("KVM {class}"),
        }
    }

    /// Tells whether KVM is asked. Goals are GearV's: a case that knows no other difference asks
    /// this to decide whether a figure is judged.
    pub(super) const fn is_kvm(&self) -> bool {
        matches!(self, System::Kvm { .. })
    }
}
