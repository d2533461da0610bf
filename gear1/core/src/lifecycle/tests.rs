//! Every state of a VM against every call.
//!
//! Requirements: G1-RUN-009.

use gear1_abi::call::Status::WrongState;
use gear1_abi::call::VmState::{self, Loaded, Loading, Running, Stopped, Stopping};

use super::*;

const STATES: [VmState; 5] = [Stopped, Loading, Loaded, Running, Stopping];

/// Expected results in the order of the states: load, start, stop, and complete_stop with and
/// without work left.
type Row = (
    Result<bool, Status>,
    Result<VmState, Status>,
    bool,
    [VmState; 2],
);

#[test]
fn every_call_in_every_state_of_a_vm() {
    let rows: [Row; 5] = [
        (Ok(true), Err(WrongState), false, [Stopped, Stopped]),
        (Ok(false), Err(WrongState), false, [Loading, Loading]),
        (Ok(true), Ok(Running), false, [Loaded, Loaded]),
        (Err(WrongState), Err(WrongState), true, [Running, Running]),
        (Err(WrongState), Err(WrongState), true, [Stopping, Stopped]),
    ];
    for (state, row) in STATES.into_iter().zip(rows) {
        let completes = [true, false].map(|still| complete_stop(state, || still));
        assert_eq!(
            (load(state), start(state), stop(state), completes),
            row,
            "{state:?}"
        );
    }
}

#[test]
fn who_runs_is_told_without_a_lock() {
    let life = RunningLife::new();
    assert!(!life.runs() && life.read().is_none());
    for (starts, end) in [(1, Ended::No), (u32::MAX, Ended::Fault)] {
        let ends = Ends(u64::from(starts) << 7);
        life.begin(starts, end, ends);
        assert!(life.runs());
        assert_eq!(life.read(), Some((starts, end, ends)));
    }
    life.end();
    assert!(!life.runs() && life.read().is_none());
}

/// Devices are told to stop when the VM is being stopped, and at no other time.
#[test]
fn only_a_stop_looks_at_what_is_at_work() {
    for state in STATES {
        let mut looked = false;
        complete_stop(state, || {
            looked = true;
            true
        });
        assert_eq!(looked, state == Stopping, "{state:?}");
    }
}
