//! Rings over the ends of their memory and of their indices, and against a hostile writer.

use alloc::vec::Vec;
use core::sync::atomic::Ordering::SeqCst;

use super::*;

fn block() -> &'static ConsoleBlock {
    let region = crate::simulator::gdm::region();
    region.clear();
    &region.consoles[7]
}

fn type_bytes(block: &ConsoleBlock, bytes: impl IntoIterator<Item = u8>) {
    for byte in bytes {
        let written = block.ring.input_written.load(SeqCst);
        block.input[written as usize % INPUT_SIZE].store(byte, SeqCst);
        let next = written.wrapping_add(1);
        block.ring.input_written.store(next, SeqCst);
    }
}

fn take_all(ring: &mut InputRing) -> Vec<u8> {
    core::iter::from_fn(|| ring.take()).collect()
}

#[test]
fn output_wraps_and_keeps_the_newest() {
    let block = block();
    let mut ring = OutputRing::new(block);
    // 251 is prime to the size: a misplaced byte shows.
    let byte = |index: usize| (index % 251) as u8;
    let count = OUTPUT_SIZE * 2 + 1234;
    (0..count).for_each(|index| ring.push(&[byte(index)]));
    assert_eq!(block.ring.output_written.load(SeqCst) as usize, count);
    for index in count - OUTPUT_SIZE..count {
        assert_eq!(block.output[index % OUTPUT_SIZE].load(SeqCst), byte(index));
    }
}

#[test]
fn input_survives_the_wrap_of_its_index() {
    let block = block();
    let start = 0_u32.wrapping_sub(100);
    block.ring.input_written.store(start, SeqCst);
    let mut ring = InputRing {
        read: start,
        ..InputRing::new(block)
    };
    type_bytes(block, 0..=199);
    assert_eq!(take_all(&mut ring), (0..=199).collect::<Vec<_>>());
    assert_eq!(block.ring.input_read.load(SeqCst), 100);
    assert!(!ring.take_has_room());
}

#[test]
fn room_is_noticed_once() {
    let block = block();
    let mut ring = InputRing::new(block);
    let byte = |index: usize| (index % 251) as u8;
    type_bytes(block, (0..INPUT_SIZE).map(byte));
    for index in 0..INPUT_SIZE - INPUT_LOW {
        assert!(!ring.take_has_room(), "{index} taken");
        assert_eq!(ring.take(), Some(byte(index)));
    }
    assert!(ring.take_has_room() && !ring.take_has_room());
    assert_eq!(take_all(&mut ring).len(), INPUT_LOW);
    assert!(!ring.take_has_room());
}

#[test]
fn a_hostile_index_costs_only_input() {
    let block = block();
    let mut ring = InputRing::new(block);
    for written in [u32::MAX, 0, 1 << 31, 5] {
        block.ring.input_written.store(written, SeqCst);
        assert!(take_all(&mut ring).len() <= INPUT_SIZE);
    }
    type_bytes(block, *b"sane");
    assert_eq!(take_all(&mut ring), b"sane");
}
