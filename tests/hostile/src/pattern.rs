//! Data of an honest driver: each block tells what it must hold.
//!
//! A block that is partly of one write and partly of another is found, and so is one at another
//! block's place.

/// Bytes of a block.
pub const BLOCK: u64 = 4096;
/// Words of a block.
pub const WORDS: usize = (BLOCK / 8) as usize;

/// Returns the first word of a block that is written for the `writes`th time.
#[must_use]
pub const fn first_word(block: u64, writes: u32) -> u64 {
    block << 32 | writes as u64
}

/// Returns a word of the block that begins with `first`.
#[must_use]
pub const fn word(first: u64, index: usize) -> u64 {
    first.wrapping_add((index as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

/// Returns whether `words` are one of the values written to the block.
pub fn is_whole(block: u64, mut words: impl Iterator<Item = u64>) -> bool {
    let Some(first) = words.next() else {
        return false;
    };
    let mut rest = (1..).zip(words);
    first >> 32 == block && rest.all(|(index, found)| found == word(first, index))
}
