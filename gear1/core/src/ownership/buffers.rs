//! The buffers that descriptors are passed in: each VM's TX and RX page.
//!
//! Requirements: G1-MEM-012.

use gear1_abi::id::VmId;
use gear1_abi::layout::PAGE_SIZE;

use super::pages::{edit, edit_page, region_of, tidy_page, undo_page};
use super::{Error, Ledger, Vms, bit};
use crate::addr::{Ipa, Pa};
use crate::stage2::{Edit, PageState};

const TO_BUFFER: Edit = edit(Some(PageState::Owned), Some(PageState::Buffer), 0);

/// Makes one page of `vm`'s a buffer, or changes nothing. It stays mapped.
fn make_buffer<V: Vms>(vms: &mut V, vm: VmId, pa: Pa) -> Result<(), Error> {
    let result = edit_page(vms, vm, pa, &TO_BUFFER);
    tidy_page(vms, vm, pa);
    result
}

/// Makes it an ordinary page again.
fn unmake_buffer<V: Vms>(vms: &mut V, vm: VmId, pa: Pa) {
    undo_page(vms, vm, pa, &TO_BUFFER.reversed());
    tidy_page(vms, vm, pa);
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
        make_buffer(vms, vm, tx)?;
        if let Err(error) = make_buffer(vms, vm, rx) {
            unmake_buffer(vms, vm, tx);
            return Err(error);
        }
        self.set_buffers(vm, Some((tx, rx)));
        Ok(())
    }

    /// Makes a VM's buffers ordinary memory again. Tells whether it had any.
    pub fn unmap_buffers<V: Vms>(&mut self, vms: &mut V, vm: VmId) -> bool {
        let Some((tx, rx)) = self.buffers(vm) else {
            return false;
        };
        unmake_buffer(vms, vm, tx);
        unmake_buffer(vms, vm, rx);
        self.set_buffers(vm, None);
        true
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
