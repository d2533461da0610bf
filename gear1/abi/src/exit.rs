//! Reasons for which a vCPU leaves its VM. Each is counted per vCPU.
//!
//! Requirements: G1-RUN-007.

macro_rules! exit_reasons {
    ($($(#[$doc:meta])* $name:ident = $label:literal),+ $(,)?) => {
        /// Why a vCPU trapped to Gear1.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        pub enum ExitReason { $($(#[$doc])* $name),+ }

        impl ExitReason {
            /// All reasons in numeric order.
            pub const ALL: &'static [Self] = &[$(Self::$name),+];

            /// Number of reasons.
            pub const COUNT: usize = Self::ALL.len();

            /// Returns the short name shown to people.
            pub const fn label(self) -> &'static str {
                match self { $(Self::$name => $label),+ }
            }

            /// Returns the reason numbered `index`.
            pub fn from_index(index: usize) -> Option<Self> {
                Self::ALL.get(index).copied()
            }
        }
    };
}

exit_reasons! {
    /// HVC answered in Gear1 (PSCI, SMCCC).
    Hvc = "hvc",
    /// SMC answered in Gear1.
    Smc = "smc",
    /// Hypercall that Gear2 answers.
    HypercallGear2 = "hypercall-gear2",
    /// Trapped system register answered in Gear1.
    Sysreg = "sysreg",
    /// Software-generated interrupt of a GICv3 (ICC_SGI1R_EL1); of GICD_SGIR: `MmioGic`.
    Sgi = "sgi",
    /// Distributor or redistributor access emulated in Gear1.
    MmioGic = "mmio-gic",
    /// MMIO access that Gear2 answers.
    MmioGear2 = "mmio-gear2",
    /// Memory abort reflected to the guest.
    Abort = "abort",
    /// WFI.
    Wfi = "wfi",
    /// WFE.
    Wfe = "wfe",
    /// First use of FP, SIMD or SVE since another owner's, or of SVE by a VM without it.
    Fp = "fp",
    /// Virtual timer interrupt of the running vCPU.
    Timer = "timer",
    /// Physical interrupt injected into the running vCPU.
    IrqDirect = "irq-direct",
    /// Physical interrupt for somebody else, or one that was gone when it was acknowledged.
    IrqOther = "irq-other",
    /// Another CPU raised a request (pending interrupt, wake-up, stop).
    Kick = "kick",
    /// The deadline that Gear2 set passed.
    Deadline = "deadline",
    /// List-register maintenance.
    Maintenance = "maintenance",
    /// Instruction that this CPU model does not have; UNDEF reflected to the guest.
    Undefined = "undefined",
    /// Store to a channel, answered in Gear1.
    Channel = "channel",
    /// Access to an emulated PL061, answered in Gear1.
    MmioPl061 = "mmio-pl061",
    /// Access that runs again: what it faulted on has changed meanwhile, or its VM stops.
    Again = "again",
    /// Access to configuration space of a PCI bridge of which the VM owns functions, answered in
    /// Gear1.
    PciConfig = "pci-config",
}
