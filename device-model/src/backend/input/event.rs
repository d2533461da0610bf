//! Events, as Linux's input core has them (include/uapi/linux/input-event-codes.h), and reports made
//! of them.
//!
//! Owns: the reports that wait for the guest. Invariants: the guest gets whole reports, each up to
//! its end (SYN_REPORT); no more than [`MOST_WAITING`] events wait, and what is lost is counted. A
//! guest that lost reports gets one that says how keys, axes and switches are now, so that no key
//! stays pressed.

use std::collections::{BTreeMap, VecDeque};

use evdev::{EventType, InputEvent};

/// Bytes of an event in a guest's buffer (virtio 1.2, 5.8.6).
pub(super) const EVENT: usize = 8;
/// Code of an event of type EV_SYN that ends a report, and of one that says that some are lost.
const SYN_REPORT: u16 = 0;
const SYN_DROPPED: u16 = 3;
/// Events that wait for the guest at most, and events of a report.
pub(super) const MOST_WAITING: usize = 512;
pub(super) const MOST_OF_REPORT: usize = 64;
/// First code of several contacts at once, whose meaning depends on the event before.
const FIRST_OF_CONTACTS: u16 = 0x2f;

/// An event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Event {
    /// Type: key, axis and so on.
    pub(super) kind: u16,
    pub(super) code: u16,
    pub(super) value: i32,
}

impl From<InputEvent> for Event {
    fn from(event: InputEvent) -> Self {
        Self {
            kind: event.event_type().0,
            code: event.code(),
            value: event.value(),
        }
    }
}

impl Event {
    /// End of a report.
    pub(super) const END: Self = Self {
        kind: EventType::SYNCHRONIZATION.0,
        code: SYN_REPORT,
        value: 0,
    };

    /// Returns the bytes in a guest's buffer.
    pub(super) fn to_bytes(self) -> [u8; EVENT] {
        let [a, b] = self.kind.to_le_bytes();
        let [c, d] = self.code.to_le_bytes();
        let [e, f, g, h] = self.value.to_le_bytes();
        [a, b, c, d, e, f, g, h]
    }

    /// Reads an event of the guest's.
    pub(super) fn from_bytes([a, b, c, d, e, f, g, h]: [u8; EVENT]) -> Self {
        Self {
            kind: u16::from_le_bytes([a, b]),
            code: u16::from_le_bytes([c, d]),
            value: i32::from_le_bytes([e, f, g, h]),
        }
    }

    /// Returns the value that lasts until the next event of this type and code, if one does. A
    /// repeated key is a pressed one.
    fn lasting(self) -> Option<i32> {
        match EventType(self.kind) {
            EventType::KEY => Some(self.value.min(1)),
            EventType::SWITCH => Some(self.value),
            EventType::ABSOLUTE if self.code < FIRST_OF_CONTACTS => Some(self.value),
            _ => None,
        }
    }
}

/// States that last (keys, axes, switches, lights), by type and code.
type Lasting = BTreeMap<(u16, u16), i32>;

/// Reports on their way to the guest.
#[derive(Debug, Default)]
pub(super) struct Reports {
    /// The report that is not complete.
    open: Vec<Event>,
    /// Whether events of that report are lost.
    is_cut: bool,
    /// Whole reports.
    waiting: VecDeque<Event>,
    /// States now, and those that the guest knows once the guest has all waiting events.
    now: Lasting,
    told: Lasting,
    /// Whether the guest has to be told what is.
    is_behind: bool,
    /// Number of reports lost.
    pub(super) lost: u64,
}

impl Reports {
    /// Takes an event of the source.
    pub(super) fn push(&mut self, event: Event) {
        if event == Event::END {
            self.close();
            return;
        }
        if event.kind == Event::END.kind && event.code == SYN_DROPPED {
            self.is_cut = true;
            return;
        }
        if let Some(value) = event.lasting() {
            self.now.insert((event.kind, event.code), value);
        }
        // planted: a report without an end fills the device model's memory
        match self.open.len() < MOST_OF_REPORT {
            true => self.open.push(event),
            false => self.is_cut = true,
        }
    }

    /// Puts a key, pressed and released, behind the reports that wait. A report that a source has
    /// begun goes on. Returns false, and presses nothing, without room for both.
    pub(super) fn press(&mut self, code: u16) -> bool {
        if !self.has_room() || self.is_behind {
            return false;
        }
        let open = core::mem::take(&mut self.open);
        for value in [1, 0] {
            let kind = EventType::KEY.0;
            self.open = vec![Event { kind, code, value }];
            self.now.insert((kind, code), value);
            self.tell();
        }
        self.open = open;
        true
    }

    /// Ends the report: it waits for the guest as a whole, or is lost as a whole.
    fn close(&mut self) {
        let is_cut = core::mem::take(&mut self.is_cut);
        if self.open.is_empty() && !is_cut {
            return;
        }
        let fits = self.waiting.len() + self.open.len() < MOST_WAITING;
        // planted: a guest gets a part of a report
        if is_cut || !fits {
            self.lost += 1;
            self.is_behind = true;
        } else {
            self.tell();
        }
        self.open.clear();
    }

    /// Puts the report behind those that wait.
    fn tell(&mut self) {
        for event in self.open.iter().chain([&Event::END]) {
            if let Some(value) = event.lasting() {
                self.told.insert((event.kind, event.code), value);
            }
            self.waiting.push_back(*event);
        }
    }

    /// Tells whether there is room for many reports.
    pub(super) fn has_room(&self) -> bool {
        self.waiting.len() < MOST_WAITING / 2
    }

    /// Tells whether the guest has something to get. Behind all reports that were not lost comes what
    /// the lost ones have changed.
    pub(super) fn has_news(&mut self) -> bool {
        if self.waiting.is_empty() && self.is_behind && self.open.is_empty() {
            self.is_behind = false;
            // planted: a key stays pressed when its release is lost
            self.catch_up();
        }
        !self.waiting.is_empty()
    }

    /// Returns the next event for the guest.
    pub(super) fn next(&mut self) -> Option<Event> {
        self.waiting.pop_front()
    }

    /// Makes a report of all that the guest does not know.
    fn catch_up(&mut self) {
        let told = &self.told;
        let changed = self.now.iter();
        let changed =
            changed.filter(|(what, value)| told.get(*what).copied().unwrap_or(0) != **value);
        let events = changed.map(|(what, value)| Event {
            kind: what.0,
            code: what.1,
            value: *value,
        });
        self.waiting.extend(events);
        if !self.waiting.is_empty() {
            self.waiting.push_back(Event::END);
        }
        self.told.clone_from(&self.now);
    }

    /// Forgets all, for a driver that knows nothing.
    pub(super) fn clear(&mut self) {
        let lost = self.lost;
        *self = Self {
            lost,
            ..Self::default()
        };
    }
}
