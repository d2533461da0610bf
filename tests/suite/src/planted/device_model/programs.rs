//! Bugs in devices that another program serves.

use super::super::bug::{Bug, Finder};
use super::bug_of;
use crate::change::Change;

const BY_FAULTS: &str = "device-model/src/backend/vhost_user/tests/faults.rs";
const BY_NOTES: &str = "device-model/src/in_flight/tests.rs";
const BY_PROGRAM: &str = "device-model/src/backend/vhost_user/tests/program.rs";

/// A bug in the rules of manifests.
const fn of_rules(name: &'static str, change: Change) -> Bug {
    Bug {
        name,
        change,
        breaks: &["G1-BOOT-002"],
        test: "manifests/src/rules/tests/vhost_user.rs",
        finder: Finder::Host,
    }
}

pub(in crate::planted) const BUGS: &[Bug] = &[
    bug_of(
        BY_NOTES,
        "a request is handed over twice at once",
        Change::Swap("== Some(0)", "!= None"),
    ),
    bug_of(
        BY_NOTES,
        "requests are handed over again in the order of their numbers",
        Change::Drop,
    ),
    bug_of(
        BY_FAULTS,
        "a backend can cut the memory of its rings",
        Change::Swap("libc::F_SEAL_SHRINK | ", ""),
    ),
    bug_of(
        BY_FAULTS,
        "a backend with too few queues is accepted",
        Change::Swap("count < wanted as u64", "false"),
    ),
    bug_of(
        BY_FAULTS,
        "a backend completes more than it was given",
        Change::Swap("done > given", "false"),
    ),
    bug_of(
        BY_FAULTS,
        "a backend completes a request twice",
        Change::Swap("!notes.has(head)", "false"),
    ),
    bug_of(
        BY_FAULTS,
        "a request whose completion was the last act of a gdm is done again",
        Change::Drop,
    ),
    bug_of(
        BY_FAULTS,
        "a reset is answered for a backend that goes on",
        Change::Swap("!self.replace_lost()", "self.replace_lost() || true"),
    ),
    bug_of(
        BY_FAULTS,
        "a configuration changes without its generation",
        Change::Swap("wrapping_add(add)", "wrapping_add(0 * add)"),
    ),
    bug_of(
        BY_PROGRAM,
        "a backend runs as root",
        Change::Swap(".uid(account).gid(account)", ".gid(account)"),
    ),
    bug_of(
        BY_PROGRAM,
        "a program that ends at once is started without end",
        Change::Swap("self.started.elapsed() < LONG_RUN", "false"),
    ),
    bug_of(
        BY_PROGRAM,
        "a program starts beside an earlier one",
        Change::Swap("lock.try_lock()", "lock.sync_all()"),
    ),
    of_rules(
        "a device type that no driver can match is accepted",
        Change::Swap("(1..DEVICE_IDS).contains(&id)", "id < u32::MAX"),
    ),
    of_rules(
        "the path of a socket is cut off",
        Change::Swap("socket.len() > MAX_SOCKET || ", ""),
    ),
    of_rules(
        "a device has as many queues as it likes",
        Change::Swap("!range.contains(size)", "range.is_empty() && *size == 0"),
    ),
    of_rules(
        "two devices have one socket",
        Change::Swap("other.vhost_user.socket == socket", "other.vm == device.vm"),
    ),
];
