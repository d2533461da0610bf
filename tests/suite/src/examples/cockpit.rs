//! The cockpit of `manifests/mixed-criticality.dts`: a guest with sockets, keys, a folder and a
//! screen, which the device VM and Debian's programs serve, beside an instrument cluster that the
//! device VM rings. The cluster goes on while the guest works and the device VM ends and restarts.
//!
//! The example has all that a cockpit needs at once. Parts of their own test each device at length;
//! here the question is whether they disturb each other, and above all the cluster.

use std::fs;

use anyhow::{Context as _, Result, ensure};
use workbench::manifest::VmSummary;
use workbench::{device_userland, workspace};
use xtask::smoke::desktop::{screenshot, typing};
use xtask::smoke::device_vm::{answers, change, enter, leave};
use xtask::smoke::{self, LONG, ready, shell, shell_within};

use super::Example;
use crate::part::Tally;
use crate::programs::screen;

/// The guest, and the real-time VM. Names are those of the manifest.
const GUEST: &str = "infotainment";
const CLUSTER: &str = "cluster";

/// Lists the VMs as soon as the device model answers.
const LIST: &str = "until gearctl list; do sleep 0.2; done";
/// Changes of a VM by `gearctl`, and the states that they lead to. The order leaves the VM running.
const STATES: [(&str, &str); 3] = [
    ("stop", "stopped"),
    ("start", "running"),
    ("restart", "running"),
];
/// Rings the cluster. The register is that of the channel, at the address that docs/doorbells.md
/// shows.
const RING: &str = "devmem 0x0b000000 32 1";

/// Sockets of the guest's keys, and of a program that the guest's port 7 leads to.
const KEYS: &str = "/run/gearv/infotainment.input";
const PORT: &str = "/run/gearv/infotainment.vsock_7";

/// The order is a session's: look, ring, change, then use the guest, and end the device VM last.
pub(super) fn part(tally: &mut Tally) -> Result<()> {
    let mut example = Example::boot("mixed-criticality")?;
    example.expect(device_userland::READY)?;
    example.session.send("stty cols 1000\n")?;
    example.wait_for_report()?;
    let list = shell(&mut example.session, LIST)?;
    for vm in ["device", GUEST, CLUSTER] {
        ensure!(list.contains(vm), "{vm} is not in\n{list}");
    }
    tally.pass(2);
    rings(&mut example, tally)?;
    for (how, state) in STATES {
        change(&mut example.session, how, CLUSTER, state)?;
        tally.pass(1);
    }
    let guest = example.guest(GUEST)?;
    let console = format!("gearctl console --all {GUEST}\n");
    example.session.send(&console)?;
    example.expect(&ready(GUEST))?;
    answers(&mut example.session, GUEST)?;
    example.wait_for_report()?;
    tally.pass(1);
    use_devices(&mut example, &guest, tally)?;
    clocks_agree(&mut example, &guest, tally)?;
    keeps_a_way_back(&mut example, tally)
}

/// The cluster counts each ring of the device VM. The count begins at 0, so a ring that comes by
/// itself in the boot would show.
fn rings(example: &mut Example, tally: &mut Tally) -> Result<()> {
    example.wait_for_serial("rung 0 times")?;
    for rings in 1..=2 {
        shell(&mut example.session, RING)?;
        example.wait_for_serial(&format!("rung {rings} times"))?;
        tally.pass(1);
    }
    Ok(())
}

/// The guest, at whose console a person is, uses what programs of the device VM serve; the cluster
/// runs on. A report of the cluster at the end shows that it lived through all of them.
fn use_devices(example: &mut Example, guest: &VmSummary, tally: &mut Tally) -> Result<()> {
    // An error then shows what these checks have said, and nothing before.
    let said = example.session.transcript().len();
    let outcome = folder(example, guest)
        .context("the folder")
        .and_then(|()| socket(example, guest).context("the socket"))
        .and_then(|()| keys(example, guest).context("the keys"))
        .and_then(|()| stripes(example, guest).context("the screen"));
    outcome.with_context(|| example.session.transcript()[said..].to_owned())?;
    example.wait_for_report()?;
    tally.pass(4);
    Ok(())
}

/// Each side reads what the other has written. Both directions, since virtiofs caches: a guest that
/// saw only its own writes would pass one of them.
fn folder(example: &mut Example, guest: &VmSummary) -> Result<()> {
    let session = &mut example.session;
    let write = "mount -t virtiofs shared /mnt && echo from the guest > /mnt/guest";
    shell_within(session, write, LONG)?;
    leave(session)?;
    let both = "cat /srv/shared/guest && echo from the device VM > /srv/shared/device";
    let said = shell(session, both)?;
    ensure!(said.contains("from the guest"), "the file has {said:?}");
    enter(session, guest)?;
    let said = shell(session, "cat /mnt/device")?;
    ensure!(said.contains("from the device VM"), "the file has {said:?}");
    Ok(())
}

/// A program of the guest speaks with one of the device VM.
fn socket(example: &mut Example, guest: &VmSummary) -> Result<()> {
    let session = &mut example.session;
    leave(session)?;
    let listen = format!("(echo from the device VM | socat - UNIX-LISTEN:{PORT} > /run/heard) & :");
    shell(session, &listen)?;
    shell(session, &format!("until [ -S {PORT} ]; do sleep 0.1; done"))?;
    enter(session, guest)?;
    let said = shell(
        session,
        "echo from the guest | socat -t 20 - VSOCK-CONNECT:2:7",
    )?;
    ensure!(said.contains("from the device VM"), "it hears {said:?}");
    leave(session)?;
    let heard = shell(session, "wait; cat /run/heard")?;
    ensure!(
        heard.contains("from the guest"),
        "the device VM hears {heard:?}"
    );
    enter(session, guest)
}

/// The shell on the guest's screen obeys keys that are typed in the device VM. The keys go through
/// GDM's text form of input events, as a script of the device VM would send them.
fn keys(example: &mut Example, guest: &VmSummary) -> Result<()> {
    let session = &mut example.session;
    leave(session)?;
    let said = shell(session, &typing("touch /run/typed", KEYS)?)?;
    ensure!(!said.contains("error"), "the device model says {said:?}");
    enter(session, guest)?;
    shell(session, "until [ -e /run/typed ]; do sleep 0.2; done").map(drop)
}

/// Each pixel of the screen is as the guest drew it. The picture is kept for a person to look at.
fn stripes(example: &mut Example, guest: &VmSummary) -> Result<()> {
    let session = &mut example.session;
    screen::draw(session)?;
    leave(session)?;
    let picture = screenshot(session, GUEST)?;
    fs::write(workspace::output_dir().join("cockpit.png"), &picture)?;
    screen::has_stripes(&picture)?;
    enter(session, guest)
}

/// The guest, at whose console a person is, has the device VM's wall clock, within a second. The
/// guest asks twice, around the device VM's answer, so that the time of the commands is no error.
fn clocks_agree(example: &mut Example, guest: &VmSummary, tally: &mut Tally) -> Result<()> {
    let set = "hwclock -s && date +%s";
    let first = seconds(&shell(&mut example.session, set)?)?;
    leave(&mut example.session)?;
    let device = seconds(&shell(&mut example.session, "date +%s")?)?;
    enter(&mut example.session, guest)?;
    let last = seconds(&shell(&mut example.session, set)?)?;
    // Clocks are read in whole seconds, so one second on either side is rounding.
    let between = first - 1..=last + 1;
    ensure!(
        between.contains(&device),
        "the guest says {first} and {last}, the device VM {device} in between"
    );
    // A clock that nobody set counts from 1970.
    ensure!(device > 1_700_000_000, "the device VM says {device}");
    tally.pass(1);
    Ok(())
}

/// Returns the seconds that `date +%s` has printed.
fn seconds(said: &str) -> Result<u64> {
    let mut lines = said.lines().map(str::trim);
    let number = lines.find_map(|line| line.parse().ok());
    number.with_context(|| format!("no time in {said:?}"))
}

/// Commands on the real-time VM, and texts of their answers.
const REAL_TIME: [(&str, &str); 4] = [
    (
        "! gearctl pause cluster 2>&1",
        "it is real-time, with CPUs of its own",
    ),
    (
        "! gearctl console cluster 2>&1",
        "its serial port is the machine's; `gearctl console --messages cluster`",
    ),
    ("gearctl stats cluster", "own CPU"),
    ("gearctl log", "VM cluster started"),
];

/// A person at the device VM is told what the real-time VM is.
fn real_time_is_what_it_is(example: &mut Example, tally: &mut Tally) -> Result<()> {
    for (command, text) in REAL_TIME {
        let said = shell(&mut example.session, command)?;
        // The terminal breaks lines between words.
        let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
        ensure!(said.contains(text), "{command} says {said:?}");
        tally.pass(1);
    }
    Ok(())
}

/// The device VM owns the UART, so Gear2 does not leave it stopped: `gearctl stop` is refused. When
/// it turns itself off it is started again as long as the real-time VM runs, which it does not
/// serve; else the machine is powered off. The real-time VM's reports must go on in both cases
/// until it is stopped.
fn keeps_a_way_back(example: &mut Example, tally: &mut Tally) -> Result<()> {
    leave(&mut example.session)?;
    let refused = "if gearctl stop device 2> /run/refused; then false; else cat /run/refused; fi";
    let said = shell(&mut example.session, refused)?;
    let expected = "VM device is not stopped: nobody could start it again from here";
    ensure!(said.contains(expected), "gearctl says {said:?}");
    tally.pass(1);
    real_time_is_what_it_is(example, tally)?;
    example.session.send("poweroff -f\n")?;
    example.expect(device_userland::READY)?;
    example.wait_for_report()?;
    let ready = "stty cols 1000; until gearctl list; do sleep 0.2; done";
    shell(&mut example.session, ready)?;
    tally.pass(1);
    change(&mut example.session, "stop", CLUSTER, "stopped")?;
    // With the cluster stopped nobody is left for whom the machine should go on.
    smoke::power_off(&mut example.session, "poweroff -f")?;
    tally.pass(1);
    Ok(())
}
