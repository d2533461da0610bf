//! A program driven over its pipes as a person would: wait for a text, type a line.
//!
//! All output goes to a log file. A match consumes the text before it, so a text before the last
//! match is not found again. A limit of time is one of the child's own time: a busy machine
//! lengthens the wait (`patience.rs`).

use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};

use crate::patience::Patience;

/// A child that prints nothing for so long has printed all it had to say. QEMU passes a guest's
/// output on at once, so a pause of this length is an end.
const QUIET: Duration = Duration::from_millis(500);
/// What a child that has ended leaves in its pipe is read within so long, on a busy host too. The
/// limit is for a process that the child has left behind: it may hold the pipe open.
const LAST_OUTPUT: Duration = Duration::from_secs(10);

/// A running child, or one more line to it, and what came over it. One thread reads, and the
/// session takes what it needs: neither side can block the other.
pub struct Session {
    /// `None` on a line to a child of another session. Only the session that started a child ends
    /// it.
    child: Option<Child>,
    /// The child's, whose time limits count.
    process: Option<u32>,
    /// Standard input of the child, or the line.
    input: Box<dyn Write + Send>,
    /// Bytes of the child, which a thread reads: a child never waits for its output to be read.
    output: Receiver<Vec<u8>>,
    /// Whole output, with bytes that are no UTF-8 replaced and carriage returns removed.
    transcript: String,
    /// Bytes that have come of a character whose end has not.
    torn: Vec<u8>,
    /// Number of consumed bytes of the transcript.
    consumed: usize,
    /// Lines after which the child never recovers. Without these, a halted machine would be waited
    /// for up to the limit.
    fatal: &'static [&'static str],
    /// Length of the part of the transcript that has none of them.
    searched: usize,
    /// The output as it came.
    log: File,
    /// Named in every failure.
    log_path: PathBuf,
    started: Instant,
}

impl Session {
    /// Starts the command, logging to `log_path`. Errors of QEMU itself go to the log too, since a
    /// missing file shows nowhere else.
    pub fn start(mut command: Command, log_path: &Path) -> Result<Session> {
        if let Some(directory) = log_path.parent() {
            std::fs::create_dir_all(directory)?;
        }
        let mut log = File::create(log_path).with_context(|| log_path.display().to_string())?;
        let program = command.get_program().to_string_lossy().into_owned();
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log.try_clone()?);
        writeln!(log, "{command:?}")?;
        let mut child = command
            .spawn()
            .with_context(|| format!("{program} cannot be run"))?;
        let stdout = child
            .stdout
            .take()
            .context("the child has no output pipe")?;
        let stdin = child.stdin.take();
        let stdin = stdin.context("the child has no input pipe")?;
        let mut session = Session::over(stdout, stdin, log, log_path);
        session.process = Some(child.id());
        session.child = Some(child);
        Ok(session)
    }

    /// Talks to the child over one more line. Serial ports beyond the first one are sockets.
    pub fn attach(&self, line: UnixStream, log_path: &Path) -> Result<Session> {
        let log = File::create(log_path).with_context(|| log_path.display().to_string())?;
        let mut session = Session::over(line.try_clone()?, line, log, log_path);
        session.process = self.process;
        Ok(session)
    }

    /// The reading thread ends with the line, or when the session is dropped.
    fn over(
        from: impl Read + Send + 'static,
        to: impl Write + Send + 'static,
        log: File,
        log_path: &Path,
    ) -> Session {
        let (sender, output) = mpsc::channel();
        std::thread::spawn(move || forward(from, &sender));
        Session {
            child: None,
            process: None,
            input: Box::new(to),
            output,
            transcript: String::new(),
            torn: Vec::new(),
            consumed: 0,
            fatal: &[],
            searched: 0,
            log,
            log_path: log_path.to_owned(),
            started: Instant::now(),
        }
    }

    /// Names the texts after which nothing is worth waiting for.
    pub fn give_up_on(&mut self, fatal: &'static [&'static str]) {
        self.fatal = fatal;
        self.searched = 0;
    }

    /// Waits until `text` is printed and returns what came before it. Matches may span the pieces
    /// that the child wrote.
    pub fn expect(&mut self, text: &str, timeout: Duration) -> Result<String> {
        let (before, _) = self.expect_any(&[text], timeout)?;
        Ok(before)
    }

    /// Waits until one of `texts` is printed; returns what came before it, and which it was. The
    /// text that stands first wins, not the first of the list.
    pub fn expect_any(&mut self, texts: &[&str], timeout: Duration) -> Result<(String, usize)> {
        let patience = self.patience(timeout);
        let mut from = self.consumed;
        loop {
            let fresh = &self.transcript[from..];
            let found = texts
                .iter()
                .enumerate()
                .filter_map(|(i, text)| Some((fresh.find(text)?, i)));
            if let Some((at, which)) = found.min() {
                let before = self.transcript[self.consumed..from + at].to_owned();
                self.consumed = from + at + texts[which].len();
                return Ok((before, which));
            }
            // Long output comes in many pieces: to search all of it at each would take the square
            // of its length.
            from = from.max(unfinished(&self.transcript, texts));
            self.check_fatal()?;
            if !self.receive_patiently(&patience)? {
                let waited = timeout.as_secs();
                bail!("no {} within {waited} s", quoted(texts));
            }
        }
    }

    /// Waits until `done` accepts the output so far, line by line; consumes nothing. Whole lines
    /// are looked at, so that a number is not read before its last digit.
    pub fn wait_until(
        &mut self,
        what: &str,
        timeout: Duration,
        done: impl Fn(&str) -> bool,
    ) -> Result<()> {
        let patience = self.patience(timeout);
        let mut looked_at = 0;
        loop {
            if self.transcript[looked_at..].contains('\n') {
                looked_at = self.transcript.len();
                if done(&self.transcript) {
                    return Ok(());
                }
            }
            self.check_fatal()?;
            if !self.receive_patiently(&patience)? {
                bail!("no {what} within {} s", timeout.as_secs());
            }
        }
    }

    /// Takes in what the child prints meanwhile. For a time in which nothing is expected, and a
    /// fatal line may come.
    pub fn listen(&mut self, time: Duration) -> Result<()> {
        let end = Instant::now() + time;
        self.check_fatal()?;
        while self.receive(end)? {}
        self.check_fatal()
    }

    /// Waits until the child ends by itself, and takes in all that it has printed: a reader who
    /// falls behind would miss the last lines. Polls: a child's end and its output come by
    /// different ways.
    pub fn expect_end(&mut self, timeout: Duration) -> Result<ExitStatus> {
        let patience = self.patience(timeout);
        loop {
            let child = self
                .child
                .as_mut()
                .context("the child is another session's")?;
            if let Some(status) = child.try_wait()? {
                self.receive_to_end(LAST_OUTPUT);
                return Ok(status);
            }
            if patience.next_look().is_none() {
                bail!("it did not end within {} s", timeout.as_secs());
            }
            // An ended child closes its pipe, which ends the wait here.
            let _ = self.receive(Instant::now() + Duration::from_millis(50));
        }
    }

    /// Types a text. An error means that the child has ended: a pipe takes what is typed, however
    /// slow the reader is.
    pub fn send(&mut self, text: &str) -> Result<()> {
        self.input
            .write_all(text.as_bytes())
            .and_then(|()| self.input.flush())
            .context("it has ended")
    }

    /// Tells whether a text was printed that is not consumed yet. Asked without waiting.
    pub fn has(&self, text: &str) -> bool {
        self.transcript[self.consumed..].contains(text)
    }

    /// Receives what has been printed by now. What has arrived may not have been taken yet.
    pub fn receive_all(&mut self) -> Result<()> {
        while self.receive(Instant::now())? {}
        Ok(())
    }

    /// Receives all that a child has printed which has ended: its end closes the line, unless a
    /// process that the child has left keeps it open. No longer than `limit`.
    fn receive_to_end(&mut self, limit: Duration) {
        let deadline = Instant::now() + limit;
        while matches!(self.receive(deadline), Ok(true)) {}
    }

    /// Begins a wait whose limit counts the time in which the child could run. Without a process,
    /// the wall clock counts.
    fn patience(&self, limit: Duration) -> Patience {
        Patience::new(self.process, limit)
    }

    /// Appends what the child prints next; false if nothing came while it was waited for. A child
    /// that was not scheduled gets more time, as long as it gets on.
    fn receive_patiently(&mut self, patience: &Patience) -> Result<bool> {
        // What was printed before the end of the wait counts, however late it is looked at.
        if self.receive(Instant::now())? {
            return Ok(true);
        }
        while let Some(deadline) = patience.next_look() {
            if self.receive(deadline)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Appends what the child prints next; false if nothing came before the deadline. Carriage
    /// returns go, which a terminal's driver puts before each line feed.
    fn receive(&mut self, deadline: Instant) -> Result<bool> {
        let left = deadline.saturating_duration_since(Instant::now());
        match self.output.recv_timeout(left) {
            Ok(bytes) => {
                self.log.write_all(&bytes)?;
                self.torn.extend(bytes);
                let whole = whole_characters(&mut self.torn);
                self.transcript.push_str(&whole.replace('\r', ""));
                Ok(true)
            }
            Err(RecvTimeoutError::Timeout) => Ok(false),
            Err(RecvTimeoutError::Disconnected) => Err(self.ended()?),
        }
    }

    /// Says how the line ended. The status tells a signal from an exit.
    fn ended(&mut self) -> Result<anyhow::Error> {
        Ok(match &mut self.child {
            None => anyhow!("the line ended"),
            Some(child) => anyhow!("it ended ({})", child.wait()?),
        })
    }

    /// Fails if the child has said that it never recovers. Only fresh text is searched: a test may
    /// expect a halt, and then goes on.
    fn check_fatal(&mut self) -> Result<()> {
        let fresh = &self.transcript[self.searched.max(self.consumed)..];
        if let Some(fatal) = self.fatal.iter().find(|fatal| fresh.contains(**fatal)) {
            self.receive_rest();
            bail!("it says {fatal:?}");
        }
        self.searched = unfinished(&self.transcript, self.fatal);
        Ok(())
    }

    /// Receives the rest of the output, because a dump has more than its first line.
    fn receive_rest(&mut self) {
        while matches!(self.receive(Instant::now() + QUIET), Ok(true)) {}
    }

    /// Returns all that was printed so far.
    pub fn transcript(&self) -> &str {
        &self.transcript
    }

    /// Returns the last lines that were printed, and where the rest is. The end of the output is
    /// what explains most failures.
    pub fn tail(&self, lines: usize) -> String {
        let all: Vec<&str> = self.transcript.lines().collect();
        let shown = &all[all.len().saturating_sub(lines)..];
        format!(
            "{}\n(the whole log: {})",
            shown.join("\n"),
            self.log_path.display()
        )
    }

    /// Returns how long the child has been running.
    pub fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }
}

/// Returns from where on a text may stand that does not stand in the output yet, but may have begun.
fn unfinished(output: &str, texts: &[&str]) -> usize {
    let longest = texts.iter().map(|text| text.len()).max().unwrap_or(0);
    let end = output.len().saturating_sub(longest.saturating_sub(1));
    output.floor_char_boundary(end)
}

impl Drop for Session {
    /// A machine without a driver would run for ever.
    fn drop(&mut self) {
        // Both calls fail only if the child has ended, which is the goal.
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Returns texts as an error names them. With escapes, since control characters matter here.
fn quoted(texts: &[&str]) -> String {
    texts
        .iter()
        .map(|text| format!("{text:?}"))
        .collect::<Vec<_>>()
        .join(" or ")
}

/// Takes what is whole of bytes as they come, which may end within a character. What is no UTF-8 is
/// replaced.
fn whole_characters(bytes: &mut Vec<u8>) -> String {
    let whole = match std::str::from_utf8(bytes) {
        Err(error) if error.error_len().is_none() => error.valid_up_to(),
        _ => bytes.len(),
    };
    let rest = bytes.split_off(whole);
    String::from_utf8_lossy(&std::mem::replace(bytes, rest)).into_owned()
}

/// Sends what the child prints, until its end or until nobody listens. Never blocks on the
/// listener: the channel has no limit.
fn forward(mut stdout: impl Read, sender: &mpsc::Sender<Vec<u8>>) {
    let mut buffer = [0; 4096];
    loop {
        match stdout.read(&mut buffer) {
            Ok(0) => return,
            Ok(length) => {
                if sender.send(buffer[..length].to_vec()).is_err() {
                    return;
                }
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => return,
        }
    }
}

#[cfg(test)]
mod tests;
