//! Stage-2 tables as the architecture reads them (Arm ARM D8.3): what maps an address, and what may
//! be done there (G1-MEM-016).

/// It can be read.
pub const READ: u8 = 1;
/// It can be written.
pub const WRITE: u8 = 2;
/// It can be executed.
pub const EXECUTE: u8 = 4;

/// A VM's stage 2: VTCR_EL2, and the physical address of its root.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tree {
    /// VTCR_EL2.
    pub vtcr: u64,
    /// The first root table (PA).
    pub root: u64,
}

/// What a walk finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// The physical address of the IPA, if it is mapped.
    pub pa: Option<u64>,
    /// What may be done there.
    pub access: u8,
    /// The size of what the last descriptor stands for.
    pub size: u64,
}

/// The table of pages that the last walk came to, and which 2 MiB of addresses it maps.
#[derive(Clone, Copy, Debug, Default)]
pub struct Last {
    span: u64,
    /// 0: none.
    table: u64,
}

impl Tree {
    /// Walks to `ipa`. `read` reads the word at a physical address in a table, none of which changes
    /// as long as `last` is used.
    pub fn walk(self, ipa: u64, last: &mut Last, read: &mut impl FnMut(u64) -> u64) -> Found {
        let span = ipa >> shift(2);
        if last.table != 0 && last.span == span {
            return leaf(3, ipa, read(last.table + 8 * (ipa >> 12 & 0x1ff)));
        }
        let mut level = match self.vtcr >> 6 & 3 {
            0 => 2,
            1 => 1,
            _ => 0,
        };
        let bits = 64_u64.saturating_sub(self.vtcr & 0x3f);
        // Tables of the root lie behind each other, so its index may have more than 9 bits.
        let mut index = (ipa & (1_u64.wrapping_shl(bits as u32)).wrapping_sub(1)) >> shift(level);
        let mut table = self.root;
        loop {
            let descriptor = read(table.wrapping_add(index.wrapping_mul(8)));
            let is_table = level < 3 && descriptor & 3 == 3;
            if is_table {
                table = descriptor & 0xffff_ffff_f000;
                level += 1;
                index = ipa >> shift(level) & 0x1ff;
                if level == 3 {
                    *last = Last { span, table };
                }
                continue;
            }
            return leaf(level, ipa, descriptor);
        }
    }
}

/// Reads a descriptor that is no table's.
fn leaf(level: u32, ipa: u64, descriptor: u64) -> Found {
    let size = 1_u64 << shift(level);
    let is_leaf = descriptor & 3 == if level == 3 { 3 } else { 1 };
    if !is_leaf {
        return Found {
            pa: None,
            access: 0,
            size,
        };
    }
    let output = descriptor & 0xffff_ffff_f000 & !(size - 1);
    Found {
        pa: Some(output | ipa & (size - 1)),
        access: access(descriptor),
        size,
    }
}

/// S2AP, and XN without FEAT_XNX.
fn access(descriptor: u64) -> u8 {
    let mut access = 0;
    for (bit, right) in [(6, READ), (7, WRITE)] {
        if descriptor >> bit & 1 != 0 {
            access |= right;
        }
    }
    if descriptor >> 54 & 1 == 0 {
        access |= EXECUTE;
    }
    access
}

/// The lowest bit of an address that chooses an entry at this level.
const fn shift(level: u32) -> u32 {
    12 + 9 * (3 - level)
}
