//! Bugs in input devices.
//!
//! A guest that keeps up with its events sees none of these: the tests give it few buffers, and
//! lose events as the kernel does.

use super::super::bug::{Bug, Finder};
use crate::change::Change;

const BY_EVENTS: &str = "device-model/src/backend/input/tests.rs";

pub(in crate::planted) const BUGS: &[Bug] = &[
    // Events are kept until SYN_REPORT. A program at the socket that sends none would fill memory.
    Bug::on_host(
        BY_EVENTS,
        "a report without an end fills the device model's memory",
        Change::Swap("MOST_OF_REPORT", "usize::MAX"),
    ),
    // A report of which the kernel dropped events is no report: a position with one of its two axes
    // is a jump.
    Bug::on_host(
        BY_EVENTS,
        "a guest gets a part of a report",
        Change::Swap("is_cut || ", ""),
    ),
    // Reports are lost when the guest does not keep up. The state of all keys follows once there is
    // room, or a key repeats for ever.
    Bug::on_host(
        BY_EVENTS,
        "a key stays pressed when its release is lost",
        Change::Drop,
    ),
    // A buffer of less than 8 bytes takes a part of an event, and the rest is gone. Linux's buffers
    // fit.
    Bug::on_host(
        BY_EVENTS,
        "an event's buffer is shorter than the event",
        Change::Swap("EVENT as u64", "0"),
    ),
    // The type and the code are still those of the device. A driver trusts the range that the
    // device tells.
    Bug::on_host(
        BY_EVENTS,
        "a typed event has any value",
        Change::Swap("profile.allows(event)", "true"),
    ),
    // Lines are read faster than the guest takes events, and are lost. With room the typist would
    // wait.
    Bug::on_host(
        BY_EVENTS,
        "a socket is read without room",
        Change::Swap("!reports.has_room()", "false"),
    ),
    // The rule for sockets of programs has the length, and this one is apart from it.
    Bug {
        name: "the path of a socket for input is cut off",
        change: Change::Swap("path.len() <= MAX_SOCKET", "true"),
        breaks: &["G1-BOOT-002"],
        test: "manifests/src/rules/tests/input.rs",
        finder: Finder::Host,
    },
];
