//! virtio-input (virtio 1.2, 5.8): the events of an input device of the device VM, or those that
//! somebody types into a socket.

use std::convert::Infallible;
use std::os::fd::RawFd;
use std::sync::mpsc::Sender;

use evdev::{EventType, KeyCode};
use virtio_bindings::virtio_ids::VIRTIO_ID_INPUT;

use self::event::{EVENT, Event, Reports};
use self::profile::Profile;
use self::source::Source;
use super::{Backend, Opened, Parts, Progress, TURN};
use crate::order::{Answer, Order};
use crate::state::Word;
use crate::transport::Identity;
use crate::vring::{Broken, Chain, Vring};

mod event;
mod profile;
mod source;
#[cfg(test)]
mod tests;
mod words;

pub(super) const DEVICE_ID: u32 = VIRTIO_ID_INPUT;
pub(super) const QUEUE_SIZE: u16 = 64;
/// Queues: events for the guest, and events of the guest's (virtio 1.2, 5.8.2).
pub(super) const QUEUES: usize = 2;
/// Number of the queue for the guest's events.
const EVENTS: usize = 0;

/// An input device.
#[derive(Debug)]
pub struct Input {
    /// Names the source in messages.
    path: String,
    source: Source,
    profile: Profile,
    reports: Reports,
    /// Whether a driver uses the device.
    has_driver: bool,
    /// Whether the source may have more than there was room for.
    is_unread: bool,
    /// Whether somebody connected since the thread last asked for descriptors.
    changed: bool,
    /// The driver's selection, and whether the configuration shows that.
    selected: [u8; 2],
    is_shown: bool,
    /// Why the device of the device VM is gone.
    gone: Option<String>,
    /// Held as long as the device is there.
    lease: Option<Sender<Infallible>>,
}

impl Input {
    /// Opens the source of events. Needs root.
    pub(super) fn claim(backend: &str) -> Result<Opened, String> {
        let source = source::claim(backend);
        let source = source.map_err(|error| format!("{backend}: {error}"))?;
        Ok(Opened {
            parts: vec![source],
            claim: None,
        })
    }

    /// Makes the device of its source, which is open.
    pub(super) fn of(parts: &mut Parts, backend: &str) -> Result<Self, String> {
        let opened = Source::of(parts.take()?, backend);
        let (source, profile) = opened.map_err(|error| format!("{backend}: {error}"))?;
        Ok(Self {
            path: backend.to_owned(),
            source,
            profile,
            reports: Reports::default(),
            has_driver: false,
            is_unread: false,
            changed: false,
            selected: [0; 2],
            is_shown: true,
            gone: None,
            lease: None,
        })
    }

    /// Passes events to the guest, one a buffer.
    fn receive(&mut self, ring: &mut Vring) -> Result<Progress, Broken> {
        let mut chain = Chain::default();
        for _ in 0..TURN {
            if !self.reports.has_news() {
                // What there was no room for is read before the next turn.
                return Ok(match core::mem::take(&mut self.is_unread) {
                    true => Progress::More,
                    false => Progress::Waits,
                });
            }
            if !ring.take(&mut chain)? {
                return Ok(Progress::Drained);
            }
            // planted: an event's buffer is shorter than the event
            if chain.writable.length() < EVENT as u64 {
                return Err(Broken::Request);
            }
            let bytes = self.reports.next().map(Event::to_bytes).unwrap_or_default();
            let written = chain.writable.write(ring.memory(), 0, &bytes);
            ring.state().count(Word::BytesIn, written as u64);
            ring.complete(chain.head, written as u64)?;
        }
        Ok(Progress::More)
    }

    /// Takes the guest's events, which are about lights. One that is too short is counted and ends
    /// without an effect.
    fn take_status(&mut self, ring: &mut Vring) -> Result<Progress, Broken> {
        let mut chain = Chain::default();
        for _ in 0..TURN {
            if !ring.take(&mut chain)? {
                return Ok(Progress::Drained);
            }
            let mut bytes = [0; EVENT];
            let length = chain.readable.read(ring.memory(), 0, &mut bytes);
            ring.state().count(Word::BytesOut, length as u64);
            match length == EVENT {
                true => self.source.send(&self.profile, Event::from_bytes(bytes)),
                false => ring.state().count(Word::Errors, 1),
            }
            ring.complete(chain.head, 0)?;
        }
        Ok(Progress::More)
    }
}

impl Backend for Input {
    fn identity(&self) -> Identity {
        let [select, subselect] = self.selected;
        Identity {
            device_id: DEVICE_ID,
            features: 0,
            dependencies: &[],
            queue_sizes: vec![QUEUE_SIZE; QUEUES],
            config: self.profile.config(select, subselect),
        }
    }

    fn activate(&mut self, _features: u64) -> Result<(), String> {
        self.has_driver = true;
        Ok(())
    }

    fn reset(&mut self) {
        self.has_driver = false;
        self.is_unread = false;
        // Keys that were held belong to the driver of before: the next one would see them released
        // without a press.
        self.reports.clear();
    }

    fn write_config(&mut self, offset: usize, bytes: &[u8]) {
        for (at, byte) in (offset..).zip(bytes) {
            // Other bytes are the device's own.
            if let Some(place) = self.selected.get_mut(at) {
                *place = *byte;
                self.is_shown = false;
            }
        }
    }

    fn news_of_config(&mut self) -> Option<(Vec<u8>, bool)> {
        let is_shown = core::mem::replace(&mut self.is_shown, true);
        let [select, subselect] = self.selected;
        // The driver asked for it, and is not told.
        (!is_shown).then(|| (self.profile.config(select, subselect), false))
    }

    fn lost(&mut self) -> Option<String> {
        self.gone.take()
    }

    /// A socket is never gone: it waits for whoever connects next.
    fn hold(&mut self, lease: Sender<Infallible>) -> bool {
        let is_device = matches!(self.source, Source::Device(_));
        self.lease = is_device.then_some(lease);
        is_device
    }

    fn watch(&self) -> Vec<RawFd> {
        self.source.descriptors()
    }

    fn watch_changed(&mut self) -> bool {
        core::mem::take(&mut self.changed)
    }

    fn poll(&mut self) {
        self.changed |= self.source.accept();
        // Without a driver events are read and dropped: a key that was typed at boot is not for the
        // system that comes later.
        let reports = self.has_driver.then_some(&mut self.reports);
        match self.source.read(&self.profile, reports) {
            Ok(is_unread) => self.is_unread = is_unread,
            Err(error) => self.gone = Some(format!("{}: {error}", self.path)),
        }
    }

    fn obey(&mut self, order: Order) -> Answer {
        let power = KeyCode::KEY_POWER.0;
        match order {
            Order::Power if !self.profile.has(EventType::KEY, power) => {
                Err("it has no power button".into())
            }
            Order::Power if !self.has_driver => {
                Err("no driver of the guest uses the device".into())
            }
            Order::Power if self.reports.press(power) => Ok(1),
            Order::Power => Err("the guest does not take the device's events".into()),
            _ => Err("an input device has neither a size nor a medium nor a link".into()),
        }
    }

    fn process(&mut self, queue: usize, ring: &mut Vring) -> Result<Progress, Broken> {
        if queue == EVENTS {
            let lost = core::mem::take(&mut self.reports.lost);
            ring.state().count(Word::Errors, lost);
            self.receive(ring)
        } else {
            self.take_status(ring)
        }
    }
}
