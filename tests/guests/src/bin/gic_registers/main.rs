//! Every register of the interrupt controller that a guest may access, by name: the value that it
//! reads, the bits of a write that it keeps, its access sizes. Sections are of Arm IHI 0069 (GICv3)
//! and IHI 0048 (GICv2).
//!
//! Each frame has a table. Where QEMU's own controller differs from GearV's within the limits of
//! the manuals, the row says how. No interrupt is enabled at the CPU interface while registers
//! change.
#![no_std]
#![no_main]

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use test_guests::gic::{self, NONE, Version, register as r, v2, v2::register as c, v3};
use test_guests::mmio::{read8, read16, read32, read64, write8, write16, write32, write64};
use test_guests::{Machine, check, cpu, guest, psci, read_sysreg, report, say, write_sysreg};

mod rows;

use rows::Kind::{Bytes, Fixed, Kept, Twin, Zero};
use rows::{
    CPU_INTERFACE_V2, DISTRIBUTOR_V2, DISTRIBUTOR_V3, ITS_OWN, LEVELS, PRIVATE, REDISTRIBUTOR, Row,
    SGI_FRAME, SPI, SPIS,
};

guest!(
    main,
    irq = test_guests::exception::ignore,
    other_cpu = other
);

/// The distributor is off throughout: GICD_CTLR.EnableGrpn at 0 keeps pending interrupts from the
/// CPU interface, and leaves every other register as it is. The manuals leave accesses of other
/// sizes and to reserved addresses partly to the implementation. Only GearV is held to a rule
/// there: RAZ/WI (G1-GIC-002).
fn main(machine: &Machine) {
    cpu::mask_irqs();
    write32(gic::distributor(), 0);
    check_lines(machine);
    match machine.gic {
        Version::V2 => registers_v2(machine),
        Version::V3 => registers_v3(machine),
    }
    banks(machine);
    if machine.gearv {
        sizes();
        nothing_else();
    } else {
        say!("native: other sizes and reserved registers are {ITS_OWN}");
    }
}

/// GICv2 alone has targets by CPU number (GICD_ITARGETSRn), pending SGIs by sender and a
/// memory-mapped CPU interface. GearV resets the targets of SPIs to none, unless the VM has one
/// vCPU, for which GICD_ITARGETSRn is RAZ/WI.
fn registers_v2(machine: &Machine) {
    // QEMU keeps the pending state by target, and loses it without one.
    for four in (SPI..SPI + 32).step_by(4) {
        write32(gic::distributor() + r::ITARGETSR + four, 0x0101_0101);
    }
    check_rows(machine, gic::distributor(), DISTRIBUTOR_V2);
    check_rows(machine, v2::cpu_interface(), CPU_INTERFACE_V2);
    check_cpu_count(machine);
    pending_sgis(machine);
    binary_points_v2();
}

/// With affinity routing, private interrupts have a frame of their own for each CPU, and the CPU
/// interface is System registers. Without virtual LPIs (GICR_TYPER.VLPIS = 0) a redistributor has
/// two frames of 64 KiB: its own, and the one of SGIs and PPIs (IHI 0069, 12.10 and 12.11).
fn registers_v3(machine: &Machine) {
    check_rows(machine, gic::distributor(), DISTRIBUTOR_V3);
    check_rows(machine, v3::redistributor(), REDISTRIBUTOR);
    check_rows(machine, v3::sgi_frame(), SGI_FRAME);
    redistributor_types(machine);
    waker();
    routes(machine);
    system_registers(machine);
}

/// A row names the rule that QEMU takes differently; the manuals leave room for that.
fn check_rows(machine: &Machine, frame: u64, rows: &[Row]) {
    for row in rows {
        match row.qemu {
            Some(why) if !machine.gearv => say!("native: not {}: {why}", row.name),
            _ => check_row(frame, row),
        }
    }
}

/// One line of output for each register, by the manual's name. Both values are masked as the row's
/// kind says: the other bits of the register belong to other rows.
fn check_row(frame: u64, row: &Row) {
    let at = frame + row.offset;
    let found = match row.kind {
        Fixed(mask, value) => fixed(at, mask, value),
        Zero => fixed(at, !0, 0),
        Kept(mask) => kept(at, mask),
        Twin(clear) => twin(at, frame + clear),
        Bytes(mask) => bytes(at, mask),
    };
    match found {
        Ok(()) => report::pass(row.name),
        Err((found, expected)) => report::equal(row.name, found, expected),
    }
}

/// Result of a check: the value found and the value expected. A comparison of words, not of single
/// fields, also finds a bit that moved to a neighbour.
type Verdict = Result<(), (u32, u32)>;

/// Compares words, so that a failure shows the bits.
fn expect(found: u32, expected: u32) -> Verdict {
    if found == expected {
        Ok(())
    } else {
        Err((found, expected))
    }
}

/// RO and RES0 fields ignore writes, of ones and of zeros. Zeros alone do not tell a read-only 0
/// from a bit that keeps what is written, and ones alone do not tell a read-only 1.
fn fixed(at: u64, mask: u32, value: u32) -> Verdict {
    expect(read32(at) & mask, value)?;
    for pattern in [!0, 0] {
        write32(at, pattern);
        expect(read32(at) & mask, value)?;
    }
    Ok(())
}

/// Writes all ones, zero and a pattern, then the old value. The two patterns are complements of one
/// another, so that each bit is 1 between zeros and 0 between ones: a bit that a wrong shift in the
/// emulation stores in its neighbour shows. The old value returns, so that the order of the
/// rows does not matter.
fn kept(at: u64, mask: u32) -> Verdict {
    let before = read32(at);
    for pattern in [!0, 0x1234_5678, 0xedcb_a987, 0] {
        write32(at, pattern);
        expect(read32(at) & mask, pattern & mask)?;
    }
    write32(at, before);
    expect(read32(at), before)
}

/// Returns the bits of a register with a bit for each interrupt that a guest can set and clear.
/// SGIs of a GICv2 may be enabled for good, and are not made pending by this register. IHI 0048
/// leaves open whether SGIs can be disabled (4.3.5), and has GICD_ISPENDR0 ignore writes for them
/// (4.3.7).
fn changeable(private: bool) -> u32 {
    match gic::version() {
        Version::V2 if private => PRIVATE & !0xffff,
        Version::V3 if private => PRIVATE,
        Version::V2 | Version::V3 => !0,
    }
}

/// A pair such as GICD_ISENABLERn and GICD_ICENABLERn: ones act, zeros do nothing, and both read
/// the state. Linux masks, unmasks and pends an interrupt by a store of one bit, without a read
/// before and without a lock (`gic_poke_irq`). A zero that acted would change the interrupts of
/// other drivers. Each array begins at a multiple of 0x80, and its first word is that of the
/// private interrupts.
fn twin(set: u64, clear: u64) -> Verdict {
    let mask = changeable(set & 0x7f == 0);
    let both = |expected: u32| {
        expect(read32(set) & mask, expected & mask)?;
        expect(read32(clear) & mask, expected & mask)
    };
    write32(clear, mask);
    both(0)?;
    write32(set, 0x00f0_f00f & mask);
    both(0x00f0_f00f)?;
    write32(set, 0x8001_0000 & mask);
    both(0x80f1_f00f)?;
    // Zeroes do nothing, in either.
    write32(set, 0);
    write32(clear, 0);
    both(0x80f1_f00f)?;
    write32(clear, 0x80f0_000f);
    both(0x0001_f000)?;
    write32(clear, mask);
    both(0)
}

/// GICD_IPRIORITYRn and GICD_ITARGETSRn may be accessed by bytes as well as words; low bits of a
/// priority that are not implemented are RAZ/WI. Linux stores single bytes: priorities on a GICv3
/// (`gic_irq_set_prio`), and targets on a GICv2. The last read of the word shows that no byte has
/// reached the three others.
fn bytes(at: u64, mask: u8) -> Verdict {
    let before = read32(at);
    let masks = u32::from_ne_bytes([mask; 4]);
    write32(at, 0x80a0_c0e3);
    expect(read32(at) & masks, 0x80a0_c0e3 & masks)?;
    for (index, value) in [0xff, 0x58, 0x01, 0xfe_u8].into_iter().enumerate() {
        write8(at + index as u64, value);
        expect(
            u32::from(read8(at + index as u64) & mask),
            u32::from(value & mask),
        )?;
    }
    expect(read32(at) & masks, 0xfe01_58ff & masks)?;
    write32(at, before);
    expect(read32(at), before)
}

/// GICD_TYPER.ITLinesNumber: the last word of interrupts is there, and the next is not. IHI 0069,
/// GICD_TYPER: 32 x (N + 1) interrupts, with private ones among them. GearV rounds the SPIs of a VM
/// up to a multiple of 32 (`VmGic::configure`), as the field counts words. Linux sizes its domain
/// by the field (`GICD_TYPER_SPIS`): one word too many gives it interrupts that never come, one too
/// few hides devices. The rows of the test need INTIDs up to 159, which are five words.
fn check_lines(machine: &Machine) {
    let words = u64::from(gic::line_count() / 32);
    check!(
        "GICD_TYPER.ITLinesNumber",
        (5..=32).contains(&words),
        "{words}"
    );
    let last = gic::distributor() + r::ISENABLER + 4 * (words - 1);
    let verdict = twin(last, last + (r::ICENABLER - r::ISENABLER));
    check!("last-line", verdict.is_ok(), "{verdict:x?}");
    if machine.gearv && words < 32 {
        let beyond = fixed(last + 4, !0, 0);
        check!("beyond-the-last-line", beyond.is_ok(), "{beyond:x?}");
    }
}

/// GICD_TYPER.CPUNumber. The field is the number of CPUs less one. With affinity routing alone, as
/// in a GICv3 here, the field is 0, and the redistributors tell the number.
fn check_cpu_count(machine: &Machine) {
    let count = read32(gic::distributor() + r::TYPER) >> 5 & 7;
    report::equal("GICD_TYPER.CPUNumber", count as usize + 1, machine.cpus);
}

/// GICD_SPENDSGIR and CPENDSGIR: a bit each for SGI and sender, shown by ISPENDR too. An SGI is
/// pending once for each sender (IHI 0048, GICD_SPENDSGIRn). SGI 5 gets two senders by bytes, and
/// SGIs 8 and 11 one each by a word: 0x920 in GICD_ISPENDR0. The first of two senders cleared must
/// leave SGI 5 pending. A virtual GIC with one latch for each SGI would lose the request of the
/// other vCPU (G1-GIC-017).
fn pending_sgis(machine: &Machine) {
    let base = gic::distributor();
    let (set, clear) = (base + r::SPENDSGIR, base + r::CPENDSGIR);
    // A zero byte makes an SGI pending in QEMU's.
    let pending = || read32(base + r::ISPENDR) & if machine.gearv { 0xffff } else { 0x920 };
    write8(set + 5, 0b01);
    write8(set + 5, 0b10);
    write32(set + 8, 0x0100_0002);
    let words = [set + 4, clear + 4, set + 8].map(read32);
    let seen = (words, pending());
    report::equal(
        "GICD_SPENDSGIRn",
        seen,
        ([0x300, 0x300, 0x0100_0002], 0x920),
    );
    write8(clear + 5, 0b01);
    let one_left = (read8(set + 5), pending());
    write8(clear + 5, 0b10);
    write32(clear + 8, 0xffff_ffff);
    let left = [one_left, (read8(set + 5), pending())];
    report::equal("GICD_CPENDSGIRn", left, [(2, 0x920), (0, 0)]);
    if machine.gearv {
        // Bits of CPUs that are not there are RAZ/WI; QEMU's keeps them.
        write8(set, 0xfc);
        report::equal("GICD_SPENDSGIR0.absent", read8(set), 0);
    }
}

/// GICC_BPR and GICC_ABPR: values above the least are kept, those below become the least. The least
/// value is IMPLEMENTATION DEFINED, by the number of priority bits. In a VM, the machine's own GICV
/// page answers: Gear1 maps the page, and has no code for these registers.
fn binary_points_v2() {
    for (name, at) in [("GICC_BPR", c::BPR), ("GICC_ABPR", c::ABPR)] {
        let kept = (3..=7).all(|value| {
            v2::write(at, value);
            v2::read(at) == value
        });
        v2::write(at, 0);
        let least = v2::read(at);
        check!(name, kept && least <= 3, "kept {kept}, least {least}");
    }
    // GICC_APRn holds active priorities; no interrupt is active.
    report::equal("GICC_APR0", v2::read(c::APR0), 0);
}

/// GICR_TYPER: affinity and number of each CPU's redistributor, Last at the last; by both sizes. A
/// driver walks the frames until Last, and takes each CPU's by its affinity. Linux does the same
/// (`gic_iterate_rdists`): without Last it reads on into whatever lies behind the frames, where a
/// VM has nothing and gets an abort. Processor_Number is in bits 23:8, and Affinity_Value in the
/// upper word.
fn redistributor_types(machine: &Machine) {
    let all = (0..machine.cpus as u64).all(|index| {
        let at = machine.gic_cpus.start + index * v3::FRAMES + 8;
        let typer = read64(at);
        let halves = u64::from(read32(at + 4)) << 32 | u64::from(read32(at));
        let last = u64::from(index + 1 == machine.cpus as u64);
        let fields = (typer >> 32, typer >> 8 & 0xffff, typer >> 4 & 1);
        halves == typer && fields == (index, index, last)
    });
    check!("GICR_TYPER", all, "one of them is wrong");
}

/// GICR_WAKER: ChildrenAsleep follows ProcessorSleep. A driver waits for ChildrenAsleep to follow;
/// one that never does hangs a boot. Linux clears ProcessorSleep first of all on each CPU
/// (`gic_enable_redist`). Gear1 stores the bit and holds no interrupt back by it, as a vCPU that is
/// off takes none anyway.
fn waker() {
    let at = v3::redistributor() + 0x14;
    let mut seen = [0; 2];
    for (sleeps, seen) in [2, 0].into_iter().zip(&mut seen) {
        write32(at, sleeps);
        cpu::wait_until(|| read32(at) >> 2 & 1 == sleeps >> 1);
        *seen = read32(at);
    }
    report::equal("GICR_WAKER", seen, [6, 0]);
}

/// GICD_IROUTERn: 64 bits or two halves; none for private interrupts. Interrupts below 32 have no
/// route, and their registers are RES0. Linux on AArch64 stores a route by 64 bits, and on AArch32
/// by two words, hence both sizes. The route names affinity 0.0.0.1, which need not be a CPU that
/// is on.
fn routes(machine: &Machine) {
    write64(route(SPI), 1);
    write32(route(SPI + 1), 1);
    write32(route(SPI + 1) + 4, 0);
    let seen = [SPI, SPI + 1].map(|intid| (read64(route(intid)), read32(route(intid))));
    report::equal("GICD_IROUTERn", seen, [(1, 1); 2]);
    write64(route(SPI), 0);
    report::equal("GICD_IROUTERn.zero", read64(route(SPI)), 0);
    write64(route(31), !0);
    report::equal("GICD_IROUTER31", read64(route(31)), 0);
    if machine.gearv {
        fields_of_routes();
    } else {
        say!("native: QEMU's may deliver to any CPU, and has Aff3");
    }
}

/// Returns the address of GICD_IROUTERn. GICD_IROUTERn begins at 0x6000, with 8 bytes for each
/// INTID. Those of INTIDs 0 to 31, below 0x6100, are reserved: private interrupts have no route.
fn route(intid: u64) -> u64 {
    gic::distributor() + r::IROUTER + 8 * intid
}

/// Interrupt_Routing_Mode and Aff3 read as zero; an affinity that no CPU has reads as such.
/// GICD_TYPER.No1N is 1 here, so that 1-of-N routing is RES0. GearV reads an affinity beyond its
/// eight vCPUs back as 0.0.0.255. The interrupt stays pending and goes to nobody (G1-GIC-010): a
/// route that fell back to vCPU 0 would interrupt a CPU that the guest did not name.
fn fields_of_routes() {
    let at = route(SPI);
    write64(at, 1 << 31 | 1);
    report::equal("GICD_IROUTERn.Interrupt_Routing_Mode", read64(at), 1);
    write32(at + 4, 0xff);
    report::equal("GICD_IROUTERn.Aff3", read64(at), 1);
    write64(at, 0x0203_0405);
    let nobody = read64(at);
    check!("GICD_IROUTERn.nobody", nobody & 0xff >= 8, "{nobody:#x}");
}

/// Checks that a register keeps the bits of a mask, and writes the old value again. Bits outside of
/// the mask are never written as ones, since software must write RES0 bits as zero.
macro_rules! keeps {
    ($name:literal, $mask:expr) => {
        let before = read_sysreg!($name);
        let mask: u64 = $mask;
        let kept = [!0, 0, 0x5555, 0xaaaa].into_iter().all(|value| {
            write_sysreg!($name, value & mask);
            read_sysreg!($name) & mask == value & mask
        });
        write_sysreg!($name, before);
        check!($name, kept, "not its bits {mask:#x}");
    };
}

/// Checks the bits of a register that a mask selects. The others may get a meaning in a later
/// architecture, as bits 63 and 62 of ICC_RPR_EL1 did by FEAT_GICv3_NMI.
macro_rules! reads {
    ($name:literal, $mask:expr, $value:expr) => {
        report::equal($name, read_sysreg!($name) & $mask, $value);
    };
}

/// Checks that a binary point keeps values above the least, and at most 3 is the least. Five bits
/// of priority give the least value 2 for Group 0, and 3 for Group 1.
macro_rules! binary_point {
    ($name:literal) => {
        let kept = (3..=7).all(|value| {
            write_sysreg!($name, value);
            read_sysreg!($name) == value
        });
        write_sysreg!($name, 0);
        let least = read_sysreg!($name);
        check!($name, kept && least <= 3, "kept {kept}, least {least}");
    };
}

/// IHI 0069, 12.2: the CPU interface. ICC_SRE_EL1 reads 7: the memory-mapped interface is not
/// there, and cannot be chosen. Gear1 shows that constant whatever a guest writes (G1-GIC-015).
/// Bits 0 and 1 of ICC_CTLR_EL1 are CBPR and EOImode. With five bits of priority, all 32 active
/// priorities fit into ICC_AP1R0_EL1.
fn system_registers(machine: &Machine) {
    reads!("icc_sre_el1", 7, 7);
    keeps!("icc_pmr_el1", u64::from(LEVELS));
    keeps!("icc_ctlr_el1", 3);
    keeps!("icc_igrpen0_el1", 1);
    keeps!("icc_igrpen1_el1", 1);
    idle_interface();
    control_of_interface();
    if machine.gearv {
        // Five bits: what guests are told, and what list registers have at least.
        write_sysreg!("icc_pmr_el1", 0xff);
        let mask = read_sysreg!("icc_pmr_el1");
        report::equal("icc_pmr_el1.levels", mask, LEVELS.into());
        keeps!("icc_ap1r0_el1", 0x8001_0100);
    }
    binary_point!("icc_bpr0_el1");
    binary_point!("icc_bpr1_el1");
    // Ends of nothing.
    write_sysreg!("icc_eoir0_el1", u64::from(NONE));
    write_sysreg!("icc_eoir1_el1", u64::from(NONE));
    report::equal("nothing-ended", read_sysreg!("icc_rpr_el1") & 0xff, 0xff);
}

/// Values while no interrupt is pending or active. 1023 is the INTID of no interrupt, and 0xff the
/// idle priority. An acknowledge of no interrupt must change nothing, as Linux' handler meets it
/// with each spurious interrupt. A bit in an active-priorities register would block all lower
/// priorities from then on.
fn idle_interface() {
    reads!("icc_iar0_el1", !0, u64::from(NONE));
    reads!("icc_iar1_el1", !0, u64::from(NONE));
    reads!("icc_hppir0_el1", !0, u64::from(NONE));
    reads!("icc_hppir1_el1", !0, u64::from(NONE));
    reads!("icc_rpr_el1", 0xff, 0xff);
    reads!("icc_ap0r0_el1", !0, 0);
    reads!("icc_ap1r0_el1", !0, 0);
}

/// The constant fields of ICC_CTLR_EL1. PRIbits holds the number of bits less one. Linux takes from
/// PRIbits which priorities its pseudo-NMIs can have (`gic_get_pribits`). PMHE (bit 6) and SEIS
/// (bit 14) are 0: no hint of the mask to the distributor, and no SError from the interface.
fn control_of_interface() {
    let control = read_sysreg!("icc_ctlr_el1");
    let levels = control >> 8 & 7;
    check!("icc_ctlr_el1.PRIbits", levels >= 4, "{levels}");
    report::equal("icc_ctlr_el1.PMHE,SEIS", control & (1 << 6 | 1 << 14), 0);
}

/// CPU 0 polls this flag: with the distributor off, no SGI can tell it.
static OTHER_DONE: AtomicBool = AtomicBool::new(false);
/// The enabled SPIs that CPU 1 reads, and bits 32 to 34 for what it finds wrong.
static OTHER_SAW: AtomicU64 = AtomicU64::new(0);

/// Private interrupts are each CPU's own, shared ones are everybody's. GICv2 banks registers of
/// INTIDs 0 to 31 by the CPU that accesses them; GICv3 has a frame for each. CPU 1 sees SPI enables
/// of CPU 0, and none of its private states. Linux finds the mask of a GICv2's CPU in
/// GICD_ITARGETSR0, which therefore names the reader.
fn banks(machine: &Machine) {
    if machine.cpus < 2 {
        return;
    }
    let base = gic::distributor();
    write32(base + r::ISENABLER + 4 * SPIS, 0x10);
    write32(gic::frame(0) + r::ISACTIVER, 1 << 20);
    write32(gic::frame(0) + r::IPRIORITYR + 20, 0x4040_4040);
    psci::cpu_on(1);
    cpu::wait_until(|| OTHER_DONE.load(Ordering::Acquire));
    report::equal("banked-and-shared", OTHER_SAW.load(Ordering::Relaxed), 0x10);
    let own = (
        read32(gic::frame(0) + r::ISACTIVER) >> 20 & 1,
        read32(gic::frame(0) + r::IPRIORITYR + 20),
    );
    report::equal("own-bank-untouched", own, (1, 0x4040_4040));
    let shared = read32(base + r::ISENABLER + 4 * SPIS);
    report::equal("shared-by-another", shared, 0);
    write32(gic::frame(0) + r::ICACTIVER, 1 << 20);
    if gic::version() == Version::V2 {
        report::equal("GICD_ITARGETSR0.own", read8(base + r::ITARGETSR), 1);
        report::equal("GICD_SPENDSGIR0.banked", read8(base + r::SPENDSGIR + 9), 0);
    }
}

/// CPU 1 changes its own bank and looks for changes of CPU 0's. CPU 1 looks before it writes values
/// of its own, which CPU 0 would find if both banks were one.
fn other(_cpu: usize) {
    let base = gic::distributor();
    let frame = gic::frame(0);
    let mut saw = u64::from(read32(base + r::ISENABLER + 4 * SPIS));
    if read32(frame + r::ISACTIVER) >> 20 & 1 != 0
        || read32(frame + r::IPRIORITYR + 20) == 0x4040_4040
    {
        saw |= 1 << 32;
    }
    if gic::version() == Version::V2 {
        saw |= u64::from(read8(base + r::ITARGETSR) != 0b10) << 33;
        write8(base + r::SPENDSGIR + 9, 1);
        saw |= u64::from(read8(base + r::SPENDSGIR + 9) != 1) << 34;
        write8(base + r::CPENDSGIR + 9, 1);
    }
    write32(frame + r::IPRIORITYR + 20, 0x8080_8080);
    write32(base + r::ICENABLER + 4 * SPIS, !0);
    OTHER_SAW.store(saw, Ordering::Relaxed);
    OTHER_DONE.store(true, Ordering::Release);
}

/// Sizes that a register does not have read as zero and write nothing. Which sizes a register has
/// is part of its description; GearV treats all others as RAZ/WI. The size of an access comes from
/// ESR_EL2.ISS.SAS. An emulation that forgets it would carry out a byte's store as a word's, with
/// three bytes that the guest has not named.
fn sizes() {
    let base = gic::distributor();
    let enable = base + r::ISENABLER + 4 * SPIS;
    let priority = base + r::IPRIORITYR + SPI;
    write32(enable, 0x5);
    write32(priority, 0x8080_8080);
    let seen = (read8(enable), read16(enable), read64(enable));
    report::equal("ISENABLERn-sizes", seen, (0, 0, 0));
    let seen = (read16(priority), read64(priority));
    report::equal("IPRIORITYRn-sizes", seen, (0, 0));
    write8(enable, 0xff);
    write16(enable, 0xffff);
    write64(enable, !0);
    write16(priority, 0x1010);
    write64(priority, 0);
    let kept = (read32(enable), read32(priority));
    report::equal("no-write-by-other-sizes", kept, (5, 0x8080_8080));
    write32(base + r::ICENABLER + 4 * SPIS, !0);
    if gic::version() == Version::V3 {
        sizes_of_routes();
    }
}

/// Sizes of the registers with 64 bits. GICD_IROUTERn and GICR_TYPER have 64 bits, and may be
/// accessed by words too. A byte stored into a route would leave a mixture of two affinities.
fn sizes_of_routes() {
    let route = route(SPI);
    write64(route, 1);
    let typer = v3::redistributor() + 8;
    let seen = (read8(route), read16(route), read8(typer), read16(typer));
    report::equal("IROUTERn-TYPER-sizes", seen, (0, 0, 0, 0));
    write8(route, 0);
    write16(route, 0);
    report::equal("IROUTERn-kept", read64(route), 1);
    write64(route, 0);
}

/// Everything without a register reads as zero, after ones were written to it. Reserved addresses
/// are RES0; a hypervisor that stores what is written there keeps state for nobody. Of the
/// redistributor's own frame, GICR_IIDR, GICR_TYPER, GICR_STATUSR and GICR_WAKER have rows or
/// checks above, as the identification at the end has. In the SGI frame each array has its first
/// words alone.
fn nothing_else() {
    nothing_else_in_distributor();
    if gic::version() == Version::V3 {
        let frame = v3::redistributor();
        sweep(
            "reserved-in-redistributor",
            frame,
            0x1_0000,
            |offset| matches!(offset, 0x4..=0x17 | 0xffd0..),
        );
        let is_there = |offset: u64| {
            let by_bit = (0x80..0x400).contains(&offset) && offset % 0x80 < 4;
            by_bit || matches!(offset, 0x400..=0x41f | 0xc00..=0xc07)
        };
        sweep("reserved-in-sgi-frame", v3::sgi_frame(), 0x1_0000, is_there);
    }
}

/// Registers of INTIDs that are not there are reserved as well. The routes of a GICv3 are left out
/// as a whole: a route written with ones reads as 0.0.0.255.
fn nothing_else_in_distributor() {
    let words = u64::from(gic::line_count() / 32);
    let (size, identification) = match gic::version() {
        Version::V2 => (0x1000, 0xfd0),
        Version::V3 => (0x1_0000, 0xffd0),
    };
    let is_there = |offset: u64| {
        let by_bit = (0x80..0x400).contains(&offset) && offset % 0x80 / 4 < words;
        let by_byte = (0x400..0xc00).contains(&offset) && offset % 0x400 < 32 * words;
        let config = (0xc00..0xd00).contains(&offset) && offset % 0x100 < 8 * words;
        let sgi = gic::version() == Version::V2 && (0xf00..0xf30).contains(&offset);
        let routes = gic::version() == Version::V3 && (0x6100..0x8000).contains(&offset);
        offset < 0xc || by_bit || by_byte || config || sgi || routes || offset >= identification
    };
    let frame = gic::distributor();
    sweep("reserved-in-distributor", frame, size, is_there);
}

/// All are written before any is read: one register may show in another. The loop that reads finds
/// the first address alone, since one wrong decoding makes hundreds of them.
fn sweep(name: &str, frame: u64, size: u64, is_there: impl Fn(u64) -> bool) {
    let offsets = || (0..size).step_by(4).filter(|&offset| !is_there(offset));
    for offset in offsets() {
        write32(frame + offset, !0);
    }
    let found = offsets().find(|&offset| read32(frame + offset) != 0);
    check!(name, found.is_none(), "at {found:x?}");
}
