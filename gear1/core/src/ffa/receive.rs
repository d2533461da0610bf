//! Calls of receivers: FFA_MEM_RETRIEVE_REQ, FFA_MEM_FRAG_RX for the rest of its answer, and
//! FFA_MEM_RELINQUISH.
//!
//! Requirements: G1-MEM-012, G1-MEM-020.

use gear1_abi::layout::PAGE_SIZE;
use gear1_abi::regs::Regs;

use super::descriptor::{self, Header, RANGE_SIZE, RESPONSE_HEADER};
use super::{Answer, Call, DONE, Outcome, Platform, RANGES_AT_ONCE, done, endpoint, function, low};
use crate::addr::Pa;
use crate::ownership::{Error, Phase, Request, Response};

impl<P: Platform> Call<'_, P> {
    pub(super) fn retrieve(&mut self, regs: &Regs, address: u64) -> Answer {
        let [_, total, size, ..] = *regs;
        if low(total) != low(size) {
            return Err(Error::Invalid);
        }
        let (header, _) = self.header(regs, address)?;
        let answer = self.retrieve_said(&header);
        match answer {
            Ok(Outcome::Again) => {}
            // The RX page is the VM's; the end of a transaction that came home has freed it.
            Ok(Outcome::Return(_)) => {
                self.ledger.set_response(self.vm, None);
                self.ledger.give_rx(self.vm);
            }
            Err(_) => {
                self.ledger.drop_response(self.vm, header.handle);
                if let Some(index) = self.ledger.find(header.handle) {
                    self.ledger.refuse(index, self.vm);
                }
            }
        }
        answer
    }

    fn retrieve_said(&mut self, header: &Header) -> Answer {
        let index = self.ledger.find(header.handle).ok_or(Error::Invalid)?;
        let offer = self.ledger.transaction(index).offer;
        if header.sender != endpoint(offer.sender)
            || header.tag != offer.tag
            || header.composite.is_some()
        {
            return Err(Error::Invalid);
        }
        let request = header.requested(&offer, self.vm)?;
        self.retrieve_on(index, header.handle, request)
    }

    /// Makes the next step of a retrieval: the answer is written first, for it tells only what the
    /// receiver may know, and the transaction may end with what follows.
    #[inline(never)]
    fn retrieve_on(&mut self, index: usize, handle: u64, request: Request) -> Answer {
        let transaction = self.ledger.transaction(index);
        let (vm, offer) = (self.vm, transaction.offer);
        let is_done = match transaction.phase {
            Phase::Mapping | Phase::Unmapping(Some(_)) if transaction.concerns(vm) => {
                self.step(index)?
            }
            Phase::Homing if offer.is_for(vm) => self.step(index)?,
            // Others made the last steps, and may be at more.
            Phase::Free
            | Phase::Filling
            | Phase::Claiming
            | Phase::Unclaiming(_)
            | Phase::Committing
            | Phase::Sending
            | Phase::Sent
            | Phase::Mapping
            | Phase::Unmapping(_)
            | Phase::Retrieved
            | Phase::Relinquishing
            | Phase::Reclaiming
            | Phase::Given(_)
            | Phase::Homing
            | Phase::Returning => transaction.is_held_by(vm) && self.ledger.answer(index, vm),
        };
        if is_done {
            self.ledger.answer(index, vm);
            let ranges = u64::from(offer.ranges).wrapping_mul(RANGE_SIZE);
            let total = ranges.wrapping_add(RESPONSE_HEADER);
            let id = function::MEM_RETRIEVE_RESP.into();
            let size = total.min(PAGE_SIZE);
            return done([id, total, size, 0, 0, 0, 0, 0]);
        }
        if let Some(error) = transaction.refusal(vm) {
            return Err(error);
        }
        match transaction.phase {
            Phase::Mapping | Phase::Unmapping(Some(_)) if transaction.concerns(vm) => {
                return Ok(Outcome::Again);
            }
            Phase::Homing if offer.is_for(vm) => return Ok(Outcome::Again),
            _ if transaction.may_be_asked(vm) => {}
            Phase::Free
            | Phase::Filling
            | Phase::Claiming
            | Phase::Unclaiming(_)
            | Phase::Committing
            | Phase::Sending
            | Phase::Sent
            | Phase::Mapping
            | Phase::Unmapping(_)
            | Phase::Retrieved
            | Phase::Relinquishing
            | Phase::Reclaiming
            | Phase::Given(_)
            | Phase::Homing
            | Phase::Returning => return Err(Error::Denied),
        }
        let mut response = self.ledger.begin_response(vm, handle, 0)?;
        let rx = self.rx()?;
        if response.next == 0 {
            let first = descriptor::response(&offer, handle, vm, request);
            self.platform.write_page(rx, 0, &first);
        }
        let written = response.next;
        let end = self.write_ranges(index, rx, RESPONSE_HEADER, &mut response);
        self.ledger.set_response(vm, Some(response));
        if end.is_none() {
            return Ok(Outcome::Again);
        }
        // planted: a receiver waits for one that makes no more steps
        if !transaction.may_retrieve(vm) && response.next == written {
            let step = self.ledger.retrieve_next(self.platform, index, vm, request);
            self.helped(step);
        }
        if transaction.may_retrieve(vm) {
            self.ledger.retrieve(index, vm, request)?;
        }
        Ok(Outcome::Again)
    }

    /// Returns the RX page, which an answer is being written to.
    fn rx(&self) -> Result<Pa, Error> {
        let (_, rx) = self.ledger.buffers(self.vm).ok_or(Error::Busy)?;
        Ok(rx)
    }

    /// Writes ranges of an answer, the first of them at `offset` of the RX page. Returns the end of
    /// the written ranges when no more of them fit.
    #[inline(never)]
    fn write_ranges(
        &mut self,
        index: usize,
        rx: Pa,
        offset: u64,
        response: &mut Response,
    ) -> Option<u64> {
        let filled = self.ledger.transaction(index).filled;
        let at = |place: u16| {
            let before = u64::from(place.wrapping_sub(response.first));
            offset.wrapping_add(before.wrapping_mul(RANGE_SIZE))
        };
        let is_last =
            |place: u16| place >= filled || at(place).wrapping_add(RANGE_SIZE) > PAGE_SIZE;
        let mut next = response.next;
        // Bound: RANGES_AT_ONCE (16).
        for _ in 0..RANGES_AT_ONCE {
            if is_last(next) {
                break;
            }
            let (ipa, pages) = self.ledger.range_for(self.platform, index, self.vm, next);
            let words = [ipa.get(), pages.into()];
            self.platform.write_page(rx, at(next), &words);
            next = next.wrapping_add(1);
        }
        let end = is_last(next).then(|| at(next));
        response.next = next;
        end
    }

    /// FFA_MEM_FRAG_RX: the rest of an answer, from byte `offset` of it on.
    pub(super) fn respond_more(&mut self, handle: u64, offset: u64) -> Answer {
        let answer = self.respond_from(handle, offset);
        if answer.is_err() {
            self.ledger.drop_response(self.vm, handle);
        }
        answer
    }

    fn respond_from(&mut self, handle: u64, offset: u64) -> Answer {
        let index = self.ledger.find(handle).ok_or(Error::Invalid)?;
        let transaction = self.ledger.transaction(index);
        let behind = offset.checked_sub(RESPONSE_HEADER).ok_or(Error::Invalid)?;
        let first = behind / RANGE_SIZE;
        if !transaction.is_held_by(self.vm)
            || !behind.is_multiple_of(RANGE_SIZE)
            || first >= transaction.filled.into()
        {
            return Err(Error::Invalid);
        }
        let mut response = self.ledger.begin_response(self.vm, handle, first as u16)?;
        let rx = self.rx()?;
        let Some(size) = self.write_ranges(index, rx, 0, &mut response) else {
            self.ledger.set_response(self.vm, Some(response));
            return Ok(Outcome::Again);
        };
        self.ledger.set_response(self.vm, None);
        done(self.handle_and(function::MEM_FRAG_TX, index, size))
    }

    pub(super) fn relinquish(&mut self) -> Answer {
        let tx = self.tx(descriptor::RELINQUISH_SIZE)?;
        let mut words = [0; 3];
        self.platform.read_page(tx, 0, &mut words);
        let said = descriptor::relinquished(words)?;
        let index = self.ledger.find(said.handle).ok_or(Error::Invalid)?;
        let transaction = self.ledger.transaction(index);
        let offer = transaction.offer;
        // planted: relinquish does not ask who calls
        if said.endpoint != endpoint(self.vm) || !offer.is_for(self.vm) {
            return Err(Error::Invalid);
        }
        // Another vCPU of the VM may have begun to give back another transaction, or to give this
        // one back unwiped: a call continues only the work that it names.
        // planted: memory that is given back twice need not be wiped the second time
        let is_asked = transaction.is_given_back_by(self.vm, said.zero);
        let is_own = transaction.concerns(self.vm);
        let holds = transaction.is_held_by(self.vm);
        let is_done = match transaction.phase {
            Phase::Unmapping(None) | Phase::Relinquishing if is_own && is_asked => {
                self.step(index)?
            }
            Phase::Mapping | Phase::Unmapping(_) if holds && !is_own => {
                let step = self
                    .ledger
                    .relinquish_next(self.platform, index, self.vm, said.zero)?;
                self.helped(step);
                false
            }
            // Others made the last steps.
            _ if !holds && is_asked && self.ledger.answer(index, self.vm) => true,
            Phase::Free
            | Phase::Filling
            | Phase::Claiming
            | Phase::Unclaiming(_)
            | Phase::Committing
            | Phase::Sending
            | Phase::Sent
            | Phase::Mapping
            | Phase::Unmapping(_)
            | Phase::Retrieved
            | Phase::Relinquishing
            | Phase::Reclaiming
            | Phase::Given(_)
            | Phase::Homing
            | Phase::Returning => {
                self.ledger.relinquish(index, self.vm, said.zero)?;
                false
            }
        };
        if !is_done {
            return Ok(Outcome::Again);
        }
        self.ledger.answer(index, self.vm);
        done(DONE)
    }
}
