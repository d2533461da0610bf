//! The distributor's register frame (IHI 0069, 12.9; IHI 0048, 4.3).

use super::fields::{BYTE, DOUBLEWORD, View, WORD};
use super::types::{GicVersion, Kicks, VcpuIndex};
use super::word::Gate;
use super::{Change, VmGic, v2};

const CTLR: u64 = 0x0000;
const TYPER: u64 = 0x0004;
const IIDR: u64 = 0x0008;
const IROUTER: u64 = 0x6100;
const IROUTER_END: u64 = 0x7fd7;

/// GICD_CTLR of a GICv3: DS and ARE are RAO/WI.
// planted: a guest is shown two security states
const CTLR_DS_ARE: u32 = 1 << 6 | 1 << 4;
const ENABLE_GROUP0: u32 = 1 << 0;
const ENABLE_GROUP1: u32 = 1 << 1;
/// GICD_TYPER: ten INTID bits, no 1-of-N interrupts.
const TYPER_IDBITS: u32 = 9 << 19;
const TYPER_NO1N: u32 = 1 << 25;
/// GICD_IIDR, GICR_IIDR: product 'G', implementer Arm.
pub(super) const IIDR_VALUE: u32 = 0x4700_043b;
/// Aff0 read back for a route to a PE that cannot exist.
const NOWHERE: u64 = 0xff;

/// Returns an identification register of a frame whose last sixteen words they are.
pub(super) fn identification(offset: u64, part: u32, architecture: u32) -> u32 {
    match offset & 0xff {
        0xd0 => 0x44,                    // PIDR4: 64 KiB, JEP106 bank of Arm
        0xe0 => part,                    // PIDR0
        0xe4 => 0xb4,                    // PIDR1: JEP106 code of Arm
        0xe8 => architecture << 4 | 0xb, // PIDR2: ArchRev, JEDEC
        0xf0 => 0x0d,                    // CIDR0 to CIDR3
        0xf4 => 0xf0,
        0xf8 => 0x05,
        0xfc => 0xb1,
        _ => 0,
    }
}

/// Part number, low byte, of the distributor.
const PART: u32 = 0x92;

impl VmGic {
    pub(super) fn compute_typer(&self) -> u32 {
        let lines = u32::from(self.spi_words);
        match self.version {
            GicVersion::V2 => lines | u32::from(self.vcpu_count.wrapping_sub(1)) << 5,
            GicVersion::V3 => lines | TYPER_IDBITS | TYPER_NO1N,
        }
    }

    /// Emulates a guest's read in the distributor frame.
    ///
    /// G1-GIC-001: the guest sees one security state, affinity routing (GICv3) and as many SPIs
    /// as its VM was configured with.
    #[inline]
    pub fn distributor_read(&self, vcpu: VcpuIndex, offset: u64, size_log2: u8) -> u64 {
        match self.control_read(offset) {
            Some(value) if size_log2 == WORD => value.into(),
            Some(_) | None => self.distributor_read_other(vcpu, offset, size_log2),
        }
    }

    /// Emulates the load of a word that is about the distributor as a whole; `None` for all others.
    #[inline(always)]
    pub fn control_read(&self, offset: u64) -> Option<u32> {
        match offset {
            TYPER => Some(self.typer),
            CTLR => Some(self.ctlr()),
            IIDR => Some(IIDR_VALUE),
            _ => None,
        }
    }

    /// Emulates a guest's write in the distributor frame.
    pub fn distributor_write(
        &mut self,
        vcpu: VcpuIndex,
        offset: u64,
        size_log2: u8,
        value: u64,
    ) -> Kicks {
        match (self.version, offset) {
            (GicVersion::V2 | GicVersion::V3, CTLR) if size_log2 == WORD => {
                self.set_ctlr(value as u32)
            }
            (GicVersion::V2 | GicVersion::V3, 0x080..=0xeff) => {
                self.field_write(self.distributor_view(vcpu), offset, size_log2, value)
            }
            (GicVersion::V2, v2::SGIR..=v2::SPENDSGIR_END) => {
                self.v2_sgi_write(vcpu, offset, size_log2, value as u32)
            }
            (GicVersion::V3, IROUTER..=IROUTER_END) => self.irouter_write(offset, size_log2, value),
            (GicVersion::V2 | GicVersion::V3, _) => Kicks::NONE,
        }
    }

    fn distributor_read_other(&self, vcpu: VcpuIndex, offset: u64, size_log2: u8) -> u64 {
        match (self.version, offset) {
            (GicVersion::V2 | GicVersion::V3, 0x080..=0xeff) => {
                self.field_read(self.distributor_view(vcpu), offset, size_log2)
            }
            (GicVersion::V2, v2::SGIR..=v2::SPENDSGIR_END) => {
                self.v2_sgi_read(vcpu, offset, size_log2).into()
            }
            (GicVersion::V2, 0xfd0..=0xfff) if size_log2 == WORD => {
                identification(offset, v2::PART, 2).into()
            }
            (GicVersion::V3, IROUTER..=IROUTER_END) => self.irouter_read(offset, size_log2),
            (GicVersion::V3, 0xffd0..=0xffff) if size_log2 == WORD => {
                identification(offset, PART, 3).into()
            }
            (GicVersion::V2 | GicVersion::V3, _) => 0,
        }
    }

    /// With affinity routing, word 0 is in the redistributors only.
    fn distributor_view(&self, vcpu: VcpuIndex) -> View {
        let all = (2_u32 << (self.spi_words & 31)).wrapping_sub(1);
        let words = match self.version {
            GicVersion::V2 => all,
            GicVersion::V3 => all & !1,
        };
        View { vcpu, words }
    }

    fn ctlr(&self) -> u32 {
        match self.version {
            GicVersion::V2 => self.enables,
            GicVersion::V3 => self.enables | CTLR_DS_ARE,
        }
    }

    /// G1-GIC-003: an interrupt whose group is disabled is not delivered; a GICv3 guest's Group 0
    /// never is.
    fn set_ctlr(&mut self, value: u32) -> Kicks {
        self.enables = value & (ENABLE_GROUP0 | ENABLE_GROUP1);
        let all_if = |condition: bool| if condition { u32::MAX } else { 0 };
        self.gate = Gate {
            // planted: Group 0 of a GICv2 guest is not delivered
            group0: all_if(self.version == GicVersion::V2 && value & ENABLE_GROUP0 != 0),
            group1: all_if(value & ENABLE_GROUP1 != 0),
        };
        self.touch_all()
    }

    /// Returns which SPI an access to GICD_IROUTER is about, and whether its upper half.
    fn irouter_place(&self, offset: u64, size_log2: u8) -> Option<(usize, u32, bool)> {
        let aligned = match size_log2 {
            DOUBLEWORD => offset & 7 == 0,
            WORD => offset & 3 == 0,
            BYTE.. => false,
        };
        let intid = (offset >> 3 & 0x3ff) as usize;
        let index = intid >> 5;
        let upper = size_log2 == WORD && offset & 4 != 0;
        (aligned && self.exists(index)).then_some((index, 1 << (intid & 31), upper))
    }

    fn irouter_read(&self, offset: u64, size_log2: u8) -> u64 {
        let Some((index, bit, false)) = self.irouter_place(offset, size_log2) else {
            // Aff3 is RAZ/WI: GICD_TYPER.A3V = 0.
            return 0;
        };
        match self.spi(index).target_mask(bit) {
            0 => NOWHERE,
            mask => mask.trailing_zeros().into(),
        }
    }

    /// G1-GIC-010: an SPI routed to a PE that is not the VM's stays pending and is delivered to
    /// nobody.
    fn irouter_write(&mut self, offset: u64, size_log2: u8, value: u64) -> Kicks {
        let Some((index, bit, false)) = self.irouter_place(offset, size_log2) else {
            return Kicks::NONE;
        };
        let affinity = value & 0xff_ffff;
        let mask = if affinity < 8 {
            1_u8 << (affinity & 7)
        } else {
            // planted: an SPI to nowhere goes to the first vCPU
            0
        };
        self.spi_mut(index).set_target_mask(bit, mask);
        self.touch_spis(index, bit, Change::Any)
    }
}
