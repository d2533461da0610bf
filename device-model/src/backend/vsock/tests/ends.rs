//! Ends of connections: half of them, all of them, of a driver and of a GDM.

use std::net::Shutdown;

use super::*;
use crate::transport::register;

#[test]
fn a_program_that_sends_no_more_still_receives() {
    let mut sockets = Sockets::new(|_| {});
    let (mut program, host) = sockets.call(PORT);
    program.write_all(b"last").unwrap();
    program.shutdown(Shutdown::Write).unwrap();
    let (_, data) = sockets.next();
    assert_eq!(data, b"last");
    assert_eq!(sockets.expect(op::SHUTDOWN).flags, end::SEND);
    sockets.send_data(host, PORT, b"answer");
    assert_eq!(take(&mut program, 6), b"answer");
    sockets.shut(host, PORT, end::BOTH);
    sockets.expect(op::RST);
    assert!(closes(&mut program));
}

#[test]
fn a_guest_that_sends_no_more_still_receives() {
    let mut sockets = Sockets::new(|_| {});
    let (mut program, host) = sockets.call(PORT);
    sockets.send_data(host, PORT, b"last");
    sockets.shut(host, PORT, end::SEND);
    assert_eq!(take(&mut program, 4), b"last");
    assert!(closes(&mut program));
    program.write_all(b"answer").unwrap();
    let (_, data) = sockets.next();
    assert_eq!(data, b"answer");
    // Data behind the end breaks the connection.
    sockets.send_data(host, PORT, b"more");
    sockets.expect(op::RST);
}

#[test]
fn a_guest_that_receives_no_more_still_sends() {
    let mut sockets = Sockets::new(|_| {});
    let (mut program, host) = sockets.call(PORT);
    sockets.shut(host, PORT, end::RECEIVE);
    let refused = program.write_all(b"nobody reads this").unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::BrokenPipe);
    assert!(sockets.is_quiet());
    sockets.send_data(host, PORT, b"still");
    assert_eq!(take(&mut program, 5), b"still");
    sockets.shut(host, PORT, end::SEND);
    sockets.expect(op::RST);
    assert!(closes(&mut program));
}

#[test]
fn the_guest_gets_all_that_a_program_sent_before_it_left() {
    let mut sockets = Sockets::new(|_| {});
    let (mut program, host) = sockets.call(PORT);
    let sent: Vec<u8> = (0..60_000_u32).map(|at| at as u8).collect();
    program.write_all(&sent).unwrap();
    drop(program);
    let mut got = Vec::new();
    let flags = loop {
        let (header, data) = sockets.next();
        got.extend(data);
        if header.op == op::SHUTDOWN {
            break header.flags;
        }
    };
    assert_eq!((flags, got == sent), (end::BOTH, true));
    sockets.tell(host, PORT, op::RST);
    assert!(sockets.is_quiet());
}

/// A server's answer must not be lost because the client still sent something.
#[test]
fn data_for_a_program_that_left_harms_nothing_that_it_sent() {
    let mut sockets = Sockets::new(|_| {});
    let (mut program, host) = sockets.call(PORT);
    program.write_all(b"answer").unwrap();
    drop(program);
    sockets.send_data(host, PORT, b"more");
    let (header, data) = sockets.next();
    assert_eq!((header.op, data.as_slice()), (op::RW, b"answer".as_slice()));
    assert_eq!(sockets.expect(op::SHUTDOWN).flags, end::BOTH);
}

/// Linux forgets a connection that is closed on both sides after 8 s, whatever is on its way.
#[test]
fn a_slow_program_gets_all_that_a_guest_sent_before_it_left() {
    let mut sockets = Sockets::new(|_| {});
    let (mut program, host) = sockets.call(PORT);
    let piece = [7; 0x8000];
    let mut sent = 0;
    // More than the kernel keeps for the program.
    while sent < BUFFER as usize * 3 {
        sockets.send_data(host, PORT, &piece);
        sent += piece.len();
        while sockets.next_now().is_some() {}
        if sockets.guest.state().get(crate::state::Word::Errors) > 0 || sent >= 0x4_0000 {
            break;
        }
    }
    sockets.shut(host, PORT, end::BOTH);
    sockets.expect(op::RST);
    // The guest may use the ports again at once.
    sockets.tell(host, PORT, op::CREDIT_REQUEST);
    sockets.expect(op::RST);
    let mut got = 0;
    let mut bytes = [0; 0x1000];
    loop {
        sockets.guest.work();
        match program.read(&mut bytes) {
            Ok(0) => break,
            Ok(length) => got += length,
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
        }
    }
    assert_eq!(got, sent);
}

#[test]
fn a_driver_that_resets_the_device_ends_all_connections() {
    let mut sockets = Sockets::new(|_| {});
    let (mut program, _) = sockets.call(PORT);
    let mut caller = sockets.program();
    sockets.guest.write(register::STATUS, 0);
    assert!(closes(&mut program));
    sockets.guest.work();
    assert!(closes(&mut caller));
    // Without a driver nobody would answer.
    let mut later = sockets.program();
    sockets.guest.work();
    assert!(closes(&mut later));
}

#[test]
fn a_guest_is_told_that_its_connections_ended_with_gdm() {
    let mut sockets = Sockets::new(|_| {});
    let (mut program, host) = sockets.call(PORT);
    let event = BUFFERS + 0x4_0000;
    sockets.guest.put(event, &[0xff; 8]);
    sockets.guest.request(EVENTS, 0, &[(event, 4, true)]);
    sockets.guest.work();
    assert_eq!(sockets.guest.used_index(EVENTS), 0);
    sockets.guest.kill_gdm();
    assert!(closes(&mut program));
    sockets.guest.start_gdm(open(&sockets.directory));
    sockets.guest.work();
    assert_eq!(sockets.guest.used(EVENTS, 0), (0, 4));
    assert_eq!(
        sockets.guest.get(event, 8),
        [0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff]
    );
    // The event comes once. What a guest still sends belongs to nothing.
    sockets.guest.request(EVENTS, 1, &[(event, 4, true)]);
    sockets.send_data(host, PORT, b"lost");
    sockets.expect(op::RST);
    assert_eq!(sockets.guest.used_index(EVENTS), 1);
    sockets.call(PORT);
}

/// The event waits for a buffer, over a second GDM too; a driver that starts anew needs none.
#[test]
fn the_news_of_an_end_waits_for_a_buffer() {
    let mut sockets = Sockets::new(|_| {});
    let event = BUFFERS + 0x4_0000;
    for _ in 0..2 {
        sockets.guest.kill_gdm();
        sockets.guest.start_gdm(open(&sockets.directory));
        sockets.guest.work();
    }
    sockets.guest.request(EVENTS, 0, &[(event, 4, true)]);
    sockets.guest.work();
    assert_eq!(sockets.guest.used_index(EVENTS), 1);
    sockets.guest.kill_gdm();
    sockets.guest.start_gdm(open(&sockets.directory));
    sockets.guest.work();
    for queue in 0..QUEUES {
        sockets.guest.rings[queue].added = 0;
        let ring = sockets.guest.rings[queue];
        for place in [ring.available(), ring.used()] {
            sockets.guest.put(place, &[0; 4]);
        }
    }
    sockets.guest.initialise(0, QUEUES);
    sockets.guest.request(EVENTS, 0, &[(event, 4, true)]);
    sockets.guest.work();
    assert_eq!(sockets.guest.used_index(EVENTS), 0);
}
