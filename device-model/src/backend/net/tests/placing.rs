//! Tests of how a frame comes into the guest's buffers: by the kernel as far as buffers were taken
//! ahead, by a copy behind them, and seen as a whole.

use super::{Card, HEADER};
use crate::order::Order;
use crate::testing::DATA;
use crate::transport::register;

/// VIRTIO_NET_F_MRG_RXBUF.
const MERGE: u64 = 1 << 15;
/// Distance and length of the buffers that the guest offers.
const STEP: u64 = 0x1000;
const LENGTH: u32 = 2048;

/// A card whose driver has buffers merged, and what the driver has done.
struct Merging {
    card: Card,
    offered: u16,
    collected: u16,
}

impl Merging {
    fn new(limits: [u32; 3]) -> Self {
        let mut card = Card::new(limits, 0);
        card.guest.write(register::STATUS, 0);
        card.guest.initialise(MERGE, 2);
        let (offered, collected) = (0, 0);
        Self {
            card,
            offered,
            collected,
        }
    }

    /// Offers so many buffers full of ones, in which each byte that is stored is seen.
    fn offer(&mut self, buffers: u16) {
        for _ in 0..buffers {
            let head = self.offered % 16;
            let at = DATA + STEP * u64::from(head);
            self.card.guest.put(at, &[0xff; LENGTH as usize]);
            self.card.guest.request(0, head, &[(at, LENGTH, true)]);
            self.offered += 1;
        }
    }

    /// Has a frame of so many bytes arrive, and returns the frame with its header.
    fn arrive(&mut self, bytes: usize) -> Vec<u8> {
        let frame: Vec<u8> = (0..HEADER + bytes).map(|at| (at % 251) as u8).collect();
        self.card.wire.send(&frame).unwrap();
        self.card.guest.work();
        frame
    }

    fn is_told(&self) -> bool {
        self.card.guest.used_index(0) != self.collected
    }

    /// Takes a frame as a driver does: the first buffer says how many there are.
    fn collect(&mut self) -> Vec<u8> {
        let mut frame = Vec::new();
        let mut buffers = 1;
        while buffers > 0 {
            let (head, written) = self.card.guest.used(0, self.collected);
            let at = DATA + STEP * u64::from(head);
            let bytes = self.card.guest.get(at, written as usize);
            if frame.is_empty() {
                buffers = u16::from_le_bytes([bytes[10], bytes[11]]);
            }
            frame.extend(bytes);
            self.collected += 1;
            buffers -= 1;
        }
        frame
    }

    /// Whether all buffers are as the driver offered them.
    fn is_untouched(&self) -> bool {
        (0..16).all(|head| {
            let bytes = self.card.guest.get(DATA + STEP * head, LENGTH as usize);
            bytes.iter().all(|byte| *byte == 0xff)
        })
    }
}

/// Sets the number of buffers in a frame's header, as the card does.
fn with_buffers(mut frame: Vec<u8>, buffers: u16) -> Vec<u8> {
    frame[10..12].copy_from_slice(&buffers.to_le_bytes());
    frame
}

/// Long and short ones in turns: more buffers than a frame needs are taken ahead, and fewer.
#[test]
fn frames_of_all_lengths_arrive_whole() {
    let mut guest = Merging::new([0; 3]);
    guest.offer(16);
    for bytes in [
        60, 9000, 60, 2036, 2037, 60, 12_000, 12_000, 1500, 4084, 4085,
    ] {
        let frame = guest.arrive(bytes);
        assert!(guest.is_told(), "{bytes}");
        let buffers = frame.len().div_ceil(LENGTH as usize) as u16;
        assert_eq!(guest.collect(), with_buffers(frame, buffers), "{bytes}");
        assert!(!guest.is_told());
        guest.offer(buffers);
    }
}

/// A part of the frame is in the buffers that are there. The driver is told when the rest is.
#[test]
fn a_frame_waits_for_its_buffers() {
    let mut guest = Merging::new([0; 3]);
    guest.offer(5);
    let frame = guest.arrive(9000);
    assert_eq!(guest.collect(), with_buffers(frame, 5));
    for first in 0..5 {
        guest.offer(first);
        let frame = guest.arrive(9000);
        assert!(!guest.is_told());
        for _ in first..4 {
            guest.offer(1);
            guest.card.guest.work();
            assert!(!guest.is_told());
        }
        guest.offer(1);
        guest.card.guest.work();
        assert_eq!(guest.collect(), with_buffers(frame, 5), "{first}");
    }
}

/// A frame that is too long for all of its buffers is lost, and the next one has them.
#[test]
fn a_frame_that_never_fits_holds_up_no_other() {
    let mut card = Card::new([0; 3], 1500);
    card.offer(0);
    card.offer(1);
    for bytes in [60, 4000, 100] {
        card.arrive(bytes);
        card.guest.work();
    }
    assert_eq!(card.guest.used(0, 0), (0, (HEADER + 60) as u32));
    assert_eq!(card.guest.used(0, 1), (1, (HEADER + 100) as u32));
    assert_eq!(card.guest.used_index(0), 2);
}

/// The ring has 16 places, and the frame wants more buffers than that: it is lost, and the next one
/// has them.
#[test]
fn a_frame_that_no_ring_holds_is_lost() {
    let mut guest = Merging::new([0; 3]);
    guest.offer(16);
    let _ = guest.arrive(16 * LENGTH as usize);
    assert!(!guest.is_told());
    let frame = guest.arrive(100);
    assert_eq!(guest.collect(), with_buffers(frame, 1));
}

/// Buffers are the guest's memory, which it may read at any time.
#[test]
fn no_byte_of_a_frame_that_may_not_pass_is_in_a_buffer() {
    // A byte each second, from an empty bucket on.
    let mut guest = Merging::new([0, 1, 60_000]);
    guest.offer(16);
    let _ = guest.arrive(100);
    assert!(!guest.is_told() && guest.is_untouched());
    let mut guest = Merging::new([0; 3]);
    guest.offer(16);
    assert_eq!(guest.card.order(Order::Link(false)), Ok(0));
    let _ = guest.arrive(100);
    assert!(!guest.is_told() && guest.is_untouched());
    assert_eq!(guest.card.order(Order::Link(true)), Ok(1));
    let frame = guest.arrive(100);
    assert_eq!(guest.collect(), with_buffers(frame, 1));
}

/// A thread that the guest has woken asks no tap device whose frames have all been read.
#[test]
fn a_tap_device_is_read_when_it_has_news() {
    let mut guest = Merging::new([0; 3]);
    guest.offer(4);
    for bytes in [60, 3000, 60] {
        guest.card.guest.end_sleep();
        guest.card.guest.work();
        let frame = guest.arrive(bytes);
        assert!(!guest.is_told(), "it was read without news");
        // Frames of the guest's pass meanwhile.
        guest.card.send(0, 60);
        guest.card.guest.work();
        assert!(guest.card.on_wire().is_some() && !guest.is_told());
        guest.card.guest.end_sleep();
        guest.card.guest.work();
        let buffers = frame.len().div_ceil(LENGTH as usize) as u16;
        assert_eq!(guest.collect(), with_buffers(frame, buffers));
    }
}
