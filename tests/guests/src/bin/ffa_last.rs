//! Makes FF-A's memory calls with many ranges. The VM is the last of a full manifest, and so is its
//! peer but for one: what a call costs there is compared with what the call costs the first VMs.
//! Nothing is reported unless all calls are done.
//!
//! Requirements: G1-MEM-023.
#![no_std]
#![no_main]

use test_guests::ffa::{self, Descriptor, Regs, function, regs, status_of, task};
use test_guests::{Machine, guest};

guest!(main);

const PAGE: u64 = 4096;
/// Offsets in the VM's memory. Neither is in the image; TX and RX are two pages in a row.
const TX: u64 = 4 << 20;
const ARENA: u64 = 8 << 20;
/// Marks a message of 64-bit words: a handle is as long.
const WIDE: u64 = 0x4000_0000;
/// Number of ranges: as many as one page describes. 250 is also the most that one donation back may
/// have: its response is one page.
const RANGES: u64 = 250;

/// Gear1's search for a page's owner could depend on the VM's place in the manifest: the last VM
/// has the longest search (G1-MEM-023).
fn main(machine: &Machine) {
    let tx = machine.ram.start + TX;
    done(regs([function::RXTX_MAP, tx, tx + PAGE, 1]));
    let own = ffa::own_endpoint();
    for id in [function::SHARE, function::LEND, function::DONATE] {
        let last = Last { own, tx };
        let handle = last.send(id, machine.ram.start + ARENA);
        last.ask(task::RETRIEVE, handle);
        if id == function::DONATE {
            break;
        }
        last.ask(task::RELINQUISH, handle);
        done(ffa::reclaim(handle, 0));
    }
    Last { own, tx }.ask(task::LEAVE, 0);
    done(regs([function::RXTX_UNMAP]));
}

/// Makes a call that must be done. The panic is reported as a failure, and the guest ends.
fn done(x: Regs) -> Regs {
    let answer = ffa::hvc(x);
    assert_eq!(status_of(&answer), 0, "{x:x?}");
    answer
}

struct Last {
    own: u64,
    tx: u64,
}

impl Last {
    /// Endpoints count from 1 in the manifest's order.
    const fn peer(&self) -> u64 {
        self.own - 1
    }

    /// Sends every other page from `arena` on. Every other page: neighbours would be one range of
    /// two pages, and fewer descriptors to change.
    fn send(&self, id: u64, arena: u64) -> u64 {
        Descriptor {
            pages: RANGES,
            ranges: RANGES,
            ..Descriptor::of_call(id, self.own, self.peer())
        }
        .write(self.tx);
        for index in 0..RANGES {
            let at = self.tx + ffa::HEADER + 16 * index;
            ffa::write_range(at, arena + 2 * PAGE * index, 1);
        }
        let size = ffa::HEADER + 16 * RANGES;
        ffa::handle_of(&done(regs([id, size, size])), 2)
    }

    /// Asks the peer to do something with a transaction. BUSY until the peer waits for requests:
    /// requests never queue (G1-MSG-002).
    fn ask(&self, what: u64, handle: u64) {
        let ends = self.own << 16 | self.peer();
        let request = regs([function::DIRECT_REQ | WIDE, ends, 0, what, handle]);
        let mut x = ffa::hvc(request);
        // Not there yet, or interrupted.
        while x[0] & !WIDE != function::DIRECT_RESP {
            x = match x[0] {
                function::INTERRUPT => ffa::hvc(regs([function::RUN, x[1]])),
                _ => ffa::hvc(request),
            };
        }
        assert_eq!(x[3], 0, "task {what}");
    }
}
