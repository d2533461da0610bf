//! Two vCPUs of a VM make calls that take several steps: each call continues only the work that it
//! names.
//!
//! Requirements: G1-MEM-012, G1-MEM-015, G1-MEM-017, G1-MEM-023.

use gear1_abi::regs::Regs;

use super::machine::{Machine, map_call, own};
use crate::ffa::function;
use crate::ownership::Phase;
use crate::ownership::testing::vm;

/// Number of pages of a transaction that takes several pieces.
const PAGES: u64 = 64;
const ZERO: u64 = 1;

impl Machine {
    /// VM 0 lends VM 1 pages from `first` on; returns the handle.
    pub(super) fn lend(&mut self, first: u64) -> u64 {
        let words = [
            1,
            0,
            7,
            16 | 1 << 32,
            48,
            0,
            2 | 2 << 16 | 64 << 32,
            0,
            PAGES | 1 << 32,
            0,
            own(0, first),
            PAGES,
        ];
        self.write(0, &words);
        let total = 8 * words.len() as u64;
        let x = self.call(0, &[function::MEM_LEND.into(), total, total, 0, 0, 0, 0, 0]);
        let x = x.unwrap();
        assert_eq!(x[0], function::SUCCESS.into(), "{x:x?}");
        x[2] | x[3] << 32
    }

    /// Makes VM 1 retrieve the transaction for writing.
    pub(super) fn take(&mut self, handle: u64) {
        let access = 2 | 2 << 16;
        self.write(1, &[1 | 1 << 42, handle, 7, 16 | 1 << 32, 48, 0, access, 0]);
        let id = function::MEM_RETRIEVE_REQ.into();
        let x = self.call(1, &[id, 64, 64, 0, 0, 0, 0, 0]).unwrap();
        assert_eq!(x[0], function::MEM_RETRIEVE_RESP.into(), "{x:x?}");
        let released = self.call(1, &[function::RX_RELEASE.into(), 0, 0, 0, 0, 0, 0, 0]);
        released.unwrap();
    }

    /// Makes one step of taking back, or giving back, what `handle` names. Wiped is it either way.
    fn step(&mut self, is_back: bool, handle: u64) -> Option<Regs> {
        let (index, regs) = if is_back {
            let id = function::MEM_RECLAIM.into();
            (
                0,
                [id, handle & 0xffff_ffff, handle >> 32, ZERO, 0, 0, 0, 0],
            )
        } else {
            self.write(1, &[handle, ZERO | 1 << 32, 2]);
            (1, [function::MEM_RELINQUISH.into(), 0, 0, 0, 0, 0, 0, 0])
        };
        self.step_of_call(index, &regs).unwrap()
    }

    /// Tells whether a step of it is left.
    fn is_under_way(&self, handle: u64) -> bool {
        let phase = (self.ledger.find(handle)).map(|index| self.ledger.transaction(index).phase);
        matches!(
            phase,
            Some(Phase::Reclaiming | Phase::Unmapping(_) | Phase::Relinquishing)
        )
    }
}

#[test]
fn each_vcpu_goes_on_with_what_its_call_names() {
    for is_back in [true, false] {
        let mut machine = Machine::new(24);
        let handles = [machine.lend(0), machine.lend(PAGES)];
        if !is_back {
            handles.iter().for_each(|handle| machine.take(*handle));
        }
        assert_eq!(machine.step(is_back, handles[0]), None);
        let answer = loop {
            if let Some(answer) = machine.step(is_back, handles[1]) {
                break answer;
            }
        };
        assert_eq!(answer[0], function::SUCCESS.into(), "{answer:x?}");
        assert!(!machine.is_under_way(handles[1]), "what it named is done");
        assert!(machine.is_under_way(handles[0]), "the sibling's is not");
        let answer = loop {
            if let Some(answer) = machine.step(is_back, handles[0]) {
                break answer;
            }
        };
        assert_eq!(answer[0], function::SUCCESS.into(), "{answer:x?}");
        let left = handles.map(|handle| {
            let index = machine.ledger.find(handle);
            index.map(|index| machine.ledger.transaction(index))
        });
        for transaction in left.into_iter().flatten() {
            assert!(!is_back && !transaction.is_held_by(vm(1)));
        }
    }
}

/// A second relinquish that asks for a wipe is refused while the first one is under way without a
/// wipe.
#[test]
fn a_sibling_cannot_ask_for_more_of_what_goes_on() {
    let mut machine = Machine::new(24);
    let handle = machine.lend(0);
    machine.take(handle);
    machine.write(1, &[handle, 1 << 32, 2]);
    let regs = [function::MEM_RELINQUISH.into(), 0, 0, 0, 0, 0, 0, 0];
    assert_eq!(machine.step_of_call(1, &regs).unwrap(), None);
    let refused = machine.step(false, handle).unwrap();
    assert_eq!(refused[0], function::ERROR.into(), "{refused:x?}");
}

impl Machine {
    /// Says that VM `who` retrieves it for writing, and returns the call.
    pub(super) fn retrieval(&mut self, who: usize, handle: u64) -> Regs {
        let access = (who as u64 + 1) | 2 << 16;
        self.write(
            who,
            &[1 | 1 << 42, handle, 7, 16 | 1 << 32, 48, 0, access, 0],
        );
        [function::MEM_RETRIEVE_REQ.into(), 64, 64, 0, 0, 0, 0, 0]
    }

    /// Says that VM `who` gives it back, and returns the call.
    pub(super) fn giving_back(&mut self, who: usize, handle: u64) -> Regs {
        self.write(who, &[handle, 1 << 32, who as u64 + 1]);
        [function::MEM_RELINQUISH.into(), 0, 0, 0, 0, 0, 0, 0]
    }

    /// VM 0 lends VMs 1 and 2 the same pages; returns the handle.
    pub(super) fn lend_two(&mut self) -> u64 {
        let access = |endpoint: u64| endpoint | 2 << 16 | 80 << 32;
        // With several receivers the sender says that the memory is write-back.
        let words = [
            1 | 0x2f << 16,
            0,
            7,
            16 | 2 << 32,
            48,
            0,
            access(2),
            0,
            access(3),
            0,
            PAGES | 1 << 32,
            0,
            own(0, 0),
            PAGES,
        ];
        self.write(0, &words);
        let total = 8 * words.len() as u64;
        let x = self.call(0, &[function::MEM_LEND.into(), total, total, 0, 0, 0, 0, 0]);
        let x = x.unwrap();
        assert_eq!(x[0], function::SUCCESS.into(), "{x:x?}");
        x[2] | x[3] << 32
    }

    pub(super) fn reclaim(&mut self, handle: u64) -> Regs {
        let (low, high) = (handle & 0xffff_ffff, handle >> 32);
        self.call(0, &[function::MEM_RECLAIM.into(), low, high, 0, 0, 0, 0, 0])
            .unwrap()
    }

    pub(super) fn makes_steps(&mut self, who: usize, regs: &Regs, steps: usize) -> Option<Regs> {
        (0..steps).find_map(|_| self.step_of_call(who, regs).unwrap())
    }
}

/// A receiver that makes no more steps blocks nobody, and learns later that its call is done.
#[test]
fn a_receiver_that_does_not_go_on_is_helped() {
    for steps in 0.. {
        let mut machine = Machine::new(24);
        let handle = machine.lend_two();
        let [first, second] = [1, 2].map(|who| machine.retrieval(who, handle));
        if machine.makes_steps(1, &first, steps).is_some() {
            assert!(steps > 4, "the retrieval was cut");
            return;
        }
        let response = u64::from(function::MEM_RETRIEVE_RESP);
        assert_eq!(machine.call(2, &second).unwrap()[0], response, "{steps}");
        assert_eq!(machine.call(1, &first).unwrap()[0], response, "{steps}");
        for who in [1, 2] {
            let release = [function::RX_RELEASE.into(), 0, 0, 0, 0, 0, 0, 0];
            machine.call(who, &release).unwrap();
        }
        let [first, second] = [1, 2].map(|who| machine.giving_back(who, handle));
        let done = u64::from(function::SUCCESS);
        let is_told = machine.makes_steps(1, &first, steps).is_some();
        assert_eq!(machine.call(2, &second).unwrap()[0], done, "{steps}");
        if !is_told {
            // The handle stays valid until the first knows.
            let early = machine.reclaim(handle);
            assert_eq!(early[0], function::ERROR.into(), "{steps}");
            assert_eq!(machine.call(1, &first).unwrap()[0], done, "{steps}");
        }
        assert_eq!(machine.reclaim(handle)[0], done, "{steps}");
    }
}

/// Of two vCPUs that make one call at once, one is answered, and the other as if it came later.
#[test]
fn two_vcpus_make_one_call() {
    type Made = fn(&mut Machine, u64) -> Regs;
    let calls: [(Made, bool); 2] = [
        (|machine, handle| machine.retrieval(1, handle), false),
        (|machine, handle| machine.giving_back(1, handle), true),
    ];
    for ((made, is_held), steps) in calls
        .iter()
        .flat_map(|call| (1..40).map(move |k| (*call, k)))
    {
        let mut machine = Machine::new(24);
        let handle = machine.lend(0);
        if is_held {
            machine.take(handle);
        }
        let regs = made(&mut machine, handle);
        if machine.makes_steps(1, &regs, steps).is_some() {
            continue;
        }
        let one = machine.call(1, &regs).unwrap();
        assert_ne!(one[0], function::ERROR.into(), "{steps}");
        let other = machine.call(1, &regs).unwrap();
        assert_eq!(other[0], function::ERROR.into(), "{steps}");
    }
}

/// Two vCPUs map and unmap buffers; an unmap during the mapping wins.
#[test]
fn two_vcpus_map_and_unmap_buffers() {
    let unmap = [function::RXTX_UNMAP.into(), 0, 0, 0, 0, 0, 0, 0];
    let (done, error) = (u64::from(function::SUCCESS), u64::from(function::ERROR));
    for steps in 1..4 {
        let mut machine = Machine::new(24);
        let map = map_call(1);
        let mut other = map;
        other[2] = own(1, 7);
        let before = machine.everything();
        assert_eq!(machine.makes_steps(1, &unmap, steps), None);
        assert_eq!(machine.call(1, &map).unwrap()[0], error);
        assert_eq!(machine.call(1, &unmap).unwrap()[0], done);
        assert_eq!(machine.call(1, &unmap).unwrap()[0], error);
        if machine.makes_steps(1, &map, steps).is_none() {
            assert_eq!(machine.call(1, &other).unwrap()[0], error);
            assert_eq!(machine.call(1, &unmap).unwrap()[0], done);
        } else {
            machine.call(1, &unmap).unwrap();
        }
        assert_eq!(machine.call(1, &map).unwrap()[0], done);
        assert_eq!(machine.call(1, &map).unwrap()[0], error);
        assert!(machine.everything() == before, "{steps}");
    }
}

/// The buffer with a call's descriptor stays mapped until the call is done.
#[test]
fn buffers_stay_while_a_call_needs_them() {
    let mut machine = Machine::new(24);
    let handle = machine.lend(0);
    let regs = machine.retrieval(1, handle);
    let unmap = [function::RXTX_UNMAP.into(), 0, 0, 0, 0, 0, 0, 0];
    while !machine.ledger.needs_buffers(vm(1)) {
        assert_eq!(machine.step_of_call(1, &regs).unwrap(), None);
    }
    let refused = machine.call(1, &unmap).unwrap();
    assert_eq!(
        [refused[0] as u32, refused[2] as u32],
        [function::ERROR, -4_i32 as u32]
    );
    let answer = machine.call(1, &regs).unwrap();
    assert_eq!(answer[0], function::MEM_RETRIEVE_RESP.into());
    assert_eq!(
        machine.call(1, &unmap).unwrap()[0],
        function::SUCCESS.into()
    );
}

/// The buffers stay as well until a call is answered whose last steps another VM has made: a vCPU
/// that was told nothing of a buffer would take what is in the next one for its answer.
#[test]
fn buffers_stay_until_a_call_is_answered() {
    let mut machine = Machine::new(24);
    let handle = machine.lend_two();
    let unmap = [function::RXTX_UNMAP.into(), 0, 0, 0, 0, 0, 0, 0];
    let (done, busy) = (u64::from(function::SUCCESS), u64::from(-4_i32 as u32));
    let first = machine.retrieval(1, handle);
    while !machine.ledger.needs_buffers(vm(1)) {
        assert_eq!(machine.step_of_call(1, &first).unwrap(), None);
    }
    // VM 2 makes the other steps of VM 1's retrieval, and its own.
    let second = machine.retrieval(2, handle);
    machine.call(2, &second).unwrap();
    assert_eq!(machine.call(1, &unmap).unwrap()[2], busy);
    let answer = machine.call(1, &first).unwrap();
    assert_eq!(answer[0], function::MEM_RETRIEVE_RESP.into());
    assert_eq!(machine.call(1, &unmap).unwrap()[0], done);
}
