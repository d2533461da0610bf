//! Bugs in what disks lose, and in what a start of GDM finds.
//!
//! A disk that loses nothing in an ordinary run may lose all of it with the power, with a kill of
//! GDM or with the VM's end. The tests have a medium that forgets what was not synced, and requests
//! that end when the test says so.

use super::super::bug::Bug;
use crate::change::Change;

const BY_BLOCK: &str = "device-model/src/backend/block/tests.rs";
const BY_MEDIA: &str = "device-model/src/backend/block/tests/media.rs";
const BY_FLIGHT: &str = "device-model/src/backend/block/tests/flight.rs";
const BY_WORKER: &str = "device-model/src/worker/tests.rs";

pub(in crate::planted) const BUGS: &[Bug] = &[
    // The flush succeeds, and data is in the cache. Nothing is lost until the power is: the test's
    // disk forgets what was not synced.
    Bug::on_host(
        BY_MEDIA,
        "a flush syncs nothing",
        Change::Become("let syncs = false;"),
    ),
    // Requests that cannot be direct go through the page cache of the device VM, whose crash the
    // guest does not learn of. Acknowledged data has to survive it without a flush.
    Bug::on_host(
        BY_MEDIA,
        "what went through the page cache is left there",
        Change::Swap("self.write_through || buffered", "self.write_through"),
    ),
    // A driver that knows no flush believes each acknowledged write to be durable. Linux knows it,
    // so the test negotiates without.
    Bug::on_host(
        BY_MEDIA,
        "a write of a driver without FLUSH is not synced",
        Change::Swap("self.write_through || buffered", "buffered"),
    ),
    // The third way into the page cache, by requests that carry no data.
    Bug::on_host(
        BY_MEDIA,
        "zeroes are left in the page cache",
        Change::Swap("|| buffered ", ""),
    ),
    // A turn takes several requests. The guest's memory is Gear2's as soon as the VM is stopped,
    // and the turn would still write to it.
    Bug::on_host(
        BY_MEDIA,
        "a stopped guest's turn goes on",
        Change::Swap("ring.is_withdrawn()", "false"),
    ),
    // A request of 16 ranges of 2 GiB takes minutes where zeroes have to be written. Data is right
    // either way; the VM's restart is late.
    Bug::on_host(
        BY_MEDIA,
        "a stopped guest waits for all ranges",
        Change::Become("self.buffered.set(true);"),
    ),
    // A thread in the kernel is no thread that is stuck. A disk that stalls for minutes would have
    // GDM end itself.
    Bug::on_host(
        BY_MEDIA,
        "a flush that takes long ends gdm",
        Change::Become("self.0.begin(number, work);"),
    ),
    // A request of several steps begins its next one after the VM's end.
    Bug::on_host(
        BY_MEDIA,
        "a stopped guest's request goes on",
        Change::Swap("self.is_withdrawn()", "false"),
    ),
    // The ring is forgotten and the transfer is not. The data arrives in memory that the driver
    // uses for something else by then.
    Bug::on_host(
        BY_FLIGHT,
        "a reset does not wait for what the kernel has",
        Change::Drop,
    ),
    // The next GDM does again what is noted. A request without a note is lost with a kill, and the
    // guest waits for ever.
    Bug::on_host(
        BY_FLIGHT,
        "a request begins without a note",
        Change::Swap("!notes.add(request.chain.head, position)", "false"),
    ),
    // The next GDM would do it again, and complete it twice.
    Bug::on_host(BY_FLIGHT, "a completed request stays noted", Change::Drop),
    // GDM that was killed without work on a device would make that device a suspect. Devices that
    // nobody uses would be closed after some restarts.
    Bug::on_host(
        BY_BLOCK,
        "an idle start counts as a death",
        Change::Become("let died_at_work = 1;"),
    ),
    // The threshold is never reached. All devices at work are then blamed for a request that ends
    // GDM.
    Bug::on_host(
        BY_BLOCK,
        "suspects work beside each other",
        Change::Swap("3", "300"),
    ),
    // Requests that an earlier process left to the kernel may still move data. The condition has
    // three ways to be true, of which the first suffices for the bug.
    Bug::on_host(
        BY_BLOCK,
        "a reset does not wait for an earlier gdm's requests",
        Change::Swap("!self.is_awaiting\n           ", "true"),
    ),
    // A guest that uses the device would find it gone over a restart of GDM. The late start itself
    // is handled.
    Bug::on_host(
        BY_BLOCK,
        "a device whose backend is late is shown as none",
        Change::Swap("in_use", "false"),
    ),
    // Manifests are refused before that, by name. Two names of one disk are found only here, by the
    // device's number.
    Bug::on_host(
        BY_BLOCK,
        "a disk has two writers",
        Change::Swap(
            "is_shared && !(read_only && others.all(|(_, read_only)| *read_only))",
            "false",
        ),
    ),
    // Another program, or an earlier GDM's requests, may hold the disk. Readers still lock: only a
    // writer comes in.
    Bug::on_host(
        BY_BLOCK,
        "a lock of the disk is not looked at",
        Change::Swap("file.try_lock(", "Ok(()"),
    ),
    // A shared lock alone does not wait for readers of before. The moment of the exclusive lock is
    // easily taken for waste.
    Bug::on_host(
        BY_BLOCK,
        "the first reader does not wait for an earlier gdm",
        Change::Become("(false, true) => file.try_lock_shared(),"),
    ),
    // A buffer in memory that the device model does not map is skipped, and the request succeeds
    // with the rest.
    Bug::on_host(
        BY_BLOCK,
        "data that is not reachable is left out of a request",
        Change::Drop,
    ),
    // The count is kept and the limit is not. Messages about one guest would fill the device VM's
    // log.
    Bug::on_host(
        BY_WORKER,
        "a guest fills the log",
        Change::Swap("<= MESSAGES", "> 0"),
    ),
];
