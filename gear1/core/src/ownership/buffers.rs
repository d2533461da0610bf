//! The buffers that descriptors are passed in: each VM's TX and RX page.
//!
//! To map and to unmap them takes steps, each of which makes one table or looks at one, for both
//! pages may stand in blocks of their own. Until the last step the VM has no buffers. Of two vCPUs
//! that map the same pages, or unmap, at once, either makes the other's steps; one is told that it
//! was done, and the other what a call that comes later is told.
//!
//! Requirements: G1-MEM-012.

use gear1_abi::id::VmId;
use gear1_abi::layout::PAGE_SIZE;

use super::pages::{amend_page, edit, edit_page, region_of, tidy_page};
use super::steps::Step;
use super::{Error, Ledger, Vms, bit};
use crate::addr::{Ipa, Pa};
use crate::stage2::{Edit, Edited, PageState};

const TO_BUFFER: Edit = edit(Some(PageState::Owned), Some(PageState::Buffer), 0);

/// A VM's TX and RX page, and where they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Buffers {
    pub(super) tx: Pa,
    pub(super) rx: Pa,
    pub(super) state: State,
}

/// Progress of mapping or unmapping buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Steps: the TX page becomes a buffer.
    MakingTx,
    /// Steps: the RX page becomes a buffer.
    MakingRx,
    /// Both pages are buffers.
    Mapped,
    /// A step: both pages become ordinary pages again; the error, if the mapping was refused.
    Unmaking(Option<Error>),
    /// Steps: tables that the TX page does not need are freed.
    TidyingTx(Option<Error>),
    /// Steps: tables that the RX page does not need are freed.
    TidyingRx(Option<Error>),
}

impl State {
    /// Returns whether the call that maps the buffers is not done: the call undoes what it has made
    /// before it is refused.
    const fn is_mapping(self) -> bool {
        match self {
            Self::MakingTx | Self::MakingRx => true,
            Self::Unmaking(error) | Self::TidyingTx(error) | Self::TidyingRx(error) => {
                error.is_some()
            }
            Self::Mapped => false,
        }
    }
}

impl Buffers {
    /// Makes the next step.
    fn step<V: Vms>(&mut self, vms: &mut V, vm: VmId) -> Step {
        self.state = match self.state {
            State::MakingTx => self.make(vms, vm, self.tx, State::MakingRx),
            State::MakingRx => self.make(vms, vm, self.rx, State::Mapped),
            State::Mapped => State::Mapped,
            State::Unmaking(error) => {
                amend_page(vms, vm, self.tx, &TO_BUFFER.reversed());
                amend_page(vms, vm, self.rx, &TO_BUFFER.reversed());
                State::TidyingTx(error)
            }
            State::TidyingTx(error) => {
                if tidy_page(vms, vm, self.tx) {
                    return Step::More;
                }
                State::TidyingRx(error)
            }
            State::TidyingRx(error) => {
                if !tidy_page(vms, vm, self.rx) {
                    return Step::Settled(error.map_or(Ok(()), Err));
                }
                return Step::More;
            }
        };
        if self.state == State::Mapped {
            Step::Settled(Ok(()))
        } else {
            Step::More
        }
    }

    /// Makes a page a buffer, and returns the state that follows: `next` when the page is one.
    fn make<V: Vms>(&self, vms: &mut V, vm: VmId, page: Pa, next: State) -> State {
        match edit_page(vms, vm, page, &TO_BUFFER) {
            Ok(Edited::Done) => next,
            Ok(Edited::TableMade | Edited::Refused) => self.state,
            Err(error) => State::Unmaking(Some(error)),
        }
    }
}

impl Ledger {
    /// Returns a VM's TX and RX page.
    #[must_use]
    pub fn buffers(&self, vm: VmId) -> Option<(Pa, Pa)> {
        let buffers = (*vm.select(&self.buffers))?;
        (buffers.state == State::Mapped).then_some((buffers.tx, buffers.rx))
    }

    fn set_buffers(&mut self, vm: VmId, buffers: Option<Buffers>) {
        *vm.select_mut(&mut self.buffers) = buffers;
        self.rx_taken &= !bit(vm);
        self.set_response(vm, None);
    }

    /// Makes the next step of making two pages of a VM's own memory its TX and RX buffer.
    pub fn map_buffers<V: Vms>(&mut self, vms: &mut V, vm: VmId, tx: Ipa, rx: Ipa) -> Step {
        let regions = vms.regions(vm);
        let own = |ipa: Ipa| {
            let region = region_of(regions, ipa.get(), PAGE_SIZE, |region| region.ipa)?;
            let offset = ipa.get().wrapping_sub(region.ipa);
            let pa = Pa::new(region.pa.wrapping_add(offset));
            ipa.is_aligned(PAGE_SIZE).then_some(pa)
        };
        let begun = *vm.select(&self.buffers);
        let buffers = match (begun, own(tx), own(rx)) {
            (None, Some(tx), Some(rx)) if tx != rx => Buffers {
                tx,
                rx,
                state: State::MakingTx,
            },
            (None, ..) => return Step::Settled(Err(Error::Invalid)),
            (Some(begun), tx, rx) => {
                let is_same = tx == Some(begun.tx) && rx == Some(begun.rx);
                if !is_same || !begun.state.is_mapping() {
                    return Step::Settled(Err(Error::Denied));
                }
                begun
            }
        };
        self.step_buffers(vms, vm, buffers)
    }

    /// Makes the next step of making a VM's buffers ordinary memory again. Nothing: it has none.
    pub fn unmap_buffers<V: Vms>(&mut self, vms: &mut V, vm: VmId) -> Option<Step> {
        let mut buffers = (*vm.select(&self.buffers))?;
        buffers.state = match buffers.state {
            State::MakingTx | State::MakingRx | State::Mapped | State::Unmaking(_) => {
                State::Unmaking(None)
            }
            State::TidyingTx(_) => State::TidyingTx(None),
            State::TidyingRx(_) => State::TidyingRx(None),
        };
        Some(self.step_buffers(vms, vm, buffers))
    }

    fn step_buffers<V: Vms>(&mut self, vms: &mut V, vm: VmId, mut buffers: Buffers) -> Step {
        let step = buffers.step(vms, vm);
        let is_mapped = buffers.state == State::Mapped;
        let is_gone = matches!(step, Step::Settled(_)) && !is_mapped;
        self.set_buffers(vm, (!is_gone).then_some(buffers));
        step
    }

    /// Tells whether a call of `vm`'s that its TX buffer describes is not answered yet: the buffers
    /// may not go, for the call would be refused although it is done.
    #[must_use]
    pub fn needs_buffers(&self, vm: VmId) -> bool {
        // Bound: MAX_TRANSACTIONS (32).
        self.transactions
            .iter()
            .any(|transaction| transaction.is_awaited_by(vm))
    }

    /// Returns the RX page to write to, unless the VM reads it still.
    pub fn rx(&self, vm: VmId) -> Result<Pa, Error> {
        match self.buffers(vm) {
            Some((_, rx)) if self.rx_taken & bit(vm) == 0 => Ok(rx),
            Some(_) | None => Err(Error::Busy),
        }
    }

    /// Gives the VM ownership of its RX buffer, to read it.
    pub const fn give_rx(&mut self, vm: VmId) {
        self.rx_taken |= bit(vm);
    }

    /// Takes the RX buffer back; an answer that was being written to it is begun anew.
    pub fn release_rx(&mut self, vm: VmId) -> Result<(), Error> {
        if self.rx_taken & bit(vm) == 0 {
            return Err(Error::Denied);
        }
        self.rx_taken &= !bit(vm);
        self.set_response(vm, None);
        Ok(())
    }
}
