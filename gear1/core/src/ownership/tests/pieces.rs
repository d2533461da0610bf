//! The pieces that are wiped and cleaned: each in one region, none too large, all pages in order.
//!
//! Requirements: G1-MEM-015.

use std::vec::Vec;

use gear1_abi::layout::el2::PIECE;

use super::{Kind, Made, Offer, Setup, offer};
use crate::addr::Ipa;
use crate::ownership::testing::{start, vm};
use crate::ownership::{Piece, Vms as _};

const PAGE: u64 = 4096;
const PAGES: u16 = 24;

impl Setup {
    /// Lets VM 0 have its memory as two regions that adjoin, sends [`PAGES`] pages on both sides of
    /// where they meet, `first` of them before it, and returns all pieces.
    fn pieces_across(&mut self, first: u16) -> Vec<Piece> {
        let at = start(0) + (1 << 20);
        let boundary = at + u64::from(first) * PAGE;
        self.vms.split_region(0, boundary - start(0));
        let whole = Offer {
            ranges: 2,
            zero: true,
            ..offer(Kind::Lend, 0, 1, PAGES)
        };
        let index = self.ledger.begin(&mut self.vms, whole).unwrap();
        for (at, count) in [(at, first), (boundary, PAGES - first)] {
            let pushed = self
                .ledger
                .push(&mut self.vms, index, Ipa::new(at), count.into());
            pushed.unwrap();
        }
        self.ledger.send(&mut self.vms, index).unwrap();
        let mut pieces = Vec::new();
        loop {
            match self.ledger.step(&mut self.vms, index) {
                Made::Clean(piece) => pieces.push(piece),
                Made::More => {}
                Made::Settled(_) => return pieces,
            }
        }
    }
}

#[test]
fn a_piece_lies_in_one_region_and_is_not_too_large() {
    for first in 1..PAGES {
        let mut setup = Setup::new(8);
        let pieces = setup.pieces_across(first);
        let mut next = start(0) + (1 << 20);
        for piece in &pieces {
            let (pa, size) = (piece.pa.get(), u64::from(piece.pages) * PAGE);
            assert_eq!(pa, next, "{pieces:?}");
            assert!(piece.zero && size <= PIECE, "{piece:?}");
            let mut regions = setup.vms.regions(vm(0)).iter();
            let is_one = regions.any(|at| at.pa <= pa && pa + size <= at.pa + at.size);
            assert!(is_one, "{piece:?} lies in two regions, {first} pages in");
            next += size;
        }
        assert_eq!(next, start(0) + (1 << 20) + u64::from(PAGES) * PAGE);
    }
}
