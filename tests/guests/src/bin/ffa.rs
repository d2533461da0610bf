//! Exchanges memory with the agent in another VM by FF-A 1.1: shares, lends and donates it, and
//! gets it back. At each step both sides' contents and access rights are looked at, by accesses
//! that are right and by accesses that must abort; every refusal is provoked, and must change
//! nothing (G1-MEM-011 to G1-MEM-020).
#![no_std]
#![no_main]

use core::arch::asm;

use test_guests::exception::catch;
use test_guests::ffa::{self, Descriptor, Regs, function, status};
use test_guests::mmio::{read64, write64};
use test_guests::report::equal;
use test_guests::{Machine, check, cpu, guest};

guest!(main);

const PAGE: u64 = 4096;
/// This VM, the agent's, and one that is no peer.
const OWN: u64 = 1;
const AGENT: u64 = 2;
const STRANGER: u64 = 3;
/// In the VM's memory: the pages that the agent is commanded through, the buffers, what is shared.
const CONTROL: u64 = 4 << 20;
const TX: u64 = 6 << 20;
const ARENA: u64 = 8 << 20;
/// Words that the contents are told apart by.
const OURS: u64 = 0x6f75_7273;
const THEIRS: u64 = 0x7468_6569_7273;
/// `RET`.
const RET: u64 = 0xd65f_03c0;

fn main(machine: &Machine) {
    let test = Test {
        control: machine.ram.start + CONTROL,
        tx: machine.ram.start + TX,
        rx: machine.ram.start + TX + PAGE,
        arena: machine.ram.start + ARENA,
        conduit: ffa::hvc,
    };
    test.setup(machine);
    test.find_agent();
    for smc in [false, true] {
        let conduit = if smc { ffa::smc } else { ffa::hvc };
        let test = Test { conduit, ..test };
        test.share();
        test.lend();
        test.donate();
    }
    test.send_refusals();
    test.retrieve_refusals();
    test.fragments();
    test.exhaustion();
    test.agent_restarts();
    test.command(0, [0; 8]);
}

struct Test {
    control: u64,
    tx: u64,
    rx: u64,
    arena: u64,
    conduit: fn(Regs) -> Regs,
}

fn word(address: u64) -> Option<u64> {
    let mut value = 0;
    let caught = catch(|| value = read64(address));
    caught.is_none().then_some(value)
}

fn handle_of(answer: &Regs, first: usize) -> u64 {
    answer[first + 1] << 32 | answer[first]
}

/// Calls of this VM.
impl Test {
    fn call(&self, x: Regs) -> Regs {
        (self.conduit)(x)
    }

    fn status(&self, name: &str, expected: i32, x: Regs) {
        equal(name, ffa::status_of(&self.call(x)), expected);
    }

    /// Sends ranges, with `change` made to a right descriptor.
    fn send(
        &self,
        id: u64,
        ranges: &[(u64, u64)],
        change: impl FnOnce(&mut Descriptor),
    ) -> Result<u64, i32> {
        let mut descriptor = Descriptor::new(OWN, AGENT);
        if id == function::SHARE {
            descriptor.attributes = ffa::WRITE_BACK;
        }
        if id != function::DONATE {
            descriptor.permissions = ffa::READ_WRITE;
        }
        descriptor.ranges = ranges.len() as u64;
        descriptor.pages = ranges.iter().map(|(_, pages)| pages).sum();
        change(&mut descriptor);
        descriptor.write(self.tx);
        for (index, (address, pages)) in (0..).zip(ranges) {
            ffa::write_range(self.tx + ffa::HEADER + 16 * index, *address, *pages);
        }
        let size = ffa::HEADER + 16 * ranges.len() as u64;
        let x = self.call([id, size, size, 0, 0, 0, 0, 0]);
        match ffa::status_of(&x) {
            0 => Ok(handle_of(&x, 2)),
            status => Err(status),
        }
    }

    fn reclaim(&self, handle: u64, flags: u64) -> i32 {
        let (low, high) = (handle & 0xffff_ffff, handle >> 32);
        ffa::status_of(&self.call([function::RECLAIM, low, high, flags, 0, 0, 0, 0]))
    }

    fn setup(&self, machine: &Machine) {
        let version = |asked| self.call([function::VERSION, asked, 0, 0, 0, 0, 0, 0])[0];
        equal("version", version(0x1_0001), 0x1_0001);
        equal("version-later", version(0x1_0002), 0x1_0001);
        equal(
            "version-1.0",
            version(0x1_0000) as i32,
            status::NOT_SUPPORTED,
        );
        equal(
            "version-2.0",
            version(0x2_0000) as i32,
            status::NOT_SUPPORTED,
        );
        for id in [function::SHARE, function::FRAG_RX, function::RXTX_MAP] {
            self.status("features", 0, [function::FEATURES, id, 0, 0, 0, 0, 0, 0]);
        }
        for id in [1, function::RUN, function::DIRECT_REQ, 0xC400_0077] {
            let x = [function::FEATURES, id, 0, 0, 0, 0, 0, 0];
            self.status("features-absent", status::NOT_SUPPORTED, x);
        }
        self.status(
            "run",
            status::NOT_SUPPORTED,
            [function::RUN, 0, 0, 0, 0, 0, 0, 0],
        );
        let id = self.call([function::ID_GET, 0, 0, 0, 0, 0, 0, 0]);
        equal("id", (id[0], id[2]), (function::SUCCESS, OWN));
        let no_buffer = self.send(function::SHARE, &[(self.arena, 1)], |_| ());
        equal("send-without-buffers", no_buffer, Err(status::INVALID));
        self.buffers(machine);
    }

    fn buffers(&self, machine: &Machine) {
        let map = |tx, rx, pages| [function::RXTX_MAP, tx, rx, pages, 0, 0, 0, 0];
        let (tx, rx) = (self.tx, self.rx);
        let unmap = [function::RXTX_UNMAP, 0, 0, 0, 0, 0, 0, 0];
        self.status("unmap-nothing", status::INVALID, unmap);
        self.status("map-unaligned", status::INVALID, map(tx + 8, rx, 1));
        self.status("map-same", status::INVALID, map(tx, tx, 1));
        self.status("map-two-pages", status::INVALID, map(tx, rx, 2));
        self.status("map-not-own", status::INVALID, map(tx, machine.ram.end, 1));
        self.status("map-device", status::INVALID, map(machine.uart, rx, 1));
        self.status("map", 0, map(tx, rx, 1));
        self.status("map-twice", status::DENIED, map(tx, rx, 1));
        let sent = self.send(function::SHARE, &[(tx, 1)], |_| ());
        equal("share-a-buffer", sent, Err(status::DENIED));
        let info = [function::PARTITION_INFO_GET, 0, 0, 0, 0, 0, 0, 0];
        let x = self.call(info);
        equal("partitions", (x[0], x[2], x[3]), (function::SUCCESS, 2, 24));
        let ids = [read64(self.rx) & 0xffff, read64(self.rx + 24) & 0xffff];
        equal("partition-ids", ids, [OWN, AGENT]);
        self.status("partitions-rx-taken", status::BUSY, info);
        let release = [function::RX_RELEASE, 0, 0, 0, 0, 0, 0, 0];
        self.status("rx-release", 0, release);
        self.status("rx-release-twice", status::DENIED, release);
    }
}

/// What the agent is told.
impl Test {
    /// Shares the control page and waits until the agent has found it.
    fn find_agent(&self) {
        let sent = self.send(function::SHARE, &[(self.control, 3)], |descriptor| {
            descriptor.tag = 0x0063_6f6e_7472_6f6c;
        });
        check!("share-control", sent.is_ok(), "{sent:?}");
        self.command(3, [self.control + 128, 1, 0, 0, 0, 0, 0, 0]);
    }

    fn command(&self, what: u64, x: Regs) -> Regs {
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

    fn post(&self, what: u64, x: Regs, number: u64) {
        write64(self.control + 16, what);
        for (index, value) in (0..).zip(x) {
            write64(self.control + 64 + 8 * index, value);
        }
        cpu::dsb();
        write64(self.control, number);
    }

    fn agent_calls(&self, x: Regs) -> Regs {
        self.command(1, x)
    }

    fn agent_word(&self, address: u64) -> Option<u64> {
        let x = self.command(2, [address, 0, 0, 0, 0, 0, 0, 0]);
        (x[0] == 0).then_some(x[1])
    }

    fn agent_stores(&self, address: u64, value: u64) -> bool {
        self.command(3, [address, value, 0, 0, 0, 0, 0, 0])[0] == 0
    }

    fn agent_executes(&self, address: u64) -> bool {
        self.command(4, [address, 0, 0, 0, 0, 0, 0, 0])[0] == 0
    }

    fn agent_retrieves(&self, handle: u64, change: impl FnOnce(&mut Descriptor)) -> i32 {
        let mut descriptor = Descriptor {
            handle,
            composite: 0,
            ..Descriptor::new(OWN, AGENT)
        };
        change(&mut descriptor);
        descriptor.write(self.control + PAGE);
        let x = self.agent_calls([function::RETRIEVE_REQ, 64, 64, 0, 0, 0, 0, 0]);
        if x[0] == function::RETRIEVE_RESP {
            self.agent_calls([function::RX_RELEASE, 0, 0, 0, 0, 0, 0, 0]);
        }
        ffa::status_of(&x)
    }

    fn agent_relinquishes(&self, handle: u64, flags: u64) -> i32 {
        let at = self.control + PAGE;
        write64(at, handle);
        write64(at + 8, flags | 1 << 32);
        write64(at + 16, AGENT);
        ffa::status_of(&self.agent_calls([function::RELINQUISH, 0, 0, 0, 0, 0, 0, 0]))
    }

    /// Checks who can read the page, and what, and who can write it.
    fn rights(&self, name: &str, page: u64, ours: [Option<u64>; 2], theirs: [Option<u64>; 2]) {
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
    fn fill(&self, page: u64, count: u64) {
        for page in (page..).step_by(PAGE as usize).take(count as usize) {
            write64(page, page ^ OURS);
            write64(page + 64, RET);
        }
    }
}

const NO: [Option<u64>; 2] = [None, None];

fn rw(value: u64) -> [Option<u64>; 2] {
    [Some(value), Some(0)]
}

fn ro(value: u64) -> [Option<u64>; 2] {
    [Some(value), None]
}

impl Test {
    fn share(&self) {
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
            self.rights("shared", page, rw(value), NO);
            self.rights(
                "shared-behind",
                page + 2 * PAGE,
                rw(word_or(page + 2 * PAGE)),
                NO,
            );
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

    fn lend(&self) {
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
    fn lend_wiped(&self) {
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

    fn donate(&self) {
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
        // It comes back in two parts.
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

    /// The agent sends what it has to this VM.
    fn agent_sends(&self, id: u64, page: u64, pages: u64) -> Result<u64, i32> {
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

fn word_or(address: u64) -> u64 {
    word(address).unwrap_or_default()
}

type Change = fn(&mut Descriptor);
type RangeCase<'a> = (&'a str, i32, &'a [(u64, u64)]);

impl Test {
    fn send_refusals(&self) {
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

    fn range_refusals(&self, id: u64, page: u64) {
        let end = self.arena + (8 << 20);
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

    fn retrieve_refusals(&self) {
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
        equal("retrieve-right", self.agent_retrieves(handle, |_| ()), 0);
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
        let by_agent = [
            function::RECLAIM,
            handle & 0xffff_ffff,
            handle >> 32,
            0,
            0,
            0,
            0,
            0,
        ];
        let by_agent = ffa::status_of(&self.agent_calls(by_agent));
        equal("reclaim-by-receiver", by_agent, status::INVALID);
        self.rights("lent-still", page, NO, ro(page ^ OURS));
        equal("relinquish-right", self.agent_relinquishes(handle, 0), 0);
        equal("reclaim-flags", self.reclaim(handle, 2), status::INVALID);
        equal("reclaim-right", self.reclaim(handle, 0), 0);
        self.rights("lent-no-more", page, rw(page ^ OURS), NO);
    }

    /// Every second page, in a descriptor of several parts.
    fn fragments(&self) {
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
    fn send_parts(&self, page: u64, said: u64, count: u64) -> Result<u64, i32> {
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
            (handle, offset, first) = (handle_of(&x, 1), 0, last);
            equal("fragment-offset", x[3], ffa::HEADER + 16 * first);
        }
    }

    /// As many transactions as there are for a VM, and then one more.
    fn exhaustion(&self) {
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
        equal("exhausted-after", count, 15);
        let next = page + count as u64 * PAGE;
        self.rights("exhausted-changes-nothing", next, rw(next ^ OURS), NO);
        let reclaimed = handles[..count]
            .iter()
            .all(|handle| self.reclaim(*handle, 0) == 0);
        check!("exhausted-reclaim", reclaimed, "refused");
        self.rights("exhausted-reclaimed", page, rw(page ^ OURS), NO);
    }

    /// The agent's VM is reset with memory of every kind: what it borrowed can be reclaimed, and
    /// what it was given is back, wiped.
    fn agent_restarts(&self) {
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
