//! The other side of the shared region: a device model that answers in its own time, dies and comes
//! back.
//!
//! Owns what GDM would. What it does with an access is a function of the access, so that the vCPU's
//! side knows the answer to expect. It looks at the region only when its line rose, and at a
//! device's accesses only when one or the other or the device's own did, or while it says that it
//! looks by itself.

use core::ops::Range;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::thread;
use std::thread_local;

use gear1_abi::call::Reply;
use gear2_protocol::device_word::{HOLD_ASKED, HOLD_SEEN, LOOKING, RESET_ASKED, RESET_SEEN};
use gear2_protocol::offset::{INPUT_LOW, INPUT_SIZE, OUTPUT_SIZE};
use gear2_protocol::{ConsoleBlock, LINE_REQUEST, MmioSlot, line_of_channel, slot};

use super::*;

/// A register from here on is one that GDM does not know.
const UNKNOWN: u32 = 0x180;
const DOWN_TICKS: u64 = 2_000;
/// Ticks that GDM looks for the next access by itself after an access.
const LOOK_TICKS: u64 = 400;

/// Returns GDM's answer to an access.
pub(crate) fn answer(device: u32, register: u32, access: u32, value: u64) -> (Reply, u64) {
    if register >= UNKNOWN {
        return (Reply::Abort, 0);
    }
    let words = [device, register, access].map(u64::from);
    let mixed = words.iter().fold(value, |mixed, word| {
        mixed.wrapping_mul(31).wrapping_add(*word)
    });
    (Reply::Value, mixed)
}

/// Returns the byte typed at a console at position `index`.
pub(crate) const fn typed_byte(index: u32) -> u8 {
    b'a' + (index % 26) as u8
}

thread_local! {
    /// The region of this test's simulations, one after the other.
    static REGION: &'static Region = {
        // A test's own stack cannot hold it on its way to the heap.
        let builder = thread::Builder::new().stack_size(32 << 20);
        let made = builder.spawn(|| &*Box::leak(Box::new(Region::new())));
        made.unwrap().join().unwrap()
    };
}

/// Returns this test's region.
pub(crate) fn region() -> &'static Region {
    REGION.with(|region| *region)
}

/// A device model.
#[derive(Debug)]
pub(crate) struct Gdm {
    pub(crate) region: &'static Region,
    pub(crate) up: bool,
    line: bool,
    /// Devices whose lines rose, one bit each.
    device_lines: u32,
    /// Devices whose accesses GDM looks for by itself, one bit each.
    looking: u32,
    /// Time of GDM's next action.
    pub(crate) at: u64,
    /// Output that each VM's console showed.
    pub(crate) shown: Vec<Vec<u8>>,
    /// Whether GDM ignores the consoles.
    pub(crate) deaf: bool,
    /// Whether GDM never starts again.
    pub(crate) dead: bool,
    /// Whether transfers take long: GDM resets no device before they are done.
    pub(crate) stalled: bool,
    /// Bytes that are still to be typed at each VM's console.
    pub(crate) to_type: Vec<u32>,
    /// Interval and next time of the heartbeat.
    pub(crate) beats: Option<(u64, u64)>,
    /// Resets that each device had been asked for when its VM was started.
    pub(crate) asked: [u64; 32],
}

impl Gdm {
    pub(crate) fn new(vm_count: usize) -> Self {
        let region = region();
        region.header.gdm_starts.store(77, Relaxed);
        Self {
            region,
            up: false,
            line: false,
            device_lines: 0,
            looking: 0,
            at: NO_DEADLINE,
            shown: vec![Vec::new(); vm_count],
            deaf: false,
            dead: false,
            stalled: false,
            to_type: vec![0; vm_count],
            beats: None,
            asked: [0; 32],
        }
    }

    /// The device VM starts, and so will GDM.
    pub(crate) fn boots(&mut self, now: u64) {
        self.dies(now);
    }

    /// The device VM ends.
    pub(crate) fn ends(&mut self) {
        self.up = false;
        self.line = false;
        self.device_lines = 0;
        // The words that GDM wrote to the region stay there.
        self.looking = 0;
        self.at = NO_DEADLINE;
    }

    /// GDM dies, and is started again.
    fn dies(&mut self, now: u64) {
        self.ends();
        self.at = now + DOWN_TICKS;
    }

    pub(crate) fn raised(&mut self, line: (usize, u32), now: u64, delay: u64) {
        let devices = 0..self.region.devices.len();
        if line == (0, LINE_REQUEST) {
            self.line = true;
        } else if let Some(device) = devices
            .into_iter()
            .find(|&device| line == line_of_channel(device))
        {
            self.device_lines |= 1 << device;
        } else {
            panic!("{line:?} is nobody's line");
        }
        if self.up {
            self.at = self.at.min(now + delay);
        }
    }

    /// Does the due work. Returns whether GDM rings the doorbell. A mishap kills GDM in the middle
    /// of the work.
    pub(crate) fn act(&mut self, now: u64, mishap: Option<usize>) -> bool {
        self.at = NO_DEADLINE;
        if self.dead {
            return false;
        }
        if !self.up {
            // GDM looks for accesses by itself only when Gear2 has asked for that.
            self.up = true;
            self.line = false;
            self.look_at(0);
            self.reset_devices();
            self.region.header.gdm_starts.fetch_add(1, Relaxed);
            self.beat(now);
            return true;
        }
        self.beat(now);
        let mut devices = core::mem::take(&mut self.device_lines) | self.looking;
        let mut rings = false;
        if core::mem::take(&mut self.line) {
            devices = u32::MAX;
            self.reset_devices();
            rings = self.consoles();
        }
        // Before the last look.
        self.look_at(0);
        let posted = |slot: &&MmioSlot| {
            let device = slot.device.load(Relaxed);
            slot.state() == slot::POSTED && devices >> device & 1 != 0
        };
        let mut looking = 0;
        let region = self.region;
        for (count, slot) in region
            .slots
            .iter()
            .flat_map(|page| page.iter())
            .filter(posted)
            .enumerate()
        {
            if mishap == Some(count) {
                self.dies(now);
                return false;
            }
            self.perform(slot);
            rings = true;
            looking |= 1 << slot.device.load(Relaxed);
        }
        self.look_at(looking);
        if looking != 0 {
            self.at = self.at.min(now + LOOK_TICKS);
        }
        rings
    }

    /// Tells which devices' accesses it looks for by itself from now on.
    fn look_at(&mut self, devices: u32) {
        self.looking = devices;
        for (device, words) in self.region.devices.iter().enumerate() {
            words[LOOKING].store(u64::from(devices >> device & 1), Release);
        }
    }

    fn beat(&mut self, now: u64) {
        if let Some((period, next)) = &mut self.beats {
            if *next <= now {
                self.region.header.gdm_beats.fetch_add(1, Relaxed);
                *next = now + *period;
            }
            self.at = self.at.min(*next);
        }
    }

    /// Answers the reset requests of all devices, and those to hold them, unless transfers are
    /// stalled.
    fn reset_devices(&self) {
        if self.stalled {
            return;
        }
        for words in &self.region.devices {
            words[RESET_SEEN].store(words[RESET_ASKED].load(Acquire), Release);
            words[HOLD_SEEN].store(words[HOLD_ASKED].load(Acquire), Release);
        }
    }

    /// Notes that the VM of these devices starts.
    pub(crate) fn vm_starts(&mut self, devices: Range<usize>) {
        for device in devices {
            self.asked[device] = self.region.devices[device][RESET_ASKED].load(Acquire);
        }
    }

    /// Tells whether a device was asked for a reset since its VM started, and whether it was reset.
    pub(crate) fn reset(&self, device: usize) -> (bool, bool) {
        let words = &self.region.devices[device];
        let [asked, seen] = [RESET_ASKED, RESET_SEEN].map(|word| words[word].load(Acquire));
        (asked != self.asked[device], asked == seen)
    }

    fn perform(&self, slot: &MmioSlot) {
        let words = [&slot.device, &slot.register, &slot.access];
        let [device, register, access] = words.map(|word| word.load(Relaxed));
        let stored = slot.value.load(Relaxed);
        let (reply, value) = answer(device, register, access, stored);
        slot.value.store(value, Relaxed);
        slot.set_state(match reply {
            Reply::Abort => slot::ABORT,
            Reply::Value | Reply::None => slot::DONE,
        });
    }

    fn consoles(&mut self) -> bool {
        let mut typed = false;
        if self.deaf {
            return false;
        }
        for (vm, shown) in self.shown.iter_mut().enumerate() {
            let Some(block) = self.region.consoles.get(vm) else {
                continue;
            };
            show(block, shown);
            typed |= type_keys(block, &mut self.to_type[vm]);
        }
        typed
    }
}

fn show(block: &ConsoleBlock, shown: &mut Vec<u8>) {
    let written = block.ring.output_written.load(Acquire);
    let oldest = written.saturating_sub(OUTPUT_SIZE as u32);
    let read = block.ring.output_read.load(Relaxed).max(oldest);
    for index in read..written {
        shown.push(block.output[index as usize % OUTPUT_SIZE].load(Relaxed));
    }
    block.ring.output_read.store(written, Release);
}

fn type_keys(block: &ConsoleBlock, to_type: &mut u32) -> bool {
    let mut written = block.ring.input_written.load(Relaxed);
    let before = written;
    let waiting = |written: u32| (written - block.ring.input_read.load(Acquire)) as usize;
    if waiting(written) > INPUT_LOW {
        return false;
    }
    while *to_type > 0 && waiting(written) < INPUT_SIZE {
        block.input[written as usize % INPUT_SIZE].store(typed_byte(written), Relaxed);
        written += 1;
        *to_type -= 1;
    }
    block.ring.input_written.store(written, Release);
    written != before
}
