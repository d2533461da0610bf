//! The thread of one device: register writes, queue turns, waiting.
//!
//! Owns: the device's transport and backend, which no other thread touches. It is
//! woken by the device's line (the guest's notification, a register write), by the
//! hub (a reset, whatever a new GDM finds), by the backend's descriptors, and once a
//! second by the clock, which makes up for a wake-up that was lost while GDM was away.
//! A driver that sets the device up writes one register after the other: after a write
//! the thread looks for the next one by itself for a while, and says so to Gear2.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::Ordering;

use gear2_protocol::{MmioSlot, Region, slot};
use vmm_sys_util::epoll::{ControlOperation, Epoll, EpollEvent, EventSet};
use vmm_sys_util::eventfd::EventFd;

use crate::backend::{Backend, Progress};
use crate::gpio::Line;
use crate::mapping::{Doorbell, Memory, Registers, counter, finish_stores, relax};
use crate::state::{DeviceState, Word};
use crate::sys;
use crate::transport::{Effect, Transport, Write};
use crate::vring::Broken;

#[cfg(test)]
mod tests;

/// Messages about a device's guest, after which it is silent: a guest must not fill the log.
const MESSAGES: u64 = 16;
/// A request that waited longer than this because no GDM was there, in a device VM that was, fails.
const AWAY_SECONDS: u64 = 30;

/// After so many starts of GDM in which a device completed nothing, its requests are taken for what ends GDM.
const BARREN_STARTS: u64 = 8;

/// What the device's thread works with.
#[derive(Debug)]
pub struct Wiring {
    /// Channel number.
    pub channel: usize,
    /// Name for the log.
    pub name: String,
    /// The shared region.
    pub region: &'static Region,
    /// The device's registers.
    pub page: Registers,
    /// The guest's RAM.
    pub memory: Memory,
    /// Interrupts the guest.
    pub interrupt: Doorbell,
    /// Tells Gear2 to look at the slots.
    pub answer: Doorbell,
    /// The guest's notifications.
    pub line: Line,
    /// The hub's.
    pub kick: EventFd,
    /// Look instead of waiting.
    pub spin: bool,
    /// How long to look for the next register write before waiting, in microseconds.
    pub linger_us: u64,
}

/// How often a thread that polls looks at memory before it asks the kernel for anything.
const LOOKS: usize = 64;

/// How long a thread looks for the next register write before it sleeps, in microseconds.
pub(crate) const LINGER_US: u64 = 50;

/// A device at work.
pub struct Worker {
    wiring: Wiring,
    state: DeviceState,
    transport: Transport,
    backend: Box<dyn Backend>,
    epoll: Epoll,
    watched: BTreeSet<RawFd>,
    /// An access was answered: another one may follow soon.
    lingers: bool,
}

impl Worker {
    /// Takes over the device. One that an earlier GDM left active goes on.
    pub fn new(wiring: Wiring, backend: Box<dyn Backend>) -> io::Result<Self> {
        let page = wiring
            .region
            .devices
            .get(wiring.channel)
            .ok_or_else(|| io::Error::other("channel number out of range"))?;
        let state = DeviceState::new(page);
        let identity = backend.identity();
        let (transport, active) =
            Transport::new(wiring.page, state, wiring.memory.clone(), identity);
        let epoll = Epoll::new()?;
        let mut worker = Self {
            wiring,
            state,
            transport,
            backend,
            epoll,
            watched: BTreeSet::new(),
            lingers: false,
        };
        worker.watch(worker.wiring.line.file().as_raw_fd(), EventSet::IN)?;
        worker.watch(worker.wiring.kick.as_raw_fd(), EventSet::IN)?;
        worker.watch_backend();
        if active {
            worker.backend.activate(worker.transport.features());
            worker.expire();
        }
        // An earlier GDM may have died between a completion and its interrupt.
        worker.interrupt();
        Ok(worker)
    }

    /// Fails what has waited, if GDM was away for too long, or died of it again and again.
    fn expire(&mut self) {
        let hz = u64::from(self.wiring.region.header.counter_hz.load(Ordering::Relaxed));
        let away = counter().saturating_sub(self.state.get(Word::LastSeen)) / hz.max(1);
        if !is_too_long(away, sys::uptime()) && self.barren_starts() < BARREN_STARTS {
            return;
        }
        for (index, ring) in self.transport.rings().iter().enumerate() {
            if let Some(ring) = ring {
                self.backend.expire(index, ring.pending());
            }
        }
    }

    /// Counts the starts since a request was completed.
    fn barren_starts(&self) -> u64 {
        let requests = self.state.get(Word::Requests);
        let barren = if requests == self.state.get(Word::RequestsBefore) {
            self.state.get(Word::BarrenStarts).saturating_add(1)
        } else {
            0
        };
        self.state.set(Word::RequestsBefore, requests);
        self.state.set(Word::BarrenStarts, barren);
        barren
    }

    /// Serves the device for ever.
    pub fn run(&mut self) -> io::Result<()> {
        let spin = self.wiring.spin;
        self.state.set_looking(spin);
        loop {
            let more = if spin { self.spin() } else { self.serve() };
            let timeout = if more || spin { 0 } else { 1000 };
            self.wait(timeout)?;
        }
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

    /// Looks at everything, and for more register writes if there was one; true if there is more to do at once.
    pub(crate) fn serve(&mut self) -> bool {
        let more = self.turn();
        let lingers = core::mem::take(&mut self.lingers);
        if lingers && !more && !self.transport.active() {
            return self.linger();
        }
        more
    }

    /// Looks for register writes by itself until none has come for a while, or the driver is ready: its
    /// requests are told of by the line. Returns whether there is more to do at once.
    fn linger(&mut self) -> bool {
        let hz = u64::from(self.wiring.region.header.counter_hz.load(Ordering::Relaxed));
        let ticks = hz * self.wiring.linger_us / 1_000_000;
        self.state.set_looking(true);
        let mut more = false;
        let mut lingers = true;
        while lingers && !more && !self.transport.active() {
            let begin = counter();
            while !self.is_asked() && counter().wrapping_sub(begin) < ticks {
                relax();
            }
            more = self.turn();
            lingers = core::mem::take(&mut self.lingers);
        }
        self.state.set_looking(false);
        // For what was posted before Gear2 could see that: a whole turn, so that the queues have had theirs
        // before the access after that is answered.
        let last = self.turn();
        more | last | self.lingers
    }

    /// Tells whether there is an access to this device.
    fn is_asked(&self) -> bool {
        self.slots().any(|slot| self.is_ours(slot))
    }

    fn slots(&self) -> impl Iterator<Item = &'static MmioSlot> + use<> {
        let region = self.wiring.region;
        let count = region.header.vcpu_count.load(Ordering::Relaxed) as usize;
        region.slots.iter().take(count)
    }

    fn is_ours(&self, slot: &MmioSlot) -> bool {
        slot.state() == slot::POSTED
            && slot.device.load(Ordering::Relaxed) as usize == self.wiring.channel
    }

    /// Looks at everything once; true if there is more to do at once.
    pub fn turn(&mut self) -> bool {
        self.state.set(Word::LastSeen, counter());
        if self.state.reset_asked().is_some() {
            // The backend first: who asked uses the memory for something else once it is answered.
            self.backend.reset();
            self.transport.answer_reset();
        }
        self.serve_slots();
        self.backend.poll();
        if self.backend.watch_changed() {
            self.watch_backend();
        }
        self.serve_queues()
    }

    /// Stops the device until its driver resets it.
    pub fn break_down(&mut self) {
        if self.transport.break_down() {
            self.interrupt();
        }
    }

    fn interrupt(&self) {
        self.state.count(Word::Interrupts, 1);
        self.wiring.interrupt.ring();
    }

    fn serve_queues(&mut self) -> bool {
        let mut more = false;
        let mut interrupt = false;
        let mut broken = None;
        for (index, ring) in self.transport.rings().iter_mut().enumerate() {
            let Some(ring) = ring else {
                continue;
            };
            let turn = serve_queue(self.backend.as_mut(), index, ring, self.wiring.spin);
            match turn {
                Ok((again, wanted)) => {
                    more |= again;
                    interrupt |= wanted;
                }
                Err(reason) => {
                    broken = Some((index, reason));
                    break;
                }
            }
        }
        if let Some((queue, reason)) = broken {
            interrupt |= self.transport.break_down();
            self.complain(&format!(
                "queue {queue}: {reason:?}; the device needs a reset"
            ));
            more = false;
        }
        if interrupt {
            self.interrupt();
        }
        more
    }

    fn complain(&self, message: &str) {
        let breaks = self.state.get(Word::Breaks);
        if breaks <= MESSAGES {
            eprintln!("gdm: {}: {message}", self.wiring.name);
        }
        if breaks == MESSAGES {
            eprintln!("gdm: {}: says no more about its guest", self.wiring.name);
        }
    }

    fn serve_slots(&mut self) {
        let mut answered = false;
        for slot in self.slots() {
            if self.is_ours(slot) {
                let state = self.access(slot);
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

    /// Does what a slot asks for; returns the slot's next state.
    fn access(&mut self, slot: &MmioSlot) -> u32 {
        let access = slot.access.load(Ordering::Relaxed);
        let register = slot.register.load(Ordering::Relaxed) as usize;
        let size = 1 << (access & 3);
        if access & 4 == 0 {
            let value = self.transport.read(register, size);
            slot.value.store(value.unwrap_or(0), Ordering::Relaxed);
            return value.map_or(slot::ABORT, |_| slot::DONE);
        }
        let value = slot.value.load(Ordering::Relaxed);
        let breaks = self.state.get(Word::Breaks);
        let effect = self.transport.write(Write {
            register,
            size,
            value,
        });
        if self.state.get(Word::Breaks) != breaks {
            self.complain(&format!(
                "{value:#x} in register {register:#x} breaks the rules"
            ));
            self.interrupt();
        }
        match effect {
            Effect::Abort => return slot::ABORT,
            Effect::Activated => self.backend.activate(self.transport.features()),
            Effect::Reset => self.backend.reset(),
            Effect::Config(offset) => {
                let bytes = value.to_le_bytes();
                let bytes = bytes.get(..size).unwrap_or_default();
                self.backend.write_config(offset, bytes);
            }
            Effect::None | Effect::Notified => {}
        }
        slot::DONE
    }

    fn watch(&self, fd: RawFd, events: EventSet) -> io::Result<()> {
        let event = EpollEvent::new(events, fd as u64);
        self.epoll.ctl(ControlOperation::Add, fd, event)
    }

    fn watch_backend(&mut self) {
        let wanted: BTreeSet<RawFd> = self.backend.watch().into_iter().collect();
        for fd in self.watched.difference(&wanted) {
            // It may be closed already, which removed it.
            let _ = self
                .epoll
                .ctl(ControlOperation::Delete, *fd, EpollEvent::default());
        }
        let events = EventSet::IN | EventSet::OUT | EventSet::EDGE_TRIGGERED;
        for fd in &wanted {
            // One that is watched already says so; a number that was used again is added anew.
            let event = EpollEvent::new(events, *fd as u64);
            let _ = self.epoll.ctl(ControlOperation::Add, *fd, event);
        }
        self.watched = wanted;
    }

    fn wait(&self, milliseconds: i32) -> io::Result<()> {
        let mut events = [EpollEvent::default(); 8];
        let count = match self.epoll.wait(milliseconds, &mut events) {
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => 0,
            Err(error) => return Err(error),
        };
        for event in events.iter().take(count) {
            if event.fd() == self.wiring.line.file().as_raw_fd() {
                self.state.count(Word::Wakeups, 1);
                self.wiring.line.drain();
            } else if event.fd() == self.wiring.kick.as_raw_fd() {
                let _ = self.wiring.kick.read();
            }
        }
        Ok(())
    }
}

/// Tells whether what waited for so many seconds while nobody served the device is to fail. It is
/// not if the device VM itself was away: whoever is as patient as a board's boot is served then.
const fn is_too_long(away: u64, uptime: u64) -> bool {
    away >= AWAY_SECONDS && away <= uptime
}

/// Gives a queue its turn. Returns whether it has more to do at once, and whether to interrupt the guest.
fn serve_queue(
    backend: &mut dyn Backend,
    index: usize,
    ring: &mut crate::vring::Vring,
    spin: bool,
) -> Result<(bool, bool), Broken> {
    ring.silence()?;
    let progress = backend.process(index, ring)?;
    let more = match progress {
        Progress::More => true,
        Progress::Waits => false,
        Progress::Drained => !spin && ring.listen()?,
    };
    let interrupt = ring.wants_interrupt()?;
    Ok((more, interrupt))
}
