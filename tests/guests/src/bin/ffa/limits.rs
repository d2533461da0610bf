//! Descriptors in parts, and more transactions than there are.

use core::ops::Range;

use test_guests::check;
use test_guests::ffa::{self, Descriptor, Regs, function, regs, status};
use test_guests::report::equal;

use crate::{AGENT, NO, OURS, OWN, PAGE, Test, handle_or_status, handle_sent, rw};

/// Number of single pages that [`Parts`] lends. More ranges than one page holds, so that both
/// directions take fragments. One page has room for 251 ranges behind a header of 80 bytes.
const COUNT: u64 = 256;
/// Number of ranges that fit into the first part of a retrieval's response. Gear1 writes only whole
/// ranges to RX.
const IN_FIRST: u64 = (PAGE - ffa::HEADER) / 16;
/// Number of ranges in a part of what is sent. 256 ranges are three parts then, of which the last
/// is shorter.
const IN_PART: u64 = 100;

/// Every second page from `page` on, lent in a descriptor of several parts. FFA_MEM_FRAG_TX and
/// FFA_MEM_FRAG_RX hand a long descriptor over in pieces.
struct Parts<'t> {
    test: &'t Test,
    page: u64,
}

impl Parts<'_> {
    /// Returns the address of a page that is lent. Pages between stay the owner's, so no two ranges
    /// can be joined to one.
    fn at(&self, index: u64) -> u64 {
        self.page + 2 * index * PAGE
    }

    /// Lends `said` single pages, of which it names `count`. The receiver of fragments says how
    /// much it has: the offset of the next one. Gear1 asks by FFA_MEM_FRAG_RX, with the handle and
    /// the offset of the part that it wants next. `said` and `count` differ where a descriptor
    /// promises more than follows.
    fn send(&self, said: u64, count: u64) -> Result<u64, i32> {
        let test = self.test;
        Descriptor {
            pages: said,
            ranges: said,
            ..Descriptor::of_call(function::LEND, OWN, AGENT)
        }
        .write(test.tx);
        let total = ffa::HEADER + 16 * said;
        let size = self.write_part(ffa::HEADER, 0, count);
        let mut x = test.call(regs([function::LEND, total, size]));
        let mut first = IN_PART.min(count);
        while x[0] == function::FRAG_RX {
            equal("fragment-offset", x[3], ffa::HEADER + 16 * first);
            let size = self.write_part(0, first, count);
            x = test.call(regs([function::FRAG_TX, x[1], x[2], size]));
            first = (first + IN_PART).min(count);
        }
        handle_or_status(&x)
    }

    /// Writes the ranges of a part to TX, from `offset` on. Returns the bytes of the part. The
    /// first part begins behind the header, all others at the beginning of TX.
    fn write_part(&self, offset: u64, first: u64, count: u64) -> u64 {
        let ranges = first..(first + IN_PART).min(count);
        let mut size = offset;
        for index in ranges {
            ffa::write_range(self.test.tx + size, self.at(index), 1);
            size += 16;
        }
        size
    }

    /// The agent retrieves in two parts. The second follows when it has released the first. RX
    /// belongs to the borrower until FFA_RX_RELEASE. BUSY is the answer to FFA_MEM_FRAG_RX before
    /// that: Gear1 must not write to a page that the borrower still reads. X1 of the response is
    /// the whole length, X2 the part's.
    fn retrieved(&self, handle: u64) {
        let test = self.test;
        Descriptor::of_retrieval(handle, OWN, AGENT).write(test.control + PAGE);
        let x = test.agent_calls(regs([function::RETRIEVE_REQ, 64, 64]));
        let total = ffa::HEADER + 16 * COUNT;
        let expected = (function::RETRIEVE_RESP, total, PAGE);
        equal("fragments-retrieve", (x[0], x[1], x[2]), expected);
        self.ranges("fragments-first", ffa::HEADER, 0..IN_FIRST);
        let (low, high) = (handle & 0xffff_ffff, handle >> 32);
        let more = regs([function::FRAG_RX, low, high, PAGE]);
        let status = ffa::status_of(&test.agent_calls(more));
        equal("fragments-rx-taken", status, status::BUSY);
        let release: Regs = regs([function::RX_RELEASE]);
        test.agent_calls(release);
        let x = test.agent_calls(more);
        let expected = (function::FRAG_TX, total - PAGE);
        equal("fragments-rest", (x[0], x[3]), expected);
        self.ranges("fragments-last", 0, IN_FIRST..COUNT);
        test.agent_calls(release);
    }

    /// Checks the ranges that the agent's RX holds from `offset` on.
    fn ranges(&self, name: &str, offset: u64, indices: Range<u64>) {
        let rx = self.test.control + 2 * PAGE + offset;
        let mut ranges = (rx..).step_by(16).zip(indices);
        let right = ranges.all(|(at, index)| ffa::read_range(at) == (self.at(index), 1));
        check!(name, right, "other ranges");
    }

    /// Checks that the agent has a page, and not the one behind. Single pages with gaps, so that a
    /// mapping by blocks would show. Both sides' descriptors are at level 3, and each of the 256
    /// has neighbours of the other kind.
    fn rights(&self, index: u64) {
        let page = self.at(index);
        self.test
            .rights("fragments-page", page, NO, rw(page ^ OURS));
        let between = page + PAGE;
        self.test
            .rights("fragments-between", between, rw(between ^ OURS), NO);
    }
}

impl Test {
    /// Every second page, in a descriptor of several parts. A descriptor that names more ranges
    /// than it has is refused at its end. Nothing of the refused call is left (G1-MEM-012). Both
    /// edges between the parts of a response are looked at.
    pub(crate) fn fragments(&self) {
        let page = self.arena + (2 << 20);
        self.fill(page, 2 * COUNT);
        let parts = Parts { test: self, page };
        let refused = parts.send(COUNT, 300);
        equal("fragment-too-many", refused.err(), Some(status::INVALID));
        self.rights("fragments-refused", page, rw(page ^ OURS), NO);
        let handle = handle_sent("fragments", parts.send(COUNT, COUNT));
        let last = parts.at(COUNT - 1);
        self.rights("fragments-lent", last, NO, NO);
        parts.retrieved(handle);
        for index in [0, IN_FIRST, COUNT - 1] {
            parts.rights(index);
        }
        let relinquished = self.agent_relinquishes(handle, 0);
        equal("fragments-relinquish", relinquished, 0);
        equal("fragments-reclaim", self.reclaim(handle, 0), 0);
        self.rights("fragments-reclaimed", last, rw(last ^ OURS), NO);
    }

    /// Makes all transactions of a VM, and then one more. A VM may fill its own share of the
    /// transactions, and no other VM's. The machine has 32 transactions, and each VM that may share
    /// memory an equal part (G1-MEM-019): a VM that could take all would keep its neighbours from
    /// sharing. The refused call changes nothing (G1-MEM-012).
    pub(crate) fn exhaustion(&self) {
        let page = self.arena + 200 * PAGE;
        self.fill(page, 40);
        let mut handles = [0; 40];
        let mut count = 0;
        let refused = loop {
            match self.send(function::LEND, &[(page + count as u64 * PAGE, 1)], |_| ()) {
                Ok(handle) => handles[count] = handle,
                Err(status) => break status,
            }
            count += 1;
        };
        equal("exhausted", refused, status::NO_MEMORY);
        // A third of the machine's 32, without the control page.
        equal("exhausted-after", count, 9);
        let next = page + count as u64 * PAGE;
        self.rights("exhausted-changes-nothing", next, rw(next ^ OURS), NO);
        let mut handles = handles[..count].iter();
        let reclaimed = handles.all(|handle| self.reclaim(*handle, 0) == 0);
        check!("exhausted-reclaim", reclaimed, "refused");
        self.rights("exhausted-reclaimed", page, rw(page ^ OURS), NO);
    }
}
