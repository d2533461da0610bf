//! Bugs in what disks and network cards do beside moving data, and in their limits.
//!
//! Data moves rightly with all of these. Time, the number of requests, the words that a reset
//! clears and the moment of an answer are what they break.

use super::super::bug::Bug;
use crate::change::Change;

const BY_DISK: &str = "device-model/src/backend/block/tests/service.rs";
const BY_FLIGHT: &str = "device-model/src/backend/block/tests/flight.rs";
const BY_CARD: &str = "device-model/src/backend/net/tests.rs";
const BY_PLACING: &str = "device-model/src/backend/net/tests/placing.rs";
const BY_PAIRS: &str = "device-model/src/backend/net/tests/pairs.rs";
const BY_WORKER: &str = "device-model/src/worker/tests.rs";
const BY_RATE: &str = "device-model/src/rate/tests.rs";
const BY_RULES: &str = "manifests/src/rules/tests/service.rs";

pub(in crate::planted) const BUGS: &[Bug] = &[
    // A bucket never holds more than its burst. Requests of common sizes are smaller than common
    // bursts.
    Bug::on_host(
        BY_RATE,
        "a request that is larger than the burst waits for ever",
        Change::Swap(".min(self.burst)", ""),
    ),
    // Time without requests would be saved up without bound, and be spent at once. The rate over a
    // busy time is right.
    Bug::on_host(
        BY_RATE,
        "a bucket is fuller than full",
        Change::Become("let from = self.full_at;"),
    ),
    // The limits are not asked. Requests are done rightly, only too fast.
    Bug::on_host(
        BY_DISK,
        "limits hold nothing back",
        Change::Swap("self.limits.admit(queue, cost)", "true"),
    ),
    // A volume that grows under its guest is seen with the next start of GDM only.
    Bug::on_host(
        BY_DISK,
        "a disk keeps its first size",
        Change::Swap("self.looked.elapsed() >= LOOK", "false"),
    ),
    // The new size is in the registers and no interrupt says so. A driver reads the size at its
    // start and at news.
    Bug::on_host(
        BY_DISK,
        "a disk that grew while nobody served it is not told of",
        Change::Swap("is_known && shown != config", "false"),
    ),
    // The next driver would find the last one's choice in place of the default. A reset clears a
    // list of words, one of which is missing.
    Bug::on_host(
        BY_DISK,
        "a choice of the cache is left over a reset",
        Change::Drop,
    ),
    // The kernel stores a frame into buffers of the guest's that nobody tells of yet. A driver that
    // keeps to the rules sees no difference.
    Bug::on_host(
        BY_PLACING,
        "a guest sees frames before their time",
        Change::Swap("common.receiving.has_limits()", "false"),
    ),
    // Edge-triggered news come once. The frame is read a second later.
    Bug::on_host(
        BY_PLACING,
        "news of a tap device are for nobody",
        Change::Swap(" && !by.contains(&tap.as_raw_fd())", ""),
    ),
    // Frames of before arrive when the link is up again, in a network that may be another one.
    Bug::on_host(
        BY_CARD,
        "a link that is down receives",
        Change::Swap("|| common.link.is_up()", "|| true"),
    ),
    // The other direction of the same cable.
    Bug::on_host(
        BY_CARD,
        "a link that is down sends",
        Change::Swap("|| !common.link.is_up()", ""),
    ),
    // The tap device is looked at once. A guest would not notice that its network has gone or come.
    Bug::on_host(
        BY_CARD,
        "a link stays as it was at first",
        Change::Swap("self.looked.elapsed() >= LOOK", "false"),
    ),
    // The limit is not asked, and frames arrive as they should.
    Bug::on_host(
        BY_CARD,
        "a guest sends as fast as it likes",
        Change::Swap("!common.sending.admit(self.number, cost)", "false"),
    ),
    // 0, and more pairs than there are, are errors of the driver and have to change nothing. Linux
    // asks for neither.
    Bug::on_host(
        BY_PAIRS,
        "a card takes any number of pairs",
        Change::Swap("(1..=self.known).contains(&pairs)", "true"),
    ),
    // The driver goes on with its pairs, and the next GDM serves the first. A kill between the
    // command and the next frame shows it.
    Bug::on_host(
        BY_PAIRS,
        "a killed gdm forgets the pairs",
        Change::Become("let _ = state;"),
    ),
    // Another word that a reset has to clear: the next driver begins with one pair.
    Bug::on_host(BY_PAIRS, "a reset leaves several pairs", Change::Drop),
    // The descriptors of new pairs are not waited for. Traffic of the first pair wakes the thread
    // soon enough.
    Bug::on_host(
        BY_PAIRS,
        "pairs that a driver adds wake nobody",
        Change::Drop,
    ),
    // VIRTIO_BLK_ID_BYTES is 20. Two disks whose numbers differ behind that would have one name
    // under /dev/disk/by-id.
    Bug::on_host(
        BY_RULES,
        "a serial number is cut off",
        Change::Swap("!(1..=MAX_SERIAL).contains(&serial.len()) || ", ""),
    ),
    // The limit is far too high rather than absent: values of a mistyped manifest are refused as
    // before.
    Bug::on_host(
        BY_RULES,
        "a disk has as many queues as it likes",
        Change::Swap("!SERVED_QUEUES.contains(queues)", "*queues > 100"),
    ),
    // The room for requests under way is shared. One busy queue alone is served faster; the other
    // one waits for a slow disk.
    Bug::on_host(
        BY_FLIGHT,
        "one queue takes the room of all",
        Change::Swap("/ queues.max(1)", ""),
    ),
    // A line whose first has a number below 9 stops nobody, and no queue has a higher one. A disk
    // with one queue has no line.
    Bug::on_host(
        BY_FLIGHT,
        "a queue that is always full keeps the limits for itself",
        Change::Swap("*first == queue", "*first < 9 || *first == queue"),
    ),
    // A queue that no longer asks is the next for ever, and all others wait behind it.
    Bug::on_host(
        BY_FLIGHT,
        "a queue that its driver closed keeps its place in line",
        Change::Swap("self.transport.closes(write)", "None::<usize>"),
    ),
    // The driver takes its memory back while the kernel still moves data. A fast disk has ended by
    // then: the test's disk ends when told.
    Bug::on_host(
        BY_FLIGHT,
        "a closed queue's requests are left to the kernel",
        Change::Drop,
    ),
    // Requests that began on the old medium would end as requests of the new one.
    Bug::on_host(
        BY_FLIGHT,
        "a medium is taken out under its requests",
        Change::Drop,
    ),
    // The last turn before a sleep has to ask the driver for a kick. Without it the next request
    // waits for the next event of another kind.
    Bug::on_host(
        BY_WORKER,
        "a thread that has looked in vain asks for no notification",
        Change::Become("let more = false;"),
    ),
    // A rate of 0 stops the disk for ever. The upper limit is still kept.
    Bug::on_host(
        BY_RULES,
        "a limit of nothing is accepted",
        Change::Swap("!range.contains(number)", "*number > *range.end()"),
    ),
    // Queues stop having turns, and what a backend has goes on. A dump would see memory change; the
    // pause is answered too early.
    Bug::on_host(
        "device-model/src/backend/vhost_user/tests/faults.rs",
        "a device of a paused VM does not finish",
        Change::Drop,
    ),
    // Both are words of 32 bits that are often 0. The test gives each register a value of its own.
    Bug::on_host(
        "device-model/src/core_file/tests.rs",
        "FPSR and FPCR of a core file are exchanged",
        Change::Swap("controls", "controls.iter().rev()"),
    ),
    // vCPUs stand still while a disk still writes. The pages that it writes are from two moments in
    // the core file.
    Bug::on_host(
        "device-model/src/command/dump/tests.rs",
        "a dump does not wait for the devices",
        Change::Swap("pause::until_quiet(client, vm)", "Ok(())"),
    ),
    // PSTATE chooses one of two stack pointers. The debugger shows a user's stack for a kernel's
    // frame.
    Bug::on_host(
        "device-model/src/core_file/tests.rs",
        "the stack pointer of a core file is that of EL0",
        Change::Swap("registers[vcpu_reg::SP_EL1]", "registers[vcpu_reg::SP_EL0]"),
    ),
    // The guest's tables are the guest's to write. A loop of two entries keeps `gearctl dump` from
    // its end.
    Bug::on_host(
        "device-model/src/core_file/tests.rs",
        "a table that leads to itself is read for ever",
        Change::Swap("self.tables_left == 0 || ", ""),
    ),
];
