//! Exchanges memory with the agent in another VM by FF-A 1.1: shares, lends and donates it, and
//! gets it back. At each step both sides' contents and access rights are looked at, by accesses
//! that are right and by accesses that must abort; every refusal is provoked, and must change
//! nothing (G1-MEM-011 to G1-MEM-020).
//!
//! Each access is the CPU's own, so that stage 2 and the TLB answer and not Gear1's tables: a page
//! that Gear1's ledger has taken away and a stale translation still reaches shows here alone.
#![no_std]
#![no_main]

mod agent;
mod exchange;
mod hostile;
mod limits;
mod messages;
mod receivers;
mod refusals;
mod restarts;

use test_guests::exception::catch;
use test_guests::ffa::{self, Descriptor, Regs, function, regs, status, task};
use test_guests::mmio::read64;
use test_guests::report::equal;
use test_guests::{Machine, check, guest};

guest!(main);

/// The granule of FF-A's ranges.
const PAGE: u64 = 4096;
/// Bytes that stage 2 maps by one descriptor. A page of a block that is sent alone makes Gear1
/// replace the block by a table.
const BLOCK: u64 = 2 << 20;
/// Endpoints: this VM, the agent, and a VM that is no peer. FF-A numbers endpoints from 1 on here,
/// as 0 is the hypervisor (DEN 0077A).
const OWN: u64 = 1;
const AGENT: u64 = 2;
const STRANGER: u64 = 3;
/// Endpoint that answers messages, on this VM's CPU. On one CPU, a request and its answer are two
/// switches of a vCPU, without a second CPU that runs meanwhile.
const ECHO: u64 = 4;
/// Offsets in the VM's memory: the agent's control pages, the buffers, the memory to share. The
/// distances keep what is sent whole apart from what stays shared all the time.
const CONTROL: u64 = 4 << 20;
const TX: u64 = 6 << 20;
const ARENA: u64 = 8 << 20;
/// Words that the contents are told apart by. XORed with the page's address, so that a page at
/// another's place is told as well.
const OURS: u64 = 0x6f75_7273;
const THEIRS: u64 = 0x7468_6569_7273;
/// `RET`. Written into a page that an endpoint may execute. An execution that is permitted comes
/// back at once.
const RET: u64 = 0xd65f_03c0;

/// The echo counts this VM's lives. The memory of this VM is loaded anew at each start and knows
/// nothing of a former life.
fn main(machine: &Machine) {
    let test = Test {
        control: machine.ram.start + CONTROL,
        tx: machine.ram.start + TX,
        rx: machine.ram.start + TX + PAGE,
        arena: machine.ram.start + ARENA,
        end: machine.ram.end,
        conduit: ffa::hvc,
    };
    if test.tell(task::COUNT, 0, 0).0 == 2 {
        test.after_restart(machine);
    } else {
        test.before_restart(machine);
    }
}

/// Addresses of this VM, and the conduit that is tried. Linux' FF-A driver calls by SMC or HVC, as
/// the PSCI node of the device tree says; both must lead to one answer.
struct Test {
    control: u64,
    tx: u64,
    rx: u64,
    arena: u64,
    /// End of the VM's memory.
    end: u64,
    conduit: fn(Regs) -> Regs,
}

/// Nothing: the access aborts. The read is one load, and its abort is caught: a page that is gone
/// must end in an abort and never in old contents.
fn word(address: u64) -> Option<u64> {
    let mut value = 0;
    let caught = catch(|| value = read64(address));
    caught.is_none().then_some(value)
}

/// Returns what a call that sends returned. Handles are 64 bits in two registers, W2 and W3.
fn handle_or_status(answer: &Regs) -> Result<u64, i32> {
    match ffa::status_of(answer) {
        0 => Ok(ffa::handle_of(answer, 2)),
        status => Err(status),
    }
}

/// Checks that a transaction was sent, and returns its handle.
fn handle_sent(name: &str, sent: Result<u64, i32>) -> u64 {
    check!(name, sent.is_ok(), "{sent:?}");
    sent.unwrap_or_default()
}

/// Calls of this VM.
impl Test {
    /// The first life: every exchange and every refusal, until the reset. Refusals come before
    /// limits: the latter fill what the former need. Exchanges run by both conduits, and all that
    /// follows by HVC.
    fn before_restart(&self, machine: &Machine) {
        self.setup(machine);
        self.find_agent();
        self.buffers_again();
        for conduit in [ffa::hvc, ffa::smc] {
            let test = Test { conduit, ..*self };
            test.share();
            test.lend();
            test.donate();
        }
        self.send_refusals();
        self.retrieve_refusals();
        self.fragments();
        self.exhaustion();
        self.receivers();
        self.messages();
        self.agent_restarts();
        self.lies();
        self.command(0, [0; 8]);
        self.restarts();
    }

    /// By the conduit that is under test.
    fn call(&self, x: Regs) -> Regs {
        (self.conduit)(x)
    }

    /// Checks what a call returns that has no other result. FFA_ERROR has the status in W2.
    fn status(&self, name: &str, expected: i32, x: Regs) {
        equal(name, ffa::status_of(&self.call(x)), expected);
    }

    /// Sends ranges, with `change` made to a right descriptor. The ranges lie behind the
    /// descriptor's header of 80 bytes, and the total length is that of one fragment.
    fn send(
        &self,
        id: u64,
        ranges: &[(u64, u64)],
        change: impl FnOnce(&mut Descriptor),
    ) -> Result<u64, i32> {
        let mut descriptor = Descriptor {
            ranges: ranges.len() as u64,
            pages: ranges.iter().map(|(_, pages)| pages).sum(),
            ..Descriptor::of_call(id, OWN, AGENT)
        };
        change(&mut descriptor);
        let mut size = descriptor.write(self.tx);
        for (address, pages) in ranges {
            ffa::write_range(self.tx + size, *address, *pages);
            size += 16;
        }
        handle_or_status(&self.call(regs([id, size, size])))
    }

    /// FFA_MEM_RECLAIM takes the handle in two words. Bit 0 of the flags asks to wipe the memory
    /// first.
    fn reclaim(&self, handle: u64, flags: u64) -> i32 {
        ffa::status_of(&self.call(ffa::reclaim(handle, flags)))
    }

    /// Discovery, as FF-A's chapter on setup has it: version, features, identifier, buffers. A
    /// sender without buffers has no descriptor for Gear1 to read; Gear1 must refuse and not read
    /// at address 0.
    fn setup(&self, machine: &Machine) {
        self.version();
        self.features();
        let id = self.call(regs([function::ID_GET]));
        equal("id", (id[0], id[2]), (function::SUCCESS, OWN));
        let no_buffer = self.send(function::SHARE, &[(self.arena, 1)], |_| ());
        equal("send-without-buffers", no_buffer, Err(status::INVALID));
        self.buffers(machine);
    }

    /// A later minor version is compatible, and another major one is not. Linux asks for 1.1 or
    /// later and takes an older answer (`ffa_version_check`); a caller for 1.0 would write access
    /// descriptors of another layout.
    fn version(&self) {
        let version = |asked| self.call(regs([function::VERSION, asked]))[0];
        equal("version", version(0x1_0001), 0x1_0001);
        equal("version-later", version(0x1_0002), 0x1_0001);
        let refused = |asked| version(asked) as i32;
        equal("version-1.0", refused(0x1_0000), status::NOT_SUPPORTED);
        equal("version-2.0", refused(0x2_0000), status::NOT_SUPPORTED);
    }

    /// FFA_FEATURES knows what is there, and says NOT_SUPPORTED of what is not. The absent ones are
    /// a feature by number, FFA_MSG_SEND of FF-A 1.0, FFA_NOTIFICATION_SET, and SMC64 forms of
    /// FFA_RUN and FFA_MEM_RECLAIM, which have none.
    fn features(&self) {
        for id in [
            function::SHARE,
            function::FRAG_RX,
            function::RXTX_MAP,
            function::RUN,
            function::DIRECT_REQ,
        ] {
            self.status("features", 0, regs([function::FEATURES, id]));
        }
        for id in [1, 0x8400_006E, 0x8400_0081, 0xC400_006D, 0xC400_0077] {
            let x = regs([function::FEATURES, id]);
            self.status("features-absent", status::NOT_SUPPORTED, x);
        }
    }

    /// RX and TX are pages of the caller's own, and of nobody else's. A buffer that another VM
    /// could write would let that VM change a descriptor after Gear1 has judged it; a buffer that
    /// could be sent would leave with its page. RX and TX are therefore pages that nothing else may
    /// happen to.
    pub(crate) fn buffers(&self, machine: &Machine) {
        let map = |tx, rx, pages| regs([function::RXTX_MAP, tx, rx, pages]);
        let (tx, rx) = (self.tx, self.rx);
        let unmap = regs([function::RXTX_UNMAP]);
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
        self.partitions();
    }

    /// Checks the list of endpoints, and that RX stays taken until it is released. RX is the
    /// caller's from the answer on until FFA_RX_RELEASE. A call that wrote there before would
    /// destroy an answer that nobody has read. The stranger is no peer of this VM and not in the
    /// list (G1-MEM-020).
    fn partitions(&self) {
        let count = regs([function::PARTITION_INFO_GET, 0, 0, 0, 0, 1]);
        let x = self.call(count);
        equal("partition-count", (x[0], x[2]), (function::SUCCESS, 3));
        let info = regs([function::PARTITION_INFO_GET]);
        let x = self.call(info);
        equal("partitions", (x[0], x[2], x[3]), (function::SUCCESS, 3, 24));
        let ids = [0, 24, 48].map(|at| read64(self.rx + at) & 0xffff);
        equal("partition-ids", ids, [OWN, AGENT, ECHO]);
        self.status("partitions-rx-taken", status::BUSY, info);
        let release = regs([function::RX_RELEASE]);
        self.status("rx-release", 0, release);
        self.status("rx-release-twice", status::DENIED, release);
    }

    /// Checks that the refusal of one buffer leaves the other as it was. TX is right in both calls:
    /// a first step that keeps TX before RX is refused would make the last call fail.
    fn buffers_again(&self) {
        let map = |rx| regs([function::RXTX_MAP, self.tx, rx, 1]);
        self.status("unmap", 0, regs([function::RXTX_UNMAP]));
        self.status("map-shared", status::DENIED, map(self.control));
        self.status("map-again", 0, map(self.rx));
    }
}

/// Word that an endpoint reads from a page, and a value if it can write the page. The hardware
/// decides both, so that read-only is told from writable by a store.
type Access = [Option<u64>; 2];

/// Neither reads nor writes. Memory that was lent or donated away.
const NO: Access = [None, None];

/// Reads this word, and writes. The value behind `Some` of the store is not compared.
fn rw(value: u64) -> Access {
    [Some(value), Some(0)]
}

/// Reads this word alone.
fn ro(value: u64) -> Access {
    [Some(value), None]
}

/// For pages that this VM can read.
fn word_or(address: u64) -> u64 {
    word(address).unwrap_or_default()
}
