//! The program of a device, started and watched by GDM where the manifest has its command.
//!
//! Owns: the process. The program runs as a user of its own, without capabilities and without a way
//! to gain any. Whatever the manifest lists as the program's files belongs to that user. The
//! program ends with GDM, and with its connection: the next connection is to another process, so
//! that no request of an earlier one is in progress.

use std::fs::{self, DirBuilder, File};
use std::io::{self, Read as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::allowance::Allowance;
use crate::board::DeviceNode;
use crate::sandbox::Role;
use crate::sys;

/// User and group of the program of channel 0; the others follow. They are free on Debian, and next
/// to GDM's own.
const FIRST_ACCOUNT: u32 = crate::sandbox::ACCOUNT + 1;
/// First pause before a program that ended is started again, and the longest. The pause doubles. The
/// guest's driver waits for it: a start each second costs a CPU little, and so the pause is short.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// A program that ran for so long starts again after the first pause.
const LONG_RUN: Duration = Duration::from_secs(30);
/// Bytes of a program's messages that the log has of each start.
const MESSAGE_BYTES: u64 = 2048;

/// The program of a device.
pub(crate) struct Program {
    name: String,
    /// Path of the program and its arguments.
    command: Vec<String>,
    /// Paths of the files that become the account's at each start.
    files: Vec<String>,
    /// Path where the program makes its socket.
    socket: String,
    /// Path of the file that each program of the device locks.
    lock: String,
    /// User and group, which no other program has.
    account: u32,
    /// Takes rights from the thread that reads the messages.
    confine: fn(Role),
    /// The process, until its end was seen.
    child: Option<Child>,
    /// Time of the last start, or of the last end.
    started: Instant,
    /// Least time between an end and the next start.
    pause: Duration,
    /// Bytes that the programs of the device may have in the log.
    allowance: Arc<Mutex<Allowance>>,
}

impl Program {
    /// Makes the program of a device; `None`: somebody else starts it. `confine` takes rights from
    /// a thread.
    pub(crate) fn of(
        node: &DeviceNode,
        name: &str,
        run_directory: &str,
        confine: fn(Role),
    ) -> Option<Self> {
        (!node.command.is_empty()).then(|| Self {
            name: name.to_owned(),
            command: node.command.clone(),
            files: node.files.clone(),
            socket: node.backend.clone(),
            lock: format!("{run_directory}/program{}.lock", node.channel),
            account: FIRST_ACCOUNT + node.channel as u32,
            confine,
            child: None,
            started: Instant::now(),
            pause: Duration::ZERO,
            allowance: Arc::new(Mutex::new(Allowance::new(Instant::now()))),
        })
    }

    /// Starts the program, unless it runs or its pause is not over. The error says why there is
    /// none.
    pub(crate) fn run(&mut self) -> Result<(), String> {
        if let Some(child) = &mut self.child {
            let ended = child.try_wait().map_err(|error| self.says(&error))?;
            let Some(status) = ended else {
                return Ok(());
            };
            let message = self.says(&format!("ended with {status}"));
            self.end();
            return Err(message);
        }
        if self.started.elapsed() < self.pause {
            return Err(self.says(&"ended, and is started again after a pause"));
        }
        let child = self.start().map_err(|error| self.says(&error))?;
        self.child = Some(child);
        self.started = Instant::now();
        Ok(())
    }

    /// Ends the program, and waits for its end: nothing of it is in progress afterwards.
    pub(crate) fn end(&mut self) {
        let Some(mut child) = self.child.take() else {
            return;
        };
        // A process that is killed ends when the kernel has done its transfers.
        let _ = child.kill();
        let _ = child.wait();
        // planted: a program that ends at once is started without end
        self.pause = match self.started.elapsed() < LONG_RUN {
            // planted: a reset of a card has its driver wait for long
            true => (self.pause * 2).clamp(FIRST_PAUSE, LONGEST_PAUSE),
            false => FIRST_PAUSE,
        };
        self.started = Instant::now();
    }

    /// Returns the least time from the last end to the next start.
    #[cfg(test)]
    pub(crate) const fn pause(&self) -> Duration {
        self.pause
    }

    /// Ends the program, and tells whether nothing of it is left: what it started may live on, and
    /// has its lock.
    pub(crate) fn end_all(&mut self) -> bool {
        self.end();
        self.lock().is_ok()
    }

    /// Says something of the program, which is named by its path.
    fn says(&self, what: &dyn std::fmt::Display) -> String {
        let program = self.command.first().map_or("", String::as_str);
        format!("{program}: {what}")
    }

    /// Starts the process, with its files and a folder for its socket.
    fn start(&self) -> io::Result<Child> {
        self.prepare_socket()?;
        let lock = self.lock()?;
        for file in &self.files {
            let owned = sys::give_file(Path::new(file), self.account);
            owned.map_err(|error| io::Error::other(format!("{file}: {error}")))?;
        }
        let (program, arguments) = self
            .command
            .split_first()
            .ok_or_else(|| io::Error::other("no command"))?;
        let mut command = Command::new(program);
        command.args(arguments).current_dir("/").env_clear();
        command.env("PATH", "/usr/bin:/usr/sbin:/bin:/sbin");
        command.stdin(Stdio::null()).stdout(Stdio::null());
        command.stderr(Stdio::piped());
        sys::confine_program(&mut command, self.account, &lock);
        let mut child = command.spawn()?;
        // A guest can have its program take all memory, as with pictures of a graphics card: the
        // kernel is to end that program then, and nobody else's.
        // planted: a program's memory costs others theirs
        let _ = fs::write(format!("/proc/{}/oom_score_adj", child.id()), "1000");
        if let Some(messages) = child.stderr.take() {
            let (name, confine) = (self.name.clone(), self.confine);
            let allowance = Arc::clone(&self.allowance);
            let builder = thread::Builder::new().name(format!("says {name}"));
            builder.spawn(move || {
                confine(Role::Sockets);
                log(&name, messages, &allowance);
            })?;
        }
        Ok(child)
    }

    /// Locks a file that is GDM's own. The program inherits the lock, and holds it until the kernel
    /// has ended all of the program: a program of an earlier GDM may still have a transfer in
    /// progress, which must not come behind those of this one.
    fn lock(&self) -> io::Result<File> {
        let path = &self.lock;
        let named = |error: &dyn std::fmt::Display| io::Error::other(format!("{path}: {error}"));
        let lock = File::create(path).map_err(|error| named(&error))?;
        // planted: a program starts beside an earlier one
        match lock.try_lock() {
            Ok(()) => Ok(lock),
            Err(_) => Err(named(&"an earlier program has not ended")),
        }
    }

    /// Makes the folder of the socket, which belongs to the program, and removes a socket that an
    /// earlier program left.
    fn prepare_socket(&self) -> io::Result<()> {
        let named = |error: io::Error| io::Error::other(format!("{}: {error}", self.socket));
        let socket = Path::new(&self.socket);
        let folder = socket.parent().unwrap_or(Path::new("/"));
        if !folder.exists() {
            let mut builder = DirBuilder::new();
            builder.recursive(true).mode(0o755);
            builder.create(folder).map_err(named)?;
            sys::give_file(folder, self.account).map_err(named)?;
        }
        match fs::remove_file(socket) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(named(error)),
            _ => Ok(()),
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.end();
    }
}

/// Writes the beginning of a program's messages to the log, and reads the rest: a program that says
/// much, or is started often, neither fills the log nor waits.
fn log(name: &str, messages: ChildStderr, allowance: &Mutex<Allowance>) {
    let mut messages = File::from(std::os::fd::OwnedFd::from(messages));
    let mut left = MESSAGE_BYTES;
    let mut bytes = [0; 512];
    while let Ok(count @ 1..) = messages.read(&mut bytes) {
        let mut allowance = allowance.lock().unwrap_or_else(PoisonError::into_inner);
        let shown = allowance.take((count as u64).min(left), Instant::now());
        drop(allowance);
        left -= shown;
        let text = bytes.get(..shown as usize).unwrap_or_default();
        let text = String::from_utf8_lossy(text);
        for line in text.lines().filter(|line| !line.is_empty()) {
            let line: String = line.chars().filter(|each| !each.is_control()).collect();
            eprintln!("gdm: {name}: its program: {line}");
        }
    }
}
