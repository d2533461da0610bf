//! A program with doorbells to begin with: rings all that it has every 100 ms, and says how often
//! each of its own was rung.
#![no_std]
#![no_main]

use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};

use test_guests::mmio::write32;
use test_guests::{Machine, cpu, gic, guest, say, timer};

guest!(main, irq = on_interrupt);

const PERIOD_US: u64 = 100_000;
const CHANNELS: usize = 4;

/// INTIDs of the channels into this VM, 0 of the others, and how often each came.
static INTIDS: [AtomicU32; CHANNELS] = [const { AtomicU32::new(0) }; CHANNELS];
static RINGS: [AtomicU64; CHANNELS] = [const { AtomicU64::new(0) }; CHANNELS];
static PERIOD_IS_OVER: AtomicBool = AtomicBool::new(false);

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
