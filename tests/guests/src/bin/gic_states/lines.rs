//! Interrupts with a line behind them: the timer's, which has a physical interrupt in a VM, and the
//! UART's.

use test_guests::gic::{self, NONE, PRIORITY, Version, register as r};
use test_guests::mmio::write32;
use test_guests::uart::{self, register as pl011};
use test_guests::{Machine, report, timer, write_sysreg};

use super::{
    DEPTH, IDLE, MANY, PENDING, SPI, acknowledge, await_any, nested_priority, pend, state, take,
};

const TIMER: u32 = timer::INTID;
const TRANSMIT: u32 = 1 << 5;

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
pub(super) fn timer_line(machine: &Machine) {
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
pub(super) fn timer_steps() {
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
pub(super) fn timer_among_many() {
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
pub(super) fn timer_below(machine: &Machine) {
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
pub(super) fn device_level(machine: &Machine) {
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
