//! Transitions of interrupts: pending, active, both; edge and level; priorities, masks and
//! preemption; more pending or active interrupts than list registers; the timer's interrupt, which
//! has a physical one behind it; ends in one step and in two; groups; SGIs in every form.
//!
//! Interrupts stay masked at the CPU: the test acknowledges every interrupt by hand and so sees
//! each state. The shared interrupts used, from `SPI` on, have no device.
#![no_std]
#![no_main]

use test_guests::gic::{self, NONE, PRIORITY, Version, register as r, v2, v3};
use test_guests::mmio::{read32, write8, write32};
use test_guests::uart::{self, register as pl011};
use test_guests::{Machine, cpu, guest, report, timer, write_sysreg};

guest!(main);

const SPI: u32 = 128;
/// More than any GIC has list registers.
const MANY: u32 = 24;
/// Depth of nested preemption: deeper than any GIC has list registers.
const DEPTH: u32 = 20;
const SGI: u32 = 5;
const TIMER: u32 = timer::INTID;
const TRANSMIT: u32 = 1 << 5;
/// Longest time in which Gear1 refills list registers, on a busy host.
const SOON_US: u64 = 100;
/// Latest arrival of an interrupt that must come, on a busy host.
const LATEST_US: u64 = 1_000_000;

/// Pending and active bit.
type State = (bool, bool);
const IDLE: State = (false, false);
const PENDING: State = (true, false);
const ACTIVE: State = (false, true);
const BOTH: State = (true, true);

fn main(machine: &Machine) {
    cpu::mask_irqs();
    for intid in SPI..SPI + MANY {
        gic::set_edge(intid, true);
        gic::enable(intid);
    }
    gic::enable(SGI);
    pending();
    active();
    software_level();
    groups(machine);
    order();
    changed_priority();
    many_active_at_once();
    nested();
    preemption();
    mask();
    two_steps();
    sgi_forms(machine);
    timer_line(machine);
    timer_steps();
    timer_among_many();
    timer_below(machine);
    device_level(machine);
    let left = (acknowledge(), gic::running_priority());
    report::equal("nothing-left", left, (NONE, 0xff));
}

fn pend(intid: u32) {
    gic::set_pending(intid, true);
}

/// Acknowledges the highest pending interrupt. If more are pending than list registers exist, a VM
/// gets the next one after Gear1's maintenance interrupt, which this function waits for.
fn acknowledge() -> u32 {
    let acknowledged = gic::acknowledge();
    if gic::is_real(acknowledged) {
        return acknowledged;
    }
    timer::delay_us(SOON_US);
    gic::acknowledge()
}

/// Acknowledges what comes by itself, after a while.
fn await_any() -> u32 {
    let end = timer::now() + timer::from_us(LATEST_US);
    loop {
        let acknowledged = gic::acknowledge();
        if gic::is_real(acknowledged) || timer::now() >= end {
            return acknowledged;
        }
    }
}

/// Acknowledges and ends an interrupt, and returns its INTID.
fn take() -> u32 {
    let acknowledged = acknowledge();
    if gic::is_real(acknowledged) {
        gic::end(acknowledged);
    }
    acknowledged
}

fn state(intid: u32) -> State {
    let bits = [r::ISPENDR, r::ICPENDR, r::ISACTIVER, r::ICACTIVER]
        .map(|register| gic::read_bit(register, intid));
    if bits[0] != bits[1] || bits[2] != bits[3] {
        report::fail("twins-agree", format_args!("{intid}: {bits:?}"));
    }
    (bits[0], bits[2])
}

/// Pending: withdrawn by ICPENDR, held back by enables, whether in a list register or not.
fn pending() {
    pend(SPI);
    report::equal(
        "pending",
        (state(SPI), gic::highest_pending()),
        (PENDING, SPI),
    );
    gic::set_pending(SPI, false);
    report::equal("withdrawn", (state(SPI), acknowledge()), (IDLE, NONE));
    pend(SPI);
    gic::disable(SPI);
    report::equal(
        "disabled-while-pending",
        (state(SPI), acknowledge()),
        (PENDING, NONE),
    );
    gic::enable(SPI);
    report::equal("enabled-again", take(), SPI);
    let control = read32(gic::distributor());
    pend(SPI);
    write32(gic::distributor(), control & !3);
    report::equal(
        "distributor-off",
        (state(SPI), acknowledge()),
        (PENDING, NONE),
    );
    write32(gic::distributor(), control);
    report::equal("distributor-on", (take(), state(SPI)), (SPI, IDLE));
}

/// Active: set and ended by registers; pending once more meanwhile.
fn active() {
    pend(SPI);
    let first = acknowledge();
    report::equal("active", (first, state(SPI)), (SPI, ACTIVE));
    pend(SPI);
    report::equal(
        "active-and-pending",
        (state(SPI), acknowledge()),
        (BOTH, NONE),
    );
    gic::end(SPI);
    report::equal(
        "second-edge-comes",
        (state(SPI), take(), take()),
        (PENDING, SPI, NONE),
    );
    gic::write_bit(r::ISACTIVER, SPI);
    pend(SPI);
    report::equal(
        "made-active-waits",
        (state(SPI), acknowledge()),
        (BOTH, NONE),
    );
    gic::write_bit(r::ICACTIVER, SPI);
    report::equal("made-inactive-comes", (state(SPI), take()), (PENDING, SPI));
    pend(SPI);
    gic::write_bit(r::ISACTIVER, SPI);
    report::equal(
        "pending-made-active",
        (state(SPI), acknowledge()),
        (BOTH, NONE),
    );
    gic::set_pending(SPI, false);
    gic::write_bit(r::ICACTIVER, SPI);
    report::equal("idle-again", (state(SPI), acknowledge()), (IDLE, NONE));
}

/// A level-sensitive interrupt whose line is low, made pending: comes once.
fn software_level() {
    gic::set_edge(SPI, false);
    pend(SPI);
    report::equal(
        "level-made-pending",
        (state(SPI), take(), state(SPI)),
        (PENDING, SPI, IDLE),
    );
    pend(SPI);
    gic::set_pending(SPI, false);
    report::equal("level-withdrawn", (state(SPI), take()), (IDLE, NONE));
    gic::set_edge(SPI, true);
}

/// The group that is not configured to arrive as IRQ: Group 0 of a GICv3 is never acknowledged as
/// Group 1; for Group 1 a GICv2 says 1022 unless GICC_CTLR.AckCtl is set.
fn groups(machine: &Machine) {
    let register = gic::frame(SPI) + r::IGROUPR + 4 * u64::from(SPI / 32);
    let before = read32(register);
    write32(register, before ^ 1 << (SPI % 32));
    pend(SPI);
    match gic::version() {
        Version::V3 => {
            report::equal("group-0", (state(SPI), acknowledge()), (PENDING, NONE));
        }
        Version::V2 => {
            if machine.gearv {
                // QEMU's GICC_IAR says 1022 here.
                let seen = (state(SPI), acknowledge());
                report::equal("group-1-off", seen, (PENDING, NONE));
            }
            write32(gic::distributor(), 3);
            v2::write(v2::register::CTLR, 0b011);
            report::equal("group-1", (state(SPI), acknowledge()), (PENDING, 1022));
            v2::write(v2::register::CTLR, 0b111);
            report::equal("group-1-acknowledged", take(), SPI);
            v2::write(v2::register::CTLR, 1);
            write32(gic::distributor(), 1);
            pend(SPI);
        }
    }
    write32(register, before);
    report::equal("group-changed-while-pending", (take(), take()), (SPI, NONE));
}

/// All of `MANY` come, the highest priority first.
fn order() {
    // Each priority twice, spread over the INTIDs.
    let rank = |index: u32| index * 7 % (MANY / 2);
    for index in 0..MANY {
        gic::set_priority(SPI + index, (0x20 + 8 * rank(index)) as u8);
    }
    for index in (0..MANY).step_by(2).chain((1..MANY).step_by(2)) {
        pend(SPI + index);
    }
    let mut last = None;
    let mut sorted = true;
    let mut count = 0;
    loop {
        let intid = take();
        if !gic::is_real(intid) {
            break;
        }
        // The order of two interrupts with one priority is implementation defined.
        let this = Some(rank(intid - SPI));
        sorted &= last <= this;
        (last, count) = (this, count + 1);
    }
    report::equal("order", (count, sorted), (MANY, true));
}

/// A pending interrupt is ranked by its current priority.
fn changed_priority() {
    for (intid, priority) in [(SPI, 0x40), (SPI + 1, 0x60)] {
        gic::set_priority(intid, priority);
        pend(intid);
    }
    gic::set_priority(SPI, 0x80);
    report::equal(
        "priority-of-pending-changed",
        (take(), take()),
        (SPI + 1, SPI),
    );
}

/// More active at once than list registers, with ends in two steps.
fn many_active_at_once() {
    gic::set_two_step(true);
    for index in 0..MANY {
        gic::set_priority(SPI + index, PRIORITY);
        pend(SPI + index);
    }
    let all = (0..MANY).filter(|_| gic::is_real(take())).count() == MANY as usize;
    let active = (0..MANY).all(|index| state(SPI + index) == ACTIVE);
    report::equal("many-active", (all, active, take()), (true, true, NONE));
    for index in 0..MANY {
        pend(SPI + index);
    }
    report::equal(
        "many-active-and-pending",
        (state(SPI), take()),
        (BOTH, NONE),
    );
    // Every second by ICC_DIR or GICC_DIR, the others by ICACTIVER.
    let again = (0..MANY).rev().all(|index| {
        let intid = SPI + index;
        match index % 2 {
            0 => gic::deactivate(intid),
            _ => gic::write_bit(r::ICACTIVER, intid),
        }
        let came = take() == intid;
        gic::deactivate(intid);
        came && state(intid) == IDLE
    });
    gic::set_two_step(false);
    report::equal("many-come-again", (again, take()), (true, NONE));
}

/// The priority of the interrupt at `depth` of a nest.
fn nested_priority(depth: u32) -> u8 {
    (0xb8 - 8 * depth) as u8
}

/// Each preempts the one before, deeper than there are list registers.
fn nested() {
    gic::set_preemption(3);
    let into = (0..DEPTH).all(|index| {
        let (intid, priority) = (SPI + index, nested_priority(index));
        gic::set_priority(intid, priority);
        pend(intid);
        acknowledge() == intid && gic::running_priority() == priority
    });
    let out = (0..DEPTH).rev().all(|index| {
        let was_active = state(SPI + index) == ACTIVE;
        gic::end(SPI + index);
        let running = match index {
            0 => 0xff,
            _ => nested_priority(index - 1),
        };
        let is_idle = state(SPI + index) == IDLE;
        was_active && is_idle && gic::running_priority() == running
    });
    report::equal("nested", (into, out), (true, true));
    // Once more, each pending again below its own handler.
    let into = (0..DEPTH).all(|index| {
        pend(SPI + index);
        let came = acknowledge() == SPI + index;
        pend(SPI + index);
        came && acknowledge() == NONE
    });
    let out = (0..DEPTH).rev().all(|index| {
        gic::end(SPI + index);
        take() == SPI + index
    });
    report::equal("nested-and-again", (into, out, take()), (true, true, NONE));
}

/// Priorities in one group, as the binary point has it, do not preempt one another.
fn preemption() {
    gic::set_priority(SPI, 0xb0);
    gic::set_priority(SPI + 1, 0xa0);
    for (name, lowest, preempts) in [("same-group", 6, false), ("other-group", 4, true)] {
        gic::set_preemption(lowest);
        pend(SPI);
        let first = acknowledge();
        pend(SPI + 1);
        let second = acknowledge();
        if preempts {
            gic::end(second);
        }
        gic::end(first);
        let third = take();
        let expected = match preempts {
            true => (SPI, SPI + 1, NONE),
            false => (SPI, NONE, SPI + 1),
        };
        report::equal(name, (first, second, third), expected);
    }
    gic::set_preemption(3);
}

/// Only priorities above the mask come.
fn mask() {
    gic::set_priority(SPI, 0x80);
    let masks = [
        (0x00, NONE),
        (0x78, NONE),
        (0x80, NONE),
        (0x88, SPI),
        (0xf8, SPI),
    ];
    for (mask, comes) in masks {
        gic::set_mask(mask);
        pend(SPI);
        report::equal("mask", take(), comes);
        gic::set_pending(SPI, false);
    }
    // A waiting lower priority does not hold back a higher one.
    gic::set_priority(SPI + 1, 0xc0);
    gic::set_mask(0xa0);
    pend(SPI + 1);
    pend(SPI);
    report::equal("mask-between", (take(), take()), (SPI, NONE));
    gic::set_mask(0xff);
    report::equal("mask-gone", take(), SPI + 1);
}

/// EOImode 1, with one interrupt.
fn two_steps() {
    gic::set_two_step(true);
    pend(SPI);
    let first = (take(), state(SPI), gic::running_priority());
    report::equal("first-step", first, (SPI, ACTIVE, 0xff));
    pend(SPI);
    report::equal("waits-for-second-step", (state(SPI), take()), (BOTH, NONE));
    gic::deactivate(SPI);
    report::equal(
        "second-step",
        (state(SPI), take(), state(SPI)),
        (PENDING, SPI, ACTIVE),
    );
    gic::write_bit(r::ICACTIVER, SPI);
    report::equal("ended-by-icactiver", state(SPI), IDLE);
    gic::set_two_step(false);
}

/// SGIs to oneself, and those that must not reach one. `gic_smp` has those to others.
fn sgi_forms(machine: &Machine) {
    gic::send_sgi(0, SGI);
    report::equal(
        "sgi-by-list",
        (state(SGI), take(), take()),
        (PENDING, SGI, NONE),
    );
    gic::send_sgi_to_others(SGI);
    report::equal("sgi-to-others", take(), NONE);
    gic::send_sgi_to(0, SGI);
    report::equal("sgi-to-nobody", take(), NONE);
    let absent = 0xff << machine.cpus;
    gic::send_sgi_to(absent as u8, SGI);
    report::equal("sgi-to-absent", take(), NONE);
    gic::send_sgi(0, SGI);
    gic::send_sgi(0, SGI);
    report::equal("sgis-merge", (take(), take()), (SGI, NONE));
    match gic::version() {
        Version::V2 => sgi_forms_v2(machine),
        Version::V3 => sgi_forms_v3(machine),
    }
}

/// GICD_SGIR's filters, and SGIs of several senders. CPU 1 need not run to be one of them.
fn sgi_forms_v2(machine: &Machine) {
    v2::send_sgi_to_self(SGI);
    report::equal("sgi-to-self", (take(), take()), (SGI, NONE));
    if machine.gearv {
        // QEMU's GIC sends the SGI to all.
        write32(gic::distributor() + r::SGIR, 3 << 24 | 1 << 16 | SGI);
        report::equal("sgi-reserved-filter", take(), NONE);
    }
    let at = |register: u64| gic::distributor() + register + u64::from(SGI);
    let (set, clear) = (at(r::SPENDSGIR), at(r::CPENDSGIR));
    write8(set, 0b11);
    let took = (take(), take(), take());
    report::equal("sgi-by-sender", took, (SGI, 1 << 10 | SGI, NONE));
    write8(set, 0b11);
    let first = acknowledge();
    let meanwhile = (state(SGI), acknowledge());
    gic::end(first);
    report::equal(
        "second-sender-waits",
        (first, meanwhile),
        (SGI, (BOTH, NONE)),
    );
    write8(clear, 0b10);
    report::equal("sgi-withdrawn", (state(SGI), take()), (IDLE, NONE));
}

fn sgi_forms_v3(machine: &Machine) {
    let number = u64::from(SGI) << 24;
    write_sysreg!("icc_sgi1r_el1", number | 1 << 16 | 1);
    report::equal("sgi-other-affinity", take(), NONE);
    write_sysreg!("icc_sgi0r_el1", number | 1);
    report::equal("sgi0r-of-group-1", (state(SGI), take()), (IDLE, NONE));
    if machine.gearv {
        // The GIC has one security state: Group 1 of the other state reaches no CPU.
        write_sysreg!("icc_asgi1r_el1", number | 1);
        report::equal("asgi1r-of-group-1", (state(SGI), take()), (IDLE, NONE));
    }
    let groups = v3::sgi_frame() + r::IGROUPR;
    let before = read32(groups);
    write32(groups, before & !(1 << SGI));
    write_sysreg!("icc_sgi0r_el1", number | 1);
    report::equal("sgi0r-of-group-0", (state(SGI), take()), (PENDING, NONE));
    write32(groups, before);
    report::equal("group-0-made-group-1", take(), SGI);
}

/// Ends the timer's interrupt while its line is high, which comes again then. QEMU's GICv2 does not
/// look at its lines when a list register ends the physical interrupt, only when a line changes.
fn end_while_high(machine: &Machine) {
    gic::end(TIMER);
    if machine.gearv && gic::version() == Version::V2 {
        timer::disarm();
        timer::arm(timer::now());
    }
}

fn arm_and_wait() {
    timer::arm(timer::now());
    timer::delay_us(50);
}

/// The timer's line shows as pending whether the interrupt is enabled or not, and no longer when it
/// is low again.
fn timer_line(machine: &Machine) {
    gic::disable(TIMER);
    arm_and_wait();
    report::equal(
        "timer-pending-while-disabled",
        (state(TIMER), take()),
        (PENDING, NONE),
    );
    timer::disarm();
    report::equal("timer-low-again", state(TIMER), IDLE);
    gic::enable(TIMER);
    report::equal("timer-did-not-stay", take(), NONE);
    gic::disable(TIMER);
    arm_and_wait();
    timer::disarm();
    gic::enable(TIMER);
    report::equal("timer-did-not-stay-unseen", take(), NONE);
    write_sysreg!("cntv_ctl_el0", 3);
    report::equal(
        "timer-masked-in-itself",
        (state(TIMER), take()),
        (IDLE, NONE),
    );
    gic::set_mask(0);
    arm_and_wait();
    report::equal(
        "timer-behind-the-mask",
        (state(TIMER), take()),
        (PENDING, NONE),
    );
    timer::disarm();
    report::equal("timer-low-behind-the-mask", state(TIMER), IDLE);
    gic::set_mask(0xff);
    report::equal("timer-nothing-came", take(), NONE);
    arm_and_wait();
    report::equal("timer-came", (await_any(), state(TIMER).1), (TIMER, true));
    end_while_high(machine);
    report::equal(
        "timer-still-high",
        (await_any(), state(TIMER).1),
        (TIMER, true),
    );
    timer::disarm();
    gic::end(TIMER);
    report::equal("timer-ended", (take(), state(TIMER)), (NONE, IDLE));
    pend(TIMER);
    report::equal("timer-by-ispendr", (take(), take()), (TIMER, NONE));
}

/// The timer's interrupt ends by DIR and by ICACTIVER, and comes again.
fn timer_steps() {
    gic::set_two_step(true);
    arm_and_wait();
    let first = await_any();
    gic::end(first);
    timer::delay_us(50);
    report::equal("timer-waits-for-dir", (first, acknowledge()), (TIMER, NONE));
    gic::deactivate(TIMER);
    let second = await_any();
    gic::end(second);
    gic::write_bit(r::ICACTIVER, TIMER);
    let third = await_any();
    gic::end(third);
    report::equal(
        "timer-after-dir-and-icactiver",
        (second, third),
        (TIMER, TIMER),
    );
    timer::disarm();
    gic::write_bit(r::ICACTIVER, TIMER);
    report::equal("timer-inactive", (state(TIMER), take()), (IDLE, NONE));
    gic::set_two_step(false);
    // Made active beforehand: waits until that is over.
    gic::write_bit(r::ISACTIVER, TIMER);
    arm_and_wait();
    report::equal("timer-made-active", acknowledge(), NONE);
    gic::write_bit(r::ICACTIVER, TIMER);
    report::equal("timer-made-inactive", await_any(), TIMER);
    timer::disarm();
    gic::end(TIMER);
    report::equal("timer-over", (take(), state(TIMER)), (NONE, IDLE));
}

/// The timer's interrupt first, last and in the middle of more than there are list registers.
fn timer_among_many() {
    let cases = [
        ("timer-first", 0x10, 0),
        ("timer-amid", 0x80, MANY / 2),
        ("timer-last", 0xd0, MANY),
    ];
    for (name, priority, expected) in cases {
        gic::set_priority(TIMER, priority);
        gic::set_mask(0);
        for index in 0..MANY {
            let before_amid = index < MANY / 2;
            gic::set_priority(SPI + index, if before_amid { 0x70 } else { 0x90 });
            pend(SPI + index);
        }
        arm_and_wait();
        gic::set_mask(0xff);
        let mut place = None;
        let mut count = 0;
        loop {
            let intid = acknowledge();
            if intid == TIMER {
                timer::disarm();
                place = Some(count);
            }
            if !gic::is_real(intid) {
                break;
            }
            gic::end(intid);
            count += 1;
        }
        report::equal(name, (place, count), (Some(expected), MANY + 1));
    }
}

/// The timer's interrupt active below more than there are list registers, high again at its end.
fn timer_below(machine: &Machine) {
    gic::set_priority(TIMER, 0xd0);
    arm_and_wait();
    let first = await_any();
    let into = (0..DEPTH).all(|index| {
        gic::set_priority(SPI + index, nested_priority(index));
        pend(SPI + index);
        acknowledge() == SPI + index
    });
    (0..DEPTH).rev().for_each(|index| gic::end(SPI + index));
    report::equal(
        "timer-below",
        (first, into, state(TIMER).1),
        (TIMER, true, true),
    );
    end_while_high(machine);
    let again = await_any();
    timer::disarm();
    gic::end(again);
    report::equal("timer-again-after-below", (again, take()), (TIMER, NONE));
    gic::set_priority(TIMER, PRIORITY);
}

/// The PL011's line: as a level it comes until it is low, as an edge once.
fn device_level(machine: &Machine) {
    let intid = machine.uart_intid;
    let line = |mask: u32| write32(machine.uart + pl011::IMSC, mask);
    gic::enable(intid);
    uart::send(b'\n');
    timer::delay_us(100);
    line(TRANSMIT);
    let first = await_any();
    gic::end(intid);
    let second = await_any();
    line(0);
    gic::end(intid);
    report::equal("level-comes-again", (first, second), (intid, intid));
    report::equal("level-low", (take(), state(intid)), (NONE, IDLE));
    gic::disable(intid);
    line(TRANSMIT);
    let pending = state(intid);
    gic::set_pending(intid, false);
    report::equal(
        "level-not-withdrawn",
        (pending, state(intid)),
        (PENDING, PENDING),
    );
    line(0);
    report::equal("level-gone", state(intid), IDLE);
    gic::set_edge(intid, true);
    gic::enable(intid);
    line(TRANSMIT);
    let first = await_any();
    gic::end(first);
    report::equal("edge-once", (first, take()), (intid, NONE));
    line(0);
    line(TRANSMIT);
    line(0);
    report::equal(
        "edge-stays",
        (state(intid), take(), take()),
        (PENDING, intid, NONE),
    );
    gic::set_edge(intid, false);
    gic::disable(intid);
}
