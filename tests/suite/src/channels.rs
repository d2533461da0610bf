//! Channels between a stock Linux and a bare-metal guest, by Linux' UIO. The driver is Debian's
//! source, built as docs/doorbells.md tells a user to.
//!
//! UIO needs no code of GearV's in the kernel, so it is what a user's own program would use.

use anyhow::{Context as _, Result, ensure};
use workbench::build_images::{self, last_words};
use workbench::expect::Session;
use workbench::qemu::{Machine, Qemu};
use workbench::workspace;
use xtask::run;
use xtask::smoke::{BOOT, LONG, focus, no_kernel_complains, ready, shell, shell_within};

use crate::linux::WARNINGS;
use crate::part::{Part, Tally};

/// Rings of which each is answered. A ring that is lost leaves the program waiting, and the part
/// fails by time.
const ROUNDS: u32 = 1000;
/// Rings that nobody waits between. Rings between two interrupts may become one, as those of an
/// edge do.
const BURST: u32 = 10_000;
/// Interrupts of [`ROUNDS`], of the program's first ring and of two around a disabled interrupt.
const SINGLE: u32 = ROUNDS + 3;

/// The doorbell's edge is injected by other code for each GIC.
pub(super) fn parts() -> Vec<Part> {
    let parts = [3, 2].map(|gic| {
        let name = format!("a channel rings Linux by UIO, GICv{gic}");
        Part::new(name, move |tally| rings(gic, tally)).slow(true)
    });
    parts.into()
}

/// The part is slow, because the driver is built from Debian's source.
fn rings(gic: u32, tally: &mut Tally) -> Result<()> {
    let manifest = workspace::root().join("tests/manifests/channels-uio.dts");
    let images = build_images::build(&manifest)?;
    let machine = Machine {
        gic,
        ..run::machine_for(&images)?
    };
    let log = workspace::output_dir().join(format!("channels-uio-gicv{gic}.log"));
    let mut session = images.start(&Qemu::prepare(10)?, &machine, &log)?;
    use_channels(&mut session, tally).with_context(|| last_words(&session))?;
    no_kernel_complains(&mut session)?;
    tally.pass(1);
    Ok(())
}

/// Three counts must agree: the program's, the kernel's, and the number of rings that were
/// answered.
fn use_channels(session: &mut Session, tally: &mut Tally) -> Result<()> {
    session.expect(&ready("linux"), BOOT)?;
    focus(session, 0, "linux")?;
    session.send("stty cols 1000\n")?;
    let old = shell(session, WARNINGS)?;
    tally.check("devices", devices(session));
    let first = once(session)?;
    tally.pass(1);
    let counted = interrupts(session)?;
    ensure!(
        counted == first,
        "/proc/interrupts has {counted}, not {first}"
    );
    tally.pass(1);
    // A program that starts again goes on with what the kernel and the memory have.
    let second = once(session)?;
    let counted = interrupts(session)?;
    ensure!(
        counted == first + second,
        "/proc/interrupts has {counted}, not {first} and {second}"
    );
    tally.pass(1);
    // Linux says by a warning that an interrupt was handled by nobody.
    let new = shell(session, WARNINGS)?;
    ensure!(new == old, "the kernel warns of\n{new}");
    tally
        .figures
        .push(format!("{first} interrupts of {} rings", SINGLE + BURST));
    session.send("poweroff -f\n")?;
    session.expect_end(BOOT)?;
    tally.pass(1);
    Ok(())
}

/// Both channels are devices by their names; the one that only rings has no interrupt to read. The
/// node without an interrupt must refuse a read, which would wait for ever.
fn devices(session: &mut Session) -> Result<()> {
    let names = shell(
        session,
        "cat /sys/class/uio/uio*/name | sort | tr '\\n' ' '",
    )?;
    ensure!(names.trim() == "ask tell", "the devices are {names:?}");
    let node = "cd /sys/class/uio; cd $(dirname $(grep -lx ask */name)); basename $PWD; cd /root";
    let device = shell(session, node)?;
    let read = format!("dd if=/dev/{} bs=4 count=1 2>&1 || true", device.trim());
    let said = shell(session, &read)?;
    ensure!(said.contains("Input/output error"), "a read says {said}");
    Ok(())
}

/// Runs the program once; returns how many interrupts it counted. The burst's interrupts are at
/// least one and at most as many as its rings; all others are exact.
fn once(session: &mut Session) -> Result<u32> {
    let command = format!("uio_ring ask tell {ROUNDS} {BURST}");
    let said = shell_within(session, &command, LONG)?;
    let (joined, all) = figures(&said).with_context(|| format!("the program says {said}"))?;
    ensure!(all == SINGLE + joined, "{said}");
    ensure!((1..=BURST).contains(&joined), "{said}");
    Ok(all)
}

/// Returns the interrupts of the burst and all interrupts, of the program's line.
fn figures(said: &str) -> Option<(u32, u32)> {
    let line = said.lines().find(|line| line.starts_with("UIO "))?;
    let before = |words: &str| {
        let (text, _) = line.split_once(words)?;
        text.split_whitespace().next_back()?.parse().ok()
    };
    Some((before(" interrupts, ")?, before(" interrupts in all")?))
}

/// Returns how often the kernel has had the channel's interrupt. Counts are those of edges, so the
/// kind of the interrupt is looked at as well.
fn interrupts(session: &mut Session) -> Result<u32> {
    let line = shell(session, "grep -w tell /proc/interrupts")?;
    let count = line.split_whitespace().nth(1);
    let count = count.with_context(|| format!("{line:?} has no count"))?;
    ensure!(line.contains("Edge"), "{line} is not of an edge");
    Ok(count.parse()?)
}
