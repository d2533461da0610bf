//! Every refusal of a call that sends or retrieves, each of which changes nothing.
//!
//! Requirements: G1-MEM-012, G1-MEM-016.

use test_guests::check;
use test_guests::ffa::{self, Descriptor, function, status};
use test_guests::report::equal;

use crate::{AGENT, NO, OURS, OWN, PAGE, STRANGER, Test, ro, rw};

type Change = fn(&mut Descriptor);
type RangeCase<'a> = (&'a str, i32, &'a [(u64, u64)]);

impl Test {
    pub(crate) fn send_refusals(&self) {
        let page = self.arena + 100 * PAGE;
        self.fill(page, 4);
        let wrong: [(&str, i32, Change); 19] = [
            ("sender", status::INVALID, |d| d.sender = AGENT),
            ("attributes", status::INVALID, |d| d.attributes ^= 1 << 4),
            ("reserved-attributes", status::INVALID, |d| {
                d.attributes |= 1 << 7
            }),
            ("reserved-flags", status::INVALID, |d| d.flags = 1 << 5),
            ("time-slicing", status::INVALID, |d| d.flags = 1 << 1),
            ("handle", status::INVALID, |d| d.handle = 1),
            ("access-size", status::INVALID, |d| d.access_size = 32),
            ("no-receiver", status::INVALID, |d| d.access_count = 0),
            ("two-receivers", status::INVALID, |d| d.access_count = 2),
            ("access-offset", status::INVALID, |d| d.access_offset = 40),
            ("access-outside", status::INVALID, |d| {
                d.access_offset = 0xffff_fff0
            }),
            ("receiver-self", status::DENIED, |d| d.receiver = OWN),
            ("receiver-hypervisor", status::DENIED, |d| d.receiver = 0),
            ("receiver-no-peer", status::DENIED, |d| {
                d.receiver = STRANGER
            }),
            ("receiver-nobody", status::DENIED, |d| d.receiver = 0xffff),
            ("permissions", status::INVALID, |d| {
                d.permissions = 3 | 1 << 2
            }),
            ("no-composite", status::INVALID, |d| d.composite = 0),
            ("composite-outside", status::INVALID, |d| {
                d.composite = 0xffff_fff0
            }),
            ("ranges", status::INVALID, |d| d.ranges = 0xffff_ffff),
        ];
        for id in [function::SHARE, function::LEND, function::DONATE] {
            for (name, expected, change) in wrong {
                equal(name, self.send(id, &[(page, 2)], change), Err(expected));
            }
            let counts: [(&str, i32, Change); 4] = [
                ("pages-few", status::INVALID, |d| d.pages = 1),
                ("pages-many", status::INVALID, |d| d.pages = 3),
                ("pages-none", status::INVALID, |d| d.pages = 0),
                ("pages-limit", status::NO_MEMORY, |d| d.pages = 513),
            ];
            for (name, expected, change) in counts {
                equal(name, self.send(id, &[(page, 2)], change), Err(expected));
            }
            self.range_refusals(id, page);
        }
        let zero = self.send(function::SHARE, &[(page, 1)], |d| d.flags = ffa::ZERO);
        equal("share-wiped", zero, Err(status::INVALID));
        self.rights("after-refusals", page, rw(page ^ OURS), NO);
    }

    pub(crate) fn range_refusals(&self, id: u64, page: u64) {
        let end = self.end;
        let wrong: [RangeCase<'_>; 9] = [
            ("unaligned", status::INVALID, &[(page + 8, 1)]),
            ("empty", status::INVALID, &[(page, 1), (page + PAGE, 0)]),
            ("wraps", status::INVALID, &[(u64::MAX << 12, 1)]),
            ("twice", status::DENIED, &[(page, 2), (page + PAGE, 1)]),
            ("not-memory", status::DENIED, &[(0x900_0000, 1)]),
            ("behind", status::DENIED, &[(end - PAGE, 2)]),
            ("another's", status::DENIED, &[(end, 1)]),
            ("own-and-another's", status::DENIED, &[(page, 1), (end, 1)]),
            (
                "shared-already",
                status::DENIED,
                &[(page, 1), (self.control, 1)],
            ),
        ];
        for (name, expected, ranges) in wrong {
            equal(name, self.send(id, ranges, |_| ()), Err(expected));
            self.rights(name, page, rw(page ^ OURS), NO);
        }
        let mut size = [id, 96, 97, 0, 0, 0, 0, 0];
        self.status("fragment-longer-than-all", status::INVALID, size);
        size[2] = 0;
        self.status("fragment-empty", status::INVALID, size);
        self.status(
            "longer-than-buffer",
            status::INVALID,
            [id, 8192, 8192, 0, 0, 0, 0, 0],
        );
        self.status(
            "own-buffer",
            status::INVALID,
            [id, 96, 96, self.arena, 1, 0, 0, 0],
        );
    }

    pub(crate) fn retrieve_refusals(&self) {
        let page = self.arena + 120 * PAGE;
        self.fill(page, 2);
        let sent = self.send(function::LEND, &[(page, 2)], |d| {
            d.permissions = ffa::READ_ONLY
        });
        let handle = sent.unwrap_or_default();
        check!("lend-read-only", sent.is_ok(), "{sent:?}");
        let wrong: [(&str, i32, Change); 12] = [
            ("retrieve-sender", status::INVALID, |d| d.sender = STRANGER),
            ("retrieve-receiver", status::INVALID, |d| d.receiver = OWN),
            ("retrieve-tag", status::INVALID, |d| d.tag = 0),
            ("retrieve-handle", status::INVALID, |d| d.handle += 1),
            ("retrieve-serial", status::INVALID, |d| d.handle += 0x100),
            ("retrieve-no-handle", status::INVALID, |d| d.handle = 0),
            ("retrieve-type", status::INVALID, |d| d.flags = 1 << 3),
            ("retrieve-wiped", status::DENIED, |d| d.flags = ffa::ZERO),
            ("retrieve-wipe-after", status::INVALID, |d| {
                d.flags = ffa::ZERO_AFTER
            }),
            ("retrieve-hint", status::INVALID, |d| d.flags = 1 << 9),
            ("retrieve-write", status::DENIED, |d| {
                d.permissions = ffa::READ_WRITE
            }),
            ("retrieve-attributes", status::INVALID, |d| {
                d.attributes = 0x10
            }),
        ];
        for (name, expected, change) in wrong {
            equal(name, self.agent_retrieves(handle, change), expected);
            self.rights(name, page, NO, NO);
        }
        equal(
            "relinquish-before",
            self.agent_relinquishes(handle, 0),
            status::DENIED,
        );
        self.agent_may_not_reclaim("reclaim-by-receiver-before", handle);
        self.rights("lent-not-retrieved", page, NO, NO);
        let reads = |d: &mut Descriptor| d.permissions = ffa::READ_ONLY;
        equal("retrieve-right", self.agent_retrieves(handle, reads), 0);
        self.rights("lent-read-only", page, NO, ro(page ^ OURS));
        check!(
            "lent-never-executes",
            !self.agent_executes(page + 64),
            "executed"
        );
        equal(
            "relinquish-wiped",
            self.agent_relinquishes(handle, 1),
            status::INVALID,
        );
        equal(
            "relinquish-flags",
            self.agent_relinquishes(handle, 2),
            status::INVALID,
        );
        equal(
            "relinquish-handle",
            self.agent_relinquishes(handle + 1, 0),
            status::INVALID,
        );
        for endpoint in [0, OWN, STRANGER, 0xffff] {
            equal(
                "relinquish-for-another",
                self.agent_relinquishes_for(endpoint, handle, 0),
                status::INVALID,
            );
        }
        self.agent_may_not_reclaim("reclaim-by-receiver", handle);
        self.rights("lent-still", page, NO, ro(page ^ OURS));
        equal("relinquish-right", self.agent_relinquishes(handle, 0), 0);
        self.agent_may_not_reclaim("reclaim-by-receiver-after", handle);
        self.rights("lent-relinquished", page, NO, NO);
        equal("reclaim-flags", self.reclaim(handle, 2), status::INVALID);
        equal("reclaim-right", self.reclaim(handle, 0), 0);
        self.rights("lent-no-more", page, rw(page ^ OURS), NO);
    }
}
