//! Takes a breakpoint, a watchpoint and single steps, counts cycles and instructions, and takes the
//! PMU's interrupt; then keeps its registers while others run, who see none of it (`bystander`).
//!
//! Requirements: G1-CPU-007, G1-CPU-008.
#![no_std]
#![no_main]

use core::arch::asm;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use gear1_abi::exit::ExitReason;
use test_guests::gic::{self, register};
use test_guests::monitors::{
    BCR_EL1, BREAKPOINT, KDE_MDE, PMU_INTID, STEP, WATCHPOINT, WCR_EL1, spin, watch,
};
use test_guests::{
    Machine, check, cpu, guest, psci, read_sysreg, report, stats, step, timer, write_sysreg,
};

guest!(main, irq = irq);

/// PMCR_EL0: E, P, C and LC. LC makes PMCCNTR_EL0 overflow at 64 bits, where PMOVSSET_EL0 shows bit
/// 63's carry and not that of bit 31.
const START: u64 = 1 | 1 << 1 | 1 << 2 | 1 << 6;
/// The cycle counter's bit in the registers with a bit for each counter.
const CYCLES: u64 = 1 << 31;
/// Events. Event 0x00, counted by writes of PMSWINC_EL0. Each write counts one, on whatever core.
const SW_INCR: u64 = 0;
/// Event 0x08.
const INST_RETIRED: u64 = 8;
/// PMEVTYPER: counts at EL2. The guest asks for what it must not get: Gear1 clears the bit
/// (`TYPE_GUEST`), since Armv8.0 has no other means to keep a counter from counting in EL2.
const NSH: u64 = 1 << 27;
/// Long enough that others run meanwhile.
const ROUNDS: u64 = 3_000_000;
/// Instructions of a wait for an interrupt. Many times the distance to the overflow
/// ([`near_overflow`]).
const OWN: u64 = 10_000;
/// Pauses in which others get the CPU. Each sleep unloads the vCPU, if the CPU is shared, and moves
/// all of its monitors.
const SLEEPS: u64 = 20;

/// The PMU's interrupts since the last check, which takes the number away.
static INTERRUPTS: AtomicU64 = AtomicU64::new(0);
/// Number of coming interrupts whose handler leaves the PMU's line high.
static LEFT_HIGH: AtomicU64 = AtomicU64::new(0);

/// The OS lock is set at reset (Arm ARM, OSLAR_EL1), and keeps debug exceptions away. Linux clears
/// the lock on each CPU that comes up (`clear_os_lock`). The counts of exits show that exceptions
/// and counting cost none (G1-CPU-008): in a VM with pass-through the registers do not trap either.
fn main(machine: &Machine) {
    write_sysreg!("oslar_el1", 0);
    report::equal("os-unlocked", read_sysreg!("oslsr_el1") & 2, 0);
    write_sysreg!("mdscr_el1", KDE_MDE);
    // A real-time VM with pass-through: no Gear2, nobody else, and the registers themselves.
    let alone = machine.option("alone") == Some(1);
    let exits = || {
        if alone {
            stats::exits(ExitReason::Sysreg)
        } else {
            0
        }
    };
    let before = exits();
    breakpoint();
    watchpoint();
    report::equal("no-exits-for-debug", exits(), before);
    steps(machine, alone);
    pmu(alone);
    let before = exits();
    overflow();
    report::equal("no-exits-for-the-pmu", exits(), before);
    if !alone {
        held(machine);
    }
}

/// The overflow flag is the line: cleared, the interrupt is over. Linux clears PMOVSCLR_EL0 in its
/// handler for the same reason (`armv8pmu_getreset_flags`).
fn irq(intid: u32) {
    if intid == timer::INTID {
        timer::disarm();
    }
    if intid != PMU_INTID {
        return;
    }
    INTERRUPTS.fetch_add(1, Relaxed);
    if LEFT_HIGH.load(Relaxed) == 0 {
        write_sysreg!("pmovsclr_el0", CYCLES);
    } else {
        LEFT_HIGH.fetch_sub(1, Relaxed);
    }
}

#[inline(never)]
extern "C" fn target() {
    // SAFETY: does nothing, at an address of its own.
    unsafe { asm!("nop", "nop") };
}

/// A hardware breakpoint, whose handler steps out of it. Software steps over it with PSTATE.SS, as
/// every debugger does. A breakpoint's return address is the instruction itself: without the step,
/// ERET would take the breakpoint for ever. Linux disables it for one step as well
/// (`breakpoint_handler`).
fn breakpoint() {
    let address = target as *const () as u64;
    let arm = || {
        write_sysreg!("dbgbvr0_el1", address);
        write_sysreg!("dbgbcr0_el1", BCR_EL1);
    };
    arm();
    let seen = watch(false, target_again);
    let hit = (seen.count, seen.first);
    report::equal("breakpoint", hit, (1, (BREAKPOINT, address)));
    arm();
    let seen = watch(true, target_again);
    let expected = (2, (BREAKPOINT, address), (STEP, address + 4));
    let stepped = (seen.count, seen.first, seen.second);
    report::equal("step-out-of-a-breakpoint", stepped, expected);
    let seen = watch(false, target_again);
    report::equal("no-breakpoint", seen.count, 0);
}

/// `inline(never)` gives the breakpoint an address that is executed once a call. The compiler
/// cannot see that the function does nothing. Without `black_box` the call would be inlined, and
/// the breakpoint's address never executed.
fn target_again() {
    core::hint::black_box(target as extern "C" fn())();
}

/// A watchpoint on the second of two words. BAS selects the bytes of a doubleword. The load of the
/// neighbour finds a BAS that was lost on its way to the register; the second value shows that the
/// store was made after the exception.
fn watchpoint() {
    static WORDS: [AtomicU64; 2] = [const { AtomicU64::new(7) }; 2];
    write_sysreg!("dbgwvr0_el1", WORDS[1].as_ptr() as u64);
    write_sysreg!("dbgwcr0_el1", WCR_EL1 | 0xff << 5);
    let seen = watch(false, || _ = WORDS[0].load(Relaxed));
    report::equal("no-watchpoint", seen.count, 0);
    let seen = watch(false, || WORDS[1].store(8, Relaxed));
    report::equal("watchpoint", (seen.count, seen.first.0), (1, WATCHPOINT));
    report::equal("watchpoint-goes-on", WORDS[1].load(Relaxed), 8);
}

/// Single steps: over an instruction that runs, and over those that a hypervisor emulates. An
/// instruction that a hypervisor emulates must leave the step's state as hardware would: one
/// exception, behind the instruction. Gear1 clears SPSR_EL2.SS where it skips an instruction
/// (G1-CPU-009), as KVM does (`kvm_skip_instr`). With SS left at 1, the step would be that of the
/// instruction behind. Each case is another way through Gear1, and the device's leads through
/// Gear2.
fn steps(machine: &Machine, alone: bool) {
    let one = |name, (seen, behind): (test_guests::monitors::Seen, u64)| {
        report::equal(name, (seen.count, seen.first), (1, (STEP, behind)));
    };
    one("step", step!("nop", 0));
    one(
        "step-over-an-id-register",
        step!("mrs x1, id_aa64mmfr0_el1", 0),
    );
    let typer = gic::distributor() + register::TYPER;
    one("step-over-the-distributor", step!("ldr w1, [x1]", typer));
    if machine.gearv {
        one("step-over-a-call", step!("hvc #0", 0));
    }
    if machine.gearv && !alone {
        let flags = test_guests::uart::base() + 0x18;
        one("step-over-a-device", step!("ldr w1, [x1]", flags));
    }
}

/// PMCR_EL0.N counters are there, of which a guest needs two here. Fields: PMUVer in
/// `ID_AA64DFR0_EL1[11:8]`, N in `PMCR_EL0[15:11]`. QEMU announces INST_RETIRED only where it
/// counts instructions (`icount`).
fn pmu(alone: bool) {
    let version = read_sysreg!("id_aa64dfr0_el1") >> 8 & 0xf;
    let counters = read_sysreg!("pmcr_el0") >> 11 & 31;
    let is_there = (1..15).contains(&version) && counters >= 2;
    check!("pmu-is-there", is_there, "{version}, {counters}");
    counts();
    sets();
    if read_sysreg!("pmceid0_el0") >> INST_RETIRED & 1 != 0 {
        instructions(alone);
    }
}

/// Cycles and software increments are counted; the selected counter is the one of that number.
/// PMXEVCNTR_EL0 and PMXEVTYPER_EL0 access the counter that PMSELR_EL0 names. Gear1 resolves the
/// selection in software, as each access traps. An increment that is written twice counts twice.
fn counts() {
    write_sysreg!("pmccfiltr_el0", 0);
    write_sysreg!("pmevtyper0_el0", INST_RETIRED | NSH);
    write_sysreg!("pmevtyper1_el0", SW_INCR);
    write_sysreg!("pmcr_el0", START);
    write_sysreg!("pmcntenset_el0", CYCLES | 3);
    let before = read_sysreg!("pmccntr_el0");
    spin(1000);
    let cycles = read_sysreg!("pmccntr_el0") - before;
    check!("cycles", cycles > 0, "{cycles}");
    write_sysreg!("pmswinc_el0", 2);
    write_sysreg!("pmswinc_el0", 2);
    report::equal("software-increments", read_sysreg!("pmevcntr1_el0"), 2);
    write_sysreg!("pmselr_el0", 1);
    report::equal("selected-counter", read_sysreg!("pmxevcntr_el0"), 2);
    report::equal("selected-type", read_sysreg!("pmxevtyper_el0"), SW_INCR);
    report::equal("selected", read_sysreg!("pmselr_el0") & 31, 1);
}

/// Checks that both registers of a pair read the same bits. A register of a pair that is emulated
/// as write-only shows.
macro_rules! both_read {
    ($name:literal, $set:literal, $clear:literal, $bits:expr) => {
        let seen = (read_sysreg!($set), read_sysreg!($clear));
        report::equal($name, seen, ($bits, $bits));
    };
}

/// The two registers of a pair set and clear the same bits, and both read them. Each pair is one
/// register with two ways to write. A read that returned what was written last, not the register's
/// state, would show in the other half.
fn sets() {
    write_sysreg!("pmcntenclr_el0", 2);
    let enabled = CYCLES | 1;
    both_read!("enabled", "pmcntenset_el0", "pmcntenclr_el0", enabled);
    write_sysreg!("pmcntenset_el0", 2);
    write_sysreg!("pmovsset_el0", 2);
    both_read!("overflowed", "pmovsset_el0", "pmovsclr_el0", 2);
    write_sysreg!("pmovsclr_el0", 2);
    report::equal("overflowed-no-more", read_sysreg!("pmovsset_el0"), 0);
    write_sysreg!("pmintenset_el1", 2);
    both_read!("interrupting", "pmintenset_el1", "pmintenclr_el1", 2);
    write_sysreg!("pmintenclr_el1", 2);
    report::equal("interrupting-no-more", read_sysreg!("pmintenset_el1"), 0);
}

/// Called twice, so that the cost of reading falls out.
#[inline(never)]
/// The counter has 32 bits and wraps, hence the subtraction without overflow.
fn counted(rounds: u64) -> u32 {
    let before = read_sysreg!("pmevcntr0_el0") as u32;
    spin(rounds);
    (read_sysreg!("pmevcntr0_el0") as u32).wrapping_sub(before)
}

/// The guest's own instructions are counted, and nobody else's. With NSH clear, what EL2 executes
/// for the guest does not count. A time slice of another VM falls into the long loop: counters that
/// run on then would count its instructions. The doubled number of calls cancels what the
/// measurement itself costs.
fn instructions(alone: bool) {
    let short = counted(1000);
    report::equal("instructions", counted(2000) - short, 2000);
    let long = counted(ROUNDS + 1000) - short;
    report::equal("instructions-of-slices", long, 2 * ROUNDS as u32);
    if alone {
        return;
    }
    let called = |calls: u64| {
        let before = read_sysreg!("pmevcntr0_el0") as u32;
        (0..calls).for_each(|_| _ = psci::gear2_nop());
        (read_sysreg!("pmevcntr0_el0") as u32).wrapping_sub(before)
    };
    let (one, two) = (called(100), called(200));
    // Gear2's share of a call is some hundred instructions.
    let own_only = two - one < 100 * 60;
    check!("instructions-of-calls", own_only, "{one}, {two}");
}

/// Lets the VM's own time pass, whichever VMs run meanwhile. The timer helps QEMU, whose GICv2
/// checks a line after the end of its interrupt in a list register only at the next change of any
/// line.
fn own_time() {
    for _ in 0..5 {
        timer::arm(timer::now() + timer::from_us(5));
        spin(OWN);
    }
}

/// The interrupt comes as long as the line is high, and no longer. The PMU's interrupt is a level.
/// Two handlers leave the line high and the third one clears it, which makes three interrupts. The
/// list register has HW set as the timer's has, so the end of each signals the high line anew.
fn overflow() {
    gic::enable(PMU_INTID);
    gic::enable(timer::INTID);
    cpu::unmask_irqs();
    write_sysreg!("pmintenset_el1", CYCLES);
    near_overflow();
    own_time();
    report::equal("overflow-interrupt", INTERRUPTS.swap(0, Relaxed), 1);
    LEFT_HIGH.store(2, Relaxed);
    near_overflow();
    own_time();
    report::equal("high-comes-again", INTERRUPTS.swap(0, Relaxed), 3);
    masked_follows_line();
    write_sysreg!("pmintenclr_el1", CYCLES);
    write_sysreg!("pmcr_el0", 0);
}

/// Puts the cycle counter so near to its end that it overflows within the guest's next loop. 2000
/// cycles are more than the way out of this function, so the interrupt comes where it is waited
/// for.
fn near_overflow() {
    write_sysreg!("pmccntr_el0", u64::MAX - 2000);
}

/// Checks, with IRQs masked, that the pending state is that of the line: a level has no memory (IHI
/// 0069, 4.1), so an overflow that was cleared leaves no interrupt.
fn masked_follows_line() {
    cpu::mask_irqs();
    near_overflow();
    own_time();
    let pending = gic::read_bit(register::ISPENDR, PMU_INTID);
    check!("masked-is-pending", pending, "it is not");
    write_sysreg!("pmovsclr_el0", CYCLES);
    let pending = gic::read_bit(register::ISPENDR, PMU_INTID);
    check!("cleared-is-not-pending", !pending, "it is");
    cpu::unmask_irqs();
    own_time();
    cpu::mask_irqs();
    report::equal("no-interrupt-left", INTERRUPTS.swap(0, Relaxed), 0);
}

/// Checks that all registers keep their values while others run, and that armed events fire in no
/// other VM. Debug and PMU registers are the VM's own, whoever runs between. The pattern contains
/// the start of the VM's memory and the time, so that two VMs with this guest on one CPU have
/// different ones.
fn held(machine: &Machine) {
    let own = machine.ram.start ^ timer::now() << 32;
    let pattern = |number: u64| (own.wrapping_mul(2 * number + 1)) & 0x7fff_ffff_fffc;
    arm(pattern);
    let mut wrong = 0;
    for _ in 0..SLEEPS {
        timer::sleep_us(1000);
        wrong += changed(pattern) + u64::from(psci::gear2_nop() != 0 && machine.gearv);
    }
    report::equal("registers-held", wrong, 0);
    write_sysreg!("mdscr_el1", 0);
    report::equal("mdscr", read_sysreg!("mdscr_el1"), 0);
}

/// Arms breakpoints and watchpoints, and gives the other registers values of this VM's own.
/// Addresses are bits 48:2 of the value registers, hence the pattern's mask. PSTATE.D masks the
/// step in this VM, so that MDSCR_EL1.SS does harm only where it leaks into another one.
fn arm(pattern: impl Fn(u64) -> u64) {
    write_sysreg!("dbgbvr0_el1", pattern(0));
    write_sysreg!("dbgbvr1_el1", pattern(1));
    write_sysreg!("dbgbcr1_el1", 0xf << 5 | 3 << 1 | 1);
    // All bytes of 2 GiB, at EL0 and EL1: also of who runs here meanwhile.
    write_sysreg!("dbgwvr0_el1", 0);
    write_sysreg!("dbgwcr0_el1", 31 << 24 | 0xff << 5 | 3 << 3 | 3 << 1 | 1);
    write_sysreg!("dbgwvr1_el1", 0x8000_0000);
    write_sysreg!("dbgwcr1_el1", 31 << 24 | 0xff << 5 | 3 << 3 | 3 << 1 | 1);
    write_sysreg!("mdscr_el1", KDE_MDE | 1);
    write_sysreg!("pmccntr_el0", pattern(2));
    write_sysreg!("pmevcntr1_el0", pattern(3) & 0xffff_ffff);
    write_sysreg!("pmuserenr_el0", pattern(4) & 0xf);
}

/// Returns how many registers have lost the values of [`arm`]. Compared all together: one that is
/// lost is a leak, whichever it is. DBGBCR1_EL1 and the watchpoints' controls are left out: an
/// armed one that fires elsewhere is found there.
fn changed(pattern: impl Fn(u64) -> u64) -> u64 {
    u64::from(read_sysreg!("dbgbvr0_el1") != pattern(0))
        + u64::from(read_sysreg!("dbgbvr1_el1") != pattern(1))
        + u64::from(read_sysreg!("dbgwvr1_el1") != 0x8000_0000)
        + u64::from(read_sysreg!("mdscr_el1") != KDE_MDE | 1)
        + u64::from(read_sysreg!("pmccntr_el0") != pattern(2))
        + u64::from(read_sysreg!("pmevcntr1_el0") != pattern(3) & 0xffff_ffff)
        + u64::from(read_sysreg!("pmuserenr_el0") != pattern(4) & 0xf)
}
