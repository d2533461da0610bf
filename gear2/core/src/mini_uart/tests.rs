//! The driver on a model of the FIFOs and the interrupt.

use alloc::collections::VecDeque;
use alloc::rc::Rc;
use alloc::vec;
use alloc::vec::Vec;
use core::cell::RefCell;

use super::{IER, IO, LSR, MiniUart, Registers};
use crate::console::Uart;

const FIFO: usize = 8;

#[derive(Default)]
struct Model {
    waiting: VecDeque<u8>,
    sent: Vec<u8>,
    received: VecDeque<u8>,
    enabled: u32,
}

impl Model {
    fn interrupts(&self) -> bool {
        let received = self.enabled & 1 != 0 && !self.received.is_empty();
        received || self.enabled & 2 != 0 && self.waiting.is_empty()
    }
}

#[derive(Clone, Default)]
struct Shared(Rc<RefCell<Model>>);

impl Registers for Shared {
    fn read(&self, offset: usize) -> u32 {
        let mut model = self.0.borrow_mut();
        match offset {
            IO => model.received.pop_front().map_or(0, u32::from),
            LSR => {
                let received = !model.received.is_empty();
                u32::from(received) | u32::from(model.waiting.len() < FIFO) << 5
            }
            _ => panic!("no register is read at {offset:#x}"),
        }
    }

    fn write(&mut self, offset: usize, value: u32) {
        let mut model = self.0.borrow_mut();
        match offset {
            IO => {
                assert!(model.waiting.len() < FIFO, "a byte is lost");
                model.waiting.push_back(value as u8);
            }
            IER => model.enabled = value,
            _ => panic!("no register is written at {offset:#x}"),
        }
    }
}

#[test]
fn a_full_fifo_takes_nothing_and_loses_nothing() {
    let model = Shared::default();
    let mut uart = MiniUart::take(model.clone());
    let taken = (0..20_u8).filter(|byte| uart.send(*byte)).count();
    assert_eq!(taken, FIFO);
    let mut inner = model.0.borrow_mut();
    let sent: Vec<u8> = inner.waiting.drain(..).collect();
    inner.sent.extend(sent);
    assert_eq!(inner.sent, (0..FIFO as u8).collect::<Vec<_>>());
    drop(inner);
    assert!(uart.send(b'x'));
}

#[test]
fn it_interrupts_for_what_is_typed_and_on_demand_for_room() {
    let model = Shared::default();
    let mut uart = MiniUart::take(model.clone());
    assert!(!model.0.borrow().interrupts());
    model.0.borrow_mut().received.extend(*b"ab");
    assert!(model.0.borrow().interrupts());
    assert_eq!(
        [uart.receive(), uart.receive(), uart.receive()],
        [Some(b'a'), Some(b'b'), None]
    );
    assert!(!model.0.borrow().interrupts());
    uart.interrupt_when_room(true);
    assert!(model.0.borrow().interrupts());
    assert!(vec![uart.send(b'x')][0] && !model.0.borrow().interrupts());
    uart.interrupt_when_room(false);
    model.0.borrow_mut().waiting.clear();
    assert!(!model.0.borrow().interrupts());
}
