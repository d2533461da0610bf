//! `cargo xtask picture`: a real session as pictures, docs/picture.svg, docs/screen.png and
//! docs/top.svg.
//!
//! Runs the system of `manifests/mixed-criticality.dts`, types a few commands as a person would,
//! and draws what was printed. The second picture is the guest's screen, as the device VM sees it,
//! and the third one is `gearctl top`.
//! Nothing in the pictures is written by hand.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use workbench::expect::Session;
use workbench::manifest::VmSummary;
use workbench::qemu::Qemu;
use workbench::{build_images, device_userland, workspace};

use crate::run;
use crate::smoke::desktop::{screenshot, typing};
use crate::smoke::device_vm::{answers, enter, leave, widen};
use crate::smoke::top::top;
use crate::smoke::{BOOT, power_off, ready, shell};
use drawing::{Line, svg};

mod drawing;

/// Manifest that runs in the picture. The example with a real-time VM, a device VM and a guest at
/// once.
const MANIFEST: &str = "manifests/mixed-criticality.dts";
/// Where the pictures of the session and of the guest's screen are.
const PICTURE: &str = "docs/picture.svg";
/// Graphics of the guest, as the program at its card has them.
const SCREEN: &str = "docs/screen.png";
/// The terminal of `gearctl top`, drawn as the other session is.
const TOP: &str = "docs/top.svg";
/// Rows of the terminal of `gearctl top`.
const TOP_LINES: usize = 20;
/// Keys of `gearctl top`, each after a time: the history is the guest's, and then grows.
const TOP_KEYS: [(Duration, &str); 2] = [
    (Duration::from_secs(2), "j"),
    (Duration::from_secs(30), "s"),
];
/// Work of the guest beside it, in turns with pauses.
const WORK: &str =
    "(for turn in 1 2 3 4 5 6; do timeout 5 sha256sum /dev/zero; sleep 4; done) >/dev/null 2>&1 &";
/// Commands typed in the guest, the first of which leaves a file in the shared folder.
const GUEST_COMMANDS: [&str; 2] = [
    "uname -srm",
    "mount -t virtiofs shared /mnt && date > /mnt/note",
];
/// Commands typed in the device VM. The third rings the instrument cluster.
const DEVICE_COMMANDS: [&str; 4] = [
    "cat /srv/shared/note",
    "gearctl list",
    "devmem 0x0b000000 32 1",
    "gearctl stats cluster",
];
/// Lines typed on the guest's keyboard, to the shell on its screen. The last one leaves a file when
/// the others are done.
const TYPED: [&str; 4] = [
    "uname -srm",
    "cat /mnt/note",
    "ls -l /sys/bus/virtio/devices",
    "touch /run/typed",
];
/// Socket of the guest's keyboard.
const KEYS: &str = "/run/gearv/infotainment.input";
/// Waits in the guest for the last line's file, and until the screen shows what followed.
const DONE: &str = "until [ -e /run/typed ]; do sleep 0.2; done; sleep 2";

/// Looks at what the cluster says, a tenth of a second apart. A minute in all.
const LOOKS: usize = 600;

/// Runs the system and draws the pictures. All pictures come from one boot, so that they agree with
/// each other.
pub fn command() -> Result<()> {
    let images = build_images::build(&workspace::root().join(MANIFEST))?;
    let qemu = Qemu::prepare(10)?;
    let machine = run::machine_for(&images)?;
    let serial = run::second_serial(&images).context("no VM has the second UART")?;
    let log = workspace::output_dir().join("picture.log");
    let mut session = images.start(&qemu, &machine, &log)?;
    let guests = &mut images.manifest.vms.iter();
    let guest = guests.find(|vm| vm.may_power_off);
    let guest = guest.context("no guest may power the machine off")?;
    let mut lines = lines(&mut session, guest)?;
    lines.extend(said_by_cluster(&mut session, &serial)?);
    let screen = screen(&mut session, guest)?;
    let top = top_of(&mut session, guest)?;
    enter(&mut session, guest)?;
    power_off(&mut session, "poweroff -f")?;
    let pictures = [
        (PICTURE, svg(&lines).into_bytes()),
        (SCREEN, screen),
        (TOP, top.into_bytes()),
    ];
    for (name, content) in pictures {
        let picture = workspace::root().join(name);
        fs::write(&picture, content).with_context(|| name.to_owned())?;
        println!("{}", picture.display());
    }
    Ok(())
}

/// Boots and types the commands; returns what a person would see.
fn lines(session: &mut Session, guest: &VmSummary) -> Result<Vec<Line>> {
    let start = format!("cargo xtask run --manifest {MANIFEST}");
    let mut lines = vec![Line::typed("$", &start)];
    let booted = session.expect(device_userland::READY, BOOT)?;
    lines.extend(said_by_gearv(&booted).map(Line::printed));
    shell(session, "until gearctl version; do sleep 0.2; done")?;
    widen(session)?;
    lines.push(Line::typed("device:~#", &guest.console_command()));
    session.send(&format!("{}\n", guest.console_command()))?;
    session.expect(&ready(&guest.name), BOOT)?;
    answers(session, &guest.name)?;
    typed(session, &guest.name, &GUEST_COMMANDS, &mut lines)?;
    leave(session)?;
    typed(session, "device", &DEVICE_COMMANDS, &mut lines)?;
    Ok(lines)
}

/// Runs commands at a prompt and appends what a person would see.
fn typed(session: &mut Session, vm: &str, commands: &[&str], lines: &mut Vec<Line>) -> Result<()> {
    for command in commands {
        lines.push(Line::typed(&format!("{vm}:~#"), command));
        let printed = shell(session, command)?;
        lines.extend(printed.lines().map(Line::printed));
    }
    Ok(())
}

/// Returns how often the instrument cluster was rung, as it writes to its own UART, once it has
/// been. How late its periods are depends on the host that QEMU runs on, and says nothing of GearV.
fn said_by_cluster(session: &mut Session, serial: &Path) -> Result<[Line; 2]> {
    let file = serial.strip_prefix(workspace::root()).unwrap_or(serial);
    let look = format!("grep -o 'rung .*' {} | tail -n1", file.display());
    for _ in 0..LOOKS {
        let mut shell = Command::new("sh");
        let said = shell.args(["-c", &look]).current_dir(workspace::root());
        let said = String::from_utf8(said.output()?.stdout)?;
        if said.starts_with("rung 1 times") {
            return Ok([Line::typed("$", &look), Line::printed(&said)]);
        }
        session.listen(Duration::from_millis(100))?;
    }
    bail!("{} says nothing of a ring", serial.display())
}

/// Types lines on the guest's keyboard; returns its screen as a PNG. Keys go by the virtual
/// keyboard, so that the picture shows the way of a key as well.
fn screen(session: &mut Session, guest: &VmSummary) -> Result<Vec<u8>> {
    for line in TYPED {
        shell(session, &typing(line, KEYS)?)?;
    }
    enter(session, guest)?;
    shell(session, DONE)?;
    leave(session)?;
    screenshot(session, &guest.name)
}

/// Has the guest work, and returns the screen of `gearctl top` as a picture.
fn top_of(session: &mut Session, guest: &VmSummary) -> Result<String> {
    enter(session, guest)?;
    shell(session, &format!("( {WORK} )"))?;
    leave(session)?;
    let size = (drawing::COLUMNS, TOP_LINES);
    Ok(drawing::screen(
        &top(session, size, &TOP_KEYS, |_| true)?,
        "gearctl top",
    ))
}

/// Returns what the two gears said while the machine booted.
fn said_by_gearv(printed: &str) -> impl Iterator<Item = &str> {
    let starts = ["gearv:", "gear2:"];
    printed
        .lines()
        .filter(move |line| starts.iter().any(|start| line.starts_with(start)))
}
