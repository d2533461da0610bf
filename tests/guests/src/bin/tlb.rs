//! Gives memory away by FF-A while another of its CPUs reads it, and checks that the other CPU
//! loses it too. Then the `tlb_taker` gives the memory back in the same way, or loses it with this
//! VM's end.
//!
//! Requirements: G1-MEM-014, G1-MEM-017.
#![no_std]
#![no_main]

use test_guests::ffa::{self, Descriptor, Regs, function, status};
use test_guests::mmio::write64;
use test_guests::report::equal;
use test_guests::watch::{gone, start, watch, watcher};
use test_guests::{Machine, guest, psci};

guest!(
    main,
    irq = test_guests::exception::ignore,
    other_cpu = watcher
);

const OWN: u64 = 1;
const TAKER: u64 = 2;
/// Offsets in the VM's memory: the buffers, and the pages to give away.
const TX: u64 = 6 << 20;
const ARENA: u64 = (8 << 20) + 0x5_5000;
const PAGE: u64 = 4096;
/// State that the sibling must report: the page is gone, and was not read since.
const LOST: (bool, u64) = (true, 0);

/// Requests to the taker, in X3.
mod task {
    pub(super) const COUNT: u64 = 1;
    pub(super) const RETRIEVE: u64 = 2;
    pub(super) const WATCH: u64 = 3;
    pub(super) const GONE: u64 = 4;
    pub(super) const RELINQUISH: u64 = 5;
    pub(super) const LEAVE: u64 = 6;
}

fn main(machine: &Machine) {
    let (tx, arena) = (machine.ram.start + TX, machine.ram.start + ARENA);
    equal("cpu-on", start(), psci::result::SUCCESS);
    let mapped = ffa::hvc([function::RXTX_MAP, tx, tx + PAGE, 1, 0, 0, 0, 0]);
    equal("buffers", ffa::status_of(&mapped), 0);
    let (lives, _) = ask(task::COUNT, 0);
    if lives == 2 {
        for name in ["restarted-shared", "restarted-lost"] {
            // The second request checks that the state of the first life stays.
            equal(name, ask(task::GONE, 0), (1, 0));
        }
        ask(task::LEAVE, 0);
        return;
    }
    lends(tx, arena);
    donates(tx, arena + PAGE);
    let shared = send(tx, function::SHARE, arena + 2 * PAGE);
    equal("share-retrieve", ask(task::RETRIEVE, shared), (0, 0));
    equal("share-watch", ask(task::WATCH, arena + 2 * PAGE), (0, 0));
    psci::system_reset();
}

/// Checks that both ends lose lent memory: this VM when it lends, the other when it relinquishes.
fn lends(tx: u64, page: u64) {
    watch(page);
    let handle = send(tx, function::LEND, page);
    equal("lend-lost", gone(), LOST);
    equal("lend-retrieve", ask(task::RETRIEVE, handle), (0, 0));
    equal("lend-watch", ask(task::WATCH, page), (0, 0));
    equal("lend-relinquish", ask(task::RELINQUISH, handle), (1, 0));
    let (low, high) = (handle & 0xffff_ffff, handle >> 32);
    let back = ffa::hvc([function::RECLAIM, low, high, 0, 0, 0, 0, 0]);
    equal("lend-reclaim", ffa::status_of(&back), 0);
}

fn donates(tx: u64, page: u64) {
    watch(page);
    let handle = send(tx, function::DONATE, page);
    equal("donate-lost", gone(), LOST);
    equal("donate-retrieve", ask(task::RETRIEVE, handle), (0, 0));
}

/// Offers a page to the taker.
fn send(tx: u64, id: u64, page: u64) -> u64 {
    write64(page, page);
    let mut descriptor = Descriptor::new(OWN, TAKER);
    if id == function::SHARE {
        descriptor.attributes = ffa::WRITE_BACK;
    }
    if id != function::DONATE {
        descriptor.permissions = ffa::READ_WRITE;
    }
    descriptor.ranges = 1;
    descriptor.pages = 1;
    descriptor.write(tx);
    ffa::write_range(tx + ffa::HEADER, page, 1);
    let size = ffa::HEADER + 16;
    let x = ffa::hvc([id, size, size, 0, 0, 0, 0, 0]);
    equal("send", ffa::status_of(&x), 0);
    x[3] << 32 | x[2]
}

/// Repeats a request until the taker waits for it, and returns X4 and X5 of the response.
fn ask(what: u64, argument: u64) -> (u64, u64) {
    let ends = OWN << 16 | TAKER;
    let request: Regs = [
        function::DIRECT_REQ | WIDE,
        ends,
        0,
        what,
        argument,
        0,
        0,
        0,
    ];
    let mut x = ffa::hvc(request);
    while ffa::status_of(&x) == status::BUSY {
        x = ffa::hvc(request);
    }
    while x[0] == function::INTERRUPT {
        x = ffa::hvc([function::RUN, x[1], 0, 0, 0, 0, 0, 0]);
    }
    (x[4], x[5])
}

/// SMC64: registers are not cut.
const WIDE: u64 = 1 << 30;
