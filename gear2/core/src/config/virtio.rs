//! Where a guest's virtio devices are.

use core::ops::Range;

use gear1_abi::event::Mmio;
use gear2_protocol::VIRTIO_STRIDE;
use gearv_manifest::{Manifest, Vm};

/// The page of a guest's virtio-mmio registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct VirtioPage {
    /// Guest address of the page (IPA).
    pub(crate) ipa: u64,
    /// Channel of the first device.
    pub(crate) first_channel: u32,
    /// Number of devices.
    pub(crate) count: u32,
    /// Number of the page among those of all VMs.
    pub(crate) number: usize,
}

impl VirtioPage {
    pub(super) fn new(manifest: &Manifest<'_>, vm: &Vm<'_>) -> Option<Self> {
        let (first, _) = manifest.virtio_of(vm.id).next()?;
        Some(Self {
            ipa: vm.virtio_ipa,
            first_channel: u32::try_from(first).ok()?,
            count: u32::try_from(manifest.virtio_of(vm.id).count()).ok()?,
            number: manifest.virtio_vms().position(|one| one.id == vm.id)?,
        })
    }

    /// Returns channel and register offset of an access, `None` if no device is there or the
    /// access is not aligned.
    #[inline]
    pub(crate) fn locate(&self, access: Mmio) -> Option<(u32, u32)> {
        let offset = access.ipa.checked_sub(self.ipa)?;
        let device = u32::try_from(offset / VIRTIO_STRIDE).ok()?;
        let register = u32::try_from(offset % VIRTIO_STRIDE).ok()?;
        // An access that is not aligned would reach into the next register.
        let aligned = access.ipa.trailing_zeros() >= u32::from(access.size_log2);
        let there = device < self.count && aligned;
        there.then_some((self.first_channel + device, register))
    }

    /// Iterates over the channels of the devices.
    pub(crate) const fn channels(&self) -> Range<u32> {
        self.first_channel..self.first_channel + self.count
    }
}
