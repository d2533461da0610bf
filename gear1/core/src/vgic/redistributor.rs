//! A vCPU's redistributor: RD frame and SGI frame (IHI 0069, 12.10 and 12.11).
//!
//! Requirements: G1-GIC-002.

use super::VmGic;
use super::distributor::{IIDR_VALUE, identification};
use super::fields::{DOUBLEWORD, View, WORD};
use super::types::{Kicks, VcpuIndex};

const IIDR: u64 = 0x0004;
const TYPER: u64 = 0x0008;
const TYPER_UPPER: u64 = 0x000c;
const WAKER: u64 = 0x0014;
const SGI_FRAME: u64 = 0x1_0000;

const TYPER_LAST: u64 = 1 << 4;
const PROCESSOR_SLEEP: u64 = 1 << 1;
const CHILDREN_ASLEEP: u64 = 1 << 2;
/// Part number, low byte, of a redistributor.
const PART: u32 = 0x93;

impl VmGic {
    /// Emulates a guest's read at `offset` (0 to 0x1_ffff) of the redistributor of `target`.
    pub fn redistributor_read(&self, target: VcpuIndex, offset: u64, size_log2: u8) -> u64 {
        match (offset, size_log2) {
            (TYPER, DOUBLEWORD) => self.redistributor_typer(target),
            (TYPER, WORD) => self.redistributor_typer(target) & 0xffff_ffff,
            (TYPER_UPPER, WORD) => self.redistributor_typer(target) >> 32,
            (IIDR, WORD) => IIDR_VALUE.into(),
            (WAKER, WORD) => {
                let asleep = PROCESSOR_SLEEP | CHILDREN_ASLEEP;
                if self.vcpu(target).asleep { asleep } else { 0 }
            }
            // GICR_CTLR, STATUSR, PROPBASER, PENDBASER: nothing without LPIs.
            (0xffd0..=0xffff, WORD) => identification(offset, PART, 3).into(),
            (0x1_0080..=0x1_0eff, _) => {
                let offset = offset & (SGI_FRAME - 1);
                self.field_read(private_view(target), offset, size_log2)
            }
            _ => 0,
        }
    }

    /// Emulates a guest's write at `offset` (0 to 0x1_ffff) of the redistributor of `target`.
    ///
    /// GICR_WAKER is kept and holds nothing back: a vCPU that is off takes no interrupts anyway.
    pub fn redistributor_write(
        &mut self,
        target: VcpuIndex,
        offset: u64,
        size_log2: u8,
        value: u64,
    ) -> Kicks {
        match (offset, size_log2) {
            (WAKER, WORD) => {
                self.vcpu_mut(target).asleep = value & PROCESSOR_SLEEP != 0;
                Kicks::NONE
            }
            (0x1_0080..=0x1_0eff, _) => {
                let offset = offset & (SGI_FRAME - 1);
                self.field_write(private_view(target), offset, size_log2, value)
            }
            _ => Kicks::NONE,
        }
    }

    /// Affinity 0.0.0.n, Processor_Number n; Last at the highest vCPU.
    fn redistributor_typer(&self, target: VcpuIndex) -> u64 {
        let number = target.index() as u64;
        let is_last = number.wrapping_add(1) == u64::from(self.vcpu_count);
        number << 32 | number << 8 | if is_last { TYPER_LAST } else { 0 }
    }
}

fn private_view(vcpu: VcpuIndex) -> View {
    View { vcpu, words: 1 }
}
