//! Devices that other programs serve: a Linux guest on Debian's qemu-storage-daemon, which is
//! killed in the middle of writes, as the device model is; a folder by virtiofsd ([`folder`]); and
//! a screen by vhost-user-gpu ([`screen`]).
//!
//! Such programs are Debian's, unchanged, and know nothing of GearV: they speak vhost-user as with
//! QEMU. A program may always crash, so its end is part of what is tested.

use anyhow::{Context as _, Result, ensure};
use workbench::build_images::{self, last_words};
use workbench::expect::Session;
use workbench::manifest::VmSummary;
use workbench::qemu::Qemu;
use workbench::{ext4, workspace};
use xtask::run;
use xtask::smoke::device_vm::{KILL, answers, enter, is_up, leave};
use xtask::smoke::fio::{FINISH, fio_result, fio_until_stopped};
use xtask::smoke::{BOOT, LONG, ready, shell, shell_within};

use crate::part::{Part, Tally};

mod folder;
pub(crate) mod screen;

/// The user of the program that serves channel 0, without capabilities and without a way to gain
/// any. A program that is subverted by a guest has only these.
const RIGHTS: &str = "pid=$(pidof qemu-storage-daemon); \
    grep -E '^(Uid|Gid|CapEff|CapPrm|NoNewPrivs):' /proc/$pid/status";
/// User and group are 60579 and the channel's number (docs/device-model.md).
const EXPECTED: [&str; 5] = [
    "Uid:\t60579\t60579\t60579\t60579",
    "Gid:\t60579\t60579\t60579\t60579",
    "CapPrm:\t0000000000000000",
    "CapEff:\t0000000000000000",
    "NoNewPrivs:\t1",
];
/// Kills the program three times in the middle of its work, each time when the next one runs.
/// Writes are in flight each time, which the next program must find and repeat.
const KILL_PROGRAM: &str = "for n in 1 2 3; do old=$(pidof qemu-storage-daemon); kill -9 $old; \
    until [ -n \"$(pidof qemu-storage-daemon)\" ] && [ \"$(pidof qemu-storage-daemon)\" != \"$old\" ]; \
    do sleep 0.1; done; sleep 1; done; cat /run/gdm.log";
/// Writes and verifies until it is told to stop, and says how it ended.
const STOP: &str = "touch /run/stop";

pub(super) fn parts() -> Vec<Part> {
    vec![
        Part::new("a guest's disk by qemu-storage-daemon", disk).either(),
        Part::new("a guest's folder and screen by programs", desktop).either(),
    ]
}

fn disk(tally: &mut Tally) -> Result<()> {
    with_guest("vhost-user", use_disk)?;
    tally.pass(5);
    Ok(())
}

/// One boot serves both devices: a kernel's start takes longer than the use of either. The screen
/// comes first, because the use of the folder has GDM killed: that ends vhost-user-gpu, and the
/// driver is not bound again.
fn desktop(tally: &mut Tally) -> Result<()> {
    with_guest("vhost-user-desktop", |session, guest| {
        boot(session, guest, START)?;
        screen::is_used(session, guest).context("the screen")?;
        folder::is_used(session, guest).context("the folder")?;
        power_off(session)
    })?;
    tally.pass(11);
    Ok(())
}

/// Boots a manifest of the tests, does something with its guest, and examines the disk afterwards.
/// The file system is checked from outside, behind the machine's end.
fn with_guest(name: &str, act: impl FnOnce(&mut Session, &VmSummary) -> Result<()>) -> Result<()> {
    let manifest = workspace::root().join(format!("tests/manifests/{name}.dts"));
    let images = build_images::build(&manifest)?;
    let machine = run::machine_for(&images)?;
    let image = machine.disk.clone().context("the machine has no disk")?;
    let log = workspace::output_dir().join(format!("{name}.log"));
    let vms = &images.manifest.vms;
    let guest = vms.iter().find(|vm| vm.may_power_off);
    let guest = guest.context("no guest may power the machine off")?;
    let mut session = images.start(&Qemu::prepare(10)?, &machine, &log)?;
    let outcome = act(&mut session, guest);
    outcome.with_context(|| last_words(&session))?;
    ext4::check(&image)
}

/// Boots, and leaves the guest's shell at the console. `before` is what the device VM does first.
fn boot(session: &mut Session, guest: &VmSummary, before: &str) -> Result<()> {
    is_up(session)?;
    shell_within(session, before, LONG)?;
    session.send(&format!("{}\n", guest.console_command()))?;
    session.expect(&ready(&guest.name), BOOT)?;
    answers(session, &guest.name)
}

/// Starts the guest when the programs of its devices serve.
const START: &str = "until [ -e /run/gearv/screen3 ] && [ -S /run/gearv-shared/socket ]; do \
    sleep 0.2; done; gearctl start linux";

/// Powers the machine off from the guest.
fn power_off(session: &mut Session) -> Result<()> {
    session.send("poweroff\n")?;
    session.expect_end(LONG)?;
    Ok(())
}

/// Each end of the program must be told in the log, once: a person who looks for a slow disk finds
/// it there.
fn use_disk(session: &mut Session, guest: &VmSummary) -> Result<()> {
    boot(session, guest, "true")?;
    shell(
        session,
        "grep -qx 'DRIVER=virtio_blk' /sys/block/vda/device/uevent",
    )?;
    shell(session, &fio_until_stopped())?;
    leave(session)?;
    let rights = shell(session, RIGHTS)?;
    for expected in EXPECTED {
        ensure!(rights.contains(expected), "{expected} is not in {rights}");
    }
    let log = shell_within(session, KILL_PROGRAM, LONG)?;
    let said = "/run/gearv-disk/socket: the backend closed the socket; requests wait";
    ensure!(log.matches(said).count() == 3, "GDM says {log}");
    ensure!(
        !log.contains("panicked") && !log.contains("bug in gdm"),
        "GDM says {log}"
    );
    shell_within(session, KILL, LONG)?;
    enter(session, guest)?;
    shell(session, STOP)?;
    let printed = shell_within(session, FINISH, LONG)?;
    println!("{}", fio_result(&printed)?);
    power_off(session)
}
