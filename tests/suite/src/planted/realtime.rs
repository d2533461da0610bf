//! Bugs in the life of a real-time VM; those that let others reach it, or it others, are in
//! `crate::test::realtime::planted`, which looks for a particular failure of each.
//!
//! A real-time VM that runs needs nothing of Gear1. These bugs show when such a VM ends, hangs, is
//! stopped in the middle of something, or begins its next life.

use super::bug::{Bug, Finder};
use crate::change::Change;

const RUN: &str = "tests/guests/src/realtime.rs";
const STOP: &str = "tests/guests/src/bin/realtime_stop.rs";

const PASSTHROUGH: Finder = Finder::Guest("rt-passthrough", "cortex-a57");

pub(super) const BUGS: &[Bug] = &[
    // The physical timer of the VM traps. The VM's timer still works, by exits: the guest compares
    // its count of exits with what it does.
    Bug {
        name: "Gear1 keeps its timer on a real-time VM's CPU",
        change: Change::Drop,
        breaks: &["G1-RT-002"],
        test: RUN,
        finder: PASSTHROUGH,
    },
    // The vCPU is asked to stop and makes no exit that would hear of it. A VM that waits is woken
    // and stops; the part stops the VM in each state.
    Bug {
        name: "a VM with pass-through that spins is not stopped",
        change: Change::Drop,
        breaks: &["G1-RT-005"],
        test: STOP,
        finder: Finder::Stops,
    },
    // Nobody but Gear1 starts such a VM again. The other two ends, which depend on the manifest,
    // are on the lines below.
    Bug {
        name: "a real-time VM that resets itself stays off",
        change: Change::Swap("true", "false"),
        breaks: &["G1-RT-006"],
        test: STOP,
        finder: Finder::Stops,
    },
    // A reset is refused as before, a power-off is not. The part asks for a power-off while the VM
    // runs.
    Bug {
        name: "Gear2 powers off although a real-time VM runs",
        change: Change::Swap("is_asked ", "is_asked && reset "),
        breaks: &["G1-RT-009"],
        test: STOP,
        finder: Finder::Stops,
    },
    // The CPU interface keeps priority mask and active priority of the guest. A guest that stops in
    // order leaves nothing: this one is stopped inside of an interrupt.
    Bug {
        name: "a guest's interface stays as it left it",
        change: Change::Drop,
        breaks: &["G1-RT-005"],
        test: STOP,
        finder: Finder::Stops,
    },
    // The VM has twice its time. A VM that hangs is still found, so the test bounds the time.
    Bug {
        name: "a real-time VM's heartbeat may stop",
        change: Change::Swap("silence >=", "silence / 2 >="),
        breaks: &["G1-SUP-004"],
        test: "gear1/core/src/heartbeat/tests.rs",
        finder: Finder::Host,
    },
    // A VM that changes its word once and hangs before the first look counts as one that has not
    // begun, which has longer.
    Bug {
        name: "changes before the first look at a life do not count",
        change: Change::Swap("{ first }", "{ word }"),
        breaks: &["G1-SUP-004"],
        test: "gear1/core/src/heartbeat/tests.rs",
        finder: Finder::Host,
    },
    // The VM is ended by the look, and the mark for its CPU to start it again is not taken. The row
    // waits for the next life.
    Bug {
        name: "nobody starts a VM again whose heartbeat has stopped",
        change: Change::Drop,
        breaks: &["G1-SUP-004"],
        test: "tests/guests/src/bin/heartbeat.rs",
        finder: Finder::Guest("heartbeat", "cortex-a57"),
    },
    // The interrupt that woke the CPU is given to the guest. The guest turns its second CPU on
    // again and again, and no interrupt may wait for it there.
    Bug {
        name: "a guest finds its kick pending",
        change: Change::Become("    unsafe { Gic::disturb(cpu.index(), 0) };\n}"),
        breaks: &["G1-RT-007"],
        test: RUN,
        finder: PASSTHROUGH,
    },
];
