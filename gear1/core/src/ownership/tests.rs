//! Every call in every phase of every kind; no table left; random lives of three VMs.
//!
//! Requirements: G1-MEM-012, G1-MEM-017.

mod costs;
mod exhausted;
mod model;
mod pieces;
mod steps;
mod transitions;

use std::vec::Vec;

use gear1_abi::id::VmId;
use proptest::prelude::{ProptestConfig, Strategy, any, prop, proptest};

use super::buffers::State;
use super::testing::{FakeVms, start, vm};
use super::transaction::{Cursor, Stage};
use super::{Error, Kind, Ledger, Offer, Phase, Release, Request, Step as Made, Vms as _, bit};
use crate::addr::{Ipa, Pa};
use crate::stage2::PageState;

const KINDS: [Kind; 3] = [Kind::Share, Kind::Lend, Kind::Donate];
/// All VMs run.
const ALL: u16 = 0b111;
const RW: Request = Request {
    write: true,
    execute: false,
    zero_after: false,
};

fn offer(kind: Kind, sender: usize, receiver: usize, pages: u16) -> Offer {
    Offer {
        kind,
        sender: vm(sender),
        receivers: bit(vm(receiver)),
        writers: bit(vm(receiver)),
        ranges: 1,
        pages,
        ..Offer::default()
    }
}

fn unmap(ledger: &mut Ledger, vms: &mut FakeVms, index: usize) -> Result<(), Error> {
    loop {
        let step = ledger.unmap_buffers(vms, vm(index));
        if let Made::Settled(result) = step.ok_or(Error::Denied)? {
            return result;
        }
    }
}

fn map(
    ledger: &mut Ledger,
    vms: &mut FakeVms,
    index: usize,
    tx: Ipa,
    rx: Ipa,
) -> Result<(), Error> {
    loop {
        if let Made::Settled(result) = ledger.map_buffers(vms, vm(index), tx, rx) {
            return result;
        }
    }
}

/// A machine with all VMs, the ledger, and a transaction of VM 0's for VM 1.
#[derive(Clone)]
struct Setup {
    vms: FakeVms,
    ledger: Ledger,
    /// Places of the model's pages.
    places: model::Places,
    /// Unit of a call in the model.
    grain: model::Grain,
}

impl Setup {
    fn new(budget: usize) -> Self {
        let mut ledger = Ledger::new();
        ledger.configure(0b111);
        Self {
            vms: FakeVms::new(budget),
            ledger,
            places: model::Places::Pages,
            grain: model::Grain::Step,
        }
    }

    /// Sends the pages at `at` without cleaning them.
    fn send(&mut self, offer: Offer, at: u64) -> Result<usize, Error> {
        let index = self.begin_to_send(offer, at)?;
        self.drive(index, |t| t.phase == Phase::Sending)?;
        Ok(index)
    }

    fn begin_to_send(&mut self, offer: Offer, at: u64) -> Result<usize, Error> {
        let index = self.ledger.begin(&mut self.vms, offer)?;
        let pushed = self
            .ledger
            .push(&mut self.vms, index, Ipa::new(at), offer.pages.into());
        if let Err(error) = pushed {
            self.ledger.free(&mut self.vms, index);
            return Err(error);
        }
        self.ledger.send(&mut self.vms, index)?;
        Ok(index)
    }

    /// Makes steps until there is none more, or until `rests`.
    fn drive(
        &mut self,
        index: usize,
        rests: impl Fn(&super::Transaction) -> bool,
    ) -> Result<(), Error> {
        // Bound: a few steps for each page.
        for _ in 0..5000 {
            if rests(&self.ledger.transaction(index)) {
                return Ok(());
            }
            if let Made::Settled(result) = self.ledger.step(&mut self.vms, index) {
                return result;
            }
        }
        panic!("no end");
    }

    /// Has a call made to its end, and whose it is told.
    fn finish(&mut self, index: usize) {
        self.drive(index, |_| false).unwrap();
        (0..3).for_each(|who| self.ledger.forget_answers(vm(who)));
    }

    fn retrieve(&mut self, index: usize, vm: VmId, request: Request) -> Result<(), Error> {
        self.ledger.retrieve(index, vm, request)?;
        let result = self.drive(index, |_| false);
        self.ledger.answer(index, vm);
        self.ledger.refuse(index, vm);
        result
    }

    /// Makes `vm` relinquish, without cleaning the pages.
    fn relinquish(&mut self, index: usize, vm: VmId, zero: bool) -> Result<(), Error> {
        self.ledger.relinquish(index, vm, zero)?;
        self.ledger.answer(index, vm);
        self.drive(index, |t| t.phase == Phase::Relinquishing)
    }

    /// Takes the pages from all receivers, without cleaning them unless they are back.
    fn reclaim(&mut self, index: usize, zero: bool, running: u16) -> Result<(), Error> {
        self.ledger.reclaim(index, zero, running)?;
        self.drive(index, |t| t.stage == Stage::Clean)
    }

    fn release(&mut self, vm: VmId) {
        for _ in 0..10_000 {
            match self.ledger.release(&mut self.vms, vm) {
                Release::Done => return,
                Release::More | Release::Clean(_) => {}
            }
        }
        panic!("no end");
    }

    /// Makes steps of the end of a VM until none is left, the next step has to clean, or a
    /// transaction is over.
    fn end(&mut self, vm: VmId) -> Result<(), Error> {
        let rests = |setup: &Self| {
            let buffers = &setup.ledger.buffers;
            let mut buffers = buffers.iter().flatten();
            let at_rest = buffers.all(|buffers| buffers.state == State::Mapped);
            at_rest
                && setup.ledger.transactions.iter().all(|t| {
                    let is_clean = t.stage == Stage::Clean && t.at == Cursor::START;
                    is_clean || !t.is_under_way()
                })
        };
        // Bound: a few steps for each page.
        for _ in 0..5000 {
            if self.ledger.release(&mut self.vms, vm) == Release::Done {
                return Err(Error::Denied);
            }
            if rests(self) {
                return Ok(());
            }
        }
        panic!("no end");
    }

    /// Returns a machine with a transaction that has got so far.
    fn at(kind: Kind, phase: Phase) -> Option<(Self, usize)> {
        let mut setup = Self::new(16);
        let index = setup
            .ledger
            .begin(&mut setup.vms, offer(kind, 0, 1, 3))
            .unwrap();
        if phase == Phase::Filling {
            return Some((setup, index));
        }
        let at = Ipa::new(start(0) + 0x5000);
        setup.ledger.push(&mut setup.vms, index, at, 3).unwrap();
        setup.ledger.send(&mut setup.vms, index).unwrap();
        let sent = setup.drive(index, |t| t.phase == Phase::Sending);
        sent.unwrap();
        if phase == Phase::Sending {
            return Some((setup, index));
        }
        setup.finish(index);
        if let Phase::Reclaiming = phase {
            let wiped = setup.reclaim(index, true, ALL);
            return wiped.ok().map(|()| (setup, index));
        }
        if phase != Phase::Sent {
            setup.retrieve(index, vm(1), RW).unwrap();
        }
        match phase {
            Phase::Relinquishing => {
                setup.relinquish(index, vm(1), false).ok()?;
            }
            Phase::Returning => {
                setup.end(vm(1)).unwrap();
            }
            _ => {}
        }
        (setup.ledger.transaction(index).phase == phase).then_some((setup, index))
    }
}

/// A call: its name, its function, and whether it succeeds in a phase of a kind.
type Call = (
    &'static str,
    fn(&mut Setup, usize) -> Result<(), Error>,
    fn(Kind, Phase) -> bool,
);

const CALLS: [Call; 9] = [
    (
        "send all",
        |setup, index| match setup.ledger.transaction(index).phase {
            Phase::Filling => Err(Error::Denied),
            _ => setup
                .send(offer(Kind::Share, 0, 1, 3), start(0) + 0x5000)
                .map(|_| ()),
        },
        |_, _| false,
    ),
    (
        "lend a part to another",
        |setup, _| {
            setup
                .send(offer(Kind::Lend, 0, 2, 1), start(0) + 0x6000)
                .map(|_| ())
        },
        |_, phase| phase == Phase::Filling,
    ),
    (
        "the receiver lends it on",
        |setup, _| {
            setup
                .send(offer(Kind::Lend, 1, 2, 1), start(0) + 0x6000)
                .map(|_| ())
        },
        |_, _| false,
    ),
    (
        "the receiver donates it to a third",
        |setup, _| {
            setup
                .send(offer(Kind::Donate, 1, 2, 1), start(0) + 0x6000)
                .map(|_| ())
        },
        |_, _| false,
    ),
    (
        "the receiver donates it back",
        |setup, _| {
            setup
                .send(offer(Kind::Donate, 1, 0, 1), start(0) + 0x6000)
                .map(|_| ())
        },
        |_, phase| matches!(phase, Phase::Given(_)),
    ),
    (
        "retrieve",
        |setup, index| setup.retrieve(index, vm(1), RW),
        |_, phase| phase == Phase::Sent,
    ),
    (
        "relinquish",
        |setup, index| setup.relinquish(index, vm(1), false),
        |_, phase| phase == Phase::Retrieved,
    ),
    (
        "reclaim",
        |setup, index| setup.reclaim(index, false, ALL),
        |_, phase| phase == Phase::Sent,
    ),
    (
        "reclaim from who does not run",
        |setup, index| setup.reclaim(index, false, 0),
        |_, phase| matches!(phase, Phase::Sent | Phase::Retrieved | Phase::Relinquishing),
    ),
];

const PHASES: [Phase; 8] = [
    Phase::Filling,
    Phase::Sending,
    Phase::Sent,
    Phase::Retrieved,
    Phase::Relinquishing,
    Phase::Reclaiming,
    Phase::Given(3),
    Phase::Returning,
];

/// G1-MEM-011, -012: each call in each phase is done or refused as the table says, and a refused
/// call changes nothing at all.
#[test]
fn every_call_in_every_phase() {
    let mut reached = 0;
    for (kind, phase) in KINDS.iter().flat_map(|k| PHASES.iter().map(|p| (*k, *p))) {
        let Some((setup, index)) = Setup::at(kind, phase) else {
            continue;
        };
        reached += 1;
        for (name, call, is_done) in CALLS {
            let mut setup = setup.clone();
            let before = (setup.vms.snapshot(), setup.ledger.transactions);
            let result = call(&mut setup, index);
            assert_eq!(
                result.is_ok(),
                is_done(kind, phase),
                "{name}: {kind:?} {phase:?}: {result:?}"
            );
            if result.is_err() {
                let after = (setup.vms.snapshot(), setup.ledger.transactions);
                assert!(before == after, "{name}: {kind:?} {phase:?}");
            }
        }
    }
    // Share and lend in six phases (a share is not wiped, so not reclaimed in pieces), donate in
    // six.
    assert_eq!(reached, 5 + 6 + 6);
}

/// G1-MEM-013: with any number of tables too few, a call is refused and changes nothing.
#[test]
fn without_tables_nothing_changes() {
    let mut refused = 0;
    for (kind, budget) in KINDS.iter().flat_map(|k| (0..8).map(move |b| (*k, b))) {
        let mut setup = Setup::new(budget);
        let before = setup.vms.snapshot();
        // Across two blocks.
        match setup.send(offer(kind, 0, 1, 4), start(0) + (2 << 20) - 0x2000) {
            Err(error) => {
                assert_eq!(error, Error::NoMemory);
                assert!(setup.vms.snapshot() == before, "{budget}");
                refused += 1;
            }
            Ok(index) => {
                setup.finish(index);
                let sent = setup.vms.snapshot();
                if setup.retrieve(index, vm(1), RW).is_err() {
                    assert!(setup.vms.snapshot() == sent, "{budget}");
                    refused += 1;
                }
                setup.release(vm(0));
                assert!(setup.vms.snapshot() == before, "{budget}");
            }
        }
    }
    assert_eq!(refused, 9);
}

/// G1-MEM-014: TLBs are invalidated whenever somebody loses a page.
#[test]
fn who_loses_a_page_loses_its_translation() {
    let mut setup = Setup::new(16);
    let index = setup.send(offer(Kind::Lend, 0, 1, 2), start(0)).unwrap();
    // Once for the block that was split, once for the pages.
    assert_eq!(setup.vms.invalidated, 2);
    setup.finish(index);
    setup.retrieve(index, vm(1), RW).unwrap();
    assert_eq!(setup.vms.invalidated, 2);
    setup.relinquish(index, vm(1), false).unwrap();
    // The pages, and the table that was theirs alone.
    assert_eq!(setup.vms.invalidated, 4);
}

/// G1-MEM-019: a VM has its part of the transactions, whatever the others do.
#[test]
fn each_vm_has_its_part() {
    let mut setup = Setup::new(32);
    for sender in [0, 1] {
        let mut at = start(sender);
        let part = super::MAX_TRANSACTIONS / 3;
        for _ in 0..part {
            setup.send(offer(Kind::Share, sender, 2, 1), at).unwrap();
            at += 0x1000;
        }
        let before = setup.vms.snapshot();
        let refused = setup.send(offer(Kind::Share, sender, 2, 1), at);
        assert_eq!(refused, Err(Error::NoMemory));
        assert!(setup.vms.snapshot() == before);
    }
}

/// G1-MEM-017: a receiver that has ended loses its borrowed memory before anything else happens.
#[test]
fn who_ended_has_borrowed_nothing() {
    for kind in [Kind::Share, Kind::Lend] {
        let (mut setup, index) = Setup::at(kind, Phase::Retrieved).unwrap();
        let borrowed = (1, start(0) + 0x6000);
        assert!(setup.vms.snapshot().0.contains_key(&borrowed));
        setup.release(vm(1));
        assert!(!setup.vms.snapshot().0.contains_key(&borrowed));
        assert_eq!(setup.ledger.transaction(index).phase, Phase::Sent);
    }
}

/// A step of a random life.
#[derive(Clone, Copy, Debug)]
enum Step {
    Send(Kind, usize, usize, u64, u16),
    Finish(usize),
    Retrieve(usize, usize),
    Relinquish(usize, usize),
    Reclaim(usize),
    Buffers(usize, u64),
    Unmap(usize),
    Release(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let kind = prop::sample::select(KINDS.to_vec());
    // Of all memory, so that most ranges are somebody else's: received ones can be sent back.
    let page = prop::sample::select(std::vec![
        0_u64, 1, 2, 510, 511, 512, 1024, 1025, 1535, 2048
    ]);
    let pages = prop::sample::select(std::vec![1_u16, 1, 2, 2, 3, 3, 256, 511, 512]);
    let send = (kind, 0..3_usize, 0..3_usize, page, pages);
    let send = send.prop_map(|(kind, from, to, page, pages)| {
        let elsewhere = if from == 2 && page >= 2048 {
            64 << 20
        } else {
            0
        };
        Step::Send(kind, from, to, start(0) + elsewhere + page * 4096, pages)
    });
    let step = (0..7_u8, any::<usize>(), 0..3_usize).prop_map(|(what, index, vm)| match what {
        0 => Step::Finish(index % 32),
        1 => Step::Retrieve(index % 32, vm),
        2 => Step::Relinquish(index % 32, vm),
        3 => Step::Reclaim(index % 32),
        4 => Step::Buffers(vm, start(vm) + (index as u64 % 4) * 4096),
        5 => Step::Unmap(vm),
        _ => Step::Release(vm),
    });
    prop::collection::vec(
        prop::strategy::Union::new_weighted(std::vec![(2, send.boxed()), (3, step.boxed())]),
        1..40,
    )
}

impl Setup {
    fn step(&mut self, step: Step) -> Result<(), Error> {
        let ledger = &self.ledger;
        // The numbers are spread over 32; few transactions exist, so the used ones are meant.
        let used = |index: usize| {
            let used: Vec<_> = (0..32)
                .filter(|i| ledger.transaction(*i).phase != Phase::Free)
                .collect();
            used.get(index % used.len().max(1)).copied().unwrap_or(0)
        };
        match step {
            Step::Send(_, from, to, _, _) if from == to => Err(Error::Denied),
            Step::Send(kind, from, to, at, pages) => {
                self.send(offer(kind, from, to, pages), at).map(|_| ())
            }
            Step::Finish(index) => {
                let index = used(index);
                self.finish(index);
                Ok(())
            }
            Step::Retrieve(index, who) => {
                let index = used(index);
                self.retrieve(index, vm(who), RW)
            }
            Step::Relinquish(index, who) => {
                let index = used(index);
                self.relinquish(index, vm(who), false)
            }
            Step::Reclaim(index) => {
                let index = used(index);
                self.reclaim(index, false, ALL)
            }
            Step::Buffers(index, at) => {
                let Self { vms, ledger, .. } = self;
                map(ledger, vms, index, Ipa::new(at), Ipa::new(at + 4096))
            }
            Step::Unmap(index) => unmap(&mut self.ledger, &mut self.vms, index),
            Step::Release(index) => {
                self.release(vm(index));
                Ok(())
            }
        }
    }

    /// Returns all transactions. Of those at rest the receiver and the request of the last pass are
    /// left out: the receiver only decides who has the next turn, and each pass sets a request of
    /// its own.
    fn transactions(&self) -> [super::Transaction; super::MAX_TRANSACTIONS] {
        self.ledger
            .transactions
            .map(|transaction| match transaction.phase {
                Phase::Sent | Phase::Retrieved => super::Transaction {
                    who: vm(0),
                    request: RW,
                    ..transaction
                },
                _ => transaction,
            })
    }

    /// Checks of each page that its home and everybody else agree on whose it is.
    fn check(&mut self) {
        self.check_pages((start(0)..start(3)).step_by(4096));
    }

    /// Checks these pages.
    fn check_pages(&mut self, pages: impl Iterator<Item = u64>) {
        for page in pages {
            let home = ((page - start(0)) / super::testing::SIZE) as usize;
            let state = |setup: &mut Self, index: usize| {
                let ipa = super::ipa_of(&setup.vms, vm(index), Pa::new(page));
                let stage2 = setup.vms.stage2(vm(index));
                let tables = setup.vms.tables(vm(index));
                let (_, descriptor) = stage2.descriptor(&tables, ipa);
                PageState::of(descriptor)
            };
            let of_home = state(self, home);
            let others: Vec<_> = (0..3)
                .filter(|index| *index != home)
                .filter_map(|index| state(self, index))
                .collect();
            let right = match (of_home, &others[..]) {
                (Some(PageState::Owned | PageState::Buffer | PageState::Claimed), []) => true,
                (Some(PageState::SharedOwned | PageState::Lent), others) => others
                    .iter()
                    .all(|other| *other == PageState::SharedBorrowed),
                (Some(PageState::Donated), others) => {
                    matches!(
                        others,
                        [] | [PageState::Received | PageState::Claimed | PageState::Donated]
                    )
                }
                _ => false,
            };
            assert!(right, "{page:#x}: {of_home:?} {others:?}");
        }
    }
}

proptest! {
    // Each step looks at every page of all VMs.
    #![proptest_config(ProptestConfig::with_cases(8))]

    /// G1-MEM-011, -012, -017: whatever three VMs do, a page has one owner and at most one other
    /// user; a refused call changes nothing; and when all VMs have ended, the state is the first
    /// one.
    #[test]
    fn random_lives(steps in steps(), budget in 2..20_usize) {
        let mut setup = Setup::new(budget);
        let first = setup.vms.snapshot();
        for step in steps {
            let before = (setup.vms.snapshot(), setup.transactions());
            let result = setup.step(step);
            if result.is_err() {
                let after = (setup.vms.snapshot(), setup.transactions());
                assert!(before == after, "{step:?}: {result:?}");
            }
            setup.check();
        }
        (0..3).for_each(|index| setup.release(vm(index)));
        assert!(setup.vms.snapshot() == first);
    }
}
