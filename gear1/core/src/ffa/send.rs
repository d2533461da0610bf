//! Calls of senders: FFA_MEM_SHARE, FFA_MEM_LEND and FFA_MEM_DONATE, FFA_MEM_FRAG_TX for the rest
//! of a descriptor, and FFA_MEM_RECLAIM.
//!
//! Requirements: G1-MEM-012, G1-MEM-020.

use gear1_abi::regs::Regs;

use super::descriptor::{self, Header, RANGE_SIZE};
use super::{
    Answer, Call, DONE, Outcome, Platform, RANGES_AT_ONCE, done, endpoint, function, low, success,
};
use crate::ownership::{Error, Kind, Offer, Phase, bit, each_vm};

impl<P: Platform> Call<'_, P> {
    pub(super) fn send(&mut self, kind: Kind, regs: &Regs, address: u64) -> Answer {
        let (header, size) = self.header(regs, address)?;
        let [_, total, ..] = *regs;
        let offer = self.offer(kind, &header, low(total))?;
        self.tx(size)?;
        let index = self.ledger.begin(self.platform, offer)?;
        self.take_ranges(index, offer.header.into(), size)
    }

    /// Judges what the sender says.
    fn offer(&self, kind: Kind, header: &Header, total: u64) -> Result<Offer, Error> {
        let composite = header.composite.ok_or(Error::Invalid)?;
        let size = u64::from(composite.ranges).saturating_mul(RANGE_SIZE);
        // planted: the sender's name is not looked at
        if header.sender != endpoint(self.vm)
            || header.handle != 0
            || composite.start.checked_add(size) != Some(total)
        {
            return Err(Error::Invalid);
        }
        let offered = header.offered(kind, self.platform.peers(self.vm))?;
        let small = |count: u32| u16::try_from(count).map_err(|_| Error::NoMemory);
        Ok(Offer {
            kind,
            sender: self.vm,
            receivers: offered.receivers,
            writers: offered.writers,
            zero: offered.zero,
            tag: header.tag,
            ranges: small(composite.ranges)?,
            pages: small(composite.pages)?,
            // The header was read from one page, so its offsets fit.
            header: composite.start as u16,
        })
    }

    /// Begins to take the ranges from `offset` to `size` of the TX page; a refusal ends the
    /// transaction.
    fn take_ranges(&mut self, index: usize, offset: u64, size: u64) -> Answer {
        match self.ledger.begin_fragment(index, offset, size) {
            Ok(()) => self.go_on_sending(index),
            Err(error) => {
                self.ledger.free(self.platform, index);
                Err(error)
            }
        }
    }

    /// Makes the next step of what this VM has begun to send.
    pub(super) fn go_on_sending(&mut self, index: usize) -> Answer {
        let transaction = self.ledger.transaction(index);
        if transaction.phase != Phase::Filling {
            let handle = self.ledger.handle(index);
            if !self.step(index)? {
                return Ok(Outcome::Again);
            }
            return done(success(low(handle), handle >> 32));
        }
        if let Err(error) = self.read_ranges(index) {
            self.ledger.free(self.platform, index);
            return Err(error);
        }
        let transaction = self.ledger.transaction(index);
        if transaction.fragment.0 < transaction.fragment.1 {
            return Ok(Outcome::Again);
        }
        if transaction.filled < transaction.offer.ranges {
            let known = u64::from(transaction.filled).wrapping_mul(RANGE_SIZE);
            let offset = known.wrapping_add(transaction.offer.header.into());
            return done(self.handle_and(function::MEM_FRAG_RX, index, offset));
        }
        self.ledger.send(self.platform, index)?;
        Ok(Outcome::Again)
    }

    /// Reads some ranges of the fragment in the TX page.
    #[inline(never)]
    fn read_ranges(&mut self, index: usize) -> Result<(), Error> {
        let (at, end) = self.ledger.transaction(index).fragment;
        let tx = self.tx(end.into())?;
        let left = u64::from(end.wrapping_sub(at)) / RANGE_SIZE;
        // Bound: RANGES_AT_ONCE (16).
        let mut words = [[0_u64; RANGE_SIZE as usize / 8]; RANGES_AT_ONCE];
        let ranges = words.iter_mut().take(left as usize);
        let mut read: u64 = 0;
        // Bound: RANGES_AT_ONCE (16).
        for range in ranges {
            let offset = u64::from(at).wrapping_add(read.wrapping_mul(RANGE_SIZE));
            self.platform.read_page(tx, offset, range);
            let (ipa, pages) = descriptor::range(*range)?;
            self.ledger.push(self.platform, index, ipa, pages)?;
            read = read.wrapping_add(1);
        }
        self.ledger.advance_fragment(index, read);
        Ok(())
    }

    pub(super) fn next_fragment(&mut self, handle: u64, size: u64) -> Answer {
        let index = self.ledger.find(handle).ok_or(Error::Invalid)?;
        let transaction = self.ledger.transaction(index);
        if transaction.offer.sender != self.vm || transaction.phase != Phase::Filling {
            return Err(Error::Invalid);
        }
        self.tx(size)?;
        self.take_ranges(index, 0, size)
    }

    /// Returns the running VMs of the set `vms`, one bit each.
    fn running(&self, vms: u16) -> u16 {
        // Bound: MAX_RECEIVERS (4).
        each_vm(vms)
            .filter(|vm| self.platform.is_running(*vm))
            .fold(0, |all, vm| all | bit(vm))
    }

    pub(super) fn reclaim(&mut self, handle: u64, flags: u64) -> Answer {
        let found = self.ledger.find_sent(handle, self.vm);
        let index = found.ok_or(Error::Invalid)?;
        if flags > 1 {
            return Err(Error::Invalid);
        }
        let offer = self.ledger.transaction(index).offer;
        // As for a relinquish, the call continues only the work that it names.
        if !self.ledger.is_being_reclaimed(index, flags == 1)? {
            let running = self.running(offer.receivers);
            self.ledger.reclaim(index, flags == 1, running)?;
        }
        if self.step(index)? {
            done(DONE)
        } else {
            Ok(Outcome::Again)
        }
    }
}
