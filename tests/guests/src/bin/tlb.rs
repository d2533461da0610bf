//! Gives memory away by FF-A while another of its CPUs reads it, and checks that the other CPU
//! loses it too. Then the `tlb_taker` gives the memory back in the same way, or loses it with this
//! VM's end.
//!
//! Requirements: G1-MEM-014, G1-MEM-017.
#![no_std]
#![no_main]

use test_guests::ffa::{self, Descriptor, function, regs, status};
use test_guests::mmio::write64;
use test_guests::report::equal;
use test_guests::watch::{gone, start, task, watch, watcher};
use test_guests::{Machine, guest, psci};

guest!(
    main,
    irq = test_guests::exception::ignore,
    other_cpu = watcher
);

/// Endpoints by the order of the VMs in the manifest.
const OWN: u64 = 1;
const TAKER: u64 = 2;
/// Offsets in the VM's memory: the buffers, and the pages to give away. The arena is neither at the
/// start of a 2 MiB block nor at that of a 64 KiB page, so that a table of pages is needed.
const TX: u64 = 6 << 20;
const ARENA: u64 = (8 << 20) + 0x5_5000;
const PAGE: u64 = 4096;
/// State that the sibling must report: the page is gone, and was not read since. One read after the
/// loss would be one of memory that is another VM's already.
const LOST: (bool, u64) = (true, 0);

/// The watching CPU never leaves the guest, so that no exit of its own drops the translation.
fn main(machine: &Machine) {
    let (tx, arena) = (machine.ram.start + TX, machine.ram.start + ARENA);
    equal("cpu-on", start(), psci::result::SUCCESS);
    let mapped = ffa::hvc(regs([function::RXTX_MAP, tx, tx + PAGE, 1]));
    equal("buffers", ffa::status_of(&mapped), 0);
    let (lives, _) = ask(task::COUNT, 0);
    if lives == 2 {
        restarted();
        return;
    }
    lends(tx, arena);
    donates(tx, arena + PAGE);
    let shared = send(tx, function::SHARE, arena + 2 * PAGE);
    equal("share-retrieve", ask(task::RETRIEVE, shared), (0, 0));
    equal("share-watch", ask(task::WATCH, arena + 2 * PAGE), (0, 0));
    psci::system_reset();
}

/// The life after the reset: the taker has lost what the first life shared. The giver's reset loads
/// its memory anew, and takes the shared page from the taker (G1-MEM-017).
fn restarted() {
    for name in ["restarted-shared", "restarted-lost"] {
        // The second request checks that the state of the first life stays.
        equal(name, ask(task::GONE, 0), (1, 0));
    }
    ask(task::LEAVE, 0);
}

/// Checks that both ends lose lent memory: this VM when it lends, the other when it relinquishes.
/// The second TLBI goes the other way: at the relinquish, the taker loses a page that returns to
/// this VM.
fn lends(tx: u64, page: u64) {
    watch(page);
    let handle = send(tx, function::LEND, page);
    equal("lend-lost", gone(), LOST);
    equal("lend-retrieve", ask(task::RETRIEVE, handle), (0, 0));
    equal("lend-watch", ask(task::WATCH, page), (0, 0));
    equal("lend-relinquish", ask(task::RELINQUISH, handle), (1, 0));
    let back = ffa::hvc(ffa::reclaim(handle, 0));
    equal("lend-reclaim", ffa::status_of(&back), 0);
}

/// Donated memory does not come back, so a page of its own is used.
fn donates(tx: u64, page: u64) {
    watch(page);
    let handle = send(tx, function::DONATE, page);
    equal("donate-lost", gone(), LOST);
    equal("donate-retrieve", ask(task::RETRIEVE, handle), (0, 0));
}

/// Offers a page to the taker. The page names itself, so that the other side's read is of the right
/// page.
fn send(tx: u64, id: u64, page: u64) -> u64 {
    write64(page, page);
    Descriptor {
        pages: 1,
        ranges: 1,
        ..Descriptor::of_call(id, OWN, TAKER)
    }
    .write(tx);
    ffa::write_range(tx + ffa::HEADER, page, 1);
    let size = ffa::HEADER + 16;
    let x = ffa::hvc(regs([id, size, size]));
    equal("send", ffa::status_of(&x), 0);
    ffa::handle_of(&x, 2)
}

/// Repeats a request until the taker waits for it, and returns X4 and X5 of the response. BUSY says
/// that the taker is not in FFA_MSG_WAIT. FFA_INTERRUPT says that an interrupt came before the
/// response; FFA_RUN goes on with the taker.
fn ask(what: u64, argument: u64) -> (u64, u64) {
    let ends = OWN << 16 | TAKER;
    let request = regs([function::DIRECT_REQ | WIDE, ends, 0, what, argument]);
    let mut x = ffa::hvc(request);
    while ffa::status_of(&x) == status::BUSY {
        x = ffa::hvc(request);
    }
    while x[0] == function::INTERRUPT {
        x = ffa::hvc(regs([function::RUN, x[1]]));
    }
    (x[4], x[5])
}

/// SMC64: registers are not cut.
const WIDE: u64 = 1 << 30;
