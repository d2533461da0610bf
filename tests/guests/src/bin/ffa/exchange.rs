//! Memory shared, lent and donated, and given back.
//!
//! Requirements: G1-MEM-015, G1-MEM-016.

use test_guests::check;
use test_guests::ffa::{self, Descriptor, function, status};
use test_guests::mmio::write64;
use test_guests::report::equal;

use crate::{AGENT, NO, OURS, OWN, PAGE, THEIRS, Test, ro, rw, word, word_or};

impl Test {
    pub(crate) fn share(&self) {
        let page = self.arena + 5 * PAGE;
        let value = page ^ OURS;
        for (permissions, theirs) in [(ffa::READ_WRITE, rw(value)), (ffa::READ_ONLY, ro(value))] {
            self.fill(page, 2);
            self.rights("share-before", page, rw(value), NO);
            let sent = self.send(function::SHARE, &[(page, 2)], |descriptor| {
                descriptor.permissions = permissions;
            });
            let handle = sent.unwrap_or_default();
            check!("share", sent.is_ok(), "{sent:?}");
            self.agent_may_not_reclaim("share-reclaim-by-agent", handle);
            self.rights("shared", page, rw(value), NO);
            self.rights(
                "shared-behind",
                page + 2 * PAGE,
                rw(word_or(page + 2 * PAGE)),
                NO,
            );
            let executable = self.agent_retrieves(handle, |descriptor| {
                descriptor.permissions = permissions | ffa::EXECUTE;
            });
            equal("share-retrieve-code", executable, status::DENIED);
            equal("share-retrieve", self.agent_retrieves(handle, |_| ()), 0);
            self.rights("share-retrieved", page, rw(value), theirs);
            self.rights("share-second", page + PAGE, rw((page + PAGE) ^ OURS), {
                [theirs[0].map(|_| (page + PAGE) ^ OURS), theirs[1]]
            });
            check!("share-execute", !self.agent_executes(page + 64), "executed");
            equal(
                "share-retrieve-twice",
                self.agent_retrieves(handle, |_| ()),
                status::DENIED,
            );
            equal(
                "share-reclaim-early",
                self.reclaim(handle, 0),
                status::DENIED,
            );
            equal("share-relinquish", self.agent_relinquishes(handle, 0), 0);
            self.rights("share-relinquished", page, rw(value), NO);
            equal(
                "share-retrieve-again",
                self.agent_retrieves(handle, |_| ()),
                0,
            );
            self.rights("share-retrieved-again", page, rw(value), theirs);
            equal(
                "share-relinquish-again",
                self.agent_relinquishes(handle, 0),
                0,
            );
            equal("share-reclaim", self.reclaim(handle, 0), 0);
            self.rights("share-reclaimed", page, rw(value), NO);
            let written = if theirs[1].is_some() {
                THEIRS
            } else {
                word_or(page + 16)
            };
            equal("share-their-word", word(page + 16), Some(written));
            equal(
                "share-handle-dead",
                self.reclaim(handle, 0),
                status::INVALID,
            );
            write64(page + 16, 0);
        }
    }

    pub(crate) fn lend(&self) {
        // A whole table's span, and a piece that begins in the middle of a block.
        for (page, count) in [(self.arena + (2 << 20), 512), (self.arena + 17 * PAGE, 3)] {
            let value = page ^ OURS;
            self.fill(page, count);
            let last = page + (count - 1) * PAGE;
            let sent = self.send(function::LEND, &[(page, count)], |_| ());
            let handle = sent.unwrap_or_default();
            check!("lend", sent.is_ok(), "{sent:?}");
            self.rights("lent", page, NO, NO);
            self.rights("lent-last", last, NO, NO);
            self.rights("lent-behind", last + PAGE, rw(word_or(last + PAGE)), NO);
            let retrieved = self.agent_retrieves(handle, |descriptor| {
                descriptor.permissions = ffa::READ_WRITE | ffa::EXECUTE;
            });
            equal("lend-retrieve", retrieved, 0);
            self.rights("lend-retrieved", page, NO, rw(value));
            self.rights("lend-retrieved-last", last, NO, rw(last ^ OURS));
            self.rights(
                "lend-retrieved-behind",
                last + PAGE,
                rw(word_or(last + PAGE)),
                NO,
            );
            check!("lend-execute", self.agent_executes(page + 64), "aborts");
            equal(
                "lend-reclaim-early",
                self.reclaim(handle, 0),
                status::DENIED,
            );
            equal("lend-relinquish", self.agent_relinquishes(handle, 0), 0);
            self.rights("lend-relinquished", page, NO, NO);
            equal("lend-reclaim", self.reclaim(handle, 0), 0);
            self.rights("lend-reclaimed", page, rw(value), NO);
            equal("lend-their-word", word(page + 16), Some(THEIRS));
        }
        self.lend_wiped();
    }

    /// Every way of wiping: before, after, and when it is reclaimed.
    pub(crate) fn lend_wiped(&self) {
        let page = self.arena + 40 * PAGE;
        for (before, retrieval, relinquished, reclaimed) in [
            (ffa::ZERO, 0, 0, 0),
            (0, ffa::ZERO_AFTER, 0, 0),
            (0, 0, 1, 0),
            (0, 0, 0, 1),
        ] {
            self.fill(page, 20);
            let ranges = [(page, 18), (page + 19 * PAGE, 1)];
            let sent = self.send(function::LEND, &ranges, |descriptor| {
                descriptor.flags = before
            });
            let handle = sent.unwrap_or_default();
            let retrieved = self.agent_retrieves(handle, |descriptor| descriptor.flags = retrieval);
            equal("wipe-retrieve", retrieved, 0);
            let seen = if before == 0 { page ^ OURS } else { 0 };
            self.rights("wipe-before", page, NO, rw(seen));
            equal(
                "wipe-relinquish",
                self.agent_relinquishes(handle, relinquished),
                0,
            );
            equal("wipe-reclaim", self.reclaim(handle, reclaimed), 0);
            for part in [page, page + 17 * PAGE, page + 19 * PAGE] {
                equal("wiped", word(part), Some(0));
            }
            let kept = page + 18 * PAGE;
            equal("wipe-between", word(kept), Some(kept ^ OURS));
        }
    }

    pub(crate) fn donate(&self) {
        let page = self.arena + 80 * PAGE;
        let value = page ^ OURS;
        self.fill(page, 4);
        let sent = self.send(function::DONATE, &[(page, 4)], |_| ());
        let handle = sent.unwrap_or_default();
        check!("donate", sent.is_ok(), "{sent:?}");
        self.rights("donated", page, NO, NO);
        equal("donate-retrieve", self.agent_retrieves(handle, |_| ()), 0);
        self.rights("donate-retrieved", page, NO, rw(value));
        equal("donate-reclaim", self.reclaim(handle, 0), status::DENIED);
        equal(
            "donate-relinquish",
            self.agent_relinquishes(handle, 0),
            status::DENIED,
        );
        equal(
            "donate-lend-by-agent",
            self.agent_sends(function::LEND, page, 1),
            Err(status::DENIED),
        );
        // The agent donates the range back in two parts.
        for (part, pages) in [(page + PAGE, 3), (page, 1)] {
            let sent = self.agent_sends(function::DONATE, part, pages);
            let back = sent.unwrap_or_default();
            check!("donate-back", sent.is_ok(), "{sent:?}");
            self.rights("donated-back", part, NO, NO);
            Descriptor {
                handle: back,
                composite: 0,
                ..Descriptor::new(AGENT, OWN)
            }
            .write(self.tx);
            let x = self.call([function::RETRIEVE_REQ, 64, 64, 0, 0, 0, 0, 0]);
            equal("donate-back-retrieve", x[0], function::RETRIEVE_RESP);
            let range = ffa::read_range(self.rx + ffa::HEADER);
            equal("donate-back-range", range, (part, pages));
            self.call([function::RX_RELEASE, 0, 0, 0, 0, 0, 0, 0]);
            self.rights("donate-home", part, rw(part ^ OURS), NO);
        }
        equal("donate-ended", self.reclaim(handle, 0), status::INVALID);
        equal("donate-their-word", word(page + 16), Some(THEIRS));
        self.rights("donate-home-again", page, rw(value), NO);
    }
}
