//! Histories of four VMs that are cut off anywhere: transactions up to the largest, that lie beside
//! one another, tables that run out, calls that are interrupted between two of their steps, VMs
//! that stop and are loaded anew at each of these, several at a time. The ghost looks at what has
//! changed after each step; after each end at all pages, and all tables are walked for pages of the
//! VM that ended. A million histories take a quarter of an hour on two CPUs.
//!
//! Requirements: G1-MEM-011, G1-MEM-012, G1-MEM-013, G1-MEM-016, G1-MEM-017.

use gear1_abi::regs::Regs;
use gear1_ghost::Wrong;
use std::thread;
use std::vec::Vec;

use super::machine::{Machine, PAGE, Random, map_call, own};
use crate::addr::Ipa;
use crate::ffa::function;
use crate::ownership::testing::{start, vm};
use crate::ownership::{Ledger, MAX_TRANSACTIONS, Phase, bit};
use crate::stage2::PageState;

const VMS: usize = 4;
/// Histories in an ordinary run; `GEARV_HISTORIES` says otherwise.
const HISTORIES: u64 = 1_000;
/// Most steps of one.
const STEPS: u64 = 60;
/// In one of so many histories the ghost checks all pages after each step; in the others it checks
/// the pages that have changed since the last check, and all pages when a VM has ended.
const LOOKS_AT_ALL: u64 = 128;
const WIDE: u32 = function::SMC64;
/// Ranges: first page in the VM's memory, and number of pages. Together they make whole blocks,
/// adjacent halves, blocks less a page, and overlaps of these.
const PLACES: [(u64, u64); 14] = [
    (0, 512),
    (0, 512),
    (0, 256),
    (256, 256),
    (512, 256),
    (768, 254),
    (512, 510),
    (0, 511),
    (511, 1),
    (511, 2),
    (300, 400),
    (0, 1),
    (512, 1),
    (700, 3),
];

/// State of a VM.
#[derive(Clone, Copy, Debug)]
enum Life {
    Runs,
    /// The VM is in a call that is not done.
    Calls(Regs),
    Stopped,
    /// The VM is being reloaded.
    Ends,
}

/// Counts over all histories.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    calls: u64,
    done: u64,
    /// Calls that were refused for want of tables or transactions.
    without_memory: u64,
    ends: u64,
    /// Ends in the middle of a call.
    cut_off: u64,
}

impl Tally {
    fn add(&mut self, other: Self) {
        self.calls += other.calls;
        self.done += other.done;
        self.without_memory += other.without_memory;
        self.ends += other.ends;
        self.cut_off += other.cut_off;
    }
}

struct History {
    machine: Machine,
    lives: [Life; VMS],
    /// VMs that have not read their last answer yet.
    unread: [bool; VMS],
    random: Random,
    tally: Tally,
}

impl History {
    /// Sends ranges to one or two VMs, the last of them perhaps in a part of its own.
    fn send(&mut self, index: usize) -> Result<Option<Regs>, Wrong> {
        let id = self.random.of(&[
            function::MEM_SHARE,
            function::MEM_LEND,
            function::MEM_LEND,
            function::MEM_DONATE,
            function::MEM_DONATE,
        ]);
        let mut words = self.header(index, id);
        let (base, ranges) = self.ranges(index);
        let pages: u64 = ranges.iter().map(|(_, pages)| pages).sum();
        let count = ranges.len() as u64;
        words.extend([pages | count << 32, 0]);
        let ranges = ranges
            .iter()
            .flat_map(|(at, pages)| [base + at * PAGE, *pages]);
        words.extend(ranges);
        let total = 8 * words.len() as u64;
        let parts = count > 1 && self.random.below(4) == 0;
        let size = if parts { total - 16 } else { total };
        self.machine.write(index, &words);
        let x = self.call(index, &[u64::from(id | WIDE), total, size, 0, 0, 0, 0, 0])?;
        let Some(x) = x.filter(|x| x[0] == u64::from(function::MEM_FRAG_RX)) else {
            return Ok(x);
        };
        if self.random.below(8) == 0 {
            return Ok(Some(x));
        }
        self.machine.write(index, &words[words.len() - 2..]);
        let id = u64::from(function::MEM_FRAG_TX);
        self.call(index, &[id, x[1], x[2], 16, 0, 0, 0, 0])
    }

    /// Returns a descriptor without its ranges: a call of `index` to one or two receivers.
    fn header(&mut self, index: usize, id: u32) -> Vec<u64> {
        let random = &mut self.random;
        let donate = id == function::MEM_DONATE;
        let receivers = if donate { 1 } else { random.of(&[1, 1, 1, 2]) };
        let first_receiver = index + 1 + random.below(VMS as u64 - 1) as usize;
        let attributes = if receivers > 1 || id == function::MEM_SHARE {
            0x2f
        } else {
            0
        };
        let mut words = std::vec![
            (index as u64 + 1) | (attributes << 16),
            0,
            7,
            16 | receivers << 32,
            48,
            0
        ];
        for number in 0..receivers as usize {
            let mut receiver = (first_receiver + number) % VMS;
            if receiver == index {
                receiver = (receiver + 1) % VMS;
            }
            let rights = if donate { 0 } else { 2 };
            words.extend([
                (receiver as u64 + 1) | (rights << 16) | ((48 + 16 * receivers) << 32),
                0,
            ]);
        }
        words
    }

    /// Returns ranges that `index` may send, and the address that their first pages are counted
    /// from.
    fn ranges(&mut self, index: usize) -> (u64, Vec<(u64, u64)>) {
        let random = &mut self.random;
        // A VM may send received memory to any VM: to its home, too.
        let home = match random.below(4) {
            0 => random.below(VMS as u64) as usize,
            _ => index,
        };
        let base = if home == index {
            own(home, 0)
        } else {
            start(home)
        };
        let mut ranges = Vec::new();
        if random.below(6) == 0 {
            // Single pages of both blocks in turn.
            let (first, count) = (random.below(8), 2 + random.below(120));
            ranges.extend((0..count).map(|n| (first + (n % 2) * 512 + n / 2, 1)));
            return (base, ranges);
        }
        for _ in 0..1 + random.below(2) {
            let places = [(); 6].map(|()| random.of(&PLACES));
            // Mostly one whose first page is its owner's alone, or was given.
            let mut fitting = places.into_iter().filter(|(at, _)| {
                let ipa = Ipa::new(base + at * PAGE);
                let (_, descriptor) = self.machine.host.vms.descriptor(index, ipa);
                matches!(
                    PageState::of(descriptor),
                    Some(PageState::Owned | PageState::Received)
                )
            });
            ranges.push(fitting.next().unwrap_or(places[0]));
        }
        (base, ranges)
    }

    fn retrieve(&mut self, index: usize) -> Result<Option<Regs>, Wrong> {
        let (random, machine) = (&mut self.random, &mut self.machine);
        let (handle, sender) = machine.handle(random, |t| t.may_retrieve(vm(index)));
        let flags = random.of(&[1 << 10, 1 << 10, 1 << 10, 1 << 2 | 1 << 10]);
        let (sender, receiver) = (sender as u64 + 1, index as u64 + 1);
        let words = [
            sender | flags << 32,
            handle,
            7,
            16 | 1 << 32,
            48,
            0,
            receiver,
            0,
        ];
        machine.write(index, &words);
        let id = u64::from(function::MEM_RETRIEVE_REQ | WIDE);
        self.call(index, &[id, 64, 64, 0, 0, 0, 0, 0])
    }

    /// Makes the first step of a random call.
    fn begin_call(&mut self, index: usize) -> Result<Option<Regs>, Wrong> {
        if self.unread[index] {
            // The VM has read the result of the last call.
            self.call(index, &[function::RX_RELEASE.into(), 0, 0, 0, 0, 0, 0, 0])?;
            self.unread[index] = false;
        }
        let is_mapped = self.machine.ledger.buffers(vm(index)).is_some();
        let rx = self.machine.ledger.rx(vm(index));
        assert_eq!(rx.is_ok(), is_mapped, "an answer that VM {index} never got");
        if self.machine.ledger.buffers(vm(index)).is_none() {
            return self.call(index, &map_call(index));
        }
        let all = (0..MAX_TRANSACTIONS).map(|slot| self.machine.ledger.transaction(slot));
        let used: Vec<_> = all.filter(|t| t.phase != Phase::Free).collect();
        let can_retrieve = used.iter().any(|t| t.may_retrieve(vm(index)));
        let can_relinquish = used.iter().any(|t| t.is_held_by(vm(index)));
        match self.random.below(24) {
            // Calls without a matching transaction are tried seldom.
            number @ 8..20 if !can_retrieve && number % 4 != 0 => self.send(index),
            number @ 14..20 if !can_relinquish && number % 4 != 0 => self.retrieve(index),
            0..8 => self.send(index),
            8..14 => self.retrieve(index),
            14..20 => {
                let (handle, _) = self
                    .machine
                    .handle(&mut self.random, |t| t.is_held_by(vm(index)));
                let words = [handle, 1 << 32, index as u64 + 1];
                self.machine.write(index, &words);
                self.call(
                    index,
                    &[function::MEM_RELINQUISH.into(), 0, 0, 0, 0, 0, 0, 0],
                )
            }
            20..23 => {
                let (handle, _) = self
                    .machine
                    .handle(&mut self.random, |t| t.offer.sender.index() == index);
                let flags = self.random.below(4) / 3;
                let id = function::MEM_RECLAIM.into();
                let (low, high) = (handle & 0xffff_ffff, handle >> 32);
                self.call(index, &[id, low, high, flags, 0, 0, 0, 0])
            }
            _ => self.call(index, &[function::RXTX_UNMAP.into(), 0, 0, 0, 0, 0, 0, 0]),
        }
    }

    /// Makes one step of a call.
    fn call(&mut self, index: usize, regs: &Regs) -> Result<Option<Regs>, Wrong> {
        let answer = self.machine.step_of_call(index, regs)?;
        self.unread[index] |=
            answer.is_some_and(|x| x[0] == u64::from(function::MEM_RETRIEVE_RESP));
        self.lives[index] = match answer {
            None => Life::Calls(*regs),
            Some(_) => Life::Runs,
        };
        Ok(answer)
    }

    fn count(&mut self, answer: Option<Regs>) {
        if let Some(x) = answer {
            let is_error = x[0] == u64::from(function::ERROR);
            self.tally.calls += 1;
            self.tally.done += u64::from(!is_error);
            self.tally.without_memory += u64::from(is_error && x[2] as u32 as i32 == -3);
        }
    }

    fn stop(&mut self, index: usize) {
        if let Life::Calls(_) = self.lives[index] {
            self.tally.cut_off += 1;
        }
        self.machine.host.running &= !bit(vm(index));
        self.lives[index] = Life::Stopped;
    }

    /// Makes one step of the end of a VM that has stopped.
    fn end(&mut self, index: usize) -> Result<(), Wrong> {
        self.lives[index] = Life::Ends;
        if self.machine.step_of_end(index)? {
            self.tally.ends += 1;
            self.machine.host.running |= bit(vm(index));
            self.lives[index] = Life::Runs;
            self.unread[index] = false;
            self.machine.map_buffers(index)?;
        }
        Ok(())
    }

    /// Lets a random VM make one step, or some.
    fn step(&mut self) -> Result<(), Wrong> {
        let index = self.random.below(VMS as u64) as usize;
        match self.lives[index] {
            Life::Runs | Life::Calls(_) if self.random.below(24) == 0 => self.stop(index),
            Life::Runs => {
                let answer = self.begin_call(index)?;
                self.count(answer);
            }
            Life::Calls(regs) => {
                // The whole call has some hundreds.
                for _ in 0..self.random.of(&[1, 1, 7, 40, 1000, 1000]) {
                    let answer = self.call(index, &regs)?;
                    if answer.is_some() {
                        self.count(answer);
                        break;
                    }
                }
            }
            Life::Stopped if self.random.below(2) == 0 => {}
            Life::Stopped => self.end(index)?,
            Life::Ends => {
                for _ in 0..self.random.of(&[1, 7, 40, 1000]) {
                    if !matches!(self.lives[index], Life::Ends) {
                        break;
                    }
                    self.end(index)?;
                }
            }
        }
        Ok(())
    }

    /// Ends all VMs, one step of one of them at a time.
    fn end_all(&mut self) -> Result<(), Wrong> {
        for index in 0..VMS {
            if let Life::Runs | Life::Calls(_) = self.lives[index] {
                self.stop(index);
            }
        }
        let is_done = |life: &Life| matches!(life, Life::Runs);
        while !self.lives.iter().all(is_done) {
            let index = self.random.below(VMS as u64) as usize;
            if !is_done(&self.lives[index]) {
                self.end(index)?;
            }
        }
        Ok(())
    }
}

/// Mappings of all VMs, the number of their tables, and all transactions and buffers.
type Everything = (Vec<Vec<(u64, u64, u64)>>, Vec<usize>, Ledger);

fn everything(machine: &Machine) -> Everything {
    let vms = &machine.host.vms;
    let leaves = (0..VMS).map(|index| vms.leaves(index)).collect();
    (leaves, vms.table_counts(), machine.ledger.without_serial())
}

/// Lives history number `number` of those with this seed.
fn live(seed: u64, number: u64) -> Tally {
    let mut random = Random((seed ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15)) | 1);
    // The first numbers are much like the seed.
    for _ in 0..4 {
        random.next();
    }
    let budget = 3 + random.below(14) as usize;
    let mut machine = Machine::of(VMS, budget);
    machine.looks_at_all = number.is_multiple_of(LOOKS_AT_ALL);
    let first = everything(&machine);
    let steps = 4 + random.below(STEPS);
    let mut history = History {
        machine,
        lives: [Life::Runs; VMS],
        unread: [false; VMS],
        random,
        tally: Tally::default(),
    };
    let lived = (0..steps).try_for_each(|_| history.step());
    if let Err(wrong) = lived.and_then(|()| history.end_all()) {
        panic!("history {number}: {wrong:x?}");
    }
    history.machine.check_all().unwrap();
    history.machine.check_aliases().unwrap();
    for index in 0..VMS {
        history.machine.is_alone(index);
    }
    let machine = &history.machine;
    assert!(everything(machine) == first, "history {number}");
    let mut phases = (0..MAX_TRANSACTIONS).map(|slot| machine.ledger.transaction(slot).phase);
    assert!(phases.all(|phase| phase == Phase::Free));
    history.tally
}

#[test]
fn histories_of_four_vms() {
    let said = std::env::var("GEARV_HISTORIES").ok();
    let histories = said.map_or(HISTORIES, |said| said.parse().unwrap());
    let threads = if histories > HISTORIES { 2 } else { 1 };
    let tally = thread::scope(|scope| {
        let run = |part: u64| {
            let numbers = (part..histories).step_by(threads as usize);
            move || {
                let mut tally = Tally::default();
                numbers.for_each(|number| tally.add(live(0x6869_7374_6f72, number)));
                tally
            }
        };
        let running: Vec<_> = (0..threads).map(|part| scope.spawn(run(part))).collect();
        let mut tally = Tally::default();
        for part in running {
            tally.add(part.join().unwrap());
        }
        tally
    });
    let Tally {
        calls,
        done,
        without_memory,
        ends,
        cut_off,
    } = tally;
    std::println!(
        "figure: {histories} histories of four VMs: {calls} calls, {done} of them done, {without_memory} refused for want of memory, {ends} ends, {cut_off} of them in the middle of a call; no difference"
    );
    assert!(
        done > calls / 4 && without_memory > calls / 100,
        "{tally:?}"
    );
    assert!(
        ends > 4 * histories && cut_off > histories / 10,
        "{tally:?}"
    );
}
