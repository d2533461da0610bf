//! Takes what the `tlb` guest offers, reads it on another CPU, and gives it back (see there).
//!
//! CPU 1 keeps a translation of the page in its TLB while CPU 0 gives the page back: Gear1 has to
//! invalidate that of the other CPU too (TLBI VMALLS12E1IS, G1-MEM-014).
#![no_std]
#![no_main]

use test_guests::ffa::{self, Descriptor, function, regs};
use test_guests::report::equal;
use test_guests::watch::{gone, start, task, watch, watcher};
use test_guests::{Machine, guest, psci};

guest!(
    main,
    irq = test_guests::exception::ignore,
    other_cpu = watcher
);

/// Endpoints by the order of the VMs in the manifest.
const OWN: u64 = 2;
const GIVER: u64 = 1;
/// Offset of the buffers in the VM's memory. The image and its stacks end far below.
const TX: u64 = 6 << 20;

/// CPU 1 is on from the start, since a request to watch a page waits until CPU 1 has read it.
fn main(machine: &Machine) {
    let tx = machine.ram.start + TX;
    equal("cpu-on", start(), psci::result::SUCCESS);
    ffa::hvc(regs([function::RXTX_MAP, tx, tx + 4096, 1]));
    let mut taker = Taker {
        tx,
        lives: 0,
        lost: (0, 0),
    };
    taker.serve();
}

/// Progress of the requests.
struct Taker {
    tx: u64,
    /// Lives of the giver.
    lives: u64,
    /// Answer of the sibling about the watched page, or [`WATCHED`]. The page of a giver that
    /// restarts is lost once, and the answer must stay.
    lost: (u64, u64),
}

/// The sibling has not been asked yet. 2 is neither of the answers 0 and 1 of [`gone`].
const WATCHED: (u64, u64) = (2, 0);

impl Taker {
    /// Responds to requests until one says to leave. An FFA_MSG_WAIT that an interrupt ended is
    /// made again. Bit 30 tells SMC64 from SMC32 and is left out of the comparison.
    fn serve(&mut self) {
        let mut x = ffa::hvc(regs([function::MSG_WAIT]));
        loop {
            if x[0] & !WIDE != function::DIRECT_REQ {
                // Interrupted.
                x = ffa::hvc(regs([function::MSG_WAIT]));
                continue;
            }
            let (what, argument) = (x[3], x[4]);
            if what == task::LEAVE {
                // A response makes this VM wait again. Ending first ends the request with it.
                return;
            }
            let (first, second) = self.carry_out(what, argument);
            let ends = OWN << 16 | GIVER;
            x = ffa::hvc(regs([RESPONSE, ends, 0, 0, first, second]));
        }
    }

    /// Carries out a request, and returns X4 and X5 of the response. A retrieval maps the page at
    /// its physical address, so the giver and the taker name it alike.
    fn carry_out(&mut self, what: u64, argument: u64) -> (u64, u64) {
        match what {
            task::COUNT => {
                self.lives += 1;
                (self.lives, 0)
            }
            task::RETRIEVE => {
                let request = Descriptor::of_retrieval(argument, GIVER, OWN);
                (request.retrieve(self.tx) as u64, 0)
            }
            task::WATCH => {
                watch(argument);
                self.lost = WATCHED;
                (0, 0)
            }
            task::GONE => self.lost(),
            task::RELINQUISH => self.relinquish(argument),
            _ => (0, 0),
        }
    }

    /// Asks the sibling once: the state of the giver's first life stays.
    fn lost(&mut self) -> (u64, u64) {
        if self.lost == WATCHED {
            self.lost = gone_in_words();
        }
        self.lost
    }

    /// The translation must be gone when the call returns, not some time later.
    fn relinquish(&self, handle: u64) -> (u64, u64) {
        ffa::write_relinquish(self.tx, handle, 0, OWN);
        let back = ffa::hvc(regs([function::RELINQUISH]));
        equal("relinquish", ffa::status_of(&back), 0);
        gone_in_words()
    }
}

/// A direct message carries words.
fn gone_in_words() -> (u64, u64) {
    let (aborted, late) = gone();
    (aborted.into(), late)
}

/// SMC64: registers are not cut. Handles and addresses have more than 32 bits.
const WIDE: u64 = 1 << 30;
const RESPONSE: u64 = function::DIRECT_RESP | WIDE;
