//! Compares the CPU's identification with its features: a register of a hidden feature is
//! UNDEFINED, a register of an announced feature can be read. The same holds natively; in a VM,
//! features that GearV does not virtualize are hidden.
//!
//! Requirements: G1-CPU-002, G1-CPU-003, G1-CPU-005, G1-CPU-009, G1-CPU-010.
#![no_std]
#![no_main]

use core::arch::asm;
use core::sync::atomic::{AtomicU64, Ordering};

use gear1_abi::exit::ExitReason;
use test_guests::exception::{Caught, catch, esr, ignore};
use test_guests::{
    Machine, check, cpu, guest, psci, read_sysreg, report, say, stats, write_sysreg,
};

guest!(main, irq = ignore, other_cpu = other);

/// A 4-bit field of an ID register. Values grow with the feature (Arm ARM, "Principles of the ID
/// scheme"); 0xf means none in signed fields. Several values that grow let an old kernel run on a
/// new CPU: a comparison by `>=` is what Linux does (`cpufeature.c`).
struct Field {
    register: fn() -> u64,
    shift: u32,
    /// The feature is there from this value on.
    from: u64,
}

impl Field {
    /// Tells whether the field announces the feature.
    fn says_yes(&self) -> bool {
        let value = (self.register)() >> self.shift & 0xf;
        value >= self.from && value != 0xf
    }
}

/// A feature: its field in the ID registers, and one of its registers. Several fields may announce
/// one feature, as pointer authentication has. The register is one that the feature alone adds, so
/// that UNDEFINED and hidden must agree.
struct Feature {
    name: &'static str,
    fields: &'static [Field],
    read: fn(),
    /// Whether guests have the feature, if the CPU has it.
    shown: bool,
}

macro_rules! feature {
    ($shown:literal, $name:literal, $read:literal, $($id:literal $shift:literal $from:literal),*) => {
        Feature {
            name: $name,
            fields: &[$(Field { register: || read_sysreg!($id), shift: $shift, from: $from }),*],
            read: || _ = read_sysreg!($read),
            shown: $shown,
        }
    };
}

/// Features: those that GearV hides, then those that it shows. Encodings are used where an
/// assembler knows no name. Linux uses whatever an ID field announces, without a look at the rest:
/// a feature announced and not virtualized kills it at boot, and one virtualized by mistake leaks
/// state, since no world switch saves its registers.
const FEATURES: &[Feature] = &[
    feature!(false, "sve-zcr", "S3_0_C1_C2_0", "id_aa64pfr0_el1" 32 1),
    feature!(false, "sme-smcr", "S3_0_C1_C2_6", "id_aa64pfr1_el1" 24 1),
    feature!(false, "sme-smidr", "S3_1_C0_C0_6", "id_aa64pfr1_el1" 24 1),
    feature!(false, "sme-tpidr2", "S3_3_C13_C0_5", "id_aa64pfr1_el1" 24 1),
    feature!(false, "mte-gmid", "S3_1_C0_C0_4", "id_aa64pfr1_el1" 8 2),
    feature!(false, "mte-gcr", "S3_0_C1_C0_6", "id_aa64pfr1_el1" 8 2),
    feature!(false, "mte-tfsr", "S3_0_C5_C6_0", "id_aa64pfr1_el1" 8 2),
    feature!(
        false, "pac-key", "S3_0_C2_C1_0",
        "id_aa64isar1_el1" 4 1, "id_aa64isar1_el1" 8 1, "S3_0_C0_C6_2" 12 1
    ),
    feature!(false, "ras-erridr", "S3_0_C5_C3_0", "id_aa64pfr0_el1" 28 1),
    feature!(false, "amu", "S3_3_C13_C2_0", "id_aa64pfr0_el1" 44 1),
    feature!(false, "mpam", "S3_0_C10_C5_0", "id_aa64pfr0_el1" 40 1),
    feature!(false, "spe", "S3_0_C9_C9_0", "id_aa64dfr0_el1" 32 1),
    feature!(false, "spe-buffer", "S3_0_C9_C10_0", "id_aa64dfr0_el1" 32 1),
    feature!(false, "trbe", "S3_0_C9_C11_0", "id_aa64dfr0_el1" 44 1),
    feature!(false, "trace-filter", "S3_0_C1_C2_1", "id_aa64dfr0_el1" 40 1),
    feature!(false, "trace", "S2_1_C0_C0_0", "id_aa64dfr0_el1" 4 1),
    feature!(false, "brbe", "S2_1_C9_C0_0", "id_aa64dfr0_el1" 52 1),
    feature!(false, "pmu-pmcr", "pmcr_el0", "id_aa64dfr0_el1" 8 1),
    feature!(false, "pmu-counter", "pmccntr_el0", "id_aa64dfr0_el1" 8 1),
    feature!(false, "pmu-pmintenset", "pmintenset_el1", "id_aa64dfr0_el1" 8 1),
    feature!(false, "lor", "S3_0_C10_C4_0", "id_aa64mmfr1_el1" 16 1),
    feature!(false, "lor-id", "S3_0_C10_C4_7", "id_aa64mmfr1_el1" 16 1),
    feature!(false, "csv2-scxtnum", "S3_0_C13_C0_7", "id_aa64pfr0_el1" 56 2),
    feature!(false, "tcr2", "S3_0_C2_C0_3", "S3_0_C0_C7_3" 0 1),
    feature!(false, "sctlr2", "S3_0_C1_C0_3", "S3_0_C0_C7_3" 4 1),
    feature!(false, "pie", "S3_0_C10_C2_3", "S3_0_C0_C7_3" 8 1),
    feature!(false, "poe", "S3_0_C10_C2_4", "S3_0_C0_C7_3" 16 1),
    feature!(false, "mair2", "S3_0_C10_C2_1", "S3_0_C0_C7_3" 24 1),
    feature!(false, "gcs", "S3_0_C2_C5_0", "id_aa64pfr1_el1" 44 1),
    feature!(false, "el2-hcr", "S3_4_C1_C1_0",),
    feature!(false, "vhe-sctlr_el12", "S3_5_C1_C0_0",),
    feature!(true, "pan", "S3_0_C4_C2_3", "id_aa64mmfr1_el1" 20 1),
    feature!(true, "uao", "S3_0_C4_C2_4", "id_aa64mmfr2_el1" 4 1),
    feature!(true, "dit", "S3_3_C4_C2_5", "id_aa64pfr0_el1" 48 1),
    feature!(true, "ssbs", "S3_3_C4_C2_6", "id_aa64pfr1_el1" 4 2),
    feature!(true, "random", "S3_3_C2_C4_0", "id_aa64isar0_el1" 60 1),
    feature!(true, "debug-mdscr", "mdscr_el1", "id_aa64dfr0_el1" 0 6),
    feature!(true, "revidr", "revidr_el1", "id_aa64pfr0_el1" 4 1),
    feature!(true, "aidr", "aidr_el1", "id_aa64pfr0_el1" 4 1),
];

/// CPACR_EL1 is opened first: its traps would look like UNDEFINED. CPU 1 is off until the last
/// test, so that tables and caches change under one CPU only.
fn main(machine: &Machine) {
    // Neither FP, SVE nor SME trap to EL1.
    let cpacr = read_sysreg!("cpacr_el1");
    write_sysreg!("cpacr_el1", 3 << 24 | 3 << 20 | 3 << 16);
    for feature in FEATURES {
        look_at(feature, machine.gearv);
    }
    write_sysreg!("cpacr_el1", cpacr);
    sizes(machine.gearv);
    if machine.gearv {
        limits();
    }
    set_way(machine);
    branch_type();
    walks(machine);
    others(machine);
}

/// An announced register that traps, and a hidden one that reads, both break a guest. Another
/// exception than UNDEFINED, such as an abort, is no answer to a register.
fn look_at(feature: &Feature, gearv: bool) {
    let announced = feature.fields.iter().any(Field::says_yes);
    let caught = catch(feature.read);
    let name = feature.name;
    check!(
        name,
        is_undefined(caught) != announced
            && (caught.is_none() || is_undefined(caught))
            && (feature.shown || !gearv || !announced),
        "announced: {announced}, {caught:x?}"
    );
}

/// Returns whether the access was UNDEFINED. With FEAT_IDST the ID register of an absent feature is
/// reported as a trapped access. EC 0 is an unknown reason, which UNDEFINED has. The IL bit alone
/// is the syndrome of EC 0 with a 32-bit instruction.
fn is_undefined(caught: Option<Caught>) -> bool {
    caught.is_some_and(|caught| caught.esr == esr::IL || caught.class() == esr::EC_SYSREG)
}

/// Sizes that a guest may rely upon. Linux with 4 KiB pages runs on whatever announces them. With 4
/// KiB pages, 52-bit addresses need stage-2 tables of another format (FEAT_LPA2), which Gear1 does
/// not build.
fn sizes(gearv: bool) {
    let mmfr0 = read_sysreg!("id_aa64mmfr0_el1");
    let (range, pages_4k, pages_16k) = (mmfr0 & 0xf, mmfr0 >> 28 & 0xf, mmfr0 >> 20 & 0xf);
    check!("4k-pages", pages_4k != 0xf, "{mmfr0:#x}");
    if gearv {
        check!(
            "no-52-bits",
            range <= 5 && pages_4k == 0 && pages_16k <= 1,
            "{mmfr0:#x}"
        );
    }
}

/// Checks the identification that all guests see, whatever the CPU. ID registers are read-only;
/// those of AArch32 are UNKNOWN without it, and zero under GearV. ACTLR_EL1 and CPUECTLR_EL1 hold
/// switches of the core itself, and a guest that turned off coherency or prefetching there would do
/// so for all VMs of the CPU.
fn limits() {
    let pfr0 = read_sysreg!("id_aa64pfr0_el1");
    check!("aarch64-only", pfr0 & 0xffff == 0x0011, "{pfr0:#x}");
    let old = [
        read_sysreg!("id_pfr0_el1"),
        read_sysreg!("id_isar0_el1"),
        read_sysreg!("id_mmfr0_el1"),
        read_sysreg!("mvfr0_el1"),
        read_sysreg!("S3_0_C0_C7_7"),
    ];
    report::equal("aarch32-and-reserved-read-as-zero", old, [0; 5]);
    // CPUECTLR_EL1 of the Cortex-A53, A57 and A72.
    let own = catch(|| _ = read_sysreg!("S3_1_C15_C2_1"));
    check!("implementation-defined", is_undefined(own), "{own:x?}");
    let write = catch(|| write_sysreg!("S3_0_C0_C4_0", 0));
    check!("write-to-an-id-register", is_undefined(write), "{write:x?}");
    report::equal("actlr", read_sysreg!("actlr_el1"), 0);
}

/// Cleans and invalidates all sets and ways of a small cache, twice: memory must keep its contents.
/// The operand has the way at the top and the set from the line's size on. Passed through, an
/// invalidation would reach dirty lines of whoever shares the cache; HCR_EL2.TSW makes each a trap
/// (G1-CPU-005).
fn set_way(machine: &Machine) {
    let place = machine.ram.end - 64;
    test_guests::mmio::write64(place, machine.ram.start);
    for operand in (0..2).flat_map(|_| 0..256_u64) {
        let (set, way) = (operand % 64, operand / 64);
        // SAFETY: all of this guest's data is clean or is cleaned by it.
        unsafe { asm!("dc cisw, {}", in(reg) way << 30 | set << 6, options(nostack)) };
    }
    cpu::dsb();
    let read = test_guests::mmio::read64(place);
    report::equal("set-way", read, machine.ram.start);
}

/// Tables and code of the test need pages to themselves.
#[repr(align(4096))]
struct Page<T>([T; 4096 / 8]);

/// Level 1 is the guest's own; of these two, one entry and two are used.
static LEVEL2: Page<AtomicU64> = Page([const { AtomicU64::new(0) }; 512]);
static LEVEL3: Page<AtomicU64> = Page([const { AtomicU64::new(0) }; 512]);
static CODE: [Page<AtomicU64>; 2] = [const { Page([const { AtomicU64::new(0) }; 512]) }; 2];

/// Has an instruction that Gear1 emulates be the target of an indirect branch, at the end of a page
/// without BTI; the next one lies in a page with it, which nobody may enter by a branch. Where
/// there is no BTI, both are pages like any other. Emulation has to set PSTATE.BTYPE to 0 behind
/// the instruction, as executing it would. Gear1 skips the emulated instruction, and ERET loads
/// PSTATE.BTYPE from SPSR_EL2: with BTYPE still set, the instruction behind is the target of a
/// branch (G1-CPU-009). KVM clears it in `kvm_skip_instr`.
fn branch_type() {
    /// The last GiB of stage 1.
    const ENTRY: u64 = 511;
    const TABLE: u64 = 0b11;
    let descriptor = (read_sysreg!("ttbr0_el1") & 0xffff_ffff_f000) + 8 * ENTRY;
    let before = test_guests::mmio::read64(descriptor);
    fill_pages();
    remap(descriptor, address(&LEVEL2) | TABLE);
    let target = (ENTRY << 30) + 4096 - 4;
    // SAFETY: what is there reads a register into X0 and returns.
    let caught = catch(|| unsafe {
        asm!("blr x9", in("x9") target, out("x0") _, out("x30") _);
    });
    remap(descriptor, before);
    check!("branch-type", caught.is_none(), "{caught:x?}");
}

/// Writes the code of both pages, and the tables that map them. Clean to the point of unification,
/// so that an instruction fetch sees the code. GP (bit 50) makes a page guarded, where FEAT_BTI is
/// there, and is ignored otherwise.
fn fill_pages() {
    const TABLE: u64 = 0b11;
    /// Valid, accessed, inner shareable, Normal memory.
    const PAGE: u64 = 0x707;
    const GUARDED: u64 = 1 << 50;
    /// `MRS X0, ID_AA64PFR0_EL1` behind `NOP`; `RET`, twice: what faults is skipped.
    const LAST: u64 = 0xd538_0400_d503_201f;
    const RETURNS: u64 = 0xd65f_03c0_d65f_03c0;
    let [open, guarded] = &CODE;
    open.0[511].store(LAST, Ordering::Relaxed);
    guarded.0[0].store(RETURNS, Ordering::Relaxed);
    LEVEL3.0[0].store(address(open) | PAGE, Ordering::Relaxed);
    LEVEL3.0[1].store(address(guarded) | PAGE | GUARDED, Ordering::Relaxed);
    LEVEL2.0[0].store(address(&LEVEL3) | TABLE, Ordering::Relaxed);
    for code in [&open.0[511], &guarded.0[0]] {
        // SAFETY: cleaning loses nothing.
        unsafe { asm!("dc cvau, {}", in(reg) code, options(nostack)) };
    }
}

/// Stage 1 maps the guest's memory at its own addresses. A static has a fixed address, so that
/// descriptors can be written once.
fn address(page: &Page<AtomicU64>) -> u64 {
    core::ptr::from_ref(page).addr() as u64
}

/// Writes a descriptor, and drops the translations and instructions of before. A table in the place
/// of a block needs an invalid descriptor in between (break-before-make, Arm DDI 0487, D8.14).
fn remap(descriptor: u64, value: u64) {
    for value in [0, value] {
        test_guests::mmio::write64(descriptor, value);
        drop_translations();
    }
}

/// Drops the translations and instructions of before.
fn drop_translations() {
    // SAFETY: drops translations and instructions only; nothing else is mapped there.
    unsafe {
        asm!(
            "dsb ish",
            "tlbi vmalle1is",
            "ic iallu",
            "dsb ish",
            "isb",
            options(nostack)
        );
    };
}

/// Most bytes that one trap of a walk cleans. The size that Gear1 has chosen, for an exit that ends
/// soon (G1-CPU-005).
const PIECE: u64 = 0x8000;
/// Most exits of a walk beside the pieces: for reads of the cache registers, and for the last look.
const BESIDE: u64 = 64;
/// Walks of which one has to clean once.
const WALKS: u32 = 5;
/// First cache type in CLIDR_EL1 that holds data.
const HAS_DATA: u64 = 2;

/// Cleans and invalidates all data and unified caches by set and way, as U-Boot, Linux'
/// decompressor and RTOSes do it (Arm DDI 0487, D7.5.9.6); returns the number of instructions that
/// it took. CLIDR_EL1.LoC says how many levels there are to the point of coherency, and CCSIDR_EL1
/// the lines, ways and sets of the level that CSSELR_EL1 names. GearV shows one set and one way
/// (G1-CPU-010), as KVM does.
fn walk() -> u64 {
    let clidr = read_sysreg!("clidr_el1");
    let coherency = clidr >> 24 & 7;
    let mut count = 0;
    for level in 0..coherency {
        if clidr >> (3 * level) & 7 < HAS_DATA {
            continue;
        }
        write_sysreg!("csselr_el1", level << 1);
        let size = read_sysreg!("ccsidr_el1");
        let (line, ways, sets) = ((size & 7) + 4, size >> 3 & 0x3ff, size >> 13 & 0x7fff);
        let way_shift = (ways as u32).leading_zeros();
        for way in 0..=ways {
            for set in 0..=sets {
                let place = way.checked_shl(way_shift).unwrap_or(0) | set << line;
                // SAFETY: all of this guest's data is clean or is cleaned by it.
                unsafe { asm!("dc cisw, {}", in(reg) place | level << 1, options(nostack)) };
                count += 1;
            }
        }
    }
    cpu::dsb();
    count
}

/// G1-CPU-005, G1-CPU-010: a walk over all levels cleans the VM's memory once, and traps little
/// more often. Trapping each instruction would cost minutes on a large cache. The second walk finds
/// a memory of the first one that makes it do nothing.
fn walks(machine: &Machine) {
    let memory = machine.ram.end - machine.ram.start;
    let pieces = memory / PIECE;
    let once = pieces..=pieces + BESIDE;
    for name in ["a-walk-cleans-once", "so-does-the-next"] {
        // A host that pauses the vCPU in a walk costs one more: another walk shows what one takes.
        let mut exits = exits_of_a_walk(name);
        for _ in 1..WALKS {
            if once.contains(&exits) || !machine.gearv {
                break;
            }
            exits = exits_of_a_walk(name);
        }
        match machine.gearv {
            true => check!(
                name,
                once.contains(&exits),
                "{exits} exits, {pieces} pieces"
            ),
            false => report::pass(name),
        }
    }
}

/// Walks over all levels, and returns how often that trapped.
fn exits_of_a_walk(name: &str) -> u64 {
    let before = stats::exits(ExitReason::Sysreg);
    let instructions = walk();
    let exits = stats::exits(ExitReason::Sysreg).wrapping_sub(before);
    say!("{name}: {instructions} instructions, {exits} exits");
    exits
}

/// Values that the second CPU reads. The last word says that the others are written.
static OTHER: [AtomicU64; 5] = [const { AtomicU64::new(0) }; 5];

/// Registers that a kernel compares between CPUs. MIDR_EL1 selects errata workarounds in Linux, and
/// the other three its features.
fn identity() -> [u64; 4] {
    [
        read_sysreg!("id_aa64pfr0_el1"),
        read_sysreg!("id_aa64mmfr0_el1"),
        read_sysreg!("id_aa64isar0_el1"),
        read_sysreg!("midr_el1"),
    ]
}

/// Linux taints itself, or refuses a CPU, whose features differ from the first one's. VPIDR_EL2 and
/// the traps of ID registers are set on each CPU by itself, so that one can be forgotten.
fn others(machine: &Machine) {
    if machine.cpus < 2 {
        return;
    }
    psci::cpu_on(1);
    cpu::wait_until(|| OTHER[4].load(Ordering::Acquire) != 0);
    let [a, b, c, d, _] = &OTHER;
    let theirs = [a, b, c, d].map(|word| word.load(Ordering::Relaxed));
    report::equal("all-cpus-are-alike", theirs, identity());
}

/// CPU 1 leaves its values for CPU 0.
fn other(_cpu: usize) {
    for (word, value) in OTHER.iter().zip(identity()) {
        word.store(value, Ordering::Relaxed);
    }
    OTHER[4].store(1, Ordering::Release);
}
