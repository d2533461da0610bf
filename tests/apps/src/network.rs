//! Traffic between the place that is measured and a peer, like netperf's, ApacheBench's and
//! memaslap's.
//!
//! netperf is not in Debian's main archive, and programs that measure for a time do another number
//! of operations in each run. Here the number is given. A connection begins with a line of the
//! client's, `<traffic> <count>`, and ends with one of the peer's, when all has arrived.

use std::convert::Infallible;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::thread;

mod clients;

/// Port of the peer.
pub const PORT: u16 = 5001;
/// Bytes of a KiB, and of the pieces in which streams are written: netperf's default for Linux.
const KIB: u64 = 1024;
const PIECE: usize = 16 << 10;
/// Last line of the peer, if all went well.
const DONE: &str = "done\n";

/// What goes over the network. Counts are of the whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Traffic {
    /// A byte to the peer and a byte back, one after the other: TCP_RR.
    Requests,
    /// KiB to the peer: TCP_STREAM.
    Stream,
    /// KiB from the peer: TCP_MAERTS.
    Maerts,
    /// The peer requests pages of the web server that runs at the client's address.
    Web,
    /// The peer stores values in the memcached that runs there, and requests them.
    Memcached,
}

impl Traffic {
    /// Parses a name: `rr`, `stream`, `maerts`, `web`, `memcached`.
    ///
    /// # Errors
    ///
    /// Names the word that is none.
    pub fn parse(word: &str) -> Result<Traffic, String> {
        let all = [
            Traffic::Requests,
            Traffic::Stream,
            Traffic::Maerts,
            Traffic::Web,
            Traffic::Memcached,
        ];
        let traffic = all.into_iter().find(|traffic| traffic.name() == word);
        traffic.ok_or_else(|| format!("{word:?} is no traffic"))
    }

    fn name(self) -> &'static str {
        match self {
            Traffic::Requests => "rr",
            Traffic::Stream => "stream",
            Traffic::Maerts => "maerts",
            Traffic::Web => "web",
            Traffic::Memcached => "memcached",
        }
    }
}

/// Has so much traffic with the peer.
///
/// # Errors
///
/// What the network says, or the peer.
pub fn run(peer: SocketAddr, traffic: Traffic, count: u64) -> io::Result<()> {
    let mut stream = TcpStream::connect(peer)?;
    // A request must not wait for the answer to the one before (Nagle).
    stream.set_nodelay(true)?;
    writeln!(stream, "{} {count}", traffic.name())?;
    match traffic {
        Traffic::Requests => request(&mut stream, count)?,
        Traffic::Stream => send(&mut stream, count)?,
        Traffic::Maerts => receive(&mut stream, count)?,
        Traffic::Web | Traffic::Memcached => {}
    }
    let mut said = String::new();
    stream.read_to_string(&mut said)?;
    match said.as_str() {
        DONE => Ok(()),
        _ => Err(io::Error::other(format!("the peer: {:?}", said.trim()))),
    }
}

/// Is the peer: serves each connection in a thread of its own.
///
/// # Errors
///
/// If no connection can be accepted any more.
pub fn serve(listener: &TcpListener) -> io::Result<Infallible> {
    loop {
        let (stream, from) = listener.accept()?;
        thread::spawn(move || {
            if let Err(error) = answer(stream, from.ip()) {
                eprintln!("workload: {from}: {error}");
            }
        });
    }
}

/// Serves a connection, and says how it ended.
fn answer(stream: TcpStream, client: IpAddr) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line)?;
    let said = match serve_line(&line, &mut reader, client) {
        Ok(()) => DONE.to_owned(),
        Err(error) => format!("{error}\n"),
    };
    reader.get_mut().write_all(said.as_bytes())
}

fn serve_line(line: &str, reader: &mut BufReader<TcpStream>, client: IpAddr) -> io::Result<()> {
    let words = line.trim().split_once(' ');
    let parsed = words.and_then(|(name, count)| {
        let traffic = Traffic::parse(name).ok()?;
        Some((traffic, count.parse().ok()?))
    });
    let (traffic, count) = parsed.ok_or_else(|| io::Error::other(format!("wrong: {line:?}")))?;
    match traffic {
        Traffic::Requests => echo(reader, count),
        Traffic::Stream => receive(reader, count),
        Traffic::Maerts => send(reader.get_mut(), count),
        Traffic::Web => clients::load(count, |count| clients::get_pages(client, count)),
        Traffic::Memcached => clients::load(count, |count| clients::use_cache(client, count)),
    }
}

/// Sends bytes, each behind the answer to the one before.
fn request(stream: &mut TcpStream, count: u64) -> io::Result<()> {
    let mut byte = [0];
    for _ in 0..count {
        stream.write_all(&byte)?;
        stream.read_exact(&mut byte)?;
    }
    Ok(())
}

fn echo(reader: &mut BufReader<TcpStream>, count: u64) -> io::Result<()> {
    let mut byte = [0];
    for _ in 0..count {
        reader.read_exact(&mut byte)?;
        reader.get_mut().write_all(&byte)?;
    }
    Ok(())
}

/// Sends so many KiB.
fn send(stream: &mut TcpStream, kib: u64) -> io::Result<()> {
    let piece = [0x5a; PIECE];
    let mut left = kib * KIB;
    while left > 0 {
        let length = left.min(PIECE as u64);
        stream.write_all(&piece[..length as usize])?;
        left -= length;
    }
    Ok(())
}

/// Receives so many KiB, in the pieces that arrive.
fn receive(reader: &mut impl io::Read, kib: u64) -> io::Result<()> {
    let mut piece = vec![0; 4 * PIECE];
    let mut left = kib * KIB;
    while left > 0 {
        let most = left.min(piece.len() as u64);
        match reader.read(&mut piece[..most as usize])? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            length => left -= length as u64,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
