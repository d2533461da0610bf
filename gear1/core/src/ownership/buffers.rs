//! The buffers that descriptors are passed in: each VM's TX and RX page.
//!
//! Requirements: G1-MEM-012.

use gear1_abi::id::VmId;
use gear1_abi::layout::PAGE_SIZE;

use super::pages::{edit, edit_page, region_of, tidy_page};
use super::{Error, Ledger, Vms, bit};
use crate::addr::{Ipa, Pa};
use crate::stage2::{Edit, PageState};

const TO_BUFFER: Edit = edit(Some(PageState::Owned), Some(PageState::Buffer), 0);

/// Changes one page that stays mapped in `vm`'s stage 2, or nothing.
fn change_page<V: Vms>(vms: &mut V, vm: VmId, pa: Pa, edit: &Edit) -> Result<(), Error> {
    let result = edit_page(vms, vm, pa, edit);
    tidy_page(vms, vm, pa);
    result
}

impl Ledger {
    /// Returns a VM's TX and RX page.
    #[must_use]
    pub fn buffers(&self, vm: VmId) -> Option<(Pa, Pa)> {
        self.buffers.get(vm.index()).copied().flatten()
    }

    fn set_buffers(&mut self, vm: VmId, buffers: Option<(Pa, Pa)>) {
        if let Some(slot) = self.buffers.get_mut(vm.index()) {
            *slot = buffers;
        }
        self.rx_taken &= !bit(vm);
    }

    /// Makes two pages of a VM's own memory its TX and RX buffer.
    pub fn map_buffers<V: Vms>(
        &mut self,
        vms: &mut V,
        vm: VmId,
        tx: Ipa,
        rx: Ipa,
    ) -> Result<(), Error> {
        if self.buffers(vm).is_some() {
            return Err(Error::Denied);
        }
        let regions = vms.regions(vm);
        let own = |ipa: Ipa| {
            let region = region_of(regions, ipa.get(), PAGE_SIZE, |region| region.ipa)?;
            let offset = ipa.get().wrapping_sub(region.ipa);
            let pa = Pa::new(region.pa.wrapping_add(offset));
            ipa.is_aligned(PAGE_SIZE).then_some(pa)
        };
        let (Some(tx), Some(rx)) = (own(tx), own(rx)) else {
            return Err(Error::Invalid);
        };
        if tx == rx {
            return Err(Error::Invalid);
        }
        change_page(vms, vm, tx, &TO_BUFFER)?;
        if let Err(error) = change_page(vms, vm, rx, &TO_BUFFER) {
            let _back = change_page(vms, vm, tx, &TO_BUFFER.reversed());
            return Err(error);
        }
        self.set_buffers(vm, Some((tx, rx)));
        Ok(())
    }

    /// Makes a VM's buffers ordinary memory again.
    pub fn unmap_buffers<V: Vms>(&mut self, vms: &mut V, vm: VmId) -> Result<(), Error> {
        let (tx, rx) = self.buffers(vm).ok_or(Error::Invalid)?;
        // They are Buffer pages with tables of their own: neither is refused.
        for pa in [tx, rx] {
            let _owned = change_page(vms, vm, pa, &TO_BUFFER.reversed());
        }
        self.set_buffers(vm, None);
        Ok(())
    }

    /// Returns the RX page to write to, unless the VM reads it still.
    pub fn rx(&self, vm: VmId) -> Result<Pa, Error> {
        match self.buffers(vm) {
            Some((_, rx)) if self.rx_taken & bit(vm) == 0 => Ok(rx),
            Some(_) | None => Err(Error::Busy),
        }
    }

    /// Gives the VM its RX buffer to read.
    pub const fn give_rx(&mut self, vm: VmId) {
        self.rx_taken |= bit(vm);
    }

    /// Takes the RX buffer back.
    pub const fn release_rx(&mut self, vm: VmId) -> Result<(), Error> {
        if self.rx_taken & bit(vm) == 0 {
            return Err(Error::Denied);
        }
        self.rx_taken &= !bit(vm);
        Ok(())
    }
}
