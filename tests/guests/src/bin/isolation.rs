//! Attacks everything outside of the VM: Gear1's, Gear2's and the other guest's memory, unowned
//! memory and unowned devices, with every kind of instruction. Each attempt must end in a
//! synchronous external abort here, with the address and the syndrome of the attempt.
//!
//! Natively, the same is expected of addresses behind the machine's memory.
//!
//! The page with the stolen time is in Gear1's memory and readable by the VM: the guest `timers`
//! checks that page.
//!
//! Requirements: G1-FLT-001.
#![no_std]
#![no_main]

use core::arch::asm;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use test_guests::exception::{Caught, catch, esr};
use test_guests::{Machine, check, cpu, fp, guest, psci, read_sysreg, say, timer};

guest!(main);

/// The board's memory begins here and is swept up to there, whether there is any or not. The
/// address of a hole must abort as that of another's memory does, or a guest could tell from aborts
/// how much memory the machine has.
const SWEPT: core::ops::Range<u64> = 0x4000_0000..0x1_0000_0000;
/// Distance of the addresses that are loaded from and stored to, with a random offset in between.
/// Stage 2 maps pages of 4 KiB and blocks of 2 MiB or more: each wrong block is hit, and a wrong
/// page by chance.
const FINE: u64 = 64 << 10;
/// Distance of the addresses that are attacked in every way.
const COARSE: u64 = 4 << 20;
/// Pages that no pattern would hit.
const RANDOM: usize = 500;
/// Addresses of devices or holes on QEMU's `virt` that the VM has not: flash, GIC parts, RTC,
/// fw_cfg, GPIO, virtio, PCIe; Gear2's own addresses among them. 0x0801_0000 is a physical GICv2's
/// CPU interface, where a load of GICC_IAR would acknowledge an interrupt of Gear1's.
const DEVICES: [u64; 14] = [
    0x0000_0000,
    0x0400_0000,
    0x0801_0000,
    0x0802_0000,
    0x0808_0000,
    0x0900_1000,
    0x0901_0000,
    0x0902_0000,
    0x0903_0000,
    0x0a00_0000,
    0x1000_0000,
    0x2000_0000,
    0x3000_0000,
    0x3eff_0000,
];
/// Beyond any memory: high PCIe, the end of the map. In a map of 40 bits, which QEMU's smaller CPUs
/// have. The library's identity map ends there, at 39 bits of virtual address.
const HIGH: [u64; 3] = [0x40_1000_0000, 0x7f_0000_0000, 0x7f_ffff_f000];
/// Most failures that are reported in detail. Each character on the console is an exit, and
/// thousands of failures tell no more than five.
const TOLD: u32 = 5;

/// Address of the page with the stolen time; 0: none. PV_TIME_ST (Arm DEN 0057) tells the address;
/// natively there is no such page.
static STOLEN: AtomicU64 = AtomicU64::new(0);
const PAGE: u64 = 4096;

/// Access that the syndrome must tell, beside "external abort".
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// WnR is 0.
    Load,
    /// WnR is 1.
    Store,
    /// Reads and writes: cores differ in which of the two they report.
    Atomic,
    /// The syndrome has no direction; FAR_EL1 and ELR_EL1 are both the address of the instruction.
    Fetch,
    /// Cache maintenance: a core need not translate, but if it aborts, then rightly. WnR is 1 for
    /// such instructions, whatever they do (Arm ARM, ESR_EL1).
    Maintenance,
    /// Must not abort at all. PRFM is a hint, and AT S1E1R ends with stage 1 and reports in
    /// PAR_EL1.
    Hint,
}

/// A data abort tells direction and address, which the test compares.
struct Attack {
    name: &'static str,
    kind: Kind,
    /// From the address given to the first byte accessed, and the bytes accessed. FAR_EL1 may hold
    /// another byte's address than the first one's, so a range is compared.
    offset: u64,
    bytes: u64,
    run: fn(u64),
}

macro_rules! attack {
    ($name:literal, $kind:ident, $bytes:literal $(+ $offset:literal)?, $($line:literal),+) => {
        Attack {
            name: $name,
            kind: Kind::$kind,
            offset: 0 $(+ $offset)?,
            bytes: $bytes,
            run: |address| {
                let own = [0_u64; 2];
                // SAFETY: the access aborts; if it does not, the test has found what it looks for,
                // and what it changed is not this guest's. FP registers are nobody's here.
                unsafe {
                    asm!(
                        ".arch_extension lse", ".arch_extension fp", ".arch_extension simd",
                        $($line,)+
                        inout("x0") address => _, in("x1") own.as_ptr(), out("x2") _, out("x3") _,
                        inout("x4") 0_u64 => _, inout("x5") 0_u64 => _, out("x30") _,
                    );
                }
            },
        }
    };
}

/// Every class of access that the syndrome tells apart, or does not: pairs and write-back forms
/// have no valid syndrome (ISV is 0). Gear1 must not need a valid syndrome: KVM leaves such an
/// access to user space (KVM_EXIT_ARM_NISV, or an error), and Gear1 gives the guest an abort. STXR
/// behind an LDXR of another address may fail without an access, so an abort of it is not demanded.
/// DC ZVA to Device memory is an alignment fault by itself.
const ATTACKS: [Attack; 26] = [
    attack!("load64", Load, 8, "ldr x4, [x0]"),
    attack!("store64", Store, 8, "str x4, [x0]"),
    attack!("load8", Load, 1, "ldrb w4, [x0]"),
    attack!("load-signed16", Load, 2, "ldrsh x4, [x0]"),
    attack!("load-acquire", Load, 4, "ldar w4, [x0]"),
    attack!("load-pair", Load, 16, "ldp x4, x5, [x0]"),
    attack!("load-writeback", Load, 8, "ldr x4, [x0], #8"),
    attack!("load-vector", Load, 16, "ldr q0, [x0]"),
    attack!("load-exclusive", Load, 8, "ldxr x4, [x0]"),
    attack!("load-exclusive-pair", Load, 16, "ldaxp x4, x5, [x0]"),
    attack!("load-unaligned", Load, 8 + 3, "ldur x4, [x0, #3]"),
    attack!(
        "load-across-pages",
        Load,
        8 + 4092,
        "mov x3, #4092",
        "ldr x4, [x0, x3]"
    ),
    attack!("store8", Store, 1, "strb w4, [x0]"),
    attack!("store-release", Store, 4, "stlr w4, [x0]"),
    attack!("store-pair", Store, 16, "stp x4, x5, [x0]"),
    attack!("store-writeback", Store, 8, "str x4, [x0, #8]!"),
    attack!("store-vector-pair", Store, 32, "stp q0, q1, [x0]"),
    attack!(
        "store-across-pages",
        Store,
        8 + 4092,
        "mov x3, #4092",
        "str x4, [x0, x3]"
    ),
    attack!(
        "store-exclusive",
        Maintenance,
        8,
        "ldxr x4, [x1]",
        "stxr w5, x4, [x0]"
    ),
    attack!("zero-block", Store, 64, "dc zva, x0"),
    attack!("clean-invalidate", Maintenance, 64, "dc civac, x0"),
    attack!("invalidate", Maintenance, 64, "dc ivac, x0"),
    attack!("invalidate-code", Maintenance, 64, "ic ivau, x0"),
    attack!("prefetch", Hint, 64, "prfm pldl1keep, [x0]"),
    attack!("fetch", Fetch, 4, "blr x0"),
    attack!("translate", Hint, 8, "at s1e1r, x0"),
];
/// Only with FEAT_LSE. ID_AA64ISAR0_EL1.Atomic is 2 then: without the feature the instructions are
/// UNDEFINED and would abort for another reason.
const ATOMICS: [Attack; 2] = [
    attack!("compare-and-swap", Atomic, 8, "casal x4, x5, [x0]"),
    attack!("atomic-add", Atomic, 8, "ldaddal x4, x5, [x0]"),
];

/// Results of the attempts.
impl Attack {
    /// Returns how many bytes further on the access itself begins, with write-back forms.
    fn write_back(&self) -> u64 {
        if self.name == "store-writeback" { 8 } else { 0 }
    }
}

/// Failures are counted, and a few of them shown.
#[derive(Default)]
struct Tally {
    tried: u32,
    failed: u32,
    /// All memory is Device memory.
    mmu_off: bool,
}

fn main(machine: &Machine) {
    let start = timer::now();
    fp::enable();
    if machine.gearv {
        let place = psci::hvc(psci::time::STOLEN, [0; 3])[0];
        STOLEN.store(place & !(PAGE - 1), Relaxed);
    }
    let has_atomics = read_sysreg!("id_aa64isar0_el1") >> 20 & 0xf >= 2;
    let attacks = || ATTACKS.iter().chain(ATOMICS.iter().filter(|_| has_atomics));
    sweep(machine);
    for attack in attacks() {
        everywhere(machine, attack, true);
    }
    edges(machine);
    without_mmu(machine, attacks());
    let milliseconds = timer::to_ns(timer::now() - start) / 1_000_000;
    say!("attacked for {milliseconds} ms");
}

/// With stage 1 off all is Device-nGnRnE, where alignment is checked first. An alignment fault
/// comes from stage 1, before Gear1 hears of the access.
fn without_mmu<'a>(machine: &Machine, attacks: impl Iterator<Item = &'a Attack>) {
    let mut tally = Tally {
        mmu_off: true,
        ..Tally::default()
    };
    cpu::without_mmu(|| {
        for attack in attacks {
            coarse(machine, |address| tally.attempt(attack, address));
        }
    });
    tally.verdict("mmu-off");
}

/// Loads from and stores to all memory that is not the VM's. Two instructions at many addresses.
fn sweep(machine: &Machine) {
    for attack in &ATTACKS[..2] {
        let (mut tally, mut random) = (Tally::default(), Random(1));
        for block in SWEPT.step_by(FINE as usize) {
            let address = block + random.below(FINE / 8) * 8;
            if !machine.ram.contains(&address) {
                tally.attempt(attack, address);
            }
        }
        say!("swept by {}: {} addresses", attack.name, tally.tried);
        tally.verdict("sweep");
    }
}

/// Every instruction at fewer addresses. A fetch from Device memory would be a permission fault of
/// stage 1, and tell nothing of stage 2.
fn everywhere(machine: &Machine, attack: &Attack, mapped: bool) {
    let (mut tally, mut random) = (Tally::default(), Random(2));
    // Devices are mapped execute-never.
    let skips = |address: u64| mapped && attack.kind == Kind::Fetch && address < SWEPT.start;
    coarse(machine, |address| {
        if !skips(address) {
            tally.attempt(attack, address);
        }
    });
    for _ in 0..RANDOM {
        let address = SWEPT.start + random.below((SWEPT.end - SWEPT.start) / 4096) * 4096;
        if !machine.ram.contains(&address) && !machine.ram.contains(&(address + 4096)) {
            tally.attempt(attack, address);
        }
    }
    tally.verdict(attack.name);
}

/// Calls `attempt` with addresses all over the map.
fn coarse(machine: &Machine, mut attempt: impl FnMut(u64)) {
    let memory = SWEPT
        .step_by(COARSE as usize)
        .filter(|at| !machine.ram.contains(at));
    let fixed = DEVICES.into_iter().chain(HIGH);
    let own = |at: &u64| machine.gicd.contains(at) || machine.gic_cpus.contains(at);
    for address in memory.chain(fixed.filter(|at| machine.gearv && !own(at))) {
        attempt(address);
    }
}

/// Accesses that begin in the VM's memory and end outside, and the other way round. The part inside
/// of the VM's memory must not hide the part outside. Gear1 maps by whole pages: an access across
/// the edge is two, of which one aborts, and FAR_EL1 is in the half outside.
fn edges(machine: &Machine) {
    let mut tally = Tally::default();
    for attack in ATTACKS
        .iter()
        .filter(|attack| attack.bytes == 8 && attack.offset == 0)
    {
        let exclusive = attack.name.contains("exclusive");
        if !exclusive && matches!(attack.kind, Kind::Load | Kind::Store) {
            let (start, end) = (machine.ram.start, machine.ram.end);
            let ahead = attack.write_back();
            if machine.gearv {
                tally.attempt_at(attack, start - 4 - ahead, start - 4..start);
            }
            tally.attempt_at(attack, end - 4 - ahead, end..end + 4);
        }
    }
    tally.verdict("edges");
}

impl Tally {
    /// The bytes that the access touches, with its offset.
    fn attempt(&mut self, attack: &Attack, address: u64) {
        let first = address + attack.offset + attack.write_back();
        self.attempt_at(attack, address, first..first + attack.bytes);
    }

    /// Attacks `address`; the address reported must be one of `bytes`. That it is misaligned may be
    /// found out first where memory is Device memory. The VM may read the page with the stolen
    /// time: no abort is due there.
    fn attempt_at(&mut self, attack: &Attack, address: u64, bytes: core::ops::Range<u64>) {
        let stolen = STOLEN.load(Relaxed);
        if bytes.start < stolen + PAGE && stolen < bytes.end {
            return;
        }
        self.tried += 1;
        let caught = catch(|| (attack.run)(address));
        let device = self.mmu_off || address < SWEPT.start;
        let aligned = bytes.start.is_multiple_of(8) && attack.name != "zero-block";
        let misaligned = device && !aligned && caught.is_some_and(|caught| caught.is_alignment());
        if !misaligned && !attack.explains(caught, &bytes) {
            self.failed += 1;
            if self.failed <= TOLD {
                say!("{} at {address:#x}: {caught:x?}", attack.name);
            }
        }
    }

    /// A test that tried nothing has failed.
    fn verdict(&self, name: &str) {
        let Self { tried, failed, .. } = self;
        check!(name, *failed == 0 && *tried != 0, "{failed} of {tried}");
    }
}

impl Attack {
    /// Returns whether the exception is the one that the architecture defines for such an access.
    /// ESR_EL2 has the class of an access from a lower level (0x24 or 0x20), of which Gear1 makes
    /// that of an access from EL1 (0x25 or 0x21). Linux tells by the class and by WnR which access
    /// of the kernel it has to fix up.
    fn explains(&self, caught: Option<Caught>, bytes: &core::ops::Range<u64>) -> bool {
        let Some(caught) = caught else {
            return matches!(self.kind, Kind::Maintenance | Kind::Hint);
        };
        // The type of an external abort is the implementation's own.
        let syndrome = caught.esr & !esr::EA;
        let abort = |class: u64, flags: u64| {
            syndrome == class << esr::EC_SHIFT | esr::IL | esr::EXTERNAL | flags
        };
        let data = |flags| abort(esr::EC_DATA_ABORT, flags);
        let right = match self.kind {
            Kind::Load => data(0),
            Kind::Store => data(esr::WNR),
            Kind::Atomic => data(0) || data(esr::WNR),
            Kind::Fetch => abort(esr::EC_INSTRUCTION_ABORT, 0) && caught.elr == caught.far,
            Kind::Maintenance => data(esr::WNR | esr::CM) || data(esr::WNR),
            Kind::Hint => false,
        };
        right && bytes.contains(&caught.far)
    }
}

/// A linear congruential generator: the same addresses in every run. Multiplier and increment are
/// Knuth's of MMIX.
struct Random(u64);

impl Random {
    /// The high bits, which are the better ones. The lowest bits of such a generator have short
    /// periods.
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(0x5851_f42d_4c95_7f2d)
            .wrapping_add(0x1405_7b7e_f767_814f);
        (self.0 >> 33) % limit
    }
}
