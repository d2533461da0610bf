//! Virtual addresses of a guest's kernel: its stage-1 tables of the upper addresses (TTBR1_EL1), as
//! the guest has laid them out (Arm DDI 0487, D8.3).
//!
//! The tables are an allegation of the guest's: what lies outside of its RAM is left out, and the
//! number of tables that are read is bounded, since a table may lead back to itself.

use gear1_abi::call::vcpu_reg;
use vm_memory::{Bytes, GuestAddress};

use super::{Mapped, Registers};
use crate::memory::Memory;

/// Tables that are read: those of 32 GiB in pages of 4 KiB.
const MOST_TABLES: usize = 1 << 14;
/// Parts that are shown. A program header counts 65,535 of them, and two are others.
pub const MOST_PARTS: usize = 1 << 14;
/// SCTLR_EL1.M.
const MMU_ON: u64 = 1;
/// TCR_EL1.EPD1.
const NO_WALKS: u64 = 1 << 23;
/// TCR_EL1.DS: descriptors of 52-bit addresses, which are laid out otherwise.
const WIDE: u64 = 1 << 59;
/// Bits of an output address.
const ADDRESS: u64 = 0xffff_ffff_f000;

/// A walk through the tables.
#[derive(Debug)]
struct Walk<'a> {
    memory: &'a Memory,
    /// Guest-physical address of the RAM, and the first one behind it.
    ram: [u64; 2],
    /// log2 of the granule's bytes.
    page_bits: u32,
    tables_left: usize,
    parts: Vec<Mapped>,
}

/// Returns where a vCPU's kernel sees the RAM, in the order of the virtual addresses.
pub fn mapped(memory: &Memory, (ipa, size): (u64, u64), registers: &Registers) -> Vec<Mapped> {
    let tcr = registers[vcpu_reg::TCR];
    let Some(page_bits) = page_bits(tcr) else {
        return Vec::new();
    };
    let va_bits = 64 - (tcr >> 16 & 0x3f) as u32;
    let is_on = registers[vcpu_reg::SCTLR] & MMU_ON != 0 && tcr & (NO_WALKS | WIDE) == 0;
    if !is_on || !(page_bits + 1..=48).contains(&va_bits) {
        return Vec::new();
    }
    let mut walk = Walk::new(memory, [ipa, ipa.saturating_add(size)], page_bits);
    let levels = (va_bits - page_bits).div_ceil(page_bits - 3);
    let shift = page_bits + (levels - 1) * (page_bits - 3);
    let entries = 1 << (va_bits - shift);
    // A first table that is smaller than a page is aligned to its size, and to 64 bytes.
    let alignment = (entries * 8).max(64) as u64;
    let table = registers[vcpu_reg::TTBR1] & 0xffff_ffff_ffff & !(alignment - 1);
    walk.table(table, entries, shift, u64::MAX << va_bits);
    walk.parts
}

/// Returns log2 of the granule's bytes by TCR_EL1.TG1; `None` for the value that is reserved (Arm
/// ARM D19.2, TCR_EL1). The encoding differs from that of TG0.
fn page_bits(tcr: u64) -> Option<u32> {
    match tcr >> 30 & 3 {
        1 => Some(14),
        2 => Some(12),
        3 => Some(16),
        _ => None,
    }
}

impl<'a> Walk<'a> {
    /// Begins a walk. The number of tables is limited: a guest's tables may lead to themselves.
    fn new(memory: &'a Memory, ram: [u64; 2], page_bits: u32) -> Self {
        Self {
            memory,
            ram,
            page_bits,
            tables_left: MOST_TABLES,
            parts: Vec::new(),
        }
    }

    /// Walks a table whose entries each stand for `1 << shift` bytes, from the address `va` on.
    fn table(&mut self, table: u64, entries: usize, shift: u32, va: u64) {
        let mut bytes = vec![0; entries * 8];
        let read = self.memory.read_slice(&mut bytes, GuestAddress(table));
        // planted: a table that leads to itself is read for ever
        if self.tables_left == 0 || read.is_err() {
            return;
        }
        self.tables_left -= 1;
        for (index, entry) in (0_u64..).zip(bytes.chunks_exact(8)) {
            let entry = u64::from_le_bytes(entry.try_into().unwrap_or_default());
            let va = va.wrapping_add(index << shift);
            let is_last = shift == self.page_bits;
            match (entry & 3, is_last) {
                (0b11, true) => self.add(va, entry, shift),
                (0b01, false) => self.add(va, entry, shift),
                (0b11, false) => {
                    let next = entry & ADDRESS & !((1 << self.page_bits) - 1);
                    let entries = 1 << (self.page_bits - 3);
                    self.table(next, entries, shift - (self.page_bits - 3), va);
                }
                _ => {}
            }
        }
    }

    /// Adds a page or a block, as far as RAM is behind it.
    fn add(&mut self, va: u64, entry: u64, shift: u32) {
        let size = 1 << shift;
        let pa = entry & ADDRESS & !(size - 1);
        let [start, end] = self.ram;
        let (first, behind) = (pa.max(start), pa.saturating_add(size).min(end));
        if first >= behind {
            return;
        }
        let (va, size) = (va.wrapping_add(first - pa), behind - first);
        let is_next = |last: &Mapped| {
            last.va.wrapping_add(last.size) == va && last.pa.wrapping_add(last.size) == first
        };
        let has_room = self.parts.len() < MOST_PARTS;
        match self.parts.last_mut() {
            Some(last) if is_next(last) => last.size += size,
            _ if has_room => self.parts.push(Mapped {
                va,
                pa: first,
                size,
            }),
            _ => {}
        }
    }
}
