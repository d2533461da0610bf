//! The interrupt controller's basics: SGIs, the timer's PPI, priorities and masks, the bits that
//! enable, pend and activate, and the PL011's level.
//!
//! The test is small enough for each machine, and runs natively too: what fails on QEMU's own
//! controller is an error of the test. Transitions between states are `gic_states`'s, registers one
//! by one are `gic_registers`'s.
#![no_std]
#![no_main]

use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use test_guests::gic::{self, NONE, PRIORITY, Version, register};
use test_guests::mmio::{read8, read32, write32};
use test_guests::uart::{self, register as pl011};
use test_guests::{
    Machine, check, cpu, guest, psci, read_sysreg, report, say, timer, write_sysreg,
};

guest!(main, irq = on_interrupt, other_cpu = other);

/// TXIM of UARTIMSC (Arm DDI 0183).
const TRANSMIT: u32 = 1 << 5;
/// The SGIs with roles of their own, by their priorities in `order`: HIGH comes before LOW, and
/// LOWER behind it.
const LOW: u32 = 1;
const HIGH: u32 = 2;
const LOWER: u32 = 3;
/// Time to wait for an interrupt that must not come. Each check that nothing comes takes that long,
/// so that the time is short.
const PATIENCE_US: u64 = 200;
/// Latest arrival of an interrupt that must come, on a busy host.
const LATEST_US: u64 = 1_000_000;

/// Counts by INTID, of CPU 0 alone. 64 cover the private interrupts and the first SPIs, of which
/// the UART's is one.
static TAKEN: [AtomicU32; 64] = [const { AtomicU32::new(0) }; 64];
/// The INTIDs of the last interrupts, the newest in the lowest byte. Four arrivals fit, and the
/// tests look at three at most.
static ORDER: AtomicU32 = AtomicU32::new(0);
/// Whether the interrupt was active in the last handler.
static ACTIVE_IN_HANDLER: AtomicBool = AtomicBool::new(false);
/// The handler of `LOW` lets others in, after sending `HIGH` and `LOWER`. Other tests use the SGI
/// without a nest.
static NESTS: AtomicBool = AtomicBool::new(false);
/// Copy of `ORDER` from inside the handler: what has preempted it.
static NESTED: AtomicU32 = AtomicU32::new(0);
/// Set when CPU 1 has its interrupts enabled, as an SGI to a CPU that has not could be lost to the
/// test.
static OTHER_READY: AtomicBool = AtomicBool::new(false);
/// A bit for each SGI that CPU 1 took.
static OTHER_TOOK: AtomicU32 = AtomicU32::new(0);
/// Times that the handler has masked the UART. The mask is what lowers the line, and the only write
/// that the handler makes to the device.
static UART_MASK: AtomicU32 = AtomicU32::new(0);

/// From the simplest to what needs two CPUs: the first failure tells what does not work.
/// ICC_SRE_EL1 (S3_0_C12_C12_5) of 0 turns the System registers off where SRE can be written.
fn main(machine: &Machine) {
    identification();
    registers_keep();
    if matches!(machine.gic, Version::V3) {
        // G1-GIC-015. What follows needs the System registers.
        write_sysreg!("S3_0_C12_C12_5", 0);
        report::equal("icc-sre", read_sysreg!("S3_0_C12_C12_5"), 7);
    }
    sgis_to_self();
    timer_interrupt();
    if gic::can_disable_sgis() {
        enable_and_pend(LOW, "sgi");
    }
    enable_and_pend(machine.uart_intid, "spi");
    mask();
    order();
    nesting();
    two_step_end();
    uart_level(machine);
    if machine.cpus > 1 {
        other_cpu();
    } else {
        say!("one CPU: no SGI to others");
    }
}

/// Counts, and notes the order; each source is silenced, or a level would come for ever. In a nest
/// the inner handler runs before the outer one ends, and each notes its own arrival.
fn on_interrupt(intid: u32) {
    if cpu::index() != 0 {
        OTHER_TOOK.fetch_or(1 << intid, Ordering::Release);
        return;
    }
    TAKEN[intid as usize % 64].fetch_add(1, Ordering::Relaxed);
    let order = ORDER.load(Ordering::Relaxed);
    ORDER.store(order << 8 | intid, Ordering::Relaxed);
    ACTIVE_IN_HANDLER.store(gic::read_bit(register::ISACTIVER, intid), Ordering::Relaxed);
    if intid == timer::INTID {
        timer::disarm();
    } else if intid >= 32 {
        write32(uart::base() + pl011::IMSC, 0);
        UART_MASK.fetch_add(1, Ordering::Relaxed);
    } else if intid == LOW && NESTS.load(Ordering::Relaxed) {
        gic::send_sgi(0, LOWER);
        gic::send_sgi(0, HIGH);
        cpu::unmask_irqs();
        wait();
        cpu::mask_irqs();
        NESTED.store(ORDER.load(Ordering::Relaxed), Ordering::Relaxed);
    }
}

/// Waits as long as an interrupt that must not come is given to come. By the counter and not by a
/// timer, whose interrupt would count.
fn wait() {
    timer::delay_us(PATIENCE_US);
}

/// Waits until `condition` holds, but not for ever. The limit makes a failure of a lost interrupt,
/// where the test would hang otherwise.
fn wait_for(condition: impl Fn() -> bool) {
    let end = timer::now() + timer::from_us(LATEST_US);
    cpu::wait_until(|| condition() || timer::now() >= end);
}

/// Times that an interrupt came.
fn taken(intid: u32) -> u32 {
    TAKEN[intid as usize].load(Ordering::Relaxed)
}

/// Lets interrupts in for a while, and returns how often `intid` came. The return value counts all
/// arrivals: two of one edge are an error too.
fn let_in(intid: u32) -> u32 {
    let before = taken(intid);
    cpu::unmask_irqs();
    wait();
    cpu::mask_irqs();
    taken(intid) - before
}

/// Lets interrupts in until `intid` has come and a while longer, and returns how often it came. The
/// second part finds an interrupt that comes twice.
fn await_one(intid: u32) -> u32 {
    let before = taken(intid);
    cpu::unmask_irqs();
    wait_for(|| taken(intid) != before);
    cpu::mask_irqs();
    let_in(intid);
    taken(intid) - before
}

/// GICD_PIDR2.ArchRev; a guest sees one Security state (GICD_CTLR.DS reads 1 with GICv3). Without a
/// second Security state Group 1 is the guest's to configure. Linux reads ArchRev first, and takes
/// no controller of another revision (`gic_validate_dist_version`).
fn identification() {
    let (pidr2, revision, control, state) = match gic::version() {
        Version::V2 => (0xfe8, 2, 0x50, 0),
        Version::V3 => (0xffe8, 3, 0x50, 0x50),
    };
    let found = read32(gic::distributor() + pidr2) >> 4 & 0xf;
    report::equal("distributor-revision", found, revision);
    let found = read32(gic::distributor() + register::CTLR);
    report::equal("one-security-state", found & control, state);
    report::equal("nothing-pending", gic::acknowledge(), NONE);
}

/// GICR_ICFGR0 is read-only for SGIs, which are edges always. Private registers are in other frames
/// than those of shared interrupts, and are checked by an SGI and a PPI. Priorities are compared in
/// five bits, which a list register has at least.
fn registers_keep() {
    for intid in [LOW, timer::INTID] {
        gic::set_priority(intid, 0x58);
        let at = gic::frame(intid) + register::IPRIORITYR + u64::from(intid);
        report::equal("priority-kept", read8(at) & 0xf8, 0x58);
        gic::set_priority(intid, PRIORITY);
        if intid == LOW && !gic::can_disable_sgis() {
            continue;
        }
        gic::write_bit(register::ISENABLER, intid);
        let on = gic::read_bit(register::ICENABLER, intid);
        gic::disable(intid);
        report::equal(
            "enable-kept",
            (on, gic::read_bit(register::ISENABLER, intid)),
            (true, false),
        );
    }
    let sgis = read32(gic::frame(0) + register::ICFGR);
    report::equal("sgis-are-edges", sgis, 0xaaaa_aaaa);
}

/// Sixteen SGIs are there, active between acknowledge and end. The bit in GICD_ISACTIVER or
/// GICR_ISACTIVER0 is read in the handler, where alone it is set. Linux uses the first eight SGIs
/// for its IPIs; the rest is for secure firmware by custom, and must be there all the same.
fn sgis_to_self() {
    let all = (0..16).all(|intid| {
        gic::enable(intid);
        gic::send_sgi(0, intid);
        let once = await_one(intid) == 1;
        once && ACTIVE_IN_HANDLER.load(Ordering::Relaxed)
    });
    check!("sgi-self", all, "last {:#x}", ORDER.load(Ordering::Relaxed));
    check!(
        "inactive-after-end",
        !gic::read_bit(register::ISACTIVER, 15),
        "still active"
    );
}

/// PPI 27, the virtual timer's, as most firmware and Linux use it. The second interrupt shows that
/// the end of the first has deactivated the physical one as well, which is behind the virtual one.
/// An interrupt that stays active physically is never signalled again.
fn timer_interrupt() {
    gic::enable(timer::INTID);
    timer::arm(timer::now() + timer::from_us(20));
    report::equal("timer-once", await_one(timer::INTID), 1);
    timer::arm(timer::now() + timer::from_us(20));
    report::equal("timer-again", await_one(timer::INTID), 1);
    report::equal("timer-disarmed", let_in(timer::INTID), 0);
}

/// Pending and enabled are independent: an interrupt pends while disabled, and comes when it is
/// enabled (IHI 0069, "Interrupt handling state machine").
fn enable_and_pend(intid: u32, name: &str) {
    say!("enable and pend: {name}");
    gic::enable(intid);
    gic::disable(intid);
    gic::set_pending(intid, true);
    let pending = gic::read_bit(register::ISPENDR, intid);
    report::equal(
        "disabled-stays-pending",
        (let_in(intid), pending),
        (0, true),
    );
    gic::enable(intid);
    report::equal("enabled-comes", await_one(intid), 1);
    cleared_does_not_come(intid);
    gic::set_pending(intid, true);
    report::equal("set-pending-comes", await_one(intid), 1);
}

/// Checks that ICPENDR takes back what ISPENDR made pending while the interrupt was disabled. A
/// distributor that only notes the last write to ISPENDR would deliver it. The interrupt was in no
/// list register, as it was disabled, so that Gear1's memory alone has the state.
fn cleared_does_not_come(intid: u32) {
    gic::disable(intid);
    gic::set_pending(intid, true);
    gic::set_pending(intid, false);
    gic::enable(intid);
    let pending = gic::read_bit(register::ICPENDR, intid);
    report::equal(
        "cleared-does-not-come",
        (let_in(intid), pending),
        (0, false),
    );
}

/// ICC_PMR_EL1 lets only higher priorities through, which are lower numbers. An interrupt of the
/// mask's own priority is masked. GICC_HPPIR and ICC_HPPIR1_EL1 tell the interrupt without
/// acknowledging it.
fn mask() {
    gic::set_mask(PRIORITY);
    gic::send_sgi(0, LOW);
    report::equal("masked-priority-waits", let_in(LOW), 0);
    gic::set_mask(0xff);
    report::equal("highest-pending", gic::highest_pending(), LOW);
    report::equal("unmasked-priority-comes", await_one(LOW), 1);
}

/// Of several pending ones the highest priority is acknowledged first. All three are pending before
/// the CPU lets one in, and are in list registers in the order of their arrival. The CPU interface
/// chooses by priority, not by the register's number.
fn order() {
    gic::set_priority(HIGH, 0x40);
    gic::set_priority(LOWER, 0xc0);
    for intid in [LOWER, LOW, HIGH] {
        gic::send_sgi(0, intid);
    }
    let_in(LOW);
    let order = ORDER.load(Ordering::Relaxed) & 0xff_ffff;
    report::equal("order-of-priority", order, HIGH << 16 | LOW << 8 | LOWER);
}

/// A higher priority preempts an active one; a lower one waits for its end. The handler lets
/// interrupts in by itself; the lower one must wait until that handler has ended. The priorities
/// are those that `order` has set.
fn nesting() {
    NESTS.store(true, Ordering::Relaxed);
    gic::send_sgi(0, LOW);
    let_in(LOW);
    NESTS.store(false, Ordering::Relaxed);
    let inside = NESTED.load(Ordering::Relaxed) & 0xffff;
    report::equal("higher-priority-preempts", inside, LOW << 8 | HIGH);
    let after = ORDER.load(Ordering::Relaxed) & 0xff_ffff;
    report::equal("lower-priority-waits", after, LOW << 16 | HIGH << 8 | LOWER);
}

/// EOImode 1: EOIR drops the priority, DIR ends the interrupt. Between both writes the same SGI is
/// sent once more: it may not come while it is active. EOImode 1 is for hypervisors: Linux uses it
/// at EL2 to give an interrupt to a guest, who ends it.
fn two_step_end() {
    gic::set_two_step(true);
    gic::send_sgi(0, LOW);
    wait();
    let first = gic::acknowledge();
    gic::end(first);
    gic::send_sgi(0, LOW);
    wait();
    let while_active = gic::acknowledge();
    gic::deactivate(LOW);
    wait();
    let after = gic::acknowledge();
    gic::end(after);
    gic::deactivate(LOW);
    gic::set_two_step(false);
    report::equal(
        "two-step-end",
        (first, while_active, after),
        (LOW, NONE, LOW),
    );
}

/// The transmitter's interrupt is a level: it comes as often as it is unmasked. Nothing clears the
/// source but its mask, so the level is still there when it is unmasked. A level that Gear2 has
/// raised is held by Gear1 until the device lowers it, not until the guest acknowledges
/// (G1-GIC-005).
fn uart_level(machine: &Machine) {
    let intid = machine.uart_intid;
    gic::enable(intid);
    uart::send(b'\n');
    wait();
    let count = || {
        write32(machine.uart + pl011::IMSC, TRANSMIT);
        await_one(intid)
    };
    report::equal("uart-level", count(), 1);
    report::equal("uart-level-again", count(), 1);
    write32(machine.uart + pl011::IMSC, 0);
    report::equal("uart-masked", let_in(intid), 0);
}

/// SGIs reach the CPUs of their list, and with the filter bit all but the sender. Each SGI has a
/// number of its own, so that one that is delivered as another is seen.
fn other_cpu() {
    psci::cpu_on(1);
    cpu::wait_until(|| OTHER_READY.load(Ordering::Acquire));
    for intid in 0..16 {
        gic::send_sgi(1, intid);
        wait_for(|| OTHER_TOOK.load(Ordering::Acquire) >> intid & 1 != 0);
    }
    report::equal("sgi-other", OTHER_TOOK.swap(0, Ordering::Acquire), 0xffff);
    gic::send_sgi_to_others(LOW);
    wait_for(|| OTHER_TOOK.load(Ordering::Acquire) != 0);
    let others = OTHER_TOOK.load(Ordering::Acquire);
    report::equal("sgi-all-but-self", (others, let_in(LOW)), (1 << LOW, 0));
}

/// Takes SGIs for CPU 0 to look at. The CPU does not sleep, so that no wake-up is part of this
/// test; `wfi_smp` and `gic_smp` have those.
fn other(_index: usize) {
    for intid in 0..16 {
        gic::enable(intid);
    }
    OTHER_READY.store(true, Ordering::Release);
    cpu::unmask_irqs();
    loop {
        cpu::relax();
    }
}
