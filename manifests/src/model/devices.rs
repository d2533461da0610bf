//! Devices that the gears and the device model emulate for a VM.

use super::Region;

/// A VM's emulated PL011.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Console {
    /// Address of the register page in the guest (IPA).
    pub ipa: u64,
    /// INTID of a shared peripheral interrupt.
    pub intid: u32,
}

impl Console {
    /// The address and the interrupt of the PL011 of QEMU's `virt`.
    pub const DEFAULT: Self = Self {
        ipa: 0x0900_0000,
        intid: 33,
    };
}

/// A guest's emulated PL031, which shows the device VM's wall clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rtc {
    /// Address of the register page in the guest (IPA).
    pub ipa: u64,
}

impl Rtc {
    /// The address of the PL031 of QEMU's `virt`.
    pub const DEFAULT: Self = Self { ipa: 0x0901_0000 };
}

/// A guest's emulated generic watchdog (Arm DEN 0094, Base System Architecture).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WatchdogDevice {
    /// Address of the control frame in the guest (IPA); the refresh frame follows.
    pub ipa: u64,
    /// INTID of the first signal (WS0), level-sensitive.
    pub intid: u32,
}

impl WatchdogDevice {
    /// The control frame where the manifest says nothing: behind the real-time clock's page.
    pub const DEFAULT_IPA: u64 = 0x0902_0000;
    /// Bytes of the two frames.
    pub const SIZE: u64 = 0x2000;
    /// The interrupt, behind the console's.
    pub const INTID: u32 = 34;

    /// Returns where the guest sees the registers.
    #[must_use]
    pub const fn region(&self) -> Region {
        Region::new(self.ipa, self.ipa.saturating_add(Self::SIZE))
    }
}
