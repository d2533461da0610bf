//! Commands to the agent VM, and its answers.
//!
//! The agent is another VM with a program of few commands (`ffa_agent.rs`): 1 calls FF-A, 2 loads,
//! 3 stores, 4 executes. What it may do is thus asked of the hardware, by an access from that VM,
//! and not of Gear1's tables.
//!
//! Commands and answers are words of the control page, which is shared with the agent first. A
//! number counts the commands, so that an answer is told from the one before.

use test_guests::cpu;
use test_guests::exception::catch;
use test_guests::ffa::{self, Descriptor, Regs, function, regs, status};
use test_guests::mmio::{read64, write64};
use test_guests::report::equal;

use crate::{
    AGENT, Access, OURS, OWN, PAGE, RET, THEIRS, Test, handle_or_status, handle_sent, word,
};

impl Test {
    /// Shares the control page and waits until the agent has found it. The control page is sent
    /// like all others: without a working share there is no test.
    pub(crate) fn find_agent(&self) {
        let sent = self.send(function::SHARE, &[(self.control, 3)], |descriptor| {
            descriptor.tag = 0x0063_6f6e_7472_6f6c;
        });
        handle_sent("share-control", sent);
        self.command(3, regs([self.control + 128, 1]));
    }

    /// Gives a command and waits for its answer.
    pub(crate) fn command(&self, what: u64, x: Regs) -> Regs {
        let number = read64(self.control) + 1;
        self.post(what, x, number);
        cpu::wait_until(|| read64(self.control + 8) == number);
        cpu::dsb();
        let mut result = [0; 8];
        for (index, value) in (0..).zip(&mut result) {
            *value = read64(self.control + 64 + 8 * index);
        }
        result
    }

    /// Writes a command. The number is stored last, behind a barrier, as the agent waits for it.
    pub(crate) fn post(&self, what: u64, x: Regs, number: u64) {
        write64(self.control + 16, what);
        for (index, value) in (0..).zip(x) {
            write64(self.control + 64 + 8 * index, value);
        }
        cpu::dsb();
        write64(self.control, number);
    }

    /// Makes the agent call FF-A with these registers.
    pub(crate) fn agent_calls(&self, x: Regs) -> Regs {
        self.command(1, x)
    }

    /// Returns what the agent loads, or nothing if its access aborts.
    pub(crate) fn agent_word(&self, address: u64) -> Option<u64> {
        let x = self.command(2, regs([address]));
        (x[0] == 0).then_some(x[1])
    }

    /// Tells whether a store of the agent's gets through.
    pub(crate) fn agent_stores(&self, address: u64, value: u64) -> bool {
        self.command(3, regs([address, value]))[0] == 0
    }

    /// Tells whether the agent can execute the instruction that [`Test::fill`] has put there.
    pub(crate) fn agent_executes(&self, address: u64) -> bool {
        self.command(4, regs([address]))[0] == 0
    }

    /// Makes the agent retrieve, by a right descriptor with a change. RX is released at once, as
    /// the next answer needs it.
    pub(crate) fn agent_retrieves(&self, handle: u64, change: impl FnOnce(&mut Descriptor)) -> i32 {
        let mut descriptor = Descriptor::of_retrieval(handle, OWN, AGENT);
        change(&mut descriptor);
        let size = if descriptor.second.is_some() { 80 } else { 64 };
        descriptor.write(self.control + PAGE);
        let x = self.agent_calls(regs([function::RETRIEVE_REQ, size, size]));
        if x[0] == function::RETRIEVE_RESP {
            self.agent_calls(regs([function::RX_RELEASE]));
        }
        ffa::status_of(&x)
    }

    /// Makes the agent relinquish in its own name.
    pub(crate) fn agent_relinquishes(&self, handle: u64, flags: u64) -> i32 {
        self.agent_relinquishes_for(AGENT, handle, flags)
    }

    /// The agent names `endpoint` as the one that relinquishes.
    pub(crate) fn agent_relinquishes_for(&self, endpoint: u64, handle: u64, flags: u64) -> i32 {
        let at = self.control + PAGE;
        ffa::write_relinquish(at, handle, flags, endpoint);
        ffa::status_of(&self.agent_calls(regs([function::RELINQUISH])))
    }

    /// Only who sent takes back.
    pub(crate) fn agent_may_not_reclaim(&self, name: &str, handle: u64) {
        let x = self.agent_calls(ffa::reclaim(handle, 0));
        equal(name, ffa::status_of(&x), status::INVALID);
    }

    /// Checks who can read the page, and what, and who can write it. Each side stores to a word of
    /// its own, so that the page's first word still tells whose content it is.
    pub(crate) fn rights(&self, name: &str, page: u64, ours: Access, theirs: Access) {
        let [read, written] = ours;
        equal(name, word(page), read);
        let stores = catch(|| write64(page + 8, OURS)).is_none();
        equal(name, stores, written.is_some());
        let [read, written] = theirs;
        equal(name, self.agent_word(page), read);
        let stores = self.agent_stores(page + 16, THEIRS);
        equal(name, stores, written.is_some());
    }

    /// Fills pages with words that name them, and `RET` behind.
    pub(crate) fn fill(&self, page: u64, count: u64) {
        for page in (page..).step_by(PAGE as usize).take(count as usize) {
            write64(page, page ^ OURS);
            write64(page + 64, RET);
        }
    }

    /// Makes the agent send pages to this VM.
    pub(crate) fn agent_sends(&self, id: u64, page: u64, pages: u64) -> Result<u64, i32> {
        let at = self.control + PAGE;
        Descriptor {
            pages,
            ranges: 1,
            ..Descriptor::of_call(id, AGENT, OWN)
        }
        .write(at);
        ffa::write_range(at + ffa::HEADER, page, pages);
        handle_or_status(&self.agent_calls(regs([id, 96, 96])))
    }
}
