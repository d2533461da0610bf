//! Machines with a real-time VM, and its serial port.
//!
//! A real-time VM has no console of Gear2's. Its words are in a file that QEMU writes as they come.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use workbench::build_images::{self, Images};
use workbench::expect::Session;
use workbench::qemu::{Machine, Qemu};
use workbench::workspace;

pub(super) const TIMEOUT: Duration = Duration::from_secs(60);
/// Longest wait for slow steps. Turns of a microsecond make the machine slow.
const PATIENCE: Duration = Duration::from_secs(180);
/// Line of the guest `realtime` when it has turned its second CPU on and off often enough. The
/// guest's own verdict: an interrupt that it did not cause would be pending there.
const NOTHING_PENDING: &str = "starts-with-nothing-pending";
/// The target directory of the checking build.
pub(crate) const CHECKING: &str = "check-locks";

/// Output of a serial port.
pub(crate) struct Serial {
    pub(crate) file: PathBuf,
}

impl Serial {
    /// Makes the file for a machine to write to. Empty, or an earlier machine's words would be
    /// read.
    pub(crate) fn new(directory: &Path) -> Result<Serial> {
        fs::create_dir_all(directory)?;
        let file = directory.join("second-serial.log");
        fs::write(&file, "")?;
        Ok(Serial { file })
    }

    /// Bytes may be cut within a character, and lines end as on a serial port.
    pub(crate) fn text(&self) -> Result<String> {
        let text = String::from_utf8_lossy(&fs::read(&self.file)?).into_owned();
        Ok(text.replace('\r', ""))
    }

    /// Waits until a line stands there.
    pub(crate) fn wait_for(&self, line: &str, session: &mut Session) -> Result<()> {
        self.wait_within(line, TIMEOUT, session)
    }

    /// Waits until a line stands there, for so long.
    pub(crate) fn wait_within(
        &self,
        line: &str,
        timeout: Duration,
        session: &mut Session,
    ) -> Result<()> {
        self.wait_until(session, timeout, |text| {
            text.lines().any(|found| found == line)
        })
        .with_context(|| format!("no {line:?}"))
    }

    /// Waits until what stands there is `done`. Listening in between keeps QEMU's own output
    /// flowing.
    pub(super) fn wait_until(
        &self,
        session: &mut Session,
        timeout: Duration,
        done: impl Fn(&str) -> bool,
    ) -> Result<()> {
        let end = Instant::now() + timeout;
        loop {
            let text = self.text()?;
            if done(&text) {
                return Ok(());
            }
            let last = text.lines().next_back().unwrap_or("nothing");
            let in_time = Instant::now() < end;
            ensure!(in_time, "the second serial port's last line is {last:?}");
            session.listen(Duration::from_millis(20))?;
        }
    }
}

/// Builds what a manifest needs, with another Gear1.
pub(crate) fn images(manifest: &str, gear1: Option<PathBuf>) -> Result<Images> {
    let manifest = format!("tests/manifests/{manifest}.dts");
    let mut images = build_images::build(&workspace::root().join(manifest))?;
    images.gear1 = gear1.unwrap_or(images.gear1);
    Ok(images)
}

/// A CPU of the VM's is turned on and off by another one: no kick waits for it, as the VM itself
/// looks. Short turns let the two CPUs run through the few instructions side by side.
pub(super) fn starts(gear1: PathBuf) -> Result<()> {
    let machine = Machine {
        cpus: 3,
        icount: true,
        turn_us: Some(1),
        ..Machine::default()
    };
    let log = workspace::output_dir().join("rt-passthrough/late-kick.log");
    let images = images("rt-passthrough", Some(gear1))?;
    let mut session = images.start(&Qemu::prepare(10)?, &machine, &log)?;
    let [pass, fail] = ["PASS", "FAIL"].map(|word| format!("{word} {NOTHING_PENDING}"));
    let (_, which) = session.expect_any(&[&pass, &fail], PATIENCE)?;
    ensure!(which == 0, "{}", session.tail(1));
    Ok(())
}
