//! Seeds for guests: ChaCha20 (RFC 8439) keyed with the firmware's seed, one nonce a VM and start,
//! so that no guest learns another's seed, its own next one, or the machine's from its own.
//!
//! Requirements: G1-BOOT-007.

#[cfg(test)]
mod tests;

/// Bytes for a guest's `rng-seed` and `kaslr-seed`: 32 and 8, as Linux wants them.
pub const SEED_SIZE: usize = 40;
/// Double rounds: columns, then diagonals.
const ROUNDS: usize = 10;
/// Bytes of a key (RFC 8439, 2.3).
const KEY_SIZE: usize = 32;

/// Returns the seed that VM `vm` gets with start `number`, from 0 on, on a machine with this seed.
/// A machine's seed that is longer than the key is folded into it.
#[must_use]
pub fn guest_seed(machine: &[u8], vm: u32, number: u32) -> [u8; SEED_SIZE] {
    // Folded by XOR, which loses nothing of a seed whose bytes are independent. A hash would need
    // code that nothing else in init has a use for.
    let mut key = [0_u8; KEY_SIZE];
    for (at, byte) in machine.iter().enumerate() {
        if let Some(slot) = key.get_mut(at % KEY_SIZE) {
            *slot ^= byte;
        }
    }
    // planted: every start has the same seed
    let block = block(&key, 0, [vm, number, 0]);
    let mut seed = [0; SEED_SIZE];
    for (slot, byte) in seed
        .iter_mut()
        .zip(block.iter().flat_map(|word| word.to_le_bytes()))
    {
        *slot = byte;
    }
    seed
}

/// Returns a block of the key stream (RFC 8439, 2.3). The counter stays 0: a seed is shorter than a
/// block, and VM and start are in the nonce.
fn block(key: &[u8; KEY_SIZE], counter: u32, nonce: [u32; 3]) -> [u32; 16] {
    let start = initial_state(key, counter, nonce);
    let mut state = start;
    if let ([a, b, c, d], []) = state.as_chunks_mut::<4>() {
        for _ in 0..ROUNDS {
            quarter_rounds(a, b, c, d);
            diagonal_rounds(a, b, c, d);
        }
    }
    for (slot, word) in state.iter_mut().zip(start) {
        *slot = slot.wrapping_add(word);
    }
    state
}

/// Returns the state before the first round (RFC 8439, 2.3): constants, key, counter, nonce.
fn initial_state(key: &[u8; KEY_SIZE], counter: u32, nonce: [u32; 3]) -> [u32; 16] {
    let mut state = [0_u32; 16];
    let constants = [0x6170_7865, 0x3320_646e, 0x7962_2d32, 0x6b20_6574];
    let key = key.as_chunks::<4>().0.iter();
    let key = key.map(|word| u32::from_le_bytes(*word));
    let words = constants.into_iter().chain(key);
    let words = words.chain([counter]).chain(nonce);
    for (slot, word) in state.iter_mut().zip(words) {
        *slot = word;
    }
    state
}

/// Does the quarter rounds of all four diagonals: they become columns, and are turned back.
fn diagonal_rounds(a: &mut [u32; 4], b: &mut [u32; 4], c: &mut [u32; 4], d: &mut [u32; 4]) {
    b.rotate_left(1);
    c.rotate_left(2);
    d.rotate_left(3);
    quarter_rounds(a, b, c, d);
    b.rotate_right(1);
    c.rotate_right(2);
    d.rotate_right(3);
}

/// Does the quarter rounds of all four columns, of rows `a` to `d`.
fn quarter_rounds(a: &mut [u32; 4], b: &mut [u32; 4], c: &mut [u32; 4], d: &mut [u32; 4]) {
    let step = |x: &mut u32, y: u32, z: &mut u32, turn: u32| {
        *x = x.wrapping_add(y);
        *z = (*z ^ *x).rotate_left(turn);
    };
    for (((a, b), c), d) in a.iter_mut().zip(b).zip(c).zip(d) {
        step(a, *b, d, 16);
        step(c, *d, b, 12);
        step(a, *b, d, 8);
        step(c, *d, b, 7);
    }
}
