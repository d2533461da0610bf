//! The server of `gearctl metrics` on a system that is short of descriptors.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::ptr::null_mut;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Time in which each step that succeeds ends.
const LONG: Duration = Duration::from_secs(30);
const STEP: Duration = Duration::from_millis(5);

/// Ends the server with the test.
struct Server(Child);

impl Server {
    fn start(socket: &Path) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gearctl"));
        command.args(["--run", "/nonexistent", "metrics", "--socket"]);
        let child = command.arg(socket).stderr(Stdio::piped()).spawn().unwrap();
        let server = Self(child);
        until("the server listens", || UnixStream::connect(socket).is_ok());
        server
    }

    /// Returns the number of the descriptor that the server would get next. No client is left that
    /// the server has not closed: the latest has seen the end of its connection.
    fn next_descriptor(&self) -> usize {
        let directory = format!("/proc/{}/fd", self.0.id());
        let is_free = |number: &usize| !fs::exists(format!("{directory}/{number}")).unwrap();
        (0..).find(is_free).unwrap()
    }

    /// Sets the number that no descriptor of the server reaches.
    fn limit(&self, most: usize) {
        let limit = libc::rlimit {
            rlim_cur: most as libc::rlim_t,
            rlim_max: 1024,
        };
        let process = self.0.id() as libc::pid_t;
        // SAFETY: the new limit lives as long as the call, and the old one is not asked for.
        let set =
            unsafe { libc::prlimit(process, libc::RLIMIT_NOFILE, &raw const limit, null_mut()) };
        assert_eq!(set, 0);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < LONG, "not yet: {what}");
        sleep(STEP);
    }
}

/// Asks for the metrics.
fn ask(socket: &Path) -> UnixStream {
    let mut client = UnixStream::connect(socket).unwrap();
    client.set_read_timeout(Some(LONG)).unwrap();
    client.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
    client
}

/// No GDM runs here, which the answer says: the server itself is well.
fn is_answered(mut client: UnixStream) {
    let mut text = String::new();
    client.read_to_string(&mut text).unwrap();
    assert!(text.starts_with("HTTP/1.1 503 "), "{text}");
}

#[test]
fn a_client_waits_while_descriptors_are_short_and_is_answered_then() {
    let name = format!("gearctl-metrics-{}", std::process::id());
    let directory = std::env::temp_dir().join(name);
    fs::create_dir_all(&directory).unwrap();
    let socket = directory.join("metrics");
    let mut server = Server::start(&socket);
    is_answered(ask(&socket));
    server.limit(server.next_descriptor());
    // Linux takes a descriptor before it waits for a client: the server may have that of the first.
    let clients = [ask(&socket), ask(&socket)];
    let mut said = BufReader::new(server.0.stderr.take().unwrap()).lines();
    let mut line = || said.next().expect("the server has ended").unwrap();
    let shortage = line();
    assert!(
        shortage.contains("no client is accepted for now"),
        "{shortage}"
    );
    assert!(server.0.try_wait().unwrap().is_none());
    server.limit(64);
    clients.into_iter().for_each(is_answered);
    let again = line();
    assert!(again.contains("clients are accepted again"), "{again}");
    is_answered(ask(&socket));
    fs::remove_dir_all(&directory).unwrap();
}
