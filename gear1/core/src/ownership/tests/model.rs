//! Model checking of the machine itself, not of a copy: every call from every state that calls can
//! lead to, breadth first.
//!
//! Three VMs, of which some have a page each that takes part. A state is what the tables say of those
//! pages, how many tables there are, and the transactions. In each state the invariants hold and
//! there is a way home: when all VMs have ended, all is as in the beginning. What is refused
//! leaves the state as it was.

use std::collections::HashMap;
use std::vec::Vec;

use super::{ALL, KINDS, RW, Setup, offer};
use crate::addr::Ipa;
use crate::ownership::testing::{start, vm};
use crate::ownership::{
    Error, Kind, MAX_TRANSACTIONS, Offer, Phase, Release, Transaction, Vms as _, bit,
};

/// One call, or one step of what a VM's end does.
#[derive(Clone, Copy, Debug)]
enum Call {
    /// Who, what, to whom, and which VM's page.
    Send(usize, Kind, u16, usize),
    /// Wipes or cleans all of it.
    Finish(usize),
    Retrieve(usize, usize),
    Relinquish(usize, usize, bool),
    /// Whether receivers run, and whether it is wiped.
    Reclaim(usize, bool, bool),
    Release(usize),
}

/// Slots that three VMs' transactions of so few pages can use: two of each part of ten.
fn slots(pages: usize) -> impl Iterator<Item = usize> {
    (0..3).flat_map(move |vm| (0..pages).map(move |slot| vm * (MAX_TRANSACTIONS / 3) + slot))
}

fn calls(pages: usize, several: bool) -> Vec<Call> {
    let mut calls = Vec::new();
    for (sender, kind) in (0..3).flat_map(|vm| KINDS.map(|kind| (vm, kind))) {
        let others = ALL & !bit(vm(sender));
        for receivers in (1..=ALL).filter(|set| set & !others == 0) {
            if receivers.count_ones() == 1 || (several && kind != Kind::Donate) {
                calls.extend((0..pages).map(|page| Call::Send(sender, kind, receivers, page)));
            }
        }
    }
    for slot in slots(pages) {
        calls.push(Call::Finish(slot));
        for who in 0..3 {
            calls.push(Call::Retrieve(slot, who));
            calls.push(Call::Relinquish(slot, who, false));
            calls.push(Call::Relinquish(slot, who, true));
        }
        for (run, zero) in [(false, false), (false, true), (true, false), (true, true)] {
            calls.push(Call::Reclaim(slot, run, zero));
        }
    }
    calls.extend((0..3).map(Call::Release));
    calls
}

impl Setup {
    /// Returns the address that `who` sees the page of `home` at.
    fn sees(who: usize, home: usize) -> u64 {
        let elsewhere = if who == home && home == 2 {
            64 << 20
        } else {
            0
        };
        start(home) + 0x5000 + elsewhere
    }

    fn call(&mut self, call: Call) -> Result<(), Error> {
        let Self { vms, ledger } = self;
        match call {
            Call::Send(sender, kind, receivers, page) => {
                let writers = receivers;
                let offer = Offer {
                    receivers,
                    writers,
                    ..offer(kind, sender, 0, 1)
                };
                self.send(offer, Self::sees(sender, page)).map(drop)
            }
            Call::Finish(slot) => {
                let piece = ledger.piece(vms, slot);
                if piece.is_none() {
                    return Err(Error::Denied);
                }
                ledger.advance(vms, slot, piece);
                Ok(())
            }
            Call::Retrieve(slot, who) => ledger.retrieve(vms, slot, vm(who), RW),
            Call::Relinquish(slot, who, zero) => ledger.relinquish(vms, slot, vm(who), zero),
            Call::Reclaim(slot, run, zero) => {
                ledger.reclaim(vms, slot, zero, if run { ALL } else { 0 })
            }
            Call::Release(who) => match ledger.release(vms, vm(who)) {
                Release::Done => Err(Error::Denied),
                Release::More => Ok(()),
                Release::Wipe(slot) => {
                    let piece = ledger.piece(vms, slot);
                    ledger.advance(vms, slot, piece);
                    Ok(())
                }
            },
        }
    }

    /// Returns all that a call can change, and that a later one can depend on.
    fn state(&mut self, pages: usize) -> Vec<u64> {
        let mut state = Vec::with_capacity(64);
        for (who, page) in (0..3).flat_map(|who| (0..pages).map(move |page| (who, page))) {
            let stage2 = self.vms.stage2(vm(who));
            let ipa = Ipa::new(Self::sees(who, page));
            let (size, descriptor) = stage2.descriptor(&self.vms.tables(vm(who)), ipa);
            state.extend([size, descriptor]);
        }
        state.extend(self.vms.table_counts().iter().map(|count| *count as u64));
        for slot in 0..MAX_TRANSACTIONS {
            let transaction = self.ledger.transaction(slot);
            if transaction.phase != Phase::Free {
                state.push(slot as u64);
                state.extend(words(&transaction));
            }
        }
        state
    }
}

/// Returns what a transaction says, but for its number and where its list is.
fn words(transaction: &Transaction) -> [u64; 14] {
    let Transaction {
        phase,
        offer,
        filled,
        counted,
        holders,
        writing,
        execute,
        zero_after,
        last,
        serial: _,
        returning,
        list: _,
    } = *transaction;
    let phase = match phase {
        Phase::Free => 0,
        Phase::Filling => 1,
        Phase::Sending(done) => 0x1_0000 | u64::from(done),
        Phase::Sent => 2,
        Phase::Retrieved => 3,
        Phase::Relinquishing(done) => 0x2_0000 | u64::from(done),
        Phase::Reclaiming(done) => 0x3_0000 | u64::from(done),
        Phase::Given(left) => 0x4_0000 | u64::from(left),
        Phase::Returning(done) => 0x5_0000 | u64::from(done),
    };
    [
        phase,
        offer.kind as u64,
        offer.sender.reg(),
        offer.receivers.into(),
        offer.writers.into(),
        offer.pages.into(),
        filled.into(),
        counted.into(),
        holders.into(),
        writing.into(),
        execute.into(),
        zero_after.into(),
        last.reg(),
        returning.into(),
    ]
}

/// Looks at all states with so many pages; `several`: one transaction may have several receivers.
fn explore(pages: usize, several: bool) {
    let calls = calls(pages, several);
    let mut first = Setup::new(16);
    let home = first.state(pages);
    // Each state's predecessor and the call that led here.
    let mut from = Vec::from([(0_usize, None)]);
    let mut known = HashMap::from([(home.clone(), ())]);
    let (mut done, mut refused, mut at) = (0, 0, 0);
    while at < from.len() {
        let mut path = Vec::new();
        let mut step = at;
        while let (before, Some(call)) = from[step] {
            path.push(call);
            step = before;
        }
        let mut setup = Setup::new(16);
        path.iter()
            .rev()
            .for_each(|call| setup.call(*call).unwrap());
        let state = setup.state(pages);
        let mut ended = setup.clone();
        (0..3).for_each(|who| ended.release(vm(who)));
        assert!(ended.state(pages) == home, "no way home: {path:?}");
        for call in &calls {
            let mut next = setup.clone();
            let result = next.call(*call);
            let then = next.state(pages);
            if result.is_err() {
                refused += 1;
                assert!(then == state, "refused, and changed: {path:?} {call:?}");
                continue;
            }
            done += 1;
            if known.insert(then, ()).is_none() {
                next.check_pages((0..pages).map(|page| start(page) + 0x5000));
                from.push((at, Some(*call)));
            }
        }
        at += 1;
    }
    let states = from.len();
    std::println!("{pages} pages: {states} states, {done} calls done, {refused} refused");
    assert!(states > 50 && done > states && refused > done);
}

/// G1-MEM-011, -012, -017: all states of three VMs with one page, and of two with one receiver at a
/// time. `GEARV_PAGES` looks at more: 2, at two pages with all sets of receivers (a minute or two); 3,
/// at three with one receiver at a time (more than half an hour).
#[test]
fn every_call_from_every_state() {
    explore(1, true);
    explore(2, false);
    match std::env::var("GEARV_PAGES").as_deref() {
        Ok("2") => explore(2, true),
        Ok("3") => explore(3, false),
        Ok(_) | Err(_) => {}
    }
}
