//! Calls of receivers: FFA_MEM_RETRIEVE_REQ, FFA_MEM_FRAG_RX for the rest of its answer, and
//! FFA_MEM_RELINQUISH.
//!
//! Requirements: G1-MEM-012, G1-MEM-020.

use gear1_abi::layout::PAGE_SIZE;
use gear1_abi::regs::Regs;

use super::descriptor::{self, Header, RANGE_SIZE, RESPONSE_HEADER};
use super::{Answer, Call, DONE, Outcome, Platform, RANGES_AT_ONCE, done, endpoint, function, low};
use crate::addr::Pa;
use crate::ownership::{Error, Request, Response};

/// How much of the answer to a retrieval is in the RX page.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Written {
    /// Ranges are left for other steps.
    InPart,
    /// All that fits, since this step.
    Now,
    /// All that fits, since an earlier step.
    Before,
}

/// Returns the registers of FFA_MEM_RETRIEVE_RESP for a transaction of so many ranges.
fn retrieved(ranges: u16) -> Regs {
    let size = u64::from(ranges).wrapping_mul(RANGE_SIZE);
    let total = size.wrapping_add(RESPONSE_HEADER);
    let fragment = total.min(PAGE_SIZE);
    let id = function::MEM_RETRIEVE_RESP.into();
    [id, total, fragment, 0, 0, 0, 0, 0]
}

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
        let vm = self.vm;
        let is_own = transaction.is_retrieving(vm);
        let is_done = if is_own {
            self.step(index)?
        } else {
            // Others made the last steps, and may be at more.
            transaction.is_held_by(vm) && self.ledger.answer(index, vm)
        };
        if is_done {
            self.ledger.answer(index, vm);
            return done(retrieved(transaction.offer.ranges));
        }
        if let Some(error) = transaction.refusal(vm) {
            return Err(error);
        }
        if is_own {
            return Ok(Outcome::Again);
        }
        if !transaction.may_be_asked(vm) {
            return Err(Error::Denied);
        }
        let written = self.write_response(index, handle, request)?;
        if written == Written::InPart {
            return Ok(Outcome::Again);
        }
        // planted: a receiver waits for one that makes no more steps
        if !transaction.may_retrieve(vm) && written == Written::Before {
            let step = self.ledger.retrieve_next(self.platform, index, vm, request);
            self.helped(step);
        }
        if transaction.may_retrieve(vm) {
            self.ledger.retrieve(index, vm, request)?;
        }
        Ok(Outcome::Again)
    }

    /// Writes the next ranges of the answer to a retrieval.
    fn write_response(
        &mut self,
        index: usize,
        handle: u64,
        request: Request,
    ) -> Result<Written, Error> {
        let mut response = self.ledger.begin_response(self.vm, handle, 0)?;
        let rx = self.rx()?;
        if response.next == 0 {
            let offer = self.ledger.transaction(index).offer;
            let first = descriptor::response(&offer, handle, self.vm, request);
            self.platform.write_page(rx, 0, &first);
        }
        let before = response.next;
        let end = self.write_ranges(index, rx, RESPONSE_HEADER, &mut response);
        self.ledger.set_response(self.vm, Some(response));
        Ok(match end {
            None => Written::InPart,
            Some(_) if response.next == before => Written::Before,
            Some(_) => Written::Now,
        })
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
        // planted: relinquish does not ask who calls
        if said.endpoint != endpoint(self.vm) || !transaction.offer.is_for(self.vm) {
            return Err(Error::Invalid);
        }
        // Another vCPU of the VM may have begun to give back another transaction, or to give this
        // one back unwiped: a call continues only the work that it names.
        // planted: memory that is given back twice need not be wiped the second time
        let is_asked = transaction.is_given_back_by(self.vm, said.zero);
        let holds = transaction.is_held_by(self.vm);
        let is_done = if transaction.is_relinquishing(self.vm) && is_asked {
            self.step(index)?
        } else if holds && transaction.is_mapped_for_another(self.vm) {
            let step = self
                .ledger
                .relinquish_next(self.platform, index, self.vm, said.zero)?;
            self.helped(step);
            false
        } else if !holds && is_asked && self.ledger.answer(index, self.vm) {
            // Others made the last steps.
            true
        } else {
            self.ledger.relinquish(index, self.vm, said.zero)?;
            false
        };
        if !is_done {
            return Ok(Outcome::Again);
        }
        self.ledger.answer(index, self.vm);
        done(DONE)
    }
}
