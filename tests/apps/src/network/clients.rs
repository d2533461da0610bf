//! Clients of a web server and of memcached, which load the server from the peer.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::thread;

/// Clients that load a server at the same time.
const CLIENTS: u64 = 2;
/// Ports of the servers.
const WEB: u16 = 80;
const CACHE: u16 = 11211;
/// Bytes of a value in memcached.
const VALUE: usize = 1024;
/// One of so many operations stores a value, and the others get it.
const TURNS: u64 = 10;
/// Different keys.
const KEYS: u64 = 64;

/// Divides operations among clients, and waits for all of them.
pub(super) fn load(
    count: u64,
    client: impl Fn(u64) -> io::Result<()> + Copy + Send,
) -> io::Result<()> {
    thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|index| scope.spawn(move || client((count + index) / CLIENTS)))
            .collect();
        clients.into_iter().try_for_each(|client| {
            let ended = client.join();
            ended.unwrap_or_else(|_| Err(io::Error::other("a client has panicked")))
        })
    })
}

/// Gets a page so many times, each by a connection of its own, as ApacheBench does.
pub(super) fn get_pages(server: IpAddr, count: u64) -> io::Result<()> {
    for _ in 0..count {
        get_page(TcpStream::connect(SocketAddr::new(server, WEB))?)?;
    }
    Ok(())
}

/// Gets a page. An answer that is none would be a faster one.
pub(super) fn get_page(mut stream: TcpStream) -> io::Result<()> {
    stream.write_all(b"GET /page HTTP/1.0\r\n\r\n")?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    let text = String::from_utf8_lossy(&answer);
    let parts = text.split_once("\r\n\r\n");
    let is_page = parts.is_some_and(|(head, page)| {
        let status = head.split_whitespace().nth(1);
        status == Some("200") && !page.is_empty()
    });
    match is_page {
        true => Ok(()),
        false => Err(io::Error::other(format!("the web server says {text:.80?}"))),
    }
}

/// Stores and gets values by one connection.
pub(super) fn use_cache(server: IpAddr, count: u64) -> io::Result<()> {
    if count == 0 {
        return Ok(());
    }
    store_and_get(TcpStream::connect(SocketAddr::new(server, CACHE))?, count)
}

/// Does so many operations, in memcached's text protocol (doc/protocol.txt).
pub(super) fn store_and_get(stream: TcpStream, count: u64) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut reader = BufReader::new(stream);
    let value = "v".repeat(VALUE);
    for turn in 0..count {
        let key = format!("key-{}", turn / TURNS % KEYS);
        let (request, lines) = match turn % TURNS {
            0 => (
                format!("set {key} 0 0 {VALUE}\r\n{value}\r\n"),
                vec!["STORED".to_owned()],
            ),
            _ => (
                format!("get {key}\r\n"),
                vec![
                    format!("VALUE {key} 0 {VALUE}"),
                    value.clone(),
                    "END".to_owned(),
                ],
            ),
        };
        reader.get_mut().write_all(request.as_bytes())?;
        for wanted in lines {
            expect(&mut reader, &wanted)?;
        }
    }
    Ok(())
}

/// Reads a line, which must be this one.
fn expect(reader: &mut BufReader<TcpStream>, wanted: &str) -> io::Result<()> {
    let mut line = String::new();
    reader.read_line(&mut line)?;
    match line.trim_end() == wanted {
        true => Ok(()),
        false => Err(io::Error::other(format!(
            "memcached says {line:.80?} instead of {wanted:.80?}"
        ))),
    }
}
