//! The answer to a reset in the orders that its stores can be seen in: `state.rs` as it ships, with
//! shuttle's atomics for the hardware's.

use std::sync::Arc;

use gear2_protocol::device_word::{RESET_ASKED, RESET_SEEN};
use shuttle::scheduler::PctScheduler;
use shuttle::{Config, FailurePersistence, Runner, thread};

use atomic::{AtomicU64, Ordering};
use state::{DeviceState, MAX_QUEUES, QueueWord, WORDS, Word};

/// Atomics under the name that `state.rs` imports them by.
mod atomic {
    pub(crate) use shuttle::sync::atomic::{AtomicU64, Ordering, fence};
}

#[allow(
    dead_code,
    unreachable_pub,
    clippy::duplicate_mod,
    reason = "only the reset is of interest here"
)]
#[path = "../state.rs"]
mod state;

const DRAWN: usize = 200;
const SEED: u64 = 0x6764_6d31;

fn device_id() -> u32 {
    2
}

/// Returns a page that is never freed: a run leaks few bytes.
fn page() -> &'static [AtomicU64; WORDS] {
    let words: Box<[AtomicU64]> = (0..WORDS).map(|_| AtomicU64::new(0)).collect();
    let Ok(page) = <Box<[AtomicU64; WORDS]>>::try_from(words) else {
        unreachable!("there are so many words");
    };
    Box::leak(page)
}

/// Once Gear2 sees the answer, and a GDM that is started at that instant with it, nothing of what
/// the driver of the stopped VM had set up is there.
fn once() {
    let page = page();
    let state = DeviceState::new(page);
    state.start_anew(device_id());
    state.set(Word::Status, 0xf);
    for queue in 0..MAX_QUEUES {
        state.set_queue(queue, QueueWord::Ready, 1);
        state.set_queue(queue, QueueWord::Used, 0x4000_0000);
    }
    page[RESET_ASKED].store(1, Ordering::Release);
    let gdm = thread::spawn(move || {
        let state = DeviceState::new(page);
        let asked = state.reset_asked().unwrap();
        state.answer_reset(asked);
    });
    while page[RESET_SEEN].load(Ordering::Acquire) != 1 {
        thread::yield_now();
    }
    assert!(state.resumable(device_id()));
    assert_eq!(state.get(Word::Status), 0);
    for queue in 0..MAX_QUEUES {
        assert_eq!(state.queue(queue, QueueWord::Ready), 0);
        assert_eq!(state.queue(queue, QueueWord::Used), 0);
    }
    gdm.join().unwrap();
}

#[test]
fn a_reset_that_is_answered_has_been_done() {
    let mut config = Config::new();
    config.failure_persistence = FailurePersistence::None;
    config.silence_warnings = true;
    let scheduler = PctScheduler::new_from_seed(SEED, 2, DRAWN);
    let runs = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let counted = Arc::clone(&runs);
    Runner::new(scheduler, config).run(move || {
        counted.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        once();
    });
    assert_eq!(runs.load(std::sync::atomic::Ordering::Relaxed), DRAWN);
}
