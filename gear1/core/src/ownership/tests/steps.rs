//! Steps: what one may cost, that none leaves out a page, and that a refused call leaves nothing.
//!
//! Requirements: G1-MEM-011, G1-MEM-012, G1-MEM-014, G1-MEM-017, G1-MEM-023.

use std::vec::Vec;

use super::{ALL, KINDS, Kind, Made, RW, Setup, offer};
use crate::addr::{Ipa, Pa};
use crate::ownership::testing::{Snapshot, start, vm};
use crate::ownership::{Error, MAX_PAGES, Offer, Phase, Release, ipa_of};

const PAGE: u64 = 4096;
/// Most descriptors that a step reads and writes: those of one table, and some on the way there; or
/// those of 16 pages, each of which takes some walks of three levels and the list's entry.
const FOR_A_STEP: u64 = 512 + 64;
/// Pages in turn from two blocks: each step comes upon both.
const IN_TURN: u64 = 512;

/// Returns all layouts of `pages` pages of VM 0's: ranges of an address and a number of pages.
fn layouts(pages: u64) -> Vec<Vec<(u64, u64)>> {
    let at = |page: u64| start(0) + page * PAGE;
    let whole = std::vec![(at(0), pages)];
    let across = std::vec![(at(512 - pages / 2), pages)];
    let single = (0..pages).map(|page| (at(2 * page), 1)).collect();
    let in_turn = (0..pages).map(|page| (at(page % 2 * IN_TURN + page / 2), 1));
    std::vec![whole, across, single, in_turn.collect()]
}

impl Setup {
    fn begin_ranges(&mut self, kind: Kind, sender: usize, ranges: &[(u64, u64)]) -> usize {
        let pages = ranges.iter().map(|(_, count)| *count).sum::<u64>() as u16;
        let offer = Offer {
            ranges: ranges.len() as u16,
            ..offer(kind, sender, 1 - sender, pages)
        };
        let index = self.ledger.begin(&mut self.vms, offer).unwrap();
        for (at, count) in ranges {
            let pushed = self
                .ledger
                .push(&mut self.vms, index, Ipa::new(*at), *count as u32);
            pushed.unwrap();
        }
        self.ledger.send(&mut self.vms, index).unwrap();
        index
    }

    fn done(&self) -> u64 {
        self.vms.reads.get() + self.vms.writes
    }

    /// Makes all steps, and returns how many descriptors the worst of them reads and writes.
    fn worst_step(&mut self, index: usize) -> (u64, Result<(), Error>) {
        let mut worst = 0;
        // Bound: a few steps for each page.
        for _ in 0..10_000 {
            let before = self.done();
            let step = self.ledger.step(&mut self.vms, index);
            worst = worst.max(self.done() - before);
            if let Made::Settled(result) = step {
                self.ledger.answer(index, vm(1));
                return (worst, result);
            }
        }
        panic!("no end");
    }

    fn worst_release(&mut self, who: usize) -> u64 {
        let mut worst = 0;
        // Bound: as above.
        for _ in 0..10_000 {
            let before = self.done();
            let release = self.ledger.release(&mut self.vms, vm(who));
            worst = worst.max(self.done() - before);
            if release == Release::Done {
                return worst;
            }
        }
        panic!("no end");
    }

    /// Tells whether `who` sees all of these pages of VM 0's, or none of them.
    fn sees_all(&mut self, who: usize, ranges: &[(u64, u64)]) -> Option<bool> {
        let mut seen = Vec::new();
        for (at, count) in ranges {
            for page in 0..*count {
                let ipa = ipa_of(&self.vms, vm(who), Pa::new(at + page * PAGE));
                let (_, descriptor) = self.vms.descriptor(who, ipa);
                seen.push(descriptor & 1 != 0);
            }
        }
        let first = seen[0];
        seen.iter().all(|seen| *seen == first).then_some(first)
    }
}

#[test]
fn no_step_grows_with_the_pages() {
    let mut worst = 0;
    for (kind, ranges) in KINDS.iter().flat_map(|kind| {
        layouts(MAX_PAGES as u64 / 2)
            .into_iter()
            .map(|r| (*kind, r))
    }) {
        let mut setup = Setup::new(16);
        let index = setup.begin_ranges(kind, 0, &ranges);
        let (sent, result) = setup.worst_step(index);
        result.unwrap();
        setup.ledger.retrieve(index, vm(1), RW).unwrap();
        let (retrieved, result) = setup.worst_step(index);
        result.unwrap();
        worst = worst.max(sent).max(retrieved);
        for end in [Some(0), Some(1), None] {
            let mut setup = setup.clone();
            let undone = match (end, kind) {
                (Some(who), _) => setup.worst_release(who),
                (None, Kind::Donate) if ranges.len() < 250 => {
                    let back = setup.begin_ranges(kind, 1, &ranges);
                    let (sent, result) = setup.worst_step(back);
                    result.unwrap();
                    setup.ledger.retrieve(back, vm(0), RW).unwrap();
                    let (homed, result) = setup.worst_step(back);
                    result.unwrap();
                    sent.max(homed)
                }
                (None, Kind::Donate) => 0,
                (None, Kind::Lend | Kind::Share) => {
                    setup.ledger.relinquish(index, vm(1), false).unwrap();
                    let (returned, result) = setup.worst_step(index);
                    result.unwrap();
                    setup.ledger.reclaim(index, false, ALL).unwrap();
                    let (reclaimed, result) = setup.worst_step(index);
                    result.unwrap();
                    returned.max(reclaimed)
                }
            };
            worst = worst.max(undone);
        }
    }
    std::println!("figure: a step reads and writes at most {worst} descriptors of tables");
    assert!(worst <= FOR_A_STEP, "{worst}");
}

/// Each pass reaches all pages of a transaction, wherever its steps end.
#[test]
fn no_page_is_left_out() {
    for (kind, pages) in KINDS
        .iter()
        .flat_map(|kind| (1..50).map(move |pages| (*kind, pages)))
    {
        for ranges in layouts(pages) {
            let mut setup = Setup::new(16);
            let before = setup.vms.snapshot();
            let index = setup.begin_ranges(kind, 0, &ranges);
            setup.finish(index);
            let stays = kind == Kind::Share;
            assert_eq!(setup.sees_all(0, &ranges), Some(stays), "{kind:?} {pages}");
            setup.retrieve(index, vm(1), RW).unwrap();
            assert_eq!(setup.sees_all(1, &ranges), Some(true), "{kind:?} {pages}");
            if kind == Kind::Donate {
                let back = setup.begin_ranges(kind, 1, &ranges);
                setup.finish(back);
                assert_eq!(setup.sees_all(1, &ranges), Some(false), "{pages}");
                setup.retrieve(back, vm(0), RW).unwrap();
            } else {
                setup.relinquish(index, vm(1), false).unwrap();
                assert_eq!(setup.sees_all(1, &ranges), Some(false), "{kind:?} {pages}");
                setup.finish(index);
                setup.reclaim(index, false, ALL).unwrap();
                setup.finish(index);
            }
            assert!(setup.vms.snapshot() == before, "{kind:?} {pages}");
        }
    }
}

fn transaction_of(setup: &Setup, index: usize) -> (Phase, Snapshot) {
    let mut vms = setup.vms.clone();
    (setup.ledger.transaction(index).phase, vms.snapshot())
}

/// A page that cannot be claimed ends the call; all pages claimed before are as they were.
#[test]
fn a_claim_that_is_refused_is_undone() {
    for (kind, out) in KINDS
        .iter()
        .flat_map(|kind| (0..40).map(move |out| (*kind, out)))
    {
        let mut setup = Setup::new(16);
        let at = start(0) + 0x5000;
        let held = setup.begin_ranges(Kind::Lend, 0, &[(at + out * PAGE, 1)]);
        setup.finish(held);
        let before = transaction_of(&setup, held);
        let index = setup.begin_ranges(kind, 0, &[(at, 40)]);
        let (_, result) = setup.worst_step(index);
        assert_eq!(result, Err(Error::Denied), "{kind:?} {out}");
        assert_eq!(setup.ledger.transaction(index).phase, Phase::Free);
        assert!(transaction_of(&setup, held) == before, "{kind:?} {out}");
    }
}

/// Half of a donation is no donation: until all of it is received, none of it is passed on.
#[test]
fn what_is_being_received_is_not_sent_back() {
    let mut setup = Setup::new(16);
    let ranges = [(start(0) + 0x5000, 40)];
    let index = setup.begin_ranges(Kind::Donate, 0, &ranges);
    setup.finish(index);
    setup.ledger.retrieve(index, vm(1), RW).unwrap();
    while setup.sees_all(1, &[(start(0) + 0x5000, 1)]) != Some(true) {
        assert_eq!(setup.ledger.step(&mut setup.vms, index), Made::More);
    }
    let back = setup.begin_ranges(Kind::Donate, 1, &[(start(0) + 0x5000, 1)]);
    let (_, result) = setup.worst_step(back);
    assert_eq!(result, Err(Error::Denied));
    setup.finish(index);
    let back = setup.begin_ranges(Kind::Donate, 1, &[(start(0) + 0x5000, 1)]);
    setup.finish(back);
}

/// A VM that loses pages has them in no TLB when the phase begins that gives them to others.
#[test]
fn a_pass_that_takes_pages_ends_with_an_invalidation() {
    let mut setup = Setup::new(16);
    let ranges = [(start(0) + 0x5000, 40)];
    let index = setup.begin_ranges(Kind::Lend, 0, &ranges);
    let begins = |setup: &mut Setup, rests: fn(Phase) -> bool| {
        let mut last = setup.vms.invalidated;
        while !rests(setup.ledger.transaction(index).phase) {
            last = setup.vms.invalidated;
            assert!(!matches!(
                setup.ledger.step(&mut setup.vms, index),
                Made::Settled(_)
            ));
        }
        setup.vms.invalidated - last
    };
    assert_eq!(begins(&mut setup, |phase| phase == Phase::Sending), 1);
    setup.finish(index);
    setup.retrieve(index, vm(1), RW).unwrap();
    setup.ledger.relinquish(index, vm(1), false).unwrap();
    let before = setup.vms.invalidated;
    let cleans = begins(&mut setup, |phase| phase == Phase::Relinquishing);
    assert_eq!(cleans, 0, "its tables were tidied in a step of their own");
    assert_eq!(setup.vms.invalidated - before, 2);
}

/// A range that begins in a VM's own memory, and ends in what it names of another's, is refused
/// without a table: neither the VM's own blocks nor the other's are split for it.
#[test]
fn a_range_across_the_end_of_own_memory_is_refused() {
    let mut setup = Setup::new(16);
    // VM 2 sees its memory where the first block of VM 0's has its physical addresses.
    let end = start(0) + (2 << 20);
    setup.vms.see_at(2, start(0) - (2 << 20), 16);
    // VM 1 has been given the last page of that block: VM 0's is Donated.
    let given = setup.begin_ranges(Kind::Donate, 0, &[(end - PAGE, 1)]);
    setup.finish(given);
    setup.retrieve(given, vm(1), RW).unwrap();
    let before = setup.vms.snapshot();
    let sent = setup.send(offer(Kind::Donate, 2, 0, 2), end - PAGE);
    assert_eq!(sent, Err(Error::Denied));
    assert!(
        setup.vms.snapshot() == before,
        "{:?}",
        setup.vms.table_counts()
    );
}
