//! What a transaction says, and what it does to pages.

use gear1_abi::id::VmId;

use super::pages::edit;
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
    /// Who may retrieve.
    pub receiver: VmId,
    /// The sender's own number for it.
    pub tag: u64,
    /// The receiver may write (always, when it is donated).
    pub write: bool,
    /// It is wiped before it is retrieved.
    pub zero: bool,
    /// How many ranges it has.
    pub ranges: u16,
    /// How many pages they have.
    pub pages: u16,
    /// Bytes of the descriptor before its first range.
    pub header: u16,
}

/// What the receiver says.
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
    /// Mapped in the receiver.
    Retrieved,
    /// The receiver has it no more; being wiped or cleaned.
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
    /// What the receiver has said.
    pub(super) request: Request,
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
            receiver: VmId::FIRST,
            tag: 0,
            write: false,
            zero: false,
            ranges: 0,
            pages: 0,
            header: 0,
        },
        request: Request {
            write: false,
            execute: false,
            zero_after: false,
        },
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

    /// Returns what retrieving does to the receiver's pages, unless they come home.
    pub(super) const fn retrieving(&self) -> Edit {
        let to = match self.offer.kind {
            Kind::Share | Kind::Lend => PageState::SharedBorrowed,
            Kind::Donate => PageState::Received,
        };
        Edit {
            rights: Attributes {
                write: self.request.write,
                execute: self.request.execute,
                ..Attributes::DATA
            },
            ..edit(None, Some(to), 0)
        }
    }
}
