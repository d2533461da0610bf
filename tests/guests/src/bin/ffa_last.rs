//! Makes FF-A's memory calls with many ranges. The VM is the last of a full manifest, and so is its
//! peer but for one: what a call costs there is compared with what the call costs the first VMs.
//! Nothing is reported unless all calls are done.
//!
//! Requirements: G1-MEM-023.
#![no_std]
#![no_main]

use test_guests::ffa::{self, Descriptor, Regs, function, status_of, task};
use test_guests::{Machine, guest};

guest!(main);

const PAGE: u64 = 4096;
/// Offsets in the VM's memory.
const TX: u64 = 4 << 20;
const ARENA: u64 = 8 << 20;
/// Marks a message of 64-bit words: a handle is as long.
const WIDE: u64 = 0x4000_0000;
/// Number of ranges: as many as one page describes.
const RANGES: u64 = 250;

fn main(machine: &Machine) {
    let tx = machine.ram.start + TX;
    done([function::RXTX_MAP, tx, tx + PAGE, 1, 0, 0, 0, 0]);
    let own = ffa::own_endpoint();
    for id in [function::SHARE, function::LEND, function::DONATE] {
        let last = Last { own, tx };
        let handle = last.send(id, machine.ram.start + ARENA);
        last.ask(task::RETRIEVE, handle);
        if id == function::DONATE {
            break;
        }
        last.ask(task::RELINQUISH, handle);
        let (low, high) = (handle & 0xffff_ffff, handle >> 32);
        done([function::RECLAIM, low, high, 0, 0, 0, 0, 0]);
    }
    Last { own, tx }.ask(task::LEAVE, 0);
    done([function::RXTX_UNMAP, 0, 0, 0, 0, 0, 0, 0]);
}

/// Makes a call that must be done.
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
    const fn peer(&self) -> u64 {
        self.own - 1
    }

    /// Sends every other page from `arena` on.
    fn send(&self, id: u64, arena: u64) -> u64 {
        let is_donation = id == function::DONATE;
        Descriptor {
            attributes: if id == function::SHARE {
                ffa::WRITE_BACK
            } else {
                0
            },
            permissions: if is_donation { 0 } else { ffa::READ_WRITE },
            pages: RANGES,
            ranges: RANGES,
            ..Descriptor::new(self.own, self.peer())
        }
        .write(self.tx);
        for index in 0..RANGES {
            let at = self.tx + ffa::HEADER + 16 * index;
            ffa::write_range(at, arena + 2 * PAGE * index, 1);
        }
        let size = ffa::HEADER + 16 * RANGES;
        let x = done([id, size, size, 0, 0, 0, 0, 0]);
        x[3] << 32 | x[2]
    }

    /// Asks the peer to do something with a transaction.
    fn ask(&self, what: u64, handle: u64) {
        let ends = self.own << 16 | self.peer();
        let request = [function::DIRECT_REQ | WIDE, ends, 0, what, handle, 0, 0, 0];
        let mut x = ffa::hvc(request);
        // Not there yet, or interrupted.
        while x[0] & !WIDE != function::DIRECT_RESP {
            x = match x[0] {
                function::INTERRUPT => ffa::hvc([function::RUN, x[1], 0, 0, 0, 0, 0, 0]),
                _ => ffa::hvc(request),
            };
        }
        assert_eq!(x[3], 0, "task {what}");
    }
}
