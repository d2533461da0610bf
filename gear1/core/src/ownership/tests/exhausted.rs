//! Rights are taken away from a VM that has no table left, whatever it has: nothing that does so
//! needs memory.
//!
//! Requirements: G1-MEM-011, G1-MEM-017.

use std::vec::Vec;

use super::{ALL, KINDS, Kind, RW, Setup, offer};
use crate::addr::{Ipa, Pa};
use crate::ownership::testing::{SIZE, start, vm};
use crate::ownership::{Error, Phase};

/// Pages of a block, which are the most of one transaction as well.
const BLOCK: u16 = 512;

impl Setup {
    /// Sends `pages` pages at `at` from VM 0 to VM 1, which retrieves them.
    fn hand_over(&mut self, kind: Kind, at: u64, pages: u16) -> usize {
        let index = self.send(offer(kind, 0, 1, pages), at).unwrap();
        self.finish(index);
        let retrieved = self.retrieve(index, vm(1), RW);
        retrieved.unwrap();
        index
    }

    /// Has VM 1 take all tables that it may: each transaction takes one, or more.
    fn exhaust(&mut self) {
        let mut at = start(1);
        loop {
            match self.send(offer(Kind::Share, 1, 2, 1), at) {
                Ok(index) => self.finish(index),
                Err(error) => {
                    assert_eq!(error, Error::NoMemory);
                    break;
                }
            }
            // In turn from the one and from the other block.
            at = start(1) + ((at - start(1)) ^ (2 << 20)) + 0x1000;
        }
        let begun = self
            .ledger
            .begin(&mut self.vms, offer(Kind::Share, 1, 2, 1));
        assert_eq!(begun, Err(Error::NoMemory));
    }

    /// Returns how many pages of VM 0 the tables of VM 1 map: all of them are walked.
    fn seen_of_first(&self) -> usize {
        let leaves = self.vms.leaves(1);
        let of_first = leaves.into_iter().flat_map(|(_, pa, size)| {
            let pages = (pa..pa + size).step_by(4096);
            pages.filter(|pa| (start(0)..start(0) + SIZE).contains(pa))
        });
        of_first.count()
    }
}

/// Returns a machine whose VM 1 has all of a block of VM 0's, in `parts` equal transactions, and no
/// table left.
fn exhausted(kind: Kind, parts: u16) -> (Setup, Vec<usize>) {
    let mut setup = Setup::new(8);
    let pages = BLOCK / parts;
    let transactions = (0..parts)
        .map(|part| setup.hand_over(kind, start(0) + u64::from(part * pages) * 4096, pages))
        .collect();
    setup.exhaust();
    assert_eq!(setup.seen_of_first(), BLOCK.into());
    (setup, transactions)
}

#[test]
fn an_owner_that_is_loaded_anew_is_alone_with_its_memory() {
    for (kind, parts) in KINDS.into_iter().flat_map(|kind| [(kind, 1), (kind, 2)]) {
        let first = Setup::new(8).vms.snapshot().0;
        let (mut setup, transactions) = exhausted(kind, parts);
        setup.release(vm(0));
        assert_eq!(setup.seen_of_first(), 0, "{kind:?} {parts}");
        for index in transactions {
            let phase = setup.ledger.transaction(index).phase;
            assert_eq!(phase, Phase::Free, "{kind:?} {parts}");
        }
        let own = |snapshot: super::super::testing::Pages| {
            let own = snapshot.into_iter().filter(|((vm, _), _)| *vm == 0);
            own.collect::<Vec<_>>()
        };
        assert!(own(setup.vms.snapshot().0) == own(first));
    }
}

#[test]
fn a_receiver_that_is_loaded_anew_has_nothing() {
    for (kind, parts) in KINDS.into_iter().flat_map(|kind| [(kind, 1), (kind, 2)]) {
        let (mut setup, _) = exhausted(kind, parts);
        setup.release(vm(1));
        assert_eq!(setup.seen_of_first(), 0, "{kind:?} {parts}");
    }
}

#[test]
fn a_receiver_without_tables_relinquishes() {
    for (kind, parts) in [(Kind::Share, 1), (Kind::Share, 2), (Kind::Lend, 2)] {
        let (mut setup, transactions) = exhausted(kind, parts);
        for index in transactions {
            let result = setup.relinquish(index, vm(1), false);
            assert!(result.is_ok(), "{kind:?} {parts}: {result:?}");
        }
        assert_eq!(setup.seen_of_first(), 0);
    }
}

#[test]
fn what_a_stopped_receiver_without_tables_has_is_reclaimed() {
    for (kind, parts) in [(Kind::Share, 1), (Kind::Share, 2), (Kind::Lend, 2)] {
        let (mut setup, transactions) = exhausted(kind, parts);
        for index in transactions {
            let result = setup.reclaim(index, false, ALL & !0b10);
            assert!(result.is_ok(), "{kind:?} {parts}: {result:?}");
            setup.finish(index);
        }
        assert_eq!(setup.seen_of_first(), 0);
    }
}

/// An owner without tables gets back its shared memory: a whole block.
#[test]
fn an_owner_without_tables_reclaims() {
    for kind in KINDS {
        let mut setup = Setup::new(8);
        let index = setup.send(offer(kind, 1, 0, BLOCK), start(1)).unwrap();
        setup.finish(index);
        let mut at = start(1) + (2 << 20);
        while let Ok(index) = setup.send(offer(Kind::Share, 1, 2, 1), at) {
            setup.finish(index);
            at += 0x1000;
        }
        let result = setup.reclaim(index, false, ALL);
        assert!(result.is_ok(), "{kind:?}: {result:?}");
        let (_, descriptor) = setup.vms.descriptor(1, Ipa::new(start(1)));
        assert_eq!(descriptor & 0xffff_ffff_f000, Pa::new(start(1)).get());
        assert_eq!(descriptor >> 55 & 0xf, 1, "{kind:?}");
    }
}

/// A receiver that took back its offer to donate a page of a donated block home loses the block
/// without a table: a received page has a descriptor of its own, whatever its neighbours are.
#[test]
fn a_receiver_that_kept_a_block_has_nothing_after_its_end() {
    let mut setup = Setup::new(8);
    let _donated = setup.hand_over(Kind::Donate, start(0), BLOCK);
    let back = setup.send(offer(Kind::Donate, 1, 0, 1), start(0)).unwrap();
    setup.finish(back);
    let result = setup.reclaim(back, false, ALL);
    assert!(result.is_ok(), "{result:?}");
    setup.finish(back);
    setup.exhaust();
    assert_eq!(setup.seen_of_first(), BLOCK.into());
    setup.release(vm(1));
    assert_eq!(setup.seen_of_first(), 0);
}
