//! Steps of long work: all changes, wipes and cleanings of a transaction's pages.
//!
//! A call changes the transaction's phase and is then repeated, with the lock dropped in between,
//! until the phase is a resting one. Each step reads at most [`PAGES_AT_ONCE`] pages, makes at most
//! one table or checks one for [`tidy_pages`], and wipes at most [`PIECE`].
//!
//! Three kinds of events may come between two steps, without harm:
//!
//! - *Another call of any VM on the same transaction.* The phase refuses the call, or the call
//!   makes a step of the work under way (so nobody waits for a VM that does not continue). At most
//!   one pass over the pages of a transaction is under way: the phase names the pass and its VM,
//!   the cursor its progress.
//! - *A call on other transactions with the same pages.* Pages are claimed before they are sent: a
//!   [`PageState::Claimed`] page cannot be sent by another transaction, and keeps all rights. Pages
//!   change only when all are claimed, and from then on the change cannot be refused. A refused
//!   claim is undone up to its last page, so a refused call has never taken a right away.
//! - *The end of any VM.* [`Ledger::release`] turns the transaction to the phase that takes it
//!   back, from the first page on: undoing a page that was not changed, or is undone already, has
//!   no effect. A call that continues later finds the transaction gone, or in a phase that refuses
//!   the call.
//!
//! At the end of a pass that takes pages, the pages are gone from all TLBs; the phase that gives
//! them to another VM comes after that. Requirements: G1-MEM-012, G1-MEM-014, G1-MEM-015,
//! G1-MEM-023.

use gear1_abi::id::VmId;
use gear1_abi::layout::{PAGE_SIZE, el2::PIECE};

use super::pages::{
    PAGES_AT_ONCE, amend_page, amend_pages, donated_by, edit, edit_pages, region_of, tidy_pages,
};
use super::transaction::{Cursor, Stage, Turns};
use super::{Error, Kind, Ledger, MAX_TRANSACTIONS, Phase, Piece, Transaction, Vms, bit, each_vm};
use crate::addr::Pa;
use crate::stage2::{Edit, PageState};
use crate::table::LiveTables as _;

/// Result of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Another step must follow.
    More,
    /// Another step must follow, after the wipe or the cleaning of this piece, which may have no
    /// pages.
    Clean(Piece),
    /// The last step: the call is done, or refused.
    Settled(Result<(), Error>),
}

impl Ledger {
    /// Makes one step of the work under way in a transaction.
    pub fn step<V: Vms>(&mut self, vms: &mut V, index: usize) -> Step {
        let mut transaction = self.transaction(index);
        let step = match transaction.phase {
            Phase::Free | Phase::Filling | Phase::Sent | Phase::Retrieved | Phase::Given(_) => {
                return Step::Settled(Ok(()));
            }
            Phase::Claiming => self.claim(vms, &mut transaction),
            Phase::Committing => {
                commit(vms, &mut transaction, index);
                Step::More
            }
            Phase::Mapping => map(vms, &mut transaction),
            Phase::Unclaiming(_)
            | Phase::Sending
            | Phase::Unmapping(_)
            | Phase::Relinquishing
            | Phase::Reclaiming
            | Phase::Homing
            | Phase::Returning => self.stage(vms, &mut transaction, index),
        };
        transaction.next_turn(self.leaving);
        *self.slot(index) = transaction;
        if transaction.stage == Stage::Over {
            self.free(vms, index);
            if transaction.phase == Phase::Homing {
                self.free_what_came_home(vms);
            }
        }
        step
    }

    /// Claims the pages to send.
    fn claim<V: Vms>(&self, vms: &mut V, transaction: &mut Transaction) -> Step {
        let sender = transaction.offer.sender;
        let claiming = transaction.claiming();
        let home = transaction.home();
        // A received page may be taken away again until the whole donation has been received.
        let is_whole = |vms: &mut V, pa: Pa| {
            // planted: what is still being received is passed on
            home == sender
                || donated_by(vms, home, pa)
                    .is_some_and(|index| matches!(self.transaction(index).phase, Phase::Given(_)))
        };
        match edit_pages(vms, sender, transaction, &claiming, is_whole) {
            Ok(false) => {}
            Ok(true) => transaction.begin(Phase::Committing, Stage::Back),
            Err(error) => {
                // planted: a claim that is refused is not undone
                transaction.limit = transaction.at;
                transaction.begin(Phase::Unclaiming(error), Stage::Back);
            }
        }
        Step::More
    }

    /// Makes one step of a stage.
    fn stage<V: Vms>(&mut self, vms: &mut V, transaction: &mut Transaction, index: usize) -> Step {
        match transaction.stage {
            Stage::Undo => {
                if undo(vms, transaction, index) {
                    let keeper = transaction.keeper();
                    // planted: a page that was given back stays in TLBs
                    vms.tables(keeper).invalidate();
                    transaction.go_to(Stage::Tidy);
                }
                Step::More
            }
            Stage::Tidy => {
                let keeper = transaction.keeper();
                if !tidy_pages(vms, keeper, transaction) {
                    return Step::More;
                }
                transaction.undone()
            }
            Stage::Clean => match piece(vms, transaction, index) {
                Some(piece) => Step::Clean(piece),
                None => transaction.cleaned(),
            },
            Stage::Back => {
                if self.back(vms, transaction, index) {
                    transaction.given_back();
                }
                Step::More
            }
            Stage::TidyBack => {
                let home = transaction.gainer();
                if !tidy_pages(vms, home, transaction) {
                    return Step::More;
                }
                transaction.over()
            }
            Stage::Over => Step::Settled(Ok(())),
        }
    }

    /// Gives pages back to their home. Tells whether those were the last.
    fn back<V: Vms>(&mut self, vms: &mut V, transaction: &mut Transaction, index: usize) -> bool {
        let home = transaction.gainer();
        if transaction.phase == Phase::Homing {
            self.come_home(vms, transaction)
        } else if transaction.phase == Phase::Returning {
            let owned = edit(Some(PageState::Donated), Some(PageState::Owned), index);
            amend_pages(vms, transaction, |vms, pa| {
                amend_page(vms, home, pa, &owned);
            })
        } else {
            let sent = Edit {
                to: Some(transaction.unsent()),
                ..transaction.committing(index).reversed()
            };
            let claimed = transaction.claiming().reversed();
            amend_pages(vms, transaction, |vms, pa| {
                if !amend_page(vms, home, pa, &sent) {
                    amend_page(vms, home, pa, &claimed);
                }
            })
        }
    }

    /// Gives pages that were donated back to their home, each of which ends a part of the donation
    /// that the page left by. Tells whether those were the last.
    fn come_home<V: Vms>(&mut self, vms: &mut V, transaction: &mut Transaction) -> bool {
        let home = transaction.gainer();
        amend_pages(vms, transaction, |vms, pa| {
            // A page that is donated back was Received, so its home's descriptor is Donated.
            if let Some(tag) = donated_by(vms, home, pa) {
                let owned = edit(Some(PageState::Donated), Some(PageState::Owned), tag);
                amend_page(vms, home, pa, &owned);
                if let Phase::Given(left) = &mut self.slot(tag).phase {
                    *left = left.saturating_sub(1);
                }
            }
        })
    }

    /// Ends donations of which nothing is left.
    fn free_what_came_home<V: Vms>(&mut self, vms: &mut V) {
        // Bound: MAX_TRANSACTIONS (32).
        for index in 0..MAX_TRANSACTIONS {
            if self.transaction(index).phase == Phase::Given(0) {
                self.free(vms, index);
            }
        }
    }
}

/// Makes pages that are claimed what they are when they are sent.
fn commit<V: Vms>(vms: &mut V, transaction: &mut Transaction, index: usize) {
    let sender = transaction.offer.sender;
    let committing = transaction.committing(index);
    let is_done = amend_pages(vms, transaction, |vms, pa| {
        amend_page(vms, sender, pa, &committing);
    });
    if is_done {
        // planted: a lost page stays in TLBs
        if committing.takes_rights() {
            vms.tables(sender).invalidate();
        }
        transaction.begin(Phase::Sending, Stage::Clean);
    }
}

/// Maps pages in who retrieves them.
fn map<V: Vms>(vms: &mut V, transaction: &mut Transaction) -> Step {
    let who = transaction.who;
    let retrieving = transaction.retrieving(who);
    match edit_pages(vms, who, transaction, &retrieving, |_, _| true) {
        Ok(false) => Step::More,
        Ok(true) => {
            transaction.zero_after &= transaction.holders != 0;
            transaction.zero_after |= transaction.request.zero_after;
            transaction.holders |= bit(who);
            transaction.unanswered |= bit(who);
            transaction.phase = match transaction.offer.kind {
                Kind::Share | Kind::Lend => Phase::Retrieved,
                Kind::Donate => Phase::Given(transaction.offer.pages),
            };
            Step::Settled(Ok(()))
        }
        Err(error) => {
            transaction.begin(Phase::Unmapping(Some(error)), Stage::Undo);
            Step::More
        }
    }
}

/// Takes pages from who has them. Tells whether those were the last.
fn undo<V: Vms>(vms: &mut V, transaction: &mut Transaction, index: usize) -> bool {
    let keeper = transaction.keeper();
    let home = transaction.gainer();
    let gone = transaction.losing(index);
    let is_returning = transaction.phase == Phase::Returning;
    amend_pages(vms, transaction, |vms, pa| {
        // A page that has come home before belongs to another transaction, or to none.
        if !is_returning || donated_by(vms, home, pa) == Some(index) {
            amend_page(vms, keeper, pa, &gone);
        }
    })
}

/// Returns the next piece to wipe or clean, if there is one, and moves the cursor behind the piece.
/// A piece lies in one region of the home: the piece never spans two regions, even adjacent ones.
fn piece<V: Vms>(vms: &mut V, transaction: &mut Transaction, index: usize) -> Option<Piece> {
    let is_returning = transaction.phase == Phase::Returning;
    let mut piece = Piece {
        pa: Pa::new(0),
        pages: 0,
        zero: transaction.wipes(),
    };
    let homes = vms.regions(transaction.home());
    transaction.at.page(vms, transaction)?;
    // Bound: PAGES_AT_ONCE (16).
    for _ in 0..PAGES_AT_ONCE {
        let Some((pa, next)) = transaction.at.page(vms, transaction) else {
            break;
        };
        let is_other = is_returning && donated_by(vms, transaction.offer.sender, pa) != Some(index);
        let size = u64::from(piece.pages).wrapping_mul(PAGE_SIZE);
        let with_it = size.wrapping_add(PAGE_SIZE);
        let follows = piece.pa.checked_add(size) == Some(pa);
        let start = piece.pa.get();
        let is_one_region = || region_of(homes, start, with_it, |region| region.pa).is_some();
        // planted: a piece that is wiped lies in two regions
        if piece.pages != 0 && (is_other || !follows || with_it > PIECE || !is_one_region()) {
            break;
        }
        transaction.at = next;
        if !is_other {
            if piece.pages == 0 {
                piece.pa = pa;
            }
            piece.pages = piece.pages.wrapping_add(1);
        }
    }
    Some(piece)
}

impl Transaction {
    /// Returns whether [`Stage::Clean`] wipes the pages, not only cleans them.
    const fn wipes(&self) -> bool {
        match self.phase {
            // planted: what is to be wiped is not
            Phase::Sending => self.offer.zero,
            // planted: what is donated comes back as it was left
            Phase::Returning => true,
            // A retrieval is refused, and with it the wipe that it asks for.
            Phase::Unmapping(_) => false,
            Phase::Free
            | Phase::Filling
            | Phase::Claiming
            | Phase::Unclaiming(_)
            | Phase::Committing
            | Phase::Sent
            | Phase::Mapping
            | Phase::Retrieved
            | Phase::Relinquishing
            | Phase::Reclaiming
            | Phase::Given(_)
            | Phase::Homing => self.zero_after,
        }
    }

    /// Returns the VM that [`Stage::Undo`] takes pages from.
    fn keeper(&self) -> VmId {
        if self.phase == Phase::Homing {
            self.offer.sender
        } else if self.phase == Phase::Returning {
            self.offer.receiver()
        } else {
            self.who
        }
    }

    /// Returns what [`Stage::Undo`] does to the keeper's pages.
    fn losing(&self, index: usize) -> Edit {
        if self.phase == Phase::Homing {
            edit(Some(PageState::Donated), None, index)
        } else if self.phase == Phase::Returning {
            edit(Some(PageState::Received), None, 0)
        } else {
            self.retrieving(self.keeper()).reversed()
        }
    }

    /// Returns the VM that [`Stage::Back`] gives pages to.
    fn gainer(&self) -> VmId {
        if self.phase == Phase::Homing {
            self.offer.receiver()
        } else {
            self.offer.sender
        }
    }

    /// Ends the stage in which the home gets its pages.
    fn given_back(&mut self) {
        // A page that may not be claimed still needs its tables: its current user needs a table
        // that was made for it.
        if self.phase != Phase::Unclaiming(Error::Denied) {
            self.limit = Cursor::END;
        }
        self.go_to(Stage::TidyBack);
    }

    /// Ends the transaction.
    const fn over(&mut self) -> Step {
        self.stage = Stage::Over;
        if let Phase::Unclaiming(error) = self.phase {
            return Step::Settled(Err(error));
        }
        Step::Settled(Ok(()))
    }

    /// Ends the stage in which the keeper loses its pages.
    fn undone(&mut self) -> Step {
        match self.phase {
            Phase::Unmapping(error) => self.unmapped(error),
            Phase::Reclaiming => {
                self.lost(self.who);
                self.take_from_next();
                Step::More
            }
            Phase::Homing => {
                self.go_to(Stage::Back);
                Step::More
            }
            Phase::Free
            | Phase::Filling
            | Phase::Claiming
            | Phase::Unclaiming(_)
            | Phase::Committing
            | Phase::Sending
            | Phase::Sent
            | Phase::Mapping
            | Phase::Retrieved
            | Phase::Relinquishing
            | Phase::Given(_)
            | Phase::Returning => {
                self.go_to(Stage::Clean);
                Step::More
            }
        }
    }

    /// Ends the pass in which one receiver loses the pages, by a relinquish or as its retrieval is
    /// refused.
    fn unmapped(&mut self, error: Option<Error>) -> Step {
        self.lost(self.who);
        if self.holders == 0 {
            match error {
                // The receiver may have written to the pages that were mapped.
                // planted: what a refused retrieval mapped is not cleaned
                Some(_) => self.go_to(Stage::Clean),
                None => self.begin(Phase::Relinquishing, Stage::Clean),
            }
            return Step::More;
        }
        self.phase = Phase::Retrieved;
        if error.is_none() {
            self.unanswered |= bit(self.who);
        }
        self.settled(error)
    }

    /// Begins the pass of who is next, if the last pass is done: a receiver that leaves loses the
    /// pages; then come the receivers that wait, in turn. No other call comes in between, so a VM
    /// that repeats calls keeps neither a release nor another receiver's call from its end.
    fn next_turn(&mut self, leaving: u16) {
        // planted: a receiver that leaves waits for a pause in the others' calls
        if self.phase == Phase::Retrieved
            && let Some(who) = each_vm(self.holders & leaving).next()
        {
            self.who = who;
            self.begin(Phase::Unmapping(None), Stage::Undo);
        }
        if !matches!(self.phase, Phase::Sent | Phase::Retrieved) {
            return;
        }
        let turns = self.turns;
        let waiting = turns.relinquishing & self.holders | turns.retrieving & !self.holders;
        // planted: a receiver waits for a pause in another's calls
        let Some(who) = Turns::next(waiting, self.who) else {
            return;
        };
        self.turns.forget(who);
        if self.is_held_by(who) {
            self.give_back(who);
        } else {
            self.ask(who, turns.request(who));
        }
    }

    /// Ends a pass that took pages away. A retrieval that is refused with `error` is answered now,
    /// or, if another VM made the last step, when its VM calls again.
    fn settled(&mut self, error: Option<Error>) -> Step {
        if let Some(error) = error {
            self.refused.add(self.who, error);
            return Step::Settled(Err(error));
        }
        Step::Settled(Ok(()))
    }

    const fn lost(&mut self, who: VmId) {
        self.holders &= !bit(who);
        self.writing &= !bit(who);
        self.execute &= self.holders != 0;
    }

    /// Begins to take the pages from the next of their receivers, or to give them back.
    pub(super) fn take_from_next(&mut self) {
        match each_vm(self.holders).next() {
            Some(who) => {
                self.who = who;
                self.begin(Phase::Reclaiming, Stage::Undo);
            }
            None if self.cleans => self.begin(Phase::Reclaiming, Stage::Clean),
            None => self.begin(Phase::Reclaiming, Stage::Back),
        }
    }

    /// Ends the stage in which the pages are wiped or cleaned.
    fn cleaned(&mut self) -> Step {
        match self.phase {
            Phase::Sending => {
                self.phase = Phase::Sent;
                self.is_sent = true;
                Step::Settled(Ok(()))
            }
            Phase::Relinquishing => {
                self.phase = Phase::Sent;
                self.unanswered |= bit(self.who);
                Step::Settled(Ok(()))
            }
            Phase::Unmapping(error) => {
                self.phase = Phase::Sent;
                self.settled(error)
            }
            Phase::Free
            | Phase::Filling
            | Phase::Claiming
            | Phase::Unclaiming(_)
            | Phase::Committing
            | Phase::Sent
            | Phase::Mapping
            | Phase::Retrieved
            | Phase::Reclaiming
            | Phase::Given(_)
            | Phase::Homing
            | Phase::Returning => {
                self.go_to(Stage::Back);
                Step::More
            }
        }
    }
}
