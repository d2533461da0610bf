//! Tests of the terminal: the output of several VMs, and the keys.

use alloc::rc::Rc;
use alloc::string::{String, ToString};
use alloc::vec;
use core::cell::RefCell;

use proptest::prelude::*;

use super::*;

/// A UART whose other end the test holds.
#[derive(Clone, Debug, Default)]
struct Wire(Rc<RefCell<Ends>>);

#[derive(Debug, Default)]
struct Ends {
    sent: Vec<u8>,
    typed: VecDeque<u8>,
    /// Number of bytes that the UART still accepts.
    room: Option<usize>,
    wants_room: bool,
}

impl Uart for Wire {
    fn send(&mut self, byte: u8) -> bool {
        let mut ends = self.0.borrow_mut();
        match &mut ends.room {
            Some(0) => return false,
            Some(room) => *room -= 1,
            None => {}
        }
        ends.sent.push(byte);
        true
    }

    fn receive(&mut self) -> Option<u8> {
        self.0.borrow_mut().typed.pop_front()
    }

    fn interrupt_when_room(&mut self, enable: bool) {
        self.0.borrow_mut().wants_room = enable;
    }
}

impl Wire {
    fn shown(&self) -> String {
        String::from_utf8(core::mem::take(&mut self.0.borrow_mut().sent)).unwrap()
    }
}

const PATIENCE: u64 = 100;

fn console(names: &[&str]) -> (Console<Wire>, Wire) {
    let wire = Wire::default();
    (
        Console::new(wire.clone(), names.iter().copied(), PATIENCE),
        wire,
    )
}

fn send(console: &mut Console<Wire>, vm: usize, text: &str) {
    text.bytes()
        .for_each(|byte| assert_eq!(console.send(vm, byte, console.now), Flow::Open));
}

fn let_time_pass(console: &mut Console<Wire>) {
    console.service(console.now + PATIENCE);
}

fn type_keys(console: &mut Console<Wire>, wire: &Wire, keys: &str) -> Vec<Input> {
    wire.0.borrow_mut().typed.extend(keys.bytes());
    core::iter::from_fn(|| console.input())
        .filter(|input| *input != Input::Done)
        .collect()
}

/// Takes the multiplexed text of "show all" apart again.
pub(crate) fn separate(shown: &str, names: &[&str]) -> Vec<String> {
    let mut streams = vec![String::new(); names.len()];
    for piece in shown.split_inclusive('\n') {
        let Some((vm, text)) = names.iter().enumerate().find_map(|(vm, name)| {
            Some((
                vm,
                piece
                    .strip_prefix('[')?
                    .strip_prefix(name)?
                    .strip_prefix("] ")?,
            ))
        }) else {
            continue;
        };
        // The tests' guests send no carriage returns: one before a line feed is the console's.
        streams[vm].push_str(text.strip_suffix("\r\n").unwrap_or(text));
    }
    streams
}

#[test]
fn one_vm_is_shown_as_it_is() {
    let (mut console, wire) = console(&["linux"]);
    send(&mut console, 0, "~ # ls\r\n\x1b[1mbin\x1b[0m\r\n~ # ");
    assert_eq!(wire.shown(), "~ # ls\r\n\x1b[1mbin\x1b[0m\r\n~ # ");
}

#[test]
fn several_vms_are_labelled_line_by_line() {
    let (mut console, wire) = console(&["a", "b"]);
    send(&mut console, 0, "~ # ");
    assert_eq!(wire.shown(), "[a] ~ # ", "the focus byte by byte");
    let_time_pass(&mut console);
    send(&mut console, 1, "boot");
    assert_eq!(wire.shown(), "", "the other line by line");
    send(&mut console, 1, "ing\n");
    assert_eq!(wire.shown(), "\r\n[b] booting\n", "a prompt is interrupted");
    send(&mut console, 0, "ls");
    assert_eq!(wire.shown(), "[a] ls");
    console.say(format_args!("b stopped"));
    assert_eq!(wire.shown(), "\r\ngear2: b stopped\r\n");
}

#[test]
fn a_line_that_is_being_written_is_not_interrupted() {
    let (mut console, wire) = console(&["a", "b"]);
    send(&mut console, 0, "one ");
    send(&mut console, 1, "two\n");
    assert_eq!(wire.shown(), "[a] one ");
    assert_eq!(console.held_until(), Some(PATIENCE));
    send(&mut console, 0, "line\n");
    assert_eq!(wire.shown(), "line\n[b] two\n");
    assert_eq!(console.held_until(), None);
}

#[test]
fn a_line_that_is_not_finished_in_time_is_interrupted() {
    let (mut console, wire) = console(&["a", "b"]);
    send(&mut console, 0, "~ # ");
    send(&mut console, 1, "two\n");
    console.service(PATIENCE - 1);
    assert_eq!(wire.shown(), "[a] ~ # ");
    assert_eq!(console.held_until(), Some(PATIENCE));
    console.service(PATIENCE);
    assert_eq!(wire.shown(), "\r\n[b] two\n");
    assert_eq!(console.held_until(), None);
}

#[test]
fn a_long_line_without_an_end_is_shown() {
    let (mut console, wire) = console(&["a", "b"]);
    send(&mut console, 1, &"x".repeat(LONGEST_LINE as usize + 10));
    assert_eq!(
        wire.shown().len(),
        "[b] ".len() + LONGEST_LINE as usize + 10
    );
}

#[test]
fn a_digit_shows_one_vm_with_what_was_missed() {
    let (mut console, wire) = console(&["a", "b"]);
    type_keys(&mut console, &wire, "\x070");
    wire.shown();
    let missed = (0..3000).map(|n| n.to_string() + "\n").collect::<String>();
    send(&mut console, 1, &missed);
    send(&mut console, 0, "here\n");
    assert_eq!(wire.shown(), "here\n");
    type_keys(&mut console, &wire, "\x071");
    assert_eq!(wire.shown(), String::from("gear2: --- b ---\r\n") + &missed);
    // Back and forth: at least the tail again.
    type_keys(&mut console, &wire, "\x070");
    assert_eq!(wire.shown(), "gear2: --- a ---\r\nhere\n");
}

#[test]
fn keys_reach_their_place() {
    let (mut console, wire) = console(&["a", "b"]);
    let inputs = type_keys(&mut console, &wire, "x\x07\x07\x071y\x07l\x07r\x07n\x07q");
    let expected = [
        Input::Byte(0, b'x'),
        Input::Byte(0, COMMAND_KEY),
        Input::Byte(1, b'y'),
        Input::Command(Command::List, 1),
        Input::Command(Command::Restart, 1),
        Input::Command(Command::PowerOff, 0),
    ];
    assert_eq!(inputs, expected);
}

#[test]
fn a_vm_that_does_not_exist_is_refused() {
    let (mut console, wire) = console(&["a"]);
    assert_eq!(
        type_keys(&mut console, &wire, "\x077z"),
        [Input::Byte(0, b'z')]
    );
    assert_eq!(wire.shown(), "gear2: there is no VM 7, there are 1\r\n");
}

#[test]
fn all_again_shows_what_was_missed() {
    let (mut console, wire) = console(&["a", "b"]);
    type_keys(&mut console, &wire, "\x070");
    send(&mut console, 1, "one\ntwo\n");
    wire.shown();
    type_keys(&mut console, &wire, "\x07a");
    assert_eq!(
        wire.shown(),
        "\x1b[32m[b]\x1b[0m one\n\x1b[32m[b]\x1b[0m two\n"
    );
}

#[test]
fn a_hidden_vm_keeps_its_last_bytes_and_never_waits() {
    let (mut console, wire) = console(&["a", "b"]);
    type_keys(&mut console, &wire, "\x070");
    send(&mut console, 1, &"0123456\n".repeat(20_000));
    wire.shown();
    type_keys(&mut console, &wire, "\x071");
    assert_eq!(
        wire.shown().len(),
        "gear2: --- b ---\r\n".len() + (64 << 10)
    );
}

#[test]
fn a_slow_uart_makes_the_vm_wait_and_loses_nothing() {
    let (mut console, wire) = console(&["a"]);
    wire.0.borrow_mut().room = Some(0);
    let mut sent = String::new();
    while console.send(0, b'.', 0) == Flow::Open {
        sent.push('.');
    }
    sent.push('.');
    assert!(wire.0.borrow().wants_room);
    assert_eq!(console.service(0), 0);
    wire.0.borrow_mut().room = None;
    assert_eq!(console.service(0), 1, "the VM may go on");
    assert!(!wire.0.borrow().wants_room);
    assert_eq!(wire.shown(), sent);
}

proptest! {
    /// Whatever the VMs send in whatever order, with a UART that stutters, everything arrives in
    /// each VM's order once the lines are complete.
    #[test]
    fn bytes_are_neither_lost_nor_reordered(
        steps in proptest::collection::vec(
            (0..3_usize, "[a-z]{0,20}\n?", 0..60_usize, 0..PATIENCE), 0..200)
    ) {
        let names = ["red", "green", "blue"];
        let (mut console, wire) = console(&names);
        let mut sent = vec![String::new(); names.len()];
        let mut now = 0;
        for (vm, text, room, elapsed) in steps {
            wire.0.borrow_mut().room = Some(room);
            now += elapsed;
            console.service(now);
            for byte in text.bytes() {
                prop_assert_eq!(console.send(vm, byte, now), Flow::Open);
            }
            sent[vm] += &text;
        }
        for (vm, sent) in sent.iter_mut().enumerate() {
            send(&mut console, vm, "\n");
            *sent += "\n";
        }
        wire.0.borrow_mut().room = None;
        console.drain();
        prop_assert_eq!(separate(&wire.shown(), &names), sent);
    }
}
