//! The other side of a program that uses channels by Linux' UIO
//! (`device-model/src/uio.rs`): answers each ring by as many rings as the shared memory asks for.
//!
//! UIO maps the memory as Device memory. The MMU of this guest is off, so that all its accesses are
//! to Device memory as well.
#![no_std]
#![no_main]

use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

use test_guests::mmio::{read32, write32};
use test_guests::{Machine, check, cpu, gic, guest};

guest!(main, irq = on_interrupt);

/// Words of the shared memory: the rings that a question asks for, the number of the last ring of
/// this VM, and how many questions interrupted this VM.
const WANTED: u64 = 0;
const ANSWER: u64 = 4;
const HEARD: u64 = 8;

/// Interrupts so far.
static HEARD_SO_FAR: AtomicU32 = AtomicU32::new(0);

fn main(machine: &Machine) {
    let [ask, tell] = ["ask", "tell"].map(|name| machine.channel(name));
    let memory = tell.and_then(|tell| tell.memory.clone());
    let (Some(ask), Some(tell), Some(memory)) = (ask, tell, memory) else {
        check!("channels", false, "ask, tell or its memory is missing");
        return;
    };
    gic::set_edge(ask.intid, true);
    gic::enable(ask.intid);
    cpu::without_mmu(|| answer_for_ever(memory.start, tell.doorbell));
}

/// Answers questions.
fn answer_for_ever(memory: u64, doorbell: u64) {
    let (mut answered, mut rung) = (0, 0_u32);
    loop {
        cpu::sleep_until(|| HEARD_SO_FAR.load(Relaxed) != answered);
        answered = HEARD_SO_FAR.load(Relaxed);
        write32(memory + HEARD, answered);
        for _ in 0..read32(memory + WANTED) {
            rung = rung.wrapping_add(1);
            write32(memory + ANSWER, rung);
            cpu::dsb();
            write32(doorbell, 1);
        }
    }
}

/// Counts by a load and a store: Device memory need not have exclusive accesses.
fn on_interrupt(_intid: u32) {
    HEARD_SO_FAR.store(HEARD_SO_FAR.load(Relaxed).wrapping_add(1), Relaxed);
}
