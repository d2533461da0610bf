//! Wiping and cleaning what changes hands, piece by piece.
//!
//! Requirements: G1-MEM-015.

use gear1_abi::layout::{PAGE_SIZE, el2::PIECE};

use super::pages::{donated_by, each_page, region_of};
use super::{Ledger, Phase, Piece, Vms};

/// What follows is no part of the piece.
struct PieceEnds;

impl Ledger {
    /// Returns the next piece to wipe or clean, if the transaction waits for that. A piece lies in
    /// one region of its home's: memory is reached region by region, also where two of them adjoin.
    pub fn piece<V: Vms>(&self, vms: &mut V, index: usize) -> Option<Piece> {
        let transaction = self.transaction(index);
        let (done, zero) = match transaction.phase {
            Phase::Sending(done) => (done, transaction.offer.zero),
            Phase::Relinquishing(done) | Phase::Reclaiming(done) => (done, transaction.zero_after),
            Phase::Returning(done) => (done, true),
            Phase::Free | Phase::Filling | Phase::Sent | Phase::Retrieved | Phase::Given(_) => {
                return None;
            }
        };
        let is_returning = matches!(transaction.phase, Phase::Returning(_));
        let homes = vms.regions(transaction.home());
        let mut found: Option<Piece> = None;
        let _found = each_page(vms, &transaction, |vms, pa, number| {
            // What has come home before belongs to another transaction, or to none.
            let skipped = number < done
                || (is_returning && donated_by(vms, transaction.offer.sender, pa) != Some(index));
            let done = number.wrapping_add(1);
            match &mut found {
                None if skipped => {}
                None => {
                    found = Some(Piece {
                        pa,
                        pages: 1,
                        zero,
                        done,
                    });
                }
                Some(piece) => {
                    let size = u64::from(piece.pages).wrapping_mul(PAGE_SIZE);
                    let follows = piece.pa.checked_add(size) == Some(pa);
                    let with_it = size.wrapping_add(PAGE_SIZE);
                    let start = piece.pa.get();
                    let is_one_region =
                        region_of(homes, start, with_it, |region| region.pa).is_some();
                    if skipped || !follows || with_it > PIECE || !is_one_region {
                        return Err(PieceEnds);
                    }
                    piece.pages = piece.pages.wrapping_add(1);
                    piece.done = done;
                }
            }
            Ok(())
        });
        found
    }

    /// Says that a piece was wiped or cleaned, or that none is left. Tells whether all is done.
    pub fn advance<V: Vms>(&mut self, vms: &mut V, index: usize, piece: Option<Piece>) -> bool {
        let transaction = self.slot(index);
        let total = transaction.offer.pages;
        let (Phase::Sending(done)
        | Phase::Relinquishing(done)
        | Phase::Reclaiming(done)
        | Phase::Returning(done)) = &mut transaction.phase
        else {
            return true;
        };
        *done = piece.map_or(total, |piece| piece.done);
        if *done < total {
            return false;
        }
        match transaction.phase {
            Phase::Reclaiming(_) => self.give_back(vms, index),
            Phase::Returning(_) => self.take_home(vms, index),
            Phase::Sending(_) | Phase::Relinquishing(_) => transaction.phase = Phase::Sent,
            Phase::Free | Phase::Filling | Phase::Sent | Phase::Retrieved | Phase::Given(_) => {}
        }
        true
    }
}
