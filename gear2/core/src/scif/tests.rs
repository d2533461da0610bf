//! Tests of the SCIF's driver on a model of its FIFOs and flags.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::vec::Vec;

use super::*;

#[derive(Default)]
struct Model {
    control: u16,
    status: u16,
    /// The flags that were read as 1: only these can be cleared.
    seen: u16,
    overrun: u16,
    sent: Vec<u8>,
    sending: u16,
    received: VecDeque<u8>,
}

#[derive(Default)]
struct Fake(RefCell<Model>);

impl Registers for Fake {
    fn read(&self, offset: usize) -> u16 {
        let mut model = self.0.borrow_mut();
        match offset {
            SCSCR => model.control,
            SCFSR => {
                model.seen |= model.status;
                model.status
            }
            SCFDR => model.sending << 8 | model.received.len() as u16,
            SCLSR => model.overrun,
            _ => panic!("{offset:#x} is read"),
        }
    }

    fn write(&mut self, offset: usize, value: u16) {
        let model = self.0.get_mut();
        match offset {
            SCSCR => model.control = value,
            SCFSR => {
                model.status &= value | !model.seen;
                model.seen = 0;
            }
            SCLSR => model.overrun &= value,
            _ => panic!("{offset:#x} is written"),
        }
    }

    fn read_byte(&self, offset: usize) -> u8 {
        assert_eq!(offset, SCFRDR);
        self.0.borrow_mut().received.pop_front().unwrap()
    }

    fn write_byte(&mut self, offset: usize, value: u8) {
        assert_eq!(offset, SCFTDR);
        let model = self.0.get_mut();
        assert!(model.sending < FIFO_BYTES);
        model.sent.push(value);
        model.sending += 1;
    }
}

#[test]
fn the_clock_stays_and_both_directions_are_on() {
    let mut fake = Fake::default();
    fake.0.get_mut().control = 0x8a;
    let mut uart = Scif::take(fake);
    assert_eq!(uart.0.0.get_mut().control, 0x72);
    uart.interrupt_when_room(true);
    assert_eq!(uart.0.0.get_mut().control, 0xf2);
}

#[test]
fn sends_while_there_is_room() {
    let mut uart = Scif::new(Fake::default());
    uart.0.0.get_mut().status = SCFSR_TDFE | SCFSR_TEND;
    let sent = (0..20).take_while(|byte| uart.send(*byte)).count();
    assert_eq!(sent, 16);
    let model = uart.0.0.get_mut();
    assert_eq!(model.sent, Vec::from_iter(0..16));
    assert_eq!(model.status, 0);
    model.sending = 15;
    assert!(uart.send(99));
}

#[test]
fn receives_all_then_ends_the_interrupt() {
    let mut uart = Scif::new(Fake::default());
    let model = uart.0.0.get_mut();
    model.received.extend(*b"ab");
    model.status = SCFSR_RECEIVED;
    assert_eq!([uart.receive(), uart.receive()], [Some(b'a'), Some(b'b')]);
    assert_eq!(uart.0.0.get_mut().status, SCFSR_RECEIVED);
    assert_eq!(uart.receive(), None);
    assert_eq!(uart.0.0.get_mut().status, 0);
}

#[test]
fn errors_do_not_stop_it() {
    let mut uart = Scif::new(Fake::default());
    let model = uart.0.0.get_mut();
    model.received.push_back(b'x');
    model.status = SCFSR_ERRORS | SCFSR_RECEIVED;
    model.overrun = SCLSR_ORER;
    assert_eq!(uart.receive(), Some(b'x'));
    let model = uart.0.0.get_mut();
    assert_eq!((model.status, model.overrun), (SCFSR_RECEIVED, 0));
}
