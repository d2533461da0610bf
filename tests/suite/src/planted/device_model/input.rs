//! Bugs in input devices.

use super::super::bug::{Bug, Finder};
use crate::change::Change;

const BY_EVENTS: &str = "device-model/src/backend/input/tests.rs";

pub(in crate::planted) const BUGS: &[Bug] = &[
    Bug::on_host(
        BY_EVENTS,
        "a report without an end fills the device model's memory",
        Change::Swap("MOST_OF_REPORT", "usize::MAX"),
    ),
    Bug::on_host(
        BY_EVENTS,
        "a guest gets a part of a report",
        Change::Swap("is_cut || ", ""),
    ),
    Bug::on_host(
        BY_EVENTS,
        "a key stays pressed when its release is lost",
        Change::Drop,
    ),
    Bug::on_host(
        BY_EVENTS,
        "an event's buffer is shorter than the event",
        Change::Swap("EVENT as u64", "0"),
    ),
    Bug::on_host(
        BY_EVENTS,
        "a typed event has any value",
        Change::Swap("profile.allows(event)", "true"),
    ),
    Bug::on_host(
        BY_EVENTS,
        "a socket is read without room",
        Change::Swap("!reports.has_room()", "false"),
    ),
    Bug {
        name: "the path of a socket for input is cut off",
        change: Change::Swap("path.len() <= MAX_SOCKET", "true"),
        breaks: &["G1-BOOT-002"],
        test: "manifests/src/rules/tests/input.rs",
        finder: Finder::Host,
    },
];
