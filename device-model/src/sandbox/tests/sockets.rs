//! Tests of the filters of a guest's sockets: of the thread that serves them, and of its broker.

use super::*;
use crate::backend::vsock::tests::{Sockets, end, op};

/// The filters are active as GDM loads them, of the thread that serves and of its broker.
#[test]
fn sockets_are_served_by_a_thread_that_is_restricted() {
    if !is_alone("sockets::sockets_are_served_by_a_thread_that_is_restricted") {
        return;
    }
    let mut sockets = Sockets::new(|role| enter(role).unwrap());
    let listener = sockets.listen(7);
    let mut program = sockets.program();
    program.write_all(b"CONNECT 52\n").unwrap();
    let served = std::thread::spawn(move || {
        enter(Role::Vsock).unwrap();
        let host = sockets.expect_from(op::REQUEST);
        sockets.tell(host, 52, op::RESPONSE);
        sockets.send_data(host, 52, b"answer");
        sockets.tell(7, 1000, op::REQUEST);
        sockets.expect_from(op::RESPONSE);
        sockets.send_data(7, 1000, b"question");
        sockets.shut(7, 1000, end::SEND);
        // Nobody listens.
        sockets.tell(8, 1000, op::REQUEST);
        sockets.expect_from(op::RST);
        sockets
    });
    let sockets = served.join().unwrap();
    program.set_nonblocking(false).unwrap();
    let answer = format!("OK {}\nanswer", 1 << 30);
    let mut bytes = vec![0; answer.len()];
    program.read_exact(&mut bytes).unwrap();
    assert_eq!(bytes, answer.as_bytes());
    let mut question = String::new();
    let (mut other, _) = listener.accept().unwrap();
    other.read_to_string(&mut question).unwrap();
    assert_eq!(question, "question");
    drop(sockets);
}

#[test]
fn the_broker_makes_unix_sockets_alone() {
    if !is_alone("sockets::the_broker_makes_unix_sockets_alone") {
        return;
    }
    let make = |family: i32| ends(Role::Broker, libc::SYS_socket, &[family.into(), 1, 0]);
    assert_eq!(make(libc::AF_UNIX), WENT_THROUGH);
    for family in [
        libc::AF_INET,
        libc::AF_NETLINK,
        libc::AF_PACKET,
        libc::AF_VSOCK,
    ] {
        assert_eq!(make(family), REFUSED, "{family}");
    }
}

/// The broker stays root, and can reach sockets of others: nothing else.
#[test]
fn the_broker_gives_up_all_capabilities_but_one() {
    let before = rights();
    let (given_up, after) = std::thread::scope(|scope| {
        let body = || (give_up_rights(Role::Broker), rights());
        scope.spawn(body).join().unwrap()
    });
    assert_eq!(rights(), before, "another thread lost its rights");
    if !before["Uid"].starts_with("0 ") {
        let error = given_up.unwrap_err().to_string();
        assert!(error.starts_with("cannot give up capabilities"), "{error}");
        return;
    }
    given_up.unwrap();
    let access = "0000000000000002";
    assert_eq!([&after["CapPrm"], &after["CapEff"]], [access; 2]);
    assert_eq!(after["CapInh"], "0000000000000000");
    assert_eq!(
        (&after["Uid"], after["NoNewPrivs"].as_str()),
        (&before["Uid"], "1")
    );
}
