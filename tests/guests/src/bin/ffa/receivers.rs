//! Transactions with two receivers, of which each retrieves by itself.
//!
//! Gear1 keeps for each receiver whether it has the memory. The checks have one receiver act while
//! the other one does not, since a state that both share by mistake shows only then.

use test_guests::ffa::{self, Descriptor, function, status, task};
use test_guests::report::equal;

use crate::{AGENT, Access, ECHO, NO, OURS, OWN, PAGE, STRANGER, Test, handle_sent, ro, rw};

/// Flag of a retrieval: the receiver names only itself. Without the flag, a receiver has to name
/// all receivers, so that it knows who shares with it (DEN 0077A).
const ALONE: u64 = 1 << 10;

/// A name, a call, the status, and the descriptor's change that makes the call wrong.
type Case = (&'static str, u64, i32, fn(&mut Descriptor));

/// A donation has one receiver, and names stand once. The case `five` exceeds the most receivers of
/// a transaction here. Attributes of 0 leave the choice to the receiver, which is possible with one
/// receiver only. Wiping needs receivers that may all write.
const REFUSED: [Case; 7] = [
    ("two-donate", function::DONATE, status::INVALID, |d| {
        and_echo(d, 0)
    }),
    ("two-same", function::SHARE, status::INVALID, |d| {
        and_echo(d, ffa::READ_ONLY);
        d.second = Some((AGENT, ffa::READ_ONLY));
    }),
    ("two-stranger", function::SHARE, status::DENIED, |d| {
        and_echo(d, ffa::READ_ONLY);
        d.second = Some((STRANGER, ffa::READ_ONLY));
    }),
    ("two-self", function::LEND, status::DENIED, |d| {
        and_echo(d, ffa::READ_ONLY);
        d.second = Some((OWN, ffa::READ_ONLY));
    }),
    ("two-attributes", function::LEND, status::INVALID, |d| {
        and_echo(d, ffa::READ_ONLY);
        d.attributes = 0;
    }),
    (
        "two-wiped-read-only",
        function::LEND,
        status::INVALID,
        |d| {
            and_echo(d, ffa::READ_ONLY);
            d.flags = ffa::ZERO;
        },
    ),
    ("five", function::SHARE, status::NO_MEMORY, |d| {
        and_echo(d, ffa::READ_ONLY);
        d.access_count = 5;
    }),
];

/// Makes the echo the second receiver. The composite descriptor moves behind the second receiver's
/// access descriptor of 16 bytes. Both receivers' rights are in descriptors of their own, so that
/// 64 + 16 is where the composite begins.
fn and_echo(descriptor: &mut Descriptor, permissions: u64) {
    descriptor.access_count = 2;
    descriptor.composite = 80;
    descriptor.second = Some((ECHO, permissions));
    descriptor.attributes = ffa::WRITE_BACK;
}

impl Test {
    /// The order of retrieving and relinquishing is mixed, as receivers do not know of each other.
    /// In one case the echo retrieves first, and in the other one the agent.
    pub(crate) fn receivers(&self) {
        self.shared_by_two();
        self.lent_to_two();
        self.receiver_refusals();
    }

    /// Checks what the echo can do with a page. The echo stores behind the words that `rights`
    /// uses, so that no word of that check is lost.
    fn echo_rights(&self, name: &str, page: u64, expected: Access) {
        let [read, written] = expected;
        let (aborted, value) = self.tell(task::READ, page, 0);
        equal(name, (aborted == 0).then_some(value), read);
        let (aborted, _) = self.tell(task::WRITE, page + 24, 1);
        equal(name, aborted == 0, written.is_some());
    }

    /// Any receiver that has the memory keeps the owner from it. A reclaim that ignores one of two
    /// receivers would give the owner memory that another VM still reads and writes. A count of
    /// receivers that one receiver could lower twice would have the same effect.
    fn both_refused(&self, handle: u64) {
        equal("two-reclaim-early", self.reclaim(handle, 0), status::DENIED);
    }

    /// Each receiver has its own rights. The agent may write and the echo may only read. Rights
    /// that Gear1 exchanges between two receivers would not show if they were equal.
    fn shared_by_two(&self) {
        let page = self.arena + 60 * PAGE;
        self.fill(page, 1);
        let sent = self.send(function::SHARE, &[(page, 1)], |d| {
            and_echo(d, ffa::READ_ONLY)
        });
        let handle = handle_sent("two-share", sent);
        self.echo_retrieves_first(page, handle);
        self.agent_retrieves_second(page, handle);
        self.agent_relinquishes_first(page, handle);
        self.echo_relinquishes(page, handle);
        equal("two-agent-last", self.agent_relinquishes(handle, 0), 0);
        equal("two-reclaim", self.reclaim(handle, 0), 0);
        self.rights("two-reclaimed", page, rw(page ^ OURS), NO);
    }

    /// A receiver names all receivers, or says that it names itself alone. The owner keeps its own
    /// access to what it shares all the time.
    fn echo_retrieves_first(&self, page: u64, handle: u64) {
        // Only itself, without saying that it is all it names.
        let only_itself = self.agent_retrieves(handle, |_| ());
        equal("two-names-one", only_itself, status::INVALID);
        equal("two-echo", self.tell(task::RETRIEVE, handle, ALONE).0, 0);
        self.rights("two-one-has-it", page, rw(page ^ OURS), NO);
        self.echo_rights("two-one-reads", page, ro(page ^ OURS));
        self.both_refused(handle);
    }

    /// The first one's mapping stays as it was. A second retrieval by the echo is refused: the
    /// memory is mapped already, and counted once.
    fn agent_retrieves_second(&self, page: u64, handle: u64) {
        let value = page ^ OURS;
        let retrieved = self.agent_retrieves(handle, |d| {
            and_echo(d, 0);
            d.composite = 0;
        });
        equal("two-agent", retrieved, 0);
        self.rights("two-share-it", page, rw(value), rw(value));
        self.echo_rights("two-still-reads", page, ro(value));
        let again = self.tell(task::RETRIEVE, handle, ALONE).0 as i32;
        equal("two-again", again, status::DENIED);
    }

    /// Only its own mapping goes. The table of the other VM must not change, and the count of
    /// receivers goes down by one and not to 0.
    fn agent_relinquishes_first(&self, page: u64, handle: u64) {
        let relinquished = self.agent_relinquishes(handle, 0);
        equal("two-agent-gives-back", relinquished, 0);
        self.rights("two-agent-gone", page, rw(page ^ OURS), NO);
        self.echo_rights("two-echo-still", page, ro(page ^ OURS));
        self.both_refused(handle);
        let twice = self.agent_relinquishes(handle, 0);
        equal("two-agent-gives-back-twice", twice, status::DENIED);
    }

    /// The echo relinquishes while the agent has the page anew. A transaction lives until the owner
    /// reclaims it, so that a receiver may retrieve it again.
    fn echo_relinquishes(&self, page: u64, handle: u64) {
        let value = page ^ OURS;
        let anew = self.agent_retrieves(handle, |d| d.flags = ALONE);
        equal("two-agent-anew", anew, 0);
        let (relinquished, _) = self.tell(task::RELINQUISH, handle, 0);
        equal("two-echo-gives-back", relinquished, 0);
        self.echo_rights("two-echo-gone", page, NO);
        self.rights("two-agent-has-it", page, rw(value), rw(value));
        self.both_refused(handle);
    }

    /// Lent memory whose receiver asked for a wipe is wiped when the last receiver relinquishes.
    /// The wipe waits: a page that is wiped while the other one uses it would be taken from under
    /// it. The owner has no access while memory is lent, whichever receiver has given it back.
    fn lent_to_two(&self) {
        let page = self.arena + 62 * PAGE;
        self.fill(page, 2);
        let sent = self.send(function::LEND, &[(page, 2)], |d| {
            and_echo(d, ffa::READ_WRITE)
        });
        let handle = handle_sent("two-lend", sent);
        self.both_retrieve_lent(page, handle);
        equal("two-lend-wiped", self.agent_relinquishes(handle, 1), 0);
        self.rights("two-lend-agent-gone", page, NO, NO);
        self.echo_rights("two-lend-not-yet", page, rw(page ^ OURS));
        equal("two-lend-last", self.tell(task::RELINQUISH, handle, 0).0, 0);
        self.echo_rights("two-lend-echo-gone", page, NO);
        equal("two-lend-reclaim", self.reclaim(handle, 0), 0);
        self.rights("two-lend-home", page, rw(0), NO);
    }

    /// Memory that several borrow is executable for none of them. Executable memory that a second
    /// VM can write would let that VM choose the code of the first one (G1-MEM-016).
    fn both_retrieve_lent(&self, page: u64, handle: u64) {
        self.rights("two-lent", page, NO, NO);
        let executes = self.agent_retrieves(handle, |d| {
            d.flags = ALONE;
            d.permissions = ffa::READ_WRITE | ffa::EXECUTE;
        });
        equal("two-execute", executes, status::DENIED);
        let agent = self.agent_retrieves(handle, |d| d.flags = ALONE);
        equal("two-lend-agent", agent, 0);
        let (echo, _) = self.tell(task::RETRIEVE, handle, ALONE);
        equal("two-lend-echo", echo, 0);
        self.rights("two-lend-both", page, NO, rw(page ^ OURS));
        self.echo_rights("two-lend-both", page, rw(page ^ OURS));
    }

    /// As with one receiver, a refusal changes nothing. A descriptor with two receivers is judged
    /// twice, and the first receiver must not keep what the second one is refused for (G1-MEM-012).
    fn receiver_refusals(&self) {
        let page = self.arena + 64 * PAGE;
        self.fill(page, 1);
        for (name, id, expected, change) in REFUSED {
            equal(name, self.send(id, &[(page, 1)], change), Err(expected));
        }
        self.rights("two-refused", page, rw(page ^ OURS), NO);
    }
}
