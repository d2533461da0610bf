//! A VM that waits for direct messages and does what they say (see the `ffa` guest). An endpoint
//! apart from the agent, since a receiver of messages is blocked in FFA_MSG_WAIT and executes no
//! commands meanwhile.
#![no_std]
#![no_main]

use test_guests::ffa::{self, function, regs};
use test_guests::{Machine, guest};

guest!(main);

/// Offset of the buffers in the VM's memory.
const TX: u64 = 8 << 20;

fn main(machine: &Machine) {
    let tx = machine.ram.start + TX;
    ffa::hvc(regs([function::RXTX_MAP, tx, tx + 4096, 1]));
    ffa::serve(ffa::own_endpoint(), tx);
}
