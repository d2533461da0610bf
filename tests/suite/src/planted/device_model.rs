//! Bugs in the device model: the hostile driver's attacks find those in what guests see, and tests
//! of the host those in its sockets, in what disks lose, in what two CPUs see, and in what a start
//! finds.

use super::bug::{Bug, Finder};
use crate::change::Change;

/// A bug that the attacks on the host find.
const fn bug(name: &'static str, change: Change) -> Bug {
    Bug {
        name,
        change,
        breaks: &[],
        test: "device-model/src/worker/tests/hostile.rs",
        finder: Finder::HostNamed("hostile"),
    }
}

/// A bug that the host tests of one module find.
const fn bug_of(test: &'static str, name: &'static str, change: Change) -> Bug {
    Bug {
        name,
        change,
        breaks: &[],
        test,
        finder: Finder::Host,
    }
}

const BY_BLOCK: &str = "device-model/src/backend/block/tests.rs";
const BY_MEDIA: &str = "device-model/src/backend/block/tests/media.rs";
const BY_ORDER: &str = "device-model/src/vring/order/tests.rs";
const BY_TRANSPORT: &str = "device-model/src/transport/tests.rs";
const BY_HUB: &str = "device-model/src/hub/tests.rs";
const BY_WORKER: &str = "device-model/src/worker/tests.rs";

pub(super) const BUGS: &[Bug] = &[
    bug(
        "a buffer's end is not checked",
        Change::Swap("length as usize", "1"),
    ),
    bug(
        "a request has as many segments as it likes",
        Change::Swap("MAX_SEGMENTS", "usize::MAX"),
    ),
    bug(
        "a loop or a next outside of the table ends a chain well",
        Change::Swap(
            "more ",
            "more && chain.readable.is_empty() && chain.writable.is_empty() ",
        ),
    ),
    bug(
        "readable behind writable is taken",
        Change::Swap("chain.writable.is_empty()", "true"),
    ),
    bug(
        "an index that jumps is nothing to do",
        Change::Swap(
            "AvailableIndex)?",
            "AvailableIndex);\n        let Ok(available) = &mut available else { return Ok(false) }",
        ),
    ),
    bug(
        "sectors beyond the disk are accepted",
        Change::Swap("bytes ", "bytes + 512 "),
    ),
    bug(
        "rings outside of memory are accepted",
        Change::Swap("queue.is_valid(memory.as_ref()).then(|| ", "Some("),
    ),
    bug(
        "a size is cut to 16 bits",
        Change::Become("queue.try_set_size(setup.size as u16).ok()?;"),
    ),
    bug(
        "a reset leaves the rings",
        Change::Swap(
            "rings = [const { None }; MAX_QUEUES];\n        self.state.reset(",
            "state.reset();\n        self.state.set(Word::Status, DRIVER_OK",
        ),
    ),
    bug(
        "a broken device is well without a reset",
        Change::Swap("|| old & NEEDS_RESET != 0 ", ""),
    ),
    bug(
        "features that are not offered are accepted",
        Change::Swap("features & !self.offered() == 0\n            && ", ""),
    ),
    bug_of(
        "device-model/src/address/tests.rs",
        "every board's network cards have the same addresses",
        Change::Swap("board", "&board[..0]"),
    ),
    bug_of(
        "device-model/src/address/tests.rs",
        "a board's addresses are those that firmware made up at this boot",
        Change::Swap("mac[0] & LOCAL =", "LOCAL !"),
    ),
    bug_of(
        "device-model/src/serial/tests.rs",
        "a client that left is waited for",
        Change::Swap("wait.read || wait.write", "true"),
    ),
    bug_of(
        "device-model/src/serial/tests.rs",
        "what a client typed before it left is forgotten",
        Change::Become("self.client = None;"),
    ),
    bug_of(
        "device-model/src/control/tests.rs",
        "a client that cannot be accepted is waited for",
        Change::Become("read: true,"),
    ),
    bug_of(
        "device-model/src/control/tests.rs",
        "an idle client keeps its place",
        Change::Swap(" || self.idlest().is_some()", ""),
    ),
    bug_of(
        "device-model/src/socket/tests.rs",
        "what a slow reader lost is not said",
        Change::Swap("0", "u32::MAX / 2"),
    ),
    bug_of(
        "device-model/src/command/tests.rs",
        "gearctl follows the log with one cursor",
        Change::Swap("found > cpu", "false"),
    ),
    bug_of(
        "device-model/src/terminal/tests.rs",
        "gearctl console does not read the terminal while the guest does not read",
        Change::Swap("is_terminal || self.", ""),
    ),
    bug_of(
        "device-model/src/sandbox/tests.rs",
        "memory may become executable",
        Change::Swap("vec![rule([no_code()])?]", "Vec::new()"),
    ),
    bug_of(
        "device-model/src/sandbox/tests.rs",
        "files and devices may be mapped",
        Change::Swap(", of_no_file", ""),
    ),
    bug_of(
        "device-model/src/sandbox/tests.rs",
        "a thread may end others",
        Change::Become("let itself = rule([abort(2)])?;"),
    ),
    bug_of(
        "device-model/src/sandbox/tests.rs",
        "a thread may make any request of a device",
        Change::Swap("requests", "Vec::new()"),
    ),
    bug_of(
        "device-model/src/sandbox/tests.rs",
        "a thread may open files",
        Change::Become("libc::SYS_openat,\nlibc::SYS_gettid,"),
    ),
    bug_of(
        "device-model/src/sandbox/tests.rs",
        "only the thread that breaks out ends",
        Change::Swap("KillProcess", "KillThread"),
    ),
    bug_of(
        "device-model/src/sandbox/tests.rs",
        "a thread without a filter serves guests",
        Change::Drop,
    ),
    bug_of(
        "device-model/src/sandbox/tests.rs",
        "a thread stays root",
        Change::Swap(" id, id, id", " none, none, none"),
    ),
    bug_of(BY_MEDIA, "a flush syncs nothing", Change::Drop),
    bug_of(
        BY_MEDIA,
        "what went through the page cache is left there",
        Change::Swap("(self.write_through || buffered)", "self.write_through"),
    ),
    bug_of(
        BY_MEDIA,
        "a write of a driver without FLUSH is not synced",
        Change::Swap("(self.write_through || buffered)", "buffered"),
    ),
    bug_of(
        BY_MEDIA,
        "zeroes are left in the page cache",
        Change::Swap("|| buffered ", ""),
    ),
    bug_of(
        BY_MEDIA,
        "a stopped guest's turn goes on",
        Change::Swap("ring.is_withdrawn()", "false"),
    ),
    bug_of(
        BY_MEDIA,
        "a stopped guest waits for all ranges",
        Change::Become("self.buffered.set(true);"),
    ),
    bug_of(
        BY_ORDER,
        "the status comes behind the used index",
        Change::Swap(
            "        if let",
            "        memory.store(self.used + INDEX, self.next_used.wrapping_add(1), Ordering::Release)?;\n        if let",
        ),
    ),
    bug_of(
        BY_ORDER,
        "the used index waits for nothing",
        Change::Swap("Release", "Relaxed"),
    ),
    bug_of(
        BY_ORDER,
        "no fence before the look at the wish for interrupts",
        Change::Drop,
    ),
    bug_of(
        BY_ORDER,
        "no fence before the last look for requests",
        Change::Drop,
    ),
    bug_of(
        "device-model/src/atomic/tests.rs",
        "a reset is answered before it is done",
        Change::Swap(
            "reset();\n        self.word(RESET_SEEN).store(asked, Ordering::Release",
            "word(RESET_SEEN).store(asked, Ordering::Release);\n        self.reset(",
        ),
    ),
    bug_of(
        BY_HUB,
        "the heart beats beside a thread that is stuck",
        Change::Swap("== Health::Well", "!= Health::Late"),
    ),
    bug_of(
        "device-model/src/progress/tests.rs",
        "a thread that ended is forgotten",
        Change::Become("self.looks = 0;"),
    ),
    bug_of(
        BY_MEDIA,
        "a flush that takes long ends gdm",
        Change::Swap("in_kernel(|| self.0.sync()", "self.0.sync("),
    ),
    bug_of(
        BY_TRANSPORT,
        "an interrupt is left over a reset",
        Change::Drop,
    ),
    bug_of(
        BY_TRANSPORT,
        "a queue is ready before the features",
        Change::Swap("self.status() & FEATURES_OK == 0 || ", ""),
    ),
    bug_of(
        BY_TRANSPORT,
        "features without those that they depend on are accepted",
        Change::Swap("features & dependency.needs_one_of != 0", "true"),
    ),
    bug_of(
        BY_BLOCK,
        "an idle start counts as a death",
        Change::Become("let died_at_work = 1;"),
    ),
    bug_of(
        BY_BLOCK,
        "suspects work beside each other",
        Change::Swap("3", "300"),
    ),
    bug_of(
        BY_BLOCK,
        "a reset does not wait for an earlier gdm's requests",
        Change::Swap("self.arrival.is_none()\n           ", "true"),
    ),
    bug_of(
        BY_BLOCK,
        "a device whose backend is late is shown as none",
        Change::Swap("in_use", "false"),
    ),
    bug_of(
        BY_BLOCK,
        "a disk has two writers",
        Change::Swap(
            "is_shared && !(read_only && others.all(|(_, read_only)| *read_only))",
            "false",
        ),
    ),
    bug_of(
        BY_BLOCK,
        "a lock of the disk is not looked at",
        Change::Swap("file.try_lock(", "Ok(()"),
    ),
    bug_of(
        BY_BLOCK,
        "the first reader does not wait for an earlier gdm",
        Change::Become("(false, true) => file.try_lock_shared(),"),
    ),
    bug_of(
        BY_BLOCK,
        "data that is not reachable is left out of a request",
        Change::Drop,
    ),
    bug_of(
        BY_HUB,
        "the heartbeat does not say when gdm lived",
        Change::Become("let _ = (page, counter());"),
    ),
    bug_of(
        BY_WORKER,
        "a guest fills the log",
        Change::Swap("<= MESSAGES", "> 0"),
    ),
];
