//! Computes the same checksum again and again, and sees how long it stood still. The guest runs
//! beside the one that makes Gear2 fail: registers and memory of a guest outlive Gear2
//! (G1-SUP-002), and its longest pause is the period of Gear2's watchdog with the restart.
#![no_std]
#![no_main]

use test_guests::{Machine, check, guest, mmio, say, timer};

guest!(main);

/// The `gear2_fails` guest makes Gear2 fail meanwhile.
const MEASURED_US: u64 = 400_000;
/// `watchdog-ms` of the manifest; the restart, a time slice of another VM on this CPU, and the
/// turns in which QEMU runs CPUs under icount.
const LONGEST_US: u64 = 100_000 + 30_000;
/// Into the memory that nothing of the image lies in.
const BEHIND_IMAGE: u64 = 8 << 20;
/// A page: what moves between guests at a restart by mistake is a page at least.
const WORDS: u64 = 512;
/// Many sums fit into the time measured, so that most failures fall into one.
const ROUNDS: u64 = 20;

/// Fills a table, mixes it, and returns its sum. Each step depends on the one before, so that one
/// wrong register or word changes the sum. The looks are 64 steps apart: a look reads the counter,
/// and more of them would measure themselves.
fn checksum(table: u64, gap: &mut Gap) -> u64 {
    let place = |word: u64| table + word % WORDS * 8;
    for word in 0..WORDS {
        mmio::write64(place(word), word.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    }
    let mut sum = 0_u64;
    for word in 0..WORDS * ROUNDS {
        let value = mmio::read64(place(word)) ^ sum;
        sum = sum.rotate_left(7).wrapping_add(value);
        mmio::write64(place(word.wrapping_mul(31)), sum);
        if word % 64 == 0 {
            gap.look();
        }
    }
    sum
}

/// The longest time between two looks at the counter. CNTVCT_EL0 runs on while the vCPU does not,
/// so that a pause shows.
struct Gap {
    last: u64,
    longest: u64,
}

impl Gap {
    /// A gap that has not ended yet counts with the next look.
    fn look(&mut self) {
        let now = timer::now();
        self.longest = self.longest.max(now - self.last);
        self.last = now;
    }
}

/// The first sum is the measure for all others, since each begins with a table written anew.
fn main(machine: &Machine) {
    let table = machine.ram.start + BEHIND_IMAGE;
    let start = timer::now();
    let mut gap = Gap {
        last: start,
        longest: 0,
    };
    let first = checksum(table, &mut gap);
    let (mut count, mut wrong) = (1_u64, 0_u64);
    while gap.last - start < timer::from_us(MEASURED_US) {
        count += 1;
        wrong += u64::from(checksum(table, &mut gap) != first);
    }
    check!(
        "sums-stay-right",
        wrong == 0 && count > 1,
        "{wrong} of {count} are wrong"
    );
    check_gap(&gap, count);
}

/// Judges the longest time in which this vCPU did not run, in microseconds. The first gap covers
/// none of the boot, as it begins with `main`.
fn check_gap(gap: &Gap, count: u64) {
    let longest = timer::to_ns(gap.longest) / 1000;
    check!(
        "time-stands-still-for-a-period-at-most",
        longest <= LONGEST_US,
        "{longest} us"
    );
    say!("{count} sums, {longest} us without a look");
}
