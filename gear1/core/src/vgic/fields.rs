//! The registers that hold one field for each interrupt: at the same offsets
//! (0x080 to 0xeff) in the distributor and in a redistributor's SGI frame.
//!
//! IHI 0069, 12.9 and 12.11; IHI 0048, 4.3.

use super::types::{GicVersion, Kicks, VcpuIndex};
use super::{VmGic, Word};

/// log2 of the access sizes.
pub(super) const BYTE: u8 = 0;
pub(super) const WORD: u8 = 2;
pub(super) const DOUBLEWORD: u8 = 3;

/// Tells whether the register at `offset` (distributor or SGI frame) shows or changes what list
/// registers hold, so that [`VmGic::sync`] must come before the access.
pub const fn shows_list_registers(offset: u64) -> bool {
    matches!(offset & 0xffff, 0x200..=0x3ff | 0xf10..=0xf2f)
}

/// Through which frame the guest looks.
#[derive(Clone, Copy)]
pub(super) struct View {
    pub(super) vcpu: VcpuIndex,
    /// Bit n: word n is there.
    pub(super) words: u32,
}

impl View {
    fn has(self, index: usize) -> bool {
        // planted: registers of SPIs that are not there are there
        self.words >> (index & 31) & 1 != 0
    }

    /// Returns the register at `offset`, if the guest has it, and which word of 32 interrupts it
    /// concerns.
    fn field(self, offset: u64, size_log2: u8) -> Option<(Field, usize)> {
        Field::decode(offset, size_log2).filter(|(_, index)| self.has(*index))
    }
}

/// A register, or for IPRIORITYR and ITARGETSR a byte or word of the array.
enum Field {
    Group,
    SetEnable,
    ClearEnable,
    SetPending,
    ClearPending,
    SetActive,
    ClearActive,
    /// First interrupt's number in the word.
    Priority(usize),
    /// First interrupt's number in the word.
    Targets(usize),
    /// Upper half of the word.
    Config(bool),
}

impl Field {
    /// Returns the register at `offset`, and which word of 32 interrupts it concerns.
    fn decode(offset: u64, size_log2: u8) -> Option<(Self, usize)> {
        let offset = offset as usize;
        let by_byte = (offset >> 5 & 31, offset & 31);
        let arrays = matches!(offset, 0x400..=0xbff);
        let is_word = offset & 3 == 0 && size_log2 == WORD;
        let is_byte = arrays && size_log2 == BYTE;
        if !(is_word || is_byte) {
            return None;
        }
        let index = offset >> 2 & 31;
        Some(match offset >> 7 {
            1 => (Self::Group, index),
            2 => (Self::SetEnable, index),
            3 => (Self::ClearEnable, index),
            4 => (Self::SetPending, index),
            5 => (Self::ClearPending, index),
            6 => (Self::SetActive, index),
            7 => (Self::ClearActive, index),
            8..=15 => (Self::Priority(by_byte.1), by_byte.0),
            16..=23 => (Self::Targets(by_byte.1), by_byte.0),
            24..=25 => (Self::Config(offset & 4 != 0), offset >> 3 & 31),
            // GICD_IGRPMODR and GICD_NSACR are RAZ/WI with DS = 1.
            _ => return None,
        })
    }
}

impl VmGic {
    /// Reads a field register. G1-GIC-002: absent fields are RAZ.
    pub(super) fn field_read(&self, view: View, offset: u64, size_log2: u8) -> u64 {
        let Some((field, index)) = view.field(offset, size_log2) else {
            return 0;
        };
        let word = self.word(view.vcpu, index);
        let value = match field {
            Field::Group => word.group1,
            Field::SetEnable | Field::ClearEnable => word.enabled,
            Field::SetPending | Field::ClearPending => word.pending(),
            Field::SetActive | Field::ClearActive => word.active,
            Field::Priority(first) => word.priorities(first, size_log2),
            Field::Targets(first) => self.targets_read(view, index, first, size_log2),
            Field::Config(upper) => spread(word.edge >> if upper { 16 } else { 0 }) << 1,
        };
        value.into()
    }

    /// Writes a field register. G1-GIC-002: absent fields are WI.
    pub(super) fn field_write(
        &mut self,
        view: View,
        offset: u64,
        size_log2: u8,
        value: u64,
    ) -> Kicks {
        let Some((field, index)) = view.field(offset, size_log2) else {
            return Kicks::NONE;
        };
        let vcpu = view.vcpu;
        let bits = value as u32;
        // SGIs of a GICv2 are made pending by the vCPU that sends them only.
        let latched = match (self.version, index) {
            (GicVersion::V2, 0) => bits & 0xffff_0000,
            (GicVersion::V2 | GicVersion::V3, _) => bits,
        };
        let word = self.word_mut(vcpu, index);
        let changed = match field {
            Field::Group => core::mem::replace(&mut word.group1, bits) ^ bits,
            Field::SetEnable => {
                word.enabled |= bits;
                bits
            }
            Field::ClearEnable => {
                word.enabled &= !bits;
                bits
            }
            Field::SetPending => return self.set_pending(vcpu, index, latched),
            Field::ClearPending => return self.clear_pending(vcpu, index, latched),
            Field::SetActive => return self.set_active(vcpu, index, bits),
            Field::ClearActive => return self.clear_active(vcpu, index, bits),
            Field::Priority(first) => word.set_priorities(first, size_log2, bits),
            Field::Targets(first) => {
                return self.targets_write(view, index, first, size_log2, bits);
            }
            Field::Config(upper) => word.set_config(upper, bits, index == 0),
        };
        self.touch(vcpu, index, changed)
    }

    /// Reads GICD_ITARGETSR. Those of SGIs and PPIs show who reads; with one vCPU all are RAZ/WI.
    fn targets_read(&self, view: View, index: usize, first: usize, size_log2: u8) -> u32 {
        if !self.has_targets() {
            return 0;
        }
        if index == 0 {
            return pack(size_log2, |_| view.vcpu.bit());
        }
        let spi = self.spi(index);
        pack(size_log2, |at| {
            spi.target_mask(1 << (first.wrapping_add(at) & 31))
        })
    }

    /// Writes GICD_ITARGETSR. Bits of vCPUs that do not exist are RAZ/WI.
    fn targets_write(
        &mut self,
        view: View,
        index: usize,
        first: usize,
        size_log2: u8,
        value: u32,
    ) -> Kicks {
        if index == 0 || !self.has_targets() {
            return Kicks::NONE;
        }
        let everybody = self.everybody();
        let spi = self.spi_mut(index);
        // Bound: 4 bytes of a word.
        for (at, mask) in unpack(size_log2, value) {
            spi.set_target_mask(1 << (first.wrapping_add(at) & 31), mask & everybody);
        }
        self.touch(view.vcpu, index, 0xf << (first & 31))
    }

    fn has_targets(&self) -> bool {
        self.is_v2() && self.vcpu_count > 1
    }
}

impl Word {
    fn priorities(&self, first: usize, size_log2: u8) -> u32 {
        pack(size_log2, |at| {
            self.priority
                .get(first.wrapping_add(at))
                .copied()
                .unwrap_or(0)
        })
    }

    fn set_priorities(&mut self, first: usize, size_log2: u8, value: u32) -> u32 {
        // Bound: 4 bytes of a word.
        for (at, byte) in unpack(size_log2, value) {
            self.set_priority(first.wrapping_add(at), byte);
        }
        0xf << (first & 31)
    }

    /// Sets trigger modes. SGIs stay edge-triggered.
    fn set_config(&mut self, upper: bool, value: u32, private: bool) -> u32 {
        let edges = gather(value >> 1);
        if upper {
            self.edge = self.edge & 0xffff | edges << 16;
        } else if !private {
            self.edge = self.edge & 0xffff_0000 | edges;
        }
        u32::MAX
    }
}

/// Returns how many one-byte fields an access has.
fn byte_count(size_log2: u8) -> usize {
    if size_log2 == WORD { 4 } else { 1 }
}

/// Builds the value of an access to one-byte fields.
pub(super) fn pack(size_log2: u8, byte_at: impl Fn(usize) -> u8) -> u32 {
    let mut value = 0;
    // Bound: 4 bytes of a word.
    for at in 0..byte_count(size_log2) {
        value |= u32::from(byte_at(at)) << (at.wrapping_mul(8) & 31);
    }
    value
}

/// Returns the one-byte fields of an access.
pub(super) fn unpack(size_log2: u8, value: u32) -> impl Iterator<Item = (usize, u8)> {
    (0..byte_count(size_log2)).zip(value.to_le_bytes())
}

/// Moves bit n of the lower half to bit 2n.
fn spread(half: u32) -> u32 {
    let x = half & 0xffff;
    let x = (x | x << 8) & 0x00ff_00ff;
    let x = (x | x << 4) & 0x0f0f_0f0f;
    let x = (x | x << 2) & 0x3333_3333;
    (x | x << 1) & 0x5555_5555
}

/// Moves bit 2n to bit n.
fn gather(value: u32) -> u32 {
    let x = value & 0x5555_5555;
    let x = (x | x >> 1) & 0x3333_3333;
    let x = (x | x >> 2) & 0x0f0f_0f0f;
    let x = (x | x >> 4) & 0x00ff_00ff;
    (x | x >> 8) & 0xffff
}
