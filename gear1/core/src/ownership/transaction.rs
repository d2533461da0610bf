//! Facts of a transaction, and its changes of pages.
//!
//! Requirements: G1-MEM-011, G1-MEM-016.

use gear1_abi::id::VmId;

use super::{Error, Refusal, bit};
use crate::addr::Pa;
use crate::stage2::{Attributes, Edit, PageState};

/// Kind of a transaction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kind {
    /// Sender and receivers use the pages.
    #[default]
    Share,
    /// Only the receivers use the pages, until they give them back.
    Lend,
    /// The receiver owns the pages.
    Donate,
}

/// Offer of the sender.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offer {
    /// Kind of the transaction.
    pub kind: Kind,
    /// VM that sends.
    pub sender: VmId,
    /// VMs that may retrieve, one bit each; a single one for a donation.
    pub receivers: u16,
    /// Receivers that may write, one bit each; always the receiver of a donation.
    pub writers: u16,
    /// Tag that the sender chose.
    pub tag: u64,
    /// Whether the pages are wiped before the retrieval.
    pub zero: bool,
    /// Number of ranges.
    pub ranges: u16,
    /// Number of pages in all ranges.
    pub pages: u16,
    /// Bytes of the descriptor before its first range.
    pub header: u16,
}

impl Offer {
    /// Tells whether `vm` may retrieve it.
    #[must_use]
    pub const fn is_for(&self, vm: VmId) -> bool {
        self.receivers & bit(vm) != 0
    }

    /// Returns the receiver of a donation.
    pub(super) fn receiver(&self) -> VmId {
        VmId::from_reg(self.receivers.trailing_zeros().into()).unwrap_or(VmId::FIRST)
    }
}

/// Request of a receiver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// Whether the receiver wants to write.
    pub write: bool,
    /// Whether the receiver wants to execute.
    pub execute: bool,
    /// Whether the pages are wiped when they are relinquished.
    pub zero_after: bool,
}

/// Phase of a transaction. The last step ([`Ledger::step`](super::Ledger::step)) of a phase with
/// steps leaves the phase.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Phase {
    /// The slot is unused.
    #[default]
    Free,
    /// The sender has not said all ranges yet.
    Filling,
    /// Steps: the pages are being claimed.
    Claiming,
    /// Steps: a claim was refused, and the earlier claims are being undone.
    Unclaiming(Error),
    /// Steps: all pages are claimed, and get their state for the time of the transaction.
    Committing,
    /// Steps: the sender has lost the pages, which are being wiped or cleaned.
    Sending,
    /// Waits for a retrieval or a reclaim.
    Sent,
    /// Steps: the pages are being mapped in one of the receivers.
    Mapping,
    /// Steps: the pages are being taken from one of the receivers, which gave them back, or has
    /// ended, or whose retrieval is refused. In the last case, if nobody else has the pages, these
    /// are cleaned.
    Unmapping(Option<Error>),
    /// Mapped in some of the receivers.
    Retrieved,
    /// Steps: no receiver has the pages any longer; they are being wiped or cleaned.
    Relinquishing,
    /// Steps: the pages are being taken from all receivers, wiped or cleaned, and given back to the
    /// sender.
    Reclaiming,
    /// Donated and retrieved. Counts the pages that have not come back.
    Given(u16),
    /// Steps: the pages were donated back, and their home retrieves them.
    Homing,
    /// Steps: the pages are being taken from the receiver of a donation, wiped, and given back to
    /// their home.
    Returning,
}

/// Kind of steps that a phase makes with all pages, one after the other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Stage {
    /// The keeper of the pages loses them.
    #[default]
    Undo,
    /// Tables of the keeper that are no longer needed are freed.
    Tidy,
    /// The pages are wiped or cleaned.
    Clean,
    /// The home of the pages gets them.
    Back,
    /// Tables of the home that are no longer needed are freed.
    TidyBack,
    /// The transaction ends.
    Over,
}

/// A place in a transaction's pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Cursor {
    /// Index of the range.
    pub(super) range: u16,
    /// Index of the page in the range.
    pub(super) page: u16,
}

impl Cursor {
    /// The first page.
    pub(super) const START: Self = Self { range: 0, page: 0 };
    /// Place behind all pages.
    pub(super) const END: Self = Self {
        range: u16::MAX,
        page: 0,
    };
}

/// Returns a set of VMs in which `vm` is, or is not.
const fn with(set: u16, vm: VmId, is_in: bool) -> u16 {
    set & !bit(vm) | if is_in { bit(vm) } else { 0 }
}

/// Receivers of which each begins a pass over the pages when the pass under way is done: one bit
/// for each VM. A VM that calls once more cannot come before them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Turns {
    /// Receivers retrieve.
    pub(super) retrieving: u16,
    /// Of these, the ones that write.
    pub(super) writing: u16,
    /// Of these, the ones that ask for a wipe when the pages are given back.
    pub(super) zeroing: u16,
    /// Receivers give the pages back.
    pub(super) relinquishing: u16,
}

impl Turns {
    const NONE: Self = Self {
        retrieving: 0,
        writing: 0,
        zeroing: 0,
        relinquishing: 0,
    };

    /// Notes that `vm` retrieves.
    pub(super) const fn retrieve(&mut self, vm: VmId, request: Request) {
        self.retrieving |= bit(vm);
        self.writing = with(self.writing, vm, request.write);
        self.zeroing = with(self.zeroing, vm, request.zero_after);
    }

    /// Returns the request of `vm`. A VM that executes is the only receiver, so it never waits.
    pub(super) const fn request(&self, vm: VmId) -> Request {
        Request {
            write: self.writing & bit(vm) != 0,
            execute: false,
            zero_after: self.zeroing & bit(vm) != 0,
        }
    }

    /// Takes the turns of `vm` away.
    pub(super) const fn forget(&mut self, vm: VmId) {
        self.retrieving &= !bit(vm);
        self.relinquishing &= !bit(vm);
    }

    /// Returns whose turn it is after a pass of `last`: of the VMs in `waiting`, the first behind
    /// `last`, from where the search goes round.
    pub(super) fn next(waiting: u16, last: VmId) -> Option<VmId> {
        let behind = waiting & !bit(last).wrapping_shl(1).wrapping_sub(1);
        let set = if behind == 0 { waiting } else { behind };
        VmId::from_reg(set.trailing_zeros().into())
    }
}

/// Refusals of retrievals of which others made the last step, so that the receiver is not told yet:
/// one bit for each VM.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Refused {
    /// No table was left.
    no_memory: u16,
    /// Something else is mapped there.
    denied: u16,
}

impl Refused {
    const NOBODY: Self = Self {
        no_memory: 0,
        denied: 0,
    };

    pub(super) const fn add(&mut self, vm: VmId, error: Error) {
        match error {
            Error::NoMemory => self.no_memory |= bit(vm),
            Error::Invalid | Error::Denied | Error::Busy => self.denied |= bit(vm),
        }
    }

    pub(super) const fn of(&self, vm: VmId) -> Option<Error> {
        if self.no_memory & bit(vm) != 0 {
            Some(Error::NoMemory)
        } else if self.denied & bit(vm) != 0 {
            Some(Error::Denied)
        } else {
            None
        }
    }

    pub(super) const fn forget(&mut self, vm: VmId) {
        self.no_memory &= !bit(vm);
        self.denied &= !bit(vm);
    }
}

/// A transaction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Transaction {
    /// Phase of the transaction.
    pub phase: Phase,
    /// Kind of the current steps.
    pub(super) stage: Stage,
    /// Next page of the steps.
    pub(super) at: Cursor,
    /// End of the steps.
    pub(super) limit: Cursor,
    /// VM that the steps concern: the receiver that gets the pages, or loses them; afterwards the
    /// last one that gave them back.
    pub(super) who: VmId,
    /// Request of that receiver.
    pub(super) request: Request,
    /// Whether the pages are wiped or cleaned before they are given back.
    pub(super) cleans: bool,
    /// Receivers that do not know yet that their last call is done, by steps of others: one bit for
    /// each VM.
    pub(super) unanswered: u16,
    /// Receivers that asked for a wipe when they gave the pages back last, one bit for each VM.
    pub(super) wiping: u16,
    /// Receivers whose call waits for the pass under way.
    pub(super) turns: Turns,
    /// Receivers that do not know yet that their last retrieval is refused.
    pub(super) refused: Refused,
    /// Offset in the TX page at which the unread rest of the fragment begins, and its end.
    pub fragment: (u16, u16),
    /// Offer of the sender.
    pub offer: Offer,
    /// Ranges known so far.
    pub filled: u16,
    /// Pages known so far.
    pub(super) counted: u16,
    /// Receivers that have the pages, one bit for each VM.
    pub(super) holders: u16,
    /// Receivers that write, one bit for each VM.
    pub(super) writing: u16,
    /// Whether a receiver executes; there is at most one.
    pub(super) execute: bool,
    /// Whether the pages are wiped when the last receiver has given them back.
    pub(super) zero_after: bool,
    /// Serial number, which makes a handle differ from earlier ones of the slot.
    pub(super) serial: u32,
    /// Whether the pages go back to their home.
    pub(super) returning: bool,
    /// Whether the sender was told that the pages are sent, which makes the handle a valid one.
    pub(super) is_sent: bool,
    pub(super) list: Pa,
}

impl Transaction {
    pub(super) const FREE: Self = Self {
        phase: Phase::Free,
        stage: Stage::Undo,
        at: Cursor::START,
        limit: Cursor::END,
        who: VmId::FIRST,
        request: Request {
            write: false,
            execute: false,
            zero_after: false,
        },
        cleans: false,
        unanswered: 0,
        wiping: 0,
        turns: Turns::NONE,
        refused: Refused::NOBODY,
        fragment: (0, 0),
        offer: Offer {
            kind: Kind::Share,
            sender: VmId::FIRST,
            receivers: 0,
            writers: 0,
            tag: 0,
            zero: false,
            ranges: 0,
            pages: 0,
            header: 0,
        },
        holders: 0,
        writing: 0,
        execute: false,
        zero_after: false,
        serial: 0,
        returning: false,
        is_sent: false,
        filled: 0,
        counted: 0,
        list: Pa::new(0),
    };

    /// Returns the state of the sender's pages before the transaction.
    pub(super) const fn unsent(&self) -> PageState {
        if self.returning {
            PageState::Received
        } else {
            PageState::Owned
        }
    }

    /// Returns the edit that claims the sender's pages.
    pub(super) const fn claiming(&self) -> Edit {
        edit(Some(self.unsent()), Some(PageState::Claimed), 0)
    }

    /// Returns the edit that turns claimed pages into sent ones.
    pub(super) const fn committing(&self, index: usize) -> Edit {
        let to = match self.offer.kind {
            Kind::Share => PageState::SharedOwned,
            Kind::Lend => PageState::Lent,
            Kind::Donate => PageState::Donated,
        };
        edit(Some(PageState::Claimed), Some(to), index)
    }

    /// Returns whether `vm` may retrieve the pages now. A VM that has given them back by a call
    /// that it does not know the end of waits for that: the call would take the pages back again.
    #[must_use]
    pub fn may_retrieve(&self, vm: VmId) -> bool {
        let sent = matches!(self.phase, Phase::Sent | Phase::Retrieved);
        // planted: who is not named retrieves
        sent && self.offer.is_for(vm) && !self.is_held_by(vm) && self.unanswered & bit(vm) == 0
    }

    /// Returns whether `vm` may retrieve the pages once the work under way for another receiver is
    /// done.
    #[must_use]
    pub fn may_be_asked(&self, vm: VmId) -> bool {
        // planted: a retrieval is refused while another receiver gives the pages back
        let is_another = matches!(
            self.phase,
            Phase::Mapping | Phase::Unmapping(_) | Phase::Relinquishing
        );
        let is_free = is_another && self.who != vm && self.offer.is_for(vm);
        let is_told = self.unanswered & bit(vm) == 0;
        self.may_retrieve(vm) || is_free && is_told && !self.is_held_by(vm)
    }

    /// Returns the VM that the manifest gave its pages to.
    pub(super) fn home(&self) -> VmId {
        if self.returning {
            self.offer.receiver()
        } else {
            self.offer.sender
        }
    }

    /// Returns whether `vm` has asked for this wipe, or for more, when it gave the pages back last.
    #[must_use]
    pub const fn is_given_back_by(&self, vm: VmId, zero: bool) -> bool {
        self.wiping & bit(vm) != 0 || !zero
    }

    /// Returns whether the work under way is a retrieval of `vm`, or undoes one that is refused.
    #[must_use]
    pub fn is_retrieving(&self, vm: VmId) -> bool {
        let is_mapping = matches!(self.phase, Phase::Mapping | Phase::Unmapping(Some(_)));
        let comes_home = self.phase == Phase::Homing && self.offer.is_for(vm);
        is_mapping && self.who == vm || comes_home
    }

    /// Returns whether the work under way takes back what `vm` gives back.
    #[must_use]
    pub fn is_relinquishing(&self, vm: VmId) -> bool {
        let is_taken = matches!(self.phase, Phase::Unmapping(None) | Phase::Relinquishing);
        is_taken && self.who == vm
    }

    /// Returns whether the pages are being mapped in, or taken from, a receiver other than `vm`.
    #[must_use]
    pub fn is_mapped_for_another(&self, vm: VmId) -> bool {
        let is_pass = matches!(self.phase, Phase::Mapping | Phase::Unmapping(_));
        is_pass && self.who != vm
    }

    /// Returns whether a retrieval or a relinquishment of `vm` has begun, or waits for its turn,
    /// and is not answered.
    pub(super) fn is_awaited_by(&self, vm: VmId) -> bool {
        let waiting = self.turns.retrieving | self.turns.relinquishing;
        // planted: buffers go before a vCPU is told that its call is done
        let is_untold = (waiting | self.unanswered) & bit(vm) != 0 || self.refusal(vm).is_some();
        is_untold || self.is_retrieving(vm) || self.is_relinquishing(vm)
    }

    /// Returns why the last retrieval of `vm` is refused, if another VM made its last step.
    #[must_use]
    pub const fn refusal(&self, vm: VmId) -> Option<Error> {
        self.refused.of(vm)
    }

    /// Returns whether `vm` has retrieved the pages.
    #[must_use]
    pub const fn is_held_by(&self, vm: VmId) -> bool {
        self.holders & bit(vm) != 0
    }

    /// Returns the receivers that have the pages, or for which work on the pages is under way, one
    /// bit for each VM; nothing in a phase that no reclaim can end.
    pub(super) const fn users(&self) -> Option<u16> {
        match self.phase {
            Phase::Sent => Some(0),
            // planted: what a receiver still has is reclaimed
            Phase::Retrieved => Some(self.holders),
            Phase::Mapping | Phase::Unmapping(_) => Some(self.holders | bit(self.who)),
            Phase::Relinquishing => Some(bit(self.who)),
            Phase::Free
            | Phase::Filling
            | Phase::Claiming
            | Phase::Unclaiming(_)
            | Phase::Committing
            | Phase::Sending
            | Phase::Reclaiming
            | Phase::Given(_)
            | Phase::Homing
            | Phase::Returning => None,
        }
    }

    /// Returns whether the phase has steps.
    #[cfg(test)]
    pub(super) const fn is_under_way(&self) -> bool {
        !matches!(
            self.phase,
            Phase::Free | Phase::Filling | Phase::Sent | Phase::Retrieved | Phase::Given(_)
        )
    }

    /// Returns whether a call has begun that only the sender can continue.
    pub(super) const fn is_being_sent(&self) -> bool {
        match self.phase {
            Phase::Filling => self.fragment.0 < self.fragment.1,
            Phase::Claiming | Phase::Unclaiming(_) | Phase::Committing | Phase::Sending => true,
            Phase::Free
            | Phase::Sent
            | Phase::Mapping
            | Phase::Unmapping(_)
            | Phase::Retrieved
            | Phase::Relinquishing
            | Phase::Reclaiming
            | Phase::Given(_)
            | Phase::Homing
            | Phase::Returning => false,
        }
    }

    /// Begins to map the pages in `vm`, as that asks.
    pub(super) const fn ask(&mut self, vm: VmId, request: Request) {
        self.who = vm;
        self.request = request;
        self.writing = with(self.writing, vm, request.write);
        self.execute = request.execute;
        self.unanswered &= !bit(vm);
        self.wiping &= !bit(vm);
        self.refused.forget(vm);
        self.begin(Phase::Mapping, Stage::Undo);
    }

    /// Notes whether `vm`, which gives the pages back, asks for a wipe.
    pub(super) fn note_wipe(&mut self, vm: VmId, zero: bool) -> Result<(), Refusal> {
        if !self.is_held_by(vm) {
            return Err(Refusal::Denied);
        }
        if zero && (self.offer.kind == Kind::Share || self.writing & bit(vm) == 0) {
            return Err(Refusal::Invalid);
        }
        self.wiping = with(self.wiping, vm, zero);
        Ok(())
    }

    /// Begins a phase with its first stage.
    pub(super) const fn begin(&mut self, phase: Phase, stage: Stage) {
        self.phase = phase;
        self.go_to(stage);
    }

    /// Begins a stage with the first page.
    pub(super) const fn go_to(&mut self, stage: Stage) {
        self.stage = stage;
        self.at = Cursor::START;
    }

    /// Begins to take the pages from `vm`, which gives them back.
    pub(super) const fn give_back(&mut self, vm: VmId) {
        self.who = vm;
        self.zero_after |= self.wiping & bit(vm) != 0;
        self.unanswered &= !bit(vm);
        self.begin(Phase::Unmapping(None), Stage::Undo);
    }

    /// Returns what retrieving does to the pages of `vm`, unless they come home.
    pub(super) const fn retrieving(&self, vm: VmId) -> Edit {
        let to = match self.offer.kind {
            Kind::Share | Kind::Lend => PageState::SharedBorrowed,
            Kind::Donate => PageState::Received,
        };
        Edit {
            rights: Attributes {
                // planted: a receiver writes what it may only read
                write: self.writing & bit(vm) != 0,
                execute: self.execute,
                ..Attributes::DATA
            },
            ..edit(None, Some(to), 0)
        }
    }
}

/// Returns the edit of a page of data.
pub(super) const fn edit(from: Option<PageState>, to: Option<PageState>, tag: usize) -> Edit {
    Edit {
        from,
        to,
        rights: Attributes::DATA,
        tag: tag as u8,
    }
}
