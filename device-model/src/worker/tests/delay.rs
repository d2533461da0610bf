//! Tests of interrupts that wait.

use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use gear2_protocol::device_word::{HOLD_ASKED, RESET_ASKED};

use super::{Echo, PATIENCE};
use crate::backend::{Backend, Progress};
use crate::board::DeviceKind;
use crate::state::Word;
use crate::testing::{CHANNEL, DATA, Guest};
use crate::transport::{Identity, register};
use crate::vring::{Broken, Chain, Vring};
use crate::worker::SUSPECT_AT_WORK;

/// VIRTIO_F_EVENT_IDX and VIRTIO_F_INDIRECT_DESC.
const EVENT_INDEX: u64 = 1 << 29;
const INDIRECT: u64 = 1 << 28;
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

/// Delay that no machine is slow enough to reach within a test.
const LONG: Duration = Duration::from_secs(600);

/// A guest whose interrupts may wait for [`LONG`].
struct Waiting {
    guest: Guest,
    /// Interrupts until now.
    told: u64,
}

impl Waiting {
    /// Makes one whose driver accepts these features, and INDIRECT.
    fn new(features: u64) -> Self {
        let mut guest = Guest::new(Box::new(Sender));
        guest.kill_gdm();
        guest.delay_us = LONG.as_micros() as u64;
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

    /// Tells whether an interrupt waits. The thread sleeps for no longer than that interrupt may
    /// wait, and without one for as long as it likes.
    fn waits(&mut self) -> bool {
        let worker = self.guest.worker();
        let (is_pending, sleep) = (worker.delay.is_pending(), worker.longest_sleep());
        assert_eq!(is_pending, sleep.is_some());
        assert!(sleep.is_none_or(|sleep| sleep <= LONG));
        is_pending
    }

    /// Returns how many interrupts there were since the last look.
    fn told(&mut self) -> u64 {
        let all = self.guest.state().get(Word::Interrupts);
        all - std::mem::replace(&mut self.told, all)
    }
}

#[test]
fn an_interrupt_that_may_wait_comes_in_time() {
    let delay = Duration::from_millis(20);
    let mut waiting = Waiting::new(EVENT_INDEX);
    assert!(!waiting.waits());
    let begin = Instant::now();
    waiting.request(LATE);
    assert_eq!((waiting.told(), waiting.waits()), (0, true));
    waiting.guest.worker().wiring.delay_us = delay.as_micros() as u64;
    assert!(waiting.guest.worker().longest_sleep() <= Some(delay));
    // The guest does nothing any longer, and no event wakes the thread.
    while waiting.told() == 0 {
        waiting.guest.serve_and_sleep();
        assert!(begin.elapsed() < PATIENCE, "nobody tells the guest");
    }
    assert!(begin.elapsed() >= delay);
    assert_eq!(waiting.guest.read(register::INTERRUPT_STATUS) & 1, 1);
    assert!(!waiting.waits(), "it is told once");
    waiting.guest.work();
    assert_eq!(waiting.told(), 0, "it is told once");
}

#[test]
fn an_interrupt_of_another_queue_is_that_of_those_that_wait() {
    let mut waiting = Waiting::new(EVENT_INDEX);
    waiting.request(LATE);
    assert_eq!((waiting.told(), waiting.waits()), (0, true));
    waiting.request(AT_ONCE);
    assert_eq!((waiting.told(), waiting.waits()), (1, false));
    waiting.guest.work();
    assert_eq!(waiting.told(), 0);
}

/// A quarter of the sixteen entries are enough.
#[test]
fn few_completions_wait_for_their_interrupt() {
    let mut waiting = Waiting::new(EVENT_INDEX);
    for _ in 0..3 {
        for _ in 0..3 {
            waiting.request(LATE);
            assert_eq!(waiting.told(), 0);
        }
        waiting.request(LATE);
        assert_eq!(waiting.told(), 1);
    }
}

/// Such a driver may wait for each of its frames, or fill its queue with few of them.
#[test]
fn a_driver_without_both_features_is_told_at_once() {
    let without_index = Waiting::new(0);
    let mut without_tables = Waiting::new(EVENT_INDEX);
    let features = without_tables.guest.state().get(Word::DriverFeatures);
    assert_eq!(features & (EVENT_INDEX | INDIRECT), EVENT_INDEX | INDIRECT);
    let guest = &mut without_tables.guest;
    for status in [0, 1, 3] {
        guest.write(register::STATUS, status);
    }
    for half in 0..2 {
        guest.write(register::DRIVER_FEATURES_SEL, half);
        let features = (features & !INDIRECT) >> (32 * half);
        guest.write(register::DRIVER_FEATURES, features as u32);
    }
    guest.write(register::STATUS, 0xb);
    guest.set_up(LATE);
    guest.write(register::STATUS, 0xf);
    assert_eq!(guest.status(), 0xf);
    without_tables.told();
    for mut waiting in [without_index, without_tables] {
        for _ in 0..3 {
            waiting.request(LATE);
            assert_eq!((waiting.told(), waiting.waits()), (1, false));
        }
    }
}

/// A suspect pauses for longer than an interrupt may wait.
#[test]
fn a_suspect_tells_its_guest_before_it_pauses() {
    let mut waiting = Waiting::new(EVENT_INDEX);
    waiting.request(LATE);
    assert_eq!((waiting.told(), waiting.waits()), (0, true));
    // Another test's suspect may have panicked.
    let at_work = SUSPECT_AT_WORK.lock();
    let at_work = at_work.unwrap_or_else(PoisonError::into_inner);
    waiting.guest.worker().is_suspect = true;
    assert!(waiting.guest.turn(), "it looks again");
    drop(at_work);
    assert_eq!((waiting.told(), waiting.waits()), (1, false));
}

#[test]
fn a_guest_is_told_before_it_is_paused() {
    let mut waiting = Waiting::new(EVENT_INDEX);
    waiting.request(LATE);
    let words = &waiting.guest.region.devices[CHANNEL];
    words[HOLD_ASKED].store(1, Ordering::Release);
    waiting.guest.work();
    assert_eq!(waiting.told(), 1);
}

#[test]
fn a_driver_that_closes_the_queue_is_told_before() {
    let mut waiting = Waiting::new(EVENT_INDEX);
    waiting.request(LATE);
    waiting.guest.write(register::QUEUE_SEL, LATE as u32);
    waiting.guest.write(register::QUEUE_READY, 0);
    assert_eq!(waiting.told(), 1);
}

/// Virtio 1.2, 3.1.1: there is no interrupt ahead of DRIVER_OK.
#[test]
fn a_reset_ends_the_wait() {
    let by_driver = |guest: &mut Guest| guest.write(register::STATUS, 0);
    let by_gear2 = |guest: &mut Guest| {
        guest.region.devices[CHANNEL][RESET_ASKED].fetch_add(1, Ordering::Release);
    };
    for reset in [by_driver, by_gear2] {
        let mut waiting = Waiting::new(EVENT_INDEX);
        waiting.request(LATE);
        assert_eq!((waiting.told(), waiting.waits()), (0, true));
        reset(&mut waiting.guest);
        waiting.guest.work();
        assert_eq!((waiting.told(), waiting.waits()), (0, false));
    }
}

#[test]
fn the_next_gdm_tells_of_what_waited() {
    let mut waiting = Waiting::new(EVENT_INDEX);
    waiting.request(LATE);
    assert_eq!((waiting.told(), waiting.waits()), (0, true));
    waiting.guest.kill_gdm();
    waiting.guest.start_gdm(Box::new(Sender));
    assert_eq!((waiting.told(), waiting.waits()), (1, false));
}

/// The requests of such a guest wait, and what it has sent is news all the same. A device that no
/// driver uses interrupts nobody.
#[test]
fn the_next_gdm_tells_of_what_waited_also_without_a_backend() {
    let kind = || DeviceKind::VhostUser(Echo.identity().device_id);
    let mut waiting = Waiting::new(EVENT_INDEX);
    waiting.request(LATE);
    assert_eq!((waiting.told(), waiting.waits()), (0, true));
    waiting.guest.kill_gdm();
    let _later = waiting.guest.start_gdm_without(kind());
    assert_eq!((waiting.told(), waiting.waits()), (1, false));
    assert_eq!(waiting.guest.read(register::INTERRUPT_STATUS) & 1, 1);
    waiting.guest.write(register::STATUS, 0);
    waiting.guest.kill_gdm();
    let _later = waiting.guest.start_gdm_without(kind());
    assert_eq!(waiting.told(), 0);
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
