//! Tests of interrupts that wait.

use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use gear2_protocol::device_word::{HOLD_ASKED, RESET_ASKED};

use super::{Echo, PATIENCE};
use crate::backend::{Backend, Progress};
use crate::state::Word;
use crate::testing::{CHANNEL, DATA, Guest};
use crate::transport::{Identity, register};
use crate::vring::{Broken, Chain, Vring};

/// VIRTIO_F_EVENT_IDX.
const EVENT_INDEX: u64 = 1 << 29;
/// The queue whose interrupts may wait, and the other one.
const LATE: usize = 1;
const AT_ONCE: usize = 0;

/// Completes all requests; interrupts of one queue may wait.
struct Sender;

impl Backend for Sender {
    fn identity(&self) -> Identity {
        Echo.identity()
    }

    fn may_tell_late(&self, queue: usize) -> bool {
        queue == LATE
    }

    fn process(&mut self, _queue: usize, ring: &mut Vring) -> Result<Progress, Broken> {
        let mut chain = Chain::default();
        while ring.take(&mut chain)? {
            ring.complete(chain.head, 0)?;
        }
        Ok(Progress::Drained)
    }
}

/// A guest whose interrupts may wait for so long.
struct Waiting {
    guest: Guest,
    /// Interrupts until now.
    told: u64,
}

impl Waiting {
    fn new(delay: Duration, features: u64) -> Self {
        let mut guest = Guest::new(Box::new(Sender));
        guest.kill_gdm();
        guest.delay_us = delay.as_micros() as u64;
        guest.start_gdm(Box::new(Sender));
        guest.initialise(features, 2);
        let mut waiting = Self { guest, told: 0 };
        waiting.told();
        waiting
    }

    /// Completes a request of a queue whose driver wants an interrupt for it.
    fn request(&mut self, queue: usize) {
        let ring = &self.guest.rings[queue];
        let event = ring.available() + 4 + 2 * u64::from(ring.size);
        let used = self.guest.used_index(queue);
        self.guest.put(event, &used.to_le_bytes());
        let head = used % self.guest.rings[queue].size;
        self.guest.request(queue, head, &[(DATA, 8, false)]);
        self.guest.turn();
        assert_eq!(self.guest.used_index(queue), used.wrapping_add(1));
    }

    /// Returns how many interrupts there were since the last look.
    fn told(&mut self) -> u64 {
        let all = self.guest.state().get(Word::Interrupts);
        all - std::mem::replace(&mut self.told, all)
    }
}

/// So long that no machine is that slow.
const LONG: Duration = Duration::from_secs(600);

#[test]
fn an_interrupt_that_may_wait_comes_in_time() {
    let delay = Duration::from_millis(400);
    let mut waiting = Waiting::new(delay, EVENT_INDEX);
    let begin = Instant::now();
    waiting.request(LATE);
    assert_eq!(waiting.told(), 0);
    // The guest does nothing any longer, and no event wakes the thread.
    while waiting.told() == 0 {
        waiting.guest.serve_and_sleep();
        assert!(begin.elapsed() < PATIENCE, "nobody tells the guest");
    }
    assert!(begin.elapsed() >= delay);
    assert_eq!(waiting.guest.read(register::INTERRUPT_STATUS) & 1, 1);
    waiting.guest.work();
    std::thread::sleep(delay);
    waiting.guest.work();
    assert_eq!(waiting.told(), 0, "it is told once");
}

#[test]
fn an_interrupt_of_another_queue_is_that_of_those_that_wait() {
    let delay = Duration::from_millis(400);
    let mut waiting = Waiting::new(delay, EVENT_INDEX);
    waiting.request(LATE);
    waiting.request(AT_ONCE);
    assert_eq!(waiting.told(), 1);
    std::thread::sleep(delay);
    waiting.guest.work();
    assert_eq!(waiting.told(), 0);
}

/// A quarter of the sixteen entries are enough.
#[test]
fn few_completions_wait_for_their_interrupt() {
    let mut waiting = Waiting::new(LONG, EVENT_INDEX);
    for _ in 0..3 {
        for _ in 0..3 {
            waiting.request(LATE);
            assert_eq!(waiting.told(), 0);
        }
        waiting.request(LATE);
        assert_eq!(waiting.told(), 1);
    }
}

/// Such a driver may wait for each of its frames.
#[test]
fn a_driver_without_event_indices_is_told_at_once() {
    let mut waiting = Waiting::new(LONG, 0);
    for _ in 0..3 {
        waiting.request(LATE);
        assert_eq!(waiting.told(), 1);
    }
}

#[test]
fn a_guest_is_told_before_it_is_paused() {
    let mut waiting = Waiting::new(LONG, EVENT_INDEX);
    waiting.request(LATE);
    let words = &waiting.guest.region.devices[CHANNEL];
    words[HOLD_ASKED].store(1, Ordering::Release);
    waiting.guest.work();
    assert_eq!(waiting.told(), 1);
}

#[test]
fn a_driver_that_closes_the_queue_is_told_before() {
    let mut waiting = Waiting::new(LONG, EVENT_INDEX);
    waiting.request(LATE);
    waiting.guest.write(register::QUEUE_SEL, LATE as u32);
    waiting.guest.write(register::QUEUE_READY, 0);
    assert_eq!(waiting.told(), 1);
}

/// Virtio 1.2, 3.1.1: there is no interrupt ahead of DRIVER_OK.
#[test]
fn a_reset_ends_the_wait() {
    let delay = Duration::from_millis(400);
    let mut waiting = Waiting::new(delay, EVENT_INDEX);
    waiting.request(LATE);
    waiting.guest.write(register::STATUS, 0);
    std::thread::sleep(delay);
    waiting.guest.work();
    assert_eq!(waiting.told(), 0);
    let mut waiting = Waiting::new(delay, EVENT_INDEX);
    waiting.request(LATE);
    let words = &waiting.guest.region.devices[CHANNEL];
    words[RESET_ASKED].fetch_add(1, Ordering::Release);
    waiting.guest.work();
    std::thread::sleep(delay);
    waiting.guest.work();
    assert_eq!(waiting.told(), 0);
}

#[test]
fn the_next_gdm_tells_of_what_waited() {
    let mut waiting = Waiting::new(LONG, EVENT_INDEX);
    waiting.request(LATE);
    assert_eq!(waiting.told(), 0);
    waiting.guest.kill_gdm();
    waiting.guest.start_gdm(Box::new(Sender));
    assert_eq!(waiting.told(), 1);
}

/// As [`Echo`]; counts the seconds that were over.
struct Noting(Arc<AtomicU64>);

impl Backend for Noting {
    fn identity(&self) -> Identity {
        Echo.identity()
    }

    fn woken(&mut self, by: &[RawFd]) {
        self.0.fetch_add(by.is_empty().into(), Ordering::Relaxed);
    }

    fn process(&mut self, _queue: usize, _ring: &mut Vring) -> Result<Progress, Broken> {
        Ok(Progress::Waits)
    }
}

/// A wake-up may be lost, and the hub expects steps of each thread.
#[test]
fn a_thread_that_nobody_wakes_looks_each_second() {
    let seconds = Arc::new(AtomicU64::new(0));
    let mut guest = Guest::new(Box::new(Noting(Arc::clone(&seconds))));
    let begin = Instant::now();
    for count in 1..=2 {
        guest.serve_and_sleep();
        // Nothing else ends a sleep.
        assert_eq!(seconds.load(Ordering::Relaxed), count);
    }
    assert!(begin.elapsed() < PATIENCE);
}
