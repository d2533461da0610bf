//! Sockets between a guest and programs: a driver made of plain memory on one side, unix sockets on
//! the other.

use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::{Duration, Instant};

use super::link::BUFFER;
use super::packet::{HEADER, HOST, Header, STREAM};
pub(crate) use super::packet::{end, op};
use super::{QUEUES, RECEIVE, TRANSMIT, Vsock};
use crate::backend::vsock::opening::{Opened, claim};
use crate::backend::{Backend, Confine};
use crate::testing::{DATA, Directory, Guest, RAM, WRITE};

mod ends;
mod flow;
mod hostile;
mod limits;

/// The guest's identifier.
const CID: u64 = 3;
/// Port of the guest, and of the device VM, in most tests.
const PORT: u32 = 52;
/// Bytes of each buffer for packets, and where the first is. A driver of Linux's has 4 KiB.
const ROOM: u64 = 0x1000;
const BUFFERS: u64 = RAM + 0x20_0000;
const EVENTS: usize = 2;
/// Longest time for something that another thread does.
const PATIENCE: Duration = Duration::from_secs(20);

/// A guest with sockets, and the folder in which its programs meet it.
pub(crate) struct Sockets {
    pub(crate) guest: Guest,
    directory: Directory,
    /// Number of packets that the guest has looked at.
    seen: u16,
    /// Bytes of data that the guest has taken, which it tells with each packet.
    taken: u32,
    /// Room that the guest claims to have.
    room: u32,
}

fn open(directory: &Directory) -> Box<dyn Backend> {
    open_with(directory, |_| {})
}

fn open_with(directory: &Directory, confine: Confine) -> Box<dyn Backend> {
    let path = format!("{}/vsock", directory.text());
    let opened = Opened::of(claim(&path, confine).unwrap()).unwrap();
    Box::new(Vsock::serving(CID, opened).unwrap())
}

impl Sockets {
    /// Makes a guest whose driver is ready and has buffers for packets.
    pub(crate) fn new(confine: Confine) -> Self {
        let mut sockets = Self::without_buffers(confine);
        sockets.offer_buffers(0..16);
        sockets
    }

    fn without_buffers(confine: Confine) -> Self {
        let directory = Directory::new("vsock");
        let mut guest = Guest::new(open_with(&directory, confine));
        guest.initialise(0, QUEUES);
        Self {
            guest,
            directory,
            seen: 0,
            taken: 0,
            room: 0x4_0000,
        }
    }

    fn offer_buffers(&mut self, heads: impl IntoIterator<Item = u16>) {
        let table = self.guest.rings[RECEIVE].descriptors();
        for head in heads {
            let address = BUFFERS + ROOM * u64::from(head);
            self.guest
                .describe(table, head, (address, ROOM as u32, WRITE, 0));
            self.guest.offer(RECEIVE, head);
        }
        self.guest.work();
    }

    pub(crate) fn path(&self, suffix: &str) -> String {
        format!("{}/vsock{suffix}", self.directory.text())
    }

    /// Connects a program, which waits for nothing.
    pub(crate) fn program(&self) -> UnixStream {
        let program = UnixStream::connect(self.path("")).unwrap();
        program.set_nonblocking(true).unwrap();
        program
    }

    /// Starts to listen as a program does for the guest's port `port`.
    pub(crate) fn listen(&self, port: u32) -> UnixListener {
        UnixListener::bind(self.path(&format!("_{port}"))).unwrap()
    }

    /// Returns a header as the guest's driver writes it.
    fn header(&self, host: u32, guest: u32, op: u16) -> Header {
        Header {
            source_cid: CID,
            target_cid: HOST,
            source_port: guest,
            target_port: host,
            kind: STREAM,
            op,
            buffer: self.room,
            forwarded: self.taken,
            ..Header::default()
        }
    }

    /// Sends a packet, in two pieces as Linux does.
    fn send(&mut self, header: Header, data: &[u8]) {
        self.guest.put(DATA, &header.to_bytes());
        self.guest.put(DATA + HEADER as u64, data);
        let mut pieces = vec![(DATA, HEADER as u32, false)];
        if !data.is_empty() {
            pieces.push((DATA + HEADER as u64, data.len() as u32, false));
        }
        self.guest.request(TRANSMIT, 0, &pieces);
        self.guest.work();
    }

    pub(crate) fn tell(&mut self, host: u32, guest: u32, op: u16) {
        self.send(self.header(host, guest, op), &[]);
    }

    pub(crate) fn send_data(&mut self, host: u32, guest: u32, data: &[u8]) {
        let length = data.len() as u32;
        let header = Header {
            length,
            ..self.header(host, guest, op::RW)
        };
        self.send(header, data);
    }

    pub(crate) fn shut(&mut self, host: u32, guest: u32, flags: u32) {
        let header = Header {
            flags,
            ..self.header(host, guest, op::SHUTDOWN)
        };
        self.send(header, &[]);
    }

    /// Returns the next packet if there is one, and offers its buffer again.
    fn next_now(&mut self) -> Option<(Header, Vec<u8>)> {
        self.guest.work();
        if self.guest.used_index(RECEIVE) == self.seen {
            return None;
        }
        let (head, written) = self.guest.used(RECEIVE, self.seen);
        self.seen = self.seen.wrapping_add(1);
        let at = BUFFERS + ROOM * u64::from(head);
        let bytes = self.guest.get(at, written as usize);
        let (header, data) = bytes.split_first_chunk().unwrap();
        let header = Header::from_bytes(header);
        assert_eq!(header.length as usize, data.len());
        assert_eq!((header.source_cid, header.target_cid), (HOST, CID));
        self.offer_buffers([head as u16]);
        Some((header, data.to_vec()))
    }

    /// Waits for a packet.
    fn next(&mut self) -> (Header, Vec<u8>) {
        let start = Instant::now();
        loop {
            if let Some(packet) = self.next_now() {
                return packet;
            }
            assert!(start.elapsed() < PATIENCE, "there is no packet");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Waits for a packet with this operation, of a connection.
    fn expect(&mut self, op: u16) -> Header {
        let (header, _) = self.next();
        assert_eq!(header.op, op, "{header:?}");
        header
    }

    /// Waits for a packet with this operation; returns the port that it is from.
    pub(crate) fn expect_from(&mut self, op: u16) -> u32 {
        self.expect(op).source_port
    }

    fn is_quiet(&mut self) -> bool {
        self.next_now().is_none()
    }

    /// Connects a program to the guest's port; returns it, and the port of the device VM.
    pub(crate) fn call(&mut self, port: u32) -> (UnixStream, u32) {
        let mut program = self.program();
        writeln!(program, "CONNECT {port}").unwrap();
        let request = self.expect(op::REQUEST);
        assert_eq!((request.target_port, request.kind), (port, STREAM));
        self.tell(request.source_port, port, op::RESPONSE);
        let answer = format!("OK {}\n", request.source_port);
        assert_eq!(take(&mut program, answer.len()), answer.as_bytes());
        (program, request.source_port)
    }

    /// Connects the guest to a program.
    pub(crate) fn reach(&mut self, listener: &UnixListener, host: u32, guest: u32) -> UnixStream {
        self.tell(host, guest, op::REQUEST);
        let response = self.expect(op::RESPONSE);
        assert_eq!((response.source_port, response.target_port), (host, guest));
        assert_eq!(response.buffer, BUFFER);
        let (program, _) = listener.accept().unwrap();
        program.set_nonblocking(true).unwrap();
        program
    }
}

/// Reads so many bytes of a program's that must be there.
fn take(program: &mut UnixStream, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    program.read_exact(&mut bytes).unwrap();
    bytes
}

/// Waits for the end of what the other side sends. The process that another test starts has a copy
/// of each descriptor until its program begins: the end comes with the last copy's.
pub(crate) fn closes(program: &mut UnixStream) -> bool {
    program.set_nonblocking(false).unwrap();
    program.set_read_timeout(Some(PATIENCE)).unwrap();
    is_closed(program)
}

/// Tells whether the other side has closed the socket.
fn is_closed(program: &mut UnixStream) -> bool {
    match program.read(&mut [0]) {
        Ok(length) => length == 0,
        Err(error) => error.kind() != ErrorKind::WouldBlock,
    }
}

#[test]
fn a_header_is_44_bytes_in_the_order_of_the_specification() {
    let bytes: [u8; HEADER] = core::array::from_fn(|at| at as u8);
    let header = Header::from_bytes(&bytes);
    assert_eq!(header.source_cid, 0x0706_0504_0302_0100);
    assert_eq!(header.target_cid, 0x0f0e_0d0c_0b0a_0908);
    assert_eq!(
        [header.source_port, header.target_port],
        [0x1312_1110, 0x1716_1514]
    );
    assert_eq!(
        (header.length, header.kind, header.op),
        (0x1b1a_1918, 0x1d1c, 0x1f1e)
    );
    let rest = [header.flags, header.buffer, header.forwarded];
    assert_eq!(rest, [0x2322_2120, 0x2726_2524, 0x2b2a_2928]);
    assert_eq!(header.to_bytes(), bytes);
}

#[test]
fn the_guest_sees_its_identifier() {
    let sockets = Sockets::new(|_| {});
    assert_eq!(sockets.guest.read(8), 19);
    assert_eq!(
        [0x100, 0x104].map(|at| sockets.guest.read(at)),
        [CID as u32, 0]
    );
}

#[test]
fn a_program_reaches_a_port_of_the_guest() {
    let mut sockets = Sockets::new(|_| {});
    let (mut program, host) = sockets.call(PORT);
    assert!(host >= 1 << 30);
    program.write_all(b"to the guest").unwrap();
    let (header, data) = sockets.next();
    assert_eq!(
        (header.op, data.as_slice()),
        (op::RW, b"to the guest".as_slice())
    );
    assert_eq!((header.source_port, header.target_port), (host, PORT));
    sockets.send_data(host, PORT, b"to the program");
    assert_eq!(take(&mut program, 14), b"to the program");
    let (_, other) = sockets.call(PORT);
    assert_ne!(host, other);
}

/// Bytes behind a program's line are the guest's, whenever they come.
#[test]
fn a_program_may_speak_before_the_guest_has_accepted() {
    let mut sockets = Sockets::new(|_| {});
    let mut program = sockets.program();
    for byte in b"CONNECT 52\nearly" {
        program.write_all(&[*byte]).unwrap();
        sockets.guest.work();
    }
    let host = sockets.expect(op::REQUEST).source_port;
    assert!(sockets.is_quiet());
    sockets.tell(host, PORT, op::RESPONSE);
    let (_, data) = sockets.next();
    assert_eq!(data, b"early");
}

#[test]
fn a_program_that_asks_for_no_port_is_turned_away() {
    let mut sockets = Sockets::new(|_| {});
    let lines: [&[u8]; 9] = [
        b"\n",
        b"CONNECT\n",
        b"CONNECT \n",
        b"CONNECT x\n",
        b"CONNECT +5\n",
        b"CONNECT 4294967296\n",
        b"connect 5\n",
        b"CONNECT 5 \n",
        b"CONNECT 000000000000000000000005",
    ];
    for line in lines {
        let mut program = sockets.program();
        program.write_all(line).unwrap();
        assert!(sockets.is_quiet());
        assert!(closes(&mut program), "{line:?}");
    }
}

#[test]
fn a_program_is_told_that_the_guest_refuses() {
    let mut sockets = Sockets::new(|_| {});
    let mut program = sockets.program();
    program.write_all(b"CONNECT 9\n").unwrap();
    let host = sockets.expect(op::REQUEST).source_port;
    assert!(!is_closed(&mut program));
    sockets.tell(host, 9, op::RST);
    assert!(closes(&mut program));
    assert!(sockets.is_quiet());
}

#[test]
fn the_guest_reaches_a_program() {
    let mut sockets = Sockets::new(|_| {});
    let listener = sockets.listen(7);
    let mut program = sockets.reach(&listener, 7, 1000);
    sockets.send_data(7, 1000, b"question");
    assert_eq!(take(&mut program, 8), b"question");
    program.write_all(b"answer").unwrap();
    let (header, data) = sockets.next();
    assert_eq!((header.source_port, header.target_port), (7, 1000));
    assert_eq!(data, b"answer");
    let mut other = sockets.reach(&listener, 7, 1001);
    sockets.send_data(7, 1001, b"second");
    assert_eq!(take(&mut other, 6), b"second");
}

#[test]
fn the_guest_is_told_that_no_program_listens() {
    let mut sockets = Sockets::new(|_| {});
    sockets.tell(7, 1000, op::REQUEST);
    let reset = sockets.expect(op::RST);
    assert_eq!((reset.source_port, reset.target_port), (7, 1000));
    // Neither a file nor a socket that nobody has any longer.
    std::fs::write(sockets.path("_8"), b"").unwrap();
    drop(sockets.listen(9));
    for port in [8, 9] {
        sockets.tell(port, 1000, op::REQUEST);
        assert_eq!(sockets.expect(op::RST).source_port, port);
    }
}

#[test]
fn a_program_whose_queue_of_callers_is_full_holds_up_nobody() {
    let mut sockets = Sockets::new(|_| {});
    let full = sockets.listen(5);
    let mut callers = Vec::new();
    while let Ok(caller) = crate::sys::connect_at_once(&sockets.path("_5")) {
        callers.push(caller);
    }
    sockets.tell(5, 1000, op::REQUEST);
    sockets.expect(op::RST);
    let listener = sockets.listen(6);
    sockets.reach(&listener, 6, 1001);
    drop(full);
}

#[test]
fn a_socket_of_an_earlier_gdm_is_replaced_and_nothing_else_is() {
    let directory = Directory::new("vsock");
    let path = format!("{}/vsock", directory.text());
    drop(UnixListener::bind(&path).unwrap());
    assert!(claim(&path, |_| {}).is_ok());
    std::fs::remove_file(&path).unwrap();
    std::fs::write(&path, b"of somebody").unwrap();
    let error = claim(&path, |_| {}).unwrap_err();
    assert_eq!(error, format!("{path}: is no socket"));
    assert_eq!(std::fs::read(&path).unwrap(), b"of somebody");
    let missing = format!("{}/none/vsock", directory.text());
    let error = claim(&missing, |_| {}).unwrap_err();
    assert!(
        error.starts_with(&format!("{missing}: No such file")),
        "{error}"
    );
}
