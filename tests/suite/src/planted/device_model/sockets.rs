//! Bugs in sockets between guests and the device VM.

use super::super::bug::{Bug, Finder};
use crate::change::Change;

const BY_SOCKETS: &str = "device-model/src/backend/vsock/tests.rs";
const BY_ENDS: &str = "device-model/src/backend/vsock/tests/ends.rs";
const BY_FIELDS: &str = "device-model/src/backend/vsock/tests/hostile.rs";
const BY_FLOW: &str = "device-model/src/backend/vsock/tests/flow.rs";
const BY_LIMITS: &str = "device-model/src/backend/vsock/tests/limits.rs";
const BY_FILTERS: &str = "device-model/src/sandbox/tests/sockets.rs";

/// A bug in the rules of manifests.
const fn of_rules(name: &'static str, change: Change) -> Bug {
    Bug {
        name,
        change,
        breaks: &["G1-BOOT-002"],
        test: "manifests/src/rules/tests/vsock.rs",
        finder: Finder::Host,
    }
}

pub(in crate::planted) const BUGS: &[Bug] = &[
    Bug::on_host(
        BY_SOCKETS,
        "a file in the place of a socket is removed",
        Change::Swap("found.file_type().is_socket()", "found.len() < u64::MAX"),
    ),
    Bug::on_host(
        BY_SOCKETS,
        "a program calls in a line without an end",
        Change::Swap("self.call.len() < LONGEST_CALL", "true"),
    ),
    Bug::on_host(
        BY_LIMITS,
        "programs use up the descriptors",
        Change::Swap("MOST_LINKS", "usize::MAX"),
    ),
    Bug::on_host(
        BY_LIMITS,
        "a guest has as many connections as it likes",
        Change::Swap("MOST_LINKS", "usize::MAX"),
    ),
    Bug::on_host(
        BY_LIMITS,
        "a guest has the device model refuse without end",
        Change::Swap("MOST_REPLIES", "usize::MAX"),
    ),
    Bug::on_host(
        BY_FIELDS,
        "a refusal is refused",
        Change::Swap("header.op != op::RST", "header.length < u32::MAX"),
    ),
    Bug::on_host(
        BY_FIELDS,
        "a guest fills the device model's memory",
        Change::Swap("<= u64::from(BUFFER)", "<= u64::MAX"),
    ),
    Bug::on_host(
        BY_FIELDS,
        "a packet's buffer has no room for its header",
        Change::Swap("chain.writable.length() >= HEADER as u64", "true"),
    ),
    Bug::on_host(BY_FLOW, "one connection has all turns", Change::Drop),
    Bug::on_host(
        "device-model/src/link/tests.rs",
        "programs inherit the descriptors that came",
        Change::Swap("libc::MSG_CMSG_CLOEXEC", "0"),
    ),
    Bug::on_host(
        BY_FLOW,
        "a guest without room is asked without end",
        Change::Swap("&= self.credit() == 0", "= false"),
    ),
    Bug::on_host(
        BY_FLOW,
        "data is sent beyond the guest's room",
        Change::Swap(
            "self.room.saturating_sub(on_their_way)",
            "self.room.saturating_sub(on_their_way.min(1))",
        ),
    ),
    Bug::on_host(BY_FLOW, "a guest is not told of room", Change::Drop),
    Bug::on_host(
        BY_ENDS,
        "a guest is not told that its connections are gone",
        Change::Swap("true", "false"),
    ),
    Bug {
        name: "a guest without a queue for packets keeps a thread busy",
        change: Change::Swap("core::mem::take(&mut self.can_receive)", "true"),
        breaks: &[],
        test: "device-model/src/worker/tests/hostile.rs",
        finder: Finder::HostNamed("hostile"),
    },
    Bug::on_host(
        BY_FILTERS,
        "the broker keeps all capabilities",
        Change::Swap(
            "sys::keep_access_to_files().map_err(Error::Capabilities)",
            "Ok(())",
        ),
    ),
    Bug::on_host(
        BY_FILTERS,
        "the broker makes sockets of any family",
        Change::Swap("vec![rule([is_unix])?]", "Vec::new()"),
    ),
    of_rules(
        "a guest has the identifier of the device VM",
        Change::Swap("CIDS.contains(&cid)", "cid < u32::MAX"),
    ),
    of_rules(
        "two guests have one identifier",
        Change::Swap("other.cid == device.cid", "other.vm == device.vm"),
    ),
    of_rules(
        "a guest reaches what serves another guest",
        Change::Swap("port.parse::<u32>().is_ok()", "port.is_empty()"),
    ),
];
