//! Bugs in what disks and network cards do beside moving data, and in their limits.

use super::super::bug::Bug;
use crate::change::Change;

const BY_DISK: &str = "device-model/src/backend/block/tests/service.rs";
const BY_FLIGHT: &str = "device-model/src/backend/block/tests/flight.rs";
const BY_CARD: &str = "device-model/src/backend/net/tests.rs";
const BY_PAIRS: &str = "device-model/src/backend/net/tests/pairs.rs";
const BY_WORKER: &str = "device-model/src/worker/tests.rs";
const BY_RATE: &str = "device-model/src/rate/tests.rs";
const BY_RULES: &str = "manifests/src/rules/tests/service.rs";

pub(in crate::planted) const BUGS: &[Bug] = &[
    Bug::on_host(
        BY_RATE,
        "a request that is larger than the burst waits for ever",
        Change::Swap(".min(self.burst)", ""),
    ),
    Bug::on_host(
        BY_RATE,
        "a bucket is fuller than full",
        Change::Become("let from = self.full_at;"),
    ),
    Bug::on_host(
        BY_DISK,
        "limits hold nothing back",
        Change::Swap("self.limits.admit(queue, cost)", "true"),
    ),
    Bug::on_host(
        BY_DISK,
        "a disk keeps its first size",
        Change::Swap("self.looked.elapsed() >= LOOK", "false"),
    ),
    Bug::on_host(
        BY_DISK,
        "a disk that grew while nobody served it is not told of",
        Change::Swap("is_known && shown != config", "false"),
    ),
    Bug::on_host(
        BY_DISK,
        "a choice of the cache is left over a reset",
        Change::Drop,
    ),
    Bug::on_host(
        BY_CARD,
        "a link that is down receives",
        Change::Swap("|| common.link.is_up()", "|| true"),
    ),
    Bug::on_host(
        BY_CARD,
        "a link that is down sends",
        Change::Swap("|| !common.link.is_up()", ""),
    ),
    Bug::on_host(
        BY_CARD,
        "a link stays as it was at first",
        Change::Swap("self.looked.elapsed() >= LOOK", "false"),
    ),
    Bug::on_host(
        BY_CARD,
        "a guest sends as fast as it likes",
        Change::Swap("!common.sending.admit(self.number, cost)", "false"),
    ),
    Bug::on_host(
        BY_PAIRS,
        "a card takes any number of pairs",
        Change::Swap("(1..=self.known).contains(&pairs)", "true"),
    ),
    Bug::on_host(
        BY_PAIRS,
        "a killed gdm forgets the pairs",
        Change::Become("let _ = state;"),
    ),
    Bug::on_host(BY_PAIRS, "a reset leaves several pairs", Change::Drop),
    Bug::on_host(
        BY_PAIRS,
        "pairs that a driver adds wake nobody",
        Change::Drop,
    ),
    Bug::on_host(
        BY_RULES,
        "a serial number is cut off",
        Change::Swap("!(1..=MAX_SERIAL).contains(&serial.len()) || ", ""),
    ),
    Bug::on_host(
        BY_RULES,
        "a disk has as many queues as it likes",
        Change::Swap("!SERVED_QUEUES.contains(queues)", "*queues > 100"),
    ),
    Bug::on_host(
        BY_FLIGHT,
        "one queue takes the room of all",
        Change::Swap("/ queues.max(1)", ""),
    ),
    Bug::on_host(
        BY_FLIGHT,
        "a queue that is always full keeps the limits for itself",
        Change::Swap("*first == queue", "*first < 9 || *first == queue"),
    ),
    Bug::on_host(
        BY_FLIGHT,
        "a queue that its driver closed keeps its place in line",
        Change::Swap("self.transport.closes(write)", "None::<usize>"),
    ),
    Bug::on_host(
        BY_FLIGHT,
        "a closed queue's requests are left to the kernel",
        Change::Drop,
    ),
    Bug::on_host(
        BY_FLIGHT,
        "a medium is taken out under its requests",
        Change::Drop,
    ),
    Bug::on_host(
        BY_WORKER,
        "a thread that has looked in vain asks for no notification",
        Change::Become("let more = false;"),
    ),
    Bug::on_host(
        BY_RULES,
        "a limit of nothing is accepted",
        Change::Swap("!range.contains(number)", "*number > *range.end()"),
    ),
    Bug::on_host(
        "device-model/src/backend/vhost_user/tests/faults.rs",
        "a device of a paused VM does not finish",
        Change::Drop,
    ),
    Bug::on_host(
        "device-model/src/core_file/tests.rs",
        "FPSR and FPCR of a core file are exchanged",
        Change::Swap("controls", "controls.iter().rev()"),
    ),
    Bug::on_host(
        "device-model/src/command/dump/tests.rs",
        "a dump does not wait for the devices",
        Change::Swap("pause::until_quiet(client, vm)", "Ok(())"),
    ),
    Bug::on_host(
        "device-model/src/core_file/tests.rs",
        "the stack pointer of a core file is that of EL0",
        Change::Swap("registers[vcpu_reg::SP_EL1]", "registers[vcpu_reg::SP_EL0]"),
    ),
    Bug::on_host(
        "device-model/src/core_file/tests.rs",
        "a table that leads to itself is read for ever",
        Change::Swap("self.tables_left == 0 || ", ""),
    ),
];
