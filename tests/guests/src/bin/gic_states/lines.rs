//! Interrupts with a line behind them: the timer's, which has a physical interrupt in a VM, and the
//! UART's.
//!
//! A list register with HW set ties the timer's virtual interrupt to the physical one of the same
//! INTID: the guest's end deactivates both without an exit (`ICH_LR<n>_EL2`, GICH_LRn). Gear1
//! learns of that end later, and has to find out whether the line is high still.

use test_guests::gic::{self, NONE, PRIORITY, Version, register as r};
use test_guests::mmio::write32;
use test_guests::uart::{self, register as pl011};
use test_guests::{Machine, report, timer, write_sysreg};

use super::{
    DEPTH, IDLE, MANY, PENDING, SPI, acknowledge, await_any, nested_priority, pend, state, stays,
    take,
};

/// PPI 27, behind which a VM has a physical interrupt (a list register with HW set).
const TIMER: u32 = timer::INTID;
/// TXIM of UARTIMSC (Arm DDI 0183). The transmitter's mask bit drives the line, with no character
/// on its way.
const TRANSMIT: u32 = 1 << 5;

/// Ends the timer's interrupt while its line is high, which comes again then. QEMU's GICv2 does not
/// look at its lines when a list register ends the physical interrupt, only when a line changes.
/// Arming the timer anew is such a change.
fn end_while_high(machine: &Machine) {
    gic::end(TIMER);
    if machine.gearv && gic::version() == Version::V2 {
        timer::disarm();
        timer::arm(timer::now());
    }
}

/// The wait is for QEMU, whose timers go off between translated blocks. In a VM the physical
/// interrupt goes to EL2 first, where Gear1 makes the virtual one pending.
fn arm_and_wait() {
    timer::arm(timer::now());
    timer::delay_us(50);
}

/// The timer's line shows as pending whether the interrupt is enabled or not, and no longer when it
/// is low again. A level-sensitive interrupt is pending while its line is high, and no longer.
/// Gear1 has taken the physical interrupt by then, and has to take the virtual one back
/// (`VmGic::retract_hw`, G1-GIC-011).
pub(super) fn timer_line(machine: &Machine) {
    gic::disable(TIMER);
    arm_and_wait();
    stays("timer-pending-while-disabled", TIMER, PENDING);
    timer::disarm();
    report::equal("timer-low-again", state(TIMER), IDLE);
    gic::enable(TIMER);
    report::equal("timer-did-not-stay", take(), NONE);
    gic::disable(TIMER);
    arm_and_wait();
    timer::disarm();
    gic::enable(TIMER);
    report::equal("timer-did-not-stay-unseen", take(), NONE);
    timer_masked();
    timer_comes(machine);
}

/// The timer's own mask keeps the line low; the CPU interface's leaves the state visible.
/// ICC_PMR_EL1 keeps an interrupt from the CPU, not from GICR_ISPENDR0. CNTV_CTL_EL0 of 3 is ENABLE
/// with IMASK. Linux' pseudo-NMIs mask all other interrupts by ICC_PMR_EL1.
fn timer_masked() {
    write_sysreg!("cntv_ctl_el0", 3);
    stays("timer-masked-in-itself", TIMER, IDLE);
    gic::set_mask(0);
    arm_and_wait();
    stays("timer-behind-the-mask", TIMER, PENDING);
    timer::disarm();
    report::equal("timer-low-behind-the-mask", state(TIMER), IDLE);
    gic::set_mask(0xff);
    report::equal("timer-nothing-came", take(), NONE);
}

/// The timer's interrupt comes until its line is low. Active and pending at once is the state of a
/// level that stays high. The last interrupt comes by GICR_ISPENDR0 or GICD_ISPENDR0 alone. No
/// physical interrupt stands behind it, so a list register with HW set would end one that is not
/// active.
fn timer_comes(machine: &Machine) {
    arm_and_wait();
    report::equal("timer-came", (await_any(), state(TIMER).1), (TIMER, true));
    end_while_high(machine);
    let again = (await_any(), state(TIMER).1);
    report::equal("timer-still-high", again, (TIMER, true));
    timer::disarm();
    gic::end(TIMER);
    report::equal("timer-ended", (take(), state(TIMER)), (NONE, IDLE));
    pend(TIMER);
    report::equal("timer-by-ispendr", (take(), take()), (TIMER, NONE));
}

/// The timer's interrupt ends by DIR and by ICACTIVER, and comes again. With EOImode 1 the end
/// comes in two steps, and either register deactivates. Each of the three ways has to deactivate
/// the physical interrupt too (G1-GIC-006): the timer would never interrupt again otherwise. Linux
/// uses EOImode 1 only where it boots at EL2.
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
    let both = (second, third);
    report::equal("timer-after-dir-and-icactiver", both, (TIMER, TIMER));
    timer::disarm();
    gic::write_bit(r::ICACTIVER, TIMER);
    stays("timer-inactive", TIMER, IDLE);
    gic::set_two_step(false);
    timer_made_active();
}

/// The timer's interrupt waits while software has made it active. GICD_ISACTIVER makes an interrupt
/// active without a CPU that took it. KVM keeps the interrupt of a running guest's timer from the
/// host in this way (`IRQCHIP_STATE_ACTIVE`), and relies on the timer's interrupt being held back.
fn timer_made_active() {
    gic::write_bit(r::ISACTIVER, TIMER);
    arm_and_wait();
    report::equal("timer-made-active", acknowledge(), NONE);
    gic::write_bit(r::ICACTIVER, TIMER);
    report::equal("timer-made-inactive", await_any(), TIMER);
    timer::disarm();
    gic::end(TIMER);
    report::equal("timer-over", (take(), state(TIMER)), (NONE, IDLE));
}

/// The timer's interrupt first, last and in the middle of more than there are list registers. A
/// hypervisor keeps the rest in memory; the order by priority must not show it. The priorities of
/// the others are 0x70 before the middle and 0x90 behind it, so that 0x10, 0x80 and 0xd0 are the
/// three places.
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
        report::equal(name, take_all(), (Some(expected), MANY + 1));
    }
}

/// Takes all pending interrupts. Returns how many came before the timer's, and how many in all.
/// Returns when the CPU interface has none. The timer is disarmed as soon as its interrupt is
/// acknowledged: a line that stays high would make it come twice.
fn take_all() -> (Option<u32>, u32) {
    let mut place = None;
    let mut count = 0;
    loop {
        let intid = acknowledge();
        if intid == TIMER {
            timer::disarm();
            place = Some(count);
        }
        if !gic::is_real(intid) {
            return (place, count);
        }
        gic::end(intid);
        count += 1;
    }
}

/// The timer's interrupt active below more than there are list registers, high again at its end.
/// Deep nesting pushes the timer's interrupt out of the list registers while it is active. No list
/// register is there to deactivate the physical interrupt at its end. Gear1 learns of the end by
/// ICH_HCR_EL2.EOIcount or GICH_HCR.EOICount (G1-GIC-012), and does that by itself.
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
    let below = (first, into, state(TIMER).1);
    report::equal("timer-below", below, (TIMER, true, true));
    end_while_high(machine);
    let again = await_any();
    timer::disarm();
    gic::end(again);
    report::equal("timer-again-after-below", (again, take()), (TIMER, NONE));
    gic::set_priority(TIMER, PRIORITY);
}

/// The PL011's line: as a level it comes until it is low, as an edge once. GICD_ICFGR is changed
/// while the interrupt is disabled, as IHI 0069 demands. A byte is sent first, since UARTRIS.TXRIS
/// rises when the transmit FIFO drains, and not because it is empty (DDI 0183).
pub(super) fn device_level(machine: &Machine) {
    let intid = machine.uart_intid;
    gic::enable(intid);
    uart::send(b'\n');
    timer::delay_us(100);
    uart_level(machine, intid);
    gic::set_edge(intid, true);
    gic::enable(intid);
    uart_edge(machine, intid);
    gic::set_edge(intid, false);
    gic::disable(intid);
}

/// Drives the PL011's line, by the mask of its interrupts. UARTMIS is UARTRIS under this mask, and
/// the line is high while UARTMIS is not 0.
fn drive_line(machine: &Machine, mask: u32) {
    write32(machine.uart + pl011::IMSC, mask);
}

/// GICD_ICPENDR does not end what a line that is high makes pending. GICD_ICPENDR clears the latch
/// that GICD_ISPENDR sets, and no input line (IHI 0048, 4.3.8). A level that a write could withdraw
/// would be an interrupt that a driver never gets.
fn uart_level(machine: &Machine, intid: u32) {
    drive_line(machine, TRANSMIT);
    let first = await_any();
    gic::end(intid);
    let second = await_any();
    drive_line(machine, 0);
    gic::end(intid);
    report::equal("level-comes-again", (first, second), (intid, intid));
    report::equal("level-low", (take(), state(intid)), (NONE, IDLE));
    gic::disable(intid);
    drive_line(machine, TRANSMIT);
    let pending = state(intid);
    gic::set_pending(intid, false);
    let both = (pending, state(intid));
    report::equal("level-not-withdrawn", both, (PENDING, PENDING));
    drive_line(machine, 0);
    report::equal("level-gone", state(intid), IDLE);
}

/// An edge is latched: the line may be low again before anybody looks. The last pulse is over
/// before anybody acknowledges it, and its interrupt comes all the same, once (G1-GIC-005).
fn uart_edge(machine: &Machine, intid: u32) {
    drive_line(machine, TRANSMIT);
    let first = await_any();
    gic::end(first);
    report::equal("edge-once", (first, take()), (intid, NONE));
    drive_line(machine, 0);
    drive_line(machine, TRANSMIT);
    drive_line(machine, 0);
    let stays = (state(intid), take(), take());
    report::equal("edge-stays", stays, (PENDING, intid, NONE));
}
