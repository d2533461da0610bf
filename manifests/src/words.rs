//! Bytes as whole words, of which one load takes many: a word of a slice of bytes would be loaded a
//! byte at a time, as no type says that it is aligned.

/// Returns the bytes before the first aligned word, the words, and the bytes behind.
#[expect(unsafe_code, reason = "core has no safe view of bytes as words")]
pub(crate) fn words(bytes: &[u8]) -> (&[u8], &[u64], &[u8]) {
    // SAFETY: any eight bytes are a `u64`.
    unsafe { bytes.align_to() }
}

/// Returns the bytes before the first aligned cell of four bytes, the cells, and the bytes behind.
#[expect(unsafe_code, reason = "core has no safe view of bytes as words")]
pub(crate) fn cells(bytes: &[u8]) -> (&[u8], &[u32], &[u8]) {
    // SAFETY: any four bytes are a `u32`.
    unsafe { bytes.align_to() }
}

/// Returns the bytes of cells.
#[expect(unsafe_code, reason = "core has no safe view of words as bytes")]
pub(crate) fn bytes(cells: &[u32]) -> &[u8] {
    // SAFETY: any byte of a `u32` is a `u8`, which may lie anywhere, so that all are in the middle.
    unsafe { cells.align_to().1 }
}

/// Tells whether all bytes are zeroes.
pub(crate) fn is_zero(bytes: &[u8]) -> bool {
    let (before, words, behind) = words(bytes);
    let (rounds, rest) = words.as_chunks::<8>();
    // Eight words at a time: the compiler, which saves bytes here, would loop over them.
    rounds
        .iter()
        .all(|[a, b, c, d, e, f, g, h]| a | b | c | d | e | f | g | h == 0)
        && rest.iter().all(|word| *word == 0)
        && before.iter().chain(behind).all(|&byte| byte == 0)
}

#[cfg(test)]
mod tests {
    //! Tests at each place of the one byte that decides.

    use super::is_zero;

    #[test]
    fn one_byte_decides_wherever_it_is() {
        for start in 0..8 {
            for end in start..100 {
                let mut bytes = [0_u8; 100];
                assert!(is_zero(&bytes[start..end]));
                for at in 0..100 {
                    bytes[at] = 0x80;
                    let is_inside = (start..end).contains(&at);
                    assert_eq!(is_zero(&bytes[start..end]), !is_inside);
                    bytes[at] = 0;
                }
            }
        }
    }
}
