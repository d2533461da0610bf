//! The registers of each frame, and what each does under reads and writes. Sections are of Arm
//! IHI 0069 (GICv3) and IHI 0048 (GICv2).
//!
//! A row is one register and one behaviour. Registers with fields of different kinds have a row for
//! each kind. Rows hold natively as well, except where `qemu` says why QEMU's own controller
//! differs, so that the table is checked against a second implementation.
//!
//! GearV's controller has neither LPIs nor extended INTIDs nor NMIs: their registers are reserved
//! and read as zero (RES0). With affinity routing the distributor's registers of private interrupts
//! are RES0 too (IHI 0069, 12.9), and the redistributor has them.

use test_guests::gic::{NONE, register as r, v2::register as c};

/// Behaviour of a register under reads and writes.
#[derive(Clone, Copy)]
pub(super) enum Kind {
    /// Reads this in the bits of the mask (first), whatever is written.
    Fixed(u32, u32),
    /// Reads as zero, ignores writes; also written-only registers without effect here.
    Zero,
    /// Keeps the bits of the mask.
    Kept(u32),
    /// A bit an interrupt: this sets, the register at the second offset clears. Zeros that are
    /// written have no effect, in either register.
    Twin(u64),
    /// A byte an interrupt: keeps the bits of the mask, by bytes and by words.
    Bytes(u8),
}
use Kind::{Bytes, Fixed, Kept, Twin, Zero};

/// A register, or the checked word of an array of registers.
pub(super) struct Row {
    pub(super) name: &'static str,
    pub(super) offset: u64,
    pub(super) kind: Kind,
    /// Why QEMU's own controller is not held to it.
    pub(super) qemu: Option<&'static str>,
}

/// Makes a row that all controllers are held to.
const fn row(name: &'static str, offset: u64, kind: Kind) -> Row {
    Row {
        name,
        offset,
        kind,
        qemu: None,
    }
}

/// Makes a row that QEMU's own controller is not held to.
const fn differs(name: &'static str, offset: u64, kind: Kind, why: &'static str) -> Row {
    Row {
        name,
        offset,
        kind,
        qemu: Some(why),
    }
}

/// The word of 32 SPIs that is looked at: INTIDs 128 to 159, which have no device.
pub(super) const SPIS: u64 = 4;
/// First of these INTIDs.
pub(super) const SPI: u64 = 32 * SPIS;
/// Private interrupts without a device: SGIs, and PPIs 16 to 22. PPIs from 23 on are the PMU's, the
/// timers' and the GIC's own, whose bits the machine changes by itself. A GICv2's SGIs have groups
/// and enables as PPIs have.
pub(super) const PRIVATE: u32 = 0x007f_ffff;
/// Priority bits that a GIC has at least. A GIC with one Security state has at least 16 priorities,
/// a virtual interface 32.
pub(super) const LEVELS: u8 = 0xf8;
/// Bits 11:0 of an IIDR: Arm's JEP106 code, as products that are programmed like Arm's have. JEP106
/// has Arm as 0x3b behind four continuation codes, which bits 11:8 count.
const ARM: Kind = Fixed(0xfff, 0x43b);

/// Reasons of rows that QEMU's controller is not held to, here and in the next two constants.
const LPIS: &str = "QEMU's has LPIs";
const REPORTS: &str = "QEMU's keeps STATUSR";
pub(super) const ITS_OWN: &str = "implementation defined";

/// IHI 0069, 12.9; ARE and DS are 1. A driver tells from GICD_TYPER which of the other registers
/// are there, and must find those of a feature that is not announced RES0.
pub(super) const DISTRIBUTOR_V3: &[Row] = &[
    // EnableGrp0 and EnableGrp1, as the register is with DS = 1.
    row("GICD_CTLR", 0x0, Kept(3)),
    // RWP as well, which Linux polls behind each write that disables something: a write to GearV's
    // controller has had its effect when it returns. E1NWF is left to the implementation.
    row("GICD_CTLR.DS,ARE", 0x0, Fixed(0x8000_00f4 & !0x80, 0x50)),
    row(
        "GICD_TYPER.SecurityExtn,CPUNumber",
        0x4,
        Fixed(1 << 10 | 7 << 5, 0),
    ),
    // No1N: an SPI has one target, so a driver does not set GICD_IROUTER.Interrupt_Routing_Mode.
    differs(
        "GICD_TYPER.LPIS,MBIS,A3V,No1N",
        0x4,
        Fixed(0x0307_0000, 0x0200_0000),
        LPIS,
    ),
    row("GICD_IIDR", 0x8, ARM),
    row("GICD_TYPER2", 0xc, Zero),
    differs("GICD_STATUSR", 0x10, Zero, REPORTS),
    // Message-based SPIs, which GICD_TYPER.MBIS denies.
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
    // Targets by CPU number belong to GICv2; GICD_IROUTER has the affinity.
    row("GICD_ITARGETSR0", r::ITARGETSR, Zero),
    row("GICD_ITARGETSRn", r::ITARGETSR + SPI, Zero),
    row("GICD_ICFGR0", r::ICFGR, Zero),
    row("GICD_ICFGRn", r::ICFGR + SPI / 4, Kept(0xaaaa_aaaa)),
    row("GICD_ICFGRn+1", r::ICFGR + SPI / 4 + 4, Kept(0xaaaa_aaaa)),
    // Both are for a second security state, and RES0 with DS = 1.
    row("GICD_IGRPMODRn", 0xd00 + 4 * SPIS, Zero),
    row("GICD_NSACRn", 0xe00 + SPI / 4, Zero),
    // With affinity routing SGIs are sent by System registers alone.
    row("GICD_SGIR", r::SGIR, Zero),
    row("GICD_CPENDSGIR0", r::CPENDSGIR, Zero),
    row("GICD_SPENDSGIR0", r::SPENDSGIR, Zero),
    row("GICD_INMIRn", 0xf80 + 4 * SPIS, Zero),
    // The extended range of SPIs (GICv3.1), which GICD_TYPER.ESPI denies.
    row("GICD_IGROUPR0E", 0x1000, Zero),
    row("GICD_ISENABLER0E", 0x1200, Zero),
    row("GICD_IPRIORITYR0E", 0x2000, Zero),
    row("GICD_ICFGR0E", 0x3000, Zero),
    row("GICD_IROUTER0E", 0x8000, Zero),
    // Linux gives a controller up whose ArchRev is neither 3 nor 4 (`gic_validate_dist_version`).
    row("GICD_PIDR2.ArchRev", 0xffe8, Fixed(0xf0, 0x30)),
    row("GICD_PIDR1", 0xffe4, Fixed(0xf0, 0xb0)),
    row("GICD_PIDR4", 0xffd0, Fixed(0xff, 0x44)),
    // The preamble of every CoreSight component, and its class: 0xb105f00d.
    row("GICD_CIDR0", 0xfff0, Fixed(!0, 0x0d)),
    row("GICD_CIDR1", 0xfff4, Fixed(!0, 0xf0)),
    row("GICD_CIDR2", 0xfff8, Fixed(!0, 0x05)),
    row("GICD_CIDR3", 0xfffc, Fixed(!0, 0xb1)),
];

/// IHI 0069, 12.10. Linux walks the frames up to GICR_TYPER.Last in search of each CPU's.
pub(super) const REDISTRIBUTOR: &[Row] = &[
    // EnableLPIs and RWP: Linux polls the latter behind each disable of a private interrupt.
    differs("GICR_CTLR", 0x0, Zero, LPIS),
    row("GICR_IIDR", 0x4, ARM),
    differs("GICR_STATUSR", 0x10, Zero, REPORTS),
    row("GICR_MPAMIDR", 0x18, Zero),
    row("GICR_PARTIDR", 0x1c, Zero),
    // LPIs without an ITS; a store of any value must do nothing.
    row("GICR_SETLPIR", 0x40, Zero),
    row("GICR_CLRLPIR", 0x48, Zero),
    differs("GICR_PROPBASER", 0x70, Zero, LPIS),
    differs("GICR_PENDBASER", 0x78, Zero, LPIS),
    row("GICR_INVLPIR", 0xa0, Zero),
    row("GICR_INVALLR", 0xb0, Zero),
    row("GICR_SYNCR", 0xc0, Zero),
    // Linux takes no frame for a redistributor whose ArchRev is neither 3 nor 4.
    row("GICR_PIDR2.ArchRev", 0xffe8, Fixed(0xf0, 0x30)),
    row("GICR_PIDR4", 0xffd0, Fixed(0xff, 0x44)),
    row("GICR_CIDR0", 0xfff0, Fixed(!0, 0x0d)),
    row("GICR_CIDR3", 0xfffc, Fixed(!0, 0xb1)),
];

/// IHI 0069, 12.11. Registers of SGIs and PPIs, which a GICv2 has in the distributor, a copy for
/// each CPU. Accesses of a CPU to another one's frame are legal, so the vGIC cannot take the caller
/// for the owner.
pub(super) const SGI_FRAME: &[Row] = &[
    row("GICR_IGROUPR0", r::IGROUPR, Kept(!0)),
    row("GICR_ISENABLER0", r::ISENABLER, Twin(r::ICENABLER)),
    row("GICR_ISPENDR0", r::ISPENDR, Twin(r::ICPENDR)),
    row("GICR_ISACTIVER0", r::ISACTIVER, Twin(r::ICACTIVER)),
    row("GICR_IPRIORITYR0", r::IPRIORITYR, Bytes(LEVELS)),
    row("GICR_IPRIORITYR5", r::IPRIORITYR + 20, Bytes(LEVELS)),
    // SGIs are edges, and a write changes nothing.
    row("GICR_ICFGR0", r::ICFGR, Fixed(!0, 0xaaaa_aaaa)),
    // PPIs 16 to 22: two bits each, of which the upper one is kept.
    row("GICR_ICFGR1", r::ICFGR + 4, Kept(0x2aaa)),
    row("GICR_IGRPMODR0", 0xd00, Zero),
    row("GICR_NSACR", 0xe00, Zero),
    row("GICR_IGROUPR1E", 0x84, Zero),
    row("GICR_ISENABLER1E", 0x104, Zero),
    row("GICR_INMIR0", 0xf80, Zero),
];

/// IHI 0048, 4.3, without Security Extensions. SGIs of a GICv2 have their pending bits by sender,
/// in GICD_CPENDSGIR and GICD_SPENDSGIR, so that writes of GICD_ISPENDR0 and GICD_ICPENDR0 do not
/// reach them.
pub(super) const DISTRIBUTOR_V2: &[Row] = &[
    row("GICD_CTLR", 0x0, Kept(3)),
    // One security state has no lockable SPIs.
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
    // Read-only: the bit of the CPU that reads. Linux finds its own bit there (`gic_get_cpumask`),
    // which need not be that of its number.
    row("GICD_ITARGETSR0", r::ITARGETSR, Fixed(!0, 0x0101_0101)),
    row(
        "GICD_ITARGETSR7",
        r::ITARGETSR + 28,
        Fixed(0xff00_0000, 0x0100_0000),
    ),
    // Two vCPUs; bits of targets that are not there are RAZ/WI.
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
pub(super) const CPU_INTERFACE_V2: &[Row] = &[
    // Both enables, AckCtl, FIQEn, CBPR and EOImode. GICV_CTLR has no bits for the bypass.
    row("GICC_CTLR", c::CTLR, Kept(0x21f)),
    row("GICC_PMR", c::PMR, Kept(LEVELS as u32)),
    row("GICC_IAR", c::IAR, Fixed(!0, NONE)),
    // Idle priority: a virtual interface has five bits of it, a physical one up to eight.
    row("GICC_RPR", c::RPR, Fixed(0xf8, 0xf8)),
    row("GICC_HPPIR", c::HPPIR, Fixed(!0, NONE)),
    // Architecture version 2 in bits 19:16; product and revision are the core's own.
    row("GICC_IIDR", c::IIDR, Fixed(0xf_0fff, 0x2_043b)),
    row("GICC_EOIR", c::EOIR, Zero),
    row("GICC_DIR", c::DIR, Zero),
];
