//! Takes what the `tlb` guest offers, reads it on another CPU, and gives it back (see there).
#![no_std]
#![no_main]

use test_guests::ffa::{self, Descriptor, function};
use test_guests::report::equal;
use test_guests::watch::{gone, start, watch, watcher};
use test_guests::{Machine, guest, psci};

guest!(
    main,
    irq = test_guests::exception::ignore,
    other_cpu = watcher
);

const OWN: u64 = 2;
const GIVER: u64 = 1;
/// Offset of the buffers in the VM's memory.
const TX: u64 = 6 << 20;

fn main(machine: &Machine) {
    let tx = machine.ram.start + TX;
    equal("cpu-on", start(), psci::result::SUCCESS);
    ffa::hvc([function::RXTX_MAP, tx, tx + 4096, 1, 0, 0, 0, 0]);
    let (mut lives, mut lost) = (0, (0, 0));
    let mut x = ffa::hvc([function::MSG_WAIT, 0, 0, 0, 0, 0, 0, 0]);
    loop {
        if x[0] & !WIDE != function::DIRECT_REQ {
            // Interrupted.
            x = ffa::hvc([function::MSG_WAIT, 0, 0, 0, 0, 0, 0, 0]);
            continue;
        }
        let (what, argument) = (x[3], x[4]);
        let answer = match what {
            1 => {
                lives += 1;
                (lives, 0)
            }
            2 => (retrieve(tx, argument), 0),
            3 => {
                watch(argument);
                lost = (2, 0);
                (0, 0)
            }
            4 => {
                if lost == (2, 0) {
                    let (aborted, late) = gone();
                    lost = (aborted.into(), late);
                }
                lost
            }
            5 => {
                ffa::write_relinquish(tx, argument, 0, OWN);
                let back = ffa::hvc([function::RELINQUISH, 0, 0, 0, 0, 0, 0, 0]);
                equal("relinquish", ffa::status_of(&back), 0);
                let (aborted, late) = gone();
                (aborted.into(), late)
            }
            _ => (0, 0),
        };
        let response = function::DIRECT_RESP | WIDE;
        let ends = OWN << 16 | GIVER;
        x = [response, ends, 0, 0, answer.0, answer.1, 0, 0];
        if what == 6 {
            // A response makes this VM wait again. Ending first ends the request with it.
            return;
        }
        x = ffa::hvc(x);
    }
}

fn retrieve(tx: u64, handle: u64) -> u64 {
    Descriptor {
        handle,
        composite: 0,
        ..Descriptor::new(GIVER, OWN)
    }
    .write(tx);
    let x = ffa::hvc([function::RETRIEVE_REQ, 64, 64, 0, 0, 0, 0, 0]);
    ffa::hvc([function::RX_RELEASE, 0, 0, 0, 0, 0, 0, 0]);
    ffa::status_of(&x) as u64
}

/// SMC64: registers are not cut.
const WIDE: u64 = 1 << 30;
