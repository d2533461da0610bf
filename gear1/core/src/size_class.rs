//! Sizes of the blocks that a heap gives out: four for each power of two, so that a block is at most
//! a quarter larger than what was asked for, and a list of free blocks for each size suffices.
//!
//! Requirements: G1-BOOT-008.

#[cfg(test)]
mod tests;

/// Number of sizes.
pub const CLASSES: usize = 64;
/// Bytes of the smallest block, and the multiple that all sizes are.
pub const UNIT: usize = 16;
/// Binary logarithm of the size up to which sizes are all multiples of [`UNIT`].
const LINEAR: u32 = 6;

/// A size of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SizeClass {
    /// Number of the size, below [`CLASSES`].
    pub index: usize,
    /// Bytes of a block.
    pub bytes: usize,
}

impl SizeClass {
    /// Returns the smallest size of at least `size` bytes; `None`: there is none so large.
    #[must_use]
    #[inline]
    pub const fn of(size: usize) -> Option<Self> {
        let last = size.saturating_sub(1);
        if last >> LINEAR == 0 {
            let index = last / UNIT;
            let bytes = index.wrapping_add(1).wrapping_mul(UNIT);
            return Some(Self { index, bytes });
        }
        let exponent = last.ilog2();
        // The two bits behind the highest choose among the four sizes of a power of two.
        let shift = exponent.wrapping_sub(2);
        let quarters = last >> shift;
        let above = exponent.wrapping_sub(LINEAR) as usize;
        let index = above.wrapping_mul(4).wrapping_add(quarters);
        if index >= CLASSES {
            return None;
        }
        let bytes = quarters.wrapping_add(1).wrapping_shl(shift);
        Some(Self { index, bytes })
    }
}
