//! Bugs in devices that another program serves.
//!
//! Programs of Debian keep to vhost-user. A fake backend breaks one rule at a time, and is killed,
//! stopped or absent when it hurts most.

use super::super::bug::{Bug, Finder};
use crate::change::Change;

const BY_ABSENCE: &str = "device-model/src/backend/vhost_user/tests/absence.rs";
const BY_FAULTS: &str = "device-model/src/backend/vhost_user/tests/faults.rs";
const BY_FRAMES: &str = "device-model/src/frame/tests.rs";
const BY_SCREEN: &str = "device-model/src/backend/vhost_user/tests/screen.rs";
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
    // A driver that offers a request twice breaks a rule, and each use of one buffer would complete
    // on its own. Notes are by number, so the second is visible when the first is there.
    Bug::on_host(
        BY_NOTES,
        "a request is handed over twice at once",
        Change::Swap("== Some(0)", "!= None"),
    ),
    // Heads are numbers of descriptors, in no order of time. A write would be repeated behind a
    // later one to that sector.
    Bug::on_host(
        BY_NOTES,
        "requests are handed over again in the order of their numbers",
        Change::Drop,
    ),
    // A store behind the end of a file that became shorter is SIGBUS, which ends the process. A
    // backend has the descriptor, and need not be honest.
    Bug::on_host(
        BY_FAULTS,
        "a backend can cut the memory of its rings",
        Change::Swap("libc::F_SEAL_SHRINK | ", ""),
    ),
    // The queue that is missing fails when the driver starts it, as a broken device. The refusal at
    // the start names the property of the manifest.
    Bug::on_host(
        BY_FAULTS,
        "a backend with too few queues is accepted",
        Change::Swap("count < wanted as u64", "false"),
    ),
    // The used index is the backend's to write. Completions beyond what was offered would read
    // entries that were never written.
    Bug::on_host(
        BY_FAULTS,
        "a backend completes more than it was given",
        Change::Swap("done > given", "false"),
    ),
    // The head may be another request's by then. Counts agree if a different request is never
    // completed, so each head is looked up.
    Bug::on_host(
        BY_FAULTS,
        "a backend completes a request twice",
        Change::Swap(
            "!notes.has(used.head) || all.iter().any(|other| other.head == used.head)",
            "false",
        ),
    ),
    // The guest has the completion, and GDM was killed before the end of its note. The window is
    // one store: the test makes the state by hand.
    Bug::on_host(
        BY_FAULTS,
        "a request whose completion was the last act of a gdm is done again",
        Change::Drop,
    ),
    // Gear2 gives the memory to the VM's next life with the answer. The test's backend keeps a
    // request after its queue was stopped.
    Bug::on_host(
        BY_FAULTS,
        "a reset is answered for a backend that goes on",
        Change::Swap("!self.replace_lost()", "self.replace_lost() || true"),
    ),
    // A file in memory that grows without end takes the memory of the device VM. The process has
    // the descriptor, and may be subverted.
    Bug::on_host(
        BY_FRAMES,
        "a process of a guest makes the file of its screen longer",
        Change::Swap(" | libc::F_SEAL_GROW", ""),
    ),
    // A frame of 2^32 x 0 has no pixels and passes the limit of pixels; one row of it is memory for
    // nothing.
    Bug::on_host(
        BY_FRAMES,
        "a screen that is off has rows of any length",
        Change::Swap("pixels == 0", "pixels == 0 && width == 0"),
    ),
    // The rectangle is the program's. Writes outside of the frame land in other rows or behind the
    // file.
    Bug::on_host(
        BY_SCREEN,
        "a part of a frame is wherever the program says",
        Change::Swap("expect(is_there,", "expect(is_there || true,"),
    ),
    // The driver's own reset is the other way to free the guest's memory. A backend that keeps its
    // request is in the test for either way.
    Bug::on_host(
        BY_FAULTS,
        "a driver's reset is answered for a backend that goes on",
        Change::Swap("self.comes_to_rest()", "self.comes_to_rest() | true"),
    ),
    // A backend that ends GDM each time would give requests their whole time anew. The wait is kept
    // over a kill, and not over a boot of the device VM.
    Bug::on_host(
        BY_ABSENCE,
        "a killed gdm's wait is forgotten",
        Change::Swap("since != 0", "false"),
    ),
    // A driver that closes a queue frees its memory. Completions of the last moment would be lost,
    // and later ones would be written into memory of another use.
    Bug::on_host(
        BY_FAULTS,
        "a closed queue's requests are left to the backend",
        Change::Swap("self.stop_one(queue)", "Ok::<(), String>(())"),
    ),
    // Requests of before a boot cannot be under way. The fact is true once, and a backend that is
    // lost later may well have requests.
    Bug::on_host(
        BY_FAULTS,
        "a device VM that was booted before its gdm has nothing under way for ever",
        Change::Drop,
    ),
    // A driver that reads while the configuration changes has to read again (virtio 1.2, 2.5). Torn
    // values are rare: the test looks at the generation.
    Bug::on_host(
        BY_FAULTS,
        "a configuration changes without its generation",
        Change::Swap("wrapping_add(add)", "wrapping_add(add).min(generation)"),
    ),
    // A request that fails is the driver's memory again, into which the backend may still write.
    // The time is over in either case; only the state of the backend differs.
    Bug::on_host(
        BY_ABSENCE,
        "a request fails that a backend may still be at",
        Change::Swap("Word::InKernel) == 0", "Word::InKernel) < 2"),
    ),
    // A seal against writes succeeds only when no mapping is left. A backend that hangs has its
    // mapping still, so its request may not fail.
    Bug::on_host(
        BY_ABSENCE,
        "a backend that hangs is taken for one that is gone",
        Change::Swap(".is_ok()", ".is_ok() | true"),
    ),
    // A program that runs and has no socket yet is waited for longer than one that does not run. A
    // driver passes over a device that is absent at its start.
    Bug::on_host(
        "device-model/src/guest/tests.rs",
        "a program that starts slowly costs its guest the device",
        Change::Swap("waited >= longest", "waited >= usual"),
    ),
    // The property is accepted for a device whose requests have no status to fail by, and has no
    // effect.
    of_rules(
        "requests fail by time that have no way to",
        Change::Swap("!device.can_fail()", "false"),
    ),
    // The group changes and the user does not. Programs work as root as well as they do without:
    // the test's program prints what it may do.
    Bug::on_host(
        BY_PROGRAM,
        "a backend runs as root",
        Change::Swap(".uid(account).gid(account)", ".gid(account)"),
    ),
    // The pause between starts never grows. One start after another fills the log and takes a CPU.
    Bug::on_host(
        BY_PROGRAM,
        "a program that ends at once is started without end",
        Change::Swap("self.started.elapsed() < LONG_RUN", "false"),
    ),
    // The kernel chooses whom to end by a score. The largest process may be another guest's: the
    // test's program looks at its own score.
    Bug::on_host(
        BY_PROGRAM,
        "a program's memory costs others theirs",
        Change::Drop,
    ),
    // A program that runs well is ended by each reset of its device, and the pause grows without
    // end.
    Bug::on_host(
        BY_PROGRAM,
        "a reset of a card has its driver wait for long",
        Change::Swap(".clamp(FIRST_PAUSE, LONGEST_PAUSE)", ".max(FIRST_PAUSE)"),
    ),
    // The lock file is synchronized and not locked. A program of an earlier GDM may have a transfer
    // in progress. No two programs are there in an ordinary run.
    Bug::on_host(
        BY_PROGRAM,
        "a program starts beside an earlier one",
        Change::Swap("lock.try_lock()", "lock.sync_all()"),
    ),
    // Device 0 is none, and identifiers from DEVICE_IDS on are no types. The device would be there
    // and never used.
    of_rules(
        "a device type that no driver can match is accepted",
        Change::Swap("(1..DEVICE_IDS).contains(&id)", "id < u32::MAX"),
    ),
    // sockaddr_un has 108 bytes. A longer path fails at the target alone, long after `check`.
    of_rules(
        "the path of a socket is cut off",
        Change::Swap("socket.len() > most || ", ""),
    ),
    // The register page has room for some queues only. The test has one queue more than that, and
    // none.
    of_rules(
        "a device has as many queues as it likes",
        Change::Swap("!range.contains(size)", "range.is_empty() && *size == 0"),
    ),
    // Devices of one VM may not share a socket either, and no device of two VMs' may. The bug finds
    // all devices of a VM, whatever their sockets.
    of_rules(
        "two devices have one socket",
        Change::Swap("share_socket(device, other)", "other.vm == device.vm"),
    ),
];
