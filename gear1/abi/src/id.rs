//! Identifiers of CPUs, VMs and vCPUs, and how many of each there can be.
//!
//! Requirements: G1-VCPU-002.

/// Most physical CPUs one machine may have.
pub const MAX_CPUS: usize = 8;
/// Most VMs one manifest may declare, Gear2 not counted.
pub const MAX_VMS: usize = 16;
/// Most vCPUs of all VMs together.
pub const MAX_VCPUS: usize = 32;
/// Most vCPUs of one VM.
pub const MAX_VCPUS_PER_VM: usize = 8;

macro_rules! index_type {
    ($(#[$doc:meta])* $name:ident, $max:expr) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
        #[repr(transparent)]
        pub struct $name(u16);

        impl $name {
            /// The one with index 0.
            pub const FIRST: Self = Self(0);

            /// Returns the identifier for `index`, or `None` when it is beyond
            /// the fixed limit.
            pub const fn new(index: usize) -> Option<Self> {
                if index < $max {
                    #[expect(clippy::cast_possible_truncation, reason = "bounded by the check above")]
                    Some(Self(index as u16))
                } else {
                    None
                }
            }

            /// Returns the identifier in the low bits of `index`.
            pub const fn from_low_bits(index: usize) -> Self {
                #[expect(clippy::cast_possible_truncation, reason = "bounded by the mask")]
                Self((index & ($max - 1)) as u16)
            }

            /// Returns the identifier in the low 16 bits of a register.
            pub const fn from_reg(reg: u64) -> Option<Self> {
                if reg < $max as u64 {
                    Self::new(reg as usize)
                } else {
                    None
                }
            }

            /// Returns the plain index, always below the fixed limit.
            pub const fn index(self) -> usize {
                self.0 as usize
            }

            /// Returns the value as passed in a register.
            pub const fn reg(self) -> u64 {
                self.0 as u64
            }

            /// Returns this one's entry of an array that has an entry for each.
            #[inline(always)]
            pub const fn select<T>(self, all: &[T; $max]) -> &T {
                // The mask changes no index, and shows the compiler that there is an entry.
                &all[self.0 as usize & ($max - 1)]
            }

            /// Returns this one's entry likewise.
            #[inline(always)]
            pub const fn select_mut<T>(self, all: &mut [T; $max]) -> &mut T {
                &mut all[self.0 as usize & ($max - 1)]
            }
        }

        const _: () = assert!($max.is_power_of_two());
    };
}

index_type!(
    /// A physical CPU, in the order of the FDT's `/cpus` with the boot CPU's place kept.
    CpuIndex,
    MAX_CPUS
);
index_type!(
    /// A VM, in manifest order from 0. Gear2 is not one of them.
    VmId,
    MAX_VMS
);
index_type!(
    /// A vCPU of any VM: its VM's first vCPU plus its index in the VM.
    VcpuId,
    MAX_VCPUS
);
