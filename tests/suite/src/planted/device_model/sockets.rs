//! Bugs in sockets between guests and the device VM.
//!
//! A connection by a guest that reads and a program that writes works with all of these. Limits
//! need a guest without room, programs without end, and fields that no driver writes.

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
    // A path of the manifest that names a file by mistake would cost that file. A socket that an
    // earlier GDM left is removed as before.
    Bug::on_host(
        BY_SOCKETS,
        "a file in the place of a socket is removed",
        Change::Swap("found.file_type().is_socket()", "found.len() < u64::MAX"),
    ),
    // The line before the connection has a port. A program that sends no line feed would fill
    // memory.
    Bug::on_host(
        BY_SOCKETS,
        "a program calls in a line without an end",
        Change::Swap("self.call.len() < LONGEST_CALL", "true"),
    ),
    // Programs of the device VM connect without bound. Each connection is a descriptor of the
    // guest's process.
    Bug::on_host(
        BY_LIMITS,
        "programs use up the descriptors",
        Change::Swap("MOST_LINKS", "usize::MAX"),
    ),
    // The limit of the other direction, in which the guest asks.
    Bug::on_host(
        BY_LIMITS,
        "a guest has as many connections as it likes",
        Change::Swap("MOST_LINKS", "usize::MAX"),
    ),
    // A guest that sends what belongs to nothing, and takes no refusals, piles these up. A limit on
    // connections does not count them.
    Bug::on_host(
        BY_LIMITS,
        "a guest has the device model refuse without end",
        Change::Swap("MOST_REPLIES", "usize::MAX"),
    ),
    // Two sides that refuse each other's refusals never end. The lengths of refusals are small, so
    // the bug's condition is always true.
    Bug::on_host(
        BY_FIELDS,
        "a refusal is refused",
        Change::Swap("header.op != op::RST", "header.length < u32::MAX"),
    ),
    // Credit is a promise of the guest's. Data beyond the room is what an honest driver never
    // sends.
    Bug::on_host(
        BY_FIELDS,
        "a guest fills the device model's memory",
        Change::Swap("<= u64::from(BUFFER)", "<= u64::MAX"),
    ),
    // 44 bytes are the least. A header that is cut is a packet of other fields.
    Bug::on_host(
        BY_FIELDS,
        "a packet's buffer has no room for its header",
        Change::Swap("chain.writable.length() >= HEADER as u64", "true"),
    ),
    // Turns begin behind the last connection that had one. A connection with endless data would
    // keep its siblings from the ring; the test has two that are always ready.
    Bug::on_host(BY_FLOW, "one connection has all turns", Change::Drop),
    // A program started later holds copies, and the other side of a socket waits for an end that
    // does not come.
    Bug::on_host(
        "device-model/src/link/tests.rs",
        "programs inherit the descriptors that came",
        Change::Swap("libc::MSG_CMSG_CLOEXEC", "0"),
    ),
    // The device asks once for room, and the guest says when it has some. Each answer without room
    // would be asked again.
    Bug::on_host(
        BY_FLOW,
        "a guest without room is asked without end",
        Change::Swap("&= self.credit() == 0", "= false"),
    ),
    // Bytes on their way count as one. A guest that takes its data at once never has two packets on
    // their way.
    Bug::on_host(
        BY_FLOW,
        "data is sent beyond the guest's room",
        Change::Swap(
            "self.room.saturating_sub(on_their_way)",
            "self.room.saturating_sub(on_their_way.min(1))",
        ),
    ),
    // The guest waits for room and sends nothing, so nobody tells it. Programs that read fast never
    // let the room run out.
    Bug::on_host(BY_FLOW, "a guest is not told of room", Change::Drop),
    // A killed GDM's connections are gone with its process. Without the event the guest waits for
    // answers of programs that have seen an end.
    Bug::on_host(
        BY_ENDS,
        "a guest is not told that its connections are gone",
        Change::Swap("true", "false"),
    ),
    // News for a guest that cannot receive is news at each turn. Work is done and nothing is wrong
    // but the CPU time.
    Bug {
        name: "a guest without a queue for packets keeps a thread busy",
        change: Change::Swap("core::mem::take(&mut self.can_receive)", "true"),
        breaks: &[],
        test: "device-model/src/worker/tests/hostile.rs",
        finder: Finder::HostNamed("hostile"),
    },
    // The broker connects to sockets of other users and needs one capability for it. All sockets
    // are reached with all of them.
    Bug::on_host(
        BY_FILTERS,
        "the broker keeps all capabilities",
        Change::Swap(
            "sys::keep_access_to_files().map_err(Error::Capabilities)",
            "Ok(())",
        ),
    ),
    // Sockets of a network would reach beyond the device VM. The family is the first argument, and
    // a filter without arguments allows each.
    Bug::on_host(
        BY_FILTERS,
        "the broker makes sockets of any family",
        Change::Swap("vec![rule([is_unix])?]", "Vec::new()"),
    ),
    // 0 to 2 are reserved, of which 2 is the host (virtio 1.2, 5.10.4). Packets to the device VM
    // would be packets to the guest itself.
    of_rules(
        "a guest has the identifier of the device VM",
        Change::Swap("CIDS.contains(&cid)", "cid < u32::MAX"),
    ),
    // Identifiers are unique per machine. The bug finds two devices of one VM, which another rule
    // refuses.
    of_rules(
        "two guests have one identifier",
        Change::Swap("other.cid == device.cid", "other.vm == device.vm"),
    ),
    // The port is appended to the path, so a path that ends in a number behind another's is that
    // one's port.
    of_rules(
        "a guest reaches what serves another guest",
        Change::Swap("port.parse::<u32>().is_ok()", "port.is_empty()"),
    ),
];
