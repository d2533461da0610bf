//! `cargo xtask run` as a user has it: disks and ports of the machine, and its end after a refusal,
//! with a terminal and without one.
//!
//! The program is run as a process: a library call would have neither its terminal, its exit status
//! nor the QEMU that it leaves behind.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use workbench::board::Name;
use workbench::build_images;
use workbench::expect::Session;
use workbench::workspace;
use xtask::new_manifest::{self, Choice};
use xtask::run::disks;
use xtask::smoke::device_vm::is_up;
use xtask::smoke::shell;

use crate::part::{Part, Tally};

/// `run` builds first, if nothing has.
const TIMEOUT: Duration = Duration::from_secs(300);
/// Port of the device VM that a port of this machine leads to. Above 1024 and unused in the device
/// VM.
const PORT: u16 = 7000;
/// Bytes of a disk, and of its sectors. Small: only its first sectors are used.
const DISK: usize = 1 << 20;
const SECTOR: usize = 512;
/// Keys that end QEMU. Ctrl-A, x.
const END: &str = "\x01x";

/// Keys and output go other ways with a terminal, so the end is tested both ways.
pub(super) fn parts() -> Vec<Part> {
    vec![
        Part::new("run refuses what Gear1 would refuse", refused_before),
        Part::new("run ends when the machine refuses", |tally| {
            ends("run-refused.log", one_cpu()?, tally)
        }),
        Part::new(
            "run ends when the machine refuses, on a terminal",
            |tally| ends("run-refused-tty.log", on_terminal(&one_cpu()?), tally),
        ),
        Part::new("run with disks and a port", devices),
        Part::new("run keeps and discards its own disk", own_disk).slow(true),
    ]
}

/// Builds xtask, and returns a command that is its `run`. The built program is started without
/// cargo, whose own output and status would be in between.
fn run() -> Result<Command> {
    let mut build = workspace::cargo();
    build.args(["build", "--quiet", "--package", "xtask"]);
    let built = build.status()?;
    ensure!(built.success(), "xtask does not build: {built}");
    let mut command = Command::new(workspace::target_dir().join("debug/xtask"));
    command.arg("run");
    Ok(command)
}

/// Returns the command that runs a manifest of two CPUs. Any small manifest that needs the second
/// CPU.
fn two_cpus() -> Result<Command> {
    let manifest = workspace::root().join("tests/manifests/gic-registers.dts");
    let mut command = run()?;
    command.arg("--manifest").arg(manifest);
    Ok(command)
}

/// Returns the command that runs the manifest on a machine with one CPU: `run` does not know what
/// QEMU's own options change, so Gear1 refuses. This is the only way to have Gear1's own refusal:
/// `--cpus` is checked by `run`.
fn one_cpu() -> Result<Command> {
    let mut command = two_cpus()?;
    command.args(["--", "-smp", "1"]);
    Ok(command)
}

/// A machine that Gear1 would refuse is refused before it starts, with the place in the manifest.
/// Nothing on stdout: a machine that was started would have printed there.
fn refused_before(tally: &mut Tally) -> Result<()> {
    let output = two_cpus()?.args(["--cpus", "1"]).output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    let expected = [
        "error[M-CPU-003]",
        "gic-registers.dts:",
        "cpus of /vms/registers",
    ];
    for expected in expected {
        ensure!(said.contains(expected), "{expected} is not said:\n{said}");
    }
    ensure!(
        output.status.code() == Some(1),
        "it ended with {}",
        output.status
    );
    ensure!(output.stdout.is_empty(), "the machine was started");
    tally.pass(1);
    Ok(())
}

/// Returns the command with a terminal as its input and output, which `script` of Debian's bsdutils
/// gives it; its status is the command's. Words are joined by blanks, so none may have one.
fn on_terminal(command: &Command) -> Command {
    let words = [command.get_program()]
        .into_iter()
        .chain(command.get_args());
    let words: Vec<_> = words.map(|word| word.to_string_lossy()).collect();
    let mut script = Command::new("script");
    script.args(["--quiet", "--return", "--flush", "--command"]);
    script.arg(words.join(" ")).arg("/dev/null");
    script
}

/// `run` says what init says, and fails; nobody ends it. A machine that has stopped runs on in QEMU
/// for ever. A script around `run` would then hang instead of failing.
fn ends(log: &str, command: Command, tally: &mut Tally) -> Result<()> {
    let log = workspace::output_dir().join(log);
    let mut session = Session::start(command, &log)?;
    let ended = session.expect_end(TIMEOUT);
    let status = ended.with_context(|| session.tail(20))?;
    for expected in ["M-CPU-003", build_images::STOPPED] {
        let said = session.transcript().contains(expected);
        ensure!(said, "{expected} is not said:\n{}", session.tail(20));
    }
    ensure!(status.code() == Some(1), "it ended with {status}");
    tally.pass(1);
    Ok(())
}

/// The device VM sees the user's disks behind the manifest's own, what it writes stays, and a port
/// of this machine leads to it. The files' names have a blank and a comma, which has a meaning in
/// QEMU's options.
fn devices(tally: &mut Tally) -> Result<()> {
    let folder = workspace::output_dir().join("run-devices");
    fs::create_dir_all(&folder)?;
    let manifest = new_manifest(&folder)?;
    let first = disk(&folder, "first")?;
    let second = disk(&folder, "second")?;
    let port = free_port()?;
    let mut command = run()?;
    command.arg("--manifest").arg(manifest);
    command.arg("--disk").arg(&first).arg("--disk").arg(&second);
    command.arg("--port-forward");
    command.arg(format!("{port}:device:{PORT}"));
    let mut session = Session::start(command, &folder.join("run.log"))?;
    // The machine is asked for its end only after both, since `END` leaves nothing to look at.
    let used = use_disks(&mut session).and_then(|()| use_port(&mut session, port));
    used.with_context(|| session.tail(40))?;
    session.send(END)?;
    let status = session.expect_end(TIMEOUT)?;
    ensure!(status.success(), "it ended with {status}");
    let written = fs::read(&first)?;
    // The file itself is read, behind QEMU's end: the data must not be in a snapshot.
    let written = written.get(SECTOR..SECTOR + 7);
    ensure!(written == Some(b"written"), "the file has {written:?}");
    tally.pass(3);
    Ok(())
}

/// Bytes of the disk that no file has.
const FREE: &str = "/dev/vda bs=1M seek=400 conv=notrunc,sync 2> /dev/null";
const READ: &str = "dd if=/dev/vda bs=1M skip=400 count=1 2> /dev/null | tr -d '\\0'";

/// With `--keep` the manifest's own disk is the one that the last such run left, without what
/// `--snapshot` discards; without it the disk is fresh. Each row's expectation depends on all rows
/// before it: what a kept, a discarded and a fresh run leave.
fn own_disk(tally: &mut Tally) -> Result<()> {
    let folder = workspace::output_dir().join("run-kept");
    fs::create_dir_all(&folder)?;
    let manifest = new_manifest(&folder)?;
    let images = workspace::output_dir().join(build_images::output_name(&manifest)?);
    // A disk of an earlier run of the tests would be found otherwise.
    let _ = fs::remove_file(images.join(disks::KEPT));
    for (options, expected, written) in [
        (&["--keep"][..], "", "first"),
        (&["--keep", "--snapshot"], "first", "second"),
        (&["--keep"], "first", "third"),
        (&[], "", "fourth"),
    ] {
        let mut command = run()?;
        command.arg("--manifest").arg(&manifest).args(options);
        let mut session = Session::start(command, &folder.join("run.log"))?;
        is_up(&mut session).with_context(|| session.tail(40))?;
        let found = shell(&mut session, READ)?;
        ensure!(found.trim() == expected, "{options:?}: it has {found:?}");
        let write = format!("printf {written} | dd of={FREE} && sync");
        shell(&mut session, &write)?;
        session.send(END)?;
        let status = session.expect_end(TIMEOUT)?;
        ensure!(status.success(), "{options:?}: it ended with {status}");
        tally.pass(1);
    }
    Ok(())
}

/// Writes the manifest that `new-manifest --device-vm` does: nothing but the device VM, which boots
/// sooner alone. The file is also what a user of `new-manifest` has.
fn new_manifest(folder: &Path) -> Result<PathBuf> {
    let choice = Choice {
        device_vm: true,
        ..Choice::default()
    };
    let file = folder.join("device-alone.dts");
    fs::write(&file, new_manifest::text(Name::QemuVirt, choice))?;
    Ok(file)
}

/// Makes a disk that begins with its name. The name in its first bytes tells disks apart inside of
/// the VM.
fn disk(folder: &Path, name: &str) -> Result<PathBuf> {
    let mut bytes = name.as_bytes().to_vec();
    bytes.resize(DISK, 0);
    let file = folder.join(format!("{name}, disk.img"));
    fs::write(&file, bytes)?;
    Ok(file)
}

/// Somebody else may take the port before it is used; the window is short.
pub(super) fn free_port() -> Result<u16> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    Ok(listener.local_addr()?.port())
}

/// The order of `/dev/vdX` is the order of transports, which must be the manifest's and then the
/// user's.
fn use_disks(session: &mut Session) -> Result<()> {
    is_up(session)?;
    // Offset of the volume's name in an ext4 file system.
    let label = "dd if=/dev/vda bs=1 skip=1144 count=5 2> /dev/null";
    for (command, expected) in [
        (label, "gearv"),
        ("head -c 5 /dev/vdb", "first"),
        ("head -c 6 /dev/vdc", "second"),
    ] {
        let said = shell(session, command)?;
        ensure!(said.contains(expected), "{command}: {said:?}");
    }
    let write = "printf written | dd of=/dev/vdb bs=512 seek=1 conv=sync 2> /dev/null && sync";
    shell(session, write).map(drop)
}

/// Both directions, and both ends of the stream: a forwarder that loses the end would leave `nc`
/// waiting.
fn use_port(session: &mut Session, port: u16) -> Result<()> {
    let serve = format!("(echo an answer | nc -l -p {PORT} > /run/got) & sleep 1");
    shell(session, &serve)?;
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.write_all(b"a question\n")?;
    stream.shutdown(Shutdown::Write)?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    ensure!(answer == "an answer\n", "{answer:?} comes back");
    let got = shell(session, "wait; cat /run/got")?;
    ensure!(got.contains("a question"), "{got:?} arrived");
    Ok(())
}
