//! Resets its machine by PSCI again and again. Nothing may survive in memory, so the count is in
//! the physical counter, which goes on: a boot every 100 ms until 650 ms after the machine's start, which is
//! six resets when the first boot comes before 100 ms (under `icount` it does).
//!
//! Requirements: G1-RUN-009.
#![no_std]
#![no_main]

use core::sync::atomic::{AtomicU64, Ordering};

use test_guests::timer::{self, Kind};
use test_guests::{Machine, check, guest, mmio, psci, report, say};

guest!(main);

const INTERVAL_US: u64 = 100_000;
const LAST_US: u64 = 650_000;
/// Into the memory that nothing of the image lies in.
const BEHIND_IMAGE: u64 = 8 << 20;
const MARK: u64 = 0x6d61_726b;

/// In the image's data, which is not cleared but loaded.
static DATA: AtomicU64 = AtomicU64::new(1);

fn main(machine: &Machine) {
    say!("BOOT");
    let place = machine.ram.start + BEHIND_IMAGE;
    report::equal("image-is-new", DATA.load(Ordering::Relaxed), 1);
    if machine.gearv {
        report::equal("memory-is-wiped", mmio::read64(place), 0);
    }
    if machine.gearv {
        // G1-TIM-005: the virtual count begins anew.
        let life = timer::now();
        check!("count-is-new", life < timer::from_us(INTERVAL_US), "{life}");
    }
    DATA.store(2, Ordering::Relaxed);
    mmio::write64(place, MARK);
    let interval = timer::from_us(INTERVAL_US);
    let end = Kind::Physical.now().next_multiple_of(interval);
    while Kind::Physical.now() < end {
        timer::sleep_us(1000);
    }
    if end < timer::from_us(LAST_US) {
        psci::system_reset();
    }
    report::pass("reboot");
}
