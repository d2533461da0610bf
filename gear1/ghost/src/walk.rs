//! Stage-2 tables as the architecture reads them (Arm ARM D8.3): what maps an address, and what may
//! be done there (G1-MEM-016).
//!
//! Pages of 4 KiB alone, as Gear1 has them. The caller reads the words: on the host out of a model
//! of memory, in the checking image through Gear1's pool of tables, under the lock over them.

use super::Checked;

/// Bits 47:12 of a descriptor: the address of a table, a block or a page.
const ADDRESS: u64 = 0xffff_ffff_f000;
/// Access right: read.
pub const READ: u8 = 1;
/// Access right: write.
pub const WRITE: u8 = 2;
/// Access right: execute.
pub const EXECUTE: u8 = 4;

/// A VM's stage 2: VTCR_EL2, and the physical address of its root.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tree {
    /// VTCR_EL2.
    pub vtcr: u64,
    /// First root table (PA).
    pub root: u64,
}

/// Result of a walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// Physical address of the IPA, if the IPA is mapped.
    pub pa: Option<u64>,
    /// Access rights.
    pub access: u8,
    /// Software bits of the descriptor, valid or not: [`crate::owner`].
    pub owner: u8,
    /// Size of the range that the last descriptor maps.
    pub size: u64,
    /// Last descriptor of the walk.
    pub descriptor: u64,
}

/// The table of pages that the last walk came to, and which 2 MiB of addresses it maps. Most walks
/// go to the page behind the last one, and need one word of the same table.
#[derive(Clone, Copy, Debug, Default)]
pub struct Last {
    span: u64,
    /// 0: none.
    table: u64,
}

impl Last {
    /// Returns that table (PA), if there is one.
    pub(crate) const fn table(&self) -> Option<u64> {
        match self.table {
            0 => None,
            table => Some(table),
        }
    }

    /// Returns where that table's descriptor of `ipa` is (PA), if it has one.
    pub fn entry(&self, ipa: u64) -> Option<u64> {
        let is_here = self.table != 0 && self.span == ipa >> shift(2);
        is_here.then(|| self.table + 8 * (ipa >> 12 & 0x1ff))
    }
}

impl Tree {
    /// Returns the level of the root (VTCR_EL2.SL0), and its entries (T0SZ).
    fn root_level(self) -> (u32, u64) {
        let level = match self.vtcr >> 6 & 3 {
            0 => 2,
            1 => 1,
            _ => 0,
        };
        let bits = 64_u64.saturating_sub(self.vtcr & 0x3f);
        // Tables of the root lie behind each other, so there may be more than 512.
        let entries = 1_u64.wrapping_shl((bits as u32).saturating_sub(shift(level)));
        (level, entries)
    }

    /// Calls `visit` with each address (IPA) that something is mapped at, where that is (PA), and
    /// how large. Keeps a place in one table of each level, instead of calling itself.
    pub fn each_leaf(
        self,
        read: &mut impl FnMut(u64) -> u64,
        visit: &mut impl FnMut(u64, u64, u64) -> Checked,
    ) -> Checked {
        let (root, entries) = self.root_level();
        let (mut tables, mut at) = ([0; 4], [0_u64; 4]);
        let mut level = root;
        tables[level as usize] = self.root;
        loop {
            let here = level as usize;
            if at[here] == if level == root { entries } else { 512 } {
                if level == root {
                    return Ok(());
                }
                level -= 1;
                at[level as usize] += 1;
                continue;
            }
            let descriptor = read(tables[here].wrapping_add(at[here] * 8));
            if descriptor & 1 == 0 {
                at[here] += 1;
                continue;
            }
            if level < 3 && descriptor & 3 == 3 {
                level += 1;
                tables[level as usize] = descriptor & ADDRESS;
                at[level as usize] = 0;
                continue;
            }
            let ipa = (root..=level).fold(0, |ipa, level| ipa | at[level as usize] << shift(level));
            let found = leaf(level, ipa, descriptor);
            if let Some(pa) = found.pa {
                visit(ipa, pa, found.size)?;
            }
            at[here] += 1;
        }
    }

    /// Walks to `ipa`, by way of `last` if the address is in the same table of pages. `read` reads
    /// the word at a physical address in a table, none of which changes as long as `last` is used.
    pub fn walk(self, ipa: u64, last: &mut Last, read: &mut impl FnMut(u64) -> u64) -> Found {
        let span = ipa >> shift(2);
        if let Some(at) = last.entry(ipa) {
            return leaf(3, ipa, read(at));
        }
        let (mut level, entries) = self.root_level();
        let mut index = ipa >> shift(level) & entries.wrapping_sub(1);
        let mut table = self.root;
        loop {
            let descriptor = read(table.wrapping_add(index.wrapping_mul(8)));
            let is_table = level < 3 && descriptor & 3 == 3;
            if is_table {
                table = descriptor & ADDRESS;
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

/// Reads a descriptor that is no table's. An invalid one maps nothing, and has its software bits
/// all the same: Gear1 notes there who owns what it has taken away.
fn leaf(level: u32, ipa: u64, descriptor: u64) -> Found {
    let size = 1_u64 << shift(level);
    let is_leaf = descriptor & 3 == if level == 3 { 3 } else { 1 };
    let pa = || descriptor & ADDRESS & !(size - 1) | ipa & (size - 1);
    Found {
        pa: is_leaf.then(pa),
        access: if is_leaf { access(descriptor) } else { 0 },
        owner: (descriptor >> 55 & 0xf) as u8,
        size,
        descriptor,
    }
}

/// Returns the rights of a descriptor: S2AP, and XN without FEAT_XNX.
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

/// Returns the lowest bit of an address that chooses an entry at this level, by which an entry's
/// size is known too.
const fn shift(level: u32) -> u32 {
    12 + 9 * (3 - level)
}
