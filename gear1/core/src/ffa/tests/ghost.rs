//! Random calls of three VMs: after each, what the ghost says of every page is what the tables say.

use gear1_abi::regs::Regs;
use gear1_ghost::Wrong;

use std::vec::Vec;

use super::machine::{COUNT, Machine, PAGE, Random, map_call, own, tx};
use crate::addr::Pa;
use crate::ffa::function;
use crate::ownership::testing::{start, vm};
use crate::ownership::{MAX_TRANSACTIONS, Phase, Transaction, Vms as _};
use crate::table::Descriptors as _;

/// Calls in an ordinary run; `GEARV_CALLS` says otherwise.
const CALLS: u64 = 20_000;
const WIDE: u32 = function::SMC64;

fn calls() -> u64 {
    let said = std::env::var("GEARV_CALLS").ok();
    said.and_then(|said| said.parse().ok()).unwrap_or(CALLS)
}

impl Machine {
    pub(super) fn write(&mut self, index: usize, words: &[u64]) {
        for (at, word) in words.iter().enumerate() {
            *self.host.word(tx(index), at) = *word;
        }
    }

    /// Returns a handle that is likely a living transaction's which `fits`, and its sender.
    pub(super) fn handle(
        &self,
        random: &mut Random,
        fits: impl Fn(&Transaction) -> bool,
    ) -> (u64, usize) {
        let all = (0..MAX_TRANSACTIONS).map(|slot| (slot, self.ledger.transaction(slot)));
        let living = all.filter(|(_, transaction)| transaction.phase != Phase::Free);
        let anyone = random.below(10) == 0;
        let fitting: Vec<_> = living.filter(|(_, t)| anyone || fits(t)).collect();
        if fitting.is_empty() {
            return (1 << 63 | random.below(0x1000), 0);
        }
        let at = random.below(fitting.len() as u64) as usize;
        let (slot, transaction) = fitting[at];
        (self.ledger.handle(slot), transaction.offer.sender.index())
    }

    /// Returns an address that is likely the caller's, or was given to it.
    fn place(&self, random: &mut Random, index: usize) -> u64 {
        let number = random.of(&[0, 0, 1, 2, 3, 256, 510, 511, 512, 513, 700]);
        match random.below(8) {
            0 => own((index + 1) % COUNT, number),
            1 => own((index + 2) % COUNT, number),
            2 => crate::ownership::testing::start(2) + number * PAGE,
            _ => own(index, number),
        }
    }

    /// Sends one or two ranges, in one part or in two.
    fn send(&mut self, random: &mut Random, index: usize) -> Result<Regs, Wrong> {
        let id = random.of(&[
            function::MEM_SHARE,
            function::MEM_LEND,
            function::MEM_DONATE,
        ]);
        let several = id != function::MEM_DONATE && random.below(4) == 0;
        let count = if several { 2 } else { 1 };
        let attributes = if several || id == function::MEM_SHARE {
            0x2f
        } else {
            0
        };
        let flags = u64::from(random.below(6) == 0 && id != function::MEM_SHARE);
        let first = (index as u64 + 1) | (attributes << 16) | (flags << 32);
        let access = |who: usize, rights: u64| {
            ((who % COUNT) as u64 + 1) | (rights << 16) | ((48 + 16 * count) << 32)
        };
        let mut rights = || {
            if id == function::MEM_DONATE {
                0
            } else {
                random.of(&[1, 2, 2])
            }
        };
        let (one, two) = (access(index + 1, rights()), access(index + 2, rights()));
        let swap = random.below(2) == 0;
        let accesses = if swap { [two, one] } else { [one, two] };
        let ranges = 1 + random.below(2);
        let sizes = [
            1 + random.below(3),
            1 + random.of(&[0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 508]),
        ];
        // Sometimes half a block, or all of one.
        let sizes = match (random.below(12), ranges) {
            (0, 1) => [512, 0],
            (0, _) => [256, 256],
            _ => sizes,
        };
        let pages: u64 = sizes.iter().take(ranges as usize).sum();
        let mut words = std::vec![first, 0, 7, 16 | count << 32, 48, 0];
        for access in &accesses[..count as usize] {
            words.extend([*access, 0]);
        }
        words.extend([pages | ranges << 32, 0]);
        let header = 8 * words.len() as u64;
        for size in &sizes[..ranges as usize] {
            words.extend([self.place(random, index), *size]);
        }
        let total = 8 * words.len() as u64;
        let parts = ranges == 2 && random.below(4) == 0;
        let size = if parts { header + 16 } else { total };
        self.write(index, &words);
        let mut x = self.call(index, &[u64::from(id | WIDE), total, size, 0, 0, 0, 0, 0])?;
        if parts && x[0] == u64::from(function::MEM_FRAG_RX) {
            self.write(index, &words[words.len() - 2..]);
            let id = u64::from(function::MEM_FRAG_TX);
            x = self.call(index, &[id, x[1], x[2], 16, 0, 0, 0, 0])?;
        }
        Ok(x)
    }

    fn retrieve(&mut self, random: &mut Random, index: usize) -> Result<Regs, Wrong> {
        let (handle, sender) = self.handle(random, |t| t.may_retrieve(vm(index)));
        let sender = sender as u64 + 1;
        let rights = random.of(&[0, 0, 1, 2, 2 | 2 << 2]);
        let flags = random.of(&[1 << 10, 1 << 10, 0, 1 << 2 | 1 << 10]);
        let access = (index as u64 + 1) | (rights << 16);
        self.write(
            index,
            &[
                sender | flags << 32,
                handle,
                7,
                16 | 1 << 32,
                48,
                0,
                access,
                0,
            ],
        );
        let id = u64::from(function::MEM_RETRIEVE_REQ | WIDE);
        let x = self.call(index, &[id, 64, 64, 0, 0, 0, 0, 0])?;
        self.call(index, &[function::RX_RELEASE.into(), 0, 0, 0, 0, 0, 0, 0])?;
        Ok(x)
    }

    /// Makes one call of a random VM. Tells whether it was done.
    fn random_call(&mut self, random: &mut Random) -> Result<bool, Wrong> {
        let index = random.below(COUNT as u64) as usize;
        let x = match random.below(40) {
            0..16 => self.send(random, index)?,
            16..26 => self.retrieve(random, index)?,
            26..33 => {
                let (handle, _) = self.handle(random, |t| t.is_held_by(vm(index)));
                let words = [handle, (random.below(8) / 7) | (1 << 32), index as u64 + 1];
                self.write(index, &words);
                self.call(
                    index,
                    &[function::MEM_RELINQUISH.into(), 0, 0, 0, 0, 0, 0, 0],
                )?
            }
            33..39 => {
                let (handle, _) = self.handle(random, |t| t.offer.sender.index() == index);
                let id = function::MEM_RECLAIM.into();
                let flags = random.below(5) / 4;
                self.call(
                    index,
                    &[id, handle & 0xffff_ffff, handle >> 32, flags, 0, 0, 0, 0],
                )?
            }
            _ if random.below(8) == 0 => {
                self.reload(index)?;
                return Ok(true);
            }
            _ => {
                self.call(index, &[function::RXTX_UNMAP.into(), 0, 0, 0, 0, 0, 0, 0])?;
                self.map_buffers(index)?
            }
        };
        Ok(x[0] != u64::from(function::ERROR))
    }
}

/// G1-MEM-011, -012, -016, -017: the ghost and the tables agree after each of many random calls;
/// and enough of them were done.
#[test]
fn the_ghost_agrees() {
    let mut random = Random(0x6765_6172_7631);
    let mut machine = Machine::new(24);
    let (mut done, calls) = (0, calls());
    for number in 0..calls {
        let result = machine.random_call(&mut random);
        let seldom = number.is_multiple_of(64);
        let looked = if seldom {
            machine.check_all().and_then(|()| machine.check_aliases())
        } else {
            Ok(())
        };
        match looked.and(result) {
            Ok(was_done) => done += u64::from(was_done),
            Err(wrong) => panic!("call {number}: {wrong:x?}"),
        }
    }
    std::println!("figure: {calls} calls of three VMs, {done} of them done, no difference");
    assert!(done > calls / 5, "{done} of {calls} calls were done");
    (0..COUNT).for_each(|index| machine.reload(index).unwrap());
    assert!(machine.everything() == Machine::new(24).everything());
}

fn finds(plant: impl Fn(&mut Machine)) -> Option<Wrong> {
    let mut random = Random(0x6765_6172_7631);
    let mut machine = Machine::new(24);
    machine.looks_at_all = true;
    plant(&mut machine);
    (0..1000).find_map(|_| machine.random_call(&mut random).err())
}

/// Owner and borrower swapped, in the implementation or in the ghost, are found.
#[test]
fn owner_and_borrower_swapped_are_found() {
    assert_eq!(finds(|_| ()), None);
    let swapped = finds(|machine| machine.host.swapped = true);
    assert!(swapped.is_some());
    let ghost = finds(|machine| machine.ghost_swaps = true);
    assert!(ghost.is_some());
    let owners = finds(|machine| machine.host.owners_swapped = true);
    assert!(matches!(owners, Some(Wrong::Owner(..))), "{owners:x?}");
}

/// A look that leaves out what has not changed finds what a look at all pages finds: after random
/// calls, and after a descriptor of any table was changed behind the ghost's back, and changed
/// again.
#[test]
fn what_is_left_out_is_right() {
    let mut random = Random(0x6c6f_6f6b_7331);
    let mut machine = Machine::new(24);
    // `check` compares the two.
    machine.looks_at_all = true;
    let (mut found, mut not_found) = (0, 0);
    for _ in 0..1000 {
        machine.random_call(&mut random).unwrap();
        let index = random.below(COUNT as u64) as usize;
        let mut all = machine.host.vms.table_addresses(index);
        all.sort_unstable();
        let table = random.of(&all);
        // In a table of level 2, what maps a block of a VM's memory, as a rule.
        let block = own(random.below(COUNT as u64) as usize, random.of(&[0, 512])) >> 21;
        let any = random.below(512);
        let at = random.of(&[any, block % 512]) as usize;
        let mut tables = machine.host.vms.tables(vm(index));
        let was = tables.read(Pa::new(table), at);
        // A table of tables stays one.
        if all.contains(&(was & 0xffff_ffff_f000)) {
            continue;
        }
        // Rights, what the software bits say, the address, valid or not.
        let bit = random.of(&[1 << 7, 1 << 54, 1 << 55, 1 << 56, 1 << 21, 1]);
        tables.write(Pa::new(table), at, was ^ bit);
        match machine.check() {
            Err(_) => found += 1,
            Ok(()) => not_found += 1,
        }
        let mut tables = machine.host.vms.tables(vm(index));
        tables.write(Pa::new(table), at, was);
        machine.check().unwrap();
    }
    assert!(found > 100, "{found} found, {not_found} not");
}

/// A look also covers pages that only the ghost's view changed: the ghost counts a page as shared,
/// and no table does.
#[test]
fn a_call_that_does_nothing_is_found() {
    let mut machine = Machine::new(24);
    machine.looks_at_all = true;
    let receiver = 2 | 2 << 16 | 64 << 32;
    let first = [1 | 0x2f << 16, 0, 7, 16 | 1 << 32, 48, 0, receiver, 0];
    machine.check().unwrap();
    let words = [first.as_slice(), &[1 | 1 << 32, 0, own(0, 0), 1]].concat();
    let regs = [(function::MEM_SHARE | WIDE).into(), 96, 96, 0, 0, 0, 0, 0];
    let answer = [function::SUCCESS.into(), 0, 1, 0, 0, 0, 0, 0];
    let running = machine.host.running;
    let said = machine
        .ghost
        .call(0, 0, &regs, &words, Some(&answer), running);
    said.unwrap();
    let found = machine.check();
    assert!(matches!(found, Err(Wrong::Owner(0, ..))), "{found:x?}");
}

/// The call by which VM 0 lends VM 1 `pages` pages.
fn lends(machine: &mut Machine, pages: u64) -> Regs {
    let receiver = 2 | 2 << 16 | 64 << 32;
    let first = [1, 0, 7, 16 | 1 << 32, 48, 0, receiver, 0];
    let words = [first.as_slice(), &[pages | 1 << 32, 0, own(0, 0), pages]].concat();
    machine.write(0, &words);
    [(function::MEM_LEND | WIDE).into(), 96, 96, 0, 0, 0, 0, 0]
}

/// While a vCPU sends memory, a refusal of another one's call does not make the ghost expect that
/// the first call is done.
#[test]
fn a_call_of_each_vcpu_is_followed() {
    let mut machine = Machine::new(24);
    machine.looks_at_all = true;
    let regs = lends(&mut machine, 64);
    loop {
        let answer = machine.step_of_vcpu(0, 0, &regs).unwrap();
        let refused = machine.step_of_vcpu(0, 1, &map_call(0)).unwrap().unwrap();
        assert_eq!(refused[0], function::ERROR.into());
        machine.check_all().unwrap();
        if answer.is_some() {
            break;
        }
    }
}

/// The VM's own view is compared while the VM sends: a page that is neither as before nor as after
/// the call is found at each step.
#[test]
fn a_wrong_page_of_who_sends_is_found() {
    let mut machine = Machine::new(24);
    let regs = lends(&mut machine, 64);
    let mut found = 0;
    while machine.step_of_vcpu(0, 0, &regs).unwrap().is_none() {
        let tables = machine.host.vms.table_addresses(0);
        let page = (own(0, 40) >> 12) as usize % 512;
        let maps = |machine: &mut Machine, table: &u64| {
            let mut tables = machine.host.vms.tables(vm(0));
            let was = tables.read(Pa::new(*table), page);
            let is_page = was & 3 == 3 && was & 0xffff_ffff_f000 == start(0) + 40 * PAGE;
            is_page.then(|| tables.write(Pa::new(*table), page, was & !1))?;
            Some(was)
        };
        for table in tables {
            if let Some(was) = maps(&mut machine, &table) {
                let looked = machine.check_all();
                assert!(matches!(looked, Err(Wrong::Access(0, ..))), "{looked:x?}");
                found += 1;
                let mut tables = machine.host.vms.tables(vm(0));
                tables.write(Pa::new(table), page, was);
            }
        }
    }
    assert!(found > 3, "{found}");
}
