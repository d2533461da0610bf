use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;

use super::clients::{get_page, load, store_and_get};
use super::{Traffic, run, serve};

/// Starts a peer on a free port.
fn peer() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || serve(&listener));
    address
}

/// Starts a server that answers the bytes that arrive with these, once, and returns a connection
/// with it.
fn server(requested: usize, answer: &'static str) -> TcpStream {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.read_exact(&mut vec![0; requested]).unwrap();
        stream.write_all(answer.as_bytes()).unwrap();
    });
    TcpStream::connect(address).unwrap()
}

#[test]
fn all_of_the_traffic_arrives() {
    let peer = peer();
    for (name, count) in [("rr", 100), ("stream", 1), ("stream", 700), ("maerts", 33)] {
        let traffic = Traffic::parse(name).unwrap();
        run(peer, traffic, count).unwrap_or_else(|error| panic!("{name}: {error}"));
    }
    assert!(Traffic::parse("udp").unwrap_err().contains("udp"));
}

#[test]
fn a_peer_says_what_it_does_not_understand() {
    let mut stream = TcpStream::connect(peer()).unwrap();
    stream.write_all(b"rr many\n").unwrap();
    let mut said = String::new();
    stream.read_to_string(&mut said).unwrap();
    assert!(said.contains("rr many"), "{said}");
}

#[test]
fn a_page_is_an_answer_with_a_page() {
    let request = b"GET /page HTTP/1.0\r\n\r\n".len();
    get_page(server(request, "HTTP/1.1 200 OK\r\nA: b\r\n\r\ntext")).unwrap();
    for wrong in ["HTTP/1.1 404 No\r\n\r\ntext", "HTTP/1.1 200 OK\r\n\r\n", ""] {
        let error = get_page(server(request, wrong)).unwrap_err();
        assert!(error.to_string().contains("the web server"), "{error}");
    }
}

#[test]
fn a_value_that_was_not_stored_is_told() {
    let request = "set key-0 0 0 1024\r\n".len() + 1024 + 2;
    store_and_get(server(request, "STORED\r\n"), 1).unwrap();
    let error = store_and_get(server(request, "SERVER_ERROR\r\n"), 1).unwrap_err();
    assert!(error.to_string().contains("SERVER_ERROR"), "{error}");
}

#[test]
fn operations_are_divided_among_clients() {
    let (sender, counts) = std::sync::mpsc::channel();
    let sender = std::sync::Mutex::new(sender);
    load(5, |count| {
        sender.lock().unwrap().send(count).unwrap();
        Ok(())
    })
    .unwrap();
    let mut counts: Vec<u64> = counts.try_iter().collect();
    counts.sort_unstable();
    assert_eq!(counts, [2, 3]);
}
