//! VMs that end while they share memory.

use core::arch::asm;

use test_guests::cpu;
use test_guests::ffa::{function, status};
use test_guests::mmio::{read64, write64};
use test_guests::report::equal;

use crate::{NO, OURS, PAGE, Test, rw, word};

impl Test {
    /// The agent's VM is reset with memory of every kind: what it borrowed can be reclaimed, and
    /// what it was given is back, wiped.
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
        let number = read64(self.control) + 1;
        self.post(5, [0; 8], number);
        cpu::wait_until(|| word(given).is_some());
        // The new agent has found the old one's page again, and believes it done.
        write64(self.control + 8, number);
        equal("restart-given-wiped", word(given), Some(0));
        equal(
            "restart-given-ended",
            self.reclaim(handles[2], 0),
            status::INVALID,
        );
        self.rights("restart-shared", shared, rw(shared ^ OURS), NO);
        self.rights("restart-lent", lent, NO, NO);
        equal("restart-reclaim-shared", self.reclaim(handles[0], 0), 0);
        equal("restart-reclaim-lent", self.reclaim(handles[1], 0), 0);
        self.rights("restart-lent-back", lent, rw(lent ^ OURS), NO);
        fence();
    }
}

/// Nothing of what was lent is kept in a register.
fn fence() {
    // SAFETY: a barrier.
    unsafe { asm!("dsb sy", options(nostack)) };
}
