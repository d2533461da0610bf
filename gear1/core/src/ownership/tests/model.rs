//! Model checking of the machine itself, not of a copy: every call from every reachable state.
//!
//! Of three VMs, some have a page each that takes part. A state consists of the tables' view of
//! these pages, the number of tables, and the transactions. In each state the invariants hold and
//! there is a way home: the end of all VMs leads to the first state. A refused call leaves the
//! state as it was.
//!
//! Of states that differ only in names one is enough: the slot of a transaction in its sender's
//! part, and the identity of the VMs (with their pages). Calls treat all names alike, with one
//! exception: the end of a VM takes its steps in the order of slots, so the model takes these steps
//! in every order. A test confirms the argument: with two pages, the model visits all states, and
//! they are the same when their names are taken away (`canonical`).

pub(super) mod state;

use std::collections::HashSet;
use std::rc::Rc;
use std::vec::Vec;

use super::{ALL, KINDS, Made, RW, Setup, offer};
use crate::ownership::testing::{start, vm};
use crate::ownership::transaction::{Cursor, Stage};
use crate::ownership::{Error, Kind, MAX_TRANSACTIONS, Offer, Phase, Release, bit};
use state::{fingerprint, slots};

/// A call, or a step of a VM's end.
#[derive(Clone, Copy, Debug)]
enum Call {
    /// Sender, kind, receivers, and the VM whose page is sent.
    Send(usize, Kind, u16, usize),
    /// A step of the work under way in a transaction.
    Step(usize),
    Retrieve(usize, usize),
    Relinquish(usize, usize, bool),
    /// Whether receivers run, and whether the page is wiped.
    Reclaim(usize, bool, bool),
    /// VM that ends, and the transaction that is released next.
    Release(usize, usize),
    /// VM that runs out of tables, or gets them back.
    Starve(usize),
}

/// Pages that take part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Places {
    /// A page of each VM's.
    Pages,
    /// All of a block of VM 0's.
    Block,
    /// The halves of that, each by itself: together they could be a block again.
    Halves,
}

impl Places {
    /// Returns whose a place is, its offset in that VM's memory, and its pages.
    const fn place(self, number: usize) -> (usize, u64, u16) {
        match self {
            Self::Pages => (number, 0x5000, 1),
            Self::Block => (0, 0, 512),
            Self::Halves => (0, number as u64 * (1 << 20), 256),
        }
    }
}

/// Amount of work between two calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Grain {
    /// A step.
    Step,
    /// Half of a pass over all pages, or a table that is made.
    Pass,
    /// To where memory is wiped or cleaned, or to the end.
    Call,
}

fn calls(pages: usize, several: bool, starve: bool) -> Vec<Call> {
    let mut calls = Vec::new();
    if starve {
        calls.extend((0..3).map(Call::Starve));
    }
    for (sender, kind) in (0..3).flat_map(|vm| KINDS.map(|kind| (vm, kind))) {
        let others = ALL & !bit(vm(sender));
        for receivers in (1..=ALL).filter(|set| set & !others == 0) {
            if receivers.count_ones() == 1 || (several && kind != Kind::Donate) {
                calls.extend((0..pages).map(|page| Call::Send(sender, kind, receivers, page)));
            }
        }
    }
    for slot in slots(pages) {
        calls.push(Call::Step(slot));
        for who in 0..3 {
            calls.push(Call::Retrieve(slot, who));
            calls.push(Call::Relinquish(slot, who, false));
            calls.push(Call::Relinquish(slot, who, true));
            calls.push(Call::Release(who, slot));
        }
        for (run, zero) in [(false, false), (false, true), (true, false), (true, true)] {
            calls.push(Call::Reclaim(slot, run, zero));
        }
    }
    calls
}

impl Setup {
    /// Returns the address that `who` sees a place at.
    fn sees(&self, who: usize, page: usize) -> u64 {
        let (home, offset, _) = self.places.place(page);
        let elsewhere = if who == home && home == 2 {
            64 << 20
        } else {
            0
        };
        start(home) + offset + elsewhere
    }

    /// Makes a call, and the steps that no other call comes in between of. Answers are told at
    /// once: who has not heard of one can only be refused.
    fn call(&mut self, call: Call) -> Result<(), Error> {
        let slot = self.begin_a_call(call)?;
        let result = slot.map_or(Ok(()), |slot| self.go_on(slot));
        (0..3).for_each(|who| self.ledger.forget_answers(vm(who)));
        result
    }

    fn go_on(&mut self, slot: usize) -> Result<(), Error> {
        let begun = self.ledger.transaction(slot);
        let mut last = begun;
        loop {
            let is_clean = last.stage == Stage::Clean && last.at == Cursor::START;
            let rests = match self.grain {
                Grain::Step => true,
                Grain::Pass => {
                    let is_half = last.at.range == begun.at.range && last.at.page == 256;
                    (last.phase, last.stage) != (begun.phase, begun.stage) || is_half
                }
                Grain::Call => is_clean,
            };
            if rests || !last.is_under_way() {
                return Ok(());
            }
            let step = self.ledger.step(&mut self.vms, slot);
            let next = self.ledger.transaction(slot);
            let is_table = self.grain == Grain::Pass && next == last;
            if let Made::Settled(result) = step {
                return result;
            }
            if is_table {
                return Ok(());
            }
            last = next;
        }
    }

    /// Begins to send, with the first step. Before that, and until a claim that is refused at its
    /// first page is undone, nothing that others see is changed: so they may as well come before or
    /// after.
    fn claim(&mut self, offer: Offer, at: u64) -> Result<usize, Error> {
        let index = self.begin_to_send(offer, at)?;
        self.ledger.step(&mut self.vms, index);
        let transaction = self.ledger.transaction(index);
        if let Phase::Unclaiming(_) = transaction.phase
            && transaction.limit == Cursor::START
        {
            self.drive(index, |_| false)?;
        }
        Ok(index)
    }

    fn begin_a_call(&mut self, call: Call) -> Result<Option<usize>, Error> {
        let places = self.places;
        let Self { vms, ledger, .. } = self;
        match call {
            // A call that sends continues the previous one.
            Call::Send(sender, ..) if ledger.unfinished_send(vm(sender)).is_some() => {
                Err(Error::Busy)
            }
            Call::Send(sender, kind, receivers, page) => {
                let writers = receivers;
                let offer = Offer {
                    receivers,
                    writers,
                    ..offer(kind, sender, 0, places.place(page).2)
                };
                let at = self.sees(sender, page);
                self.claim(offer, at).map(Some)
            }
            Call::Starve(who) => {
                let is_starved = vms.is_starved(who);
                vms.starve(who, !is_starved);
                Ok(None)
            }
            Call::Step(slot) => {
                if !ledger.transaction(slot).is_under_way() {
                    return Err(Error::Denied);
                }
                ledger.step(vms, slot);
                Ok(Some(slot))
            }
            Call::Retrieve(slot, who) => {
                ledger.retrieve(slot, vm(who), RW)?;
                Ok(Some(slot))
            }
            Call::Relinquish(slot, who, zero) => {
                ledger.relinquish(slot, vm(who), zero)?;
                Ok(Some(slot))
            }
            Call::Reclaim(slot, run, zero) => {
                ledger.reclaim(slot, zero, if run { ALL } else { 0 })?;
                Ok(Some(slot))
            }
            Call::Release(who, slot) => self.release_step(who, slot).map(|()| Some(slot)),
        }
    }

    /// Makes one step of the end of a VM. Donations come last, as in the implementation.
    fn release_step(&mut self, who: usize, slot: usize) -> Result<(), Error> {
        let Self { vms, ledger, .. } = self;
        ledger.forget_answers(vm(who));
        let mut step = ledger.release_pending(vms, vm(who), slot);
        if step.is_none() {
            let is_pending = (0..MAX_TRANSACTIONS).any(|slot| {
                let (mut vms, mut ledger) = (vms.clone(), ledger.clone());
                let is_used = ledger.transaction(slot).phase != Phase::Free;
                is_used && ledger.release_pending(&mut vms, vm(who), slot).is_some()
            });
            if !is_pending {
                step = ledger.release_given(vms, vm(who), slot);
            }
        }
        match step {
            None | Some(Release::Done) => Err(Error::Denied),
            Some(Release::More | Release::Clean(_)) => Ok(()),
        }
    }
}

/// Path to a state.
struct Way {
    call: Call,
    before: Option<Rc<Way>>,
}

fn told(mut way: Option<&Rc<Way>>) -> Vec<Call> {
    let mut calls = Vec::new();
    while let Some(step) = way {
        calls.push(step.call);
        way = step.before.as_ref();
    }
    calls.reverse();
    calls
}

/// Result of a search.
struct Found {
    states: usize,
    /// States that are left when names are taken away.
    canonical: HashSet<u128>,
}

/// Explores all states of places of VM 0's that are blocks or make one, with one receiver at a
/// time; each of the VMs may be without tables at any time. All tables are compared at each way
/// home.
fn explore_large(places: Places, pages: usize) {
    let calls = calls(pages, false, true);
    let mut first = Setup {
        places,
        grain: Grain::Pass,
        ..Setup::new(16)
    };
    let home = (first.state(pages), first.vms.snapshot());
    let mut known = HashSet::from([fingerprint(&home.0)]);
    let mut open = Vec::from([(first, None::<Rc<Way>>)]);
    let (mut states, mut done) = (0, 0);
    while let Some((setup, way)) = open.pop() {
        states += 1;
        let mut ended = setup.clone();
        for who in 0..3 {
            ended.release(vm(who));
            let is_home = |(_, pa, _): &(u64, u64, u64)| (start(who)..start(who + 1)).contains(pa);
            for other in (0..3).filter(|other| *other != who) {
                let seen = ended
                    .vms
                    .leaves(other)
                    .iter()
                    .filter(|leaf| is_home(leaf))
                    .count();
                assert_eq!(seen, 0, "{other} sees {who}: {:?}", told(way.as_ref()));
            }
        }
        (0..3).for_each(|who| ended.vms.starve(who, false));
        assert!(
            ended.state(pages) == home.0 && ended.vms.snapshot() == home.1,
            "no way home: {:?}",
            told(way.as_ref())
        );
        for call in &calls {
            let mut next = setup.clone();
            if next.call(*call).is_err() {
                continue;
            }
            done += 1;
            if known.insert(fingerprint(&next.state(pages))) {
                let pages = (0..pages).flat_map(|page| {
                    let (home, offset, count) = places.place(page);
                    let at = start(home) + offset;
                    [at, at + (u64::from(count) - 1) * 4096]
                });
                next.check_pages(pages);
                let (call, before) = (*call, way.clone());
                open.push((next, Some(Rc::new(Way { call, before }))));
            }
        }
    }
    std::println!("figure: {places:?}: {states} states looked at, {done} calls done");
    assert!(states > 50 && done > states);
}

/// Explores all states with `pages` pages; `several`: one transaction may have several receivers;
/// `all`: states that differ only in names are visited, too.
fn explore(grain: Grain, pages: usize, several: bool, all: bool) -> Found {
    let calls = calls(pages, several, false);
    let mut first = Setup {
        grain,
        ..Setup::new(16)
    };
    let home = first.state(pages);
    let mut known = HashSet::from([fingerprint(&home)]);
    let mut canonical = HashSet::from([first.canonical(pages)]);
    let mut open = Vec::from([(first, None::<Rc<Way>>)]);
    let (mut states, mut done, mut refused) = (0, 0, 0);
    while let Some((mut setup, way)) = open.pop() {
        states += 1;
        let state = setup.state(pages);
        let mut ended = setup.clone();
        (0..3).for_each(|who| ended.release(vm(who)));
        assert!(
            ended.state(pages) == home,
            "no way home: {:?}",
            told(way.as_ref())
        );
        let mut next = setup.clone();
        for call in &calls {
            let result = next.call(*call);
            let then = next.state(pages);
            if result.is_err() {
                refused += 1;
                assert!(
                    then == state,
                    "refused, and changed: {:?} {call:?}",
                    told(way.as_ref())
                );
                continue;
            }
            done += 1;
            let is_new = if all {
                canonical.insert(next.canonical(pages));
                known.insert(fingerprint(&then))
            } else {
                canonical.insert(next.canonical(pages))
            };
            let next = std::mem::replace(&mut next, setup.clone());
            if is_new {
                let mut next = next;
                next.check_pages((0..pages).map(|page| start(page) + 0x5000));
                let (call, before) = (*call, way.clone());
                open.push((next, Some(Rc::new(Way { call, before }))));
            }
        }
    }
    let found = canonical.len();
    std::println!(
        "figure: {pages} pages, {grain:?}: {states} states looked at, {found} but for names, {done} calls done, {refused} refused"
    );
    assert!(states > 50 && done > states && refused > done);
    Found { states, canonical }
}

/// G1-MEM-011, -012, -017: all states of three VMs with one page, a step at a time, and of two with
/// one receiver at a time, a call at a time; looked at by their names or without, these are the
/// same.
#[test]
fn every_call_from_every_state() {
    let steps = explore(Grain::Step, 1, true, true);
    let (all, reduced) = (
        explore(Grain::Call, 2, false, true),
        explore(Grain::Call, 2, false, false),
    );
    assert!(steps.states > 500);
    assert_eq!(reduced.states, reduced.canonical.len());
    assert!(all.states > reduced.states);
    assert!(all.canonical == reduced.canonical);
}

/// G1-MEM-011, -017: all states of a whole block that changes hands, while any of the VMs has no
/// table left: whichever VM ends, no other VM sees its memory.
#[test]
fn a_block_from_every_state() {
    explore_large(Places::Block, 1);
}

/// Explores larger models: `GEARV_PAGES=2`, two pages with all sets of receivers; `GEARV_PAGES=3`,
/// three pages with one receiver at a time; `GEARV_PAGES=steps`, two pages in single steps;
/// `GEARV_PAGES=halves`, two halves of a block.
#[test]
fn every_call_from_every_state_of_more_pages() {
    match std::env::var("GEARV_PAGES").as_deref() {
        Ok("2") => drop(explore(Grain::Call, 2, true, false)),
        Ok("3") => drop(explore(Grain::Call, 3, false, false)),
        Ok("steps") => drop(explore(Grain::Step, 2, false, false)),
        Ok("halves") => explore_large(Places::Halves, 2),
        Ok(_) | Err(_) => {}
    }
}
