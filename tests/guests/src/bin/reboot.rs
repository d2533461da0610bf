//! Starts anew until it is told not to: prints `BOOT`, and resets its machine by PSCI unless `q`
//! was typed meanwhile. Nothing may survive in memory.
#![no_std]
#![no_main]

use core::sync::atomic::{AtomicU64, Ordering};

use test_guests::{Machine, check, guest, mmio, psci, report, say, timer, uart};

guest!(main);

/// How long a key is waited for.
const PATIENCE_US: u64 = 100_000;
/// Into the memory that nothing of the image lies in.
const BEHIND_IMAGE: u64 = 4 << 20;
const MARK: u64 = 0x6d61_726b;

/// Set by every boot; the entry code clears it only if it lies in `.bss`.
static COUNT: AtomicU64 = AtomicU64::new(1);

fn main(machine: &Machine) {
    say!("BOOT");
    let place = machine.ram.start + BEHIND_IMAGE;
    if machine.gearv {
        let (data, left) = (COUNT.load(Ordering::Relaxed), mmio::read64(place));
        check!(
            "memory-is-new",
            (data, left) == (1, 0),
            "data {data}, {left:#x} behind the image"
        );
    }
    COUNT.store(2, Ordering::Relaxed);
    mmio::write64(place, MARK);
    let end = timer::now() + timer::from_us(PATIENCE_US);
    while timer::now() < end {
        if uart::receive() == Some(b'q') {
            report::pass("reboot");
            return;
        }
    }
    psci::system_reset();
}
