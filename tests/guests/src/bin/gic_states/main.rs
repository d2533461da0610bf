//! Transitions of interrupts: pending, active, both; edge and level; priorities, masks and
//! preemption; more pending or active interrupts than list registers; the timer's interrupt, which
//! has a physical one behind it; ends in one step and in two; groups; SGIs in every form.
//!
//! Interrupts stay masked at the CPU: the test acknowledges every interrupt by hand and so sees
//! each state. The shared interrupts used, from `SPI` on, have no device.
//!
//! The states are those of the GIC architecture (Arm IHI 0048, 3.2.4; IHI 0069, chapter 4): idle,
//! pending, active, and both. Gear1 keeps a state partly in list registers and partly in memory,
//! and each check names a transition in which the two could disagree.
#![no_std]
#![no_main]

use test_guests::gic::{self, NONE, PRIORITY, Version, register as r, v2};
use test_guests::mmio::{read32, write32};
use test_guests::{Machine, cpu, guest, report, timer};

mod lines;
mod sgis;

guest!(main);

/// The first of the shared interrupts used.
const SPI: u32 = 128;
/// More than any GIC has list registers, of which a GICv3 has 16 at most (`ICH_LR<n>_EL2`). QEMU's
/// CPUs have four: most of these interrupts wait in Gear1's memory.
const MANY: u32 = 24;
/// Depth of nested preemption: deeper than any GIC has list registers.
const DEPTH: u32 = 20;
/// The SGI that all CPUs may send.
const SGI: u32 = 5;
/// Longest time in which Gear1 refills list registers, on a busy host. The refill follows a
/// maintenance interrupt, which is physical and goes through Gear1.
const SOON_US: u64 = 100;
/// Latest arrival of an interrupt that must come, on a busy host.
const LATEST_US: u64 = 1_000_000;

/// Pending and active bit. Both bits are read at once for one comparison.
type State = (bool, bool);
const IDLE: State = (false, false);
const PENDING: State = (true, false);
const ACTIVE: State = (false, true);
const BOTH: State = (true, true);

/// Runs all checks. The checks share the interrupts, so each leaves them idle, which the last check
/// confirms.
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
    sgis::sgi_forms(machine);
    lines::timer_line(machine);
    lines::timer_steps();
    lines::timer_among_many();
    lines::timer_below(machine);
    lines::device_level(machine);
    let left = (acknowledge(), gic::running_priority());
    report::equal("nothing-left", left, (NONE, 0xff));
}

/// Makes an interrupt pending by GICD_ISPENDR.
fn pend(intid: u32) {
    gic::set_pending(intid, true);
}

/// Acknowledges the highest pending interrupt. If more are pending than list registers exist, a VM
/// gets the next one after Gear1's maintenance interrupt, which this function waits for. At once
/// 1023 may be read, which the requirements allow (G1-GIC-007).
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

/// Set and clear registers read alike (GICD_ISPENDRn and GICD_ICPENDRn), which is checked each
/// time. Gear1 takes over the list registers before such a read; a read that did not would show the
/// state at the last exit.
fn state(intid: u32) -> State {
    let bits = [r::ISPENDR, r::ICPENDR, r::ISACTIVER, r::ICACTIVER]
        .map(|register| gic::read_bit(register, intid));
    if bits[0] != bits[1] || bits[2] != bits[3] {
        report::fail("twins-agree", format_args!("{intid}: {bits:?}"));
    }
    (bits[0], bits[2])
}

/// Checks the state of an interrupt, and that no interrupt comes. An interrupt that would come is
/// taken and reported by its INTID. 1023 is compared as well: an interrupt that is shown right may
/// be delivered wrongly all the same.
fn stays(name: &str, intid: u32, expected: State) {
    report::equal(name, (state(intid), take()), (expected, NONE));
}

/// Pending: withdrawn by ICPENDR, held back by enables, whether in a list register or not. An
/// interrupt that was already in a list register must be taken back from there. G1-GIC-003: a
/// disabled one keeps its pending state, and so does each when GICD_CTLR turns its group off.
fn pending() {
    pend(SPI);
    let seen = (state(SPI), gic::highest_pending());
    report::equal("pending", seen, (PENDING, SPI));
    gic::set_pending(SPI, false);
    stays("withdrawn", SPI, IDLE);
    pend(SPI);
    gic::disable(SPI);
    stays("disabled-while-pending", SPI, PENDING);
    gic::enable(SPI);
    report::equal("enabled-again", take(), SPI);
    let control = read32(gic::distributor());
    pend(SPI);
    write32(gic::distributor(), control & !3);
    stays("distributor-off", SPI, PENDING);
    write32(gic::distributor(), control);
    report::equal("distributor-on", (take(), state(SPI)), (SPI, IDLE));
}

/// Active: set and ended by registers; pending once more meanwhile. An edge that arrives while the
/// interrupt is active must not be lost, and must not come before its end. GICD_ISACTIVER and
/// GICD_ICACTIVER are what Linux saves and restores by over a suspension, so they must do what an
/// acknowledge and an end do.
fn active() {
    pend(SPI);
    let first = acknowledge();
    report::equal("active", (first, state(SPI)), (SPI, ACTIVE));
    pend(SPI);
    stays("active-and-pending", SPI, BOTH);
    gic::end(SPI);
    report::equal(
        "second-edge-comes",
        (state(SPI), take(), take()),
        (PENDING, SPI, NONE),
    );
    gic::write_bit(r::ISACTIVER, SPI);
    pend(SPI);
    stays("made-active-waits", SPI, BOTH);
    gic::write_bit(r::ICACTIVER, SPI);
    report::equal("made-inactive-comes", (state(SPI), take()), (PENDING, SPI));
    pend(SPI);
    gic::write_bit(r::ISACTIVER, SPI);
    stays("pending-made-active", SPI, BOTH);
    gic::set_pending(SPI, false);
    gic::write_bit(r::ICACTIVER, SPI);
    stays("idle-again", SPI, IDLE);
}

/// A level-sensitive interrupt whose line is low, made pending: comes once. GICD_ISPENDR latches
/// such an interrupt until it is acknowledged, since no line holds it.
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
    stays("level-withdrawn", SPI, IDLE);
    gic::set_edge(SPI, true);
}

/// The group that is not configured to arrive as IRQ: Group 0 of a GICv3 is never acknowledged as
/// Group 1; for Group 1 a GICv2 says 1022 unless GICC_CTLR.AckCtl is set. The group is changed
/// while nothing is pending and back while the interrupt is pending: the second change must reach
/// the list register. Gear1's list registers carry the group: a stale one would signal the
/// interrupt as FIQ, or as the other group's IRQ.
fn groups(machine: &Machine) {
    let register = gic::frame(SPI) + r::IGROUPR + 4 * u64::from(SPI / 32);
    let before = read32(register);
    write32(register, before ^ 1 << (SPI % 32));
    pend(SPI);
    match gic::version() {
        Version::V3 => stays("group-0", SPI, PENDING),
        Version::V2 => group_1_of_v2(machine),
    }
    write32(register, before);
    report::equal("group-changed-while-pending", (take(), take()), (SPI, NONE));
}

/// Checks Group 1 of a GICv2. Group 1 is not enabled in the distributor first, and not
/// acknowledgeable then: 1022 says that an interrupt of the other group is pending (Arm IHI 0048,
/// 4.4.4).
fn group_1_of_v2(machine: &Machine) {
    if machine.gearv {
        // QEMU's GICC_IAR says 1022 here.
        stays("group-1-off", SPI, PENDING);
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

/// All of `MANY` come, the highest priority first. Priorities and the order of making pending
/// differ, so that neither INTIDs nor arrivals explain the order. With more interrupts than list
/// registers the highest must displace lower ones. The maintenance interrupt for the next ones
/// comes with the lower priorities left in memory: a refill in another order would invert
/// priorities (G1-GIC-007).
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
        last = this;
        count += 1;
    }
    report::equal("order", (count, sorted), (MANY, true));
}

/// A pending interrupt is ranked by its current priority. The change hits an interrupt that may be
/// in a list register already. Until the flush behind the store, the list register has the old
/// rank.
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

/// More active at once than list registers, with ends in two steps. Priorities drop at the first
/// step, so all become active without a nest. Active interrupts then exceed the list registers, and
/// some exist only in Gear1's memory. ICC_DIR_EL1 then traps, as the hardware finds no list
/// register to deactivate (G1-GIC-012).
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
    let first = (state(SPI), take());
    report::equal("many-active-and-pending", first, (BOTH, NONE));
    let again = (0..MANY).rev().all(comes_again);
    gic::set_two_step(false);
    report::equal("many-come-again", (again, take()), (true, NONE));
}

/// Ends an interrupt that is active and pending, and takes it again. Every second ends by ICC_DIR
/// or GICC_DIR, the others by ICACTIVER. Both ways to deactivate must find an interrupt that is in
/// no list register. A deactivation that found none would leave the interrupt active for ever, and
/// the device silent.
fn comes_again(index: u32) -> bool {
    let intid = SPI + index;
    match index % 2 {
        0 => gic::deactivate(intid),
        _ => gic::write_bit(r::ICACTIVER, intid),
    }
    let came = take() == intid;
    gic::deactivate(intid);
    came && state(intid) == IDLE
}

/// The priority of the interrupt at `depth` of a nest. Steps of 8 are the least that 5 bits of
/// priority tell apart, the fewest of a virtual CPU interface.
fn nested_priority(depth: u32) -> u8 {
    (0xb8 - 8 * depth) as u8
}

/// Each preempts the one before, deeper than there are list registers. The running priority must
/// fall back to that of the interrupt below at each end, also where that one is in memory. An end
/// without a list register is only counted (EOIcount): Gear1 takes it for the end of the active
/// interrupt of the highest priority.
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
    nested_and_again();
}

/// The nest once more, each interrupt pending again below its own handler. A pending interrupt must
/// not preempt its own handler, as its priority is not higher.
fn nested_and_again() {
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

/// Priorities in one group, as the binary point has it, do not preempt one another. The binary
/// point decides which bits are compared (ICC_BPR1_EL1, GICC_BPR). ICH_VMCR_EL2 holds the virtual
/// binary point; preemption is decided by hardware, of what the list registers show it.
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

/// Only priorities above the mask come. An interrupt of the priority in the mask does not come:
/// only a higher one, a lower number, does. Five bits of priority: 0x88 is the next one below 0x80.
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
    mask_between();
}

/// A waiting lower priority does not hold back a higher one.
fn mask_between() {
    gic::set_priority(SPI + 1, 0xc0);
    gic::set_mask(0xa0);
    pend(SPI + 1);
    pend(SPI);
    report::equal("mask-between", (take(), take()), (SPI, NONE));
    gic::set_mask(0xff);
    report::equal("mask-gone", take(), SPI + 1);
}

/// EOImode 1, with one interrupt. The first step lowers the running priority alone; the interrupt
/// stays active until the second one. Linux uses this mode for interrupts that it forwards to
/// guests of its own (EOImode 1 at EL2).
fn two_steps() {
    gic::set_two_step(true);
    pend(SPI);
    let first = (take(), state(SPI), gic::running_priority());
    report::equal("first-step", first, (SPI, ACTIVE, 0xff));
    pend(SPI);
    stays("waits-for-second-step", SPI, BOTH);
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
