//! The driver on a model of the FIFOs and the interrupt.

use alloc::collections::VecDeque;
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::RefCell;

use super::{CR, Cadence, FIFO, IDR, IER, ISR, RX_TRIGGER, Registers, SR};
use crate::console::Uart;

const FIFO_BYTES: usize = 64;

#[derive(Default)]
struct Model {
    control: u32,
    waiting: VecDeque<u8>,
    received: VecDeque<u8>,
    trigger: usize,
    enabled: u32,
    flags: u32,
}

impl Model {
    /// Sets the flags whose cause is there.
    fn update(&mut self) {
        self.flags |= u32::from(self.trigger > 0 && self.received.len() >= self.trigger);
        self.flags |= u32::from(self.waiting.is_empty()) << 3;
    }

    fn interrupts(&mut self) -> bool {
        self.update();
        self.enabled & self.flags != 0
    }
}

#[derive(Clone, Default)]
struct Shared(Rc<RefCell<Model>>);

impl Registers for Shared {
    fn read(&self, offset: usize) -> u32 {
        let mut model = self.0.borrow_mut();
        match offset {
            FIFO => model.received.pop_front().map_or(0, u32::from),
            SR => {
                let is_empty = model.received.is_empty();
                u32::from(is_empty) << 1 | u32::from(model.waiting.len() == FIFO_BYTES) << 4
            }
            _ => panic!("no register is read at {offset:#x}"),
        }
    }

    fn write(&mut self, offset: usize, value: u32) {
        let mut model = self.0.borrow_mut();
        match offset {
            CR => model.control = value,
            FIFO => {
                assert_eq!(model.control & 0x30, 0x10, "it does not send");
                assert!(model.waiting.len() < FIFO_BYTES, "a byte is lost");
                model.waiting.push_back(value as u8);
            }
            IER => model.enabled |= value,
            IDR => model.enabled &= !value,
            ISR => model.flags &= !value,
            RX_TRIGGER => model.trigger = value as usize,
            _ => panic!("no register is written at {offset:#x}"),
        }
        model.update();
    }
}

#[test]
fn a_full_fifo_takes_nothing_and_loses_nothing() {
    let model = Shared::default();
    let mut uart = Cadence::take(model.clone());
    let taken = (0..80_u8).filter(|byte| uart.send(*byte)).count();
    assert_eq!(taken, FIFO_BYTES);
    let sent: Vec<u8> = model.0.borrow_mut().waiting.drain(..).collect();
    assert_eq!(sent, (0..FIFO_BYTES as u8).collect::<Vec<_>>());
    assert!(uart.send(b'x'));
}

#[test]
fn it_interrupts_for_what_is_typed_and_on_demand_for_room() {
    let model = Shared::default();
    let mut uart = Cadence::take(model.clone());
    let interrupts = || model.0.borrow_mut().interrupts();
    assert!(!interrupts());
    model.0.borrow_mut().received.extend(*b"ab");
    assert!(interrupts());
    assert_eq!(
        [uart.receive(), uart.receive(), uart.receive()],
        [Some(b'a'), Some(b'b'), None]
    );
    assert!(!interrupts());
    assert!(uart.send(b'x'));
    uart.interrupt_when_room(true);
    assert!(!interrupts());
    model.0.borrow_mut().waiting.clear();
    assert!(interrupts());
    uart.interrupt_when_room(false);
    assert!(!interrupts());
}
