use super::{Pl011, TRANSMIT, register};

#[test]
fn bytes_are_sent_at_once() {
    let mut uart = Pl011::default();
    assert_eq!(uart.write(register::DR, u32::from(b'x')), Some(b'x'));
    // Not full, not busy, nothing to receive.
    assert_eq!(uart.read(register::FR) & (1 << 5 | 1 << 3), 0);
    assert_eq!(uart.read(register::FR) & 1 << 4, 1 << 4);
}

#[test]
fn the_line_follows_mask_and_clear() {
    let mut uart = Pl011::default();
    uart.write(register::DR, 0);
    assert!(!uart.line());
    uart.write(register::IMSC, TRANSMIT);
    assert!(uart.line());
    assert_eq!(uart.read(register::MIS), TRANSMIT);
    uart.write(register::ICR, TRANSMIT);
    assert!(!uart.line());
}

#[test]
fn other_registers_hold_what_was_written() {
    let mut uart = Pl011::default();
    uart.write(0x2c, 0x70);
    assert_eq!(uart.read(0x2c), 0x70);
}

#[test]
fn it_says_that_it_is_a_pl011() {
    let uart = Pl011::default();
    let id = (0..4).map(|i| uart.read(register::PERIPH_ID + 4 * i) << (8 * i));
    assert_eq!(id.sum::<u32>() & 0xf_ffff, 0x41011);
}

#[test]
fn offsets_beyond_the_registers_do_nothing() {
    let mut uart = Pl011::default();
    for offset in (0..0x2000).step_by(4) {
        uart.read(offset);
        uart.write(offset, u32::MAX);
    }
}
