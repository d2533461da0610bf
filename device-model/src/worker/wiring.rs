//! Resources of a device's thread, and the time for which nobody served the device.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use gear2_protocol::Region;
use vmm_sys_util::eventfd::EventFd;

use crate::gpio::Line;
use crate::mapping::{Doorbell, Registers, counter};
use crate::memory::Memory;
use crate::orders::{Desk, Inbox, way};
use crate::state::{DeviceState, WORDS, Word};
use crate::sys;

/// A request that waited longer than this because no GDM was there, in a device VM that was, fails.
const AWAY_SECONDS: u64 = 30;

/// Resources of a device's thread.
#[derive(Debug)]
pub struct Wiring {
    /// Channel number.
    pub channel: usize,
    /// Number of the VM, whose slots alone are looked at.
    pub vm: usize,
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
    /// Orders of a person, if there is a way for them.
    pub orders: Option<Inbox>,
    /// Look instead of waiting.
    pub spin: bool,
    /// Time for which a thread polls for the next register write before it sleeps, in microseconds.
    pub linger_us: u64,
    /// Longest time for which an interrupt that may wait does so, in microseconds.
    pub delay_us: u64,
    /// Time after which requests fail that wait for a backend; `None`: they wait.
    pub limit: Option<Duration>,
    /// Seconds since a GDM was alive, and since the device VM was booted, when this one started.
    pub away: Away,
}

impl Wiring {
    /// Makes the way by which the device gets orders.
    pub fn desk(&mut self) -> io::Result<Desk> {
        let (desk, inbox) = way(&self.kick)?;
        self.orders = Some(inbox);
        Ok(desk)
    }
}

/// For how long nobody served the device.
#[derive(Clone, Copy, Debug)]
pub struct Away {
    /// Seconds since the last GDM lived.
    pub seconds: u64,
    /// Seconds since the device VM was booted.
    pub uptime: u64,
}

impl Away {
    /// Finds out, before this GDM's own heartbeat hides it.
    pub fn now(region: &Region, state: DeviceState) -> Self {
        let hz = u64::from(region.header.counter_hz.load(Ordering::Relaxed));
        Self {
            seconds: counter().saturating_sub(state.get(Word::LastSeen)) / hz.max(1),
            uptime: sys::uptime(),
        }
    }

    /// Forgets that nobody served the device: what this GDM leaves to others is under way in this
    /// life of the device VM.
    pub(super) const fn end(&mut self) {
        self.seconds = 0;
    }

    /// Returns whether requests that waited must fail. They do not fail if the device VM itself was
    /// away: a guest as patient as a board's boot is served then.
    pub(super) const fn is_too_long(self) -> bool {
        self.seconds >= AWAY_SECONDS && self.seconds <= self.uptime
    }

    /// Tells whether the device VM was certainly booted since: nothing of an earlier GDM is under
    /// way.
    pub(super) const fn is_another_boot(self) -> bool {
        self.seconds > self.uptime.saturating_add(1)
    }
}

/// Returns the device's page in the shared region.
pub(super) fn page_of(wiring: &Wiring) -> io::Result<&'static [AtomicU64; WORDS]> {
    let page = wiring.region.devices.get(wiring.channel);
    page.ok_or_else(|| io::Error::other("channel number out of range"))
}
