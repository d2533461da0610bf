//! Descriptors in parts, and more transactions than there are.

use test_guests::check;
use test_guests::ffa::{self, Descriptor, function, status};
use test_guests::report::equal;

use crate::{AGENT, NO, OURS, OWN, PAGE, Test, handle_of, rw};

impl Test {
    /// Every second page, in a descriptor of several parts.
    pub(crate) fn fragments(&self) {
        const COUNT: u64 = 256;
        let page = self.arena + (2 << 20);
        self.fill(page, 2 * COUNT);
        let at = |index: u64| page + 2 * index * PAGE;
        let refused = self.send_parts(page, COUNT, 300);
        equal("fragment-too-many", refused.err(), Some(status::INVALID));
        self.rights("fragments-refused", page, rw(page ^ OURS), NO);
        let sent = self.send_parts(page, COUNT, COUNT);
        let handle = sent.unwrap_or_default();
        check!("fragments", sent.is_ok(), "{sent:?}");
        self.rights("fragments-lent", at(COUNT - 1), NO, NO);
        Descriptor {
            handle,
            composite: 0,
            ..Descriptor::new(OWN, AGENT)
        }
        .write(self.control + PAGE);
        let x = self.agent_calls([function::RETRIEVE_REQ, 64, 64, 0, 0, 0, 0, 0]);
        let total = ffa::HEADER + 16 * COUNT;
        equal(
            "fragments-retrieve",
            (x[0], x[1], x[2]),
            (function::RETRIEVE_RESP, total, PAGE),
        );
        let rx = self.control + 2 * PAGE;
        let known = (PAGE - ffa::HEADER) / 16;
        let right = (0..known).all(|i| ffa::read_range(rx + ffa::HEADER + 16 * i) == (at(i), 1));
        check!("fragments-first", right, "other ranges");
        let more = [
            function::FRAG_RX,
            handle & 0xffff_ffff,
            handle >> 32,
            PAGE,
            0,
            0,
            0,
            0,
        ];
        equal(
            "fragments-rx-taken",
            ffa::status_of(&self.agent_calls(more)),
            status::BUSY,
        );
        self.agent_calls([function::RX_RELEASE, 0, 0, 0, 0, 0, 0, 0]);
        let x = self.agent_calls(more);
        equal(
            "fragments-rest",
            (x[0], x[3]),
            (function::FRAG_TX, total - PAGE),
        );
        let right = (known..COUNT).all(|i| ffa::read_range(rx + 16 * (i - known)) == (at(i), 1));
        check!("fragments-last", right, "other ranges");
        self.agent_calls([function::RX_RELEASE, 0, 0, 0, 0, 0, 0, 0]);
        for index in [0, known, COUNT - 1] {
            self.rights("fragments-page", at(index), NO, rw(at(index) ^ OURS));
            let between = at(index) + PAGE;
            self.rights("fragments-between", between, rw(between ^ OURS), NO);
        }
        equal(
            "fragments-relinquish",
            self.agent_relinquishes(handle, 0),
            0,
        );
        equal("fragments-reclaim", self.reclaim(handle, 0), 0);
        self.rights(
            "fragments-reclaimed",
            at(COUNT - 1),
            rw(at(COUNT - 1) ^ OURS),
            NO,
        );
    }

    /// Lends `said` single pages, of which it names `count`, a hundred a part.
    pub(crate) fn send_parts(&self, page: u64, said: u64, count: u64) -> Result<u64, i32> {
        Descriptor {
            permissions: ffa::READ_WRITE,
            pages: said,
            ranges: said,
            ..Descriptor::new(OWN, AGENT)
        }
        .write(self.tx);
        let total = ffa::HEADER + 16 * said;
        let (mut offset, mut first, mut handle) = (ffa::HEADER, 0, 0);
        loop {
            let last = (first + 100).min(count);
            for index in first..last {
                let to = self.tx + offset + 16 * (index - first);
                ffa::write_range(to, page + 2 * index * PAGE, 1);
            }
            let size = offset + 16 * (last - first);
            let x = if first == 0 {
                self.call([function::LEND, total, size, 0, 0, 0, 0, 0])
            } else {
                let (low, high) = (handle & 0xffff_ffff, handle >> 32);
                self.call([function::FRAG_TX, low, high, size, 0, 0, 0, 0])
            };
            if x[0] != function::FRAG_RX {
                return match ffa::status_of(&x) {
                    0 => Ok(handle_of(&x, 2)),
                    status => Err(status),
                };
            }
            handle = handle_of(&x, 1);
            offset = 0;
            first = last;
            equal("fragment-offset", x[3], ffa::HEADER + 16 * first);
        }
    }

    /// Makes all transactions of a VM, and then one more.
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
        let reclaimed = handles[..count]
            .iter()
            .all(|handle| self.reclaim(*handle, 0) == 0);
        check!("exhausted-reclaim", reclaimed, "refused");
        self.rights("exhausted-reclaimed", page, rw(page ^ OURS), NO);
    }
}
