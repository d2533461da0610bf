//! Memory shared, lent and donated, and given back.
//!
//! Requirements: G1-MEM-015, G1-MEM-016.

use test_guests::check;
use test_guests::ffa::{self, Descriptor, function, regs, status};
use test_guests::mmio::write64;
use test_guests::report::equal;

use crate::{AGENT, Access, NO, OURS, OWN, PAGE, THEIRS, Test, handle_sent, ro, rw, word, word_or};

/// Flags of the calls of a transaction, of which one asks for a wipe. FF-A lets the sender, the
/// receiver or the relinquisher ask for it. Gear1 wipes before anybody else gets a page
/// (G1-MEM-015): a wipe that came late would show one VM's secrets to another VM.
#[derive(Clone, Copy, Default)]
struct Wipe {
    /// FFA_MEM_LEND's descriptor, flag 0: the borrower finds zeros instead of the owner's contents.
    before: u64,
    /// FFA_MEM_RETRIEVE_REQ's descriptor, flag 2: the borrower wants its own contents gone
    /// afterwards.
    retrieval: u64,
    /// FFA_MEM_RELINQUISH's descriptor, flag 0.
    relinquished: u64,
    /// FFA_MEM_RECLAIM, W3, flag 0: the owner has the borrower's contents wiped, and its own.
    reclaimed: u64,
}

impl Test {
    /// The sender keeps its own access (Arm DEN 0077A, FFA_MEM_SHARE), and an instruction fetch by
    /// the borrower is never granted for shared memory. Read-only makes the borrower's stage 2
    /// forbid writes (S2AP). Execution is refused with either (G1-MEM-016): the owner could change
    /// code under the borrower.
    pub(crate) fn share(&self) {
        let page = self.arena + 5 * PAGE;
        let value = page ^ OURS;
        for (permissions, theirs) in [(ffa::READ_WRITE, rw(value)), (ffa::READ_ONLY, ro(value))] {
            let handle = self.sends_share(page, permissions);
            let executable = self.agent_retrieves(handle, |descriptor| {
                descriptor.permissions = permissions | ffa::EXECUTE;
            });
            equal("share-retrieve-code", executable, status::DENIED);
            self.share_retrieved(page, handle, theirs);
            self.share_relinquished(page, handle, theirs);
            self.share_reclaimed(page, handle, theirs);
        }
    }

    /// Shares two pages. The agent has neither before its retrieval. The page behind is looked at
    /// as well: a mapping by blocks might take it along. The block of 2 MiB around both pages
    /// becomes a table of 512 descriptors, of which two may change.
    fn sends_share(&self, page: u64, permissions: u64) -> u64 {
        let value = page ^ OURS;
        self.fill(page, 2);
        self.rights("share-before", page, rw(value), NO);
        let sent = self.send(function::SHARE, &[(page, 2)], |descriptor| {
            descriptor.permissions = permissions;
        });
        let handle = handle_sent("share", sent);
        self.agent_may_not_reclaim("share-reclaim-by-agent", handle);
        self.rights("shared", page, rw(value), NO);
        let behind = page + 2 * PAGE;
        self.rights("shared-behind", behind, rw(word_or(behind)), NO);
        handle
    }

    /// A borrower retrieves once, until it relinquishes. FFA_MEM_RECLAIM is DENIED meanwhile: a
    /// page that the borrower still maps would otherwise be the owner's to donate to a third VM.
    fn share_retrieved(&self, page: u64, handle: u64, theirs: Access) {
        equal("share-retrieve", self.agent_retrieves(handle, |_| ()), 0);
        self.rights("share-retrieved", page, rw(page ^ OURS), theirs);
        let second = page + PAGE;
        let [read, written] = theirs;
        let theirs = [read.map(|_| second ^ OURS), written];
        self.rights("share-second", second, rw(second ^ OURS), theirs);
        check!("share-execute", !self.agent_executes(page + 64), "executed");
        let twice = self.agent_retrieves(handle, |_| ());
        equal("share-retrieve-twice", twice, status::DENIED);
        let early = self.reclaim(handle, 0);
        equal("share-reclaim-early", early, status::DENIED);
    }

    /// The agent relinquishes, retrieves once more, and relinquishes again. The handle lives until
    /// the owner reclaims. Each relinquish must take the page out of the borrower's stage 2 and out
    /// of the TLBs of all CPUs (G1-MEM-014).
    fn share_relinquished(&self, page: u64, handle: u64, theirs: Access) {
        let value = page ^ OURS;
        equal("share-relinquish", self.agent_relinquishes(handle, 0), 0);
        self.rights("share-relinquished", page, rw(value), NO);
        let again = self.agent_retrieves(handle, |_| ());
        equal("share-retrieve-again", again, 0);
        self.rights("share-retrieved-again", page, rw(value), theirs);
        let again = self.agent_relinquishes(handle, 0);
        equal("share-relinquish-again", again, 0);
    }

    /// A dead handle must not name another transaction. The number in a handle grows with each
    /// transaction, so the old handle is INVALID and not another one's.
    fn share_reclaimed(&self, page: u64, handle: u64, theirs: Access) {
        equal("share-reclaim", self.reclaim(handle, 0), 0);
        self.rights("share-reclaimed", page, rw(page ^ OURS), NO);
        let [_, written] = theirs;
        let kept = match written {
            Some(_) => THEIRS,
            None => word_or(page + 16),
        };
        equal("share-their-word", word(page + 16), Some(kept));
        let dead = self.reclaim(handle, 0);
        equal("share-handle-dead", dead, status::INVALID);
        write64(page + 16, 0);
    }

    /// The owner loses access (FFA_MEM_LEND); the borrower may execute if the owner allows it. 512
    /// pages are the most of one transaction. Their block becomes a table for the time of the loan,
    /// and a block again only when all of its pages are back.
    pub(crate) fn lend(&self) {
        // A whole table's span, and a piece that begins in the middle of a block.
        for (page, count) in [(self.arena + (2 << 20), 512), (self.arena + 17 * PAGE, 3)] {
            self.fill(page, count);
            let sent = self.send(function::LEND, &[(page, count)], |_| ());
            let handle = handle_sent("lend", sent);
            self.lent(page, count, handle);
            self.lend_ends(page, handle);
        }
        self.lend_wiped();
    }

    /// Checks that this VM loses all pages by the call, and that the agent has all from its
    /// retrieval on. The owner's descriptor of a lent page is invalid and names the transaction, so
    /// an access of the owner's ends in an external abort (G1-FLT-001). A TLB entry that survived
    /// would still let the owner in (G1-MEM-014).
    fn lent(&self, page: u64, count: u64, handle: u64) {
        let last = page + (count - 1) * PAGE;
        let behind = last + PAGE;
        self.rights("lent", page, NO, NO);
        self.rights("lent-last", last, NO, NO);
        self.rights("lent-behind", behind, rw(word_or(behind)), NO);
        let retrieved = self.agent_retrieves(handle, |descriptor| {
            descriptor.permissions = ffa::READ_WRITE | ffa::EXECUTE;
        });
        equal("lend-retrieve", retrieved, 0);
        self.rights("lend-retrieved", page, NO, rw(page ^ OURS));
        self.rights("lend-retrieved-last", last, NO, rw(last ^ OURS));
        self.rights("lend-retrieved-behind", behind, rw(word_or(behind)), NO);
        check!("lend-execute", self.agent_executes(page + 64), "aborts");
    }

    /// The owner has its memory back by FFA_MEM_RECLAIM alone, not by the relinquishing. Between
    /// the two calls nobody has the memory. Contents of the borrower's stay unless somebody asked
    /// for a wipe.
    fn lend_ends(&self, page: u64, handle: u64) {
        let early = self.reclaim(handle, 0);
        equal("lend-reclaim-early", early, status::DENIED);
        equal("lend-relinquish", self.agent_relinquishes(handle, 0), 0);
        self.rights("lend-relinquished", page, NO, NO);
        equal("lend-reclaim", self.reclaim(handle, 0), 0);
        self.rights("lend-reclaimed", page, rw(page ^ OURS), NO);
        equal("lend-their-word", word(page + 16), Some(THEIRS));
    }

    /// Every way of wiping: before, after, and when it is reclaimed. Whoever asked, the owner finds
    /// zeros in the end: a wipe before the retrieval leaves nothing of the owner's either.
    fn lend_wiped(&self) {
        for wipe in [
            Wipe {
                before: ffa::ZERO,
                ..Wipe::default()
            },
            Wipe {
                retrieval: ffa::ZERO_AFTER,
                ..Wipe::default()
            },
            Wipe {
                relinquished: 1,
                ..Wipe::default()
            },
            Wipe {
                reclaimed: 1,
                ..Wipe::default()
            },
        ] {
            self.lend_wiped_by(wipe);
        }
    }

    /// Lends two ranges: their pages are wiped, and the page between keeps its words. Gear1 wipes 8
    /// pages a step, so that 18 pages take two whole pieces and a rest; the second range is a piece
    /// of its own. A wipe by the transaction's span instead of its ranges would reach the page
    /// between.
    fn lend_wiped_by(&self, wipe: Wipe) {
        let page = self.arena + 40 * PAGE;
        self.fill(page, 20);
        let ranges = [(page, 18), (page + 19 * PAGE, 1)];
        let sent = self.send(function::LEND, &ranges, |d| d.flags = wipe.before);
        let handle = sent.unwrap_or_default();
        let retrieved = self.agent_retrieves(handle, |d| d.flags = wipe.retrieval);
        equal("wipe-retrieve", retrieved, 0);
        let seen = if wipe.before == 0 { page ^ OURS } else { 0 };
        self.rights("wipe-before", page, NO, rw(seen));
        let relinquished = self.agent_relinquishes(handle, wipe.relinquished);
        equal("wipe-relinquish", relinquished, 0);
        equal("wipe-reclaim", self.reclaim(handle, wipe.reclaimed), 0);
        for part in [page, page + 17 * PAGE, page + 19 * PAGE] {
            equal("wiped", word(part), Some(0));
        }
        let kept = page + 18 * PAGE;
        equal("wipe-between", word(kept), Some(kept ^ OURS));
    }

    /// Ownership passes with the retrieval (FFA_MEM_DONATE), and no reclaim brings it back. The
    /// manifest's owner stays the home of the page: a restart of either VM would bring the page
    /// back there (G1-MEM-017).
    pub(crate) fn donate(&self) {
        let page = self.arena + 80 * PAGE;
        self.fill(page, 4);
        let sent = self.send(function::DONATE, &[(page, 4)], |_| ());
        let handle = handle_sent("donate", sent);
        self.donated(page, handle);
        // The agent donates the range back in two parts.
        for (part, pages) in [(page + PAGE, 3), (page, 1)] {
            self.donated_back(part, pages);
        }
        equal("donate-ended", self.reclaim(handle, 0), status::INVALID);
        equal("donate-their-word", word(page + 16), Some(THEIRS));
        self.rights("donate-home-again", page, rw(page ^ OURS), NO);
    }

    /// The agent has what it retrieved for good, and lends none of it yet. Donated memory goes to
    /// nobody but its home: a chain of owners would have to be undone when one of them ends. A
    /// donation has no borrower, so the agent has nothing to relinquish.
    fn donated(&self, page: u64, handle: u64) {
        self.rights("donated", page, NO, NO);
        equal("donate-retrieve", self.agent_retrieves(handle, |_| ()), 0);
        self.rights("donate-retrieved", page, NO, rw(page ^ OURS));
        equal("donate-reclaim", self.reclaim(handle, 0), status::DENIED);
        let relinquished = self.agent_relinquishes(handle, 0);
        equal("donate-relinquish", relinquished, status::DENIED);
        let lent = self.agent_sends(function::LEND, page, 1);
        equal("donate-lend-by-agent", lent, Err(status::DENIED));
    }

    /// Parts of a donation come home by donations of their own. A transaction of the way home ends
    /// with its retrieval, which is why no reclaim follows. The request of 64 bytes has no ranges:
    /// the response tells them, and RX is the receiver's until FFA_RX_RELEASE.
    fn donated_back(&self, part: u64, pages: u64) {
        let sent = self.agent_sends(function::DONATE, part, pages);
        let back = handle_sent("donate-back", sent);
        self.rights("donated-back", part, NO, NO);
        Descriptor::of_retrieval(back, AGENT, OWN).write(self.tx);
        let x = self.call(regs([function::RETRIEVE_REQ, 64, 64]));
        equal("donate-back-retrieve", x[0], function::RETRIEVE_RESP);
        let range = ffa::read_range(self.rx + ffa::HEADER);
        equal("donate-back-range", range, (part, pages));
        self.call(regs([function::RX_RELEASE]));
        self.rights("donate-home", part, rw(part ^ OURS), NO);
    }
}
