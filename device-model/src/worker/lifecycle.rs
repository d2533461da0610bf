//! A device's backend over its life: its start, its late arrival, its loss, and what an earlier GDM
//! left.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Receiver;
use std::time::Duration;

use vmm_sys_util::epoll::{Epoll, EventSet};
use vmm_sys_util::timerfd::TimerFd;

use super::delay::Delay;
use super::linger::Habit;
use super::wiring::page_of;
use super::{Arrival, BARREN_STARTS, MESSAGES, SUSPECT_STARTS, TICK, Wiring, Worker};
use crate::backend::{Absent, Awaited, Backend};
use crate::board::DeviceKind;
use crate::mapping::counter;
use crate::state::{DeviceState, Serves, Word};
use crate::transport::{Identity, Transport};

impl Worker {
    /// Takes over the device. A device that an earlier GDM left active continues.
    pub fn new(wiring: Wiring, backend: Box<dyn Backend>) -> io::Result<Self> {
        let mut worker = Self::with(wiring, backend, None)?;
        worker.take_over();
        Ok(worker)
    }

    /// Takes other backends from `arrival` if this one is lost.
    pub fn follow(&mut self, arrival: Arrival) {
        self.arrival = Some(arrival);
    }

    /// Takes over a device of type `kind` whose backend is still to arrive. What a driver set up is
    /// kept, and its requests wait; a device that no driver uses is shown as none.
    pub fn awaiting(wiring: Wiring, kind: DeviceKind, arrival: Arrival) -> io::Result<Self> {
        let state = DeviceState::new(page_of(&wiring)?);
        let features = state.get(Word::Offered) | state.get(Word::DriverFeatures);
        let config = Transport::shown_config(&wiring.page);
        let missing = missing_for(&wiring, state);
        let awaited = Awaited::new(kind, features, config).within(wiring.limit, missing);
        let in_use = state.resumable(awaited.identity().device_id) && state.get(Word::Status) != 0;
        // planted: a device whose backend is late is shown as none
        let substitute: Box<dyn Backend> = if in_use {
            Box::new(awaited)
        } else {
            Box::new(Absent)
        };
        let name = &wiring.name;
        match in_use {
            true => eprintln!("gdm: {name}: its backend is awaited, requests wait"),
            false => eprintln!("gdm: {name}: its backend is awaited, the guest sees no device"),
        }
        state.set(Word::Serves, Serves::Nothing as u64);
        let mut worker = Self::with(wiring, substitute, Some(arrival))?;
        if worker.transport.active() {
            // planted: an interrupt that waited at a gdm's end waits for the backend
            worker.tell_in_any_case();
        }
        Ok(worker)
    }

    /// Makes the worker of a backend or its stand-in, without a turn.
    fn with(
        wiring: Wiring,
        mut backend: Box<dyn Backend>,
        arrival: Option<Arrival>,
    ) -> io::Result<Self> {
        let state = DeviceState::new(page_of(&wiring)?);
        let transport = take_registers(&wiring, state, backend.as_mut());
        let mut tick = TimerFd::new()?;
        tick.reset(TICK, Some(TICK))?;
        let mut worker = Self {
            wiring,
            state,
            transport,
            backend,
            is_awaiting: arrival.is_some(),
            arrival,
            epoll: Epoll::new()?,
            tick,
            watched: BTreeSet::new(),
            is_spent: false,
            lingers: false,
            is_silent: false,
            habit: Habit::default(),
            delay: Delay::default(),
            is_suspect: false,
        };
        // Edge-triggered: events of the line may stay in its queue.
        let edges = EventSet::IN | EventSet::EDGE_TRIGGERED;
        worker.watch(worker.wiring.line.file().as_raw_fd(), edges)?;
        worker.watch(worker.wiring.kick.as_raw_fd(), EventSet::IN)?;
        worker.watch(worker.tick.as_raw_fd(), EventSet::IN)?;
        worker.watch_backend();
        // An earlier GDM may have ended between an event and the arming that follows. An edge that
        // only that GDM was shown needs no other one: the first turn comes after this arming and
        // looks at everything.
        worker.wiring.line.arm();
        // A line is paced from its first arming on. Before that, a guest that notifies without end
        // may have filled the queue of events.
        // planted: a queue of events that a guest has filled stays full
        worker.empty_line();
        Ok(worker)
    }

    /// Puts the backend that has arrived in the place of what stood for it.
    fn install(&mut self, backend: Box<dyn Backend>) {
        self.is_awaiting = false;
        self.backend = backend;
        self.transport = take_registers(&self.wiring, self.state, self.backend.as_mut());
        self.watch_backend();
        self.take_over();
        // A guest whose requests end its backend must not fill the log.
        if self.state.get(Word::Messages) < MESSAGES {
            eprintln!("gdm: {}: its backend is there", self.wiring.name);
        }
    }

    /// Goes on where an earlier GDM ended, whose requests have all ended too: the backend is ours.
    fn take_over(&mut self) {
        self.state.set(Word::InKernel, 0);
        self.state.set(Word::MissingSince, 0);
        self.state.set(Word::Serves, Serves::Backend as u64);
        let barren = self.barren_starts();
        self.is_suspect = barren >= SUSPECT_STARTS;
        if self.transport.active() {
            self.activate();
            self.backend.take_over();
            if self.wiring.away.is_too_long() || barren >= BARREN_STARTS {
                self.expire();
            }
        }
        self.tell_in_any_case();
    }

    /// Interrupts the guest: an earlier GDM may have died between a completion and its interrupt.
    /// One without a cause does a driver no harm.
    fn tell_in_any_case(&mut self) {
        if self.transport.active() {
            self.transport.show_used();
        }
        self.interrupt();
    }

    /// Fails what has waited.
    fn expire(&mut self) {
        for (index, ring) in self.transport.rings().iter().enumerate() {
            if let Some(ring) = ring {
                self.backend.expire(index, ring.pending());
            }
        }
    }

    /// Tells the backend of the driver's features. A backend that refuses is no fault of the
    /// guest's: the log says so, and the device goes on.
    pub(super) fn activate(&mut self) {
        if let Err(message) = self.backend.activate(self.transport.features()) {
            self.complain(&message);
        }
    }

    /// Returns the number of consecutive starts of GDM that ended during work, since the last
    /// completed request.
    fn barren_starts(&self) -> u64 {
        let requests = self.state.get(Word::Requests);
        let barren = if requests == self.state.get(Word::RequestsBefore) {
            // planted: an idle start counts as a death
            let died_at_work = self.state.get(Word::AtWork);
            self.state
                .get(Word::BarrenStarts)
                .saturating_add(died_at_work)
        } else {
            0
        };
        self.state.set(Word::AtWork, 0);
        self.state.set(Word::RequestsBefore, requests);
        self.state.set(Word::BarrenStarts, barren);
        barren
    }

    /// Takes over from the stand-in when the backend is there.
    pub(super) fn take_arrival(&mut self) {
        let awaited = self.arrival.as_ref().filter(|_| self.is_awaiting);
        if let Some(Ok(backend)) = awaited.map(Receiver::try_recv) {
            self.install(backend);
        }
    }

    /// Has something stand for a backend that serves no longer, until the next one arrives; false
    /// if the backend serves. All that the driver set up is kept.
    pub(super) fn replace_lost(&mut self) -> bool {
        let Some(why) = self.backend.lost() else {
            return false;
        };
        self.complain(&format!("{why}; requests wait for the next backend"));
        let identity = self.backend.identity();
        let remains = self.backend.remains();
        // What the backend had in this process ends here: of its rings, the descriptor is left.
        let awaited = Awaited::of(identity, remains);
        self.backend = Box::new(awaited.within(self.wiring.limit, Duration::ZERO));
        self.state.set(Word::MissingSince, counter().max(1));
        self.is_awaiting = true;
        self.state.set(Word::Serves, Serves::Nothing as u64);
        // planted: a device VM that was booted before its gdm has nothing under way for ever
        self.wiring.away.end();
        self.watch_backend();
        true
    }

    /// Shows the backend's configuration, if it is another one.
    pub(super) fn show_config(&mut self) {
        if let Some((config, is_news)) = self.backend.news_of_config()
            && self.transport.change_config(config, is_news)
        {
            self.interrupt();
        }
    }
}

/// Returns for how long the device has had no backend. The wait of an earlier GDM goes on, unless
/// the device VM was booted since: requests wait for a boot.
fn missing_for(wiring: &Wiring, state: DeviceState) -> Duration {
    let hz = u64::from(wiring.region.header.counter_hz.load(Ordering::Relaxed));
    let (now, since) = (counter(), state.get(Word::MissingSince));
    let ticks = u128::from(now.saturating_sub(since));
    let nanoseconds = ticks * 1_000_000_000 / u128::from(hz.max(1));
    let missing = Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or(u64::MAX));
    // planted: a killed gdm's wait is forgotten
    let goes_on = since != 0 && missing.as_secs() <= wiring.away.uptime;
    if goes_on {
        return missing;
    }
    state.set(Word::MissingSince, now.max(1));
    Duration::ZERO
}

/// Makes the registers of a device with this backend. A configuration that became another one while
/// nobody served the device is told to its driver as any change is.
fn take_registers(wiring: &Wiring, state: DeviceState, backend: &mut dyn Backend) -> Transport {
    backend.keep(state);
    let identity = backend.identity();
    let config = identity.config.clone();
    let mut shown = Transport::shown_config(&wiring.page);
    shown.truncate(config.len());
    let is_known = state.resumable(identity.device_id) && state.get(Word::Status) != 0;
    // planted: a disk that grew while nobody served it is not told of
    let is_news = is_known && shown != config;
    let first = if is_news { shown } else { config.clone() };
    let identity = Identity {
        config: first,
        ..identity
    };
    let (page, memory) = (wiring.page, wiring.memory.clone());
    let (mut transport, _) = Transport::new(page, state, memory, identity);
    if is_news {
        // Whoever takes the device over interrupts the guest in any case.
        transport.change_config(config, true);
    }
    transport
}
