//! Linux guests that hang: the watchdog that Gear2 emulates, under Debian's driver.
//!
//! Times are those of the guest's counter, which QEMU takes from the host's clock: a busy host may
//! lengthen them, and the limits leave room for that.
//!
//! The device is Arm's SBSA watchdog, for which a stock kernel has a driver, and Debian's own
//! daemon refreshes it: a user needs nothing of GearV's in the guest.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use workbench::expect::Session;
use workbench::qemu::Qemu;
use workbench::{build_images, initramfs, workspace};
use xtask::run;
use xtask::smoke::{ESCAPE, shell};

use crate::part::{Part, Tally};

/// With room for a host that compiles.
const BOOT: Duration = Duration::from_secs(180);
/// `watchdog-ms` of the guest.
const PERIOD: Duration = Duration::from_secs(10);
/// Time until the bite, with room for a busy host.
const BITE: Duration = Duration::from_secs(60);
/// A boot may take so many times as long as the first one, on a host whose load changes. The host
/// may be busier than in the first boot.
const SLOWER: u32 = 4;
/// `restart-limit` of the guest. The next hang is the one after which the VM is given up.
const LIMIT: usize = 5;
/// Debian's daemon, not the program of this name that busybox has. A user of Debian has the daemon.
const DAEMON: &str = "/usr/bin/watchdog";
const HANGS: &str = "watched hangs: it does not refresh its watchdog";

/// One hang shows that it works; all of them show the limit.
pub(super) fn parts() -> Vec<Part> {
    vec![
        Part::new("a guest that hangs", |tally| hangs(1, tally)),
        Part::new("a guest that hangs again and again", |tally| {
            hangs(LIMIT + 1, tally)
        })
        .slow(true),
    ]
}

/// Has the guest hang so often; after the restarts that the manifest allows it stays stopped.
fn hangs(times: usize, tally: &mut Tally) -> Result<()> {
    let images = build_images::build(&workspace::root().join("tests/manifests/watchdog.dts"))?;
    let log = workspace::output_dir().join("watchdog.log");
    let machine = run::machine_for(&images)?;
    let mut session = images.start(&Qemu::prepare(10)?, &machine, &log)?;
    session.give_up_on(&[]);
    lives(&mut session, times, tally).with_context(|| build_images::last_words(&session))
}

/// A panic and a program that ends take turns: a kernel that is dead, and one that lives and is not
/// served.
fn lives(session: &mut Session, times: usize, tally: &mut Tally) -> Result<()> {
    let ready = format!("{}watched{}", initramfs::READY.0, initramfs::READY.1);
    let mut begin = Instant::now();
    let mut longest = None;
    for time in 1..=times {
        session.expect(&ready, BOOT)?;
        is_back_in_time(begin.elapsed(), &mut longest, tally)?;
        look_at_driver(session, time > 1)?;
        tally.pass(1);
        if time == 1 {
            is_fed(session)?;
            tally.pass(1);
        }
        begin = Instant::now();
        let took = hang(session, time % 2 == 0)?;
        tally
            .figures
            .push(format!("a guest that hangs ends after {took:.1?}"));
        tally.pass(1);
        if time > LIMIT {
            session.expect(
                "watched is given up: it was restarted 5 times already",
                BITE,
            )?;
            session.send(&format!("{ESCAPE}l"))?;
            session.expect("gear2: 0 watched stopped", BITE)?;
            session.expect("; given up", BITE)?;
            tally.pass(2);
            return Ok(());
        }
        session.expect("watched restarted", BITE)?;
        tally.pass(1);
    }
    // The next kernel knows why it starts.
    session.expect(&ready, BOOT)?;
    is_back_in_time(begin.elapsed(), &mut longest, tally)?;
    look_at_driver(session, true)?;
    tally.pass(1);
    Ok(())
}

/// Checks that a guest that hung is back within `watchdog-ms` and a boot, of which the first one
/// gives the measure. The first boot gives the measure, because hosts differ.
fn is_back_in_time(
    took: Duration,
    longest: &mut Option<Duration>,
    tally: &mut Tally,
) -> Result<()> {
    let Some(longest) = *longest else {
        *longest = Some(PERIOD + SLOWER * took);
        return Ok(());
    };
    ensure!(took <= longest, "it is back after {took:.1?} only");
    tally
        .figures
        .push(format!("a guest that hangs is back after {took:.1?}"));
    tally.pass(1);
    Ok(())
}

/// Checks what Debian's driver says of the device. The boot status tells the next kernel that the
/// watchdog has bitten, as hardware does.
fn look_at_driver(session: &mut Session, was_bitten: bool) -> Result<()> {
    session.send("\nstty cols 1000\n")?;
    let directory = "/sys/class/watchdog/watchdog0";
    let read = |session: &mut Session, name: &str| -> Result<String> {
        Ok(shell(session, &format!("cat {directory}/{name}"))?
            .trim()
            .to_owned())
    };
    let identity = read(session, "identity")?;
    ensure!(identity == "SBSA Generic Watchdog", "{identity:?}");
    let timeout = read(session, "timeout")?;
    ensure!(timeout == "10", "the driver takes {timeout} s");
    // WDIOF_CARDRESET.
    let expected = if was_bitten { "32" } else { "0" };
    let status = read(session, "bootstatus")?;
    ensure!(status == expected, "the boot status is {status}");
    let left = read(session, "timeleft")?;
    let left: u32 = left
        .parse()
        .with_context(|| format!("{left:?} s are left"))?;
    ensure!((5..=10).contains(&left), "{left} s are left");
    Ok(())
}

/// Has Debian's daemon refresh the watchdog for longer than the guest lives without it. The sleep
/// is longer than the period, and the uptime shows that no restart came in between.
fn is_fed(session: &mut Session) -> Result<()> {
    shell(session, DAEMON)?;
    let program = shell(session, "readlink /proc/$(pidof watchdog)/exe")?;
    ensure!(program.trim() == "/usr/bin/watchdog", "it is {program}");
    shell(session, "sleep 12")?;
    let seconds = shell(session, "cut -d. -f1 /proc/uptime")?;
    let seconds: u32 = seconds.trim().parse().context("an uptime")?;
    ensure!(seconds >= 12, "the guest is up for {seconds} s");
    Ok(())
}

/// Has the guest hang, by a panic or by a program that ends, and returns how long it goes on. The
/// time is the host's, and only reported.
fn hang(session: &mut Session, by_program: bool) -> Result<Duration> {
    let begin = Instant::now();
    if by_program {
        // The daemon closes the watchdog without the magic letter.
        shell(session, DAEMON)?;
        session.send("sleep 2; killall -9 watchdog\n")?;
    } else {
        session.send("echo c > /proc/sysrq-trigger\n")?;
    }
    session.expect(HANGS, BITE)?;
    Ok(begin.elapsed())
}
