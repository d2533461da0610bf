//! The driver on a model of the FIFOs and the interrupts.

use alloc::collections::VecDeque;
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::RefCell;

use super::{ImxUart, Registers, UCR1, UCR2, UCR4, URXD, UTS, UTXD};
use crate::console::Uart;

const FIFO_BYTES: usize = 32;
/// The level below which the transmit FIFO has room, as firmware sets it (UFCR.TXTL).
const LEVEL: usize = 2;
/// Bits of UCR2 that are the line's format: 8 bits (WS), no RTS pin (IRTS).
const FORMAT: u32 = 1 << 5 | 1 << 14;

#[derive(Default)]
struct Model {
    control: [u32; 3],
    waiting: VecDeque<u8>,
    received: VecDeque<u8>,
}

impl Model {
    fn interrupts(&self) -> bool {
        let [first, _, fourth] = self.control;
        let has_room = first >> 13 & 1 != 0 && self.waiting.len() < LEVEL;
        has_room || fourth & 1 != 0 && !self.received.is_empty()
    }
}

#[derive(Clone)]
struct Shared(Rc<RefCell<Model>>);

impl Shared {
    fn new() -> Self {
        let model = Model {
            // Firmware's DMA requests and interrupts are on.
            control: [0xffff, FORMAT, 0xff],
            ..Model::default()
        };
        Self(Rc::new(RefCell::new(model)))
    }
}

impl Registers for Shared {
    fn read(&self, offset: usize) -> u32 {
        let mut model = self.0.borrow_mut();
        match offset {
            URXD => match model.received.pop_front() {
                Some(byte) => 1 << 15 | u32::from(byte),
                None => 0x55,
            },
            UCR2 => model.control[1],
            UTS => u32::from(model.waiting.len() == FIFO_BYTES) << 4,
            _ => panic!("no register is read at {offset:#x}"),
        }
    }

    fn write(&mut self, offset: usize, value: u32) {
        let mut model = self.0.borrow_mut();
        match offset {
            UTXD => {
                let [first, second, _] = model.control;
                assert_eq!((first & 1, second & 5), (1, 5), "it does not send");
                assert!(model.waiting.len() < FIFO_BYTES, "a byte is lost");
                model.waiting.push_back(value as u8);
            }
            UCR1 => model.control[0] = value,
            UCR2 => model.control[1] = value,
            UCR4 => model.control[2] = value,
            _ => panic!("no register is written at {offset:#x}"),
        }
    }
}

#[test]
fn a_full_fifo_takes_nothing_and_loses_nothing() {
    let model = Shared::new();
    let mut uart = ImxUart::take(model.clone());
    let taken = (0..80_u8).filter(|byte| uart.send(*byte)).count();
    assert_eq!(taken, FIFO_BYTES);
    let sent: Vec<u8> = model.0.borrow_mut().waiting.drain(..).collect();
    assert_eq!(sent, (0..FIFO_BYTES as u8).collect::<Vec<_>>());
    assert!(uart.send(b'x'));
}

#[test]
fn the_lines_format_is_firmwares() {
    let model = Shared::new();
    ImxUart::take(model.clone());
    assert_eq!(model.0.borrow().control, [1, FORMAT | 0b111, 1]);
}

#[test]
fn it_interrupts_for_what_is_typed_and_on_demand_for_room() {
    let model = Shared::new();
    let mut uart = ImxUart::take(model.clone());
    let interrupts = || model.0.borrow().interrupts();
    assert!(!interrupts());
    model.0.borrow_mut().received.extend(*b"ab");
    assert!(interrupts());
    assert_eq!(
        [uart.receive(), uart.receive(), uart.receive()],
        [Some(b'a'), Some(b'b'), None]
    );
    assert!(!interrupts());
    assert!(uart.send(b'x') && uart.send(b'y'));
    uart.interrupt_when_room(true);
    assert!(!interrupts());
    model.0.borrow_mut().waiting.clear();
    assert!(interrupts());
    uart.interrupt_when_room(false);
    assert!(!interrupts());
}
