//! Limits: of connections, of refusals, of time.

use super::super::links::{MOST_LINKS, MOST_REPLIES};
use super::*;
use crate::state::Word;

#[test]
fn a_guest_has_so_many_connections_and_programs_wait() {
    let mut sockets = Sockets::new(|_| {});
    let listener = sockets.listen(7);
    let mut programs = Vec::new();
    for port in 0..MOST_LINKS as u32 {
        programs.push(sockets.reach(&listener, 7, port));
    }
    sockets.tell(7, 1000, op::REQUEST);
    assert_eq!(sockets.expect(op::RST).target_port, 1000);
    let mut caller = sockets.program();
    caller.write_all(b"CONNECT 5\n").unwrap();
    assert!(sockets.is_quiet());
    sockets.tell(7, 3, op::RST);
    sockets.guest.work();
    assert_eq!(sockets.expect(op::REQUEST).target_port, 5);
    assert!(closes(&mut programs[3]));
    assert!(!is_closed(&mut programs[4]));
}

/// A guest that takes no refusals gets no more of its packets served, and goes on where it stopped.
#[test]
fn refusals_wait_for_room() {
    let mut sockets = Sockets::without_buffers(|_| {});
    let garbage = sockets.header(1, 1, op::RW);
    for sent in 1..=MOST_REPLIES + 10 {
        sockets.send(garbage, &[]);
        let used = usize::from(sockets.guest.used_index(TRANSMIT));
        assert_eq!(used, sent.min(MOST_REPLIES));
    }
    sockets.offer_buffers(0..16);
    for _ in 0..MOST_REPLIES + 10 {
        sockets.expect(op::RST);
    }
    assert!(sockets.is_quiet());
    let used = usize::from(sockets.guest.used_index(TRANSMIT));
    assert_eq!(used, MOST_REPLIES + 10);
}

/// A program that the guest gives up before it is connected sees an end, and nothing is left of it.
#[test]
fn connections_that_a_guest_gives_up_end() {
    let mut sockets = Sockets::new(|_| {});
    let listener = sockets.listen(7);
    listener.set_nonblocking(true).unwrap();
    let mut programs = Vec::new();
    for port in 0..300 {
        sockets.tell(7, port, op::REQUEST);
        sockets.tell(7, port, op::RST);
        while sockets.next_now().is_some() {}
        programs.extend(listener.accept().ok().map(|(program, _)| program));
    }
    let start = Instant::now();
    while programs.len() < 100 && start.elapsed() < PATIENCE {
        programs.extend(listener.accept().ok().map(|(program, _)| program));
    }
    assert!(programs.len() >= 100, "{}", programs.len());
    for mut program in programs {
        program.set_nonblocking(true).unwrap();
        while !is_closed(&mut program) {
            sockets.guest.work();
            assert!(start.elapsed() < PATIENCE);
        }
    }
    let other = sockets.listen(8);
    sockets.reach(&other, 8, 5000);
}

#[test]
fn packets_that_are_none_are_counted() {
    let mut sockets = Sockets::new(|_| {});
    let errors = |sockets: &Sockets| sockets.guest.state().get(Word::Errors);
    sockets.guest.request(TRANSMIT, 0, &[(DATA, 43, false)]);
    sockets.guest.work();
    assert_eq!(
        (errors(&sockets), sockets.guest.used_index(TRANSMIT)),
        (1, 1)
    );
    let stranger = Header {
        source_cid: CID + 1,
        ..sockets.header(1, 1, op::REQUEST)
    };
    sockets.send(stranger, &[]);
    assert_eq!(errors(&sockets), 2);
    assert!(sockets.is_quiet());
}
