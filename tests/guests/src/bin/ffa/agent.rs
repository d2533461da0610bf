//! Commands to the agent VM, and its answers.

use test_guests::exception::catch;
use test_guests::ffa::{self, Descriptor, Regs, function, status};
use test_guests::mmio::{read64, write64};
use test_guests::report::equal;
use test_guests::{check, cpu};

use crate::{AGENT, OURS, OWN, PAGE, RET, THEIRS, Test, handle_of, word};

impl Test {
    /// Shares the control page and waits until the agent has found it.
    pub(crate) fn find_agent(&self) {
        let sent = self.send(function::SHARE, &[(self.control, 3)], |descriptor| {
            descriptor.tag = 0x0063_6f6e_7472_6f6c;
        });
        check!("share-control", sent.is_ok(), "{sent:?}");
        self.command(3, [self.control + 128, 1, 0, 0, 0, 0, 0, 0]);
    }

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

    pub(crate) fn post(&self, what: u64, x: Regs, number: u64) {
        write64(self.control + 16, what);
        for (index, value) in (0..).zip(x) {
            write64(self.control + 64 + 8 * index, value);
        }
        cpu::dsb();
        write64(self.control, number);
    }

    pub(crate) fn agent_calls(&self, x: Regs) -> Regs {
        self.command(1, x)
    }

    pub(crate) fn agent_word(&self, address: u64) -> Option<u64> {
        let x = self.command(2, [address, 0, 0, 0, 0, 0, 0, 0]);
        (x[0] == 0).then_some(x[1])
    }

    pub(crate) fn agent_stores(&self, address: u64, value: u64) -> bool {
        self.command(3, [address, value, 0, 0, 0, 0, 0, 0])[0] == 0
    }

    pub(crate) fn agent_executes(&self, address: u64) -> bool {
        self.command(4, [address, 0, 0, 0, 0, 0, 0, 0])[0] == 0
    }

    pub(crate) fn agent_retrieves(&self, handle: u64, change: impl FnOnce(&mut Descriptor)) -> i32 {
        let mut descriptor = Descriptor {
            handle,
            composite: 0,
            ..Descriptor::new(OWN, AGENT)
        };
        change(&mut descriptor);
        let size = if descriptor.second.is_some() { 80 } else { 64 };
        descriptor.write(self.control + PAGE);
        let x = self.agent_calls([function::RETRIEVE_REQ, size, size, 0, 0, 0, 0, 0]);
        if x[0] == function::RETRIEVE_RESP {
            self.agent_calls([function::RX_RELEASE, 0, 0, 0, 0, 0, 0, 0]);
        }
        ffa::status_of(&x)
    }

    pub(crate) fn agent_relinquishes(&self, handle: u64, flags: u64) -> i32 {
        self.agent_relinquishes_for(AGENT, handle, flags)
    }

    /// The agent names `endpoint` as the one that relinquishes.
    pub(crate) fn agent_relinquishes_for(&self, endpoint: u64, handle: u64, flags: u64) -> i32 {
        let at = self.control + PAGE;
        ffa::write_relinquish(at, handle, flags, endpoint);
        ffa::status_of(&self.agent_calls([function::RELINQUISH, 0, 0, 0, 0, 0, 0, 0]))
    }

    /// Only who sent takes back.
    pub(crate) fn agent_may_not_reclaim(&self, name: &str, handle: u64) {
        let (low, high) = (handle & 0xffff_ffff, handle >> 32);
        let x = self.agent_calls([function::RECLAIM, low, high, 0, 0, 0, 0, 0]);
        equal(name, ffa::status_of(&x), status::INVALID);
    }

    /// Checks who can read the page, and what, and who can write it.
    pub(crate) fn rights(
        &self,
        name: &str,
        page: u64,
        ours: [Option<u64>; 2],
        theirs: [Option<u64>; 2],
    ) {
        let [read, written] = ours;
        equal(name, word(page), read);
        equal(
            name,
            catch(|| write64(page + 8, OURS)).is_none(),
            written.is_some(),
        );
        let [read, written] = theirs;
        equal(name, self.agent_word(page), read);
        equal(
            name,
            self.agent_stores(page + 16, THEIRS),
            written.is_some(),
        );
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
            permissions: if id == function::DONATE {
                0
            } else {
                ffa::READ_WRITE
            },
            pages,
            ranges: 1,
            ..Descriptor::new(AGENT, OWN)
        }
        .write(at);
        ffa::write_range(at + ffa::HEADER, page, pages);
        let x = self.agent_calls([id, 96, 96, 0, 0, 0, 0, 0]);
        match ffa::status_of(&x) {
            0 => Ok(handle_of(&x, 2)),
            status => Err(status),
        }
    }
}
