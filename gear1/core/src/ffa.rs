//! FF-A 1.1 (Arm DEN0077A) as guests see it: the memory calls, and what goes with them.
//!
//! Owns: what a call's registers mean, and the answers. Who owns which page is
//! [`crate::ownership`]'s; how descriptors look is [`descriptor`]'s. Every register and every byte
//! of a TX buffer is an allegation of the caller's: each is copied once, and judged.
//!
//! Limits: [`MAX_RECEIVERS`](descriptor::MAX_RECEIVERS) receivers and [`MAX_PAGES`](crate::ownership::MAX_PAGES) pages; buffers
//! of one page. A call whose wiping and cleaning takes long is left with [`Outcome::Again`] after
//! each piece: the caller executes the same instruction once more, so its interrupts are taken in
//! between.
//!
//! Requirements: G1-MEM-012, G1-MEM-020.

pub mod descriptor;
pub mod message;

use gear1_abi::id::VmId;
use gear1_abi::layout::PAGE_SIZE;
use gear1_abi::regs::Regs;

use crate::addr::{Ipa, Pa};
use crate::ownership::{Error, Kind, Ledger, Offer, Phase, Piece, Vms, bit, each_vm};
use descriptor::{Header, RANGE_SIZE, RESPONSE_HEADER};

/// Function identifiers, SMC32 convention.
pub mod function {
    /// A call was refused.
    pub const ERROR: u32 = 0x8400_0060;
    /// A call was done.
    pub const SUCCESS: u32 = 0x8400_0061;
    /// A blocked call was interrupted.
    pub const INTERRUPT: u32 = 0x8400_0062;
    /// FFA_VERSION.
    pub const VERSION: u32 = 0x8400_0063;
    /// FFA_FEATURES.
    pub const FEATURES: u32 = 0x8400_0064;
    /// FFA_RX_RELEASE.
    pub const RX_RELEASE: u32 = 0x8400_0065;
    /// FFA_RXTX_MAP.
    pub const RXTX_MAP: u32 = 0x8400_0066;
    /// FFA_RXTX_UNMAP.
    pub const RXTX_UNMAP: u32 = 0x8400_0067;
    /// FFA_PARTITION_INFO_GET.
    pub const PARTITION_INFO_GET: u32 = 0x8400_0068;
    /// FFA_ID_GET.
    pub const ID_GET: u32 = 0x8400_0069;
    /// FFA_MSG_WAIT.
    pub const MSG_WAIT: u32 = 0x8400_006b;
    /// FFA_YIELD.
    pub const YIELD: u32 = 0x8400_006c;
    /// FFA_RUN.
    pub const RUN: u32 = 0x8400_006d;
    /// FFA_MSG_SEND_DIRECT_REQ.
    pub const DIRECT_REQ: u32 = 0x8400_006f;
    /// FFA_MSG_SEND_DIRECT_RESP.
    pub const DIRECT_RESP: u32 = 0x8400_0070;
    /// FFA_MEM_DONATE.
    pub const MEM_DONATE: u32 = 0x8400_0071;
    /// FFA_MEM_LEND.
    pub const MEM_LEND: u32 = 0x8400_0072;
    /// FFA_MEM_SHARE.
    pub const MEM_SHARE: u32 = 0x8400_0073;
    /// FFA_MEM_RETRIEVE_REQ.
    pub const MEM_RETRIEVE_REQ: u32 = 0x8400_0074;
    /// FFA_MEM_RETRIEVE_RESP.
    pub const MEM_RETRIEVE_RESP: u32 = 0x8400_0075;
    /// FFA_MEM_RELINQUISH.
    pub const MEM_RELINQUISH: u32 = 0x8400_0076;
    /// FFA_MEM_RECLAIM.
    pub const MEM_RECLAIM: u32 = 0x8400_0077;
    /// FFA_MEM_FRAG_RX.
    pub const MEM_FRAG_RX: u32 = 0x8400_007a;
    /// FFA_MEM_FRAG_TX.
    pub const MEM_FRAG_TX: u32 = 0x8400_007b;
    /// What an identifier of the SMC64 convention has beside.
    pub const SMC64: u32 = 0x4000_0000;
}

/// The version: 1.1.
pub const VERSION: u64 = 0x1_0001;
const NOT_SUPPORTED: i32 = -1;
/// The first and the last identifier of the FF-A range.
const RANGE: core::ops::RangeInclusive<u32> = 0x8400_0060..=0x8400_00ef;

impl Error {
    /// Returns the status.
    const fn status(self) -> i32 {
        match self {
            Self::Invalid => -2,
            Self::NoMemory => -3,
            Self::Busy => -4,
            Self::Denied => -6,
        }
    }
}

/// What the calls need of the machine.
pub trait Platform: Vms {
    /// Reads words of a guest's page, which it may be writing. The offset is a multiple of 8.
    fn read_page(&mut self, page: Pa, offset: u64, words: &mut [u64]);
    /// Writes words of a guest's page likewise.
    fn write_page(&mut self, page: Pa, offset: u64, words: &[u64]);
    /// Wipes or only cleans a piece, so that whoever gets it finds it in memory.
    fn clean(&mut self, piece: Piece);
    /// Tells whether a VM runs.
    fn is_running(&self, vm: VmId) -> bool;
    /// Returns the VMs that may share memory with `vm`: bit per VM.
    fn peers(&self, vm: VmId) -> u16;
    /// Returns how many vCPUs a VM has.
    fn vcpu_count(&self, vm: VmId) -> u16;
}

/// What becomes of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// X0 to X7.
    Return(Regs),
    /// The call is not done: the instruction is to be executed again.
    Again,
}

/// Tells whether `id` is one of the direct messages' calls ([`message`]).
#[must_use]
pub const fn is_message(id: u32) -> bool {
    is_known(id)
        && matches!(
            id & !function::SMC64,
            function::MSG_WAIT
                | function::YIELD
                | function::RUN
                | function::DIRECT_REQ
                | function::DIRECT_RESP
        )
}

/// Tells whether `id` is in the range of FF-A.
#[must_use]
pub fn is_ffa(id: u32) -> bool {
    RANGE.contains(&(id & !function::SMC64))
}

/// Returns the identifier of an endpoint; the hypervisor's is 0.
#[must_use]
pub const fn endpoint(vm: VmId) -> u16 {
    (vm.reg() as u16).wrapping_add(1)
}

const fn success(w2: u64, w3: u64) -> Regs {
    [function::SUCCESS as u64, 0, w2, w3, 0, 0, 0, 0]
}

/// What a call without results returns.
pub const DONE: Regs = success(0, 0);

const fn error(status: i32) -> Regs {
    let status = status as u32;
    [function::ERROR as u64, 0, status as u64, 0, 0, 0, 0, 0]
}

const fn low(value: u64) -> u64 {
    value & 0xffff_ffff
}

/// Returns the handle in two registers.
const fn handle(first: u64, second: u64) -> u64 {
    low(second) << 32 | low(first)
}

type Answer = Result<Outcome, Error>;

const fn done(regs: Regs) -> Answer {
    Ok(Outcome::Return(regs))
}

/// Answers a call of the FF-A range. `vm` may share memory with somebody.
pub fn call<P: Platform>(ledger: &mut Ledger, platform: &mut P, vm: VmId, regs: &Regs) -> Outcome {
    let mut call = Call {
        ledger,
        platform,
        vm,
    };
    match call.dispatch(regs) {
        Ok(outcome) => outcome,
        Err(refused) => Outcome::Return(error(refused.status())),
    }
}

struct Call<'a, P> {
    ledger: &'a mut Ledger,
    platform: &'a mut P,
    vm: VmId,
}

/// Tells whether a call of this function sends memory, in steps.
const fn sends(id: u32) -> bool {
    matches!(
        id,
        function::MEM_SHARE | function::MEM_LEND | function::MEM_DONATE | function::MEM_FRAG_TX
    )
}

/// Tells whether there is such a function, in the convention that its identifier names.
const fn is_known(id: u32) -> bool {
    match id & !function::SMC64 {
        function::RXTX_MAP
        | function::DIRECT_REQ
        | function::DIRECT_RESP
        | function::MEM_DONATE
        | function::MEM_LEND
        | function::MEM_SHARE
        | function::MEM_RETRIEVE_REQ => true,
        function::ERROR
        | function::SUCCESS
        | function::INTERRUPT
        | function::MSG_WAIT
        | function::YIELD
        | function::RUN
        | function::VERSION
        | function::FEATURES
        | function::RX_RELEASE
        | function::RXTX_UNMAP
        | function::PARTITION_INFO_GET
        | function::ID_GET
        | function::MEM_RETRIEVE_RESP
        | function::MEM_RELINQUISH
        | function::MEM_RECLAIM
        | function::MEM_FRAG_RX
        | function::MEM_FRAG_TX => id & function::SMC64 == 0,
        _ => false,
    }
}

impl<P: Platform> Call<'_, P> {
    #[inline(never)]
    fn dispatch(&mut self, regs: &Regs) -> Answer {
        let [x0, x1, x2, x3, ..] = *regs;
        let number = x0 as u32;
        if !is_known(number) {
            return done(error(NOT_SUPPORTED));
        }
        let id = number & !function::SMC64;
        let is_wide = id != number;
        let address = |value| if is_wide { value } else { low(value) };
        if sends(id)
            && let Some(index) = self.ledger.unfinished_send(self.vm)
        {
            return self.proceed(index);
        }
        match id {
            function::VERSION => done(version(low(x1))),
            function::FEATURES => done(features(x1 as u32)),
            function::ID_GET => done(success(endpoint(self.vm).into(), 0)),
            function::RXTX_MAP => self.map(address(x1), address(x2), low(x3)),
            function::RXTX_UNMAP => {
                let had = self.ledger.unmap_buffers(self.platform, self.vm);
                done(if had {
                    DONE
                } else {
                    error(Error::Invalid.status())
                })
            }
            function::RX_RELEASE => {
                self.ledger.release_rx(self.vm)?;
                done(DONE)
            }
            function::PARTITION_INFO_GET => self.partition_info(regs),
            function::MEM_SHARE => self.send(Kind::Share, regs, address(x3)),
            function::MEM_LEND => self.send(Kind::Lend, regs, address(x3)),
            function::MEM_DONATE => self.send(Kind::Donate, regs, address(x3)),
            function::MEM_FRAG_TX => self.next_fragment(handle(x1, x2), low(x3)),
            function::MEM_RETRIEVE_REQ => self.retrieve(regs, address(x3)),
            function::MEM_FRAG_RX => self.respond_more(handle(x1, x2), low(x3)),
            function::MEM_RELINQUISH => self.relinquish(),
            function::MEM_RECLAIM => self.reclaim(handle(x1, x2), low(x3)),
            // Answers, not calls.
            _ => done(error(NOT_SUPPORTED)),
        }
    }

    fn map(&mut self, tx: u64, rx: u64, pages: u64) -> Answer {
        if pages != 1 {
            return Err(Error::Invalid);
        }
        let (tx, rx) = (Ipa::new(tx), Ipa::new(rx));
        self.ledger.map_buffers(self.platform, self.vm, tx, rx)?;
        done(DONE)
    }

    /// FFA_PARTITION_INFO_GET: the caller and its peers, which have no UUIDs.
    fn partition_info(&mut self, regs: &Regs) -> Answer {
        let [_, a, b, c, d, flags, ..] = *regs;
        if low(a | b | c | d) != 0 || low(flags) > 1 {
            return Err(Error::Invalid);
        }
        let mask = self.platform.peers(self.vm) | bit(self.vm);
        let count = u64::from(mask.count_ones());
        if low(flags) == 1 {
            return done(success(count, 0));
        }
        let rx = self.ledger.rx(self.vm)?;
        let mut offset = 0;
        // Bound: MAX_VMS.
        for vm in each_vm(mask) {
            let words = descriptor::partition(endpoint(vm), self.platform.vcpu_count(vm));
            self.platform.write_page(rx, offset, &words);
            offset = offset.wrapping_add(descriptor::PARTITION_SIZE);
        }
        self.ledger.give_rx(self.vm);
        done(success(count, descriptor::PARTITION_SIZE))
    }

    /// Returns the TX page if `size` bytes of it can hold a descriptor, or a part of one.
    fn tx(&self, size: u64) -> Result<Pa, Error> {
        match self.ledger.buffers(self.vm) {
            Some((tx, _)) if size != 0 && size <= PAGE_SIZE => Ok(tx),
            Some(_) | None => Err(Error::Invalid),
        }
    }

    /// Reads the beginning of a descriptor whose length is said in X1 and X2. Returns as well
    /// where it is, and how many bytes of it are there.
    #[inline(never)]
    fn header(&mut self, regs: &Regs, address: u64) -> Result<(Header, Pa, u64), Error> {
        let [_, total, size, _, pages, ..] = *regs;
        let (total, size) = (low(total), low(size));
        // The descriptor is in the TX buffer.
        if address != 0 || low(pages) != 0 || size > total {
            return Err(Error::Invalid);
        }
        let tx = self.tx(size)?;
        let mut read = |offset: u64, words: &mut [u64]| {
            if offset.saturating_add(size_of_val(words) as u64) > size {
                return Err(Error::Invalid);
            }
            self.platform.read_page(tx, offset, words);
            Ok(())
        };
        Ok((Header::read(&mut read)?, tx, size))
    }

    fn send(&mut self, kind: Kind, regs: &Regs, address: u64) -> Answer {
        let (header, tx, size) = self.header(regs, address)?;
        let [_, total, ..] = *regs;
        let offer = self.offer(kind, &header, low(total))?;
        let index = self.ledger.begin(self.platform, offer)?;
        self.take_ranges(index, tx, offer.header.into(), size)
    }

    /// Judges what the sender says.
    fn offer(&self, kind: Kind, header: &Header, total: u64) -> Result<Offer, Error> {
        let composite = header.composite.ok_or(Error::Invalid)?;
        let size = u64::from(composite.ranges).saturating_mul(RANGE_SIZE);
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
            // It was read from one page.
            header: composite.start as u16,
        })
    }

    /// Takes the ranges from `offset` to `size` of the TX page; a refusal ends the transaction.
    fn take_ranges(&mut self, index: usize, tx: Pa, offset: u64, size: u64) -> Answer {
        if let Err(error) = self.add_ranges(index, tx, offset, size) {
            self.ledger.free(self.platform, index);
            return Err(error);
        }
        let transaction = self.ledger.transaction(index);
        if transaction.filled < transaction.offer.ranges {
            let known = u64::from(transaction.filled).wrapping_mul(RANGE_SIZE);
            let offset = known.wrapping_add(transaction.offer.header.into());
            return done(self.handle_and(function::MEM_FRAG_RX, index, offset));
        }
        self.ledger.send(self.platform, index)?;
        self.proceed(index)
    }

    #[inline(never)]
    fn add_ranges(&mut self, index: usize, tx: Pa, offset: u64, size: u64) -> Result<(), Error> {
        let bytes = size.checked_sub(offset).ok_or(Error::Invalid)?;
        let transaction = self.ledger.transaction(index);
        let left = transaction.offer.ranges.wrapping_sub(transaction.filled);
        if !bytes.is_multiple_of(RANGE_SIZE) || bytes / RANGE_SIZE > left.into() {
            return Err(Error::Invalid);
        }
        let mut at = offset;
        // Bound: a page's ranges.
        while at < size {
            let mut range = [0_u64; RANGE_SIZE as usize / 8];
            self.platform.read_page(tx, at, &mut range);
            let (ipa, pages) = descriptor::range(range)?;
            self.ledger.push(self.platform, index, ipa, pages)?;
            at = at.wrapping_add(RANGE_SIZE);
        }
        Ok(())
    }

    fn next_fragment(&mut self, handle: u64, size: u64) -> Answer {
        let index = self.ledger.find(handle).ok_or(Error::Invalid)?;
        let transaction = self.ledger.transaction(index);
        if transaction.offer.sender != self.vm || transaction.phase != Phase::Filling {
            return Err(Error::Invalid);
        }
        let tx = self.tx(size)?;
        self.take_ranges(index, tx, 0, size)
    }

    /// Wipes or cleans the next piece, and answers when that was the last.
    #[inline(never)]
    fn proceed(&mut self, index: usize) -> Answer {
        let handle = self.ledger.handle(index);
        let is_sent = matches!(self.ledger.transaction(index).phase, Phase::Sending(_));
        let piece = self.ledger.piece(self.platform, index);
        if let Some(piece) = piece {
            self.platform.clean(piece);
        }
        if !self.ledger.advance(self.platform, index, piece) {
            return Ok(Outcome::Again);
        }
        done(if is_sent {
            success(low(handle), handle >> 32)
        } else {
            DONE
        })
    }

    fn handle_and(&self, id: u32, index: usize, third: u64) -> Regs {
        let handle = self.ledger.handle(index);
        [id.into(), low(handle), handle >> 32, third, 0, 0, 0, 0]
    }

    fn retrieve(&mut self, regs: &Regs, address: u64) -> Answer {
        let [_, total, size, ..] = *regs;
        if low(total) != low(size) {
            return Err(Error::Invalid);
        }
        let (header, _, _) = self.header(regs, address)?;
        let index = self.ledger.find(header.handle).ok_or(Error::Invalid)?;
        let transaction = self.ledger.transaction(index);
        let offer = transaction.offer;
        if header.sender != endpoint(offer.sender)
            || header.tag != offer.tag
            || header.composite.is_some()
        {
            return Err(Error::Invalid);
        }
        let request = header.requested(&offer, self.vm)?;
        if !transaction.may_retrieve(self.vm) {
            return Err(Error::Denied);
        }
        // The answer tells only what the receiver may know, so it can be written first.
        let rx = self.ledger.rx(self.vm)?;
        let first = descriptor::response(&offer, header.handle, self.vm, request);
        self.platform.write_page(rx, 0, &first);
        let size = self.write_ranges(index, rx, RESPONSE_HEADER, 0);
        self.ledger
            .retrieve(self.platform, index, self.vm, request)?;
        self.ledger.give_rx(self.vm);
        let ranges = u64::from(offer.ranges).wrapping_mul(RANGE_SIZE);
        let total = ranges.wrapping_add(RESPONSE_HEADER);
        let id = function::MEM_RETRIEVE_RESP.into();
        done([id, total, size, 0, 0, 0, 0, 0])
    }

    /// Writes ranges of a transaction, from number `first` on, to `offset` of the RX page, as many
    /// as fit. Returns where they end.
    #[inline(never)]
    fn write_ranges(&mut self, index: usize, rx: Pa, offset: u64, first: u16) -> u64 {
        let filled = self.ledger.transaction(index).filled;
        let mut at = offset;
        // Bound: a page's ranges.
        for place in first..filled {
            if at.wrapping_add(RANGE_SIZE) > PAGE_SIZE {
                break;
            }
            let (ipa, pages) = self.ledger.range_for(self.platform, index, self.vm, place);
            let words = [ipa.get(), pages.into()];
            self.platform.write_page(rx, at, &words);
            at = at.wrapping_add(RANGE_SIZE);
        }
        at
    }

    /// FFA_MEM_FRAG_RX: the rest of an answer, from byte `offset` of it on.
    fn respond_more(&mut self, handle: u64, offset: u64) -> Answer {
        let index = self.ledger.find(handle).ok_or(Error::Invalid)?;
        let transaction = self.ledger.transaction(index);
        let is_retrieved = matches!(transaction.phase, Phase::Retrieved | Phase::Given(_));
        let behind = offset.checked_sub(RESPONSE_HEADER).ok_or(Error::Invalid)?;
        let first = behind / RANGE_SIZE;
        if !transaction.is_held_by(self.vm)
            || !is_retrieved
            || !behind.is_multiple_of(RANGE_SIZE)
            || first >= transaction.filled.into()
        {
            return Err(Error::Invalid);
        }
        let rx = self.ledger.rx(self.vm)?;
        let size = self.write_ranges(index, rx, 0, first as u16);
        self.ledger.give_rx(self.vm);
        done(self.handle_and(function::MEM_FRAG_TX, index, size))
    }

    fn relinquish(&mut self) -> Answer {
        let tx = self.tx(descriptor::RELINQUISH_SIZE)?;
        let mut words = [0; 3];
        self.platform.read_page(tx, 0, &mut words);
        let said = descriptor::relinquished(words)?;
        let index = self.ledger.find(said.handle).ok_or(Error::Invalid)?;
        let offer = self.ledger.transaction(index).offer;
        if said.endpoint != endpoint(self.vm) || !offer.is_for(self.vm) {
            return Err(Error::Invalid);
        }
        // Another vCPU of the VM may have begun to give back something else: what goes on is what
        // the call names.
        let transaction = self.ledger.transaction(index);
        let goes_on = matches!(transaction.phase, Phase::Relinquishing(_))
            && transaction.is_given_back_by(self.vm, said.zero);
        if !goes_on {
            self.ledger
                .relinquish(self.platform, index, self.vm, said.zero)?;
        }
        self.proceed(index)
    }

    /// Returns those of the VMs, bit per VM, that run.
    fn running(&self, vms: u16) -> u16 {
        // Bound: MAX_VMS.
        each_vm(vms)
            .filter(|vm| self.platform.is_running(*vm))
            .fold(0, |all, vm| all | bit(vm))
    }

    fn reclaim(&mut self, handle: u64, flags: u64) -> Answer {
        let index = self.ledger.find(handle).ok_or(Error::Invalid)?;
        let offer = self.ledger.transaction(index).offer;
        if offer.sender != self.vm || flags > 1 {
            return Err(Error::Invalid);
        }
        // As with what is given back: the call names what goes on.
        if !matches!(self.ledger.transaction(index).phase, Phase::Reclaiming(_)) {
            let running = self.running(offer.receivers);
            self.ledger
                .reclaim(self.platform, index, flags == 1, running)?;
        }
        self.proceed(index)
    }
}

/// FFA_VERSION: a caller for 1.0 would write other descriptors; one for a later 1.x need not.
const fn version(asked: u64) -> Regs {
    let is_compatible = asked >> 16 == VERSION >> 16 && asked & 0xffff >= VERSION & 0xffff;
    let answer = if is_compatible {
        VERSION
    } else {
        NOT_SUPPORTED as u32 as u64
    };
    [answer, 0, 0, 0, 0, 0, 0, 0]
}

/// FFA_FEATURES: buffers of 4 KiB, no dynamic ones, one retrieval of each transaction at a time.
/// There is none of the features that are no functions.
const fn features(id: u32) -> Regs {
    if is_known(id) {
        DONE
    } else {
        error(NOT_SUPPORTED)
    }
}

#[cfg(test)]
mod tests;
