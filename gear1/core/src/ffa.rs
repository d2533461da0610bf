//! FF-A 1.1 (Arm DEN0077A) as guests see it: the memory calls, and what goes with them.
//!
//! Owns: what a call's registers mean, and the answers. Who owns which page is
//! [`crate::ownership`]'s; how descriptors look is [`descriptor`]'s. The steps of a sender's calls
//! are in `send`, those of a receiver's in `receive`; neither uses the other. Every register and
//! every byte of a TX buffer is an allegation of the caller's: each is copied once, and judged.
//!
//! Limits: [`MAX_RECEIVERS`](descriptor::MAX_RECEIVERS) receivers and
//! [`MAX_PAGES`](crate::ownership::MAX_PAGES) pages; buffers of one page. A call is left with
//! [`Outcome::Again`] after each step of it ([`steps`](crate::ownership::Step)): the caller
//! executes the same instruction once more, so its interrupts are taken in between, and nobody
//! waits for the lock for longer than a step.
//!
//! Requirements: G1-MEM-012, G1-MEM-020.

pub mod descriptor;
pub mod message;
mod receive;
mod send;

use gear1_abi::id::VmId;
use gear1_abi::layout::PAGE_SIZE;
use gear1_abi::regs::Regs;

use crate::addr::{Ipa, Pa};
use crate::ownership::{Error, Kind, Ledger, Piece, Release, Step, Vms, bit, each_vm};
use descriptor::Header;

/// Most ranges that are read or written in one step.
const RANGES_AT_ONCE: usize = 16;

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
    /// Bit that marks an identifier of the SMC64 convention.
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

/// Services of the machine that the calls need.
pub trait Platform: Vms {
    /// Reads words of a guest's page, which it may be writing. The offset is a multiple of 8.
    fn read_page(&mut self, page: Pa, offset: u64, words: &mut [u64]);
    /// Writes words of a guest's page likewise.
    fn write_page(&mut self, page: Pa, offset: u64, words: &[u64]);
    /// Wipes a piece, or only cleans it, so that its next user finds the contents in memory.
    fn clean(&mut self, piece: Piece);
    /// Tells whether a VM runs.
    fn is_running(&self, vm: VmId) -> bool;
    /// Returns the VMs that may share memory with `vm`: bit per VM.
    fn peers(&self, vm: VmId) -> u16;
    /// Returns the number of a VM's vCPUs.
    fn vcpu_count(&self, vm: VmId) -> u16;
}

/// Result of a step of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// X0 to X7.
    Return(Regs),
    /// The call is not done: the vCPU must execute the instruction again.
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

/// Result of a successful call without return values.
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

/// A step was made that neither wipes nor cleans.
fn made(step: Step) -> Answer {
    match step {
        Step::More | Step::Clean(_) => Ok(Outcome::Again),
        Step::Settled(result) => result.and_then(|()| done(DONE)),
    }
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

/// Result of a step towards the end of a VM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The VM's memory is as the manifest says.
    Done,
    /// More steps are left.
    More,
    /// The VM runs: nothing was taken from it.
    Runs,
}

/// Makes one step towards the end of a VM ([`Ledger::release`]), unless the VM runs.
///
/// The caller has looked at the VM's state before it took the lock over shared memory. Meanwhile
/// another CPU may have loaded and started the VM: buffers and transactions of the new life are no
/// longer the load's to take. A look under this lock is enough, although the VM may be started
/// right after it: nobody starts a VM whose release has not been done since it last ran, and until
/// the VM calls, which takes this lock, another release finds nothing to do.
pub fn release<P: Platform>(ledger: &mut Ledger, platform: &mut P, vm: VmId) -> End {
    // planted: a load that comes late takes the memory of the VM's next life
    if platform.is_running(vm) {
        return End::Runs;
    }
    match ledger.release(platform, vm) {
        Release::Done => End::Done,
        Release::More => End::More,
        Release::Clean(piece) => {
            if piece.pages != 0 {
                platform.clean(piece);
            }
            End::More
        }
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
            return self.go_on_sending(index);
        }
        match id {
            function::VERSION => done(version(low(x1))),
            function::FEATURES => done(features(x1 as u32)),
            function::ID_GET => done(success(endpoint(self.vm).into(), 0)),
            function::RXTX_MAP => self.map(address(x1), address(x2), low(x3)),
            function::RXTX_UNMAP => self.unmap(),
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
        let step = self
            .ledger
            .map_buffers(self.platform, self.vm, Ipa::new(tx), Ipa::new(rx));
        made(step)
    }

    fn unmap(&mut self) -> Answer {
        if self.ledger.needs_buffers(self.vm) {
            return Err(Error::Busy);
        }
        let step = self.ledger.unmap_buffers(self.platform, self.vm);
        made(step.ok_or(Error::Invalid)?)
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
        // Bound: MAX_VMS (16).
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

    /// Reads the beginning of a descriptor whose length is said in X1 and X2. Returns as well how
    /// many bytes of it are there.
    #[inline(never)]
    fn header(&mut self, regs: &Regs, address: u64) -> Result<(Header, u64), Error> {
        let [_, total, size, _, pages, ..] = *regs;
        let total = low(total);
        let size = low(size);
        // The descriptor is in the TX buffer.
        if address != 0 || low(pages) != 0 || size > total {
            return Err(Error::Invalid);
        }
        let tx = self.tx(size)?;
        let mut read = |offset: u64, words: &mut [u64]| {
            // planted: a descriptor is read beyond its end
            if offset.saturating_add(size_of_val(words) as u64) > size {
                return Err(Error::Invalid);
            }
            self.platform.read_page(tx, offset, words);
            Ok(())
        };
        Ok((Header::read(&mut read)?, size))
    }

    /// Makes one step of the work under way in a transaction. Returns whether that was the last
    /// one.
    #[inline(never)]
    fn step(&mut self, index: usize) -> Result<bool, Error> {
        let step = self.ledger.step(self.platform, index);
        self.stepped(step)
    }

    /// Wipes or cleans what a step says. Returns whether the step was the last one.
    fn stepped(&mut self, step: Step) -> Result<bool, Error> {
        match step {
            Step::More => Ok(false),
            Step::Clean(piece) => {
                if piece.pages != 0 {
                    self.platform.clean(piece);
                }
                Ok(false)
            }
            Step::Settled(result) => result.map(|()| true),
        }
    }

    /// A step was made of what another VM has begun; what comes of it is that one's to know.
    fn helped(&mut self, step: Step) {
        let _answer = self.stepped(step);
    }

    fn handle_and(&self, id: u32, index: usize, third: u64) -> Regs {
        let handle = self.ledger.handle(index);
        [id.into(), low(handle), handle >> 32, third, 0, 0, 0, 0]
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
