//! All connections of a guest: which packet belongs to which, whose turn it is, and how many there
//! may be.
//!
//! Invariants: at most [`MOST_LINKS`] connections, programs that call included; at most
//! [`MOST_REPLIES`] refusals wait before the guest's packets do; each connection has its turn
//! before another one has its next.

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, ErrorKind};
use std::ops::Bound::{Excluded, Unbounded};
use std::os::fd::{AsRawFd as _, RawFd};
use std::os::unix::net::UnixStream;
use std::time::Instant;

use vmm_sys_util::epoll::{ControlOperation, EpollEvent, EventSet};

use super::link::{BUFFER, Link, Ports, Verdict};
use super::opening::{self, Answer, Opened};
use super::packet::{HOST, Header, STREAM, op};

/// Connections at a time.
pub(super) const MOST_LINKS: usize = 64;
/// Refusals that wait for room in the guest at most. Further packets of the guest wait with them.
pub(super) const MOST_REPLIES: usize = 64;
/// Ports of the device VM that connections of programs have.
const FIRST_PORT: u32 = 1 << 30;
/// Last of these ports; the search for a free one goes on at the first.
const LAST_PORT: u32 = (1 << 31) - 1;
/// Marks of the listening socket and of the broker's among the connections' numbers.
const LISTENER: u64 = u64::MAX;
const BROKER: u64 = u64::MAX - 1;
/// Events taken from the kernel at a time.
const EVENTS: usize = 32;

/// The connections of a guest.
#[derive(Debug)]
pub(super) struct Links {
    /// The guest's identifier.
    cid: u64,
    /// The socket that programs connect to, and the way to the broker, which may connect.
    sockets: Opened,
    /// Whether a driver uses the device: without one, programs are turned away.
    pub(super) has_driver: bool,
    /// By a number that is used once.
    links: BTreeMap<u64, Link>,
    /// Never used again: an event of a connection that is gone finds none.
    next_number: u64,
    /// The connection that had its turn last.
    last: u64,
    /// Where the search for a free port begins, so that a port is not used again at once.
    next_port: u32,
    /// Refusals for the guest.
    replies: VecDeque<Header>,
    /// Whether programs may wait to be accepted, and whether the broker may have answered.
    has_callers: bool,
    has_answers: bool,
    /// Packets that were none, or went nowhere.
    pub(super) errors: u64,
}

impl Links {
    /// Makes the connections of the guest `cid`, of which there are none.
    pub(super) fn new(cid: u64, sockets: Opened) -> io::Result<Self> {
        let watch = |fd, mark| add(&sockets, fd, mark, EventSet::IN);
        watch(sockets.listener.as_raw_fd(), LISTENER)?;
        watch(sockets.broker.as_raw_fd(), BROKER)?;
        Ok(Self {
            cid,
            sockets,
            has_driver: false,
            links: BTreeMap::new(),
            next_number: 0,
            last: 0,
            next_port: FIRST_PORT,
            replies: VecDeque::new(),
            has_callers: true,
            has_answers: false,
            errors: 0,
        })
    }

    /// Returns the descriptor that is ready when a socket is.
    pub(super) fn descriptor(&self) -> RawFd {
        self.sockets.epoll.as_raw_fd()
    }

    /// Ends all connections, of which the guest knows nothing any longer.
    pub(super) fn clear(&mut self) {
        self.links.clear();
        self.replies.clear();
    }

    /// Goes on with what happened on the side of the device VM.
    pub(super) fn poll(&mut self, now: Instant) {
        self.take_events();
        self.take_answers();
        self.accept(now);
        let numbers: Vec<u64> = self.links.keys().copied().collect();
        for number in numbers {
            let verdict = self.links.get_mut(&number).map(|link| link.step(now));
            self.follow(number, verdict.unwrap_or(Verdict::Keep), now);
        }
        // The steps may have ended connections, which make room.
        self.accept(now);
    }

    /// Notes which sockets are ready. Each event is shown once.
    fn take_events(&mut self) {
        let mut events = [EpollEvent::default(); EVENTS];
        loop {
            let count = self.sockets.epoll.wait(0, &mut events).unwrap_or(0);
            for event in events.iter().take(count) {
                self.note(event.data(), event.event_set());
            }
            if count < EVENTS {
                return;
            }
        }
    }

    /// Notes an event of a socket of the device's own, or of the connection with this number.
    fn note(&mut self, mark: u64, events: EventSet) {
        match mark {
            LISTENER => self.has_callers = true,
            BROKER => self.has_answers = true,
            number => {
                let readable = events.intersects(EventSet::IN | EventSet::READ_HANG_UP);
                let writable = events.contains(EventSet::OUT);
                let gone = events.intersects(EventSet::HANG_UP | EventSet::ERROR);
                if let Some(link) = self.links.get_mut(&number) {
                    link.note_events(readable, writable, gone);
                }
            }
        }
    }

    /// Takes the programs that the broker connected to. The guest may have lost interest.
    fn take_answers(&mut self) {
        while self.has_answers {
            match opening::answer(&self.sockets.broker) {
                Answer::None => self.has_answers = false,
                Answer::Of(port, program) => self.take_program(port, program),
                Answer::Ended => {
                    self.has_answers = false;
                    let asked = self.links.iter().filter(|(_, link)| link.is_asked());
                    let asked: Vec<u64> = asked.map(|(number, _)| *number).collect();
                    asked.into_iter().for_each(|number| self.reset(number));
                }
            }
        }
    }

    /// Gives a program to the first connection that waits for one behind this port.
    fn take_program(&mut self, port: u32, program: io::Result<UnixStream>) {
        let mut waiting = self.links.iter_mut();
        let Some((number, link)) = waiting.find(|(_, link)| link.awaits_program(port)) else {
            return;
        };
        let number = *number;
        let Ok(stream) = program else {
            self.reset(number);
            return;
        };
        let fd = stream.as_raw_fd();
        link.take_program(stream);
        if self.watch(fd, number).is_err() {
            self.reset(number);
        }
    }

    /// Accepts programs, as many as there is room for. The others wait in the listening socket.
    fn accept(&mut self, now: Instant) {
        // planted: programs use up the descriptors
        while self.has_callers && self.links.len() < MOST_LINKS {
            let stream = match self.sockets.listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) => {
                    // After another error, such as no descriptor, the next turn tries again.
                    self.has_callers = error.kind() != ErrorKind::WouldBlock;
                    return;
                }
            };
            // Nobody would answer, and a program that is not told waits.
            if !self.has_driver || stream.set_nonblocking(true).is_err() {
                continue;
            }
            let fd = stream.as_raw_fd();
            let number = self.insert(Link::of_program(stream, now));
            if self.watch(fd, number).is_err() {
                self.links.remove(&number);
            }
        }
    }

    /// Adds a connection; returns its number.
    fn insert(&mut self, link: Link) -> u64 {
        let number = self.next_number;
        self.next_number += 1;
        self.links.insert(number, link);
        number
    }

    /// Has events of a connection's socket come with its number. The kernel forgets the socket when
    /// its last descriptor is closed.
    fn watch(&self, fd: RawFd, number: u64) -> io::Result<()> {
        let events = EventSet::IN | EventSet::OUT | EventSet::READ_HANG_UP;
        add(&self.sockets, fd, number, events)
    }

    /// Does what a connection's verdict says.
    fn follow(&mut self, number: u64, verdict: Verdict, now: Instant) {
        match verdict {
            Verdict::Keep => {}
            Verdict::Reset => self.reset(number),
            Verdict::Forget => drop(self.links.remove(&number)),
            Verdict::Wants(guest) => {
                let host = self.free_port(guest);
                if let Some(link) = self.links.get_mut(&number) {
                    link.offer(Ports { host, guest }, now);
                }
            }
        }
    }

    /// Tells the guest that a connection is over. Bytes on their way to the program still go there.
    fn reset(&mut self, number: u64) {
        let Some(link) = self.links.get(&number) else {
            return;
        };
        let Ports { host, guest } = link.ports;
        if !link.is_draining() {
            self.links.remove(&number);
        }
        self.replies.push_back(Header {
            target_port: guest,
            source_port: host,
            ..self.reply(op::RST)
        });
    }

    /// Returns a header of the device VM's for this guest.
    fn reply(&self, op: u16) -> Header {
        Header {
            source_cid: HOST,
            target_cid: self.cid,
            kind: STREAM,
            op,
            ..Header::default()
        }
    }

    /// Returns a port of the device VM that no connection to this port of the guest has. There are
    /// far fewer connections than ports.
    fn free_port(&mut self, guest: u32) -> u32 {
        loop {
            let host = self.next_port;
            self.next_port = if host == LAST_PORT {
                FIRST_PORT
            } else {
                host + 1
            };
            if self.find(Ports { host, guest }).is_none() {
                return host;
            }
        }
    }

    /// Returns the number of the connection with these ports; a search, as there are 64 at most.
    fn find(&self, ports: Ports) -> Option<u64> {
        let mut links = self.links.iter();
        let found = links.find(|(_, link)| link.has_ports(ports));
        found.map(|(number, _)| *number)
    }

    /// Tells whether so many refusals wait that the guest's next packets have to wait, too.
    pub(super) fn is_choked(&self) -> bool {
        // planted: a guest has the device model refuse without end
        self.replies.len() >= MOST_REPLIES
    }

    /// Takes a packet of the guest's. `data` are the bytes behind the header, or, of more than fit,
    /// only some of them.
    pub(super) fn packet(&mut self, header: &Header, data: &[u8], now: Instant) {
        if header.source_cid != self.cid {
            // Nobody has that name, so nobody can be answered.
            self.errors += 1;
            return;
        }
        if header.target_cid != HOST || header.kind != STREAM {
            self.refuse(header);
            return;
        }
        let ports = Ports {
            host: header.target_port,
            guest: header.source_port,
        };
        match self.find(ports) {
            None if header.op == op::REQUEST => self.request(ports, header),
            None => self.refuse(header),
            Some(number) => {
                let link = self.links.get_mut(&number);
                let verdict = link.map(|link| link.packet(header, data));
                self.follow(number, verdict.unwrap_or(Verdict::Keep), now);
            }
        }
    }

    /// Answers a packet that belongs to nothing as if by whom it was sent to. A refusal is not
    /// answered: two sides that refuse each other's refusals never end.
    fn refuse(&mut self, header: &Header) {
        self.errors += 1;
        // planted: a refusal is refused
        if header.op != op::RST {
            self.replies.push_back(Header {
                source_cid: header.target_cid,
                source_port: header.target_port,
                target_port: header.source_port,
                kind: header.kind,
                ..self.reply(op::RST)
            });
        }
    }

    /// Asks the broker for the program that the guest wants.
    fn request(&mut self, ports: Ports, header: &Header) {
        // planted: a guest has as many connections as it likes
        let is_full = self.links.len() >= MOST_LINKS;
        if is_full || opening::ask(&self.sockets.broker, ports.host).is_err() {
            self.refuse(header);
            return;
        }
        self.insert(Link::of_guest(ports, header));
    }

    /// Tells whether there may be a packet for the guest.
    pub(super) fn has_news(&self) -> bool {
        !self.replies.is_empty() || self.links.values().any(Link::has_news)
    }

    /// Returns the next packet for the guest, whose data are the first bytes of `data`. Refusals
    /// come first: they are few, and let go what the guest holds.
    pub(super) fn next(&mut self, data: &mut [u8], now: Instant) -> Option<Header> {
        if let Some(reply) = self.replies.pop_front() {
            return Some(reply);
        }
        let behind = self.links.range((Excluded(self.last), Unbounded));
        let before = self.links.range(..=self.last);
        let ready = behind.chain(before).filter(|(_, link)| link.has_news());
        let ready: Vec<u64> = ready.map(|(number, _)| *number).collect();
        ready
            .into_iter()
            .find_map(|number| self.turn(number, data, now))
    }

    /// Returns the next packet of a connection.
    fn turn(&mut self, number: u64, data: &mut [u8], now: Instant) -> Option<Header> {
        let reply = self.reply(0);
        let link = self.links.get_mut(&number)?;
        let (op, flags, length) = link.next(data, now)?;
        // planted: one connection has all turns
        self.last = number;
        let mut header = Header {
            source_port: link.ports.host,
            target_port: link.ports.guest,
            length: length as u32,
            op,
            flags,
            ..reply
        };
        link.tell_credit(&mut header);
        Some(header)
    }
}

/// Has the sockets' descriptor be ready when this one is.
fn add(sockets: &Opened, fd: RawFd, mark: u64, events: EventSet) -> io::Result<()> {
    let event = EpollEvent::new(events | EventSet::EDGE_TRIGGERED, mark);
    sockets.epoll.ctl(ControlOperation::Add, fd, event)
}

/// Most bytes of a packet that a connection can use.
pub(super) const LONGEST: usize = BUFFER as usize;
