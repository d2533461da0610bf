//! Tests of a device's turns: a queue that waits for the host does not spin, one that breaks
//! leaves the rest alone.

mod delay;
pub(crate) mod hostile;

use std::io::{PipeWriter, Read, Write};
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::time::{Duration, Instant};

use gear2_protocol::device_word::LOOKING;
use gear2_protocol::{doorbell_arm, slot};

use crate::backend::{Absent, Backend, Progress};
use crate::mapping::Doorbell;
use crate::state::Word;
use crate::testing::{CHANNEL, DATA, Guest, line_and_writer};
use crate::transport::{Identity, register};
use crate::vring::{Broken, Chain, Vring};
use crate::worker::{Wiring, Worker};

/// Longest time in which the slowest machine answers an access.
const PATIENCE: Duration = Duration::from_secs(60);

/// Completes one request a turn; queue 1 waits for ever.
struct Echo;

impl Backend for Echo {
    fn identity(&self) -> Identity {
        Identity {
            device_id: 42,
            features: 0,
            dependencies: &[],
            queue_sizes: vec![16, 16],
            config: vec![1, 2, 3],
        }
    }

    fn process(&mut self, queue: usize, ring: &mut Vring) -> Result<Progress, Broken> {
        let mut chain = Chain::default();
        if queue == 1 {
            return Ok(Progress::Waits);
        }
        if !ring.take(&mut chain)? {
            return Ok(Progress::Drained);
        }
        ring.complete(chain.head, 0)?;
        Ok(Progress::More)
    }
}

#[test]
fn all_requests_are_served_and_a_queue_that_waits_is_left() {
    let mut guest = Guest::new(Box::new(Echo));
    guest.initialise(0, 2);
    assert_eq!(guest.read(register::CONFIG), 0x03_0201);
    for head in 0..8 {
        guest.request(0, head, &[(DATA, 8, false)]);
        guest.request(1, head, &[(DATA, 8, true)]);
    }
    guest.work();
    assert_eq!((guest.used_index(0), guest.used_index(1)), (8, 0));
    assert_eq!(guest.state().get(Word::Requests), 8);
}

/// As [`Echo`], whose thread looks for the next request.
struct Eager;

impl Backend for Eager {
    fn identity(&self) -> Identity {
        Echo.identity()
    }

    fn looks_ahead(&self) -> bool {
        true
    }

    fn process(&mut self, queue: usize, ring: &mut Vring) -> Result<Progress, Broken> {
        Echo.process(queue, ring)
    }
}

/// A thread that looks for the next request by itself has asked for no notification. When it has
/// looked in vain, it asks before it sleeps.
#[test]
fn a_thread_asks_for_notifications_before_it_sleeps() {
    /// VRING_USED_F_NO_NOTIFY.
    const NO_NOTIFY: [u8; 2] = [1, 0];
    let mut guest = Guest::new(Box::new(Eager));
    guest.initialise(0, 1);
    let flags = guest.rings[0].used();
    for count in 1..10 {
        guest.request(0, 0, &[(DATA, 8, false)]);
        guest.wake();
        assert_eq!(guest.used_index(0), count);
        assert_ne!(guest.get(flags, 2), NO_NOTIFY, "request {count}");
    }
}

#[test]
fn a_broken_device_answers_its_registers() {
    let mut guest = Guest::new(Box::new(Echo));
    guest.initialise(0, 2);
    guest.rings[0].added = 1000;
    guest.offer(0, 0);
    guest.work();
    assert_eq!(guest.state().get(Word::Breaks), 1);
    assert_eq!(guest.status(), 0x4f);
    guest.rings[0].added = 0;
    guest.put(guest.rings[0].available(), &[0; 4]);
    guest.initialise(0, 2);
    guest.request(0, 0, &[(DATA, 8, false)]);
    guest.work();
    assert_eq!(guest.used_index(0), 1);
}

#[test]
fn a_device_without_a_backend_is_none() {
    let mut guest = Guest::new(Box::new(Absent));
    assert_eq!(guest.read(register::DEVICE_ID), 0);
    assert_eq!(guest.access(register::STATUS, 6, 3), slot::DONE);
    assert_eq!(guest.read(register::QUEUE_NUM_MAX), 0);
}

/// Posts as Gear2 does, and tells nobody who says that it looks by itself.
#[test]
fn each_access_is_seen_or_told_of() {
    let mut guest = Guest::new(Box::new(Echo));
    let region = guest.region;
    region
        .header
        .counter_hz
        .store(1_000_000_000, Ordering::Relaxed);
    let slot = &region.slots[0][0];
    slot.device.store(CHANNEL as u32, Ordering::Relaxed);
    slot.access.store(6, Ordering::Relaxed);
    slot.register
        .store(register::QUEUE_SEL as u32, Ordering::Relaxed);
    let (told, untold) = (AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let gear2 = scope.spawn(|| {
            for number in 0..200_u64 {
                slot.value.store(number, Ordering::Relaxed);
                slot.set_state(slot::POSTED);
                fence(Ordering::SeqCst);
                let looking = region.devices[CHANNEL][LOOKING].load(Ordering::Relaxed);
                let count = if looking == 0 { &told } else { &untold };
                count.fetch_add(1, Ordering::Release);
                let begin = Instant::now();
                while slot.state() == slot::POSTED {
                    assert!(
                        begin.elapsed() < PATIENCE,
                        "nobody looks at number {number}"
                    );
                    std::thread::yield_now();
                }
                // As long as a thread lingers, now and then.
                if number % 16 == 0 {
                    std::thread::sleep(Duration::from_millis(40));
                }
            }
        });
        let mut seen = 0;
        while !gear2.is_finished() {
            if told.load(Ordering::Acquire) != seen {
                seen = told.load(Ordering::Acquire);
                guest.wake();
            }
            std::thread::yield_now();
        }
    });
    let [told, untold] = [told, untold].map(AtomicU64::into_inner);
    assert!(told > 0 && untold > 0, "{told} told of, {untold} not");
}

#[test]
fn slots_of_other_devices_are_left_alone() {
    let mut guest = Guest::new(Box::new(Echo));
    let slot = &guest.region.slots[0][0];
    slot.device.store(7, std::sync::atomic::Ordering::Relaxed);
    slot.set_state(slot::POSTED);
    guest.work();
    assert_eq!(slot.state(), slot::POSTED);
}

#[test]
fn what_waited_fails_unless_the_device_vm_was_away_too() {
    use super::Away;
    let away = |seconds, uptime| Away { seconds, uptime };
    assert!(!away(29, 1000).is_too_long());
    assert!(away(30, 1000).is_too_long() && away(40, 40).is_too_long());
    assert!(!away(40, 39).is_too_long(), "it was booted meanwhile");
    assert!(away(42, 40).is_another_boot() && !away(40, 40).is_another_boot());
    assert!(crate::sys::uptime() > 0);
}

/// Fails each time its driver is ready.
struct Unhappy;

impl Backend for Unhappy {
    fn identity(&self) -> Identity {
        Echo.identity()
    }

    fn activate(&mut self, _features: u64) -> Result<(), String> {
        Err("offloads refused".into())
    }

    fn process(&mut self, _queue: usize, _ring: &mut Vring) -> Result<Progress, Broken> {
        Ok(Progress::Waits)
    }
}

/// All messages that a guest can cause are counted, over its resets and GDM's lives.
#[test]
fn a_guest_does_not_fill_the_log() {
    use super::{MESSAGES, wording};
    let mut guest = Guest::new(Box::new(Unhappy));
    for _ in 0..30 {
        guest.initialise(0, 2);
    }
    guest.kill_gdm();
    guest.start_gdm(Box::new(Unhappy));
    assert_eq!(guest.state().get(Word::Messages), 31);
    let lines = (1..=1000).filter_map(|count| wording(count, "linux/net1", "refused"));
    let lines: Vec<String> = lines.collect();
    assert_eq!(lines.len() as u64, MESSAGES);
    assert!(
        lines
            .iter()
            .all(|line| line.starts_with("gdm: linux/net1: refused"))
    );
    assert!(
        lines
            .last()
            .unwrap()
            .ends_with("says no more about its guest")
    );
}

/// A guest's device with a line that is armed by a bit of a doorbell, and what makes the line rise.
struct Armed {
    guest: Guest,
    writer: PipeWriter,
    doorbell: Doorbell,
    wiring: Option<Wiring>,
}

impl Armed {
    fn new() -> Self {
        let guest = Guest::new(Box::new(Echo));
        let (line, writer) = line_and_writer();
        let doorbell = Doorbell {
            page: guest.doorbells,
            offset: doorbell_arm(1),
        };
        let wiring = Wiring {
            line: line.paced(doorbell, 2),
            ..guest.wiring()
        };
        Self {
            guest,
            writer,
            doorbell,
            wiring: Some(wiring),
        }
    }

    fn start(&mut self) -> Worker {
        Worker::new(self.wiring.take().unwrap(), Box::new(Echo)).unwrap()
    }

    /// Returns the bits that were stored since the last call.
    fn armed(&self) -> u32 {
        let stored = self.guest.doorbells.load(self.doorbell.offset);
        self.guest.doorbells.store(self.doorbell.offset, 0);
        stored
    }
}

/// Gear1 shows a line once for each arming: a guest that notifies without end wakes the thread once
/// before each sleep, and not at all while the thread is at work.
#[test]
fn the_line_is_armed_before_a_sleep() {
    let mut device = Armed::new();
    let mut worker = device.start();
    assert_eq!(device.armed(), 4, "whatever an earlier gdm left");
    for _ in 0..2 {
        device.writer.write_all(&[0]).unwrap();
        worker.wait(Some(Duration::from_millis(1))).unwrap();
        assert_eq!(device.armed(), 0, "it has not looked");
        worker.turn();
        worker.wait(Some(Duration::ZERO)).unwrap();
        assert_eq!(device.armed(), 0, "it has more to do");
        worker.wait(Some(Duration::from_millis(1))).unwrap();
        assert_eq!(device.armed(), 4);
    }
    worker.wait(Some(Duration::from_millis(1))).unwrap();
    assert_eq!(device.armed(), 0, "it did not rise");
}

/// An event may come behind the wait that a tick has ended. Whoever throws it away has to arm.
#[test]
fn an_edge_that_no_wait_has_told_of_is_one() {
    let mut device = Armed::new();
    let mut worker = device.start();
    let wait = |worker: &mut Worker| worker.wait(Some(Duration::from_millis(1))).unwrap();
    wait(&mut worker);
    assert_eq!(device.armed(), 4);
    worker.empty_line();
    wait(&mut worker);
    assert_eq!(device.armed(), 0, "it has not risen");
    device.writer.write_all(&[0]).unwrap();
    worker.empty_line();
    wait(&mut worker);
    assert_eq!(device.armed(), 4);
}

/// Before its first arming the line rises as often as the guest notifies. An event from then must
/// take no room in the queue, and an edge that was shown since the arming may be among them.
#[test]
fn events_from_before_the_first_arming_leave_their_queue() {
    let mut device = Armed::new();
    device.writer.write_all(&[0; 16]).unwrap();
    let mut worker = device.start();
    assert_eq!(device.armed(), 4);
    let mut events = worker.wiring.line.file();
    let left = events.read(&mut [0; 16]);
    assert!(left.is_err(), "{left:?}");
    worker.wait(Some(Duration::from_millis(1))).unwrap();
    assert_eq!(device.armed(), 4, "it may have risen");
}
