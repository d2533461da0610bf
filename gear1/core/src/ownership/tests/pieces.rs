//! The pieces that are wiped and cleaned: each in one region, none too large, all pages in order.
//!
//! Requirements: G1-MEM-015.

use std::vec::Vec;

use gear1_abi::layout::el2::PIECE;

use super::{Error, Kind, Made, Offer, Phase, Setup, offer};
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

/// A receiver whose retrieval is refused half-way may have written to what it had: the pages are
/// cleaned before anybody else gets them.
#[test]
fn what_a_refused_retrieval_mapped_is_cleaned() {
    for kind in super::KINDS {
        let mut setup = Setup::new(8);
        // The pages before and behind the boundary of two blocks take a table each.
        let first = start(0) + (2 << 20) - 8 * PAGE;
        let index = setup.send(offer(kind, 0, 1, PAGES), first).unwrap();
        setup.finish(index);
        let before = setup.vms.snapshot();
        setup.ledger.retrieve(index, vm(1), super::RW).unwrap();
        let is_mapped = |setup: &mut Setup| setup.vms.descriptor(1, Ipa::new(first)).1 & 1 != 0;
        // A step makes the first table; the next one maps pages, and gets no second table.
        assert_eq!(setup.ledger.step(&mut setup.vms, index), Made::More);
        setup.vms.starve(1, true);
        assert_eq!(setup.ledger.step(&mut setup.vms, index), Made::More);
        assert!(is_mapped(&mut setup));
        let mut cleaned = Vec::new();
        let result = loop {
            match setup.ledger.step(&mut setup.vms, index) {
                Made::Clean(piece) => {
                    assert!(!is_mapped(&mut setup) && !piece.zero, "{kind:?}: {piece:?}");
                    let pages = (0..u64::from(piece.pages)).map(|page| page * PAGE);
                    cleaned.extend(pages.map(|offset| piece.pa.get() + offset));
                }
                Made::More => {}
                Made::Settled(result) => break result,
            }
        };
        assert_eq!(result, Err(Error::NoMemory));
        for page in 0..8 {
            assert!(cleaned.contains(&(first + page * PAGE)), "{kind:?} {page}");
        }
        assert_eq!(setup.ledger.transaction(index).phase, Phase::Sent);
        assert!(setup.vms.snapshot() == before, "{kind:?}");
    }
}
