//! Seeds for guests: a block of ChaCha20 (RFC 8439) for each start of a VM, keyed with the
//! firmware's seed, so that no guest learns another's seed, its own next one, or the machine's from
//! its own.
//!
//! Init makes the seed of a VM's first start, and the runtime that of each later one when the start
//! comes: most VMs start once.
//!
//! Requirements: G1-BOOT-007.

#[cfg(test)]
mod tests;

/// Bytes for a guest's `rng-seed` and `kaslr-seed`: 32 and 8, as Linux wants them.
pub const SEED_SIZE: usize = 40;
/// Double rounds: columns, then diagonals.
const DOUBLE_ROUNDS: usize = 10;

/// A key (RFC 8439, 2.3), in words.
pub type Key = [u32; 8];
/// A row of a block: four words.
type Row = [u32; 4];
/// Words of a block, a row after the other (RFC 8439, 2.3).
type Block = [Row; 4];

/// Returns the key for a machine with this seed. A seed that is longer than the key is folded into
/// it by XOR, which loses nothing of a seed whose bytes are independent.
#[must_use]
pub fn key(machine: &[u8]) -> Key {
    let mut folded = [0; size_of::<Key>()];
    // Bounded: bytes of the seed. Init alone makes a key.
    for part in machine.chunks(folded.len()) {
        for (slot, byte) in folded.iter_mut().zip(part) {
            *slot ^= *byte;
        }
    }
    let mut key = Key::default();
    for (slot, word) in key.iter_mut().zip(folded.as_chunks().0) {
        *slot = u32::from_le_bytes(*word);
    }
    key
}

/// The seed of one start of a VM.
#[derive(Clone, Copy, Debug)]
pub struct Start<'k> {
    /// The machine's key.
    pub key: &'k Key,
    /// The VM: its `VmId`.
    pub vm: u32,
    /// How often the VM was started before.
    pub number: u32,
}

impl Start<'_> {
    /// Returns the seed.
    #[must_use]
    pub fn seed(&self) -> [u8; SEED_SIZE] {
        // planted: every start has the same seed
        let block = block(self.key, self.number, [self.vm, 0, 0]);
        let bytes = block.map(|row| row.map(u32::to_le_bytes));
        let mut seed = [0; SEED_SIZE];
        for (slot, byte) in seed.iter_mut().zip(bytes.as_flattened().as_flattened()) {
            *slot = *byte;
        }
        seed
    }
}

/// Returns a block of the key stream (RFC 8439, 2.3).
fn block(key: &Key, counter: u32, nonce: [u32; 3]) -> Block {
    let [k0, k1, k2, k3, k4, k5, k6, k7] = *key;
    let [n0, n1, n2] = nonce;
    let start: Block = [
        [0x6170_7865, 0x3320_646e, 0x7962_2d32, 0x6b20_6574],
        [k0, k1, k2, k3],
        [k4, k5, k6, k7],
        [counter, n0, n1, n2],
    ];
    let mut state = start;
    // Bound: DOUBLE_ROUNDS (10).
    for _ in 0..DOUBLE_ROUNDS {
        columns(&mut state);
        let [_, b, c, d] = &mut state;
        // Turned rows make a diagonal a column.
        (*b, *c, *d) = (turned(*b), turned(turned(*c)), turned(turned(turned(*d))));
        columns(&mut state);
        let [_, b, c, d] = &mut state;
        (*b, *c, *d) = (turned(turned(turned(*b))), turned(turned(*c)), turned(*d));
    }
    let words = state.as_flattened_mut().iter_mut();
    // Bound: words of a block (16).
    for (word, start) in words.zip(start.as_flattened()) {
        *word = word.wrapping_add(*start);
    }
    state
}

/// Does the quarter round of each column (RFC 8439, 2.1).
fn columns([a, b, c, d]: &mut Block) {
    // Bound: columns (4).
    for (((a, b), c), d) in a.iter_mut().zip(b).zip(c).zip(d) {
        let step = |x: &mut u32, y: u32, z: &mut u32, turn: u32| {
            *x = x.wrapping_add(y);
            *z = (*z ^ *x).rotate_left(turn);
        };
        step(a, *b, d, 16);
        step(c, *d, b, 12);
        step(a, *b, d, 8);
        step(c, *d, b, 7);
    }
}

/// Returns a row that begins with its second word.
const fn turned([w0, w1, w2, w3]: Row) -> Row {
    [w1, w2, w3, w0]
}
