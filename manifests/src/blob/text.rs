//! Texts that end in a NUL, looked at by cells: names of nodes and properties, and string lists.

use super::CELL;
use crate::words::cells;

/// Tells whether the name at the front of `names`, which ends in a NUL, is `name`.
#[inline(always)]
pub(super) fn is_name(names: &[u8], name: &str) -> bool {
    // Of most names a NUL is elsewhere already, so that few are compared.
    names.get(name.len()) == Some(&0) && names.starts_with(name.as_bytes())
}

/// Returns bits in the bytes of a word that are zero: bytes that borrow in the subtraction and have
/// no highest bit themselves. Bits may be set above a byte that is zero, too.
pub(super) const fn zero_bytes(word: u32) -> u32 {
    word.wrapping_sub(0x0101_0101) & !word & 0x8080_8080
}

/// Returns the number of bytes before the first that is zero, in a cell that was loaded with its
/// first byte as the lowest: bits above a zero byte do not matter.
pub(super) fn first_zero(cell: u32) -> Option<usize> {
    let zeros = zero_bytes(cell);
    (zeros != 0).then(|| zeros.trailing_zeros() as usize / 8)
}

/// Returns the number of bytes before the first NUL, `None` if there is no NUL.
pub(crate) fn text_length(bytes: &[u8]) -> Option<usize> {
    let (before, cells, behind) = cells(bytes);
    if let Some(length) = before.iter().position(|&byte| byte == 0) {
        return Some(length);
    }
    for (index, cell) in cells.iter().enumerate() {
        if let Some(length) = first_zero(u32::from_le(*cell)) {
            return Some(before.len() + index * CELL + length);
        }
    }
    let length = behind.iter().position(|&byte| byte == 0)?;
    Some(before.len() + size_of_val(cells) + length)
}

/// Returns the text of a name of a checked tree. Most names are looked at several times.
///
/// # Safety
///
/// The name is of a node or a property of a tree that [`Blob::new`](super::Blob::new) has made: the
/// check refuses names that are no text.
#[expect(unsafe_code, reason = "each name was read as text once, by the check")]
pub(super) unsafe fn checked_text(name: &[u8]) -> &str {
    debug_assert!(core::str::from_utf8(name).is_ok());
    // SAFETY: the caller's condition.
    unsafe { core::str::from_utf8_unchecked(name) }
}
