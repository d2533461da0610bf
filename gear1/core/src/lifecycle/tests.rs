//! Every state of a VM against every call.
//!
//! Requirements: G1-RUN-009, G1-DMA-002.

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

/// The register of a device whose reset lasts for some reads, as the reset of an SD host controller
/// does: until then its bit reads as 1, and a write of the bit begins the reset anew.
struct Slow {
    reset: u32,
    rest: u32,
    resets: u32,
}

impl Register for Slow {
    fn write(&mut self, value: u32) {
        if value & self.reset != 0 {
            (self.rest, self.resets) = (5, self.resets + 1);
        }
    }

    fn read(&mut self) -> u32 {
        self.rest = self.rest.saturating_sub(1);
        if self.rest == 0 { 0 } else { self.reset }
    }
}

/// G1-DMA-002. A stop looks until the device has stopped, and the next life's stop tells it anew.
#[test]
fn a_slow_reset_ends() {
    let master = BootMaster {
        value: 1 << 24,
        busy: 1 << 24,
        ..BootMaster::default()
    };
    let mut register = Slow {
        reset: 1 << 24,
        rest: 0,
        resets: 0,
    };
    for life in 1..=2 {
        let mut masters = Masters::NEW;
        let mut looks = 0..100;
        let stopped = looks.find(|_| stop_master(&mut register, &master, masters.tell()));
        assert_eq!(stopped, Some(4));
        assert_eq!(register.resets, life);
    }
}
