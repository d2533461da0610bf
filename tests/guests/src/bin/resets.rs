//! Resets its VM as soon as it runs, for ever. Each reset loads the VM anew: Gear1 wipes and copies
//! memory and invalidates TLBs, which a real-time VM on another CPU must not feel (G1-RT-008).
#![no_std]
#![no_main]

use test_guests::{Machine, guest, psci, timer};

guest!(main);

fn main(_machine: &Machine) {
    timer::delay_us(100);
    psci::system_reset();
}
