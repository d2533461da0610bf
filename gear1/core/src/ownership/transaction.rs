//! What a transaction says, and what it does to pages.
//!
//! Requirements: G1-MEM-011, G1-MEM-016.

use gear1_abi::id::VmId;

use super::{Error, bit};
use crate::addr::Pa;
use crate::stage2::{Attributes, Edit, PageState};

/// What a transaction is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kind {
    /// Both use it.
    #[default]
    Share,
    /// Only the receiver uses it, until it gives it back.
    Lend,
    /// The receiver gets it.
    Donate,
}

/// What the sender says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offer {
    /// Which kind.
    pub kind: Kind,
    /// Who sends.
    pub sender: VmId,
    /// Who may retrieve: bit per VM; one, if it is donated.
    pub receivers: u16,
    /// Who of them may write (always, when it is donated).
    pub writers: u16,
    /// The sender's own number for it.
    pub tag: u64,
    /// It is wiped before it is retrieved.
    pub zero: bool,
    /// How many ranges it has.
    pub ranges: u16,
    /// How many pages they have.
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

    /// Returns the receiver of what is donated.
    pub(super) fn receiver(&self) -> VmId {
        VmId::from_reg(self.receivers.trailing_zeros().into()).unwrap_or(VmId::FIRST)
    }
}

/// What a receiver says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// Wants to write.
    pub write: bool,
    /// Wants to execute.
    pub execute: bool,
    /// It is to be wiped when it is relinquished.
    pub zero_after: bool,
}

/// Where a transaction is. A phase that has steps ([`Ledger::step`](super::Ledger::step)) is left
/// by the last of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Phase {
    /// Nobody's.
    #[default]
    Free,
    /// The sender has not said all ranges yet.
    Filling,
    /// Steps: the pages are being claimed for it.
    Claiming,
    /// Steps: that was refused, and is being undone.
    Unclaiming(Error),
    /// Steps: all pages are claimed, and become what they are while they are out.
    Committing,
    /// Steps: the pages are the sender's no more, and being wiped or cleaned.
    Sending,
    /// To be retrieved or reclaimed.
    Sent,
    /// Steps: being mapped in one of the receivers.
    Mapping,
    /// Steps: being taken from one of the receivers, which gave it back, or has ended, or whose
    /// retrieval is refused.
    Unmapping(Option<Error>),
    /// Mapped in some of the receivers.
    Retrieved,
    /// Steps: no receiver has it any more; being wiped or cleaned.
    Relinquishing,
    /// Steps: being taken from whoever has it, wiped or cleaned, and given back to the sender.
    Reclaiming,
    /// Donated and retrieved. Counts the pages that have not come back.
    Given(u16),
    /// Steps: donated back, and retrieved by its home.
    Homing,
    /// Steps: being taken from who received it, wiped, and given back to its home.
    Returning,
}

/// What a phase with several kinds of steps does to all pages, one after the other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Stage {
    /// Who keeps pages loses them.
    #[default]
    Undo,
    /// Its tables that are not needed any more are taken away.
    Tidy,
    /// They are wiped or cleaned.
    Clean,
    /// Their home gets them.
    Back,
    /// Tables of the home that are not needed any more are taken away.
    TidyBack,
    /// Nothing is left of the transaction.
    Over,
}

/// A place in a transaction's pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Cursor {
    /// Which range.
    pub(super) range: u16,
    /// Which of its pages.
    pub(super) page: u16,
}

impl Cursor {
    /// The first page.
    pub(super) const START: Self = Self { range: 0, page: 0 };
    /// Behind all.
    pub(super) const END: Self = Self {
        range: u16::MAX,
        page: 0,
    };
}

/// One transaction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Transaction {
    /// Where it is.
    pub phase: Phase,
    /// What its steps do now.
    pub(super) stage: Stage,
    /// The page that they have come to.
    pub(super) at: Cursor,
    /// Where they end.
    pub(super) limit: Cursor,
    /// Whom they concern: the receiver that is given it, or that it is taken from; then, the one
    /// that was the last to give it back.
    pub(super) who: VmId,
    /// What that has asked for.
    pub(super) request: Request,
    /// It is wiped or cleaned before it is given back.
    pub(super) cleans: bool,
    /// Receivers whose last call is done, by steps of others, and does not know yet: bit per VM.
    pub(super) unanswered: u16,
    /// Those that gave it back last to be wiped: bit per VM.
    pub(super) wiping: u16,
    /// Where the rest of the fragment that is being read begins in the TX page, and where it ends.
    pub fragment: (u16, u16),
    /// What the sender says.
    pub offer: Offer,
    /// Ranges known so far.
    pub filled: u16,
    /// Pages known so far.
    pub(super) counted: u16,
    /// Who has it: bit per VM.
    pub(super) holders: u16,
    /// Who of them writes.
    pub(super) writing: u16,
    /// It is executed; by one receiver only.
    pub(super) execute: bool,
    /// It is to be wiped when the last receiver has given it back.
    pub(super) zero_after: bool,
    /// Makes its handle differ from those before it.
    pub(super) serial: u32,
    /// It goes back to its home.
    pub(super) returning: bool,
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
        filled: 0,
        counted: 0,
        list: Pa::new(0),
    };

    /// Returns what the sender's pages are before.
    pub(super) const fn unsent(&self) -> PageState {
        if self.returning {
            PageState::Received
        } else {
            PageState::Owned
        }
    }

    /// Returns what claiming them does.
    pub(super) const fn claiming(&self) -> Edit {
        edit(Some(self.unsent()), Some(PageState::Claimed), 0)
    }

    /// Returns what sending does to them when they are claimed.
    pub(super) const fn committing(&self, index: usize) -> Edit {
        let to = match self.offer.kind {
            Kind::Share => PageState::SharedOwned,
            Kind::Lend => PageState::Lent,
            Kind::Donate => PageState::Donated,
        };
        edit(Some(PageState::Claimed), Some(to), index)
    }

    /// Tells whether `vm` may retrieve it now.
    #[must_use]
    pub fn may_retrieve(&self, vm: VmId) -> bool {
        let sent = matches!(self.phase, Phase::Sent | Phase::Retrieved);
        sent && self.offer.is_for(vm) && !self.is_held_by(vm)
    }

    /// Tells whether `vm` may retrieve it when what is under way for another is done.
    #[must_use]
    pub fn may_be_asked(&self, vm: VmId) -> bool {
        let is_another = matches!(self.phase, Phase::Mapping | Phase::Unmapping(_));
        let is_free = is_another && self.who != vm && self.offer.is_for(vm);
        self.may_retrieve(vm) || is_free && !self.is_held_by(vm)
    }

    /// Returns the VM that the manifest gave its pages to.
    pub(super) fn home(&self) -> VmId {
        if self.returning {
            self.offer.receiver()
        } else {
            self.offer.sender
        }
    }

    /// Tells whether `vm` gave it back last in a call that said this, or asked for more.
    #[must_use]
    pub const fn is_given_back_by(&self, vm: VmId, zero: bool) -> bool {
        self.wiping & bit(vm) != 0 || !zero
    }

    /// Tells whether what is under way is done for, or to, `vm`.
    #[must_use]
    pub fn concerns(&self, vm: VmId) -> bool {
        self.who == vm
    }

    /// Tells whether `vm` has retrieved it.
    #[must_use]
    pub const fn is_held_by(&self, vm: VmId) -> bool {
        self.holders & bit(vm) != 0
    }

    /// Tells whether its phase has steps.
    #[cfg(test)]
    pub(super) const fn is_under_way(&self) -> bool {
        !matches!(
            self.phase,
            Phase::Free | Phase::Filling | Phase::Sent | Phase::Retrieved | Phase::Given(_)
        )
    }

    /// Tells whether a call has begun that only its sender can go on with.
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

    /// Notes who begins to retrieve it, and what that says.
    pub(super) const fn ask(&mut self, vm: VmId, request: Request) {
        self.who = vm;
        self.request = request;
        self.writing = self.writing & !bit(vm) | if request.write { bit(vm) } else { 0 };
        self.execute = request.execute;
    }

    /// Returns what retrieving does to the pages of `vm`, unless they come home.
    pub(super) const fn retrieving(&self, vm: VmId) -> Edit {
        let to = match self.offer.kind {
            Kind::Share | Kind::Lend => PageState::SharedBorrowed,
            Kind::Donate => PageState::Received,
        };
        Edit {
            rights: Attributes {
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
