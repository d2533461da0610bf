//! The console multiplexer: the consoles of all VMs on one UART.
//!
//! Owns the UART, the last 64 KiB of output of each VM, and what the terminal
//! shows. The rule:
//!
//! - **One VM**: its console is the terminal, byte by byte, without labels.
//! - **Several VMs**: all are shown. The VM with the *focus* (at first the
//!   first one) is shown byte by byte, the others line by line; each line
//!   begins with a label, `[name] `. What is typed goes to the VM with the focus.
//!   A line that was begun is interrupted only if it is not finished within 0.1 s,
//!   as prompts are.
//! - `Ctrl-G` and a digit give a VM the focus and show it alone, without
//!   labels; `Ctrl-G a` shows all again. Output that was not shown
//!   meanwhile is shown first, as far as it is among the VM's last 64 KiB.
//! - `Ctrl-G h` lists the keys. Labels are coloured once `Ctrl-G` was typed.
//!
//! Gear2's own lines begin with `gear2: ` and are always shown.
//!
//! Invariants: a guest's bytes are never altered or reordered, labels and line
//! breaks are only put between them; bytes of a VM that is shown are never
//! lost: if the UART is slow, `Flow::Full` makes the guest wait.

use alloc::collections::VecDeque;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

mod ring;
#[cfg(test)]
pub(crate) mod tests;

use ring::Ring;

/// The physical UART.
pub trait Uart {
    /// Sends a byte, and tells whether there was room for it.
    fn send(&mut self, byte: u8) -> bool;

    /// Returns the next byte received.
    fn receive(&mut self) -> Option<u8>;

    /// Asks for an interrupt when there is room for bytes to send, or not.
    fn interrupt_when_room(&mut self, enable: bool);
}

/// The key that begins a command, Ctrl-G.
const COMMAND_KEY: u8 = 0x07;
/// The terminal's output waits in the VMs' rings while this many bytes wait for the UART.
const QUEUE_BYTES: usize = 4096;
/// A shown VM with this many bytes not shown yet must wait.
const FULL_BYTES: u64 = 32 << 10;
/// A line without an end is shown when it is this long.
const LONGEST_LINE: u64 = 1024;
/// At least this much of a VM's output is shown when it is shown alone.
const TAIL_BYTES: u64 = 1024;

/// Whether a VM may send on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flow {
    /// There is room.
    Open,
    /// The VM is to wait until [`Console::service`] names it.
    Full,
}

/// Meaning of a typed key for the rest of Gear2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Input {
    /// Nothing: the console dealt with it.
    Done,
    /// A byte for a VM.
    Byte(usize, u8),
    /// A command, with the VM that has the focus.
    Command(Command, usize),
}

/// Commands that need more than the console.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Command {
    /// List the VMs and their vCPUs.
    List,
    /// Start the VM with the focus.
    Start,
    /// Stop the VM.
    Stop,
    /// Restart the VM.
    Restart,
    /// Show exit counts.
    Statistics,
    /// Show Gear1's log.
    Log,
    /// Show the last words of the VM.
    LastWords,
    /// Power the machine off.
    PowerOff,
}

const HELP: &str = "keys: Ctrl-G, then 0-9 = show only that VM and type to it, n = the next one, \
a = show all, l = list VMs, r = restart, s = stop, t = start the VM typed to, p = exit counts, \
L = Gear1's log, w = its last words, q = power off, Ctrl-G = send Ctrl-G, h = this help";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum View {
    All,
    Focus,
}

#[derive(Debug)]
struct Channel {
    name: String,
    ring: Ring,
}

/// The multiplexer.
#[derive(Debug)]
pub(crate) struct Console<U> {
    uart: U,
    /// Name and output of each VM, in the order of the manifest.
    channels: Vec<Channel>,
    /// VM that gets what is typed.
    focus: usize,
    /// VMs whose output goes to the terminal.
    view: View,
    /// Bytes that wait for the UART.
    queue: VecDeque<u8>,
    /// The VM whose bytes the terminal's current line ends with; `None` at the start of a line.
    line: Option<usize>,
    /// Bit per VM that was told to wait.
    waiting: u32,
    /// Whether the last key was the command key, so that the next one is a command.
    command_key: bool,
    /// Whether labels have colours. Whoever typed the command key has a terminal, and a log file
    /// has not.
    coloured: bool,
    /// Counter value of the last call that brought one.
    now: u64,
    /// Longest time for which an unfinished line is not interrupted.
    patience: u64,
    /// Time at which the terminal's current line was begun.
    line_since: u64,
    /// Something waits for the end of the current line.
    held: bool,
}

impl<U: Uart> Console<U> {
    /// Makes the multiplexer for VMs with these names. Times are in ticks of the same clock as
    /// `patience`, which is how long an unfinished line is not interrupted.
    pub(crate) fn new<'n>(uart: U, names: impl Iterator<Item = &'n str>, patience: u64) -> Self {
        let channels: Vec<_> = names
            .map(|name| Channel {
                name: name.into(),
                ring: Ring::new(),
            })
            .collect();
        let view = if channels.len() > 1 {
            View::All
        } else {
            View::Focus
        };
        Self {
            uart,
            channels,
            focus: 0,
            view,
            // Lines of Gear2's own may exceed the limit, which is for the output of VMs.
            queue: VecDeque::with_capacity(2 * QUEUE_BYTES),
            line: None,
            waiting: 0,
            command_key: false,
            coloured: false,
            now: 0,
            patience,
            line_since: 0,
            held: false,
        }
    }

    /// Takes a byte that a VM sends.
    pub(crate) fn send(&mut self, vm: usize, byte: u8, now: u64) -> Flow {
        self.now = now;
        let Some(channel) = self.channels.get_mut(vm) else {
            return Flow::Open;
        };
        channel.ring.push(byte);
        self.show(vm);
        // The byte ended the line that the others' output waited for.
        if self.line.is_none() && self.held {
            self.show_all();
        }
        if !self.flush() {
            self.uart.interrupt_when_room(true);
        }
        if self.is_full(vm) {
            self.waiting |= 1 << vm;
            return Flow::Full;
        }
        Flow::Open
    }

    /// Shows a line of Gear2's own.
    pub(crate) fn say(&mut self, text: fmt::Arguments<'_>) {
        self.end_line();
        self.put(format!("gear2: {text}\r\n").as_bytes());
        self.send_all();
    }

    /// Returns the time for the next [`Self::service`], when output waits for the end of a line.
    pub(crate) const fn held_until(&self) -> Option<u64> {
        if self.held {
            Some(self.line_since.saturating_add(self.patience))
        } else {
            None
        }
    }

    /// Sends as much output as possible. Returns the VMs, one bit each, whose wait is over.
    pub(crate) fn service(&mut self, now: u64) -> u32 {
        self.now = now;
        self.send_all()
    }

    /// Sends as much output as possible, and has the UART interrupt when there is room for the
    /// rest. Returns the VMs, one bit each, whose wait is over.
    fn send_all(&mut self) -> u32 {
        while self.flush() && self.show_all() {}
        self.uart.interrupt_when_room(!self.queue.is_empty());
        let waiting = self.waiting;
        let still = (0..self.channels.len()).filter(|&vm| self.is_full(vm));
        self.waiting &= still.fold(0, |mask, vm| mask | 1 << vm);
        waiting & !self.waiting
    }

    /// Sends all that waits, however long the UART takes. For the machine's last words.
    pub(crate) fn drain(&mut self) {
        // The machine goes off: no unfinished line is worth a wait.
        self.patience = 0;
        // The length of the queue bounds the loop: a UART that sends nothing is broken hardware.
        for _ in 0..u32::MAX {
            self.send_all();
            if self.queue.is_empty() {
                return;
            }
        }
    }

    /// Returns what the next byte received means, `None` if there is none.
    pub(crate) fn input(&mut self) -> Option<Input> {
        let byte = self.uart.receive()?;
        if core::mem::take(&mut self.command_key) {
            return Some(self.command(byte));
        }
        if byte != COMMAND_KEY {
            return Some(Input::Byte(self.focus, byte));
        }
        self.command_key = true;
        self.coloured = true;
        Some(Input::Done)
    }

    /// Returns what the key behind the command key means. Keys that concern the terminal alone take
    /// effect here.
    fn command(&mut self, key: u8) -> Input {
        let command = match key {
            COMMAND_KEY => return Input::Byte(self.focus, key),
            b'0'..=b'9' => {
                self.give_focus(usize::from(key - b'0'));
                return Input::Done;
            }
            b'n' => {
                self.give_focus((self.focus + 1) % self.channels.len().max(1));
                return Input::Done;
            }
            b'a' => {
                self.view = View::All;
                self.end_line();
                self.send_all();
                return Input::Done;
            }
            b'l' => Command::List,
            b't' => Command::Start,
            b's' => Command::Stop,
            b'r' => Command::Restart,
            b'p' => Command::Statistics,
            b'L' => Command::Log,
            b'w' => Command::LastWords,
            b'q' => Command::PowerOff,
            _ => {
                self.say(format_args!("{HELP}"));
                return Input::Done;
            }
        };
        Input::Command(command, self.focus)
    }

    /// Gives a VM the keyboard and the terminal, and shows the end of its output again.
    fn give_focus(&mut self, vm: usize) {
        let Some(channel) = self.channels.get_mut(vm) else {
            let count = self.channels.len();
            self.say(format_args!("there is no VM {vm}, there are {count}"));
            return;
        };
        channel.ring.show_again(TAIL_BYTES);
        let name = channel.name.clone();
        self.focus = vm;
        self.view = View::Focus;
        self.say(format_args!("--- {name} ---"));
    }

    /// Tells whether a VM's output goes to the terminal now.
    fn is_shown(&self, vm: usize) -> bool {
        match self.view {
            View::All => true,
            View::Focus => vm == self.focus,
        }
    }

    /// Tells whether so much of a VM's output is unseen that its UART is to wait. A VM that is not
    /// shown never waits: its oldest output is lost.
    fn is_full(&self, vm: usize) -> bool {
        let unseen = self
            .channels
            .get(vm)
            .map_or(0, |channel| channel.ring.unseen());
        self.is_shown(vm) && unseen >= FULL_BYTES
    }

    /// Appends the last bytes that a VM has sent, `count` at most.
    pub(crate) fn tail(&self, vm: usize, count: u64, to: &mut Vec<u8>) {
        if let Some(channel) = self.channels.get(vm) {
            to.extend(channel.ring.tail(count));
        }
    }

    /// Shows waiting output of all VMs. Returns whether there was any.
    fn show_all(&mut self) -> bool {
        self.held = false;
        let shown = (0..self.channels.len()).filter(|&vm| self.show(vm));
        shown.count() > 0
    }

    /// Moves bytes of a VM from its ring to the terminal, and tells whether it did.
    fn show(&mut self, vm: usize) -> bool {
        let mut any = false;
        while self.queue.len() < QUEUE_BYTES && self.is_due(vm) {
            if self.is_line_of_another(vm) {
                self.held = true;
                break;
            }
            let Some(byte) = self.channels[vm].ring.take() else {
                break;
            };
            self.begin_line(vm);
            self.queue.push_back(byte);
            self.line = (byte != b'\n').then_some(vm);
            any = true;
        }
        any
    }

    /// Returns whether a VM has output that must be shown now.
    fn is_due(&self, vm: usize) -> bool {
        let ring = &self.channels[vm].ring;
        let byte_by_byte = vm == self.focus || self.line == Some(vm);
        let due = byte_by_byte || ring.has_line() || ring.unseen() >= LONGEST_LINE;
        due && ring.unseen() > 0 && self.is_shown(vm)
    }

    /// Tells whether the terminal's current line is another VM's and must not be interrupted.
    fn is_line_of_another(&self, vm: usize) -> bool {
        let young = self.now.saturating_sub(self.line_since) < self.patience;
        young && self.line.is_some_and(|owner| owner != vm)
    }

    /// Puts the label before the first byte of a line.
    fn begin_line(&mut self, vm: usize) {
        if self.line == Some(vm) {
            return;
        }
        self.end_line();
        self.line_since = self.now;
        if self.view == View::All {
            let name = &self.channels[vm].name;
            let label = if self.coloured {
                format!("\x1b[3{}m[{name}]\x1b[0m ", vm % 6 + 1)
            } else {
                format!("[{name}] ")
            };
            self.put(label.as_bytes());
        }
    }

    /// Ends the line of the VM that wrote last, so that another's begins in the first column.
    fn end_line(&mut self) {
        if self.line.take().is_some() {
            self.put(b"\r\n");
        }
    }

    /// Queues bytes for the UART.
    fn put(&mut self, bytes: &[u8]) {
        self.queue.extend(bytes);
    }

    /// Hands bytes to the UART until it is full, and tells whether all went.
    fn flush(&mut self) -> bool {
        while let Some(&byte) = self.queue.front() {
            if !self.uart.send(byte) {
                return false;
            }
            self.queue.pop_front();
        }
        true
    }
}
