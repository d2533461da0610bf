//! A guest that Gear2 schedules owns devices of the machine: a clock (PL031), whose alarm interrupts
//! when the guest says so, and a virtio transport, which masters the bus.
//!
//! Each interrupt of the clock is one exit, on the CPU of the vCPU that it is for, and its end is
//! none. With `role=1` the guest is a VM beside, which waits.
//!
//! The guest resets itself while the clock's interrupt is active and its line high. The clock keeps
//! its registers over that, which tells the lives apart. The next life finds the interrupt silent
//! and the transport reset, and uses both again.
//!
//! Requirements: G1-DMA-005, G1-GIC-006, G1-GIC-014, G1-GIC-018.
#![no_std]
#![no_main]

use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use gear1_abi::exit::ExitReason;
use test_guests::mmio::{read32, write32};
use test_guests::{Machine, check, cpu, gic, guest, psci, report, stats, timer};

guest!(main, irq = on_interrupt, other_cpu = other);

/// The clock of QEMU's `virt`, and its interrupt.
const CLOCK: u64 = 0x0901_0000;
const INTID: u32 = 34;
/// Registers of a PL031 (Arm DDI 0224, 3.2): count, alarm, mask, raw state, clear.
const COUNT: u64 = CLOCK;
const ALARM: u64 = CLOCK + 0x04;
const MASK: u64 = CLOCK + 0x10;
const RAW: u64 = CLOCK + 0x14;
const CLEAR: u64 = CLOCK + 0x1c;
/// Alarm that tells of a former life: in no year of a test.
const MARK: u32 = 0x7fff_abcd;

/// The transport of QEMU's first virtio device (virtio 1.2, 4.2.2), and bits of its status.
const TRANSPORT: u64 = 0x0a00_3e00;
const DEVICE_ID: u64 = TRANSPORT + 0x08;
const STATUS: u64 = TRANSPORT + 0x70;
const ACKNOWLEDGED: u32 = 1;
const HAS_DRIVER: u32 = 2;
/// `virtio-rng`.
const RANDOM: u32 = 4;

/// An error of one in a hundred shows.
const ROUNDS: u64 = 100;

/// Exits that a device of the VM's own has no part in.
const OTHERS: [ExitReason; 6] = [
    ExitReason::MmioGic,
    ExitReason::MmioGear2,
    ExitReason::Abort,
    ExitReason::Sysreg,
    ExitReason::Wfi,
    ExitReason::Maintenance,
];

static INTERRUPTS: AtomicU32 = AtomicU32::new(0);
/// The first vCPU has told that the other one is on: lines of both at once would mix.
static IS_TOLD: AtomicBool = AtomicBool::new(false);
static IS_DONE: AtomicBool = AtomicBool::new(false);

fn on_interrupt(_intid: u32) {
    INTERRUPTS.fetch_add(1, Ordering::Relaxed);
    write32(CLEAR, 1);
}

/// The first life ends in the middle of an interrupt.
fn main(machine: &Machine) {
    if machine.option("role") == Some(1) {
        loop {
            cpu::wfi();
        }
    }
    let is_again = read32(ALARM) == MARK;
    if is_again {
        is_silent();
    }
    begin();
    counts("first-cpu");
    let result = psci::cpu_on(1);
    check!("cpu-on", result == psci::result::SUCCESS, "{result}");
    IS_TOLD.store(true, Ordering::Release);
    cpu::wait_until(|| IS_DONE.load(Ordering::Acquire));
    if !is_again {
        gic::enable(INTID);
        raise();
        let _active = await_interrupt();
        write32(ALARM, MARK);
        psci::system_reset();
    }
}

/// The interrupt is made for this vCPU. The first one comes to the other vCPU's CPU, and those
/// behind it come here.
fn other(_index: usize) {
    cpu::wait_until(|| IS_TOLD.load(Ordering::Acquire));
    counts("other-cpu");
    IS_DONE.store(true, Ordering::Release);
}

/// Checks what the former life has left: the clock's line is high, and nothing comes of it before
/// the guest enables the interrupt. The transport was reset, since it could write to memory.
fn is_silent() {
    report::equal("line-is-high", read32(RAW), 1);
    report::equal(
        "active",
        gic::read_bit(gic::register::ISACTIVER, INTID),
        false,
    );
    cpu::unmask_irqs();
    timer::delay_us(1_000);
    cpu::mask_irqs();
    report::equal("silent", INTERRUPTS.load(Ordering::Relaxed), 0);
    report::equal("master-is-reset", read32(STATUS), 0);
}

/// Sets both devices up.
fn begin() {
    write32(CLEAR, 1);
    write32(MASK, 1);
    // Of the former life: Gear1 had taken the interrupt before the line went low.
    gic::set_pending(INTID, false);
    report::equal("transport", read32(DEVICE_ID), RANDOM);
    write32(STATUS, ACKNOWLEDGED);
    write32(STATUS, ACKNOWLEDGED | HAS_DRIVER);
    report::equal("driver", read32(STATUS), ACKNOWLEDGED | HAS_DRIVER);
}

/// Has the clock interrupt this vCPU, once to have the interrupt routed here, then [`ROUNDS`] times.
/// Checks that each of these came to the CPU that ran the vCPU, an exit each, and that none had
/// another exit.
fn counts(name: &str) {
    gic::enable(INTID);
    take_one();
    let others = || OTHERS.map(stats::exits);
    let before = (stats::exits(ExitReason::IrqDirect), others());
    for _ in 0..ROUNDS {
        take_one();
    }
    let after = (stats::exits(ExitReason::IrqDirect), others());
    report::equal(name, after.0 - before.0, ROUNDS);
    for ((reason, before), after) in OTHERS.iter().zip(before.1).zip(after.1) {
        let (label, grown) = (reason.label(), after - before);
        check!(name, grown == 0, "{label} grew by {grown}");
    }
    gic::disable(INTID);
}

/// Has the clock interrupt, and ends the interrupt.
fn take_one() {
    raise();
    let acknowledged = await_interrupt();
    write32(CLEAR, 1);
    gic::end(acknowledged);
}

/// Has the alarm match the count, which interrupts at once. The count may go on between the two
/// accesses.
fn raise() {
    while read32(RAW) == 0 {
        write32(ALARM, read32(COUNT));
    }
}

/// Acknowledges the interrupt, by polling: no exception of the guest's is involved.
fn await_interrupt() -> u32 {
    loop {
        let acknowledged = gic::acknowledge();
        if gic::is_real(acknowledged) {
            return acknowledged;
        }
    }
}
