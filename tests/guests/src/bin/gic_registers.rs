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

guest!(
    main,
    irq = test_guests::exception::ignore,
    other_cpu = other
);

/// Behaviour of a register under reads and writes.
#[derive(Clone, Copy)]
enum Kind {
    /// Reads this in the bits of the mask (first), whatever is written.
    Fixed(u32, u32),
    /// Reads as zero, ignores writes; also written-only registers without effect here.
    Zero,
    /// Keeps the bits of the mask.
    Kept(u32),
    /// A bit an interrupt: this sets, the register at the second offset clears.
    Twin(u64),
    /// A byte an interrupt: keeps the bits of the mask, by bytes and by words.
    Bytes(u8),
}
use Kind::{Bytes, Fixed, Kept, Twin, Zero};

/// A register, or the checked word of an array of registers.
struct Row {
    name: &'static str,
    offset: u64,
    kind: Kind,
    /// Why QEMU's own controller is not held to it.
    qemu: Option<&'static str>,
}

const fn row(name: &'static str, offset: u64, kind: Kind) -> Row {
    Row {
        name,
        offset,
        kind,
        qemu: None,
    }
}

const fn differs(name: &'static str, offset: u64, kind: Kind, why: &'static str) -> Row {
    Row {
        name,
        offset,
        kind,
        qemu: Some(why),
    }
}

/// The word of 32 SPIs that is looked at: INTIDs 128 to 159, which have no device.
const SPIS: u64 = 4;
/// First of these INTIDs.
const SPI: u64 = 32 * SPIS;
/// Private interrupts without a device: SGIs, and PPIs 16 to 22.
const PRIVATE: u32 = 0x007f_ffff;
/// Priority bits that a GIC has at least.
const LEVELS: u8 = 0xf8;
/// Bits 11:0 of an IIDR: Arm's JEP106 code, as products that are programmed like Arm's have.
const ARM: Kind = Fixed(0xfff, 0x43b);

const LPIS: &str = "QEMU's has LPIs";
const REPORTS: &str = "QEMU's keeps STATUSR";
const ITS_OWN: &str = "implementation defined";

/// IHI 0069, 12.9; ARE and DS are 1.
const DISTRIBUTOR_V3: &[Row] = &[
    row("GICD_CTLR", 0x0, Kept(3)),
    row("GICD_CTLR.DS,ARE", 0x0, Fixed(0x8000_00f4 & !0x80, 0x50)),
    row(
        "GICD_TYPER.SecurityExtn,CPUNumber",
        0x4,
        Fixed(1 << 10 | 7 << 5, 0),
    ),
    differs(
        "GICD_TYPER.LPIS,MBIS,A3V,No1N",
        0x4,
        Fixed(0x0307_0000, 0x0200_0000),
        LPIS,
    ),
    row("GICD_IIDR", 0x8, ARM),
    row("GICD_TYPER2", 0xc, Zero),
    differs("GICD_STATUSR", 0x10, Zero, REPORTS),
    row("GICD_SETSPI_NSR", 0x40, Zero),
    row("GICD_CLRSPI_NSR", 0x48, Zero),
    row("GICD_SETSPI_SR", 0x50, Zero),
    row("GICD_CLRSPI_SR", 0x58, Zero),
    row("GICD_IGROUPR0", r::IGROUPR, Zero),
    row("GICD_IGROUPRn", r::IGROUPR + 4 * SPIS, Kept(!0)),
    row("GICD_ISENABLER0", r::ISENABLER, Zero),
    row(
        "GICD_ISENABLERn",
        r::ISENABLER + 4 * SPIS,
        Twin(r::ICENABLER + 4 * SPIS),
    ),
    row("GICD_ICENABLER0", r::ICENABLER, Zero),
    row("GICD_ISPENDR0", r::ISPENDR, Zero),
    row(
        "GICD_ISPENDRn",
        r::ISPENDR + 4 * SPIS,
        Twin(r::ICPENDR + 4 * SPIS),
    ),
    row("GICD_ICPENDR0", r::ICPENDR, Zero),
    row("GICD_ISACTIVER0", r::ISACTIVER, Zero),
    row(
        "GICD_ISACTIVERn",
        r::ISACTIVER + 4 * SPIS,
        Twin(r::ICACTIVER + 4 * SPIS),
    ),
    row("GICD_ICACTIVER0", r::ICACTIVER, Zero),
    row("GICD_IPRIORITYR0", r::IPRIORITYR, Zero),
    row("GICD_IPRIORITYR7", r::IPRIORITYR + 28, Zero),
    row("GICD_IPRIORITYRn", r::IPRIORITYR + SPI, Bytes(LEVELS)),
    row("GICD_ITARGETSR0", r::ITARGETSR, Zero),
    row("GICD_ITARGETSRn", r::ITARGETSR + SPI, Zero),
    row("GICD_ICFGR0", r::ICFGR, Zero),
    row("GICD_ICFGRn", r::ICFGR + SPI / 4, Kept(0xaaaa_aaaa)),
    row("GICD_ICFGRn+1", r::ICFGR + SPI / 4 + 4, Kept(0xaaaa_aaaa)),
    row("GICD_IGRPMODRn", 0xd00 + 4 * SPIS, Zero),
    row("GICD_NSACRn", 0xe00 + SPI / 4, Zero),
    row("GICD_SGIR", r::SGIR, Zero),
    row("GICD_CPENDSGIR0", r::CPENDSGIR, Zero),
    row("GICD_SPENDSGIR0", r::SPENDSGIR, Zero),
    row("GICD_INMIRn", 0xf80 + 4 * SPIS, Zero),
    row("GICD_IGROUPR0E", 0x1000, Zero),
    row("GICD_ISENABLER0E", 0x1200, Zero),
    row("GICD_IPRIORITYR0E", 0x2000, Zero),
    row("GICD_ICFGR0E", 0x3000, Zero),
    row("GICD_IROUTER0E", 0x8000, Zero),
    row("GICD_PIDR2.ArchRev", 0xffe8, Fixed(0xf0, 0x30)),
    row("GICD_PIDR1", 0xffe4, Fixed(0xf0, 0xb0)),
    row("GICD_PIDR4", 0xffd0, Fixed(0xff, 0x44)),
    row("GICD_CIDR0", 0xfff0, Fixed(!0, 0x0d)),
    row("GICD_CIDR1", 0xfff4, Fixed(!0, 0xf0)),
    row("GICD_CIDR2", 0xfff8, Fixed(!0, 0x05)),
    row("GICD_CIDR3", 0xfffc, Fixed(!0, 0xb1)),
];

/// IHI 0069, 12.10.
const REDISTRIBUTOR: &[Row] = &[
    differs("GICR_CTLR", 0x0, Zero, LPIS),
    row("GICR_IIDR", 0x4, ARM),
    differs("GICR_STATUSR", 0x10, Zero, REPORTS),
    row("GICR_MPAMIDR", 0x18, Zero),
    row("GICR_PARTIDR", 0x1c, Zero),
    row("GICR_SETLPIR", 0x40, Zero),
    row("GICR_CLRLPIR", 0x48, Zero),
    differs("GICR_PROPBASER", 0x70, Zero, LPIS),
    differs("GICR_PENDBASER", 0x78, Zero, LPIS),
    row("GICR_INVLPIR", 0xa0, Zero),
    row("GICR_INVALLR", 0xb0, Zero),
    row("GICR_SYNCR", 0xc0, Zero),
    row("GICR_PIDR2.ArchRev", 0xffe8, Fixed(0xf0, 0x30)),
    row("GICR_PIDR4", 0xffd0, Fixed(0xff, 0x44)),
    row("GICR_CIDR0", 0xfff0, Fixed(!0, 0x0d)),
    row("GICR_CIDR3", 0xfffc, Fixed(!0, 0xb1)),
];

/// IHI 0069, 12.11.
const SGI_FRAME: &[Row] = &[
    row("GICR_IGROUPR0", r::IGROUPR, Kept(!0)),
    row("GICR_ISENABLER0", r::ISENABLER, Twin(r::ICENABLER)),
    row("GICR_ISPENDR0", r::ISPENDR, Twin(r::ICPENDR)),
    row("GICR_ISACTIVER0", r::ISACTIVER, Twin(r::ICACTIVER)),
    row("GICR_IPRIORITYR0", r::IPRIORITYR, Bytes(LEVELS)),
    row("GICR_IPRIORITYR5", r::IPRIORITYR + 20, Bytes(LEVELS)),
    row("GICR_ICFGR0", r::ICFGR, Fixed(!0, 0xaaaa_aaaa)),
    row("GICR_ICFGR1", r::ICFGR + 4, Kept(0x2aaa)),
    row("GICR_IGRPMODR0", 0xd00, Zero),
    row("GICR_NSACR", 0xe00, Zero),
    row("GICR_IGROUPR1E", 0x84, Zero),
    row("GICR_ISENABLER1E", 0x104, Zero),
    row("GICR_INMIR0", 0xf80, Zero),
];

/// IHI 0048, 4.3, without Security Extensions.
const DISTRIBUTOR_V2: &[Row] = &[
    row("GICD_CTLR", 0x0, Kept(3)),
    row("GICD_TYPER.LSPI,SecurityExtn", 0x4, Fixed(0xfc00, 0)),
    row("GICD_IIDR", 0x8, ARM),
    row("GICD_IGROUPR0", r::IGROUPR, Kept(PRIVATE)),
    row("GICD_IGROUPRn", r::IGROUPR + 4 * SPIS, Kept(!0)),
    row("GICD_ISENABLER0", r::ISENABLER, Twin(r::ICENABLER)),
    row(
        "GICD_ISENABLERn",
        r::ISENABLER + 4 * SPIS,
        Twin(r::ICENABLER + 4 * SPIS),
    ),
    row("GICD_ISPENDR0", r::ISPENDR, Twin(r::ICPENDR)),
    row("GICD_ISPENDR0.SGIs", r::ISPENDR, Fixed(0xffff, 0)),
    row("GICD_ICPENDR0.SGIs", r::ICPENDR, Fixed(0xffff, 0)),
    row(
        "GICD_ISPENDRn",
        r::ISPENDR + 4 * SPIS,
        Twin(r::ICPENDR + 4 * SPIS),
    ),
    row("GICD_ISACTIVER0", r::ISACTIVER, Twin(r::ICACTIVER)),
    row(
        "GICD_ISACTIVERn",
        r::ISACTIVER + 4 * SPIS,
        Twin(r::ICACTIVER + 4 * SPIS),
    ),
    row("GICD_IPRIORITYR0", r::IPRIORITYR, Bytes(LEVELS)),
    row("GICD_IPRIORITYR5", r::IPRIORITYR + 20, Bytes(LEVELS)),
    row("GICD_IPRIORITYRn", r::IPRIORITYR + SPI, Bytes(LEVELS)),
    row("GICD_ITARGETSR0", r::ITARGETSR, Fixed(!0, 0x0101_0101)),
    row(
        "GICD_ITARGETSR7",
        r::ITARGETSR + 28,
        Fixed(0xff00_0000, 0x0100_0000),
    ),
    row("GICD_ITARGETSRn", r::ITARGETSR + SPI, Bytes(0b11)),
    row("GICD_ICFGR0", r::ICFGR, Fixed(0xaaaa_aaaa, 0xaaaa_aaaa)),
    differs(
        "GICD_ICFGR1",
        r::ICFGR + 4,
        Kept(0x2aaa),
        "QEMU's are read-only",
    ),
    row("GICD_ICFGRn", r::ICFGR + SPI / 4, Kept(0xaaaa_aaaa)),
    row("GICD_ICFGRn+1", r::ICFGR + SPI / 4 + 4, Kept(0xaaaa_aaaa)),
    row("GICD_NSACRn", 0xe00 + SPI / 4, Zero),
    row("GICD_CPENDSGIR0", r::CPENDSGIR, Zero),
    row("GICD_PIDR2.ArchRev", 0xfe8, Fixed(0xf0, 0x20)),
    row("GICD_PIDR4", 0xfd0, Fixed(0x0f, 0x04)),
    row("GICD_CIDR0", 0xff0, Fixed(!0, 0x0d)),
    row("GICD_CIDR1", 0xff4, Fixed(!0, 0xf0)),
    row("GICD_CIDR2", 0xff8, Fixed(!0, 0x05)),
    row("GICD_CIDR3", 0xffc, Fixed(!0, 0xb1)),
];

/// IHI 0048, 4.4 and 5.5. GearV's guests get the GICV page of the machine: it is the hardware's.
/// QEMU has no AIAR, AEOIR and AHPPIR in either.
const CPU_INTERFACE_V2: &[Row] = &[
    row("GICC_CTLR", c::CTLR, Kept(0x21f)),
    row("GICC_PMR", c::PMR, Kept(LEVELS as u32)),
    row("GICC_IAR", c::IAR, Fixed(!0, NONE)),
    row("GICC_RPR", c::RPR, Fixed(0xf8, 0xf8)),
    row("GICC_HPPIR", c::HPPIR, Fixed(!0, NONE)),
    row("GICC_IIDR", c::IIDR, Fixed(0xf_0fff, 0x2_043b)),
    row("GICC_EOIR", c::EOIR, Zero),
    row("GICC_DIR", c::DIR, Zero),
];

fn main(machine: &Machine) {
    cpu::mask_irqs();
    write32(gic::distributor(), 0);
    check_lines(machine);
    match machine.gic {
        Version::V2 => {
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
        Version::V3 => {
            check_rows(machine, gic::distributor(), DISTRIBUTOR_V3);
            check_rows(machine, v3::redistributor(), REDISTRIBUTOR);
            check_rows(machine, v3::sgi_frame(), SGI_FRAME);
            redistributor_types(machine);
            waker();
            routes(machine);
            system_registers(machine);
        }
    }
    banks(machine);
    if machine.gearv {
        sizes();
        nothing_else();
    } else {
        say!("native: other sizes and reserved registers are {ITS_OWN}");
    }
}

fn check_rows(machine: &Machine, frame: u64, rows: &[Row]) {
    for row in rows {
        match row.qemu {
            Some(why) if !machine.gearv => say!("native: not {}: {why}", row.name),
            _ => check_row(frame, row),
        }
    }
}

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

/// Result of a check: the value found and the value expected.
type Verdict = Result<(), (u32, u32)>;

fn expect(found: u32, expected: u32) -> Verdict {
    if found == expected {
        Ok(())
    } else {
        Err((found, expected))
    }
}

fn fixed(at: u64, mask: u32, value: u32) -> Verdict {
    expect(read32(at) & mask, value)?;
    for pattern in [!0, 0] {
        write32(at, pattern);
        expect(read32(at) & mask, value)?;
    }
    Ok(())
}

/// Writes all ones, zero and a pattern, then the old value.
fn kept(at: u64, mask: u32) -> Verdict {
    let before = read32(at);
    for pattern in [!0, 0x1234_5678, 0xedcb_a987, 0] {
        write32(at, pattern);
        expect(read32(at) & mask, pattern & mask)?;
    }
    write32(at, before);
    expect(read32(at), before)
}

fn twin(set: u64, clear: u64) -> Verdict {
    let private = set & 0x7f == 0;
    let (mask, constant) = match gic::version() {
        // SGIs may be enabled for good, and are not made pending here.
        Version::V2 if private => (PRIVATE & !0xffff, 0),
        Version::V3 if private => (PRIVATE, 0),
        Version::V2 | Version::V3 => (!0, 0),
    };
    let both = |expected: u32| {
        expect(read32(set) & mask, expected & mask)?;
        expect(read32(clear) & mask, expected & mask)
    };
    write32(clear, mask);
    both(constant)?;
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

/// GICD_TYPER.ITLinesNumber: the last word of interrupts is there, and the next is not.
fn check_lines(machine: &Machine) {
    let words = u64::from(gic::line_count() / 32);
    check!(
        "GICD_TYPER.ITLinesNumber",
        (4..=32).contains(&words),
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

/// GICD_TYPER.CPUNumber.
fn check_cpu_count(machine: &Machine) {
    let count = read32(gic::distributor() + r::TYPER) >> 5 & 7;
    report::equal("GICD_TYPER.CPUNumber", count as usize + 1, machine.cpus);
}

/// GICD_SPENDSGIR and CPENDSGIR: a bit each for SGI and sender, shown by ISPENDR too.
fn pending_sgis(machine: &Machine) {
    let base = gic::distributor();
    let (set, clear) = (base + r::SPENDSGIR, base + r::CPENDSGIR);
    write8(set + 5, 0b01);
    write8(set + 5, 0b10);
    write32(set + 8, 0x0100_0002);
    // A zero byte makes an SGI pending in QEMU's.
    let pending = || read32(base + r::ISPENDR) & if machine.gearv { 0xffff } else { 0x920 };
    let seen = [
        read32(set + 4),
        read32(clear + 4),
        read32(set + 8),
        pending(),
    ];
    report::equal("GICD_SPENDSGIRn", seen, [0x300, 0x300, 0x0100_0002, 0x920]);
    write8(clear + 5, 0b01);
    let one_left = (read8(set + 5), pending());
    write8(clear + 5, 0b10);
    write32(clear + 8, 0xffff_ffff);
    let none_left = (read8(set + 5), pending());
    report::equal(
        "GICD_CPENDSGIRn",
        (one_left, none_left),
        ((2, 0x920), (0, 0)),
    );
    if machine.gearv {
        // Bits of CPUs that are not there are RAZ/WI; QEMU's keeps them.
        write8(set, 0xfc);
        report::equal("GICD_SPENDSGIR0.absent", read8(set), 0);
    }
}

/// GICC_BPR and GICC_ABPR: values above the least are kept, those below become the least.
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

/// GICR_TYPER: affinity and number of each CPU's redistributor, Last at the last; by both sizes.
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

/// GICR_WAKER: ChildrenAsleep follows ProcessorSleep.
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

/// GICD_IROUTERn: 64 bits or two halves; none for private interrupts.
fn routes(machine: &Machine) {
    let at = |intid: u64| gic::distributor() + r::IROUTER + 8 * intid;
    write64(at(SPI), 1);
    write32(at(SPI + 1), 1);
    write32(at(SPI + 1) + 4, 0);
    let seen = [SPI, SPI + 1].map(|intid| (read64(at(intid)), read32(at(intid))));
    report::equal("GICD_IROUTERn", seen, [(1, 1); 2]);
    write64(at(SPI), 0);
    report::equal("GICD_IROUTERn.zero", read64(at(SPI)), 0);
    write64(at(31), !0);
    report::equal("GICD_IROUTER31", read64(at(31)), 0);
    if machine.gearv {
        write64(at(SPI), 1 << 31 | 1);
        report::equal("GICD_IROUTERn.Interrupt_Routing_Mode", read64(at(SPI)), 1);
        write32(at(SPI) + 4, 0xff);
        report::equal("GICD_IROUTERn.Aff3", read64(at(SPI)), 1);
        write64(at(SPI), 0x0203_0405);
        check!(
            "GICD_IROUTERn.nobody",
            read64(at(SPI)) & 0xff >= 8,
            "{:#x}",
            read64(at(SPI))
        );
    } else {
        say!("native: QEMU's may deliver to any CPU, and has Aff3");
    }
}

/// IHI 0069, 12.2: the CPU interface.
fn system_registers(machine: &Machine) {
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
    macro_rules! reads {
        ($name:literal, $mask:expr, $value:expr) => {
            report::equal($name, read_sysreg!($name) & $mask, $value);
        };
    }
    reads!("icc_sre_el1", 7, 7);
    keeps!("icc_pmr_el1", u64::from(LEVELS));
    keeps!("icc_ctlr_el1", 3);
    keeps!("icc_igrpen0_el1", 1);
    keeps!("icc_igrpen1_el1", 1);
    reads!("icc_iar0_el1", !0, u64::from(NONE));
    reads!("icc_iar1_el1", !0, u64::from(NONE));
    reads!("icc_hppir0_el1", !0, u64::from(NONE));
    reads!("icc_hppir1_el1", !0, u64::from(NONE));
    reads!("icc_rpr_el1", 0xff, 0xff);
    reads!("icc_ap0r0_el1", !0, 0);
    reads!("icc_ap1r0_el1", !0, 0);
    let control = read_sysreg!("icc_ctlr_el1");
    let levels = control >> 8 & 7;
    check!("icc_ctlr_el1.PRIbits", levels >= 4, "{levels}");
    report::equal("icc_ctlr_el1.PMHE,SEIS", control & (1 << 6 | 1 << 14), 0);
    if machine.gearv {
        // Five bits: what guests are told, and what list registers have at least.
        write_sysreg!("icc_pmr_el1", 0xff);
        report::equal(
            "icc_pmr_el1.levels",
            read_sysreg!("icc_pmr_el1"),
            LEVELS.into(),
        );
        keeps!("icc_ap1r0_el1", 0x8001_0100);
    }
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
    binary_point!("icc_bpr0_el1");
    binary_point!("icc_bpr1_el1");
    // Ends of nothing.
    write_sysreg!("icc_eoir0_el1", u64::from(NONE));
    write_sysreg!("icc_eoir1_el1", u64::from(NONE));
    report::equal("nothing-ended", read_sysreg!("icc_rpr_el1") & 0xff, 0xff);
}

static OTHER_DONE: AtomicBool = AtomicBool::new(false);
static OTHER_SAW: AtomicU64 = AtomicU64::new(0);

/// Private interrupts are each CPU's own, shared ones are everybody's.
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

/// Sizes that a register does not have read as zero and write nothing.
fn sizes() {
    let base = gic::distributor();
    let enable = base + r::ISENABLER + 4 * SPIS;
    let priority = base + r::IPRIORITYR + SPI;
    write32(enable, 0x5);
    write32(priority, 0x8080_8080);
    let seen = (
        u64::from(read8(enable)),
        u64::from(read16(enable)),
        read64(enable),
    );
    report::equal("ISENABLERn-sizes", seen, (0, 0, 0));
    report::equal(
        "IPRIORITYRn-sizes",
        (read16(priority), read64(priority)),
        (0, 0),
    );
    write8(enable, 0xff);
    write16(enable, 0xffff);
    write64(enable, !0);
    write16(priority, 0x1010);
    write64(priority, 0);
    report::equal(
        "no-write-by-other-sizes",
        (read32(enable), read32(priority)),
        (5, 0x8080_8080),
    );
    write32(base + r::ICENABLER + 4 * SPIS, !0);
    if gic::version() == Version::V3 {
        let route = base + r::IROUTER + 8 * SPI;
        write64(route, 1);
        let typer = v3::redistributor() + 8;
        let seen = (read8(route), read16(route), read8(typer), read16(typer));
        report::equal("IROUTERn-TYPER-sizes", seen, (0, 0, 0, 0));
        write8(route, 0);
        write16(route, 0);
        report::equal("IROUTERn-kept", read64(route), 1);
        write64(route, 0);
    }
}

/// Everything without a register reads as zero, after ones were written to it.
fn nothing_else() {
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
    sweep(
        "reserved-in-distributor",
        gic::distributor(),
        size,
        is_there,
    );
    if gic::version() == Version::V3 {
        let is_there = |offset: u64| matches!(offset, 0x4..=0x17 | 0xffd0..);
        sweep(
            "reserved-in-redistributor",
            v3::redistributor(),
            0x1_0000,
            is_there,
        );
        let is_there = |offset: u64| {
            let by_bit = (0x80..0x400).contains(&offset) && offset % 0x80 < 4;
            by_bit || matches!(offset, 0x400..=0x41f | 0xc00..=0xc07)
        };
        sweep("reserved-in-sgi-frame", v3::sgi_frame(), 0x1_0000, is_there);
    }
}

fn sweep(name: &str, frame: u64, size: u64, is_there: impl Fn(u64) -> bool) {
    let offsets = || (0..size).step_by(4).filter(|&offset| !is_there(offset));
    for offset in offsets() {
        write32(frame + offset, !0);
    }
    let found = offsets().find(|&offset| read32(frame + offset) != 0);
    check!(name, found.is_none(), "at {found:x?}");
}
