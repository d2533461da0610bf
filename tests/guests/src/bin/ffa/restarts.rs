//! VMs that end while they share memory.
//!
//! A VM that ends calls nothing, so that its share of each transaction has to be undone for it.
//! Gear1 does so in steps when the VM is loaded anew (`ffa::release`), and needs nothing that could
//! be refused meanwhile (G1-MEM-017).

use core::arch::asm;

use test_guests::ffa::{function, status, task};
use test_guests::mmio::{read64, write64};
use test_guests::report::equal;
use test_guests::{Machine, check, cpu, psci};

use crate::{BLOCK, ECHO, NO, OURS, PAGE, Test, rw, word};

impl Test {
    /// Resets the agent's VM while it holds memory of every kind: borrowed memory can be reclaimed,
    /// and memory that it received is back, wiped. Lent memory comes back by a reclaim only, as its
    /// owner has not asked for it yet.
    pub(crate) fn agent_restarts(&self) {
        let (shared, lent, given) = (self.arena, self.arena + 3 * PAGE, self.arena + 6 * PAGE);
        self.fill(self.arena, 8);
        let send = |id, page| self.send(id, &[(page, 2)], |_| ()).unwrap_or_default();
        let handles = [
            send(function::SHARE, shared),
            send(function::LEND, lent),
            send(function::DONATE, given),
        ];
        for handle in handles {
            equal("restart-retrieve", self.agent_retrieves(handle, |_| ()), 0);
        }
        self.rights("restart-given", given, NO, rw(given ^ OURS));
        self.agent_resets(given);
        self.donation_ends(handles[2]);
        self.rights("restart-shared", shared, rw(shared ^ OURS), NO);
        self.rights("restart-lent", lent, NO, NO);
        equal("restart-reclaim-shared", self.reclaim(handles[0], 0), 0);
        equal("restart-reclaim-lent", self.reclaim(handles[1], 0), 0);
        self.rights("restart-lent-back", lent, rw(lent ^ OURS), NO);
        fence();
    }

    /// Resets the agent's VM, and waits for the page that it was given. Donated memory belongs to
    /// the receiver. When the receiver ends, the memory returns to the VM that the manifest gave it
    /// to, and is wiped, since its contents were the receiver's.
    fn agent_resets(&self, given: u64) {
        let number = read64(self.control) + 1;
        self.post(5, [0; 8], number);
        cpu::wait_until(|| word(given).is_some());
        // The new agent has found the old one's page again, and believes it done.
        write64(self.control + 8, number);
        equal("restart-given-wiped", word(given), Some(0));
    }

    /// Waits for the donation's end, which comes some steps after its pages are back. DENIED says
    /// that the transaction still lives, and INVALID_PARAMETERS that there is none of that handle.
    fn donation_ends(&self, handle: u64) {
        let reclaim = || self.reclaim(handle, 0);
        cpu::wait_until(|| reclaim() != status::DENIED);
        equal("restart-given-ended", reclaim(), status::INVALID);
    }

    /// Memory that the echo holds when this VM is reset: shared, lent and donated. Each takes two
    /// pages, since the last page of a range is easily forgotten.
    fn held(&self) -> [(u64, u64); 3] {
        [
            (function::SHARE, self.arena),
            (function::LEND, self.arena + 2 * PAGE),
            (function::DONATE, self.arena + 4 * PAGE),
        ]
    }

    /// Whole blocks, of every kind as well, that the echo holds besides. Aligned blocks are what
    /// stage 2 maps by one descriptor each.
    fn blocks(&self) -> [(u64, u64); 3] {
        let block = |number: u64| self.arena + (2 + number) * BLOCK;
        [
            (function::SHARE, block(0)),
            (function::LEND, block(1)),
            (function::DONATE, block(2)),
        ]
    }

    /// The echo retrieves whole blocks. When it has used up all the tables that it may have, what
    /// takes them away from it needs none (G1-MEM-017). A release that wanted to split a block
    /// would need a table at the worst of all times.
    fn blocks_for_the_echo(&self) {
        for (id, block) in self.blocks() {
            write64(block, block ^ OURS);
            let sent = self.send(id, &[(block, BLOCK / PAGE)], |descriptor| {
                descriptor.receiver = ECHO;
            });
            let retrieved = self.tell(task::RETRIEVE, sent.unwrap_or_default(), 0).0;
            equal("owner-restarts-block", (sent.is_ok(), retrieved), (true, 0));
            let seen = self.tell(task::READ, block, 0);
            equal("owner-restarts-block-read", seen, (0, block ^ OURS));
        }
    }

    /// The life after: the echo neither reads nor writes what this VM has now. The first page, one
    /// in the middle and the last one are written: parts of a block that were split by mistake may
    /// have different fates. FFA_MEM_RECLAIM of what the echo itself has shared still works.
    fn blocks_are_alone(&self) {
        const NEW: u64 = 0x5ec2e7;
        for (_, block) in self.blocks() {
            for at in [block, block + BLOCK / 2, block + BLOCK - PAGE] {
                write64(at, NEW);
                let (read, _) = self.tell(task::READ, at, 0);
                check!("owner-restarted-block-read", read != 0, "it can be read");
                let (written, _) = self.tell(task::WRITE, at, OURS);
                let aborted = written != 0;
                check!("owner-restarted-block-written", aborted, "it is written");
                equal("owner-restarted-block", word(at), Some(NEW));
            }
        }
        let (refused, _) = self.tell(task::RECOVER, 0, 0);
        equal("owner-restarted-recover", refused, 0);
    }

    /// Resets this VM while another has memory of it of every kind. The echo's count of lives tells
    /// the next life that it is the second one.
    pub(crate) fn restarts(&self) {
        // These transactions come first, so that they end first: no table is free then.
        self.blocks_for_the_echo();
        self.echo_holds("owner-restarts-retrieve", "owner-restarts-read");
        let (_, pages) = self.tell(task::EXHAUST, 0, 0);
        check!("owner-restarts-exhausted", pages > 16, "{pages} pages");
        equal("owner-restarts", self.tell(task::COUNT, 0, 0).0, 1);
        psci::system_reset();
    }

    /// Sends memory of every kind to the echo, which retrieves and reads it. The value read shows
    /// that the echo had the pages: without that, their loss would prove nothing.
    fn echo_holds(&self, retrieval: &str, reading: &str) {
        self.fill(self.arena, 6);
        for (id, page) in self.held() {
            let sent = self.send(id, &[(page, 2)], |descriptor| descriptor.receiver = ECHO);
            let retrieved = self.tell(task::RETRIEVE, sent.unwrap_or_default(), 0).0;
            equal(retrieval, retrieved, 0);
            let seen = self.tell(task::READ, page, 0);
            equal(reading, seen, (0, page ^ OURS));
        }
    }

    /// The life after: all is at home, wiped, and nobody else's; it can be shared anew. The memory
    /// is wiped as all memory of a VM that is loaded anew is. A second exchange shows that no
    /// transaction of the first life occupies its place.
    pub(crate) fn after_restart(&self, machine: &Machine) {
        for (_, page) in self.held() {
            for page in [page, page + PAGE] {
                let words = [word(page), word(page + 64)];
                equal("owner-restarted-wiped", words, [Some(0); 2]);
                let (aborted, _) = self.tell(task::READ, page, 0);
                check!("owner-restarted-taken", aborted != 0, "it can be read");
            }
        }
        self.blocks_are_alone();
        self.buffers(machine);
        self.echo_holds("owner-restarted-anew", "owner-restarted-read");
        self.echo_ends("asked-goes-off", task::OFF);
    }
}

/// Completes all accesses so far, so that no register keeps a lent value. A load that was made
/// before the page went away must not be used behind it.
fn fence() {
    // SAFETY: a barrier.
    unsafe { asm!("dsb sy", options(nostack)) };
}
