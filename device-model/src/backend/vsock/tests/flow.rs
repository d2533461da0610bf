//! Credit of both sides, and turns of connections.

use std::collections::BTreeSet;

use super::*;

/// Writes as much as the kernel takes.
fn fill(program: &mut UnixStream) -> usize {
    let mut sent = 0;
    while let Ok(length) = program.write(&[5; 0x4000]) {
        sent += length;
    }
    sent
}

#[test]
fn a_guest_gets_no_more_than_it_has_room_for() {
    let mut sockets = Sockets::new(|_| {});
    sockets.room = 5000;
    let (mut program, host) = sockets.call(PORT);
    fill(&mut program);
    let lengths = [(); 2].map(|()| sockets.next().0.length);
    assert_eq!(lengths.iter().sum::<u32>(), 5000);
    // One question, and silence afterwards, whatever the guest answers without having room.
    sockets.expect(op::CREDIT_REQUEST);
    for _ in 0..3 {
        sockets.tell(host, PORT, op::CREDIT_UPDATE);
        assert!(sockets.is_quiet());
    }
    sockets.taken = 3000;
    sockets.tell(host, PORT, op::CREDIT_UPDATE);
    assert_eq!(sockets.next().0.length, 3000);
    sockets.expect(op::CREDIT_REQUEST);
}

#[test]
fn a_guest_that_lies_about_its_room_gets_nothing() {
    // The buffer shrinks below what is on its way; more was taken than was sent.
    for (room, taken) in [(100, 0), (0, 0), (5000, 5001), (4999, 0)] {
        let mut sockets = Sockets::new(|_| {});
        sockets.room = 5000;
        let (mut program, host) = sockets.call(PORT);
        fill(&mut program);
        sockets.next();
        sockets.next();
        sockets.expect(op::CREDIT_REQUEST);
        sockets.room = room;
        sockets.taken = taken;
        sockets.tell(host, PORT, op::CREDIT_UPDATE);
        assert!(sockets.is_quiet(), "{room} {taken}");
    }
}

#[test]
fn counts_of_bytes_wrap() {
    let mut sockets = Sockets::new(|_| {});
    sockets.taken = 0_u32.wrapping_sub(100);
    sockets.room = 200;
    let listener = sockets.listen(7);
    let mut program = sockets.reach(&listener, 7, 1000);
    // The guest says that it took 100 bytes less than none: it has room for 100 more.
    program.write_all(&[1; 300]).unwrap();
    assert_eq!(sockets.next().0.length, 100);
    sockets.expect(op::CREDIT_REQUEST);
    sockets.taken = 100;
    sockets.tell(7, 1000, op::CREDIT_UPDATE);
    assert_eq!(sockets.next().0.length, 200);
}

#[test]
fn a_guest_that_asks_is_told_of_the_room() {
    let mut sockets = Sockets::new(|_| {});
    let (mut program, host) = sockets.call(PORT);
    sockets.send_data(host, PORT, &[1; 1000]);
    assert!(sockets.is_quiet());
    sockets.tell(host, PORT, op::CREDIT_REQUEST);
    let update = sockets.expect(op::CREDIT_UPDATE);
    assert_eq!((update.buffer, update.forwarded), (BUFFER, 1000));
    take(&mut program, 1000);
}

/// A program that does not read stops its own guest's connection and nothing else, and the guest is
/// told when there is room again.
#[test]
fn a_slow_program_holds_up_its_connection_alone() {
    let mut sockets = Sockets::new(|_| {});
    let (mut slow, host) = sockets.call(PORT);
    let (mut quick, other) = sockets.call(PORT + 1);
    let mut sent = 0_u32;
    let mut forwarded = 0;
    // As a driver does: never more than the device has room for.
    while BUFFER - (sent - forwarded) >= 0x4000 {
        sockets.send_data(host, PORT, &[1; 0x4000]);
        sent += 0x4000;
        while let Some((header, _)) = sockets.next_now() {
            forwarded = header.forwarded;
        }
        assert!(sent < 0x100_0000, "the kernel takes all of it");
    }
    sockets.send_data(other, PORT + 1, b"quick");
    assert_eq!(take(&mut quick, 5), b"quick");
    assert!(sockets.is_quiet());
    let mut bytes = vec![0; 0x1_0000];
    let mut got = 0;
    while got < sent as usize {
        got += slow.read(&mut bytes).unwrap_or(0);
        while let Some((header, _)) = sockets.next_now() {
            assert_eq!(header.op, op::CREDIT_UPDATE);
            forwarded = header.forwarded;
        }
    }
    assert!(sent - forwarded < BUFFER / 4, "{sent} {forwarded}");
}

#[test]
fn connections_take_turns() {
    let mut sockets = Sockets::new(|_| {});
    let mut programs: Vec<(UnixStream, u32)> = (0..3).map(|n| sockets.call(PORT + n)).collect();
    for (program, _) in &mut programs {
        fill(program);
    }
    let mut order = Vec::new();
    for _ in 0..30 {
        let (header, _) = sockets.next();
        assert_eq!(header.op, op::RW);
        order.push(header.target_port);
    }
    let rounds: Vec<&[u32]> = order.chunks(3).collect();
    assert!(rounds.windows(2).all(|two| two[0] == two[1]), "{order:?}");
    let all: BTreeSet<u32> = rounds[0].iter().copied().collect();
    assert_eq!(all, (PORT..PORT + 3).collect(), "each has a turn");
}

/// Both directions at once, more than any buffer holds.
#[test]
fn megabytes_go_both_ways_unharmed() {
    const LENGTH: usize = 3 << 20;
    let byte = |at: usize| (at % 251) as u8;
    let mut sockets = Sockets::new(|_| {});
    let (mut program, host) = sockets.call(PORT);
    let (mut to_guest, mut at_guest, mut to_program, mut at_program) = (0, 0, 0, 0);
    let mut forwarded = 0_u32;
    let mut bytes = vec![0; 0x1_0000];
    while at_guest < LENGTH || at_program < LENGTH {
        let piece: Vec<u8> = (to_guest..LENGTH.min(to_guest + 0x3000))
            .map(byte)
            .collect();
        to_guest += program.write(&piece).unwrap_or(0);
        let room = (BUFFER - (to_program as u32 - forwarded)) as usize;
        let length = room.min(0x5000).min(LENGTH - to_program);
        if length > 0 {
            let piece: Vec<u8> = (to_program..to_program + length).map(byte).collect();
            sockets.send_data(host, PORT, &piece);
            to_program += length;
        }
        while let Some((header, data)) = sockets.next_now() {
            assert_ne!(header.op, op::RST);
            forwarded = header.forwarded;
            assert!(
                data.iter()
                    .enumerate()
                    .all(|(at, is)| *is == byte(at_guest + at))
            );
            at_guest += data.len();
            sockets.taken = at_guest as u32;
        }
        if at_guest > 0 {
            sockets.tell(host, PORT, op::CREDIT_UPDATE);
        }
        let length = program.read(&mut bytes).unwrap_or(0);
        let got = bytes[..length].iter().enumerate();
        assert!(got.clone().all(|(at, is)| *is == byte(at_program + at)));
        at_program += length;
    }
    assert_eq!((at_guest, at_program), (LENGTH, LENGTH));
}
