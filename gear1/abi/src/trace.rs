//! Rings of trace records: what a CPU trapped for, and when.
//!
//! Gear1 writes a ring for each CPU, while that CPU traces: a record for each exception from a
//! guest or from Gear2. Gear2 maps the rings and cannot write them. The newest records overwrite
//! the oldest; the position counts all that were ever written, so that a reader knows what it has
//! lost.
//!
//! A record holds no register of a guest but the syndrome of its exit: no value, no address.
//!
//! Requirements: G1-TRC-001, G1-TRC-002, G1-TRC-003.

use crate::exit::ExitReason;
use crate::id::{MAX_VCPUS, VcpuId};
use crate::layout::PAGE_SIZE;

/// Start of a ring; the records follow at once. Lies at the end of a page, so that the records
/// begin with the next one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Header {
    /// Bytes of records that were written since boot.
    pub position: u64,
    /// Bytes of the ring, a power of two, less 1.
    pub mask: u64,
    /// How records refer to the first vCPU.
    pub first_vcpu: u64,
    /// Distance between the references to two vCPUs that follow each other.
    pub vcpu_stride: u64,
    /// Zero.
    pub reserved: [u64; 4],
}

/// Bytes of a [`Header`].
pub const HEADER_SIZE: u64 = size_of::<Header>() as u64;
/// Words of a record: the physical counter; the syndrome in the upper half, the reference to the
/// vCPU in the lower one, zero for Gear2.
pub const RECORD_WORDS: usize = 2;
/// Bytes of a record.
pub const RECORD_SIZE: u64 = 8 * RECORD_WORDS as u64;
/// Newest records of a full ring that a reader leaves out at its old end: the writer may have begun
/// to overwrite them before its position says so.
pub const UNSAFE_RECORDS: u64 = 64;

/// Offset of the header from the start of a CPU's piece.
pub const HEADER_OFFSET: u64 = PAGE_SIZE - HEADER_SIZE;

/// Class in a syndrome that stands for an interrupt. No exception has it (Arm ARM, D24.2.40).
const INTERRUPT_CLASS: u32 = 0x3f;
/// Position of the class.
pub const CLASS_SHIFT: u32 = 26;
/// Syndrome of an interrupt whose INTID is not known. With a GICv3, the low 24 bits are the INTID.
pub const INTERRUPT: u32 = INTERRUPT_CLASS << CLASS_SHIFT;
/// INTID in the syndrome of an interrupt, and the one that says that it is not known.
const INTID: u32 = 0xff_ffff;

/// Why a CPU trapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// A physical interrupt; its INTID as it was pending, if that is known.
    Interrupt(Option<u32>),
    /// A synchronous exception, with the low half of ESR_EL2.
    Exception(u32),
}

/// A record, taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trap {
    /// Physical counter.
    pub time: u64,
    /// vCPU that ran; `None`: Gear2.
    pub vcpu: Option<VcpuId>,
    /// Why the CPU trapped.
    pub cause: Cause,
}

impl Header {
    /// Takes a record of this ring apart. `None`: it refers to no vCPU that can exist.
    #[must_use]
    pub fn decode(&self, [time, word]: [u64; RECORD_WORDS]) -> Option<Trap> {
        let (reference, syndrome) = (word & u64::from(u32::MAX), (word >> 32) as u32);
        let vcpu = match reference {
            0 => None,
            _ => Some(self.vcpu(reference)?),
        };
        Some(Trap {
            time,
            vcpu,
            cause: Cause::of(syndrome),
        })
    }

    /// Returns the vCPU that a reference is to.
    fn vcpu(&self, reference: u64) -> Option<VcpuId> {
        // planted: a record is taken for another vCPU's
        let distance = reference.checked_sub(self.first_vcpu)?;
        let number = distance.checked_div(self.vcpu_stride)?;
        let is_whole = number.checked_mul(self.vcpu_stride) == Some(distance);
        let number = usize::try_from(number).ok().filter(|_| is_whole)?;
        VcpuId::new(number).filter(|_| number < MAX_VCPUS)
    }
}

impl Cause {
    /// Returns what a syndrome says.
    #[must_use]
    pub const fn of(syndrome: u32) -> Self {
        if syndrome >> CLASS_SHIFT != INTERRUPT_CLASS {
            return Self::Exception(syndrome);
        }
        match syndrome & INTID {
            INTID => Self::Interrupt(None),
            intid => Self::Interrupt(Some(intid)),
        }
    }

    /// Returns the group of the exit.
    #[must_use]
    pub const fn group(self) -> Group {
        let Self::Exception(syndrome) = self else {
            return Group::Interrupts;
        };
        match syndrome >> CLASS_SHIFT {
            // A wait with a timeout (WFET, WFIT) is an instruction that guests do not have.
            0x01 if syndrome & 0b10 == 0 => Group::Waits,
            0x07 | 0x19 => Group::Fp,
            0x16 | 0x17 => Group::Calls,
            // planted: an exit is in another group than its reason
            0x20 | 0x24 => Group::Memory,
            _ => Group::Instructions,
        }
    }
}

/// Exits that a syndrome alone tells apart. Which reason of a group an exit had depends on
/// addresses and states that a record does not hold, so records and counters are compared by group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Group {
    /// HVC and SMC.
    Calls,
    /// Trapped instructions: registers, and what guests do not have.
    Instructions,
    /// Data and instruction aborts.
    Memory,
    /// WFI and WFE.
    Waits,
    /// FP, SIMD and SVE, also of a VM without SVE.
    Fp,
    /// Physical interrupts.
    Interrupts,
}

impl Group {
    /// All groups in numeric order.
    pub const ALL: [Self; 6] = [
        Self::Calls,
        Self::Instructions,
        Self::Memory,
        Self::Waits,
        Self::Fp,
        Self::Interrupts,
    ];

    /// Returns the group of the exits that are counted for a reason.
    #[must_use]
    pub const fn of(reason: ExitReason) -> Self {
        match reason {
            ExitReason::Hvc | ExitReason::Smc | ExitReason::HypercallGear2 => Self::Calls,
            ExitReason::Sysreg | ExitReason::Sgi | ExitReason::Undefined => Self::Instructions,
            ExitReason::MmioGic
            | ExitReason::MmioGear2
            | ExitReason::Abort
            | ExitReason::Channel
            | ExitReason::MmioPl061
            | ExitReason::PciConfig
            | ExitReason::Again => Self::Memory,
            ExitReason::Wfi | ExitReason::Wfe => Self::Waits,
            ExitReason::Fp => Self::Fp,
            ExitReason::Timer
            | ExitReason::IrqDirect
            | ExitReason::IrqOther
            | ExitReason::Kick
            | ExitReason::Deadline
            | ExitReason::Maintenance => Self::Interrupts,
        }
    }

    /// Returns the short name shown to people.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Calls => "calls",
            Self::Instructions => "instructions",
            Self::Memory => "memory",
            Self::Waits => "waits",
            Self::Fp => "fp",
            Self::Interrupts => "interrupts",
        }
    }
}

/// Returns the records that a reader at `cursor` can get from a ring of `size` bytes, both in bytes
/// of the position: the first one that is sure, and how many bytes were lost before.
#[must_use]
pub const fn readable(position: u64, size: u64, cursor: u64) -> (u64, u64) {
    let kept = size.saturating_sub(UNSAFE_RECORDS * RECORD_SIZE);
    let oldest = position.saturating_sub(kept);
    // A cursor ahead of the position is another boot's.
    let cursor = if cursor > position { position } else { cursor };
    if cursor < oldest {
        (oldest, oldest.wrapping_sub(cursor))
    } else {
        (cursor, 0)
    }
}

#[cfg(test)]
mod tests;
