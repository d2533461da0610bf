//! Two vCPUs of a VM make calls that take several steps: each goes on with what its call names.
//!
//! Requirements: G1-MEM-015, G1-MEM-017.

use gear1_abi::regs::Regs;

use super::machine::{Machine, own};
use crate::ffa::function;
use crate::ownership::Phase;
use crate::ownership::testing::vm;

/// As many as take several pieces.
const PAGES: u64 = 64;
const ZERO: u64 = 1;

impl Machine {
    /// VM 0 lends VM 1 pages from `first` on; returns the handle.
    fn lend(&mut self, first: u64) -> u64 {
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

    /// VM 1 retrieves it for writing.
    fn take(&mut self, handle: u64) {
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
        matches!(phase, Some(Phase::Reclaiming(_) | Phase::Relinquishing(_)))
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

/// What is given back again, to be wiped this time, is refused while the first call goes on.
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
