//! The device's side of the rings against a driver, in orders that the device's CPU allows: each of
//! its stores waits in a buffer, and becomes visible late, and not always in order.
//!
//! A lost notification or interrupt leaves one side waiting for ever, which shuttle finds as a
//! deadlock. The driver's side accesses the rings as virtio demands, and in order.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::sync::{Condvar, Mutex, MutexGuard};
use shuttle::{Config, FailurePersistence, Runner, thread};

use super::{ENTRIES, INDEX, NO_EVENT, Rings, Shared, USED_SIZE, Used};

const SIZE: u16 = 4;
const AVAILABLE: u64 = 0;
const USED: u64 = 0x40;
const STATUS: u64 = 0x80;
const MEMORY: usize = 0x90;
/// Requests of a run.
const REQUESTS: u16 = 2;
/// Orders that are drawn.
const DRAWN: usize = 2_000;
const SEED: u64 = 0x7669_7274;

/// A store that only its own CPU sees yet.
struct Pending {
    address: u64,
    bytes: Vec<u8>,
    /// Whether the store becomes visible only after all earlier stores.
    is_release: bool,
}

impl Pending {
    fn overlaps(&self, other: &Self) -> bool {
        let end = |store: &Self| store.address + store.bytes.len() as u64;
        self.address < end(other) && other.address < end(self)
    }
}

#[derive(Default)]
struct Inner {
    memory: Vec<u8>,
    pending: VecDeque<Pending>,
    is_over: bool,
    interrupt: bool,
    notification: bool,
}

impl Inner {
    fn put(&mut self, store: &Pending) {
        let at = store.address as usize;
        self.memory[at..at + store.bytes.len()].copy_from_slice(&store.bytes);
    }

    /// Makes the oldest store visible; false if there is none.
    fn drain_oldest(&mut self) -> bool {
        let Some(store) = self.pending.pop_front() else {
            return false;
        };
        self.put(&store);
        true
    }

    /// Makes the newest store visible before the others, if it may be.
    fn drain_newest(&mut self) {
        let Some(store) = self.pending.pop_back() else {
            return;
        };
        if store.is_release || self.pending.iter().any(|older| older.overlaps(&store)) {
            self.pending.push_back(store);
        } else {
            self.put(&store);
        }
    }
}

/// Memory, and the lines between device and driver.
struct Machine {
    inner: Mutex<Inner>,
    changed: Condvar,
}

impl Machine {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            inner: Mutex::new(Inner {
                memory: vec![0; MEMORY],
                ..Inner::default()
            }),
            changed: Condvar::new(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap()
    }

    fn change(&self, change: impl FnOnce(&mut Inner)) {
        change(&mut self.lock());
        self.changed.notify_all();
    }

    fn wait(&self, mut until: impl FnMut(&mut Inner) -> bool) {
        let mut inner = self.lock();
        while !until(&mut inner) {
            inner = self.changed.wait(inner).unwrap();
        }
    }

    /// The driver's accesses, each visible at once.
    fn get(&self, address: u64) -> u16 {
        let at = address as usize;
        u16::from_le_bytes(self.lock().memory[at..at + 2].try_into().unwrap())
    }

    fn set(&self, address: u64, value: u16) {
        let at = address as usize;
        self.lock().memory[at..at + 2].copy_from_slice(&value.to_le_bytes());
    }
}

/// The device's CPU.
struct Device(Arc<Machine>);

impl Device {
    fn push(&self, address: u64, bytes: &[u8], is_release: bool) {
        let bytes = bytes.to_vec();
        self.0.change(|inner| {
            inner.pending.push_back(Pending {
                address,
                bytes,
                is_release,
            });
        });
    }
}

impl Shared for Device {
    type Error = Infallible;

    fn load(&self, address: u64, _order: Ordering) -> Result<u16, Infallible> {
        let inner = self.0.lock();
        let own = inner.pending.iter().rev();
        let own = own.clone().find(|store| store.address == address);
        let at = address as usize;
        let bytes = own.map_or(&inner.memory[at..at + 2], |store| &store.bytes);
        Ok(u16::from_le_bytes(bytes.try_into().unwrap()))
    }

    fn store(&self, address: u64, value: u16, order: Ordering) -> Result<(), Infallible> {
        let is_release = matches!(order, Ordering::Release | Ordering::SeqCst);
        self.push(address, &value.to_le_bytes(), is_release);
        Ok(())
    }

    fn write(&self, address: u64, bytes: &[u8]) -> Result<(), Infallible> {
        self.push(address, bytes, false);
        Ok(())
    }

    fn fence(&self) {
        self.0.change(|inner| while inner.drain_oldest() {});
    }
}

fn rings(event_index: bool) -> Rings {
    Rings {
        size: SIZE,
        available: AVAILABLE,
        used: USED,
        event_index,
        next_used: 0,
        completed: 0,
    }
}

/// Runs device and driver beside each other, in many orders.
fn in_many_orders(event_index: bool, device: fn(Device, Rings), driver: fn(&Machine, Rings)) {
    let mut config = Config::new();
    config.failure_persistence = FailurePersistence::None;
    config.silence_warnings = true;
    let body = move || {
        let machine = Machine::new();
        let start = |body: fn(&Machine)| {
            let machine = Arc::clone(&machine);
            thread::spawn(move || body(&machine))
        };
        let drains = [
            start(|machine| {
                let mut over = false;
                while !over {
                    machine.wait(|inner| {
                        over = inner.is_over && inner.pending.is_empty();
                        over || inner.drain_oldest()
                    });
                }
            }),
            start(|machine| {
                let mut over = false;
                while !over {
                    machine.wait(|inner| {
                        over = inner.is_over;
                        let left = inner.pending.len();
                        inner.drain_newest();
                        over || inner.pending.len() != left
                    });
                }
            }),
        ];
        let cpu = Device(Arc::clone(&machine));
        let works = thread::spawn(move || device(cpu, rings(event_index)));
        driver(&machine, rings(event_index));
        works.join().unwrap();
        machine.change(|inner| inner.is_over = true);
        drains.into_iter().for_each(|thread| thread.join().unwrap());
    };
    // Few changes at places that matter, and many changes anywhere.
    let few = PctScheduler::new_from_seed(SEED, 4, DRAWN);
    assert_eq!(Runner::new(few, config.clone()).run(body), DRAWN);
    let many = RandomScheduler::new_from_seed(SEED, DRAWN);
    assert_eq!(Runner::new(many, config).run(body), DRAWN);
}

/// Completes requests, one after the other.
fn completes(device: Device, mut rings: Rings) {
    for number in 0..REQUESTS {
        let status = (STATUS + u64::from(number), 0xa0 + number as u8);
        let written = 7 + u32::from(number);
        let used = Used {
            head: number,
            written,
        };
        rings.answer(&device, used, status).unwrap();
        if rings.wants_interrupt(&device).unwrap() {
            device.0.change(|inner| inner.interrupt = true);
        }
    }
}

/// Sleeps until each request is completed, and checks the result.
fn collects(machine: &Machine, rings: Rings) {
    let mut seen = 0;
    while seen < REQUESTS {
        if machine.get(USED + INDEX) == seen {
            // The driver asks for an interrupt, then checks the ring again.
            if rings.event_index {
                machine.set(AVAILABLE + ENTRIES + 2 * u64::from(SIZE), seen);
            } else {
                machine.set(AVAILABLE, 0);
            }
            if machine.get(USED + INDEX) == seen {
                machine.wait(|inner| std::mem::take(&mut inner.interrupt));
                continue;
            }
        }
        if !rings.event_index {
            machine.set(AVAILABLE, NO_EVENT);
        }
        let entry = USED + ENTRIES + USED_SIZE * u64::from(seen);
        assert_eq!(machine.get(entry), seen);
        assert_eq!(machine.get(entry + 4), 7 + seen);
        let status = machine.lock().memory[(STATUS + u64::from(seen)) as usize];
        assert_eq!(
            u16::from(status),
            0xa0 + seen,
            "the status of request {seen}"
        );
        seen += 1;
    }
}

#[test]
fn what_is_completed_is_whole_and_told_of() {
    for event_index in [false, true] {
        in_many_orders(event_index, completes, collects);
    }
}

/// Completes all requests at once, as the buffers of a frame.
fn completes_a_frame(device: Device, mut rings: Rings) {
    let used = |head| Used { head, written: 7 };
    let all: Vec<Used> = (0..REQUESTS).map(used).collect();
    rings.complete(&device, &all).unwrap();
}

/// Sees all buffers of the frame, or none.
fn collects_a_frame(machine: &Machine, _rings: Rings) {
    let mut seen = 0;
    while seen == 0 {
        seen = machine.get(USED + INDEX);
        thread::yield_now();
    }
    assert_eq!(seen, REQUESTS, "a part of the frame");
    for number in 0..REQUESTS {
        let entry = USED + ENTRIES + USED_SIZE * u64::from(number);
        assert_eq!(machine.get(entry), number);
    }
}

#[test]
fn the_buffers_of_a_frame_are_seen_at_once() {
    in_many_orders(false, completes_a_frame, collects_a_frame);
}

/// Looks for requests, and sleeps when there is none.
fn listens(device: Device, rings: Rings) {
    let mut next = 0;
    rings.silence(&device).unwrap();
    while next < REQUESTS {
        if rings.available_index(&device).unwrap() != next {
            next += 1;
        } else if !rings.listen(&device, next).unwrap() {
            device
                .0
                .wait(|inner| std::mem::take(&mut inner.notification));
            rings.silence(&device).unwrap();
        }
    }
}

/// Makes requests available, and notifies where that is wanted.
fn offers(machine: &Machine, rings: Rings) {
    for number in 0..REQUESTS {
        machine.set(AVAILABLE + INDEX, number + 1);
        let wanted = if rings.event_index {
            machine.get(USED + ENTRIES + USED_SIZE * u64::from(SIZE)) == number
        } else {
            machine.get(USED) & NO_EVENT == 0
        };
        if wanted {
            machine.change(|inner| inner.notification = true);
        }
    }
}

#[test]
fn what_is_made_available_is_seen_or_told_of() {
    for event_index in [false, true] {
        in_many_orders(event_index, listens, offers);
    }
}
