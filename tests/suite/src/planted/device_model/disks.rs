//! Bugs in what disks lose, and in what a start of GDM finds.

use super::super::bug::Bug;
use crate::change::Change;

const BY_BLOCK: &str = "device-model/src/backend/block/tests.rs";
const BY_MEDIA: &str = "device-model/src/backend/block/tests/media.rs";
const BY_FLIGHT: &str = "device-model/src/backend/block/tests/flight.rs";
const BY_WORKER: &str = "device-model/src/worker/tests.rs";

pub(in crate::planted) const BUGS: &[Bug] = &[
    Bug::on_host(
        BY_MEDIA,
        "a flush syncs nothing",
        Change::Become("let syncs = false;"),
    ),
    Bug::on_host(
        BY_MEDIA,
        "what went through the page cache is left there",
        Change::Swap("self.write_through || buffered", "self.write_through"),
    ),
    Bug::on_host(
        BY_MEDIA,
        "a write of a driver without FLUSH is not synced",
        Change::Swap("self.write_through || buffered", "buffered"),
    ),
    Bug::on_host(
        BY_MEDIA,
        "zeroes are left in the page cache",
        Change::Swap("|| buffered ", ""),
    ),
    Bug::on_host(
        BY_MEDIA,
        "a stopped guest's turn goes on",
        Change::Swap("ring.is_withdrawn()", "false"),
    ),
    Bug::on_host(
        BY_MEDIA,
        "a stopped guest waits for all ranges",
        Change::Become("self.buffered.set(true);"),
    ),
    Bug::on_host(
        BY_MEDIA,
        "a flush that takes long ends gdm",
        Change::Become("self.0.begin(number, work);"),
    ),
    Bug::on_host(
        BY_MEDIA,
        "a stopped guest's request goes on",
        Change::Swap("self.is_withdrawn()", "false"),
    ),
    Bug::on_host(
        BY_FLIGHT,
        "a reset does not wait for what the kernel has",
        Change::Drop,
    ),
    Bug::on_host(
        BY_FLIGHT,
        "a request begins without a note",
        Change::Swap("!notes.add(request.chain.head, position)", "false"),
    ),
    Bug::on_host(BY_FLIGHT, "a completed request stays noted", Change::Drop),
    Bug::on_host(
        BY_BLOCK,
        "an idle start counts as a death",
        Change::Become("let died_at_work = 1;"),
    ),
    Bug::on_host(
        BY_BLOCK,
        "suspects work beside each other",
        Change::Swap("3", "300"),
    ),
    Bug::on_host(
        BY_BLOCK,
        "a reset does not wait for an earlier gdm's requests",
        Change::Swap("!self.is_awaiting\n           ", "true"),
    ),
    Bug::on_host(
        BY_BLOCK,
        "a device whose backend is late is shown as none",
        Change::Swap("in_use", "false"),
    ),
    Bug::on_host(
        BY_BLOCK,
        "a disk has two writers",
        Change::Swap(
            "is_shared && !(read_only && others.all(|(_, read_only)| *read_only))",
            "false",
        ),
    ),
    Bug::on_host(
        BY_BLOCK,
        "a lock of the disk is not looked at",
        Change::Swap("file.try_lock(", "Ok(()"),
    ),
    Bug::on_host(
        BY_BLOCK,
        "the first reader does not wait for an earlier gdm",
        Change::Become("(false, true) => file.try_lock_shared(),"),
    ),
    Bug::on_host(
        BY_BLOCK,
        "data that is not reachable is left out of a request",
        Change::Drop,
    ),
    Bug::on_host(
        BY_WORKER,
        "a guest fills the log",
        Change::Swap("<= MESSAGES", "> 0"),
    ),
];
