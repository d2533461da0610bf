//! One answer of HTTP/1.1 to one request, at a socket: as much as a scraper needs.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use super::text::CONTENT_TYPE;
use crate::error::Error;

#[cfg(test)]
mod tests;

/// Longest time for the request of a client, and for the client to take the answer. Others wait
/// meanwhile.
pub(super) const PATIENCE: Duration = Duration::from_secs(2);

/// Most bytes of a request's line and fields. A scraper sends a few hundred.
const MOST: usize = 8192;

/// Most bytes of a request that are read behind its longest length.
const MOST_DISCARDED: usize = 1 << 20;

/// End of the fields of a request.
const END: &[u8] = b"\r\n\r\n";

/// Content type of a sentence.
const PLAIN: &str = "text/plain; charset=utf-8";

/// An answer.
struct Reply {
    /// Status and its phrase.
    status: &'static str,
    content_type: &'static str,
    body: String,
}

impl Reply {
    /// Makes an answer that is a sentence.
    fn sentence(status: &'static str, sentence: &str) -> Self {
        Self {
            status,
            content_type: PLAIN,
            body: format!("{sentence}\n"),
        }
    }

    /// Returns the response's text. The length is that of the body, whether or not it is sent (RFC
    /// 9110, 9.3.2), and a refused method comes with those that are allowed (15.5.6).
    fn text(self, with_body: bool) -> String {
        let Self {
            status,
            content_type,
            body,
        } = self;
        let allow = match status.starts_with("405") {
            true => "Allow: GET, HEAD\r\n",
            false => "",
        };
        let length = body.len();
        let head = format!(
            "HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {length}\r\n\
             {allow}Connection: close\r\n\r\n"
        );
        if with_body { head + &body } else { head }
    }
}

/// Answers the request of a client, and closes the connection.
pub(super) fn answer(
    mut stream: UnixStream,
    patience: Duration,
    scrape: &mut dyn FnMut() -> Result<String, Error>,
) -> io::Result<()> {
    let head = head(&mut stream, Instant::now() + patience)?;
    let head = head.as_deref();
    let line = head.and_then(|head| head.lines().next());
    let line = line.unwrap_or_default();
    let method = line.split(' ').next().unwrap_or_default();
    let reply = match head {
        Some(_) => reply(line, scrape),
        None => Reply::sentence(
            "431 Request Header Fields Too Large",
            &format!("line and fields of a request have at most {MOST} bytes"),
        ),
    };
    // HEAD asks for what stands above the body.
    let text = reply.text(method != "HEAD");
    send(&mut stream, text.as_bytes(), Instant::now() + patience)?;
    discard(&mut stream)
}

/// Reads until the empty line behind the request's fields; `None` if they are too long. A body of the
/// request is not read.
fn head(stream: &mut UnixStream, end: Instant) -> io::Result<Option<String>> {
    let mut bytes = Vec::new();
    let mut piece = [0; 1024];
    loop {
        // planted: a client that sends a byte at a time holds the socket for ever
        stream.set_read_timeout(Some(rest(end)?))?;
        let length = match stream.read(&mut piece) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(length) => length,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        bytes.extend(piece.iter().take(length));
        let whole = bytes.windows(END.len()).position(|part| part == END);
        let length = whole.map_or(bytes.len(), |fields| fields + END.len());
        // planted: a request that is too long is answered by its first line
        if length > MOST {
            return Ok(None);
        }
        if whole.is_some() {
            return Ok(Some(String::from_utf8_lossy(&bytes).into_owned()));
        }
    }
}

/// Returns the answer to the first line of a request.
fn reply(line: &str, scrape: &mut dyn FnMut() -> Result<String, Error>) -> Reply {
    let words: Vec<&str> = line.split(' ').collect();
    let &[method, target, version] = words.as_slice() else {
        return Reply::sentence("400 Bad Request", "no line of HTTP's");
    };
    let path = target.split('?').next().unwrap_or_default();
    match (method, path) {
        _ if !version.starts_with("HTTP/1.") => {
            Reply::sentence("505 HTTP Version Not Supported", "HTTP/1.1 is spoken here")
        }
        ("GET" | "HEAD", "/metrics") => match scrape() {
            Ok(body) => Reply {
                status: "200 OK",
                content_type: CONTENT_TYPE,
                body,
            },
            // The scraper takes the machine for down.
            Err(error) => Reply::sentence("503 Service Unavailable", &error.sentence),
        },
        ("GET" | "HEAD", _) => Reply::sentence("404 Not Found", "the metrics are at /metrics"),
        _ => Reply::sentence("405 Method Not Allowed", "metrics are only read"),
    }
}

/// Sends all bytes until a time.
fn send(stream: &mut UnixStream, mut bytes: &[u8], end: Instant) -> io::Result<()> {
    while !bytes.is_empty() {
        stream.set_write_timeout(Some(rest(end)?))?;
        match stream.write(bytes) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(length) => bytes = bytes.get(length..).unwrap_or_default(),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Takes what a client has sent beside what was read: the close of a socket with bytes in it is a
/// reset, and the client would get an error behind the answer.
fn discard(stream: &mut UnixStream) -> io::Result<()> {
    let mut piece = [0; MOST];
    stream.set_nonblocking(true)?;
    // Bound: a client that sends on gets the reset.
    for _ in 0..MOST_DISCARDED / MOST {
        match stream.read(&mut piece) {
            Ok(length) if length > 0 => {}
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            _ => break,
        }
    }
    Ok(())
}

/// Returns the time that is left until `end`.
fn rest(end: Instant) -> io::Result<Duration> {
    let rest = end.saturating_duration_since(Instant::now());
    // A timeout of 0 would be none at all.
    match rest.is_zero() {
        true => Err(ErrorKind::TimedOut.into()),
        false => Ok(rest),
    }
}
