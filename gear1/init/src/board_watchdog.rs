//! Outputs that Gear1 feeds: the board's watchdog, and a line that a microcontroller outside of the
//! SoC watches.
//!
//! Owns which devices of the board that are, and their share of the hand-over. Invariant: the page
//! of such a device is no VM's.
//!
//! Requirements: G1-SUP-005, G1-SUP-006.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use gear1_abi::boot::{BootInfo, BootWatchdog};
use gear1_abi::layout::PAGE_SIZE;
use gear1_core::addr::Pa;
use gear1_core::board_watchdog::{Cause, Status, Watchdog};
use gear1_core::physical::PhysicalMemory;
use gearv_manifest::{BoardWatchdog, GpioHeartbeat, Manifest, Rule, nearest};

use crate::fdt::{Board, Feedable};
use crate::passthrough::Passthrough;
use crate::refusal::Fault;
use crate::region::Region;

#[cfg(test)]
mod tests;

/// Feedings within a timeout. Three may be late, or left out, before the machine is reset.
const FEEDS_PER_TIMEOUT: u32 = 4;
/// Microseconds in two cycles of a clock of 32 kHz, rounded up. An RWDT that
/// was stopped has stopped by then, and its clock may be chosen.
const SETTLE_US: u64 = 62;
/// Nodes of the manifest, as messages name them.
const WATCHDOG: &str = "board-watchdog";
const HEARTBEAT: &str = "gpio-heartbeat";

/// A device that Gear1 feeds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fed {
    /// Path of its node.
    pub path: String,
    /// Kind of the device.
    pub watchdog: Watchdog,
    /// Page of its registers.
    pub page: u64,
    /// Time from the last feeding to the reset; 0: not the device's to count.
    pub timeout_ms: u32,
    /// Longest time from one feeding to the next.
    period_ms: u32,
}

impl Fed {
    /// Returns the page of its registers.
    #[must_use]
    pub const fn region(&self) -> Region {
        Region::new(self.page, self.page + PAGE_SIZE)
    }
}

/// Finds what the manifest has Gear1 feed. What it does wrong goes to `faults`.
pub fn find(manifest: &Manifest<'_>, board: &Board, faults: &mut Vec<Fault>) -> Vec<Fed> {
    let watchdog = manifest.fed.watchdog.as_ref();
    let watchdog = watchdog.and_then(|asked| find_watchdog(asked, board, faults));
    let heartbeat = manifest.fed.heartbeat.as_ref();
    let heartbeat = heartbeat.and_then(|asked| find_heartbeat(asked, board, faults));
    watchdog.into_iter().chain(heartbeat).collect()
}

/// A quarter of the timeout is the longest time between two feedings: [`FEEDS_PER_TIMEOUT`].
fn find_watchdog(asked: &BoardWatchdog<'_>, board: &Board, faults: &mut Vec<Fault>) -> Option<Fed> {
    let is_watchdog = |one: &Feedable| one.watchdog.timeouts().is_some();
    let found = look_up(board, WATCHDOG, asked.device, is_watchdog, faults)?;
    faults.extend(wrong_timeout(found.watchdog, asked.timeout_ms));
    Some(Fed {
        path: found.path.clone(),
        watchdog: found.watchdog,
        page: found.page,
        timeout_ms: asked.timeout_ms,
        period_ms: asked.timeout_ms / FEEDS_PER_TIMEOUT,
    })
}

/// Gear1 only toggles the line. What the microcontroller makes of a line that stands still is
/// outside of the SoC, so there is no timeout to judge.
fn find_heartbeat(
    asked: &GpioHeartbeat<'_>,
    board: &Board,
    faults: &mut Vec<Fault>,
) -> Option<Fed> {
    let is_line = |one: &Feedable| one.watchdog.timeouts().is_none();
    let found = look_up(board, HEARTBEAT, asked.device, is_line, faults)?;
    Some(Fed {
        path: found.path.clone(),
        watchdog: Watchdog::Pl061 { line: asked.line },
        page: found.page,
        timeout_ms: 0,
        period_ms: asked.period_ms,
    })
}

/// Returns the device at a path, if Gear1 can feed it and it is one of those that `is_it` names.
fn look_up<'b>(
    board: &'b Board,
    node: &'static str,
    path: &str,
    is_it: impl Fn(&Feedable) -> bool,
    faults: &mut Vec<Fault>,
) -> Option<&'b Feedable> {
    let mut known = board.feedable.iter().filter(|one| is_it(one));
    let found = known.clone().find(|one| one.path == path);
    if found.is_none() {
        let paths = known.by_ref().map(|one| one.path.as_str());
        faults.push(Fault {
            nearest: nearest(path, paths).map(Into::into),
            ..Fault::of_node(Rule::NotFeedable, node, "device", path)
        });
    }
    found
}

/// Refuses a timeout that the device cannot count.
fn wrong_timeout(watchdog: Watchdog, ms: u32) -> Option<Fault> {
    let timeouts = watchdog.timeouts()?;
    (!timeouts.contains(&ms)).then(|| {
        let why = alloc::format!(
            "{ms} ms; the device counts {} to {} ms",
            timeouts.start(),
            timeouts.end()
        );
        Fault::of_node(Rule::FeedTimeout, WATCHDOG, "timeout-ms", why)
    })
}

/// Refuses a VM that owns what Gear1 feeds: the VM could feed it, or turn it off.
pub fn check_owners<'p, 'm: 'p, 'a: 'm>(
    list: &[Fed],
    owners: impl Iterator<Item = &'p Passthrough<'m, 'a>>,
    faults: &mut Vec<Fault>,
) {
    for owner in owners {
        // planted: a VM owns the board's watchdog
        let taken = list
            .iter()
            .filter(|fed| owner.device_at(&fed.region()).is_some());
        faults.extend(taken.map(|fed| {
            let why = alloc::format!("{}: Gear1 feeds it", fed.path);
            Fault::new(Rule::DeviceTaken, owner.vm.name, "devices", why)
        }));
    }
}

/// Tells the runtime what to feed, and how often. One period serves all: the runtime feeds them
/// together, as often as the most impatient one needs.
pub fn fill(info: &mut BootInfo, list: &[Fed], counter_hz: u32) {
    let hz = u64::from(counter_hz);
    for (slot, fed) in info.watchdogs.iter_mut().zip(list) {
        let (kind, parameter) = fed.watchdog.numbers();
        *slot = BootWatchdog {
            kind,
            parameter,
            timeout_ms: fed.timeout_ms,
        };
    }
    let period_ms = list.iter().map(|fed| fed.period_ms).min().unwrap_or(0);
    info.feed_period = u64::from(period_ms) * hz / 1000;
    info.settle_ticks = (SETTLE_US * hz).div_ceil(1_000_000);
}

/// Answer of a watchdog about the reset before this boot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastReset {
    /// Path of the watchdog's node.
    pub path: String,
    /// Timeout from now on.
    pub timeout_ms: u32,
    /// Cause of the reset.
    pub cause: Cause,
}

impl LastReset {
    /// Asks the board's watchdog, if one is fed. Its page is mapped.
    pub fn ask(list: &[Fed], memory: &impl PhysicalMemory) -> Option<Self> {
        let fed = list.iter().find(|fed| fed.watchdog.timeouts().is_some())?;
        let status = Registers(memory, fed.page);
        Some(Self {
            path: fed.path.clone(),
            timeout_ms: fed.timeout_ms,
            cause: fed.watchdog.cause(&status),
        })
    }
}

impl fmt::Display for LastReset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cause = match self.cause {
            Cause::Watchdog => "by this watchdog",
            Cause::Software => "by software",
            Cause::PowerOn => "by power-on",
            Cause::Unknown => "not by this watchdog, as far as it tells",
        };
        let Self {
            path, timeout_ms, ..
        } = self;
        write!(f, "{path}: {timeout_ms} ms; the last reset was {cause}")
    }
}

/// Registers of a device at their physical address, to be read. Reading alone: the cause of the
/// last reset is asked for before the runtime drives the device.
struct Registers<'m, M>(&'m M, u64);

impl<M> Registers<'_, M> {
    fn at(&self, offset: usize) -> Pa {
        Pa::new(self.1 + offset as u64)
    }
}

impl<M: PhysicalMemory> Status for Registers<'_, M> {
    fn read8(&self, offset: usize) -> u8 {
        self.0.read_register8(self.at(offset))
    }

    fn read16(&self, offset: usize) -> u16 {
        self.0.read_register16(self.at(offset))
    }

    fn read32(&self, offset: usize) -> u32 {
        self.0.read_register32(self.at(offset))
    }
}
