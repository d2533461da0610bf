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

/// Most bytes of a request. A scraper sends a few hundred.
const MOST: usize = 8192;

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
    let line = head.lines().next().unwrap_or_default();
    let method = line.split(' ').next().unwrap_or_default();
    // HEAD asks for what stands above the body.
    let text = reply(line, scrape).text(method != "HEAD");
    send(&mut stream, text.as_bytes(), Instant::now() + patience)
}

/// Reads until the empty line behind the request's fields. A body of the request is not read.
fn head(stream: &mut UnixStream, end: Instant) -> io::Result<String> {
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
        let is_whole = bytes.windows(4).any(|part| part == b"\r\n\r\n");
        // A longer one is answered by what its first line has.
        if is_whole || bytes.len() > MOST {
            return Ok(String::from_utf8_lossy(&bytes).into_owned());
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

/// Returns the time that is left until `end`.
fn rest(end: Instant) -> io::Result<Duration> {
    let rest = end.saturating_duration_since(Instant::now());
    // A timeout of 0 would be none at all.
    match rest.is_zero() {
        true => Err(ErrorKind::TimedOut.into()),
        false => Ok(rest),
    }
}
