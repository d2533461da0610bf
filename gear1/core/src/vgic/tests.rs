//! Tests of the virtual GIC: registers one by one, list registers case by case,
//! and random operations against an executable reference.

mod fake;
mod gicv2;
mod list_registers;
mod random;
mod registers;
mod unloaded;

use super::{GicVersion, IntId, VcpuIndex, VmGic};
use std::boxed::Box;

const BYTE: u8 = 0;
const HALF: u8 = 1;
const WORD: u8 = 2;
const DOUBLEWORD: u8 = 3;
/// Offset of a redistributor's SGI frame.
const SGI: u64 = 0x1_0000;

fn v(index: usize) -> VcpuIndex {
    VcpuIndex::new(index).unwrap()
}

fn id(number: u32) -> IntId {
    IntId::new(number).unwrap()
}

/// A GIC as a guest sets it up: groups enabled, every interrupt enabled and in Group 1 (v3),
/// priority 0xa0.
fn ready(version: GicVersion, vcpus: usize, spis: usize) -> Box<VmGic> {
    let mut gic = Box::new(VmGic::new());
    gic.configure(version, vcpus, spis);
    let _ = gic.distributor_write(v(0), 0, WORD, 3);
    for index in 0..=spis / 32 {
        for vcpu in (0..vcpus).map(v) {
            let _ = field_write(&mut gic, vcpu, 0x100, index, u32::MAX);
            if version == GicVersion::V3 {
                let _ = field_write(&mut gic, vcpu, 0x80, index, u32::MAX);
            }
            for word in 0..8 {
                let _ = field_write(&mut gic, vcpu, 0x400, index * 8 + word, 0xa0a0_a0a0);
            }
        }
    }
    gic
}

/// Returns the offset of word `index` of the register array at `base`, and whether it is in the SGI
/// frame.
fn locate(gic: &VmGic, base: u64, index: usize) -> (bool, u64) {
    let words_per_32 = match base {
        0x400 | 0x800 => 8,
        0xc00 => 2,
        _ => 1,
    };
    let is_private = gic.version == GicVersion::V3 && index < words_per_32;
    (is_private, base + 4 * index as u64)
}

/// Writes a word of a register array through whichever frame has it.
fn field_write(
    gic: &mut VmGic,
    vcpu: VcpuIndex,
    base: u64,
    index: usize,
    value: u32,
) -> super::Kicks {
    match locate(gic, base, index) {
        (true, offset) => gic.redistributor_write(vcpu, SGI + offset, WORD, value.into()),
        (false, offset) => gic.distributor_write(vcpu, offset, WORD, value.into()),
    }
}

/// Reads a word of a register array through whichever frame has it.
fn field_read(gic: &VmGic, vcpu: VcpuIndex, base: u64, index: usize) -> u32 {
    let value = match locate(gic, base, index) {
        (true, offset) => gic.redistributor_read(vcpu, SGI + offset, WORD),
        (false, offset) => gic.distributor_read(vcpu, offset, WORD),
    };
    u32::try_from(value).unwrap()
}
