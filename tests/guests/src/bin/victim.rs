//! Holds memory that an attacker in another VM wants to read or change: the memory does not change,
//! and the guest continues.
#![no_std]
#![no_main]

use core::sync::atomic::{AtomicU64, Ordering};

use test_guests::{Machine, check, guest, say, timer};

guest!(main);

/// 4 MiB span at least two blocks of stage 2, so a wrong mapping of one is found.
const WORDS: usize = 512 << 10;
/// The attacker has as long as that: ten seconds.
const BEATS: u64 = 100;
/// The host looks for the lines: a guest that says nothing has been stopped by the attack.
const BEAT_US: u64 = 100_000;

/// Written at run time: memory that is loaded anew, or wiped, differs from it.
static MEMORY: [AtomicU64; WORDS] = [const { AtomicU64::new(0) }; WORDS];

fn main(_machine: &Machine) {
    for (index, word) in MEMORY.iter().enumerate() {
        word.store(pattern(index), Ordering::Relaxed);
    }
    for beat in 1..=BEATS {
        timer::sleep_us(BEAT_US);
        let changed = changed();
        if changed != 0 || beat % 10 == 0 {
            check!("victim-unchanged", changed == 0, "{changed} words");
            say!("heartbeat {beat}");
        }
    }
}

/// Each word has its own value, so that words that moved are found as well.
fn pattern(index: usize) -> u64 {
    (index as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x7669_6374_696d
}

/// All words are read in each beat. A change that is undone between two beats is not seen.
fn changed() -> usize {
    let is_changed =
        |(index, word): &(usize, &AtomicU64)| word.load(Ordering::Relaxed) != pattern(*index);
    MEMORY.iter().enumerate().filter(is_changed).count()
}
