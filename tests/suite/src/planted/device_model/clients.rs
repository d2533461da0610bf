//! Bugs in sockets, in what clients are told, and in addresses.

use super::super::bug::Bug;
use crate::change::Change;

const BY_HUB: &str = "device-model/src/hub/tests.rs";
const BY_GUEST: &str = "device-model/src/guest/tests.rs";

pub(in crate::planted) const BUGS: &[Bug] = &[
    Bug::on_host(
        "device-model/src/address/tests.rs",
        "every board's network cards have the same addresses",
        Change::Swap("board", "&board[..0]"),
    ),
    Bug::on_host(
        "device-model/src/address/tests.rs",
        "a board's addresses are those that firmware made up at this boot",
        Change::Swap("mac[0] & LOCAL =", "LOCAL !"),
    ),
    Bug::on_host(
        "device-model/src/serial/tests.rs",
        "a client that left is waited for",
        Change::Swap("wait.read || wait.write", "true"),
    ),
    Bug::on_host(
        "device-model/src/serial/tests.rs",
        "what a client typed before it left is forgotten",
        Change::Become("self.client = None;"),
    ),
    Bug::on_host(
        "device-model/src/control/tests.rs",
        "a client that cannot be accepted is waited for",
        Change::Become("read: true,"),
    ),
    Bug::on_host(
        "device-model/src/control/tests.rs",
        "an idle client keeps its place",
        Change::Swap(" || self.idlest().is_some()", ""),
    ),
    Bug::on_host(
        "device-model/src/socket/tests.rs",
        "what a slow reader lost is not said",
        Change::Swap("0", "u32::MAX / 2"),
    ),
    Bug::on_host(
        "device-model/src/command/metrics/text/tests.rs",
        "a label ends where its value has a quote",
        Change::Swap(".replace('\"', \"\\\\\\\"\")", ""),
    ),
    Bug::on_host(
        "device-model/src/command/metrics/http/tests.rs",
        "a client that sends a byte at a time holds the socket for ever",
        Change::Swap("rest(end)?", "PATIENCE"),
    ),
    Bug::on_host(
        "device-model/src/command/metrics/http/tests.rs",
        "a request that is too long is answered by its first line",
        Change::Swap("length > MOST", "false"),
    ),
    Bug::on_host(
        "device-model/tests/metrics.rs",
        "a shortage of descriptors ends the server of metrics",
        Change::Swap("shortages.contains(&number)", "number == 0"),
    ),
    Bug::on_host(
        "device-model/src/command/metrics/tests.rs",
        "the socket of a busy program is taken",
        Change::Swap(
            "!matches!(error.kind(), Io::NotFound | Io::ConnectionRefused)",
            "false",
        ),
    ),
    Bug::on_host(
        "device-model/src/command/tests.rs",
        "gearctl follows the log with one cursor",
        Change::Swap("found > cpu", "false"),
    ),
    Bug::on_host(
        "device-model/src/command/tests.rs",
        "gearctl enters a console that does not exist",
        Change::Swap("all.contains(&vm.name)", "true"),
    ),
    Bug::on_host(
        "device-model/src/command/table/tests.rs",
        "a table is wider than the terminal",
        Change::Swap("!narrow(&mut widths, width)", "false"),
    ),
    Bug::on_host(
        "device-model/src/terminal/tests.rs",
        "gearctl console does not read the terminal while the guest does not read",
        Change::Swap("is_terminal || self.", ""),
    ),
    Bug::on_host(
        "device-model/src/terminal/tests.rs",
        "gearctl console shows nothing of what was before",
        Change::Swap("last_lines(&kept, lines)", "&[]"),
    ),
    Bug::on_host(
        "device-model/src/worker/tests.rs",
        "a thread at work arms its line",
        Change::Swap("milliseconds != 0 && ", ""),
    ),
    Bug::on_host(
        BY_GUEST,
        "a device whose set-up fails is dead",
        Change::Drop,
    ),
    Bug::on_host(BY_HUB, "consoles whose set-up fails are dead", Change::Drop),
    Bug::on_host(
        BY_HUB,
        "the heart beats beside a thread that is stuck",
        Change::Swap("== Health::Well", "!= Health::Late"),
    ),
    Bug::on_host(
        "device-model/src/progress/tests.rs",
        "a thread that ended is forgotten",
        Change::Become("self.looks = 0;"),
    ),
    Bug::on_host(
        BY_GUEST,
        "the heartbeat does not say when gdm lived",
        Change::Become("let _ = (device.state, counter());"),
    ),
];
