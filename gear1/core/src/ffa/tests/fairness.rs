//! Progress whatever others do: the end of a VM ends although its peers repeat calls, and a call
//! that is cut off by another VM leaves its caller free to make the next one.
//!
//! Requirements: G1-MEM-012, G1-MEM-015, G1-MEM-017, G1-MEM-023.

use std::vec::Vec;

use gear1_abi::regs::Regs;

use super::machine::{Machine, Random, own};
use crate::ffa::{self, End, Outcome, function};
use crate::ownership::testing::{start, vm};
use crate::ownership::{Phase, bit};

/// Number of pages of a transaction: some steps of each pass.
const PAGES: u64 = 64;
/// Most rounds that an end may take while each peer makes a step of each of its calls in a round.
const ROUNDS: usize = 2000;
const RX_RELEASE: Regs = [function::RX_RELEASE as u64, 0, 0, 0, 0, 0, 0, 0];
const DONE: u64 = function::SUCCESS as u64;
const ERROR: u64 = function::ERROR as u64;
const RESPONSE: u64 = function::MEM_RETRIEVE_RESP as u64;

impl Machine {
    /// Says that `sender` sends the pages from `at` on, and returns the call.
    pub(super) fn sending(&mut self, sender: usize, id: u32, receivers: &[usize], at: u64) -> Regs {
        let count = receivers.len() as u64;
        let is_donation = id == function::MEM_DONATE;
        let says_attributes = count > 1 || id == function::MEM_SHARE;
        let attributes = if says_attributes { 0x2f << 16 } else { 0 };
        let rights = if is_donation { 0 } else { 2 << 16 };
        let first = (sender as u64 + 1) | attributes;
        let mut words = std::vec![first, 0, 7, 16 | count << 32, 48, 0];
        for receiver in receivers {
            let access = (*receiver as u64 + 1) | rights | (48 + 16 * count) << 32;
            words.extend([access, 0]);
        }
        words.extend([PAGES | 1 << 32, 0, at, PAGES]);
        self.write(sender, &words);
        let total = 8 * words.len() as u64;
        [id.into(), total, total, 0, 0, 0, 0, 0]
    }

    /// Makes VM `sender` send pages, and returns the handle.
    fn send_all(&mut self, sender: usize, id: u32, receivers: &[usize], at: u64) -> u64 {
        let regs = self.sending(sender, id, receivers, at);
        let x = self.call(sender, &regs).unwrap();
        assert_eq!(x[0], DONE, "{x:x?}");
        x[2] | x[3] << 32
    }

    /// Says that VM `who` retrieves what VM `sender` sent, and returns the call.
    fn asking(&mut self, who: usize, sender: usize, handle: u64, is_donation: bool) -> Regs {
        let rights = if is_donation { 0 } else { 2 << 16 };
        let words = [
            (sender as u64 + 1) | 1 << 42,
            handle,
            7,
            16 | 1 << 32,
            48,
            0,
            (who as u64 + 1) | rights,
            0,
        ];
        self.write(who, &words);
        [function::MEM_RETRIEVE_REQ.into(), 64, 64, 0, 0, 0, 0, 0]
    }

    /// Makes VM `who` retrieve what VM `sender` sent, and read the answer.
    fn take_all(&mut self, who: usize, sender: usize, handle: u64, is_donation: bool) {
        let regs = self.asking(who, sender, handle, is_donation);
        let x = self.call(who, &regs).unwrap();
        assert_eq!(x[0], RESPONSE, "{x:x?}");
        self.call(who, &RX_RELEASE).unwrap();
    }
}

/// A VM that received a donation donates it back again and again while its home ends.
#[test]
fn a_home_ends_while_its_memory_is_donated_back() {
    let mut machine = Machine::new(24);
    let handle = machine.send_all(0, function::MEM_DONATE, &[1], own(0, 0));
    machine.take_all(1, 0, handle, true);
    let ended = machine.ends_in(0, |machine| {
        machine.repeat(1, Repeated::Send(0, function::MEM_DONATE, 0), &[]);
    });
    assert!(ended.is_some(), "the end of the home has no end");
}

/// The sender reclaims, by a handle that nobody told it, what the end of the home cut off.
#[test]
fn a_send_that_was_cut_off_has_no_handle() {
    let mut machine = Machine::new(24);
    let handle = machine.send_all(0, function::MEM_DONATE, &[1], own(0, 0));
    machine.take_all(1, 0, handle, true);
    let regs = machine.sending(1, function::MEM_DONATE, &[0], start(0));
    assert_eq!(machine.step_of_call(1, &regs), Ok(None));
    machine.host.running &= !bit(vm(0));
    // The second one of the two transactions is the donation back.
    let cut_off = machine.ledger.unfinished_send(vm(1)).unwrap();
    while machine.ledger.transaction(cut_off).phase != Phase::Reclaiming {
        assert_eq!(machine.step_of_end(0), Ok(false));
    }
    let handle = machine.ledger.handle(cut_off);
    let (low, high) = (handle & 0xffff_ffff, handle >> 32);
    let reclaim = [function::MEM_RECLAIM.into(), low, high, 0, 0, 0, 0, 0];
    let x = machine
        .step_of_call(1, &reclaim)
        .unwrap()
        .expect("an answer");
    assert_eq!((x[0], x[2] as u32 as i32), (ERROR, -2));
}

/// Two vCPUs of a receiver retrieve and relinquish in turn while another receiver ends.
#[test]
fn a_receiver_ends_while_another_retrieves_and_relinquishes() {
    let mut machine = Machine::new(24);
    let handle = machine.lend_two();
    machine.take_all(2, 0, handle, false);
    let handles = [(0, false, handle)];
    let calls = [
        Repeated::Retrieve(0),
        Repeated::RxRelease,
        Repeated::Relinquish(0),
    ];
    // Twice: whoever makes the last step of a pass, the next pass begins before the end goes on.
    let ended = machine.ends_in(2, |machine| {
        for call in calls.iter().chain(&calls) {
            machine.repeat(1, *call, &handles);
        }
    });
    assert!(ended.is_some(), "the end of the receiver has no end");
}

/// Calls that a peer repeats.
#[derive(Clone, Copy, Debug)]
enum Repeated {
    Retrieve(usize),
    Relinquish(usize),
    RxRelease,
    Reclaim(usize),
    /// VM that gets a page range, the call, and whose pages these are.
    Send(usize, u32, usize),
}

impl Machine {
    fn repeat(&mut self, who: usize, call: Repeated, handles: &[(usize, bool, u64)]) -> Outcome {
        let regs = match call {
            Repeated::Retrieve(at) => {
                let (sender, is_donation, handle) = handles[at];
                self.asking(who, sender, handle, is_donation)
            }
            Repeated::Relinquish(at) => self.giving_back(who, handles[at].2),
            Repeated::RxRelease => RX_RELEASE,
            Repeated::Reclaim(at) => {
                let handle = handles[at].2;
                let (low, high) = (handle & 0xffff_ffff, handle >> 32);
                [function::MEM_RECLAIM.into(), low, high, 0, 0, 0, 0, 0]
            }
            Repeated::Send(to, id, home) => {
                let at = if home == who {
                    own(home, 512)
                } else {
                    start(home)
                };
                self.sending(who, id, &[to], at)
            }
        };
        // Without the ghost, which takes a VM's calls to come one after the other.
        ffa::call(&mut self.ledger, &mut self.host, vm(who), &regs)
    }

    /// Ends VM `who` a step at a time, with `others` after each step, without the ghost. Returns
    /// the number of steps, if these are not too many.
    fn ends_in(&mut self, who: usize, mut others: impl FnMut(&mut Self)) -> Option<usize> {
        self.host.running &= !bit(vm(who));
        for round in 0..ROUNDS {
            match ffa::release(&mut self.ledger, &mut self.host, vm(who)) {
                End::Done => return Some(round),
                End::More => {}
                End::Runs => panic!("VM {who} runs"),
            }
            others(self);
        }
        None
    }
}

/// Whichever VM ends, at whatever point of the others' calls, its end has an end although its peers
/// go on with all calls that they can make, in any order.
#[test]
fn every_end_ends_whatever_peers_repeat() {
    let mut worst = 0;
    for number in 0..300_u64 {
        let mut random = Random(number.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        (0..4).for_each(|_| {
            random.next();
        });
        let mut machine = Machine::new(24);
        // VM 1 has a donation of VM 0's, and all three share what VM 2 lends, or VM 0.
        let given = machine.send_all(0, function::MEM_DONATE, &[1], own(0, 0));
        machine.take_all(1, 0, given, true);
        let lender = random.of(&[0, 2]);
        let others: Vec<usize> = (0..3).filter(|who| *who != lender).collect();
        let lent = machine.send_all(lender, function::MEM_LEND, &others, own(lender, 256));
        for who in &others {
            if random.below(2) == 0 {
                machine.take_all(*who, lender, lent, false);
            }
        }
        let handles = [(0, true, given), (lender, false, lent)];
        let who = random.below(3) as usize;
        let mut peers = Vec::new();
        for peer in (0..3).filter(|peer| *peer != who) {
            let mut calls = std::vec![
                Repeated::Retrieve(1),
                Repeated::Relinquish(1),
                Repeated::RxRelease,
                Repeated::Reclaim(random.below(2) as usize),
                Repeated::Send(who, function::MEM_SHARE, peer),
                Repeated::Send(who, function::MEM_DONATE, peer),
            ];
            if peer == 1 && who == 0 {
                calls.push(Repeated::Send(0, function::MEM_DONATE, 0));
            }
            // Some of them, in any order.
            for at in 0..calls.len() {
                let other = random.below(calls.len() as u64) as usize;
                calls.swap(at, other);
            }
            if number % 2 == 1 {
                calls.truncate(1 + random.below(calls.len() as u64) as usize);
            }
            peers.extend(calls.into_iter().map(|call| (peer, call)));
        }
        // Some calls are under way already.
        for _ in 0..random.below(12) {
            let (peer, call) = random.of(&peers);
            machine.repeat(peer, call, &handles);
        }
        let rounds = machine.ends_in(who, |machine| {
            for (peer, call) in peers.iter().chain(&peers) {
                if number % 4 < 2 || random.below(8) != 0 {
                    machine.repeat(*peer, *call, &handles);
                }
            }
        });
        let rounds = rounds.unwrap_or_else(|| panic!("{number}: VM {who} beside {peers:?}"));
        machine.is_alone(who);
        worst = worst.max(rounds);
    }
    std::println!("figure: the end of a VM takes at most {worst} rounds beside calls of all peers");
}

/// Whoever ends a transaction while a VM retrieves it, that VM's RX buffer is free again, whether
/// the VM asks once more for what is gone or not.
#[test]
fn a_retrieval_that_is_cut_off_leaves_the_buffer_free() {
    let mut cut_off = 0;
    let ways = [(false, false), (false, true), (true, false), (true, true)];
    for ((ends, asks), steps) in ways
        .into_iter()
        .flat_map(|way| (1..20).map(move |steps| (way, steps)))
    {
        let mut machine = Machine::new(24);
        // As many ranges as take several steps of the answer.
        let first = machine.lend_scattered();
        let second = machine.lend(512);
        let regs = machine.retrieval(1, first);
        if machine.makes_steps(1, &regs, steps).is_some() {
            continue;
        }
        if ends {
            machine.reload(0).unwrap();
        } else if machine.reclaim(first)[0] != DONE {
            continue;
        }
        cut_off += 1;
        if asks {
            let late = machine.call(1, &regs).unwrap();
            assert_eq!(late[0], ERROR, "{ends} {steps}");
        }
        let second = if ends { machine.lend(512) } else { second };
        let regs = machine.retrieval(1, second);
        let answer = machine.call(1, &regs).unwrap();
        assert_eq!(answer[0], RESPONSE, "{ends} {asks} {steps}: {answer:x?}");
    }
    assert!(cut_off > 8, "{cut_off}");
}

impl Machine {
    /// VM 0 lends VM 1 every other of some pages; returns the handle.
    fn lend_scattered(&mut self) -> u64 {
        let mut words = std::vec![1, 0, 7, 16 | 1 << 32, 48, 0, 2 | 2 << 16 | 64 << 32, 0];
        words.extend([PAGES | PAGES << 32, 0]);
        words.extend((0..PAGES).flat_map(|page| [own(0, 2 * page), 1]));
        self.write(0, &words);
        let total = 8 * words.len() as u64;
        let regs = [function::MEM_LEND.into(), total, total, 0, 0, 0, 0, 0];
        let x = self.call(0, &regs).unwrap();
        assert_eq!(x[0], DONE, "{x:x?}");
        x[2] | x[3] << 32
    }
}

/// A receiver that stops while it gives pages back, at whatever step, keeps no other from
/// retrieving.
#[test]
fn a_receiver_retrieves_while_another_gives_back() {
    let mut relinquishing = 0;
    for steps in 0.. {
        let mut machine = Machine::new(24);
        let handle = machine.lend_two();
        machine.take(handle);
        let regs = machine.giving_back(1, handle);
        if machine.makes_steps(1, &regs, steps).is_some() {
            break;
        }
        let index = machine.ledger.find(handle).unwrap();
        let phase = machine.ledger.transaction(index).phase;
        relinquishing += u32::from(phase == Phase::Relinquishing);
        let regs = machine.retrieval(2, handle);
        let answer = machine.call(2, &regs).unwrap();
        assert_eq!(answer[0], RESPONSE, "{steps}, {phase:?}: {answer:x?}");
    }
    assert!(relinquishing > 1, "{relinquishing}");
}

/// The calls that two vCPUs of VM 1 repeat.
const PASSES: [Repeated; 3] = [
    Repeated::Retrieve(0),
    Repeated::RxRelease,
    Repeated::Relinquish(0),
];

impl Machine {
    /// VM 1 makes the last step of the pass under way, and begins one of its own at once, unless
    /// another VM is in turn. `at` counts its calls.
    fn pass_on(&mut self, at: &mut usize, handles: &[(usize, bool, u64)]) {
        let index = self.ledger.find(handles[0].2).unwrap();
        let mut is_new = false;
        for _ in 0..100 {
            if let Outcome::Return(_) = self.repeat(1, PASSES[*at % PASSES.len()], handles) {
                *at += 1;
                is_new = true;
                continue;
            }
            let transaction = self.ledger.transaction(index);
            let is_pass = matches!(transaction.phase, Phase::Mapping | Phase::Unmapping(_));
            if is_new && is_pass && !transaction.is_mapped_for_another(vm(1)) {
                return;
            }
        }
    }

    /// VM 2 repeats a call, and after each step of it VM 1 begins its next pass. Returns the
    /// answer, if it comes.
    fn is_told(&mut self, call: Repeated, handles: &[(usize, bool, u64)]) -> Option<Regs> {
        let mut at = 0;
        for _ in 0..ROUNDS {
            self.pass_on(&mut at, handles);
            if let Outcome::Return(answer) = self.repeat(2, call, handles) {
                return Some(answer);
            }
        }
        None
    }
}

/// Two vCPUs of a receiver retrieve and relinquish in turn, and make the last step of each pass:
/// another receiver still retrieves, is told why it may not, and gives back.
#[test]
fn a_receiver_gets_its_turn() {
    let mut machine = Machine::new(24);
    let handles = [(0, false, machine.lend_two())];
    machine.host.vms.starve(2, true);
    let refused = machine.is_told(Repeated::Retrieve(0), &handles);
    let refused = refused.expect("a refusal that VM 2 is never told");
    let no_memory = u64::from(-3_i32 as u32);
    assert_eq!([refused[0], refused[2]], [ERROR, no_memory]);
    machine.host.vms.starve(2, false);
    let response = machine.is_told(Repeated::Retrieve(0), &handles);
    let response = response.expect("a retrieval that never ends");
    assert_eq!(response[0], RESPONSE, "{response:x?}");
    machine.repeat(2, Repeated::RxRelease, &handles);
    let done = machine.is_told(Repeated::Relinquish(0), &handles);
    let done = done.expect("a relinquishment that never ends");
    assert_eq!(done[0], DONE, "{done:x?}");
}

/// A receiver whose pages came back by others' steps is told so before it retrieves again: its
/// first call would take back what the second one got.
#[test]
fn a_receiver_is_told_before_it_retrieves_again() {
    let mut machine = Machine::new(24);
    let handle = machine.lend_two();
    machine.take(handle);
    let back = machine.giving_back(1, handle);
    assert_eq!(machine.makes_steps(1, &back, 1), None);
    // The other receiver makes all other steps, and its own.
    machine.take_all(2, 0, handle, false);
    let again = machine.retrieval(1, handle);
    assert_eq!(machine.call(1, &again).unwrap()[0], ERROR);
    let back = machine.giving_back(1, handle);
    assert_eq!(machine.makes_steps(1, &back, 1).unwrap()[0], DONE);
    machine.take(handle);
}
