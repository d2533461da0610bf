//! The machine that is checked, the steps of all checks, and commands typed into its shells.

use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use sha2::{Digest as _, Sha256};
use workbench::build_images::{Images, last_words};
use workbench::expect::Session;
use workbench::manifest::VmSummary;
use workbench::qemu::{Machine, Qemu};
use workbench::{initramfs, workspace};

use super::speculation::{self, Truth};

/// Key that starts a command to Gear2's console. Ctrl-G, which shells and editors hardly use.
pub const ESCAPE: char = '\x07';

/// Longest time of a boot. QEMU interprets each instruction, often on a machine that does other
/// work: a limit near the usual time would fail by chance.
pub const BOOT: Duration = Duration::from_secs(300);
/// Longest time of a command in a shell.
pub(super) const COMMAND: Duration = Duration::from_secs(120);
/// Longest time of the disk's and the network's work.
pub const LONG: Duration = Duration::from_secs(600);

/// SHA-256 of 8 MiB of zeroes. A sum that is known beforehand needs no program of the host, and
/// finds a CPU whose FP or SIMD registers another VM has changed: sha256sum may use them.
const ZEROES: &str = "2daeb1f36095b44b318410b3f4e8b5d989dcc7bb023d1426c492dab0a3053e74";

/// Extent of the checks.
#[derive(Clone, Copy, Debug)]
pub struct Extent {
    /// Number of reboots of a guest.
    pub reboots: usize,
    /// In how many ways the device VM is restarted.
    pub restarts: usize,
    /// Whether the device model is kept away until guests get I/O errors. A request waits for half
    /// a minute before it fails, and so does this check.
    pub away: bool,
    /// MiB that are written to a guest's disk and read back.
    pub disk_mib: u32,
    /// MiB that go over a guest's network.
    pub network_mib: u32,
    /// The I/Os whose exits are counted.
    pub counted_ios: u64,
    /// Whether times are checked, which says something on a machine that has nothing else to do.
    /// Elsewhere a limit in seconds fails by chance.
    pub timed: bool,
}

impl Extent {
    /// As much as shows that it works, on a busy machine too. Tests of boards and of new manifests
    /// take it.
    pub const BRIEF: Extent = Extent {
        reboots: 1,
        restarts: 1,
        away: false,
        disk_mib: 2,
        network_mib: 4,
        counted_ios: 200,
        timed: false,
    };
    /// Longer checks. The first machine of the tests takes it, so that each way is gone once in
    /// every run.
    pub const SHORT: Extent = Extent {
        reboots: 1,
        restarts: 1,
        away: true,
        disk_mib: 8,
        network_mib: 16,
        counted_ios: 1000,
        timed: true,
    };
    /// As much as shows that it lasts. A leak of one restart is small, so several are needed to
    /// show it; `run --smoke` takes these.
    pub const FULL: Extent = Extent {
        reboots: 5,
        restarts: 4,
        away: true,
        disk_mib: 64,
        network_mib: 64,
        counted_ios: 1000,
        timed: true,
    };
}

/// A booting machine and how to report on it. One session serves all checks, so that a check finds
/// the machine as a person would who has used it before.
pub(super) struct Smoke<'a> {
    /// The terminal: of Gear2's console, or of the VM that owns the UART.
    pub(super) session: Session,
    /// Chosen by the caller: the same checks serve a quick look and a long test.
    pub(super) extent: Extent,
    pub(super) report: &'a dyn Fn(&str),
    /// Checks that passed, for the last line.
    pub(super) checks: usize,
}

impl<'a> Smoke<'a> {
    /// Starts QEMU; the transcript goes to a file below the output directory, where it stays for
    /// whoever looks for the cause of a failure.
    pub(super) fn start(
        qemu: &Qemu,
        machine: &Machine,
        images: &Images,
        log: &str,
        extent: Extent,
        report: &'a dyn Fn(&str),
    ) -> Result<Smoke<'a>> {
        let session = images.start(qemu, machine, &workspace::output_dir().join(log))?;
        Ok(Smoke {
            session,
            extent,
            report,
            checks: 0,
        })
    }

    /// Runs all checks of guests without a device VM.
    pub(super) fn all(&mut self, vms: &[VmSummary], machine: &Machine) -> Result<()> {
        for (gear, hello) in [("Gear1", "Gear1 "), ("Gear2", "gear2: ")] {
            let hello = format!("{hello}{}", env!("CARGO_PKG_VERSION"));
            let what = format!("{gear} reports its version");
            self.check(&what, |s| s.expect(&hello, BOOT).map(drop))?;
        }
        self.check("all guests reach their shells", |s| reach_shells(s, vms))?;
        for (index, vm) in vms.iter().enumerate() {
            self.use_shell(index, vm)?;
        }
        if let Some(truth) = speculation::truth(&machine.cpu) {
            let what = "a guest's kernel tells the truth of speculation";
            self.check(what, |s| check_speculation(s, truth))?;
        }
        if let Some((index, vm)) = vms.iter().enumerate().find(|(_, vm)| vm.may_power_off) {
            self.reboots_and_end(index, &vm.name)?;
        }
        Ok(())
    }

    /// Uses the shell of one guest. The focus of the console moves first, and the name proves who
    /// answers: input that went to another VM would pass each of the checks.
    fn use_shell(&mut self, index: usize, vm: &VmSummary) -> Result<()> {
        let name = &vm.name;
        self.check(&format!("{name} takes the console"), |s| {
            focus(s, index, name)
        })?;
        self.check(&format!("{name} runs uname"), check_uname)?;
        let what = format!("{name} has {} CPUs", vm.vcpus);
        self.check(&what, |s| check_cpu_count(s, vm.vcpus))?;
        self.check(&format!("{name} hashes 8 MiB"), check_hash)
    }

    /// Reboots a guest, and ends the machine from there. The end comes last, because a VM with
    /// `may-power-off` takes the machine with it.
    fn reboots_and_end(&mut self, index: usize, name: &str) -> Result<()> {
        for count in 1..=self.extent.reboots {
            let what = format!("{name} reboots, {count} of {}", self.extent.reboots);
            self.check(&what, |s| reboot(s, index, name))?;
        }
        self.check(&format!("{name} powers the machine off"), |s| {
            power_off(s, "poweroff -f")
        })
    }

    /// Runs one check and reports it.
    pub(super) fn check(
        &mut self,
        what: &str,
        body: impl FnOnce(&mut Session) -> Result<()>,
    ) -> Result<()> {
        self.check_and_say(what, |session| body(session).map(|()| String::new()))
    }

    /// Runs one check and reports it with its result. The error carries the last lines of the
    /// transcript: on a machine of CI nobody can look at the console.
    pub(super) fn check_and_say(
        &mut self,
        what: &str,
        body: impl FnOnce(&mut Session) -> Result<String>,
    ) -> Result<()> {
        match body(&mut self.session) {
            Ok(found) => {
                self.passed(what, &found);
                Ok(())
            }
            Err(error) => {
                (self.report)(&format!("FAIL {what}: {error:#}"));
                Err(anyhow!("{what}: {error:#}\n{}", last_words(&self.session)))
            }
        }
    }

    /// Prints what held, with the machine's age: a slow step shows in the list.
    fn passed(&mut self, what: &str, found: &str) {
        let found = match found {
            "" => String::new(),
            found => format!(": {found}"),
        };
        let seconds = self.session.elapsed().as_secs_f32();
        (self.report)(&format!("ok   {what}{found} ({seconds:.1} s)"));
        self.checks += 1;
    }
}

/// Complaints of a kernel about an error that it survives. A kernel goes on after each of these, so
/// that no other check fails for it. "nexpected" begins with either case.
const COMPLAINTS: &[&str] = &[
    "WARNING: ",
    "BUG: ",
    "rcu: INFO: ",
    "soft lockup",
    "hard LOCKUP",
    "nexpected ",
    "Internal error: ",
];

/// Looks for complaints in all that was said so far. All guests of the machine are meant: their
/// consoles are one transcript.
pub fn no_kernel_complains(session: &mut Session) -> Result<()> {
    let transcript = session.transcript();
    let complaint = transcript
        .lines()
        .find(|line| COMPLAINTS.iter().any(|words| line.contains(words)));
    match complaint {
        Some(line) => Err(anyhow!("{line:?}")),
        None => Ok(()),
    }
}

/// Returns what a guest says when its shell is ready. init prints the line, not the shell: a prompt
/// has no name in it.
pub fn ready(name: &str) -> String {
    let (before, after) = initramfs::READY;
    format!("{before}{name}{after}")
}

/// Waits until every guest has its shell, in whatever order they do. VMs share CPUs, so the order
/// of their boots is the scheduler's.
fn reach_shells(session: &mut Session, vms: &[VmSummary]) -> Result<()> {
    let mut waiting: Vec<String> = vms.iter().map(|vm| ready(&vm.name)).collect();
    while !waiting.is_empty() {
        let texts: Vec<&str> = waiting.iter().map(String::as_str).collect();
        let (_, which) = session.expect_any(&texts, BOOT)?;
        waiting.remove(which);
    }
    Ok(())
}

/// Waits for the shell of the machine's first VM, and makes it hash its input.
pub fn reach_guest(session: &mut Session, name: &str) -> Result<()> {
    session.expect(&ready(name), BOOT)?;
    focus(session, 0, name)?;
    check_input(session)?;
    check_hash(session)
}

/// Gives a VM the keyboard and makes sure that it is this VM that answers. Gear2 repeats the last
/// lines of the VM that gets the focus, hence the question for its name.
pub fn focus(session: &mut Session, index: usize, name: &str) -> Result<()> {
    session.send(&format!("{ESCAPE}{index}"))?;
    let host = shell(session, "hostname")?;
    ensure!(host.contains(name), "{host:?} answers");
    Ok(())
}

/// Types a command into the shell in focus. Returns the output, if the command succeeded.
pub fn shell(session: &mut Session, command: &str) -> Result<String> {
    shell_within(session, command, COMMAND)
}

/// Runs a command in the shell, like [`shell`], within `timeout`.
pub fn shell_within(session: &mut Session, command: &str, timeout: Duration) -> Result<String> {
    // The shell computes the end mark, so that the echo of the typed line is not taken for it;
    // it differs each time, for the console repeats earlier output when the focus moves.
    let mark = session.transcript().len();
    session.send(&format!("{command}; echo \"<$?>-$(({mark}+1))\"\n"))?;
    let printed = session.expect(&format!(">-{}", mark + 1), timeout)?;
    let (output, status) = printed.rsplit_once('<').context("no status was printed")?;
    ensure!(status == "0", "`{command}` ended with {status}");
    // The command may be echoed twice: by the terminal, then by the shell when it reads it.
    let (_, output) = output.rsplit_once("+1))\"\n").unwrap_or(("", output));
    Ok(output.to_owned())
}

/// Checks that the kernel is Debian's for arm64: GearV promises unmodified kernels.
fn check_uname(session: &mut Session) -> Result<()> {
    let name = shell(session, "uname -a")?;
    ensure!(
        name.contains("aarch64") && name.contains("Debian"),
        "uname says {name:?}"
    );
    Ok(())
}

/// Checks that all vCPUs of the manifest came up: Linux goes on without a CPU that PSCI CPU_ON did
/// not start.
pub(super) fn check_cpu_count(session: &mut Session, expected: usize) -> Result<()> {
    let answer = shell(session, "echo cpus=$(grep -c ^processor /proc/cpuinfo).")?;
    ensure!(
        answer.contains(&format!("cpus={expected}.")),
        "/proc/cpuinfo says {answer:?}"
    );
    Ok(())
}

/// Reads what the kernel in focus says of attacks on speculation.
fn check_speculation(session: &mut Session, truth: Truth) -> Result<()> {
    let folder = "/sys/devices/system/cpu/vulnerabilities";
    for (file, expected) in truth {
        let said = shell(session, &format!("cat {folder}/{file}"))?;
        let begins = said.lines().any(|line| line.starts_with(expected));
        ensure!(begins, "{file} says {said:?} in place of {expected:?}");
    }
    Ok(())
}

/// Lets the guest compute for a while, which takes several time slices.
fn check_hash(session: &mut Session) -> Result<()> {
    let answer = shell(
        session,
        "dd if=/dev/zero bs=1M count=8 2>/dev/null | sha256sum",
    )?;
    ensure!(answer.contains(ZEROES), "sha256sum says {answer:?}");
    Ok(())
}

/// Gives the guest whose console this is an input, and compares the hash that it prints with our
/// own. A guest that only repeats recorded output cannot know the hash.
pub fn check_input(session: &mut Session) -> Result<()> {
    // The input differs each time: the output so far, with its times.
    let input = hex(session.transcript().as_bytes());
    let answer = shell(session, &format!("printf %s {input} | sha256sum"))?;
    let expected = hex(input.as_bytes());
    ensure!(answer.contains(&expected), "sha256sum says {answer:?}");
    Ok(())
}

/// Returns the SHA-256 of `bytes` in hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    let digest = Sha256::digest(bytes);
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Reboots without init's help (`-f`): the kernel calls PSCI SYSTEM_RESET at once.
fn reboot(session: &mut Session, index: usize, name: &str) -> Result<()> {
    focus(session, index, name)?;
    session.send("reboot -f\n")?;
    session.expect(&ready(name), BOOT)?;
    focus(session, index, name)
}

/// Types what turns the machine off. QEMU's exit status tells a machine that was turned off from
/// one that was killed.
pub fn power_off(session: &mut Session, command: &str) -> Result<()> {
    session.send(&format!("{command}\n"))?;
    let status = session.expect_end(COMMAND)?;
    ensure!(status.success(), "QEMU ended with {status}");
    Ok(())
}
