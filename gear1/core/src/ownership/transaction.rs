//! What a transaction says, and what it does to pages.
//!
//! Requirements: G1-MEM-011, G1-MEM-016.

use gear1_abi::id::VmId;

use super::bit;
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

/// Where a transaction is. A number counts the pages that are wiped or cleaned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Phase {
    /// Nobody's.
    #[default]
    Free,
    /// The sender has not said all ranges yet.
    Filling,
    /// The pages are the sender's no more, and being wiped or cleaned.
    Sending(u16),
    /// To be retrieved or reclaimed.
    Sent,
    /// Mapped in some of the receivers.
    Retrieved,
    /// No receiver has it any more; being wiped or cleaned.
    Relinquishing(u16),
    /// Being wiped or cleaned for the sender.
    Reclaiming(u16),
    /// Donated and retrieved. Counts the pages that have not come back.
    Given(u16),
    /// Taken from who received it; being wiped for its home.
    Returning(u16),
}

/// One transaction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Transaction {
    /// Where it is.
    pub phase: Phase,
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
    /// Who was the last to give it back.
    pub(super) last: VmId,
    /// Makes its handle differ from those before it.
    pub(super) serial: u32,
    /// It goes back to its home.
    pub(super) returning: bool,
    pub(super) list: Pa,
}

impl Transaction {
    pub(super) const FREE: Self = Self {
        phase: Phase::Free,
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
        last: VmId::FIRST,
        serial: 0,
        returning: false,
        filled: 0,
        counted: 0,
        list: Pa::new(0),
    };

    /// Returns what sending does to the sender's pages.
    pub(super) const fn sending(&self, index: usize) -> Edit {
        let (from, to) = match (self.offer.kind, self.returning) {
            (Kind::Share, _) => (PageState::Owned, PageState::SharedOwned),
            (Kind::Lend, _) => (PageState::Owned, PageState::Lent),
            (Kind::Donate, false) => (PageState::Owned, PageState::Donated),
            (Kind::Donate, true) => (PageState::Received, PageState::Donated),
        };
        edit(Some(from), Some(to), index)
    }

    /// Tells whether `vm` may retrieve it now.
    #[must_use]
    pub fn may_retrieve(&self, vm: VmId) -> bool {
        let sent = matches!(self.phase, Phase::Sent | Phase::Retrieved);
        sent && self.offer.is_for(vm) && !self.is_held_by(vm)
    }

    /// Returns the VM that the manifest gave its pages to.
    pub(super) fn home(&self) -> VmId {
        if self.returning {
            self.offer.receiver()
        } else {
            self.offer.sender
        }
    }

    /// Tells whether `vm` has retrieved it.
    #[must_use]
    pub const fn is_held_by(&self, vm: VmId) -> bool {
        self.holders & bit(vm) != 0
    }

    /// Tells whether `vm` was the last to give it back, and it is wiped now if that is to be.
    #[must_use]
    pub fn is_given_back_by(&self, vm: VmId, zero: bool) -> bool {
        self.last == vm && (self.zero_after || !zero)
    }

    /// Notes that `vm` has it, and what it says.
    pub(super) const fn hold(&mut self, vm: VmId, request: Request) {
        if self.holders == 0 {
            self.zero_after = false;
        }
        self.holders |= bit(vm);
        self.writing = self.writing & !bit(vm) | if request.write { bit(vm) } else { 0 };
        self.execute = request.execute;
        self.zero_after |= request.zero_after;
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
