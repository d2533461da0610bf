//! Bugs in the device model: the hostile driver's attacks find those in what guests see, and the tests of
//! the file itself those in its sockets.

use super::Bug;
use super::finder::Finder;

/// A bug that the attacks on the host find.
const fn bug(name: &'static str, file: &'static str, [from, to]: [&'static str; 2]) -> Bug {
    Bug {
        name,
        file,
        from,
        to,
        breaks: &[],
        test: "device-model/src/worker/tests/hostile.rs",
        finder: Finder::HostNamed("hostile"),
    }
}

/// A bug that the tests of its file find.
const fn own(
    name: &'static str,
    file: &'static str,
    [from, to]: [&'static str; 2],
    test: &'static str,
) -> Bug {
    Bug {
        name,
        file,
        from,
        to,
        breaks: &[],
        test,
        finder: Finder::Host,
    }
}

pub(super) const BUGS: &[Bug] = &[
    bug(
        "a buffer's end is not checked",
        "device-model/src/buffers.rs",
        [
            "!memory.check_range(address, length as usize)",
            "!memory.check_range(address, 1)",
        ],
    ),
    bug(
        "a request has as many segments as it likes",
        "device-model/src/buffers.rs",
        [
            "self.segments.len() < MAX_SEGMENTS",
            "self.segments.len() < usize::MAX",
        ],
    ),
    bug(
        "a loop or a next outside of the table ends a chain well",
        "device-model/src/vring.rs",
        [
            "if more { Err(Broken::Chain) }",
            "if more && chain.readable.is_empty() && chain.writable.is_empty() { Err(Broken::Chain) }",
        ],
    ),
    bug(
        "readable behind writable is taken",
        "device-model/src/vring.rs",
        ["} else if chain.writable.is_empty() {", "} else if true {"],
    ),
    bug(
        "an index that jumps is nothing to do",
        "device-model/src/vring.rs",
        [
            ".map_err(|_| Broken::AvailableIndex)?;",
            ".map_err(|_| Broken::AvailableIndex);\n        let Ok(available) = &mut available else { return Ok(false) };",
        ],
    ),
    bug(
        "sectors beyond the disk are accepted",
        "device-model/src/backend/block.rs",
        [
            "end <= self.bytes && length",
            "end <= self.bytes + 512 && length",
        ],
    ),
    bug(
        "rings outside of memory are accepted",
        "device-model/src/vring.rs",
        ["queue.is_valid(memory.as_ref()).then(|| Self", "Some(Self"],
    ),
    bug(
        "a size is cut to 16 bits",
        "device-model/src/vring.rs",
        ["u16::try_from(setup.size).ok()?", "setup.size as u16"],
    ),
    bug(
        "a reset leaves the rings",
        "device-model/src/transport.rs",
        [
            "        self.rings = [const { None }; MAX_QUEUES];\n        self.state.reset();",
            "        self.state.reset();\n        self.state.set(Word::Status, DRIVER_OK);",
        ],
    ),
    bug(
        "a broken device is well without a reset",
        "device-model/src/transport.rs",
        [" || old & NEEDS_RESET != 0 {", " {"],
    ),
    bug(
        "features that are not offered are accepted",
        "device-model/src/transport.rs",
        ["features & !self.offered() == 0 && ", ""],
    ),
    own(
        "a client that left is waited for",
        "device-model/src/sys.rs",
        ["if wait.read || wait.write {", "if true {"],
        "device-model/src/serial/tests.rs",
    ),
    own(
        "what a client typed before it left is forgotten",
        "device-model/src/socket.rs",
        ["client.listens = false;", "self.client = None;"],
        "device-model/src/serial/tests.rs",
    ),
    own(
        "a client that cannot be accepted is waited for",
        "device-model/src/control.rs",
        ["read: self.has_room(),", "read: true,"],
        "device-model/src/control/tests.rs",
    ),
    own(
        "an idle client keeps its place",
        "device-model/src/control.rs",
        [
            "self.clients.len() < MOST_CLIENTS || self.idlest().is_some()",
            "self.clients.len() < MOST_CLIENTS",
        ],
        "device-model/src/control/tests.rs",
    ),
    own(
        "what a slow reader lost is not said",
        "device-model/src/socket.rs",
        ["if lost > 0 {", "if lost > u32::MAX / 2 {"],
        "device-model/src/socket/tests.rs",
    ),
    own(
        "gearctl follows the log with one cursor",
        "device-model/src/client.rs",
        ["if cursor >> CURSOR_CPU_SHIFT != cpu {", "if false {"],
        "device-model/src/command/tests.rs",
    ),
    own(
        "gearctl console does not read the terminal while the guest does not read",
        "device-model/src/terminal.rs",
        [
            "self.is_terminal || self.typed.len() < MOST_TYPED",
            "self.typed.len() < MOST_TYPED",
        ],
        "device-model/src/terminal/tests.rs",
    ),
    own(
        "memory may become executable",
        "device-model/src/sandbox.rs",
        [
            "rules.insert(libc::SYS_mprotect, vec![rule([no_code()])?]);",
            "rules.insert(libc::SYS_mprotect, Vec::new());",
        ],
        "device-model/src/sandbox/tests.rs",
    ),
    own(
        "files and devices may be mapped",
        "device-model/src/sandbox.rs",
        ["rule([no_code(), of_no_file])?", "rule([no_code()])?"],
        "device-model/src/sandbox/tests.rs",
    ),
    own(
        "a thread may end others",
        "device-model/src/sandbox.rs",
        [
            "rule([equals(0, process), equals(1, thread), abort(2)])?",
            "rule([abort(2)])?",
        ],
        "device-model/src/sandbox/tests.rs",
    ),
    own(
        "a thread may make any request of a device",
        "device-model/src/sandbox.rs",
        [
            "rules.insert(libc::SYS_ioctl, requests);",
            "rules.insert(libc::SYS_ioctl, Vec::new());",
        ],
        "device-model/src/sandbox/tests.rs",
    ),
    own(
        "a thread may open files",
        "device-model/src/sandbox.rs",
        [
            "    libc::SYS_getpid,\n",
            "    libc::SYS_getpid,\n    libc::SYS_openat,\n",
        ],
        "device-model/src/sandbox/tests.rs",
    ),
    own(
        "only the thread that breaks out ends",
        "device-model/src/sandbox.rs",
        ["SeccompAction::KillProcess", "SeccompAction::KillThread"],
        "device-model/src/sandbox/tests.rs",
    ),
    own(
        "a thread without a filter serves guests",
        "device-model/src/hub.rs",
        ["        std::process::exit(1);\n", ""],
        "device-model/src/sandbox/tests.rs",
    ),
    own(
        "a thread stays root",
        "device-model/src/sys.rs",
        [
            "libc::SYS_setresuid, id, id, id",
            "libc::SYS_setresuid, none, none, none",
        ],
        "device-model/src/sandbox/tests.rs",
    ),
];
