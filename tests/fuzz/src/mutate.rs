//! Seeded mutations: the same in every run.
//!
//! libFuzzer searches by coverage, and is not part of stable Rust. These mutations search blindly,
//! and cost seconds: they find what breaks near the corpus, such as a length that is one too large.

/// Numbers that look random (xorshift64*).
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

/// Values at which parsers change their minds. Zero, small counts, versions and tokens of device
/// trees, a page, and the ends of signed and unsigned numbers.
const EDGES: [u32; 12] = [
    0,
    1,
    2,
    3,
    4,
    9,
    0x10,
    0x1000,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_fffc,
    u32::MAX,
];

impl Random {
    /// Spreads the seed, so that seeds that follow each other begin apart. The state is never 0,
    /// which xorshift keeps.
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// The upper bits, which are the better ones of this generator.
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        (self.next() >> 33) as usize % limit.max(1)
    }
}

/// Returns the bytes with a few of them changed, moved, repeated or cut off. Up to four changes at
/// once: many rules need two that agree.
pub(crate) fn mutated(bytes: &[u8], random: &mut Random) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for _ in 0..=random.below(4) {
        let at = random.below(bytes.len());
        match random.below(8) {
            0 => bytes.truncate(at),
            1 if !bytes.is_empty() => bytes[at] ^= 1 << random.below(8),
            2 if !bytes.is_empty() => bytes[at] = random.next() as u8,
            3 => repeat(&mut bytes, at, random),
            4 => drop(bytes.drain(at..(at + random.below(32)).min(bytes.len()))),
            kind => replace_word(&mut bytes, at & !3, kind, random),
        }
    }
    bytes
}

/// Copies a piece somewhere else.
fn repeat(bytes: &mut Vec<u8>, at: usize, random: &mut Random) {
    let rest = bytes.iter().skip(at);
    let piece: Vec<u8> = rest.take(random.below(32)).copied().collect();
    let to = random.below(bytes.len() + 1);
    bytes.splice(to..to, piece);
}

/// Replaces a word by an edge of either endianness, or by any word. Device trees are big-endian,
/// and everything else little-endian.
fn replace_word(bytes: &mut [u8], at: usize, kind: usize, random: &mut Random) {
    let edge = EDGES[random.below(EDGES.len())];
    let word = match kind {
        5 => edge.to_be_bytes(),
        6 => edge.to_le_bytes(),
        _ => (random.next() as u32).to_le_bytes(),
    };
    for (slot, byte) in bytes.iter_mut().skip(at).zip(word) {
        *slot = byte;
    }
}
