//! The PL011 as drivers use it.

use alloc::vec::Vec;

use proptest::prelude::*;

use super::*;

const WORD: u8 = 2;

fn flags(uart: &mut Pl011) -> u32 {
    u32::try_from(uart.read(FR, WORD)).unwrap()
}

#[test]
fn transmits_from_the_first_instruction_at_every_size() {
    let mut uart = Pl011::new();
    assert_eq!(flags(&mut uart) & (FR_TXFF | FR_BUSY | FR_TXFE), FR_TXFE);
    assert_eq!(uart.write(DR, u64::from(b'x')), Some(b'x'));
    // Bits beyond the data are errors that only reading knows.
    assert_eq!(uart.write(DR, 0xff00 | u64::from(b'y')), Some(b'y'));
}

#[test]
fn identifies_itself_as_an_arm_pl011() {
    let mut uart = Pl011::new();
    let ids: Vec<u64> = (0..8)
        .map(|index| uart.read(PERIPH_ID0 + 4 * index, WORD))
        .collect();
    let id = ids[..4].iter().rev().fold(0, |id, byte| id << 8 | byte);
    assert_eq!(id, 0x0024_1011);
    assert_eq!(ids[4..], [0x0d, 0xf0, 0x05, 0xb1]);
}

#[test]
fn narrow_reads_return_their_lane() {
    let mut uart = Pl011::new();
    uart.write(CR, 0x0b01);
    assert_eq!(uart.read(CR, 1), 0x0b01);
    assert_eq!(uart.read(CR, 0), 0x01);
    assert_eq!(uart.read(CR + 1, 0), 0x0b);
    assert_eq!(uart.read(CR + 2, 1), 0);
}

#[test]
fn registers_keep_what_they_hold() {
    let mut uart = Pl011::new();
    for (offset, held) in [
        (IBRD, 0xffff),
        (FBRD, 0x3f),
        (LCR_H, 0xff),
        (IFLS, 0x3f),
        (IMSC, 0x7ff),
    ] {
        uart.write(offset, u64::MAX);
        assert_eq!(uart.read(offset, WORD), held);
    }
    // Read-only and reserved ones hold nothing.
    for offset in [FR, RIS, MIS, 0x008, 0x04c, 0xfdc, PERIPH_ID0] {
        let before = uart.read(offset, WORD);
        uart.write(offset, u64::MAX);
        assert_eq!(uart.read(offset, WORD), before, "at {offset:#x}");
    }
}

/// Sequence of Linux' amba-pl011: probe, start up, take an interrupt, drain, shut down.
#[test]
fn serves_the_linux_driver() {
    let mut uart = Pl011::new();
    uart.receive(b'?');
    uart.write(IMSC, 0);
    uart.write(ICR, 0xffff);
    uart.write(IFLS, 0x12);
    uart.write(LCR_H, 0x70);
    while flags(&mut uart) & FR_RXFE == 0 {
        uart.read(DR, WORD);
    }
    uart.write(IMSC, u64::from(INT_RT | INT_RX));
    assert_eq!(uart.level_change(), None);

    uart.receive(b'a');
    uart.receive(b'b');
    assert_eq!(uart.level_change(), Some(true));
    assert_eq!(
        uart.read(MIS, WORD),
        u64::from(INT_RT),
        "below the trigger level of 8"
    );
    uart.write(ICR, 0xffff & !u64::from(INT_RT | INT_RX | INT_TX));
    assert_eq!(uart.read(DR, WORD), u64::from(b'a'));
    assert_eq!(uart.level_change(), None, "one byte is left");
    assert_eq!(uart.read(DR, WORD), u64::from(b'b'));
    assert_eq!(uart.level_change(), Some(false));

    (0..8).for_each(|byte| uart.receive(byte));
    assert_eq!(uart.read(MIS, WORD), u64::from(INT_RX | INT_RT));
    uart.write(IMSC, 0);
    assert_eq!(uart.level_change(), None);
    assert_eq!(uart.read(RIS, WORD), u64::from(INT_RX | INT_RT));
}

#[test]
fn a_cleared_receive_interrupt_comes_back_with_the_next_byte() {
    let mut uart = Pl011::new();
    uart.write(IMSC, u64::from(INT_RT));
    uart.receive(1);
    uart.write(ICR, u64::from(INT_ALL));
    assert_eq!(uart.level_change(), None);
    uart.receive(2);
    assert_eq!(uart.level_change(), Some(true));
}

#[test]
fn the_transmit_interrupt_waits_for_room() {
    let mut uart = Pl011::new();
    uart.write(IMSC, u64::from(INT_TX));
    assert_eq!(uart.level_change(), None, "nothing was sent yet");
    uart.write(DR, 1);
    assert_eq!(uart.level_change(), Some(true));
    uart.set_transmit_full(true);
    assert_eq!(uart.level_change(), Some(false));
    assert_eq!(flags(&mut uart) & (FR_TXFF | FR_TXFE), FR_TXFF);
    uart.set_transmit_full(false);
    assert_eq!(uart.level_change(), Some(true));
    assert_eq!(flags(&mut uart) & (FR_TXFF | FR_TXFE), FR_TXFE);
}

#[test]
fn loops_back() {
    let mut uart = Pl011::new();
    uart.write(CR, u64::from(CR_RESET | CR_LBE));
    assert_eq!(uart.write(DR, 0x55), None);
    assert_eq!(uart.read(DR, WORD), 0x55);
}

#[test]
fn reset_lowers_the_line() {
    let mut uart = Pl011::new();
    uart.write(IMSC, u64::from(INT_RT));
    uart.receive(1);
    assert_eq!(uart.level_change(), Some(true));
    uart.reset();
    assert_eq!(uart.level_change(), Some(false));
    assert_eq!(flags(&mut uart) & FR_RXFE, FR_RXFE);
}

#[test]
fn input_that_nobody_reads_is_bounded() {
    let mut uart = Pl011::new();
    (0..2 * BACKLOG_BYTES).for_each(|_| uart.type_in(0));
    assert_eq!(uart.backlog.len(), BACKLOG_BYTES);
    uart.write(CR, u64::from(CR_RESET | CR_LBE));
    (0..2 * FIFO_DEPTH).for_each(|_| assert_eq!(uart.write(DR, 0), None));
    assert_eq!(uart.received.len(), FIFO_DEPTH);
}

/// Typing never ends, and the guest is as slow as it likes: whenever its handler runs, it finds the
/// FIFO empty after one portion, and the next one comes a pause after that.
#[test]
fn a_handler_finds_an_end_however_much_is_typed() {
    const PAUSE: u64 = 100;
    let mut uart = Pl011::new();
    uart.write(LCR_H, 0x70);
    let mut now = 0;
    for slowness in [0, 1, 10, 1_000] {
        assert_eq!(
            uart.fill_fifo(now, PAUSE, || Some(b'x')),
            None,
            "until it is read"
        );
        for left in (0..FIFO_DEPTH).rev() {
            assert_eq!(flags(&mut uart) & FR_RXFE, 0);
            uart.read(DR, WORD);
            now += slowness;
            let due = uart.fill_fifo(now, PAUSE, || Some(b'x'));
            assert_eq!(due, (left == 0).then_some(now + PAUSE));
        }
        assert_eq!(flags(&mut uart) & FR_RXFE, FR_RXFE);
        assert!(
            uart.fill_fifo(now + PAUSE - 1, PAUSE, || Some(b'x'))
                .is_some()
        );
        assert_eq!(flags(&mut uart) & FR_RXFE, FR_RXFE, "not yet");
        now += PAUSE;
    }
}

#[test]
fn a_key_now_and_then_arrives_at_once() {
    let mut uart = Pl011::new();
    for now in 0..100_u64 {
        uart.type_in(now.to_le_bytes()[0]);
        assert_eq!(uart.fill_fifo(now * 150, 100, || None), None);
        assert_eq!(uart.read(DR, WORD), now);
        assert_eq!(uart.fill_fifo(now * 150 + 1, 100, || None), None);
    }
}

proptest! {
    /// A driver that reads on the interrupt until the FIFO is empty gets every byte in order,
    /// with FIFOs or without, at every trigger level.
    #[test]
    fn input_arrives_whole(
        bursts in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..40), 0..40),
        levels in 0_u64..64,
        fifo in any::<bool>(),
    ) {
        let mut uart = Pl011::new();
        uart.write(LCR_H, if fifo { 0x70 } else { 0x60 });
        uart.write(IFLS, levels);
        uart.write(IMSC, u64::from(INT_RX | INT_RT));
        let (mut read, mut now) = (Vec::new(), 0);
        for burst in bursts.iter().chain(core::iter::repeat_n(&Vec::new(), 400)) {
            burst.iter().for_each(|&byte| uart.type_in(byte));
            uart.fill_fifo(now, 10, || None);
            now += 7;
            if uart.level_change() == Some(true) {
                uart.write(ICR, u64::from(INT_RX | INT_RT));
                while flags(&mut uart) & FR_RXFE == 0 {
                    read.push(uart.read(DR, WORD).to_le_bytes()[0]);
                }
                prop_assert_eq!(uart.level_change(), Some(false));
            }
        }
        prop_assert_eq!(read, bursts.concat());
    }

    /// No access panics, and the level is what the masked state says.
    #[test]
    fn takes_any_access(accesses in proptest::collection::vec(
        (0_u64..0x1000, 0_u8..3, proptest::option::of(any::<u64>())), 0..200)
    ) {
        let mut uart = Pl011::new();
        let mut level = false;
        for (offset, size_log2, store) in accesses {
            match store {
                Some(value) => drop(uart.write(offset, value)),
                None => prop_assert!(uart.read(offset, size_log2) < 1 << (8 << size_log2)),
            }
            level = uart.level_change().unwrap_or(level);
            prop_assert_eq!(level, uart.read(MIS, WORD) != 0);
        }
    }
}
