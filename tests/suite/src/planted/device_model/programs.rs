//! Bugs in devices that another program serves.

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
    Bug::on_host(
        BY_NOTES,
        "a request is handed over twice at once",
        Change::Swap("== Some(0)", "!= None"),
    ),
    Bug::on_host(
        BY_NOTES,
        "requests are handed over again in the order of their numbers",
        Change::Drop,
    ),
    Bug::on_host(
        BY_FAULTS,
        "a backend can cut the memory of its rings",
        Change::Swap("libc::F_SEAL_SHRINK | ", ""),
    ),
    Bug::on_host(
        BY_FAULTS,
        "a backend with too few queues is accepted",
        Change::Swap("count < wanted as u64", "false"),
    ),
    Bug::on_host(
        BY_FAULTS,
        "a backend completes more than it was given",
        Change::Swap("done > given", "false"),
    ),
    Bug::on_host(
        BY_FAULTS,
        "a backend completes a request twice",
        Change::Swap("!notes.has(head)", "false"),
    ),
    Bug::on_host(
        BY_FAULTS,
        "a request whose completion was the last act of a gdm is done again",
        Change::Drop,
    ),
    Bug::on_host(
        BY_FAULTS,
        "a reset is answered for a backend that goes on",
        Change::Swap("!self.replace_lost()", "self.replace_lost() || true"),
    ),
    Bug::on_host(
        BY_FRAMES,
        "a process of a guest makes the file of its screen longer",
        Change::Swap(" | libc::F_SEAL_GROW", ""),
    ),
    Bug::on_host(
        BY_FRAMES,
        "a screen that is off has rows of any length",
        Change::Swap("pixels == 0", "pixels == 0 && width == 0"),
    ),
    Bug::on_host(
        BY_SCREEN,
        "a part of a frame is wherever the program says",
        Change::Swap("expect(is_there,", "expect(is_there || true,"),
    ),
    Bug::on_host(
        BY_FAULTS,
        "a driver's reset is answered for a backend that goes on",
        Change::Swap("self.comes_to_rest()", "self.comes_to_rest() | true"),
    ),
    Bug::on_host(
        BY_ABSENCE,
        "a killed gdm's wait is forgotten",
        Change::Swap("since != 0", "false"),
    ),
    Bug::on_host(
        BY_FAULTS,
        "a closed queue's requests are left to the backend",
        Change::Swap("self.stop_one(queue)", "Ok::<(), String>(())"),
    ),
    Bug::on_host(
        BY_FAULTS,
        "a device VM that was booted before its gdm has nothing under way for ever",
        Change::Drop,
    ),
    Bug::on_host(
        BY_FAULTS,
        "a configuration changes without its generation",
        Change::Swap("wrapping_add(add)", "wrapping_add(add).min(generation)"),
    ),
    Bug::on_host(
        BY_ABSENCE,
        "a request fails that a backend may still be at",
        Change::Swap("Word::InKernel) == 0", "Word::InKernel) < 2"),
    ),
    Bug::on_host(
        BY_ABSENCE,
        "a backend that hangs is taken for one that is gone",
        Change::Swap(".is_ok()", ".is_ok() | true"),
    ),
    Bug::on_host(
        "device-model/src/guest/tests.rs",
        "a program that starts slowly costs its guest the device",
        Change::Swap("waited >= longest", "waited >= usual"),
    ),
    of_rules(
        "requests fail by time that have no way to",
        Change::Swap("!device.can_fail()", "false"),
    ),
    Bug::on_host(
        BY_PROGRAM,
        "a backend runs as root",
        Change::Swap(".uid(account).gid(account)", ".gid(account)"),
    ),
    Bug::on_host(
        BY_PROGRAM,
        "a program that ends at once is started without end",
        Change::Swap("self.started.elapsed() < LONG_RUN", "false"),
    ),
    Bug::on_host(
        BY_PROGRAM,
        "a program's memory costs others theirs",
        Change::Drop,
    ),
    Bug::on_host(
        BY_PROGRAM,
        "a reset of a card has its driver wait for long",
        Change::Become("let longest = LONGEST_PAUSE;"),
    ),
    Bug::on_host(
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
        Change::Swap("socket.len() > most || ", ""),
    ),
    of_rules(
        "a device has as many queues as it likes",
        Change::Swap("!range.contains(size)", "range.is_empty() && *size == 0"),
    ),
    of_rules(
        "two devices have one socket",
        Change::Swap("share_socket(device, other)", "other.vm == device.vm"),
    ),
];
