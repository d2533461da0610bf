//! Bugs in the device model: the hostile driver's attacks find those in what guests see, and tests
//! of the host those in its sockets, in what disks lose, in what two CPUs see, and in what a start
//! finds.

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

/// Returns a bug that the tests of its file find.
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

/// A bug that the host tests of one module find.
const fn bug_of(
    test: &'static str,
    name: &'static str,
    file: &'static str,
    [from, to]: [&'static str; 2],
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

const BLOCK: &str = "device-model/src/backend/block.rs";
const OPENED: &str = "device-model/src/backend/block/media.rs";
const ORDER: &str = "device-model/src/vring/order.rs";
const TRANSPORT: &str = "device-model/src/transport.rs";
const WORKER: &str = "device-model/src/worker.rs";
const BY_BLOCK: &str = "device-model/src/backend/block/tests.rs";
const BY_MEDIA: &str = "device-model/src/backend/block/tests/media.rs";
const BY_ORDER: &str = "device-model/src/vring/order/tests.rs";
const BY_TRANSPORT: &str = "device-model/src/transport/tests.rs";
const BY_HUB: &str = "device-model/src/hub/tests.rs";
const BY_WORKER: &str = "device-model/src/worker/tests.rs";

pub(super) const BUGS: &[Bug] = &[
    bug(
        "a buffer's end is not checked",
        "device-model/src/buffers.rs",
        [
            "memory.check_range(address, length as usize)",
            "memory.check_range(address, 1)",
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
            "end <= self.geometry.bytes && length",
            "end <= self.geometry.bytes + 512 && length",
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
        ["features & !self.offered() == 0\n            && ", ""],
    ),
    own(
        "every board's network cards have the same addresses",
        "device-model/src/address.rs",
        [
            "    let parts = [board, &[0], vm.as_bytes(), &[0], &place.to_le_bytes()];\n",
            "    let parts = [&board[..0], &[0], vm.as_bytes(), &[0], &place.to_le_bytes()];\n",
        ],
        "device-model/src/address/tests.rs",
    ),
    own(
        "a board's addresses are those that firmware made up at this boot",
        "device-model/src/address.rs",
        [
            "(is_real(mac) && mac[0] & LOCAL == 0).then_some(mac)",
            "(is_real(mac) && LOCAL != 0).then_some(mac)",
        ],
        "device-model/src/address/tests.rs",
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
        ["if found > cpu {", "if false {"],
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
    bug_of(
        BY_MEDIA,
        "a flush syncs nothing",
        BLOCK,
        [
            "if !self.read_only {\n            self.media.sync()?;",
            "if !self.read_only {",
        ],
    ),
    bug_of(
        BY_MEDIA,
        "what went through the page cache is left there",
        BLOCK,
        [
            "Direction::Write && (self.write_through || buffered)",
            "Direction::Write && self.write_through",
        ],
    ),
    bug_of(
        BY_MEDIA,
        "a write of a driver without FLUSH is not synced",
        BLOCK,
        [
            "Direction::Write && (self.write_through || buffered)",
            "Direction::Write && buffered",
        ],
    ),
    bug_of(
        BY_MEDIA,
        "zeroes are left in the page cache",
        BLOCK,
        [
            "        if self.write_through || buffered {",
            "        if self.write_through {",
        ],
    ),
    bug_of(
        BY_MEDIA,
        "a stopped guest's turn goes on",
        BLOCK,
        [
            "            if ring.is_withdrawn() {\n                return Ok(Progress::More);",
            "            if false {\n                return Ok(Progress::More);",
        ],
    ),
    bug_of(
        BY_MEDIA,
        "a stopped guest waits for all ranges",
        BLOCK,
        [
            "return Err(withdrawn());\n            }\n            progress::step();\n            let size",
            "self.buffered.set(true);\n            }\n            progress::step();\n            let size",
        ],
    ),
    bug_of(
        BY_ORDER,
        "the status comes behind the used index",
        ORDER,
        [
            "        if let Some((address, status)) = status {\n            memory.write(address, &[status])?;\n        }\n        let place",
            "        memory.store(self.used + INDEX, self.next_used.wrapping_add(1), Ordering::Release)?;\n        if let Some((address, status)) = status {\n            memory.write(address, &[status])?;\n        }\n        let place",
        ],
    ),
    bug_of(
        BY_ORDER,
        "the used index waits for nothing",
        ORDER,
        [
            "self.next_used, Ordering::Release)",
            "self.next_used, Ordering::Relaxed)",
        ],
    ),
    bug_of(
        BY_ORDER,
        "no fence before the look at the wish for interrupts",
        ORDER,
        [
            "        memory.fence();\n        if !self.event_index",
            "        if !self.event_index",
        ],
    ),
    bug_of(
        BY_ORDER,
        "no fence before the last look for requests",
        ORDER,
        [
            "        memory.fence();\n        Ok(memory.load",
            "        Ok(memory.load",
        ],
    ),
    bug_of(
        "device-model/src/atomic/tests.rs",
        "a reset is answered before it is done",
        "device-model/src/state.rs",
        [
            "        self.reset();\n        self.word(RESET_SEEN).store(asked, Ordering::Release);",
            "        self.word(RESET_SEEN).store(asked, Ordering::Release);\n        self.reset();",
        ],
    ),
    bug_of(
        BY_HUB,
        "the heart beats beside a thread that is stuck",
        "device-model/src/hub.rs",
        ["if health == Health::Well {", "if health != Health::Late {"],
    ),
    bug_of(
        "device-model/src/progress/tests.rs",
        "a thread that ended is forgotten",
        "device-model/src/progress.rs",
        ["self.looks = STUCK_LOOKS;", "self.looks = 0;"],
    ),
    bug_of(
        BY_MEDIA,
        "a flush that takes long ends gdm",
        OPENED,
        ["in_kernel(|| self.0.sync())", "self.0.sync()"],
    ),
    bug_of(
        BY_TRANSPORT,
        "an interrupt is left over a reset",
        "device-model/src/state.rs",
        ["            Word::UsedShown,\n        ];", "        ];"],
    ),
    bug_of(
        BY_TRANSPORT,
        "a queue is ready before the features",
        TRANSPORT,
        ["self.status() & FEATURES_OK == 0 || !self", "!self"],
    ),
    bug_of(
        BY_TRANSPORT,
        "features without those that they depend on are accepted",
        TRANSPORT,
        ["|| features & dependency.needs_one_of != 0", "|| true"],
    ),
    bug_of(
        BY_BLOCK,
        "an idle start counts as a death",
        WORKER,
        [
            "let died_at_work = self.state.get(Word::AtWork);",
            "let died_at_work = 1;",
        ],
    ),
    bug_of(
        BY_BLOCK,
        "suspects work beside each other",
        WORKER,
        [
            "const SUSPECT_STARTS: u64 = 3;",
            "const SUSPECT_STARTS: u64 = 300;",
        ],
    ),
    bug_of(
        BY_BLOCK,
        "a reset does not wait for an earlier gdm's requests",
        WORKER,
        ["self.arrival.is_none()\n            ||", "true ||"],
    ),
    bug_of(
        BY_BLOCK,
        "a device whose backend is late is shown as none",
        WORKER,
        ["if in_use {", "if false {"],
    ),
    bug_of(
        BY_BLOCK,
        "a disk has two writers",
        OPENED,
        [
            "is_shared && !(read_only && others.all(|(_, read_only)| *read_only))",
            "false",
        ],
    ),
    bug_of(
        BY_BLOCK,
        "a lock of the disk is not looked at",
        OPENED,
        [
            "(false, false) => file.try_lock(),",
            "(false, false) => Ok(()),",
        ],
    ),
    bug_of(
        BY_BLOCK,
        "the first reader does not wait for an earlier gdm",
        OPENED,
        [
            "file.try_lock().and_then(|()| file.try_lock_shared())",
            "file.try_lock_shared()",
        ],
    ),
    bug_of(
        BY_BLOCK,
        "data that is not reachable is left out of a request",
        BLOCK,
        [
            "        if !request.chain.is_reachable() {\n            return (Status::IoError, 0);\n        }",
            "",
        ],
    ),
    bug_of(
        BY_HUB,
        "the heartbeat does not say when gdm lived",
        "device-model/src/hub.rs",
        [
            "DeviceState::new(page).set(Word::LastSeen, counter());",
            "let _ = (page, counter());",
        ],
    ),
    bug_of(
        BY_WORKER,
        "a guest fills the log",
        WORKER,
        ["(count <= MESSAGES).then", "(count > 0).then"],
    ),
];
