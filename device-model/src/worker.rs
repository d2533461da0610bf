//! The thread of one device: register writes, queue turns, waiting.
//!
//! Owns: the device's transport and backend, which no other thread touches. As long as the backend
//! is not there something else stands for it ([`Awaited`](crate::backend::Awaited),
//! [`Absent`](crate::backend::Absent)). The thread is woken by the
//! device's line (the guest's notification, a register write), by the hub (a reset, whatever a new
//! GDM finds), by the backend's descriptors, and once a second by the clock, which makes up for a
//! wake-up that was lost while GDM was away. After an access and after a completion the thread looks
//! for the next one by itself for a while (`worker/linger.rs`).

use std::collections::BTreeSet;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::Ordering;
use std::sync::mpsc::Receiver;
use std::sync::{Mutex, TryLockError};
use std::time::Duration;

use gear2_protocol::{MmioSlot, slot};
use vmm_sys_util::epoll::{ControlOperation, Epoll, EpollEvent, EventSet};
use vmm_sys_util::timerfd::TimerFd;

use crate::backend::Backend;
use crate::mapping::{finish_stores, relax};
use crate::progress;
use crate::state::{DeviceState, Word};
use crate::sys::sleep;
use crate::transport::{Effect, Transport, Write};
use crate::vring::Broken;

use self::delay::Delay;
pub(crate) use self::delay::LONGEST_US;
use self::linger::Habit;
use self::queues::{Turn, serve_at_work};
use self::rest::is_reset;
pub use self::wiring::{Away, Wiring};

mod delay;
mod lifecycle;
mod linger;
mod queues;
mod rest;
#[cfg(test)]
pub(crate) mod tests;
mod wiring;

/// Messages about a device's guest, after which GDM is silent, and the next one too: a guest must
/// not fill the log.
pub(crate) const MESSAGES: u64 = 16;
/// Number of GDM starts that ended during work on a device, without a completed request in between,
/// after which the device's requests count as the cause.
const BARREN_STARTS: u64 = 8;
/// Number of such starts after which the device is a suspect. Only one suspect works at a time, so
/// that a further end of GDM names the right one.
// planted: suspects work beside each other
const SUSPECT_STARTS: u64 = 3;
/// Held by the suspect that works.
static SUSPECT_AT_WORK: Mutex<()> = Mutex::new(());
/// Pause of a suspect that waits for its turn, before it looks at its registers again.
const SUSPECT_PAUSE: Duration = Duration::from_millis(5);

/// The backend of a device, when it is there.
pub type Arrival = Receiver<Box<dyn Backend>>;

/// Number of polls of memory before a polling thread asks the kernel for events.
const LOOKS: usize = 64;

/// Time after which a thread looks at everything, whatever wakes it: a wake-up may be lost while no
/// GDM is there, and the hub expects steps.
const TICK: Duration = Duration::from_secs(1);

/// Time for which a thread polls for the next register write before it sleeps, in microseconds.
pub(crate) const LINGER_US: u64 = 50;

/// The thread of a device.
pub struct Worker {
    /// Registers, memory, doorbells and line, all opened before the thread lost its rights.
    wiring: Wiring,
    /// The device's page in the region, which outlives this GDM.
    state: DeviceState,
    /// Registers and rings as the driver has set them up.
    transport: Transport,
    /// The backend, or what stands for it.
    backend: Box<dyn Backend>,
    /// Source of the backend, and of others if this one is lost.
    arrival: Option<Arrival>,
    /// A stand-in serves until a backend arrives.
    is_awaiting: bool,
    /// Waits for the line, for the hub's kick, and for the backend's descriptors.
    epoll: Epoll,
    /// Ends a sleep once a second. A limit of each sleep would be a timer for the kernel to set and
    /// to cancel each time.
    tick: TimerFd,
    /// The backend's descriptors that `epoll` has.
    watched: BTreeSet<RawFd>,
    /// The line may have risen since its arming: it does not rise again before it is armed anew.
    is_spent: bool,
    /// An access was answered: another one may follow soon.
    lingers: bool,
    /// The turn asks for no notifications: the thread looks for the next request by itself.
    is_silent: bool,
    /// Whether requests have come soon after completions.
    habit: Habit,
    /// An interrupt that waits.
    delay: Delay,
    /// Whether a request of this device may have ended the previous GDM.
    is_suspect: bool,
}

impl Worker {
    /// Serves the device for ever.
    pub fn run(&mut self) -> io::Result<()> {
        self.state.set_looking(self.wiring.spin);
        loop {
            self.step()?;
        }
    }

    /// Does what there is to do, and sleeps.
    pub(crate) fn step(&mut self) -> io::Result<()> {
        let spin = self.wiring.spin;
        let more = if spin { self.spin() } else { self.serve() };
        let time = match more || spin {
            true => Some(Duration::ZERO),
            false => self.longest_sleep(),
        };
        self.wait(time)
    }

    /// Returns for how long the thread may sleep, if something is due ahead of the next tick: a
    /// backend, whose time is rounded up to milliseconds, or an interrupt that waits.
    fn longest_sleep(&self) -> Option<Duration> {
        let due = self.backend.pause().map(|pause| pause.as_micros());
        let due =
            due.map(|pause| Duration::from_millis(pause.div_ceil(1000).clamp(1, 1000) as u64));
        // An interrupt that became due since the last turn has one more turn first.
        // planted: a thread sleeps for longer than an interrupt may wait
        due.into_iter().chain(self.delay_left()).min()
    }

    /// Looks at memory most often; what takes a system call is for the caller to do now and then.
    fn spin(&mut self) -> bool {
        for _ in 0..LOOKS {
            if self.turn() {
                return true;
            }
            relax();
        }
        std::thread::yield_now();
        false
    }

    /// Iterates over the slots of the VM's vCPUs. Any vCPU of the guest may access the device.
    fn slots(&self) -> impl Iterator<Item = &'static MmioSlot> + use<> {
        let region = self.wiring.region;
        let count = region.header.vcpu_count.load(Ordering::Relaxed) as usize;
        let page = region.slots.get(self.wiring.vm);
        page.into_iter()
            .flat_map(move |page| page.iter().take(count))
    }

    /// Tells whether a slot has an access to this device. The state is read first: the device's
    /// number is this access's only once the slot is posted.
    fn is_ours(&self, slot: &MmioSlot) -> bool {
        slot.state() == slot::POSTED
            && slot.device.load(Ordering::Relaxed) as usize == self.wiring.channel
    }

    /// Looks at everything once; true if there is more to do at once.
    pub fn turn(&mut self) -> bool {
        progress::step();
        self.take_arrival();
        if self.state.reset_asked().is_some() && self.has_memory_at_rest() {
            // The backend first: who asked uses the memory for something else once it is answered.
            self.backend.reset();
            // planted: a reset is answered for a backend that goes on
            if !self.replace_lost() {
                self.transport.answer_reset();
                self.delay.end();
            }
        }
        self.serve_slots();
        self.obey();
        self.backend.poll();
        self.show_config();
        if self.backend.watch_changed() {
            self.watch_backend();
        }
        self.heed_hold();
        let more = !self.state.is_held() && self.serve_queues();
        self.tell_late();
        self.replace_lost() | more
    }

    /// Does what a person orders.
    fn obey(&mut self) {
        if let Some(orders) = &self.wiring.orders {
            orders.each(|order, medium| match medium {
                Some(medium) => self.backend.insert(medium),
                None => self.backend.obey(order),
            });
        }
    }

    /// Stops the device until its driver resets it: GDM failed.
    pub fn break_down(&mut self, why: &str) {
        self.state.set(Word::AtWork, 0);
        self.complain(why);
        if self.transport.break_down() {
            self.interrupt();
        }
    }

    /// Interrupts the guest. The page shows the cause by now: the handler reads it without an exit.
    fn interrupt(&mut self) {
        self.delay.end();
        self.state.count(Word::Interrupts, 1);
        self.wiring.interrupt.ring();
    }

    /// Serves the queues, unless another suspect works. A suspect whose request is completed is
    /// none any longer: GDM has survived it.
    fn serve_queues(&mut self) -> bool {
        let alone = match self.is_suspect.then(|| SUSPECT_AT_WORK.try_lock()) {
            None => None,
            Some(Ok(guard)) => Some(guard),
            Some(Err(TryLockError::Poisoned(guard))) => Some(guard.into_inner()),
            Some(Err(TryLockError::WouldBlock)) => {
                // The pause is longer than an interrupt may wait.
                if self.delay.is_pending() {
                    self.interrupt();
                }
                std::thread::sleep(SUSPECT_PAUSE);
                return true;
            }
        };
        let more = self.serve_each_queue();
        if alone.is_some() && self.state.get(Word::Requests) != self.state.get(Word::RequestsBefore)
        {
            self.is_suspect = false;
        }
        more
    }

    /// Serves the queues and tells the guest. Completions are told of also where a later request
    /// breaks the device: they are in the used ring.
    fn serve_each_queue(&mut self) -> bool {
        let mut turn = self.turn_of_queues();
        if turn.interrupt || turn.late {
            self.transport.show_used();
        }
        if let Some((queue, reason)) = turn.broken {
            turn.interrupt |= self.break_queue(queue, reason);
            turn.more = false;
        }
        if turn.interrupt {
            self.interrupt();
        }
        turn.more
    }

    /// Stops the device until its driver resets it: the driver broke a rule in this queue. Returns
    /// whether to interrupt the guest.
    fn break_queue(&mut self, queue: usize, reason: Broken) -> bool {
        let tells = self.transport.break_down();
        self.complain(&format!(
            "queue {queue}: {reason:?}; the device needs a reset"
        ));
        tells
    }

    /// Serves the queues one after the other, up to the first that is broken.
    fn turn_of_queues(&mut self) -> Turn {
        let mut turn = Turn::default();
        let is_silent = self.wiring.spin || self.is_silent;
        let is_patient = self.has_patient_driver();
        for (index, ring) in self.transport.rings().iter_mut().enumerate() {
            let Some(ring) = ring else {
                continue;
            };
            match serve_at_work(self.backend.as_mut(), index, ring, is_silent) {
                Ok(served) => {
                    turn.more |= served.more;
                    // planted: the interrupts of all queues wait
                    if is_patient && self.backend.may_tell_late(index) {
                        let wants = served.interrupt;
                        self.delay.note(served.completed, ring.size(), wants);
                        turn.late |= wants;
                    } else {
                        turn.interrupt |= served.interrupt;
                    }
                }
                Err(reason) => {
                    turn.broken = Some((index, reason));
                    break;
                }
            }
        }
        turn
    }

    /// Says something about the guest in the log, as often as [`MESSAGES`] allows.
    fn complain(&self, message: &str) {
        self.state.count(Word::Messages, 1);
        let count = self.state.get(Word::Messages);
        if let Some(line) = wording(count, &self.wiring.name, message) {
            eprintln!("{line}");
        }
    }

    /// Answers the accesses to this device, but for a reset that has to wait. Results are stored
    /// before the state that shows them; Gear2 is told once for all.
    fn serve_slots(&mut self) {
        let mut answered = false;
        for slot in self.slots() {
            if self.is_ours(slot)
                && let Some(state) = self.access(slot)
            {
                finish_stores();
                slot.set_state(state);
                answered = true;
            }
        }
        if answered {
            self.lingers = true;
            self.wiring.answer.ring();
        }
    }

    /// Does what a slot asks for; returns the slot's next state, or `None` if it has to wait.
    fn access(&mut self, slot: &MmioSlot) -> Option<u32> {
        let access = slot.access.load(Ordering::Relaxed);
        let register = slot.register.load(Ordering::Relaxed) as usize;
        let size = 1 << (access & 3);
        if access & 4 == 0 {
            let value = self.transport.read(register, size);
            slot.value.store(value.unwrap_or(0), Ordering::Relaxed);
            return Some(value.map_or(slot::ABORT, |_| slot::DONE));
        }
        let value = slot.value.load(Ordering::Relaxed);
        let write = Write {
            register,
            size,
            value,
        };
        // planted: a driver's reset is answered for a backend that goes on
        let may_reset = !is_reset(write) || self.comes_to_rest();
        let may_go_on = may_reset && self.has_finished(write);
        may_go_on.then(|| self.write(write))
    }

    /// Does a write, and what follows from it for the backend; returns the slot's next state.
    fn write(&mut self, write: Write) -> u32 {
        let breaks = self.state.get(Word::Breaks);
        let effect = self.transport.write(write);
        let Write {
            register,
            size,
            value,
        } = write;
        if self.state.get(Word::Breaks) != breaks {
            self.complain(&format!(
                "{value:#x} in register {register:#x} breaks the rules"
            ));
            self.interrupt();
        }
        match effect {
            Effect::Abort => return slot::ABORT,
            Effect::Activated => self.activate(),
            Effect::Config(offset) => {
                let bytes = value.to_le_bytes();
                let bytes = bytes.get(..size).unwrap_or_default();
                self.backend.write_config(offset, bytes);
            }
            Effect::Reset => self.delay.end(),
            Effect::None | Effect::Notified => {}
        }
        // A driver reads what its write selects as soon as the write is answered.
        self.show_config();
        slot::DONE
    }

    /// Has the descriptor end this thread's sleep.
    fn watch(&self, fd: RawFd, events: EventSet) -> io::Result<()> {
        let event = EpollEvent::new(events, fd as u64);
        self.epoll.ctl(ControlOperation::Add, fd, event)
    }

    /// Watches the backend's descriptors as they are now. Edge-triggered: a tap device that nobody
    /// reads because the guest has no buffers must not end each sleep.
    fn watch_backend(&mut self) {
        let wanted: BTreeSet<RawFd> = self.backend.watch().into_iter().collect();
        for fd in self.watched.difference(&wanted) {
            // A closed descriptor is removed already.
            let _ = self
                .epoll
                .ctl(ControlOperation::Delete, *fd, EpollEvent::default());
        }
        let events = EventSet::IN | EventSet::OUT | EventSet::EDGE_TRIGGERED;
        for fd in &wanted {
            // A watched descriptor stays watched; a reused number is added anew.
            let event = EpollEvent::new(events, *fd as u64);
            let _ = self.epoll.ctl(ControlOperation::Add, *fd, event);
        }
        self.watched = wanted;
    }

    /// Sleeps until an event, the next tick or the end of the time, and takes in the events.
    pub(crate) fn wait(&mut self, time: Option<Duration>) -> io::Result<()> {
        self.arm_before_sleep(time);
        let mut events = [EpollEvent::default(); 8];
        let count = sleep::wait(&self.epoll, time, &mut events)?;
        // Taken in ahead of the backend's, which might fail: an edge is told of once.
        for event in events.iter().take(count) {
            if event.fd() == self.wiring.line.file().as_raw_fd() {
                self.state.count(Word::Wakeups, 1);
                self.wiring.line.heard();
                self.is_spent = true;
            } else if event.fd() == self.wiring.kick.as_raw_fd() {
                let _ = self.wiring.kick.read();
            } else if event.fd() == self.tick.as_raw_fd() {
                // The kernel begins the next second when this one is read.
                let _ = self.tick.wait();
                self.empty_line();
            }
        }
        if !self.wiring.spin {
            let by = events.map(|event| event.fd());
            let by = by.get(..count).unwrap_or_default();
            // planted: a tick makes up for nothing
            if by.contains(&self.tick.as_raw_fd()) {
                self.backend.woken(&[]);
            } else if count > 0 {
                self.backend.woken(by);
            }
        }
        Ok(())
    }

    /// Empties the queue of the line's events: Linux tells of no event that finds the queue full. No
    /// wait may have told of an event that is thrown away here. Such an event counts as an edge that
    /// was shown: the next turn looks at the queues, and the next sleep arms the line.
    pub(super) fn empty_line(&mut self) {
        // planted: an edge that no wait has told of is thrown away
        self.is_spent |= self.wiring.line.forget();
    }

    /// Arms the line, if it is spent and a sleep follows: a guest that notifies without end wakes
    /// this thread once before each sleep.
    ///
    /// No wake-up is lost. The guest makes a buffer available, then notifies. Gear1 takes the
    /// notification and this arming one after the other, under the lock of the PL061:
    /// - Notification first, line spent: Gear1 has held the edge and shows it at the arming.
    /// - Arming first: Gear1 shows the edge at once.
    ///
    /// Either way `epoll` has an event before it sleeps or ends its sleep, also if the buffer came
    /// after the last turn had looked. No look at the queues is therefore needed between the arming
    /// and the sleep.
    ///
    /// A line that is not spent here was shown no edge since its arming, or an event of that edge
    /// is still on its way through the kernel. That event ends the sleep.
    ///
    /// A guest that saw no need to notify (event index, VIRTQ_USED_F_NO_NOTIFY) is the matter of
    /// `Vring::listen`, which the last turn called: store; fence; load.
    fn arm_before_sleep(&mut self, time: Option<Duration>) {
        // planted: a thread at work arms its line
        if time != Some(Duration::ZERO) && core::mem::take(&mut self.is_spent) {
            self.wiring.line.arm();
        }
    }
}

/// Returns what the log says of message number `count` about a device's guest.
fn wording(count: u64, name: &str, message: &str) -> Option<String> {
    let end = if count == MESSAGES {
        "; gdm says no more about its guest"
    } else {
        ""
    };
    // planted: a guest fills the log
    (count <= MESSAGES).then(|| format!("gdm: {name}: {message}{end}"))
}
