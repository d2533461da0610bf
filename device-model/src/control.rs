//! The control mailbox in the shared region, and the unix socket by which `gearctl` uses it.
//!
//! Owns: the order of users: one operation is in the mailbox at a time. The socket speaks lines of
//! JSON ([`crate::wire`], docs/gearctl.md).
//!
//! There are at most 16 clients. Another one waits until one of them leaves or has asked nothing
//! for 10 s, which is disconnected then.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use gear2_protocol::{Region, TRACE_WORDS, op, outcome};

use crate::board::DeviceNode;
use crate::choices::Choices;
use crate::error::ErrorKind;
use crate::mapping::{Doorbell, finish_stores};
use crate::orders::Desk;
use crate::sys::{self, Wait};
use crate::wire::{About, Answer, Answered, Asked, Called, Head, Request, VERSION, Words};
use crate::{json, progress};

mod devices;
#[cfg(test)]
mod tests;

/// Longest time until Gear2 answers.
const PATIENCE: Duration = Duration::from_secs(2);
/// Between two looks for the answer.
const STEP: Duration = Duration::from_micros(200);
/// Bounds the descriptors and the memory that programs of the device VM make GDM take.
const MOST_CLIENTS: usize = 16;
/// A client that asked nothing for so long gives way to another one when there are
/// [`MOST_CLIENTS`]. `gearctl` asks at least once a second while it runs, except at a console.
const IDLE: Duration = Duration::from_secs(10);
/// Bytes of a request; the longest one of the protocol, with a path whose characters are all
/// escaped, has fewer. A client that sends a longer line is disconnected.
const LONGEST_LINE: usize = 2048;

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
    pub fn call(&self, op: u32, arguments: [u64; 4]) -> Result<Called, Silent> {
        self.call_and(op, arguments, |called| called)
    }

    /// Asks Gear2 for an operation that has more words than the mailbox, and waits for its answer.
    pub fn words(&self, op: u32, arguments: [u64; 4]) -> Result<Words, Silent> {
        self.call_and(op, arguments, |called| {
            let words = self.region.trace.iter().take(word_count(op, &called));
            let words = words.map(|word| word.load(Ordering::Relaxed)).collect();
            Words { called, words }
        })
    }

    /// Asks Gear2 for an operation, and takes in the answer before another one is asked for.
    fn call_and<T>(
        &self,
        op: u32,
        arguments: [u64; 4],
        take: impl FnOnce(Called) -> T,
    ) -> Result<T, Silent> {
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
        Ok(take(Called { outcome, results }))
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

/// Returns how many words an answer has beside those of the mailbox. Gear2 may say more than there are.
fn word_count(op: u32, called: &Called) -> usize {
    let [first, second, ..] = called.results;
    let count = match (op, called.outcome) {
        (op::TRACE_READ, outcome::OK) => second.saturating_mul(TRACE_WORDS as u64),
        // A time and a count for each reason, twice.
        (op::TRACE_NOTE, outcome::OK) => first.saturating_add(1).saturating_mul(2),
        _ => 0,
    };
    usize::try_from(count).unwrap_or(usize::MAX)
}

/// Returns the text in result words: bytes in memory order, up to a zero.
pub fn name_of(words: &[u64]) -> String {
    let bytes = words.iter().flat_map(|word| word.to_le_bytes());
    let text: Vec<u8> = bytes.take_while(|byte| *byte != 0).collect();
    String::from_utf8_lossy(&text).into_owned()
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
    ) -> io::Result<Self> {
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
            Err(error) => return error.kind() == io::ErrorKind::WouldBlock,
        };
        client.heard = Instant::now();
        client.line.extend(bytes.iter().take(length));
        while let Some(end) = client.line.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = client.line.drain(..=end).collect();
            let (version, answer) = (VERSION, self.answer(&line));
            let answer = json::line(&Answered { version, answer }) + "\n";
            // A client that does not take its answer is not waited for.
            if client.stream.write_all(answer.as_bytes()).is_err() {
                return false;
            }
        }
        client.line.len() <= LONGEST_LINE
    }

    /// Returns the answer to a line.
    fn answer(&self, line: &[u8]) -> Answer {
        let Ok(head) = serde_json::from_slice::<Head>(line) else {
            let message = "a request is a line of JSON with its `version`; see docs/gearctl.md";
            return Answer::error(ErrorKind::Usage, message);
        };
        if head.version != VERSION {
            let asked = head.version;
            let message = format!("gdm speaks version {VERSION} of this protocol, and not {asked}");
            return Answer::error(ErrorKind::Version, message);
        }
        match serde_json::from_slice::<Asked>(line) {
            Ok(asked) => self.perform(asked.request),
            Err(error) => {
                let message = format!("gdm knows no such request: {error}");
                Answer::error(ErrorKind::Usage, message)
            }
        }
    }

    fn perform(&self, request: Request) -> Answer {
        match request {
            Request::About => Answer::About(self.about()),
            Request::Figures => devices::figures(self.region, &self.devices()),
            Request::Devices => devices::all(self.region, &self.devices()),
            Request::Order { channel, order } => devices::order(&self.desks, channel, order),
            Request::Call {
                operation,
                arguments,
            } => self.call(operation, arguments),
            Request::Words {
                operation,
                arguments,
            } => match self.mailbox.words(operation, arguments) {
                Ok(words) => Answer::Words(words),
                Err(silent) => Answer::error(ErrorKind::Unreachable, silent.to_string()),
            },
        }
    }

    /// Has Gear2 do an operation; other clients wait meanwhile.
    fn call(&self, op: u32, arguments: [u64; 4]) -> Answer {
        match self.mailbox.call(op, arguments) {
            Ok(called) => Answer::Call(called),
            Err(silent) => Answer::error(ErrorKind::Unreachable, silent.to_string()),
        }
    }

    /// Returns the region's header: versions, sizes and beats, as Gear2 and GDM keep them there.
    fn about(&self) -> About {
        let header = &self.region.header;
        let word = |word: &AtomicU32| word.load(Ordering::Relaxed).into();
        About {
            protocol: word(&header.version),
            vcpus: word(&header.vcpu_count),
            vms: word(&header.vm_count),
            starts: word(&header.gdm_starts),
            beats: word(&header.gdm_beats),
            hz: word(&header.counter_hz),
        }
    }
}
