//! A microcontroller outside of the SoC: a line of the SoC's is its input, the SoC's reset its
//! output.
//!
//! The line is what QEMU's trace says of the PL061's output. The reset is QMP's `system_reset`. The
//! clock is the machine's real-time clock, read from outside: where time is counted in
//! instructions, the host's clock says nothing.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use super::trace::Trace;

/// Number of the line in `tests/manifests/gpio-heartbeat.dts`.
const EDGE: &str = "setting output 5 to";
/// Silence after which the machine is reset; an edge comes each 100 ms.
const SILENCE_S: u64 = 3;
/// Time within which a line falls silent: the feeder finds a fault after two periods.
const FAULTY_S: u64 = 20;
/// Data register of the PL031 of `virt`, which counts seconds.
const CLOCK: &str = "xp /1wx 0x9010000";
/// Far shorter than the line's period of 100 ms.
const LOOK: Duration = Duration::from_millis(10);
/// QEMU makes the socket some time after its start.
const CONNECT: Duration = Duration::from_secs(20);
/// QEMU's monitor answers within this time, also on a busy host.
const ANSWER: Duration = Duration::from_secs(60);

/// Where QEMU's monitor will be.
pub(super) struct Monitor(PathBuf);

/// The microcontroller.
pub(super) struct Microcontroller {
    monitor: BufReader<UnixStream>,
    trace: Trace,
}

impl Microcontroller {
    /// Gives the machine a monitor.
    pub(super) fn connect_to(command: &mut Command) -> Monitor {
        // The path of a socket must be short.
        let socket = std::env::temp_dir().join(format!("gearv-qmp-{}", std::process::id()));
        let option = format!("unix:{},server=on,wait=off", socket.display());
        command.args(["-qmp", &option]);
        Monitor(socket)
    }

    /// Waits for edges of the line, and never for so long that the machine would be reset: the
    /// first edge comes when Gear1 has started. Time is the machine's: a host that stops QEMU for a
    /// while makes no silence.
    pub(super) fn see_edges(&mut self, count: usize, patience: Duration) -> Result<()> {
        let begin = Instant::now();
        let mut edges = 0;
        let mut last = None;
        while edges < count {
            ensure!(begin.elapsed() < patience, "{edges} edges, no more");
            let (now, fresh) = self.look()?;
            edges += fresh;
            if fresh > 0 {
                last = Some(now);
            }
            let silence = last.map_or(0, |last| now - last);
            ensure!(
                silence < SILENCE_S,
                "no edge for {silence} s, after {edges}"
            );
            sleep(LOOK);
        }
        Ok(())
    }

    /// Waits for silence, and resets the machine then.
    pub(super) fn reset_when_silent(&mut self, patience: Duration) -> Result<()> {
        let begin = Instant::now();
        let (first, _) = self.look()?;
        let mut last = first;
        loop {
            let (now, fresh) = self.look()?;
            ensure!(now - first < FAULTY_S, "the line goes on for {FAULTY_S} s");
            ensure!(begin.elapsed() < patience, "the clock stands still");
            if fresh > 0 {
                last = now;
            } else if now - last >= SILENCE_S {
                break;
            }
            sleep(LOOK);
        }
        self.execute(&json!({ "execute": "system_reset" }))?;
        // The reset itself changes the line.
        self.trace.read()?;
        Ok(())
    }

    /// Returns the time, and how many edges came since the last look. The clock is read first: of
    /// the edges before that time none is missed.
    fn look(&mut self) -> Result<(u64, usize)> {
        let now = self.seconds()?;
        let edges = self.trace.read()?.matches(EDGE).count();
        Ok((now, edges))
    }

    /// Returns the machine's time.
    pub(super) fn seconds(&mut self) -> Result<u64> {
        let arguments = json!({ "command-line": CLOCK });
        let command = json!({ "execute": "human-monitor-command", "arguments": arguments });
        let answer = self.execute(&command)?;
        let words = answer["return"].as_str().unwrap_or_default().to_owned();
        let digits = words.trim().rsplit_once("0x").map(|(_, digits)| digits);
        let digits = digits.with_context(|| format!("{words:?} is no time"))?;
        Ok(u64::from_str_radix(digits, 16)?)
    }

    /// Executes a command, and returns its answer. Events of the machine come in between.
    fn execute(&mut self, command: &Value) -> Result<Value> {
        writeln!(self.monitor.get_mut(), "{command}")?;
        loop {
            let mut line = String::new();
            let bytes = self.monitor.read_line(&mut line)?;
            ensure!(bytes != 0, "the monitor has gone");
            let answer: Value = serde_json::from_str(&line)?;
            ensure!(answer.get("error").is_none(), "{command}: {line}");
            if answer.get("return").is_some() {
                return Ok(answer);
            }
        }
    }
}

impl Monitor {
    /// Starts the microcontroller beside the machine, which has started.
    pub(super) fn start(self, trace: Trace) -> Result<Microcontroller> {
        let begin = Instant::now();
        let stream = loop {
            match UnixStream::connect(&self.0) {
                Ok(stream) => break stream,
                Err(error) if begin.elapsed() >= CONNECT => {
                    return Err(error).with_context(|| self.0.display().to_string());
                }
                Err(_) => sleep(LOOK),
            }
        };
        stream.set_read_timeout(Some(ANSWER))?;
        // QEMU has it open.
        let _ = fs::remove_file(&self.0);
        let mut controller = Microcontroller {
            monitor: BufReader::new(stream),
            trace,
        };
        controller.execute(&json!({ "execute": "qmp_capabilities" }))?;
        Ok(controller)
    }
}
