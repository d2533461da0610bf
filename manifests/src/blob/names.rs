//! Bits that stand for names of properties and for compatible strings, by which an index says what a
//! node has not.

/// Strings of which one is looked for in `compatible`, with their bits, which are made by the
/// compiler for constants.
#[derive(Clone, Copy, Debug)]
pub struct Texts {
    texts: &'static [&'static str],
    bits: u32,
}

impl Texts {
    /// Returns the strings with their bits.
    #[must_use]
    pub const fn new(texts: &'static [&'static str]) -> Self {
        let (mut bits, mut rest) = (0, texts);
        while let [first, behind @ ..] = rest {
            bits |= name_bit(first.as_bytes());
            rest = behind;
        }
        Self { texts, bits }
    }

    /// Iterates over the strings.
    pub fn iter(&self) -> impl Iterator<Item = &'static str> + use<> {
        self.texts.iter().copied()
    }

    /// Tells whether a text is one of the strings.
    #[must_use]
    pub fn contains(&self, text: &[u8]) -> bool {
        // Of most texts the bits say that they are none.
        self.bits & name_bit(text) != 0 && self.iter().any(|one| one.as_bytes() == text)
    }

    /// Returns the bits of all.
    #[inline(always)]
    pub(super) const fn bits(&self) -> u32 {
        self.bits
    }
}

/// Returns the bit that stands for a name, and for others: by its length and both ends, in which
/// the names of one node differ.
#[inline(always)]
pub(super) const fn name_bit(name: &[u8]) -> u32 {
    let (first, last) = match name {
        [] => (0, 0),
        [only] => (*only, *only),
        [first, .., last] => (*first, *last),
    };
    let sum = name.len() as u32 * 5 + first as u32 + last as u32 * 3;
    1 << (sum % u32::BITS)
}
