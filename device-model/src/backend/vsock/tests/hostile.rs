//! Each field that a guest fills in, with what a driver never writes there.

use proptest::prelude::{any, prop_oneof, proptest};
use proptest::sample::select;
use proptest::strategy::{Just, Strategy};

use super::*;
use crate::state::Word;
use crate::transport::register;

const NEEDS_RESET: u32 = 0x40;

/// Sends a packet that harms its connection alone: it ends, and another one goes on.
#[track_caller]
fn ends_its_connection(spoil: impl Fn(&mut Header)) {
    let mut sockets = Sockets::new(|_| {});
    let (mut program, host) = sockets.call(PORT);
    let (mut bystander, other) = sockets.call(PORT + 1);
    let mut header = sockets.header(host, PORT, op::RW);
    header.length = 8;
    spoil(&mut header);
    sockets.send(header, b"8 bytes.");
    assert_eq!(sockets.expect(op::RST).target_port, PORT, "{header:?}");
    assert!(closes(&mut program), "{header:?}");
    sockets.send_data(other, PORT + 1, b"well");
    assert_eq!(take(&mut bystander, 4), b"well");
    assert_eq!(sockets.guest.status() & NEEDS_RESET, 0);
}

#[test]
fn a_length_that_is_not_there_ends_the_connection() {
    for length in [9, BUFFER, BUFFER + 1, 0x7fff_ffff, u32::MAX] {
        ends_its_connection(|header| header.length = length);
    }
}

#[test]
fn an_operation_out_of_order_ends_the_connection() {
    for op in [0, op::REQUEST, op::RESPONSE, 8, 0x100, u16::MAX] {
        ends_its_connection(|header| header.op = op);
    }
}

#[test]
fn a_packet_before_the_connection_is_open_ends_it() {
    for op in [
        op::RW,
        op::SHUTDOWN,
        op::CREDIT_UPDATE,
        op::CREDIT_REQUEST,
        op::REQUEST,
        99,
    ] {
        let mut sockets = Sockets::new(|_| {});
        let mut program = sockets.program();
        program.write_all(b"CONNECT 52\n").unwrap();
        let host = sockets.expect(op::REQUEST).source_port;
        sockets.tell(host, PORT, op);
        sockets.expect(op::RST);
        assert!(closes(&mut program), "{op}");
    }
}

#[test]
fn data_beyond_the_room_ends_the_connection() {
    let mut sockets = Sockets::new(|_| {});
    let (mut program, host) = sockets.call(PORT);
    let piece = [1; 0x8000];
    let most = 0x100_0000 / piece.len();
    // Nobody reads: the kernel's buffer, then the connection's own are full.
    let refused = (0..most).any(|_| {
        sockets.send_data(host, PORT, &piece);
        let mut packets = std::iter::from_fn(|| sockets.next_now());
        packets.any(|(header, _)| header.op == op::RST)
    });
    assert!(refused);
    let mut got = 0;
    while let Ok(length @ 1..) = program.read(&mut [0; 0x1000]) {
        got += length;
    }
    assert!(got > 0 && closes(&mut program));
}

#[test]
fn what_belongs_to_nothing_is_refused_as_by_whom_it_was_sent_to() {
    let mut sockets = Sockets::new(|_| {});
    let (_program, host) = sockets.call(PORT);
    let good = sockets.header(host, PORT, op::RW);
    let spoilt = [
        Header {
            source_port: PORT + 9,
            ..good
        },
        Header {
            target_port: host + 9,
            ..good
        },
        Header {
            target_cid: 1,
            ..good
        },
        Header {
            target_cid: CID,
            ..good
        },
        Header {
            target_cid: u64::MAX,
            ..good
        },
        Header { kind: 0, ..good },
        Header { kind: 2, ..good },
        Header {
            kind: u16::MAX,
            ..good
        },
    ];
    for header in spoilt {
        sockets.guest.put(DATA, &header.to_bytes());
        sockets
            .guest
            .request(TRANSMIT, 0, &[(DATA, HEADER as u32, false)]);
        sockets.guest.work();
        let at = sockets.guest.used(RECEIVE, sockets.seen).0;
        let reply = sockets.guest.get(BUFFERS + ROOM * u64::from(at), HEADER);
        let reply = Header::from_bytes(reply.as_slice().try_into().unwrap());
        sockets.seen += 1;
        let expected = Header {
            source_cid: header.target_cid,
            target_cid: CID,
            source_port: header.target_port,
            target_port: header.source_port,
            kind: header.kind,
            op: op::RST,
            ..Header::default()
        };
        assert_eq!(reply, expected);
        // A refusal of it is not answered.
        let refusal = Header {
            op: op::RST,
            ..header
        };
        sockets.send(refusal, &[]);
        assert!(sockets.is_quiet());
    }
    sockets.send_data(host, PORT, b"goes on");
    assert!(sockets.is_quiet());
}

#[test]
fn a_guest_cannot_speak_for_another_one() {
    let mut sockets = Sockets::new(|_| {});
    let (mut program, host) = sockets.call(PORT);
    for source_cid in [0, 1, HOST, CID + 1, u64::MAX, CID | 1 << 32] {
        let header = Header {
            source_cid,
            ..sockets.header(host, PORT, op::RST)
        };
        sockets.send(header, &[]);
        assert!(sockets.is_quiet());
    }
    assert!(!is_closed(&mut program));
}

#[test]
fn ends_that_there_are_not_are_ignored() {
    let mut sockets = Sockets::new(|_| {});
    let (mut program, host) = sockets.call(PORT);
    for flags in [0, !end::BOTH] {
        sockets.shut(host, PORT, flags);
    }
    sockets.send_data(host, PORT, b"open");
    assert_eq!(take(&mut program, 4), b"open");
    sockets.shut(host, PORT, u32::MAX);
    sockets.expect(op::RST);
}

#[test]
fn a_buffer_without_room_for_a_header_breaks_the_device() {
    for length in [0, 1, 43] {
        let mut sockets = Sockets::without_buffers(|_| {});
        sockets
            .guest
            .request(RECEIVE, 0, &[(BUFFERS, length, true)]);
        sockets.tell(1, 1, op::RW);
        assert_eq!(
            sockets.guest.status() & NEEDS_RESET,
            NEEDS_RESET,
            "{length}"
        );
        assert_eq!(sockets.guest.used_index(RECEIVE), 0);
    }
    // The header alone fits: data waits for another buffer.
    let mut sockets = Sockets::without_buffers(|_| {});
    sockets.guest.request(RECEIVE, 0, &[(BUFFERS, 44, true)]);
    sockets.tell(1, 1, op::RW);
    assert_eq!(sockets.guest.used(RECEIVE, 0), (0, 44));
}

#[test]
fn an_event_without_room_breaks_the_device() {
    let mut sockets = Sockets::new(|_| {});
    sockets.guest.kill_gdm();
    sockets.guest.start_gdm(open(&sockets.directory));
    sockets.guest.request(EVENTS, 0, &[(BUFFERS, 3, true)]);
    sockets.guest.work();
    assert_eq!(sockets.guest.status() & NEEDS_RESET, NEEDS_RESET);
}

/// Linux sends data that lies in several pieces with MSG_ZEROCOPY, and may cut a header.
#[test]
fn a_packet_may_lie_in_many_pieces() {
    let mut sockets = Sockets::new(|_| {});
    let (mut program, host) = sockets.call(PORT);
    let header = Header {
        length: 9,
        ..sockets.header(host, PORT, op::RW)
    };
    sockets.guest.put(DATA, &header.to_bytes());
    sockets.guest.put(DATA + 44, b"in pieces");
    let pieces = [
        (DATA, 1, false),
        (DATA + 1, 42, false),
        (DATA + 43, 2, false),
        (DATA + 45, 3, false),
        (DATA + 48, 5, false),
    ];
    sockets.guest.request(TRANSMIT, 0, &pieces);
    sockets.guest.work();
    assert_eq!(take(&mut program, 9), b"in pieces");
}

fn header(host: u32) -> impl Strategy<Value = Header> {
    let cid = prop_oneof![9 => Just(CID), 1 => any::<u64>()];
    let target = prop_oneof![9 => Just(HOST), 1 => any::<u64>()];
    let hosts = select(vec![host, host + 1, 7, 8]);
    let length = prop_oneof![6 => 0..200_u32, 1 => any::<u32>()];
    let rooms = (select(vec![0, 1, 5000, u32::MAX]), any::<u32>());
    let words = (0..9_u16, 0..5_u32, 0..3_u16);
    (cid, target, hosts, PORT..PORT + 2, length, rooms, words).prop_map(
        |(source_cid, target_cid, target_port, source_port, length, rooms, words)| Header {
            source_cid,
            target_cid,
            source_port,
            target_port,
            length,
            kind: if words.2 == 0 { 2 } else { STREAM },
            op: words.0,
            flags: words.1,
            buffer: rooms.0,
            forwarded: rooms.1,
        },
    )
}

proptest! {
    /// Random packets, with programs on the other side: each is completed, and the device can be
    /// reset and works.
    #[test]
    fn random_packets_harm_nobody(
        packets in proptest::collection::vec((header(1 << 30), 0..300_usize), 1..40),
    ) {
        let mut sockets = Sockets::new(|_| {});
        let _listener = sockets.listen(7);
        let (mut program, _) = sockets.call(PORT);
        let _ = program.write(b"something");
        for (header, length) in packets {
            let used = sockets.guest.used_index(TRANSMIT);
            sockets.send(header, &[1; 300][..length]);
            assert_eq!(sockets.guest.used_index(TRANSMIT), used.wrapping_add(1));
            while sockets.guest.used_index(RECEIVE) != sockets.seen {
                let (head, _) = sockets.guest.used(RECEIVE, sockets.seen);
                sockets.seen = sockets.seen.wrapping_add(1);
                sockets.offer_buffers([head as u16]);
            }
        }
        assert_eq!(sockets.guest.status() & NEEDS_RESET, 0);
        assert_eq!(sockets.guest.state().get(Word::Breaks), 0);
        sockets.guest.write(register::STATUS, 0);
    }
}
