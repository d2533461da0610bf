//! The keys of pointer authentication of the loaded guest (FEAT_PAuth, Arm ARM D8.10).
//!
//! Gear1 and Gear2 sign no pointers, so the keys stay loaded while those run, as the other registers
//! of EL1 do. A guest without the feature neither uses nor reads what another one has left: HCR_EL2's
//! API and APK are 0 for it.
//!
//! Requirements: G1-CPU-015.

use gear1_core::idregs::{IdReg, authentication_fields};
use gear1_core::pointer_auth::Keys;

use crate::cpu::id_register;
use crate::regs::{
    APDAKEYHI_EL1, APDAKEYLO_EL1, APDBKEYHI_EL1, APDBKEYLO_EL1, APGAKEYHI_EL1, APGAKEYLO_EL1,
    APIAKEYHI_EL1, APIAKEYLO_EL1, APIBKEYHI_EL1, APIBKEYLO_EL1, Readable as _, Writeable as _,
};

/// Tells whether this CPU has the keys. On one that has none an access to them is UNDEFINED, at EL2
/// as well.
#[must_use]
pub fn exists() -> bool {
    // Bound: 2 registers.
    [IdReg::Isar1, IdReg::Isar2].into_iter().any(|reg| {
        let mut fields = authentication_fields(reg).iter();
        let value = id_register(reg);
        // Bound: 4 fields.
        fields.any(|shift| value.wrapping_shr(*shift) & 0xf != 0)
    })
}

macro_rules! keys {
    ($($reg:ident),+ $(,)?) => {
        /// Returns the keys.
        #[cold]
        #[must_use]
        pub fn save() -> Keys {
            [$($reg.get()),+]
        }

        /// Loads keys. A context synchronization event (the ERET) comes before the guest's first
        /// instruction.
        #[cold]
        pub fn restore(keys: &Keys) {
            let mut keys = keys.iter().copied();
            $($reg.set(keys.next().unwrap_or(0));)+
        }
    };
}

keys! {
    APIAKEYLO_EL1, APIAKEYHI_EL1, APIBKEYLO_EL1, APIBKEYHI_EL1, APDAKEYLO_EL1, APDAKEYHI_EL1,
    APDBKEYLO_EL1, APDBKEYHI_EL1, APGAKEYLO_EL1, APGAKEYHI_EL1,
}
