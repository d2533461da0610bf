//! Both timers of EL1 as Arm ARM D12.2 has them: registers, interrupts, waits, and the counts that
//! all vCPUs of a VM share. Runs with the vCPUs on two CPUs, and on one that another VM's vCPUs
//! share. Requirements: G1-TIM-001 to G1-TIM-008.
#![no_std]
#![no_main]

use core::arch::{asm, global_asm};
use core::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};

use test_guests::timer::{self, Kind};
use test_guests::{
    Machine, boot, check, cpu, exception, gic, guest, mmio, psci, read_sysreg, report, say,
    write_sysreg,
};

guest!(main, irq = on_interrupt, other_cpu = other);

/// Linux that boots at EL1 takes the virtual timer (`arch_timer_select_ppi`), so that no other
/// guest of the tests exercises the emulated one as much.
const KINDS: [Kind; 2] = [Kind::Virtual, Kind::Physical];
/// CNTx_CTL_EL0. Bit 0: the timer compares, and ISTATUS has a meaning.
const ENABLE: u64 = 1;
/// Bit 1: holds the line low, and not ISTATUS.
const IMASK: u64 = 2;
/// Bit 2, read-only: the condition of the timer is met.
const ISTATUS: u64 = 4;
/// Tolerated delay: QEMU's own CPUs share the host's. A timer that Gear1 forgets to watch wakes
/// nobody, and is later than any host makes it.
const LATE_US: u64 = 500_000;
/// Interrupts that a line gives which nobody lowers.
const REPEATS: u64 = 5;
/// Times that the two CPUs read the counts in turn. Each turn takes 1 ms at most, as both wait in
/// steps of 500 us.
const EXCHANGES: u64 = 200;
/// Waits of each test.
const SLEEPS: u64 = 100;
/// Long enough that the other VM of this CPU runs. The timers of the vCPU move from hardware to
/// Gear1's list meanwhile (`timer::watch_unloaded`), and back.
const REST_US: u64 = 20_000;

/// Interrupts taken of each kind, when the last one was, and after how many the timer goes off.
static TAKEN: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];
static LAST: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];
static STAYS: AtomicU64 = AtomicU64::new(0);
/// The last count that anybody read of each kind, and whose turn it is to read.
static COUNT: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];
/// One word for both CPUs, so that only one of them reads at a time.
static TURN: AtomicU64 = AtomicU64::new(0);
/// Counted and not reported at once, as only the boot CPU prints.
static BACKWARDS: AtomicU64 = AtomicU64::new(0);
/// Bounds of CPU 1's offset.
static OFFSET: [AtomicI64; 2] = [const { AtomicI64::new(0) }; 2];
/// The release of this flag makes both bounds visible to CPU 0.
static HAS_OFFSET: AtomicBool = AtomicBool::new(false);
/// CPU 1 computes, until CPU 0 has measured what that costs it.
static SPINS: AtomicBool = AtomicBool::new(true);
/// Sleeps of both CPUs that lasted for [`LATE_US`] or longer.
static LATE: AtomicU64 = AtomicU64::new(0);
/// CPU 0 judges [`LATE`] only when CPU 1 has counted its part.
static HAS_SLEPT: AtomicBool = AtomicBool::new(false);

/// Both timers are put to the same tests: the virtual one is the guest's untrapped, and the
/// physical one is emulated. CNTVOFF_EL2 is a register of each CPU, which every load of a vCPU
/// writes. One look at the offset is behind a rest and another one at the end, so that a load that
/// leaves the former VM's offset shows.
fn main(machine: &Machine) {
    counts(machine);
    // Meanwhile Gear1 loads other VMs on this CPU.
    sleep(Kind::Physical, REST_US);
    same_offset("offset-stays", boot::first_offset());
    for kind in KINDS {
        say!("{kind:?} timer");
        registers(kind);
        status(kind);
        interrupts(kind);
        waits(kind);
    }
    at_el0();
    same_offset("offset-stays", boot::first_offset());
    if machine.cpus < 2 {
        report::fail("timers", format_args!("needs two CPUs"));
        return;
    }
    beside_another(machine);
}

/// Checks the time that two CPUs see of each other, and their waits at once. The second vCPU keeps
/// the count or the CPU for itself, by the manifest. CPU 1 computes while stolen time is measured,
/// since a vCPU that waits takes no time from another.
fn beside_another(machine: &Machine) {
    report::equal("cpu-on", psci::cpu_on(1), psci::result::SUCCESS);
    exchange(0);
    let backwards = BACKWARDS.load(Ordering::Relaxed);
    check!("monotonic", backwards == 0, "{backwards} counts went back");
    one_offset();
    if machine.gearv {
        stolen_time(machine);
    }
    SPINS.store(false, Ordering::Release);
    sleeps();
    wait_in_wfi(|| HAS_SLEPT.load(Ordering::Acquire));
    let late = LATE.load(Ordering::Relaxed);
    check!("sleeps", late == 0, "{late} sleeps took too long");
}

/// CPU 1's half of each test of two. CPU 1 measures the offset by itself, as its CPU has a
/// CNTVOFF_EL2 of its own.
fn other(_index: usize) {
    exchange(1);
    let [low, high] = offset();
    OFFSET[0].store(low, Ordering::Relaxed);
    OFFSET[1].store(high, Ordering::Relaxed);
    HAS_OFFSET.store(true, Ordering::Release);
    // Keeps the CPU, if it is shared, from the one that measures.
    while SPINS.load(Ordering::Acquire) {
        cpu::relax();
    }
    sleeps();
    HAS_SLEPT.store(true, Ordering::Release);
}

/// The timer is turned off only after as many interrupts as the test wants. CTL = 0 lowers the line
/// before the end of the interrupt: of a level that stays high, the end makes the next one pending.
fn on_interrupt(intid: u32) {
    for kind in KINDS {
        if kind.intid() == intid {
            let taken = TAKEN[kind as usize].fetch_add(1, Ordering::Relaxed) + 1;
            LAST[kind as usize].store(kind.now(), Ordering::Relaxed);
            if taken >= STAYS.load(Ordering::Relaxed) {
                kind.set_control(0);
            }
        }
    }
}

/// The virtual count is the physical one since the VM's start (G1-TIM-005). CNTVOFF_EL2 is the
/// difference, which EL1 cannot read. An offset of 0 would be a VM that sees the machine's age. The
/// virtual count is below a minute, as the VM has just been started.
fn counts(machine: &Machine) {
    let [low, high] = offset();
    check!("one-offset", low <= high, "{low} to {high}");
    if machine.gearv {
        check!("offset", low > 0, "the VM started with the machine");
        let since = timer::now();
        check!(
            "from-start",
            since < timer::from_us(60_000_000),
            "{since} ticks after it"
        );
    }
}

/// Returns bounds of what the virtual count lags behind the physical one. The two counts cannot be
/// read at once, so the bounds are taken from many tries. The ISB before each read (`Kind::now`)
/// keeps the three reads in order, since the counters may be read ahead of time (Arm ARM D12.2).
fn offset() -> [i64; 2] {
    let mut best = [i64::MIN, i64::MAX];
    for _ in 0..100 {
        let before = Kind::Virtual.now();
        let physical = Kind::Physical.now();
        let after = Kind::Virtual.now();
        best[0] = best[0].max(physical.wrapping_sub(after) as i64);
        best[1] = best[1].min(physical.wrapping_sub(before) as i64);
    }
    best
}

/// CVAL, TVAL and what the one makes of the other (G1-TIM-002). CVAL has 64 bits; CTL keeps two and
/// shows a third. The distances are the ends of the signed range (0x7fff_ffff and 0x8000_0000) and
/// one tick ago (0xffff_ffff). Of those to CVAL, one needs 34 bits and one is past.
fn registers(kind: Kind) {
    kind.set_control(0);
    kind.set_compare(0x0123_4567_89ab_cdef);
    report::equal("cval", kind.compare(), 0x0123_4567_89ab_cdef);
    for value in [1_000_000_u64, 0x7fff_ffff, 0xffff_ffff, 0x8000_0000] {
        value_sets_compare(kind, value);
    }
    kind.set_control(ENABLE | IMASK);
    for ahead in [1_u64 << 20, 1 << 33, 0_u64.wrapping_sub(1 << 20)] {
        value_of_compare(kind, ahead);
    }
    kind.set_control(!0);
    report::equal("control-bits", kind.control() & !ISTATUS, ENABLE | IMASK);
    kind.set_control(0);
}

/// TVAL is signed: CVAL is as far from the count. The Arm ARM sign-extends TVAL from 32 bits. Bits
/// 63:32 of what is written are ignored, which the pattern in the upper half checks.
fn value_sets_compare(kind: Kind, value: u64) {
    let distance = value as u32 as i32 as i64 as u64;
    let before = kind.now();
    kind.set_value(value | 0xdead_0000_0000_0000);
    let after = kind.now();
    let set = kind.compare().wrapping_sub(distance);
    check!(
        "tval-sets-cval",
        (before..=after).contains(&set),
        "{value:#x}: {set} is not from {before} to {after}"
    );
}

/// TVAL is the low half of what remains to CVAL. The upper half reads as zero, whatever the
/// distance. The timer is enabled, and masked: with ENABLE at 0 the value of TVAL is UNKNOWN.
fn value_of_compare(kind: Kind, ahead: u64) {
    let compare = kind.now().wrapping_add(ahead);
    kind.set_compare(compare);
    let before = kind.now();
    let value = kind.value();
    let after = kind.now();
    let elapsed = (compare.wrapping_sub(before) as u32).wrapping_sub(value as u32);
    check!(
        "tval",
        value >> 32 == 0 && u64::from(elapsed) <= after - before,
        "{value:#x} with {ahead:#x} to go"
    );
}

/// ISTATUS and the line, which IMASK holds down (G1-TIM-002, G1-TIM-003). A level: whatever ends
/// the condition ends the interrupt's pending state, too. ISTATUS is compared with ENABLE at 1
/// only, since it is UNKNOWN otherwise.
fn status(kind: Kind) {
    let (far, past) = (kind.now() + timer::from_us(60_000_000), kind.now());
    report::equal("not-due", set(kind, far, ENABLE), ENABLE);
    check!("not-pending", !is_pending(kind), "the line is high");
    let masked = set(kind, past, ENABLE | IMASK);
    report::equal("due-masked", masked, ENABLE | IMASK | ISTATUS);
    check!("masked-not-pending", !is_pending(kind), "the line is high");
    report::equal("due-at-once", set(kind, 0, ENABLE), ENABLE | ISTATUS);
    // The timer's interrupt is disabled in the GIC, and becomes pending all the same.
    cpu::wait_until(|| is_pending(kind));
    kind.set_control(ENABLE | IMASK);
    check!("mask-lowers", !is_pending(kind), "the line is high");
    kind.set_control(ENABLE);
    cpu::wait_until(|| is_pending(kind));
    kind.set_value(1 << 30);
    check!("tval-lowers", !is_pending(kind), "the line is high");
    report::equal("never", set(kind, u64::MAX, ENABLE), ENABLE);
    becomes_due(kind);
}

/// Sets CVAL and CTL, and returns what CTL reads then. CTL is read at once, which an emulation has
/// to follow. An access to CNTP registers is an exit, and one to CNTV registers none.
fn set(kind: Kind, compare: u64, control: u64) -> u64 {
    kind.set_compare(compare);
    kind.set_control(control);
    kind.control()
}

/// ISTATUS is set at the compare value, not one tick before. No write comes in between. An
/// emulation that computes ISTATUS at writes alone would never show it here.
fn becomes_due(kind: Kind) {
    let soon = kind.now() + timer::from_us(1000);
    report::equal("due-soon", set(kind, soon, ENABLE) & ENABLE, ENABLE);
    cpu::wait_until(|| kind.control() == ENABLE | ISTATUS);
    check!("not-early", kind.now() >= soon, "before its time");
    cpu::wait_until(|| is_pending(kind));
    kind.set_control(0);
    check!("off-not-pending", !is_pending(kind), "the line is high");
}

/// Tells whether the timer's line is high or latched. GICD_ISPENDR shows the line of a
/// level-sensitive interrupt, enabled or not. Gear1 looks at the hardware's virtual timer for such
/// a read (`vgic::sample_timer`), and has the level of the physical one in its own memory
/// (`VmGic::set_line`).
fn is_pending(kind: Kind) -> bool {
    gic::read_bit(gic::register::ISPENDR, kind.intid())
}

/// Checks that interrupts come while the timer is due, and at no other time (G1-TIM-003). The GIC
/// delivers; the timer alone decides when.
fn interrupts(kind: Kind) {
    gic::enable(kind.intid());
    cpu::unmask_irqs();
    masked_then_unmasked(kind);
    in_time(kind);
    comes_again(kind);
    turned_off(kind);
    cpu::mask_irqs();
}

/// Returns the number of interrupts taken of a kind since [`begin`].
fn taken(kind: Kind) -> u64 {
    TAKEN[kind as usize].load(Ordering::Relaxed)
}

/// Counts interrupts from 0 on, the timer going off after `stays` of them.
fn begin(kind: Kind, stays: u64) {
    TAKEN[kind as usize].store(0, Ordering::Relaxed);
    STAYS.store(stays, Ordering::Relaxed);
}

/// IMASK is what Linux uses to silence a timer that stays due. Its handler sets IMASK before all
/// else (`timer_handler`). The compare value is past when IMASK goes, so no expiry follows: the
/// write itself has to raise the line.
fn masked_then_unmasked(kind: Kind) {
    begin(kind, 0);
    kind.set_compare(kind.now());
    kind.set_control(ENABLE | IMASK);
    timer::delay_us(2000);
    report::equal("masked-is-silent", taken(kind), 0);
    kind.set_control(ENABLE);
    cpu::wait_until(|| taken(kind) != 0);
    report::equal("unmasked-comes", taken(kind), 1);
}

/// The lower bound is exact, and the upper one is the host's affair. An interrupt that is early
/// makes the difference wrap, which is beyond the upper bound.
fn in_time(kind: Kind) {
    begin(kind, 0);
    let deadline = kind.now() + timer::from_us(2000);
    kind.set_compare(deadline);
    kind.set_control(ENABLE);
    cpu::wait_until(|| taken(kind) != 0);
    let last = LAST[kind as usize].load(Ordering::Relaxed);
    let late = last.wrapping_sub(deadline);
    let is_soon = late < timer::from_us(LATE_US);
    check!("in-time", is_soon, "{} ticks late", late as i64);
}

/// The line is still high after the end of the interrupt, which comes again. A level that nobody
/// lowered: the end of an interrupt makes the next one pending. Behind the virtual timer stands a
/// physical interrupt. The guest's end deactivates it as well, and the machine's GIC signals the
/// high line once more.
fn comes_again(kind: Kind) {
    begin(kind, REPEATS);
    kind.set_compare(0);
    kind.set_control(ENABLE);
    cpu::wait_until(|| {
        stir(kind);
        taken(kind) >= REPEATS
    });
    Kind::Physical.set_control(0);
    timer::delay_us(2000);
    report::equal("comes-again", taken(kind), REPEATS);
}

/// Turned off in time, the interrupt does not come at its time either. The condition went before the
/// line rose. A line that rises with ENABLE, whatever CVAL holds, fails here, and a deadline that
/// Gear1 keeps. Where the host paused the vCPU until the deadline, the test begins again.
fn turned_off(kind: Kind) {
    loop {
        begin(kind, 0);
        kind.set_value(timer::from_us(1000));
        kind.set_control(ENABLE);
        kind.set_control(0);
        if kind.now() < kind.compare() {
            break;
        }
    }
    timer::delay_us(2000);
    report::equal("turned-off", taken(kind), 0);
}

/// Makes an interrupt go to EL2: QEMU's GICv2 looks at a line that stayed high when the virtual
/// interrupt behind it ended only once some other physical interrupt comes.
fn stir(kind: Kind) {
    if kind == Kind::Virtual && Kind::Physical.control() != ENABLE {
        // The physical timer's interrupt is not enabled yet.
        Kind::Physical.set_value(timer::from_us(100));
        Kind::Physical.set_control(ENABLE);
    }
}

/// WFI with the interrupt masked at the CPU, as operating systems idle (G1-TIM-004). WFI ends by a
/// pending interrupt, whatever PSTATE.I is (Arm ARM, "Wait for Interrupt"). The shortest waits are
/// over before the WFI, which the pending interrupt then ends at once. A timer that expires between
/// Gear1's look for pending interrupts and the vCPU's sleep must not get lost.
fn waits(kind: Kind) {
    let mut latest = 0;
    for round in 0..SLEEPS {
        latest = latest.max(sleep(kind, 1 + round * 37 % 1000));
    }
    check!(
        "wfi",
        latest < timer::from_us(LATE_US),
        "{latest} ticks late"
    );
}

/// Sleeps, and returns how many ticks too long. The interrupt is acknowledged and ended afterwards,
/// so that the next wait begins without one. The loop is needed: WFI may end early for any reason
/// (Arm ARM), and Gear1 wakes a vCPU up to 0.4 us before its timer is due (G1-TIM-004).
fn sleep(kind: Kind, us: u64) -> u64 {
    gic::enable(kind.intid());
    let deadline = kind.now() + timer::from_us(us);
    kind.set_compare(deadline);
    kind.set_control(ENABLE);
    while kind.now() < deadline {
        cpu::wfi();
    }
    let late = kind.now() - deadline;
    kind.set_control(0);
    let intid = gic::acknowledge();
    if gic::is_real(intid) {
        gic::end(intid);
    }
    late
}

/// Both CPUs sleep on both timers, for times that drift against each other: where they share a CPU,
/// the timer of one goes off while the other one is loaded (G1-TIM-004). The unloaded vCPU has both
/// timers in Gear1's list then, of which the nearer one must wake it.
fn sleeps() {
    let me = cpu::index() as u64;
    for round in 0..SLEEPS {
        let kind = KINDS[(round + me) as usize % 2];
        if sleep(kind, 100 + round * (37 + 4 * me) % 900) >= timer::from_us(LATE_US) {
            LATE.fetch_add(1, Ordering::Relaxed);
        }
        timer::delay_us(500);
    }
}

/// Each reads both counts in turn: none is below what the other one read before (G1-TIM-001). The
/// system counter is one for all CPUs, and so are its virtual counts within a VM. A vCPU with an
/// offset of its own reads a lower count than the other one, or makes the other one do so.
fn exchange(me: u64) {
    for round in 0..EXCHANGES {
        wait_in_wfi(|| TURN.load(Ordering::Acquire) == 2 * round + me);
        for kind in KINDS {
            let count = kind.now();
            if count < COUNT[kind as usize].swap(count, Ordering::AcqRel) {
                BACKWARDS.fetch_add(1, Ordering::Relaxed);
            }
        }
        TURN.store(2 * round + me + 1, Ordering::Release);
    }
}

/// Waits in WFI, which lets the other one run where both share a CPU, and for long enough that it
/// gets on: QEMU's time passes also while it does not execute.
fn wait_in_wfi(condition: impl Fn() -> bool) {
    while !condition() {
        timer::sleep_us(500);
    }
}

/// Both vCPUs have the same offset (G1-TIM-005). Linux takes the time on whichever CPU a task runs.
/// With another offset there, time goes back for a task that migrates.
fn one_offset() {
    wait_in_wfi(|| HAS_OFFSET.load(Ordering::Acquire));
    let other = [0, 1].map(|bound: usize| OFFSET[bound].load(Ordering::Relaxed));
    same_offset("same-offset", other);
}

/// The offset is one within these bounds. Bounds overlap if one value is in both; equality is too
/// much to ask of counts read one after the other.
fn same_offset(name: &str, [least, most]: [i64; 2]) {
    let [low, high] = offset();
    check!(
        name,
        low <= most && least <= high,
        "{low} to {high}, not {least} to {most}"
    );
}

/// Stolen time as Arm DEN 0057 has it (G1-TIM-007): found by discovery, not writable, never less
/// than before, and as much as a second vCPU takes where both share a CPU. The structure has 64
/// bytes and is in a page of Gear1's, which stage 2 maps read-only: a guest that wrote there would
/// change what its other vCPUs read.
fn stolen_time(machine: &Machine) {
    let place = find_stolen_time();
    let is_outside = place.is_multiple_of(64) && !machine.ram.contains(&place);
    check!("stolen-time-place", is_outside, "{place:#x}");
    report::equal("stolen-time-revision", mmio::read64(place), 0);
    let caught = exception::catch(|| mmio::write64(place + 8, 0));
    let class = caught.map(|caught| caught.class());
    let aborts = Some(exception::esr::EC_DATA_ABORT);
    report::equal("stolen-time-read-only", class, aborts);
    let stolen = || mmio::read64(place + 8);
    let (before, begin) = (stolen(), timer::now());
    while timer::now() < begin + timer::from_us(100_000) {
        cpu::relax();
    }
    let (lost, all) = (stolen() - before, timer::to_ns(timer::now() - begin));
    say!("lost {lost} of {all} ns");
    check!("stolen-time", lost <= all, "{lost} of {all} ns");
    // On a shared CPU, the other guest has about half of the time.
    if lost > all / 10 {
        say!("the other vCPU took its time");
    }
}

/// Discovers stolen time, and returns the address of its structure. The order is DEN 0057's:
/// SMCCC_ARCH_FEATURES first. Linux asks in the same order (`has_pv_steal_clock`), and takes an
/// answer below 0 as absence.
fn find_stolen_time() -> u64 {
    let call = |function: u32, of: u32| psci::hvc(function, [of.into(), 0, 0])[0];
    let found = [
        call(psci::function::ARCH_FEATURES, psci::time::FEATURES),
        call(psci::time::FEATURES, psci::time::FEATURES),
        call(psci::time::FEATURES, psci::time::STOLEN),
    ];
    report::equal("stolen-time-found", found, [0; 3]);
    call(psci::time::STOLEN, 0)
}

global_asm!(
    r#"
    .section .text.el0, "ax"
    .balign 2048
el0_vectors:
    .space  0x400
    mrs     x0, esr_el1                 // synchronous, from EL0
    msr     vbar_el1, x10
    isb
    ret

    // In: x0 = code, which ends with SVC and uses x1 only. Returns ESR_EL1. Clobbers x10, x11.
    .global el0_call
el0_call:
    mrs     x10, vbar_el1
    adrp    x11, el0_vectors
    add     x11, x11, :lo12:el0_vectors
    msr     vbar_el1, x11
    msr     elr_el1, x0
    mov     x11, #0x3c0                 // EL0, everything masked
    msr     spsr_el1, x11
    isb
    eret

    .global el0_probes
el0_probes:
    .irp register, cntpct_el0, cntvct_el0, cntv_ctl_el0, cntv_cval_el0, cntv_tval_el0, cntp_ctl_el0, cntp_cval_el0, cntp_tval_el0
    mrs     x1, \register
    svc     #0
    .endr
    msr     cntv_ctl_el0, xzr
    svc     #0
    msr     cntp_ctl_el0, xzr
    svc     #0
    "#
);

unsafe extern "C" {
    static el0_probes: [[u32; 2]; PROBES];
}

/// Reads of eight registers, and writes of two.
const PROBES: usize = 10;
/// CNTKCTL_EL1 with EL0PCTEN, EL0VCTEN, EL0VTEN, EL0PTEN, and the probes that it opens. Bits of
/// CNTKCTL_EL1: EL0PCTEN 0, EL0VCTEN 1, EL0VTEN 8, EL0PTEN 9. Each bit alone comes first, so that
/// two bits in each other's place show.
const OPENS: [(u64, u32); 6] = [
    (0, 0),
    (1, 0b1),
    (1 << 1, 0b10),
    (1 << 8, 0b01_0001_1100),
    (1 << 9, 0b10_1110_0000),
    (1 << 9 | 1 << 8 | 3, 0b11_1111_1111),
];
/// Trapped MSR or MRS. The exception goes to EL1, as HCR_EL2.TGE is 0, and costs no exit
/// (G1-TIM-006).
const EC_SYSREG: u64 = 0x18;
/// The probe's own end: the access was allowed.
const EC_SVC: u64 = 0x15;

/// Checks that CNTKCTL_EL1 controls EL0's accesses, whichever guests ran since it was written, and
/// that EL1 gets the traps (G1-TIM-006). Linux opens the virtual count to EL0 by EL0VCTEN, for its
/// vDSO. A CNTKCTL_EL1 of another VM would open timers to the processes of this one, or take the
/// count from them.
fn at_el0() {
    for (access, opened) in OPENS {
        write_sysreg!("cntkctl_el1", access);
        timer::sleep_us(REST_US / 100);
        report::equal("cntkctl", read_sysreg!("cntkctl_el1"), access);
        // With stage 1 off, EL0 may execute what EL1 may.
        let classes = cpu::without_mmu(|| {
            let mut classes = [0; PROBES];
            for (class, probe) in classes.iter_mut().zip(0..) {
                *class = el0_call(probe) >> 26;
            }
            classes
        });
        write_sysreg!("cntkctl_el1", 0);
        let expected = |probe: usize| {
            let open = opened >> probe & 1 != 0;
            if open { EC_SVC } else { EC_SYSREG }
        };
        let wrong = (0..PROBES).find(|&probe| classes[probe] != expected(probe));
        check!(
            "el0",
            wrong.is_none(),
            "{access:#x}: probe {wrong:?}: {classes:x?}"
        );
    }
}

/// Runs a probe at EL0 and returns ESR_EL1.
fn el0_call(probe: u64) -> u64 {
    let mut x0 = (&raw const el0_probes).addr() as u64 + 8 * probe;
    // SAFETY: what runs at EL0 reads or writes one timer register, and uses the registers given.
    unsafe {
        asm!(
            "bl el0_call",
            inout("x0") x0, out("x1") _, out("x10") _, out("x11") _, out("x30") _,
        );
    }
    x0
}
