//! Two VMs own a function each of one PCI bus: QEMU's `edu`, twice. Each finds its own where Gear1
//! has placed it, and nothing else on the bus, whatever it writes to configuration space.
//!
//! `own` is the device number of the VM's function, `other` that of the other VM's, and `line` the
//! interrupt of its line. The VM tries to move its registers over the other's, to reach what Gear1
//! hides, and to switch the other function off; then its function still works, by its own
//! interrupt. Each VM runs all of it, the second one when the first has ended, so that what the
//! first has done would be seen.
//!
//! Requirements: G1-DMA-007.
#![no_std]
#![no_main]

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use test_guests::edu::{self, BUFFER, Edu, INTERRUPT, TO_MEMORY};
use test_guests::mmio::{read8, read16, read32, read64, write8, write16, write32};
use test_guests::{Machine, check, cpu, gic, guest, report, timer};

guest!(main, irq = on_interrupt);

/// Configuration space of QEMU's `virt`, of its first bus, and what a device has there.
const CONFIGURATION: u64 = 0x40_1000_0000;
const BUS: u64 = 1 << 20;
const DEVICE: u64 = 0x8000;
const FUNCTION: u64 = 0x1000;
/// Configuration space of a function.
const COMMAND: u64 = 0x4;
const BAR0: u64 = 0x10;
const BAR1: u64 = 0x14;
const ROM: u64 = 0x30;
const EXTENDED: u64 = 0x100;
/// Bits of the command: I/O, memory, and master of the bus.
const IO: u16 = 0b001;
const MEMORY: u16 = 0b010;
const MASTER: u16 = 0b100;
/// Bytes of the device's registers, and what its BAR reads as when all ones were written.
const REGISTERS: u32 = 1 << 20;
const SIZED: u32 = !(REGISTERS - 1);
/// What reads so is not there.
const ABSENT: u32 = u32::MAX;
/// Bytes of the pattern.
const SIZE: u64 = 64;
const MIB: u64 = 1 << 20;

/// Where the device's registers are, its line, and the line's interrupts so far. The timer, by
/// which the guest waits, interrupts as well.
static DEVICE_AT: AtomicU64 = AtomicU64::new(0);
static LINE: AtomicU32 = AtomicU32::new(0);
static INTERRUPTS: AtomicU32 = AtomicU32::new(0);

fn on_interrupt(intid: u32) {
    if intid == LINE.load(Relaxed) {
        INTERRUPTS.fetch_add(1, Relaxed);
        Edu(DEVICE_AT.load(Relaxed)).end_interrupt();
    }
}

fn main(machine: &Machine) {
    let option = |name| machine.option(name).unwrap_or(0);
    let (own, other) = (option("own"), option("other"));
    let function = CONFIGURATION + own * DEVICE;
    report::equal("identity", read32(function), edu::IDENTITY);
    is_alone(function);
    let at = read32(function + BAR0);
    tells_its_size(function, at);
    stays(function, at);
    hides(function);
    cannot_reach(CONFIGURATION + other * DEVICE);
    let edu = Edu(at.into());
    DEVICE_AT.store(edu.0, Relaxed);
    switches(function, edu);
    works(edu, machine.ram.end - MIB, option("line") as u32);
}

/// The VM's function is the only one on the bus.
fn is_alone(own: u64) {
    let functions = (0..BUS).step_by(FUNCTION as usize);
    let functions = functions.map(|offset| CONFIGURATION + offset);
    let found = functions.filter(|function| read32(*function) != ABSENT);
    let others = found.filter(|function| *function != own).count();
    report::equal("others-on-the-bus", others, 0);
}

/// A BAR tells its size as in each driver's question.
fn tells_its_size(function: u64, at: u32) {
    check!("bar", at != 0 && at & !SIZED == 0, "{at:x}");
    write32(function + BAR0, u32::MAX);
    report::equal("size", read32(function + BAR0), SIZED);
    write32(function + BAR0, at);
    report::equal("address", read32(function + BAR0), at);
    write32(function + BAR1, u32::MAX);
    report::equal("no-bar", read32(function + BAR1), 0);
}

/// The registers stay where they are: a write of another address does nothing.
fn stays(function: u64, at: u32) {
    for offset in [REGISTERS, 0u32.wrapping_sub(REGISTERS)] {
        write32(function + BAR0, at.wrapping_add(offset));
    }
    write16(function + BAR0 + 2, 0);
    write8(function + BAR0 + 3, 0);
    report::equal("bar-stays", read32(function + BAR0), at);
    write32(function + ROM, at | 1);
    report::equal("rom", read32(function + ROM), 0);
}

/// Extended configuration space is not there, nor I/O space.
fn hides(function: u64) {
    report::equal("extended", read32(function + EXTENDED), ABSENT);
    report::equal("extended-byte", read8(function + EXTENDED + 3), 0xff);
    write16(function + COMMAND, IO | MEMORY | MASTER);
    report::equal("command", read16(function + COMMAND), MEMORY | MASTER);
    report::equal("wide", read64(function), u64::MAX);
}

/// The other VM's function is not there either, and what is written has no effect: that VM finds
/// its function as it was.
fn cannot_reach(function: u64) {
    write16(function + COMMAND, 0);
    write32(function + BAR0, 0);
    report::equal("another-s", read32(function + BAR0), ABSENT);
}

/// The VM switches its function off and on.
fn switches(function: u64, edu: Edu) {
    write16(function + COMMAND, 0);
    report::equal("off", read16(function + COMMAND), 0);
    write8(function + COMMAND, (MEMORY | MASTER) as u8);
    report::equal("version", edu.version(), edu::VERSION);
}

/// The device copies in the VM's own memory, and tells the end by the line's interrupt.
fn works(edu: Edu, own: u64, line: u32) {
    for at in 0..SIZE {
        write8(own + at, (at * 7 + 1) as u8);
    }
    LINE.store(line, Relaxed);
    gic::enable(line);
    edu.transfer(own, BUFFER, SIZE, 0);
    edu.transfer(BUFFER, own + SIZE, SIZE, TO_MEMORY);
    let is_same = (0..SIZE).all(|at| read8(own + at) == read8(own + SIZE + at));
    check!("own-memory", is_same, "the copy differs");
    edu.transfer(own, BUFFER, SIZE, INTERRUPT);
    cpu::unmask_irqs();
    timer::delay_us(1_000);
    cpu::mask_irqs();
    gic::disable(line);
    report::equal("interrupts", INTERRUPTS.load(Relaxed), 1);
}
