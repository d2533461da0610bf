//! Bugs in sockets, in what clients are told, and in addresses.
//!
//! Most of these cost CPU time, a place or a line of text, and no data. The tests count wake-ups,
//! read what a person would read, and let threads fail in their set-up.

use super::super::bug::Bug;
use crate::change::Change;

const BY_HUB: &str = "device-model/src/hub/tests.rs";
const BY_GUEST: &str = "device-model/src/guest/tests.rs";

pub(in crate::planted) const BUGS: &[Bug] = &[
    // The board's identity has no part in the addresses. One board alone has distinct addresses for
    // all its cards; two boards on one network do not.
    Bug::on_host(
        "device-model/src/address/tests.rs",
        "every board's network cards have the same addresses",
        Change::Swap("board", "&board[..0]"),
    ),
    // A locally administered address in the device tree may be random at each boot. Addresses that
    // change only with a boot look stable in a running system.
    Bug::on_host(
        "device-model/src/address/tests.rs",
        "a board's addresses are those that firmware made up at this boot",
        Change::Swap("mac[0] & LOCAL =", "LOCAL !"),
    ),
    // poll(2) tells of an end whether asked or not, so a descriptor that nothing is wanted of keeps
    // the thread busy. Output still flows: the test turns until no event wakes the thread, and
    // expects that to be soon.
    Bug::on_host(
        "device-model/src/serial/tests.rs",
        "a client that left is waited for",
        Change::Swap("wait.read || wait.write", "true"),
    ),
    // A write that fails drops the client, and with it the input that is still unread. A client
    // that reads to its end shows nothing: the test's types and leaves while the guest prints.
    Bug::on_host(
        "device-model/src/serial/tests.rs",
        "what a client typed before it left is forgotten",
        Change::Become("self.client = None;"),
    ),
    // One client more than there is room for ends each wait at once. Everybody is served; the CPU
    // is what it costs.
    Bug::on_host(
        "device-model/src/control/tests.rs",
        "a client that cannot be accepted is waited for",
        Change::Become("read: true,"),
    ),
    // Sessions that people left open use up the places. The limit is reached by no ordinary use.
    Bug::on_host(
        "device-model/src/control/tests.rs",
        "an idle client keeps its place",
        Change::Swap(" || self.idlest().is_some()", ""),
    ),
    // Lost bytes without a notice join two pieces of output into one wrong text. Readers that keep
    // up lose none.
    Bug::on_host(
        "device-model/src/socket/tests.rs",
        "what a slow reader lost is not said",
        Change::Swap("0", "u32::MAX / 2"),
    ),
    // The name of a VM is a label, and the manifest's names may hold any character. A scraper
    // refuses the whole text for one such name.
    Bug::on_host(
        "device-model/src/command/metrics/text/tests.rs",
        "a label ends where its value has a quote",
        Change::Swap(".replace('\"', \"\\\\\\\"\")", ""),
    ),
    // The time begins anew with each byte. One client is served at a time, so nobody else gets
    // metrics.
    Bug::on_host(
        "device-model/src/command/metrics/http/tests.rs",
        "a client that sends a byte at a time holds the socket for ever",
        Change::Swap("rest(end)?", "PATIENCE"),
    ),
    // The length is not bounded, so a request without an end fills memory. Scrapers send short
    // ones.
    Bug::on_host(
        "device-model/src/command/metrics/http/tests.rs",
        "a request that is too long is answered by its first line",
        Change::Swap("length > MOST", "false"),
    ),
    // `accept` fails with EMFILE while another part of the system has all descriptors. The test
    // takes the descriptors away and gives them back.
    Bug::on_host(
        "device-model/tests/metrics.rs",
        "a shortage of descriptors ends the server of metrics",
        Change::Swap("shortages.contains(&number)", "number == 0"),
    ),
    // A full backlog or a missing permission refuses a connection as well as an absent program
    // does. Two servers of one address are the result.
    Bug::on_host(
        "device-model/src/command/metrics/tests.rs",
        "the socket of a busy program is taken",
        Change::Swap(
            "!matches!(error.kind(), Io::NotFound | Io::ConnectionRefused)",
            "false",
        ),
    ),
    // Each CPU has a ring with numbers of its own. With one CPU that logs, one cursor is right.
    Bug::on_host(
        "device-model/src/command/tests.rs",
        "gearctl follows the log with one cursor",
        Change::Swap("found > cpu", "false"),
    ),
    // A person would type into nothing. The refusal names the consoles that there are, which the
    // test reads.
    Bug::on_host(
        "device-model/src/command/tests.rs",
        "gearctl enters a console that does not exist",
        Change::Swap("all.contains(&vm.name)", "true"),
    ),
    // A terminal wraps lines, and columns are lost. Output into a pipe has no width.
    Bug::on_host(
        "device-model/src/command/table/tests.rs",
        "a table is wider than the terminal",
        Change::Swap("!narrow(&mut widths, width)", "false"),
    ),
    // The escape character is input too: nobody could leave the console of a guest that hangs.
    Bug::on_host(
        "device-model/src/terminal/tests.rs",
        "gearctl console does not read the terminal while the guest does not read",
        Change::Swap("is_terminal || self.", ""),
    ),
    // The catch-up is read and not printed. New output appears, so only a guest that prints no more
    // looks dead.
    Bug::on_host(
        "device-model/src/terminal/tests.rs",
        "gearctl console shows nothing of what was before",
        Change::Swap("last_lines(&kept, lines)", "&[]"),
    ),
    // A line that is armed all the time shows each of the guest's kicks, and a guest that notifies
    // without end wakes the thread as often. The test lets the thread turn with and without a
    // sleep.
    Bug::on_host(
        "device-model/src/worker/tests.rs",
        "a thread at work arms its line",
        Change::Swap("time != Some(Duration::ZERO) && ", ""),
    ),
    // Without the preparation nothing watches the thread during its set-up, and a failure is the
    // end of the thread alone. The process lives on with a device that never answers.
    Bug::on_host(
        BY_GUEST,
        "a device whose set-up fails is dead",
        Change::Drop,
    ),
    // The second thread with a set-up of its own. All guests' serial consoles depend on it.
    Bug::on_host(BY_HUB, "consoles whose set-up fails are dead", Change::Drop),
    // A stuck thread counts as well, a late one does not. Gear2 watches the heartbeat alone, and
    // would not restart GDM.
    Bug::on_host(
        BY_HUB,
        "the heart beats beside a thread that is stuck",
        Change::Swap("== Health::Well", "!= Health::Late"),
    ),
    // A thread that ended makes no steps and waits for nothing, like one that has not begun.
    Bug::on_host(
        "device-model/src/progress/tests.rs",
        "a thread that ended is forgotten",
        Change::Become("self.looks = 0;"),
    ),
    // The next GDM learns from the word for how long nobody served the device, and treats what
    // waited accordingly. The beat itself still reaches GDM.
    Bug::on_host(
        BY_GUEST,
        "the heartbeat does not say when gdm lived",
        Change::Become("let _ = (device.state, counter());"),
    ),
];
