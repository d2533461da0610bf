//! The control mailbox in the shared region, and the unix socket by which `gearctl` uses it.
//!
//! Owns: the order of users: one operation is in the mailbox at a time. The socket
//! speaks lines of text:
//!
//! | request | answer |
//! |---|---|
//! | `call OP A0 A1 A2 A3` | `ok OUTCOME R0 R1 R2 R3 R4 R5` |
//! | `about` | `ok PROTOCOL VCPUS VMS STARTS BEATS HZ` |
//! | `devices` | `ok COUNT`, then a line for each device (see [`DeviceLine`]) |
//! | `nodes` | `ok COUNT`, then a line for each device (see [`NodeLine`]) |
//! | `order CHANNEL resize` | `ok BYTES`: a disk has looked at its size |
//! | `order CHANNEL detach` | `ok 0`: a disk has no medium |
//! | `order CHANNEL attach [PATH]` | `ok BYTES`: a disk has this medium, or the manifest's |
//! | `order CHANNEL link up`, `link down` | `ok 1` or `ok 0`: the link of a card is up, or down |
//! | anything else | `error SENTENCE` |
//!
//! There are at most 16 clients. Another one waits until one of them leaves or has asked nothing
//! for 10 s, which is disconnected then.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use gear2_protocol::{Region, op};

use crate::board::DeviceNode;
use crate::choices::Choices;
use crate::mapping::{Doorbell, finish_stores};
use crate::orders::Desk;
use crate::progress;
use crate::state::{DeviceState, Word};
use crate::sys::{self, Wait};

mod devices;
#[cfg(test)]
mod tests;

pub use devices::NodeLine;

/// Longest time until Gear2 answers.
const PATIENCE: Duration = Duration::from_secs(2);
/// Between two looks for the answer.
const STEP: Duration = Duration::from_micros(200);
/// Bounds the descriptors and the memory that programs of the device VM make GDM take.
const MOST_CLIENTS: usize = 16;
/// A client that asked nothing for so long gives way to another one when there are
/// [`MOST_CLIENTS`]. `gearctl` asks at least once a second while it runs, except at a console.
const IDLE: Duration = Duration::from_secs(10);
/// Bytes of a request; the longest one of the protocol has far fewer. A client that sends a longer
/// line is disconnected.
const LONGEST_LINE: usize = 256;

/// Answer of Gear2 to an operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// Outcome: a constant of [`gear2_protocol::outcome`].
    pub outcome: u32,
    /// Result words.
    pub results: [u64; 6],
}

/// Gear2 did not answer in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Silent;

impl fmt::Display for Silent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Gear2 does not answer: it is busy, or restarts; try again"
        )
    }
}

/// The mailbox.
#[derive(Debug)]
pub struct Mailbox {
    /// The region shared with Gear2, which has the mailbox in it.
    region: &'static Region,
    /// Locked by the user of the mailbox: one operation is under way at a time.
    doorbell: Mutex<Doorbell>,
    /// [`PATIENCE`], less in tests.
    patience: Duration,
}

impl Mailbox {
    /// Takes the mailbox of a region.
    pub fn new(region: &'static Region, doorbell: Doorbell) -> Self {
        Self {
            region,
            doorbell: Mutex::new(doorbell),
            patience: PATIENCE,
        }
    }

    /// Asks Gear2 for an operation and waits for its answer.
    pub fn call(&self, op: u32, arguments: [u64; 4]) -> Result<Answer, Silent> {
        let doorbell = self.doorbell.lock();
        let doorbell = doorbell.unwrap_or_else(PoisonError::into_inner);
        let control = &self.region.control;
        // Gear2 may still look at an operation that it was too slow for, or that an earlier GDM did
        // not ring for: another one's arguments must not get under it.
        if control.answered.load(Ordering::Acquire) != control.asked.load(Ordering::Relaxed) {
            doorbell.ring();
            // planted: an operation is written over before it was answered
            self.wait_for_answer()?;
        }
        self.ask(op, arguments);
        doorbell.ring();
        self.wait_for_answer()?;
        let mut results = [0; 6];
        for (result, word) in results.iter_mut().zip(&control.results) {
            *result = word.load(Ordering::Relaxed);
        }
        let outcome = control.outcome.load(Ordering::Relaxed);
        Ok(Answer { outcome, results })
    }

    /// Writes an operation. Its number comes last: Gear2 takes the words before as the operation's
    /// once it sees the number.
    fn ask(&self, op: u32, arguments: [u64; 4]) {
        let control = &self.region.control;
        control.op.store(op, Ordering::Relaxed);
        for (word, value) in control.arguments.iter().zip(arguments) {
            word.store(value, Ordering::Relaxed);
        }
        // Relaxed: this process alone writes the number, under the lock of the doorbell.
        let number = control.asked.load(Ordering::Relaxed).wrapping_add(1);
        finish_stores();
        control.asked.store(number, Ordering::Release);
    }

    /// Waits until Gear2 has answered the last operation.
    fn wait_for_answer(&self) -> Result<(), Silent> {
        let control = &self.region.control;
        let start = Instant::now();
        while control.answered.load(Ordering::Acquire) != control.asked.load(Ordering::Relaxed) {
            if start.elapsed() > self.patience {
                return Err(Silent);
            }
            progress::step();
            std::thread::sleep(STEP);
        }
        Ok(())
    }

    /// Returns a VM's name, or a name with its number if Gear2 returns none.
    pub fn vm_name(&self, vm: usize) -> String {
        let answer = self.call(op::VM_NAME, [vm as u64, 0, 0, 0]);
        let name = answer.ok().map(|answer| name_of(&answer.results));
        name.filter(|name| !name.is_empty())
            .unwrap_or_else(|| format!("vm{vm}"))
    }
}

/// Returns the text in result words: bytes in memory order, up to a zero.
pub fn name_of(words: &[u64]) -> String {
    let bytes = words.iter().flat_map(|word| word.to_le_bytes());
    let text: Vec<u8> = bytes.take_while(|byte| *byte != 0).collect();
    String::from_utf8_lossy(&text).into_owned()
}

/// A device's figures, as a line of the `devices` answer: the numbers in this order, then the
/// texts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceLine {
    /// Channel, status register, then the counters of the device's page.
    pub numbers: [u64; 11],
    /// VM, type, backend.
    pub texts: [String; 3],
}

/// Names of [`DeviceLine::numbers`].
pub const DEVICE_NUMBERS: [&str; 11] = [
    "channel",
    "status",
    "requests",
    "errors",
    "bytes_out",
    "bytes_in",
    "wakeups",
    "interrupts",
    "breaks",
    "registers",
    "set_up",
];

/// Words of a device's page, in the order of [`DEVICE_NUMBERS`] behind the channel.
const DEVICE_WORDS: [Word; 10] = [
    Word::Status,
    Word::Requests,
    Word::Errors,
    Word::BytesOut,
    Word::BytesIn,
    Word::Wakeups,
    Word::Interrupts,
    Word::Breaks,
    Word::Registers,
    Word::SetUpWrites,
];

impl DeviceLine {
    /// Reads a device's page. The thread of the device goes on meanwhile, so the figures are each
    /// of their own moment.
    fn of(region: &'static Region, node: &DeviceNode) -> Option<Self> {
        let state = DeviceState::new(region.devices.get(node.channel)?);
        let mut numbers = [node.channel as u64; 11];
        for (number, word) in numbers.iter_mut().skip(1).zip(DEVICE_WORDS) {
            *number = state.get(word);
        }
        let kind = node.kind.name().to_owned();
        let texts = [node.vm.clone(), kind, node.backend.clone()];
        Some(Self { numbers, texts })
    }

    /// Reads a line.
    pub fn parse(line: &str) -> Option<Self> {
        let mut words = line.splitn(DEVICE_NUMBERS.len() + 3, ' ');
        let mut result = Self::default();
        for number in &mut result.numbers {
            *number = words.next()?.parse().ok()?;
        }
        for text in &mut result.texts {
            words.next()?.clone_into(text);
        }
        Some(result)
    }
}

impl fmt::Display for DeviceLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for number in self.numbers {
            write!(f, "{number} ")?;
        }
        write!(f, "{}", self.texts.join(" "))
    }
}

/// The server of the control socket.
#[derive(Debug)]
pub struct Server<'m> {
    /// Socket at which `gearctl` connects.
    listener: UnixListener,
    /// At most [`MOST_CLIENTS`].
    clients: Vec<Client>,
    region: &'static Region,
    /// The way to Gear2, which the thread of the serial consoles uses as well.
    mailbox: &'m Mailbox,
    /// All devices, for `devices`; their figures are in the region.
    devices: Vec<DeviceNode>,
    /// By channel, where devices take orders.
    desks: BTreeMap<usize, Desk>,
    /// Media that disks have instead of the manifest's.
    choices: Arc<Choices>,
    /// [`IDLE`], less in tests.
    idle: Duration,
}

/// A connection of `gearctl`. A client that is silent for [`IDLE`] loses its place to others.
#[derive(Debug)]
struct Client {
    /// Non-blocking: one thread serves all clients.
    stream: UnixStream,
    /// Bytes of a line whose end has not come.
    line: Vec<u8>,
    /// Time of the connection, or of the client's last input.
    heard: Instant,
}

impl<'m> Server<'m> {
    /// Makes the socket at `path`.
    pub fn bind(
        path: &str,
        region: &'static Region,
        mailbox: &'m Mailbox,
        devices: Vec<DeviceNode>,
    ) -> std::io::Result<Self> {
        // An earlier GDM left its socket.
        let _ = std::fs::remove_file(path);
        let listener = UnixListener::bind(path)?;
        listener.set_nonblocking(true)?;
        Ok(Self {
            listener,
            clients: Vec::new(),
            region,
            mailbox,
            devices,
            desks: BTreeMap::new(),
            choices: Arc::default(),
            idle: IDLE,
        })
    }

    /// Passes orders on to the devices with these channels; `choices` are what follows from orders.
    pub fn order_by(&mut self, desks: BTreeMap<usize, Desk>, choices: Arc<Choices>) {
        self.desks = desks;
        self.choices = choices;
    }

    /// Returns the devices as they are now.
    fn devices(&self) -> Vec<DeviceNode> {
        let devices = self.devices.iter();
        devices.map(|node| self.choices.apply(node)).collect()
    }

    /// Serves for ever.
    pub fn run(&mut self) {
        loop {
            self.turn(1000);
        }
    }

    /// Waits for requests, and answers them; true if something came before the time was over.
    pub fn turn(&mut self, milliseconds: i32) -> bool {
        let ready = sys::wait(&self.waits(), milliseconds);
        progress::step();
        let woken = ready.contains(&true);
        // `waits` names the listener first, then the clients in the order of the list.
        let mut ready = ready.into_iter().skip(1);
        // Taken out, as answering needs the rest of the server.
        let mut clients = std::mem::take(&mut self.clients);
        clients.retain_mut(|client| !ready.next().unwrap_or(false) || self.serve(client));
        self.clients = clients;
        self.accept();
        woken
    }

    /// Returns what to wait for: the listener, then the clients in their order.
    fn waits(&self) -> Vec<Wait> {
        // A client that waits for a place must not end the wait each time while there is no room.
        let listener = Wait {
            fd: self.listener.as_raw_fd(),
            // planted: a client that cannot be accepted is waited for
            read: self.has_room(),
            write: false,
        };
        let clients = self.clients.iter().map(|client| Wait {
            fd: client.stream.as_raw_fd(),
            read: true,
            write: false,
        });
        std::iter::once(listener).chain(clients).collect()
    }

    /// Returns the client that was not heard of for the longest time, if that is long.
    fn idlest(&self) -> Option<usize> {
        let clients = self.clients.iter().enumerate();
        let (index, client) = clients.min_by_key(|(_, client)| client.heard)?;
        (client.heard.elapsed() >= self.idle).then_some(index)
    }

    /// Tells whether another client can be accepted, maybe in place of an idle one.
    fn has_room(&self) -> bool {
        // planted: an idle client keeps its place
        self.clients.len() < MOST_CLIENTS || self.idlest().is_some()
    }

    /// Accepts waiting clients, each in place of the idlest one if there is no room.
    fn accept(&mut self) {
        // Bound: one after the other could go on for ever; who is left is next.
        for _ in 0..MOST_CLIENTS {
            if !self.has_room() {
                return;
            }
            let Ok((stream, _)) = self.listener.accept() else {
                return;
            };
            if stream.set_nonblocking(true).is_err() {
                continue;
            }
            if self.clients.len() >= MOST_CLIENTS
                && let Some(index) = self.idlest()
            {
                self.clients.swap_remove(index);
            }
            self.clients.push(Client {
                stream,
                line: Vec::new(),
                heard: Instant::now(),
            });
        }
    }

    /// Reads input of a client and answers whole lines. Returns false if the client must be
    /// dropped. A request may come in pieces, and several in one. Half a line counts as input: its
    /// client is not idle.
    fn serve(&self, client: &mut Client) -> bool {
        let mut bytes = [0; LONGEST_LINE];
        let length = match client.stream.read(&mut bytes) {
            Ok(0) => return false,
            Ok(length) => length,
            Err(error) => return error.kind() == ErrorKind::WouldBlock,
        };
        client.heard = Instant::now();
        client.line.extend(bytes.iter().take(length));
        while let Some(end) = client.line.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = client.line.drain(..=end).collect();
            let answer = self.answer(String::from_utf8_lossy(&line).trim());
            // A client that does not take its answer is not waited for.
            if client.stream.write_all(answer.as_bytes()).is_err() {
                return false;
            }
        }
        client.line.len() <= LONGEST_LINE
    }

    /// Returns the answer to a request, with the newline at its end.
    fn answer(&self, line: &str) -> String {
        let mut words = line.split(' ');
        match words.next() {
            Some("about") => self.about(),
            Some("devices") => self.device_lines(),
            Some("nodes") => devices::node_lines(self.region, &self.devices()),
            Some("order") => devices::order(&self.desks, words),
            Some("call") => match numbers::<5>(words) {
                Some([op, arguments @ ..]) => self.call(op, arguments),
                None => "error call takes an operation and four arguments, all numbers\n".into(),
            },
            Some(_) | None => format!("error there is no request `{line}`\n"),
        }
    }

    /// Has Gear2 do an operation; other clients wait meanwhile.
    fn call(&self, op: u64, arguments: [u64; 4]) -> String {
        // A number that is no operation of any version does nothing.
        let op = u32::try_from(op).unwrap_or(op::NONE);
        match self.mailbox.call(op, arguments) {
            Ok(answer) => {
                let results: Vec<String> = answer.results.iter().map(u64::to_string).collect();
                format!("ok {} {}\n", answer.outcome, results.join(" "))
            }
            Err(silent) => format!("error {silent}\n"),
        }
    }

    /// Returns the region's header: versions, sizes and beats, as Gear2 and GDM keep them there.
    fn about(&self) -> String {
        let header = &self.region.header;
        let words = [
            &header.version,
            &header.vcpu_count,
            &header.vm_count,
            &header.gdm_starts,
            &header.gdm_beats,
            &header.counter_hz,
        ];
        let words = words.map(|word| word.load(Ordering::Relaxed).to_string());
        format!("ok {}\n", words.join(" "))
    }

    /// Returns the devices' figures. Their number comes first, for an answer has no other end.
    fn device_lines(&self) -> String {
        let devices = self.devices();
        let lines = devices.iter();
        let lines = lines.filter_map(|node| DeviceLine::of(self.region, node));
        let lines: Vec<String> = lines.map(|line| format!("{line}\n")).collect();
        format!("ok {}\n{}", lines.len(), lines.concat())
    }
}

/// Reads exactly `N` numbers.
pub fn numbers<'t, const N: usize>(words: impl Iterator<Item = &'t str>) -> Option<[u64; N]> {
    let numbers: Option<Vec<u64>> = words.map(|word| word.parse().ok()).collect();
    numbers?.try_into().ok()
}
