//! Does to the interrupt controller whatever comes to mind, on all CPUs at once: random accesses of
//! every size to every frame, random system registers, acknowledges and ends out of order, the
//! timer on and off. Nothing may stop the machine; set up anew, everything works again.
//!
//! What is done follows from the seed alone, apart from how the CPUs' doings mix.
//!
//! GearV keeps a virtual interrupt controller in memory that no guest may bring out of order: an
//! INTID, a list register's contents or a count of ends that a guest makes up must end in a wrong
//! interrupt for that guest at worst (G1-GIC-002).
#![no_std]
#![no_main]

use core::sync::atomic::{AtomicU32, Ordering};

use test_guests::gic::{self, Version, v2, v3};
use test_guests::mmio::{read8, read16, read32, read64, write8, write16, write32, write64};
use test_guests::{
    Machine, check, cpu, guest, psci, read_sysreg, report, say, timer, write_sysreg,
};

guest!(
    main,
    irq = test_guests::exception::ignore,
    other_cpu = other
);

/// Printed, so that a failure can be repeated.
const SEED: u64 = 0x9e37_79b9_7f4a_7c15;
/// For each CPU and round. Enough that each kind of deed meets each state of an interrupt on the
/// others' way.
const DEEDS: u32 = 20_000;
/// The interrupt that proves that the GIC works afterwards. An SGI needs nothing but the GIC and
/// each CPU.
const SGI: u32 = 3;
/// Emulated time, in which a hang shows.
const PATIENCE_US: u64 = 20_000_000;

/// Written before the other CPUs are on, and constant from then on.
static CPU_COUNT: AtomicU32 = AtomicU32::new(0);
/// Address of the first redistributor, which is below 4 GiB on QEMU's `virt`.
static REDISTRIBUTORS: AtomicU32 = AtomicU32::new(0);
/// Arrivals at all meetings so far: the number of CPUs divides it when all are there.
static ARRIVED: AtomicU32 = AtomicU32::new(0);
/// A bit for each CPU that took the SGI after the new set-up.
static TOOK: AtomicU32 = AtomicU32::new(0);

/// Rounds of chaos, each followed by a set-up from the beginning and a check. On QEMU's controller
/// a random GICR_PENDBASER would have it read and write any memory.
fn main(machine: &Machine) {
    if !machine.gearv {
        say!("native: not for QEMU's controller, which has LPI tables in memory");
        return;
    }
    say!("seed {SEED:#x}");
    CPU_COUNT.store(machine.cpus as u32, Ordering::Relaxed);
    REDISTRIBUTORS.store(machine.gic_cpus.start as u32, Ordering::Relaxed);
    (1..machine.cpus).for_each(|cpu| _ = psci::cpu_on(cpu));
    for round in 0..3 {
        stress(round);
        // All have stopped; the distributor first, then each CPU.
        meet();
        gic::init(machine);
        TOOK.store(0, Ordering::Release);
        meet();
        gic::init_cpu();
        meet();
        works_again(machine.cpus);
        meet();
    }
    report::pass("still-there");
}

/// In step with CPU 0, so that the set-up finds nobody at work. The second meeting comes behind the
/// set-up of the distributor, without which no CPU gets an interrupt.
fn other(_me: usize) {
    for round in 0..3 {
        stress(round);
        meet();
        meet();
        gic::init_cpu();
        gic::enable(SGI);
        meet();
        // CPU 0 checks.
        let end = timer::now() + timer::from_us(PATIENCE_US);
        while TOOK.load(Ordering::Acquire) >> cpu::index() & 1 == 0 && timer::now() < end {
            take();
        }
        meet();
    }
}

/// Waits until all CPUs are here. A barrier without the interrupt controller, which is what is
/// under test. WFE loses no SEV: an event that comes before the WFE ends it at once (Arm ARM, "Wait
/// for Event").
fn meet() {
    let cpus = CPU_COUNT.load(Ordering::Relaxed);
    let before = ARRIVED.fetch_add(1, Ordering::AcqRel);
    let all = before - before % cpus + cpus;
    while ARRIVED.load(Ordering::Acquire) < all {
        cpu::wfe();
    }
    cpu::sev();
}

/// Acknowledges and ends; notes the SGI. An SGI that a deed left pending may come first, so that
/// others are ended and ignored.
fn take() {
    let acknowledged = gic::acknowledge();
    if gic::is_real(acknowledged) {
        gic::end(acknowledged);
        if gic::intid(acknowledged) == SGI {
            TOOK.fetch_or(1 << cpu::index(), Ordering::AcqRel);
        }
    }
}

/// Checks that SGIs and the timer come again. The set-up writes registers only, as a guest after a
/// reset of its own does. State that the deeds have left in a list register or in Gear1's memory,
/// and that no register reaches, would keep interrupts away here.
fn works_again(cpus: usize) {
    gic::enable(SGI);
    let all = (0xff_u16 >> (8 - cpus)) as u8;
    gic::send_sgi_to(all, SGI);
    let end = timer::now() + timer::from_us(PATIENCE_US);
    while TOOK.load(Ordering::Acquire) != u32::from(all) && timer::now() < end {
        take();
    }
    report::equal(
        "sgis-work-again",
        TOOK.load(Ordering::Acquire),
        u32::from(all),
    );
    gic::enable(timer::INTID);
    timer::arm(timer::now());
    let mut came = gic::acknowledge();
    while !gic::is_real(came) && timer::now() < end {
        came = gic::acknowledge();
    }
    timer::disarm();
    gic::end(came);
    check!("timer-works-again", came == timer::INTID, "{came}");
}

/// xorshift64 (Marsaglia 2003). One word of state, so that a seed alone repeats a run.
struct Random(u64);

impl Random {
    /// Deterministic and without state elsewhere.
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// High bits, since the lowest of xorshift are the weakest.
    fn below(&mut self, bound: u64) -> u64 {
        (self.next() >> 16) % bound
    }
}

/// Each CPU has numbers of its own in each round. The timer is turned off at the end, since its
/// level would outlive the set-up, which clears pending states and no lines.
fn stress(round: u64) {
    let mut random = Random(SEED ^ (cpu::index() as u64 + 1) << 40 ^ round << 50);
    (0..DEEDS).for_each(|_| deed(&mut random));
    timer::disarm();
}

/// Half of the deeds are accesses to frames, where the state is. A random CNTV_CTL_EL0 turns the
/// line on and off without an exit, between Gear1's looks at it.
fn deed(random: &mut Random) {
    match random.below(8) {
        0..=3 => access(random),
        4 => interface(random),
        5 => end_anything(random),
        6 => gic::send_sgi_to(random.next() as u8, random.below(16) as u32),
        _ => {
            timer::arm(timer::now() + random.below(2000));
            write_sysreg!("cntv_ctl_el0", random.below(4));
        }
    }
}

/// Accesses some register of some frame; every second time one that is there. Any size at any
/// address; reads have side effects too. Three of eight accesses have a size that most registers
/// lack. Addresses are aligned, since an access to Device memory that is not is an alignment fault
/// at EL1 and never leaves the guest. The AND of two numbers has a quarter of its bits set, so that
/// a store changes some interrupts and not all.
fn access(random: &mut Random) {
    let (base, size) = frame(random);
    let range = if random.below(2) == 0 { 0x1000 } else { size };
    let offset = random.below(range);
    let value = match random.below(4) {
        0 => 0,
        1 => !0,
        _ => random.next() & random.next(),
    };
    let write = random.below(3) != 0;
    match (random.below(8), write) {
        (0, true) => write8(base + offset, value as u8),
        (0, false) => _ = read8(base + offset),
        (1, true) => write16(base + (offset & !1), value as u16),
        (1, false) => _ = read16(base + (offset & !1)),
        (2, true) => write64(base + (offset & !7), value),
        (2, false) => _ = read64(base + (offset & !7)),
        (_, true) => write32(base + (offset & !3), value as u32),
        (_, false) => _ = read32(base + (offset & !3)),
    }
}

/// Returns base and size of some frame. Redistributors of other CPUs are among them. Of a GICv2's
/// CPU interface only the page of GICC_DIR traps to Gear1; the first page is hardware's, and
/// `interface` writes to it.
fn frame(random: &mut Random) -> (u64, u64) {
    match gic::version() {
        Version::V2 if random.below(4) == 0 => (v2::cpu_interface() + 0x1000, 0x1000),
        Version::V2 => (gic::distributor(), 0x1000),
        Version::V3 if random.below(2) == 0 => (gic::distributor(), 0x1_0000),
        Version::V3 => {
            let cpus = u64::from(CPU_COUNT.load(Ordering::Relaxed));
            let first = u64::from(REDISTRIBUTORS.load(Ordering::Relaxed));
            (first + 0x1_0000 * random.below(2 * cpus), 0x1_0000)
        }
    }
}

/// Changes the CPU interface. Reads of IAR acknowledge, and so change state. Values of
/// ICC_AP1R0_EL1 are active priorities that no interrupt has, which mask others until they are
/// ended.
fn interface(random: &mut Random) {
    let value = random.next() & random.next();
    match (gic::version(), random.below(8)) {
        (Version::V2, _) => v2::write(4 * random.below(0x40), value as u32),
        (Version::V3, 0) => write_sysreg!("icc_ctlr_el1", value & 3),
        (Version::V3, 1) => write_sysreg!("icc_bpr1_el1", value & 7),
        (Version::V3, 2) => write_sysreg!("icc_igrpen0_el1", value & 1),
        (Version::V3, 3) => write_sysreg!("icc_sgi0r_el1", value),
        (Version::V3, 4) => write_sysreg!("icc_sgi1r_el1", value),
        (Version::V3, 5) => write_sysreg!("icc_ap1r0_el1", value & 0xffff_ffff),
        (Version::V3, 6) => _ = read_sysreg!("icc_iar0_el1"),
        (Version::V3, _) => write_sysreg!("icc_pmr_el1", value & 0xff),
    }
    if random.below(2) == 0 {
        // Mostly open, or nothing would ever be acknowledged.
        gic::set_mask(0xff);
        match gic::version() {
            Version::V2 => v2::write(v2::register::CTLR, 0x7),
            Version::V3 => v3::enable_groups(),
        }
    }
}

/// Acknowledges, and ends this, something else or nothing. Ends without an acknowledge, of the
/// wrong interrupt and in the wrong order are UNPREDICTABLE or ignored (IHI 0069, ICC_EOIR1_EL1),
/// and never fatal. An end without a list register counts up ICH_HCR_EL2.EOIcount, by which Gear1
/// ends an active interrupt in memory (G1-GIC-012): with a wrong end, that must find one or none.
fn end_anything(random: &mut Random) {
    let acknowledged = gic::acknowledge();
    match random.below(4) {
        0 => gic::end(random.below(0x400) as u32),
        1 => gic::deactivate(random.below(0x400) as u32),
        2 => {}
        _ => gic::end(acknowledged),
    }
}
