//! Seeds for guests: a key stream of ChaCha20 (RFC 8439) a VM, keyed with the firmware's seed, so
//! that no guest learns another's seed, its own next one, or the machine's from its own.
//!
//! Requirements: G1-BOOT-007.

use alloc::vec::Vec;

#[cfg(test)]
mod tests;

/// Bytes for a guest's `rng-seed` and `kaslr-seed`: 32 and 8, as Linux wants them.
pub const SEED_SIZE: usize = 40;
/// Double rounds: columns, then diagonals.
const ROUNDS: usize = 10;
/// Bytes of a key (RFC 8439, 2.3).
const KEY_SIZE: usize = 32;

/// Words of a block, a row of four after the other (RFC 8439, 2.3).
type Block = [[u32; 4]; 4];

/// Returns the seed of the first start of VM `vm` on a machine with this seed.
#[must_use]
pub fn guest_seed(machine: &[u8], vm: u32) -> [u8; SEED_SIZE] {
    let mut first = [0; SEED_SIZE];
    for (slot, byte) in first.iter_mut().zip(guest_seeds(machine, vm, 1)) {
        *slot = byte;
    }
    first
}

/// Returns the seeds of the first `count` starts of VM `vm`, one behind the other. A machine's seed
/// that is longer than the key is folded into it.
#[must_use]
pub fn guest_seeds(machine: &[u8], vm: u32, count: usize) -> Vec<u8> {
    // Folded by XOR, which loses nothing of a seed whose bytes are independent. A hash would need
    // code that nothing else in init has a use for.
    let mut key = [0_u8; KEY_SIZE];
    for (at, byte) in machine.iter().enumerate() {
        if let Some(slot) = key.get_mut(at % KEY_SIZE) {
            *slot ^= byte;
        }
    }
    let size = count * SEED_SIZE;
    let (mut seeds, mut counter) = (Vec::with_capacity(size), 0);
    while seeds.len() < size {
        let block = block(&key, counter, [vm, 0, 0]).map(|row| row.map(u32::to_le_bytes));
        let bytes = block.as_flattened().as_flattened();
        let missing = (size - seeds.len()).min(bytes.len());
        seeds.extend_from_slice(bytes.get(..missing).unwrap_or_default());
        counter += 1;
    }
    seeds
}

/// Returns a block of the key stream (RFC 8439, 2.3).
fn block(key: &[u8; KEY_SIZE], counter: u32, nonce: [u32; 3]) -> Block {
    let start = initial_state(key, counter, nonce);
    let mut state = start;
    let [
        [a0, a1, a2, a3],
        [b0, b1, b2, b3],
        [c0, c1, c2, c3],
        [d0, d1, d2, d3],
    ] = &mut state;
    for _ in 0..ROUNDS {
        quarter_round(a0, b0, c0, d0);
        quarter_round(a1, b1, c1, d1);
        quarter_round(a2, b2, c2, d2);
        quarter_round(a3, b3, c3, d3);
        quarter_round(a0, b1, c2, d3);
        quarter_round(a1, b2, c3, d0);
        quarter_round(a2, b3, c0, d1);
        quarter_round(a3, b0, c1, d2);
    }
    let words = state.as_flattened_mut().iter_mut();
    for (word, start) in words.zip(start.as_flattened()) {
        *word = word.wrapping_add(*start);
    }
    state
}

/// Returns the state before the first round (RFC 8439, 2.3): constants, key, counter, nonce.
fn initial_state(key: &[u8; KEY_SIZE], counter: u32, nonce: [u32; 3]) -> Block {
    let mut state = Block::default();
    let constants = [0x6170_7865, 0x3320_646e, 0x7962_2d32, 0x6b20_6574];
    let key = key.as_chunks::<4>().0.iter();
    let key = key.map(|word| u32::from_le_bytes(*word));
    let words = constants.into_iter().chain(key);
    let words = words.chain([counter]).chain(nonce);
    for (slot, word) in state.as_flattened_mut().iter_mut().zip(words) {
        *slot = word;
    }
    state
}

/// Does the quarter round (RFC 8439, 2.1). Inlined, all words of the state stay in registers.
#[inline(always)]
fn quarter_round(a: &mut u32, b: &mut u32, c: &mut u32, d: &mut u32) {
    let step = |x: &mut u32, y: u32, z: &mut u32, turn: u32| {
        *x = x.wrapping_add(y);
        *z = (*z ^ *x).rotate_left(turn);
    };
    step(a, *b, d, 16);
    step(c, *d, b, 12);
    step(a, *b, d, 8);
    step(c, *d, b, 7);
}
