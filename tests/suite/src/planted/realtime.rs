//! Bugs in the life of a real-time VM; those that let others reach it, or it others, are in
//! `crate::test::realtime::planted`, which looks for a particular failure of each.

use super::bug::{Bug, Finder};
use crate::change::Change;

const RUN: &str = "tests/guests/src/realtime.rs";
const STOP: &str = "tests/guests/src/bin/realtime_stop.rs";

const PASSTHROUGH: Finder = Finder::Guest("rt-passthrough", "cortex-a57");

pub(super) const BUGS: &[Bug] = &[
    Bug {
        name: "Gear1 keeps its timer on a real-time VM's CPU",
        change: Change::Drop,
        breaks: &["G1-RT-002"],
        test: RUN,
        finder: PASSTHROUGH,
    },
    Bug {
        name: "a VM with pass-through that spins is not stopped",
        change: Change::Drop,
        breaks: &["G1-RT-005"],
        test: STOP,
        finder: Finder::Stops,
    },
    Bug {
        name: "a real-time VM that resets itself stays off",
        change: Change::Swap("true", "false"),
        breaks: &["G1-RT-006"],
        test: STOP,
        finder: Finder::Stops,
    },
    Bug {
        name: "Gear2 powers off although a real-time VM runs",
        change: Change::Swap("is_asked ", "is_asked && reset "),
        breaks: &["G1-RT-009"],
        test: STOP,
        finder: Finder::Stops,
    },
    Bug {
        name: "a guest's interface stays as it left it",
        change: Change::Drop,
        breaks: &["G1-RT-005"],
        test: STOP,
        finder: Finder::Stops,
    },
    Bug {
        name: "a real-time VM's heartbeat may stop",
        change: Change::Swap("silence >=", "silence / 2 >="),
        breaks: &["G1-SUP-004"],
        test: "gear1/core/src/heartbeat/tests.rs",
        finder: Finder::Host,
    },
    Bug {
        name: "changes before the first look at a life do not count",
        change: Change::Swap("{ first }", "{ word }"),
        breaks: &["G1-SUP-004"],
        test: "gear1/core/src/heartbeat/tests.rs",
        finder: Finder::Host,
    },
    Bug {
        name: "nobody starts a VM again whose heartbeat has stopped",
        change: Change::Drop,
        breaks: &["G1-SUP-004"],
        test: "tests/guests/src/bin/heartbeat.rs",
        finder: Finder::Guest("heartbeat", "cortex-a57"),
    },
    Bug {
        name: "a guest finds its kick pending",
        change: Change::Become("    Gic::disturb(cpu.index(), 0);\n}"),
        breaks: &["G1-RT-007"],
        test: RUN,
        finder: PASSTHROUGH,
    },
];
