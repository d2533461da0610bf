//! One connection between a program of the device VM and a port of the guest.
//!
//! Owns: the program's socket, the bytes on their way to the program, and the credit of both sides
//! (virtio 1.2, 5.10.6.3). Invariant: no more than [`BUFFER`] bytes wait for the program, because a
//! guest that sends beyond its credit loses the connection.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use super::packet::{Header, end, op};

/// Bytes that wait for a program at most; the guest is told.
pub(super) const BUFFER: u32 = 0x2_0000;
/// The guest is told of bytes that the program took at the latest when there are so many.
const NEWS: u32 = BUFFER / 4;
/// Longest time in which a program says which port it wants. A person may type that.
const CALL_PATIENCE: Duration = Duration::from_secs(60);
/// Longest time in which the guest accepts or refuses.
const OFFER_PATIENCE: Duration = Duration::from_secs(10);
/// Longest time in which the guest confirms the end of a connection.
const END_PATIENCE: Duration = Duration::from_secs(10);
/// Longest line by which a program says which port it wants: `CONNECT 4294967295` and its end.
const LONGEST_CALL: usize = 19;

/// Ports of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ports {
    /// The device VM's.
    pub(super) host: u32,
    /// The guest's.
    pub(super) guest: u32,
}

/// Stage of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// A program is connected and has not said which port it wants.
    Call,
    /// The guest asked for a connection, and the broker is asked for the program.
    Asked,
    /// A program wants a connection, and the guest is asked.
    Offered,
    /// Both sides are connected.
    Open,
    /// The guest is done. What it sent is still on its way to the program.
    Draining,
}

/// Judgement after an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The connection goes on.
    Keep,
    /// The connection ends, and the guest is told.
    Reset,
    /// The connection ends. The guest knows.
    Forget,
    /// The program wants a connection to this port of the guest.
    Wants(u32),
}

/// News that the guest does not have.
#[derive(Debug, Default)]
struct Owed {
    /// [`op::REQUEST`] or [`op::RESPONSE`].
    opening: Option<u16>,
    /// Flags of [`op::SHUTDOWN`] that the guest does not know.
    ending: u32,
    /// The room for more data.
    credit: bool,
    /// The question for the guest's room.
    question: bool,
}

/// A connection.
#[derive(Debug)]
pub(super) struct Link {
    /// Ports of both sides, by which packets find the connection.
    pub(super) ports: Ports,
    /// How far the connection has come.
    stage: Stage,
    /// The program's end; `None` until the broker has it. Non-blocking.
    stream: Option<UnixStream>,
    /// Whether the kernel may have bytes of the program, or take bytes for it.
    readable: bool,
    writable: bool,
    /// Whether the program has closed its end.
    hung_up: bool,
    /// When the present stage has taken too long.
    deadline: Option<Instant>,
    /// Beginning of the line by which the program says which port it wants.
    call: Vec<u8>,
    /// Bytes from the guest for the program.
    waiting: VecDeque<u8>,
    /// Bytes that the program took, and the last such number that the guest was told; both wrap.
    forwarded: u32,
    told: u32,
    /// Bytes sent to the guest, and how many of them it took; both wrap. The guest's buffer.
    sent: u32,
    taken: u32,
    room: u32,
    /// Whether the guest was asked for its room since it last told.
    has_asked: bool,
    /// Packets that the guest has to be sent.
    owed: Owed,
    /// Ends that the guest, and that the program, has made known.
    guest_ended: u32,
    host_ended: u32,
}

impl Link {
    /// Makes a connection of which no byte has moved. A stream counts as ready until the kernel
    /// says that it is not, since edges of before are not shown.
    fn new(ports: Ports, stage: Stage, stream: Option<UnixStream>) -> Self {
        Self {
            ports,
            stage,
            readable: stream.is_some(),
            writable: stream.is_some(),
            stream,
            hung_up: false,
            deadline: None,
            call: Vec::new(),
            waiting: VecDeque::new(),
            forwarded: 0,
            told: 0,
            sent: 0,
            taken: 0,
            room: 0,
            has_asked: false,
            owed: Owed::default(),
            guest_ended: 0,
            host_ended: 0,
        }
    }

    /// Makes one of a program that has connected.
    pub(super) fn of_program(stream: UnixStream, now: Instant) -> Self {
        let ports = Ports { host: 0, guest: 0 };
        let mut link = Self::new(ports, Stage::Call, Some(stream));
        link.deadline = now.checked_add(CALL_PATIENCE);
        link
    }

    /// Makes one that the guest asked for by a packet with `header`.
    pub(super) fn of_guest(ports: Ports, header: &Header) -> Self {
        let mut link = Self::new(ports, Stage::Asked, None);
        link.note_credit(header);
        link
    }

    /// Tells whether packets of these ports are this connection's.
    pub(super) fn has_ports(&self, ports: Ports) -> bool {
        self.ports == ports && !matches!(self.stage, Stage::Call | Stage::Draining)
    }

    /// Tells whether the broker is asked for the program behind a port.
    pub(super) fn awaits_program(&self, port: u32) -> bool {
        self.is_asked() && self.ports.host == port
    }

    /// Tells whether the broker is asked for this connection's program.
    pub(super) fn is_asked(&self) -> bool {
        self.stage == Stage::Asked
    }

    /// Takes the program that the broker connected to: the guest's wish is fulfilled.
    pub(super) fn take_program(&mut self, stream: UnixStream) {
        self.stream = Some(stream);
        self.readable = true;
        self.writable = true;
        self.stage = Stage::Open;
        self.owed.opening = Some(op::RESPONSE);
    }

    /// Asks the guest for the connection that the program wants.
    pub(super) fn offer(&mut self, ports: Ports, now: Instant) {
        self.ports = ports;
        self.stage = Stage::Offered;
        self.deadline = now.checked_add(OFFER_PATIENCE);
        self.owed.opening = Some(op::REQUEST);
    }

    /// Notes what the kernel says of the program's socket.
    pub(super) fn note_events(&mut self, readable: bool, writable: bool, hung_up: bool) {
        self.readable |= readable | hung_up;
        self.writable |= writable | hung_up;
        self.hung_up |= hung_up;
        // A program that had sent all before it left now receives nothing either.
        if hung_up && self.host_ended & end::SEND != 0 {
            self.owe_end(end::BOTH);
        }
    }

    /// Goes on with what happened on the program's side.
    pub(super) fn step(&mut self, now: Instant) -> Verdict {
        if self.deadline.is_some_and(|deadline| now >= deadline) {
            return self.late();
        }
        match self.stage {
            Stage::Call => self.read_call(),
            Stage::Asked | Stage::Offered => Verdict::Keep,
            Stage::Open => {
                self.flush();
                Verdict::Keep
            }
            Stage::Draining => {
                self.flush();
                self.drained()
            }
        }
    }

    /// A stage took too long. The guest knows of the connection in all stages but the first.
    fn late(&self) -> Verdict {
        match self.stage {
            Stage::Call | Stage::Draining => Verdict::Forget,
            Stage::Asked | Stage::Offered | Stage::Open => Verdict::Reset,
        }
    }

    /// Reads the program's line, byte by byte: what follows the line is for the guest.
    fn read_call(&mut self) -> Verdict {
        while self.readable {
            let mut byte = [0];
            match self.read(&mut byte) {
                Some(1) if byte == *b"\n" => {
                    let port = port_of(&self.call);
                    return port.map_or(Verdict::Forget, Verdict::Wants);
                }
                // planted: a program calls in a line without an end
                Some(1) if self.call.len() < LONGEST_CALL => self.call.extend(byte),
                Some(_) => return Verdict::Forget,
                None => {}
            }
        }
        Verdict::Keep
    }

    /// Reads bytes of the program: `None` if there are none now, 0 at the end. An error is an end.
    fn read(&mut self, bytes: &mut [u8]) -> Option<usize> {
        let stream = self.stream.as_mut()?;
        loop {
            return match stream.read(bytes) {
                Ok(length) => Some(length),
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.readable = false;
                    None
                }
                Err(_) => Some(0),
            };
        }
    }

    /// Notes the guest's room, which each packet tells.
    pub(super) fn note_credit(&mut self, header: &Header) {
        self.room = header.buffer;
        self.taken = header.forwarded;
        // A guest that answers that it has no room is not asked again: it tells when it has.
        // planted: a guest without room is asked without end
        self.has_asked &= self.credit() == 0;
    }

    /// Returns how many bytes the guest has room for. A guest that claims to have taken more than
    /// was sent, or made its buffer smaller, has none.
    fn credit(&self) -> u32 {
        let on_their_way = self.sent.wrapping_sub(self.taken);
        // planted: data is sent beyond the guest's room
        self.room.saturating_sub(on_their_way)
    }

    /// Takes a packet of the guest's. `data` are the bytes behind the header, or, of more than fit,
    /// only some of them.
    pub(super) fn packet(&mut self, header: &Header, data: &[u8]) -> Verdict {
        self.note_credit(header);
        match (header.op, self.stage) {
            // All that the guest sent before its end is still the program's.
            (op::RST, _) if self.guest_ended & end::SEND != 0 => {
                self.stage = Stage::Draining;
                Verdict::Keep
            }
            (op::RST, _) => Verdict::Forget,
            (op::RESPONSE, Stage::Offered) => self.accepted(),
            (op::RW, Stage::Open) => self.take_data(header.length, data),
            (op::SHUTDOWN, Stage::Open) => self.take_end(header.flags),
            (op::CREDIT_UPDATE, Stage::Open) => Verdict::Keep,
            (op::CREDIT_REQUEST, Stage::Open) => {
                self.owed.credit = true;
                Verdict::Keep
            }
            // Nothing else makes sense here.
            _ => Verdict::Reset,
        }
    }

    /// The guest accepts: the program is told, with its port.
    fn accepted(&mut self) -> Verdict {
        self.stage = Stage::Open;
        self.deadline = None;
        let line = format!("OK {}\n", self.ports.host);
        let stream = self.stream.as_mut();
        // The socket is new, and has room for a line.
        match stream.map(|stream| stream.write(line.as_bytes())) {
            Some(Ok(length)) if length == line.len() => Verdict::Keep,
            _ => Verdict::Reset,
        }
    }

    /// Takes data for the program.
    fn take_data(&mut self, length: u32, data: &[u8]) -> Verdict {
        let waiting = self.waiting.len() as u64;
        // planted: a guest fills the device model's memory
        let fits = waiting + u64::from(length) <= u64::from(BUFFER);
        if !fits || data.len() != length as usize || self.guest_ended & end::SEND != 0 {
            return Verdict::Reset;
        }
        self.waiting.extend(data);
        self.flush();
        Verdict::Keep
    }

    /// Passes bytes on to the program, as far as it takes them.
    fn flush(&mut self) {
        while self.writable && !self.waiting.is_empty() {
            let (first, _) = self.waiting.as_slices();
            let stream = self.stream.as_mut();
            match stream.map_or(Ok(0), |stream| stream.write(first)) {
                Ok(0) => self.deafen(),
                Ok(length) => {
                    self.waiting.drain(..length);
                    self.forwarded = self.forwarded.wrapping_add(length as u32);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.writable = false,
                Err(_) => self.deafen(),
            }
        }
        if self.waiting.is_empty() && self.guest_ended & end::SEND != 0 {
            self.shut(Shutdown::Write);
        }
        // A guest that waits for room would never send again unless it is told.
        // planted: a guest is not told of room
        self.owed.credit |= self.forwarded.wrapping_sub(self.told) >= NEWS;
    }

    /// The program receives no more: what waits for it, and what still comes, is dropped.
    fn deafen(&mut self) {
        let dropped = self.waiting.len() as u32;
        self.waiting.clear();
        self.forwarded = self.forwarded.wrapping_add(dropped);
        self.owe_end(end::RECEIVE);
    }

    /// Shuts down a direction of the program's socket, which may be gone.
    fn shut(&self, how: Shutdown) {
        if let Some(stream) = &self.stream {
            let _ = stream.shutdown(how);
        }
    }

    /// Has the guest told of ends that it does not know.
    fn owe_end(&mut self, ends: u32) {
        self.owed.ending |= ends & !self.host_ended;
    }

    /// Notes that the guest will send, or receive, no more. A guest that does neither is done: its
    /// socket is let go, and what it sent is passed on at the program's pace.
    fn take_end(&mut self, flags: u32) -> Verdict {
        self.guest_ended |= flags & end::BOTH;
        if self.guest_ended & end::RECEIVE != 0 {
            self.shut(Shutdown::Read);
        }
        self.flush();
        if self.guest_ended != end::BOTH {
            return Verdict::Keep;
        }
        self.deadline = None;
        self.stage = Stage::Draining;
        Verdict::Reset
    }

    /// Tells whether the guest is done and bytes of it are still on their way.
    pub(super) fn is_draining(&self) -> bool {
        self.stage == Stage::Draining && !self.waiting.is_empty()
    }

    /// Returns the verdict on a connection that the guest has left: kept for the bytes that the
    /// program has not taken.
    fn drained(&self) -> Verdict {
        match self.is_draining() {
            true => Verdict::Keep,
            false => Verdict::Forget,
        }
    }

    /// Tells whether bytes of the program can go to the guest.
    fn reads(&self) -> bool {
        let ended = self.host_ended | self.owed.ending;
        self.stage == Stage::Open
            && self.readable
            && ended & end::SEND == 0
            && self.guest_ended & end::RECEIVE == 0
    }

    /// Tells whether there may be a packet for the guest.
    pub(super) fn has_news(&self) -> bool {
        let owed = &self.owed;
        owed.opening.is_some()
            || owed.ending != 0
            || owed.credit
            || owed.question
            || self.reads() && (self.credit() > 0 || !self.has_asked)
    }

    /// Returns the next packet for the guest: operation, flags, and how many bytes of `data` are
    /// its data.
    pub(super) fn next(&mut self, data: &mut [u8], now: Instant) -> Option<(u16, u32, usize)> {
        if let Some(opening) = self.owed.opening.take() {
            return Some((opening, 0, 0));
        }
        if let Some(length) = self.read_for_guest(data) {
            return Some((op::RW, 0, length));
        }
        if self.owed.ending != 0 {
            return Some((op::SHUTDOWN, self.tell_end(now), 0));
        }
        if core::mem::take(&mut self.owed.question) {
            return Some((op::CREDIT_REQUEST, 0, 0));
        }
        let credit = core::mem::take(&mut self.owed.credit);
        credit.then_some((op::CREDIT_UPDATE, 0, 0))
    }

    /// Reads bytes of the program that the guest has room for.
    fn read_for_guest(&mut self, data: &mut [u8]) -> Option<usize> {
        if !self.reads() {
            return None;
        }
        let credit = self.credit() as usize;
        if credit == 0 {
            self.owed.question |= !core::mem::replace(&mut self.has_asked, true);
            return None;
        }
        let room = data.len().min(credit);
        match self.read(data.get_mut(..room).unwrap_or_default())? {
            0 => {
                let gone = if self.hung_up { end::BOTH } else { end::SEND };
                self.owe_end(gone);
                None
            }
            length => {
                self.sent = self.sent.wrapping_add(length as u32);
                Some(length)
            }
        }
    }

    /// Returns all ends that the program has made known. A guest that knows of both confirms.
    fn tell_end(&mut self, now: Instant) -> u32 {
        self.host_ended |= core::mem::take(&mut self.owed.ending);
        if self.host_ended == end::BOTH {
            self.deadline = now.checked_add(END_PATIENCE);
        }
        self.host_ended
    }

    /// Fills in what each packet tells of the room for the guest's data.
    pub(super) fn tell_credit(&mut self, header: &mut Header) {
        self.told = self.forwarded;
        self.owed.credit = false;
        header.buffer = BUFFER;
        header.forwarded = self.forwarded;
    }
}

/// Returns the port that a line names: `CONNECT` and a decimal number.
fn port_of(line: &[u8]) -> Option<u32> {
    let text = std::str::from_utf8(line).ok()?;
    let number = text.trim_end_matches('\r').strip_prefix("CONNECT ")?;
    let is_number = number.bytes().all(|digit| digit.is_ascii_digit());
    number.parse().ok().filter(|_| is_number)
}
