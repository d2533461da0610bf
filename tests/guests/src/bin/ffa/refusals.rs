//! Every refusal of a call that sends or retrieves, each of which changes nothing.
//!
//! Requirements: G1-MEM-012, G1-MEM-016.
//!
//! Each case is right but for one field, so that the status tells which check refused.
//! INVALID_PARAMETERS is for what contradicts itself or the specification, DENIED for what is well
//! formed and not the caller's to do, NO_MEMORY for what exceeds a limit (Arm DEN 0077A). After
//! each refusal both VMs' rights are as before (G1-MEM-012).

use test_guests::check;
use test_guests::ffa::{self, Descriptor, function, regs, status};
use test_guests::report::equal;

use crate::{AGENT, NO, OURS, OWN, PAGE, STRANGER, Test, handle_sent, ro, rw};

/// A spoiled field: the change makes a wrong descriptor of a right one. The rest of the descriptor
/// stays right, or another check could refuse.
type Change = fn(&mut Descriptor);
/// A name, the status, and the ranges. Lists of ranges have one descriptor, and differ in addresses
/// and counts.
type RangeCase<'a> = (&'a str, i32, &'a [(u64, u64)]);

/// Changes to the descriptor of two pages. Fields of the transaction descriptor in their order;
/// reserved ones must be zero. A field that Gear1 ignored today could not get a meaning in a later
/// version, which is why reserved bits are refused. An offset near 2^32 finds a sum that wraps. 513
/// pages are one more than a transaction may have.
const WRONG_TO_SEND: [(&str, i32, Change); 23] = [
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
    ("pages-few", status::INVALID, |d| d.pages = 1),
    ("pages-many", status::INVALID, |d| d.pages = 3),
    ("pages-none", status::INVALID, |d| d.pages = 0),
    ("pages-limit", status::NO_MEMORY, |d| d.pages = 513),
];
/// Changes to the descriptor that retrieves what was lent read-only. What a borrower says must
/// agree with what the owner sent: tag, type, attributes, and no more rights. Owner and borrower
/// have agreed upon the tag, and the serial number in the handle keeps a handle of a former
/// transaction from naming the next one in its place.
const WRONG_TO_RETRIEVE: [(&str, i32, Change); 12] = [
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

impl Test {
    /// All three calls share the descriptor, and hence the refusals. The last check finds a page
    /// that any refused call has taken or given. Wiping is refused for shared memory alone, as the
    /// owner itself still uses that.
    pub(crate) fn send_refusals(&self) {
        let page = self.arena + 100 * PAGE;
        self.fill(page, 4);
        for id in [function::SHARE, function::LEND, function::DONATE] {
            for (name, expected, change) in WRONG_TO_SEND {
                equal(name, self.send(id, &[(page, 2)], change), Err(expected));
            }
            self.range_refusals(id, page);
            self.length_refusals(id);
        }
        let zero = self.send(function::SHARE, &[(page, 1)], |d| d.flags = ffa::ZERO);
        equal("share-wiped", zero, Err(status::INVALID));
        self.rights("after-refusals", page, rw(page ^ OURS), NO);
    }

    /// A list with one wrong range is refused as a whole: nothing of it is sent. The wrong range is
    /// the last one where there are two: a call that takes ranges as it reads them has taken the
    /// first one by then. The range at 2^64 - 4096 ends at 2^64, which wraps to 0. A page twice in
    /// one list would be taken twice and given back once.
    fn range_refusals(&self, id: u64, page: u64) {
        let (end, control) = (self.end, self.control);
        let wrong: [RangeCase<'_>; 9] = [
            ("unaligned", status::INVALID, &[(page + 8, 1)]),
            ("empty", status::INVALID, &[(page, 1), (page + PAGE, 0)]),
            ("wraps", status::INVALID, &[(u64::MAX << 12, 1)]),
            ("twice", status::DENIED, &[(page, 2), (page + PAGE, 1)]),
            ("not-memory", status::DENIED, &[(0x900_0000, 1)]),
            ("behind", status::DENIED, &[(end - PAGE, 2)]),
            ("another's", status::DENIED, &[(end, 1)]),
            ("own-and-another's", status::DENIED, &[(page, 1), (end, 1)]),
            ("shared-already", status::DENIED, &[(page, 1), (control, 1)]),
        ];
        for (name, expected, ranges) in wrong {
            equal(name, self.send(id, ranges, |_| ()), Err(expected));
            self.rights(name, page, rw(page ^ OURS), NO);
        }
    }

    /// Lengths of descriptor and fragment that do not fit, and a buffer of the caller's own. A
    /// fragment that is longer than the buffer would be read from what lies behind. Only TX is
    /// judged, a page that no other VM can write; a buffer that a register names (X3) is refused.
    fn length_refusals(&self, id: u64) {
        for (name, x) in [
            ("fragment-longer-than-all", regs([id, 96, 97])),
            ("fragment-empty", regs([id, 96, 0])),
            ("longer-than-buffer", regs([id, 8192, 8192])),
            ("own-buffer", regs([id, 96, 96, self.arena, 1])),
        ] {
            self.status(name, status::INVALID, x);
        }
    }

    /// The owner's state is looked at after each. A retrieval that fails must leave the handle
    /// alive, as the right one at the end shows. Flag 2 of a reclaim is reserved. Only the owner
    /// may take memory back, whoever has it at the time (DEN 0077A, FFA_MEM_RECLAIM).
    pub(crate) fn retrieve_refusals(&self) {
        let page = self.arena + 120 * PAGE;
        self.fill(page, 2);
        let sent = self.send(function::LEND, &[(page, 2)], |d| {
            d.permissions = ffa::READ_ONLY
        });
        let handle = handle_sent("lend-read-only", sent);
        self.refused_before_retrieval(page, handle);
        self.retrieved_read_only(page, handle);
        self.relinquish_refusals(page, handle);
        equal("relinquish-right", self.agent_relinquishes(handle, 0), 0);
        self.agent_may_not_reclaim("reclaim-by-receiver-after", handle);
        self.rights("lent-relinquished", page, NO, NO);
        equal("reclaim-flags", self.reclaim(handle, 2), status::INVALID);
        equal("reclaim-right", self.reclaim(handle, 0), 0);
        self.rights("lent-no-more", page, rw(page ^ OURS), NO);
    }

    /// A borrower that has not retrieved can give nothing back. Lent memory is then nobody's: the
    /// owner has lost it, and no borrower has it yet.
    fn refused_before_retrieval(&self, page: u64, handle: u64) {
        for (name, expected, change) in WRONG_TO_RETRIEVE {
            equal(name, self.agent_retrieves(handle, change), expected);
            self.rights(name, page, NO, NO);
        }
        let early = self.agent_relinquishes(handle, 0);
        equal("relinquish-before", early, status::DENIED);
        self.agent_may_not_reclaim("reclaim-by-receiver-before", handle);
        self.rights("lent-not-retrieved", page, NO, NO);
    }

    /// Rights are the lesser of what the owner gave and what the borrower asks for. Data that
    /// another VM writes must never be code, hence XN in each borrower's stage 2 (G1-MEM-016).
    fn retrieved_read_only(&self, page: u64, handle: u64) {
        let reads = |d: &mut Descriptor| d.permissions = ffa::READ_ONLY;
        equal("retrieve-right", self.agent_retrieves(handle, reads), 0);
        self.rights("lent-read-only", page, NO, ro(page ^ OURS));
        let executes = self.agent_executes(page + 64);
        check!("lent-never-executes", !executes, "executed");
    }

    /// The endpoint in the descriptor must be the caller. Wiping is refused to a borrower that may
    /// not write. With another endpoint in the descriptor, a borrower could give back in the name
    /// of one that still uses the memory.
    fn relinquish_refusals(&self, page: u64, handle: u64) {
        for (name, handle, flags) in [
            ("relinquish-wiped", handle, 1),
            ("relinquish-flags", handle, 2),
            ("relinquish-handle", handle + 1, 0),
        ] {
            let relinquished = self.agent_relinquishes(handle, flags);
            equal(name, relinquished, status::INVALID);
        }
        for endpoint in [0, OWN, STRANGER, 0xffff] {
            let relinquished = self.agent_relinquishes_for(endpoint, handle, 0);
            equal("relinquish-for-another", relinquished, status::INVALID);
        }
        self.agent_may_not_reclaim("reclaim-by-receiver", handle);
        self.rights("lent-still", page, NO, ro(page ^ OURS));
    }
}
