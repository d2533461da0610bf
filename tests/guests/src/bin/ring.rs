//! A program with doorbells to begin with: rings all that it has every 100 ms, and says how often
//! each of its own was rung.
#![no_std]
#![no_main]

use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};

use test_guests::mmio::write32;
use test_guests::{Machine, cpu, gic, guest, say, timer};

guest!(main, irq = on_interrupt);

/// Slow enough for a reader of the console.
const PERIOD_US: u64 = 100_000;
/// As many as the library's `Machine` keeps.
const CHANNELS: usize = 4;

/// INTIDs of the channels into this VM, 0 of the others, and how often each came. A channel that
/// leads out of this VM has no interrupt here, and its page is for stores.
static INTIDS: [AtomicU32; CHANNELS] = [const { AtomicU32::new(0) }; CHANNELS];
/// Counted in the handler: the loop may sleep over several rings.
static RINGS: [AtomicU64; CHANNELS] = [const { AtomicU64::new(0) }; CHANNELS];
/// Set by the handler: `sleep_until` looks at it with interrupts masked, so that no wake-up is lost
/// between look and WFI.
static PERIOD_IS_OVER: AtomicBool = AtomicBool::new(false);

/// A doorbell's interrupt is an edge: GearV pulses the line, and a level would be over before the
/// VM takes it.
fn main(machine: &Machine) {
    for (channel, place) in machine.channels.iter().flatten().zip(&INTIDS) {
        if channel.intid != 0 {
            place.store(channel.intid, Relaxed);
            gic::set_edge(channel.intid, true);
            gic::enable(channel.intid);
        }
    }
    gic::enable(timer::INTID);
    let mut said = [0; CHANNELS];
    loop {
        PERIOD_IS_OVER.store(false, Relaxed);
        timer::arm(timer::now() + timer::from_us(PERIOD_US));
        cpu::sleep_until(|| PERIOD_IS_OVER.load(Relaxed));
        for (number, channel) in machine.channels.iter().flatten().enumerate() {
            let rings = RINGS[number].load(Relaxed);
            if channel.intid == 0 {
                write32(channel.doorbell, 1);
            } else if rings != said[number] {
                said[number] = rings;
                say!("{}: {rings} rings", channel.name);
            }
        }
    }
}

/// The timer's line stays high until the timer is off: its interrupt would come again at once.
fn on_interrupt(intid: u32) {
    if intid == timer::INTID {
        timer::disarm();
        PERIOD_IS_OVER.store(true, Relaxed);
    }
    for (own, rings) in INTIDS.iter().zip(&RINGS) {
        if own.load(Relaxed) == intid {
            rings.fetch_add(1, Relaxed);
        }
    }
}
