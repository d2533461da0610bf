//! The example manifests: each keeps all rules on the board it is for, and those that the Debian tests do
//! not boot are booted here.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::{Part, Tally};
use crate::board::{self, BoardTree};
use crate::build_images::{self, last_words};
use crate::expect::Session;
use crate::manifest::diagnostic::error_count;
use crate::qemu::Qemu;
use crate::smoke::device_vm::change;
use crate::smoke::{self, ESCAPE, Extent, shell};
use crate::tools::Tools;
use crate::{check, device_userland, initramfs, new_manifest, run, workspace};

const BOOT: Duration = Duration::from_secs(300);
/// What the control loop of the examples says after a second.
const PERIODS: &str = "control loop: 1000 periods, at most ";

pub(super) fn parts() -> Vec<Part> {
    vec![
        Part::new("example manifests keep the rules", judged),
        Part::new("a new manifest boots", new),
        Part::new("example bare-metal-pair boots", pair),
        Part::new("example mixed-criticality boots", mixed),
    ]
}

fn manifest(name: &str) -> PathBuf {
    workspace::root().join(format!("manifests/{name}.dts"))
}

fn judged(tally: &mut Tally) -> Result<()> {
    let tools = Tools::prepare()?;
    let examples = [
        (
            board::Name::QemuVirt,
            &[
                "minimal",
                "two-guests",
                "qemu-virt",
                "mixed-criticality",
                "bare-metal-pair",
            ][..],
        ),
        (board::Name::Rpi4, &["rpi4"]),
        (board::Name::RcarH3, &["minimal", "two-guests", "rcar-h3"]),
    ];
    for (name, manifests) in examples {
        let board = BoardTree::named(name, &tools)?;
        for stem in manifests {
            tally.check(stem, keeps_rules(&manifest(stem), &board, &tools));
        }
        let new = workspace::output_dir().join(format!("new-{}.dts", name.text()));
        fs::write(&new, new_manifest::text(name))?;
        tally.check("new-manifest", keeps_rules(&new, &board, &tools));
    }
    Ok(())
}

fn keeps_rules(file: &std::path::Path, board: &BoardTree, tools: &Tools) -> Result<()> {
    let findings = check::check(file, board, tools)?;
    let errors = error_count(&findings.list);
    ensure!(
        errors == 0,
        "{} on {}:\n{}",
        file.display(),
        board.name,
        findings.sources.draw(&findings.list, false)
    );
    Ok(())
}

/// What `new-manifest` writes boots as it is.
fn new(tally: &mut Tally) -> Result<()> {
    let file = workspace::output_dir().join("new.dts");
    fs::write(&file, new_manifest::text(board::Name::QemuVirt))?;
    let images = build_images::build(&file)?;
    let machine = run::machine_for(&images)?;
    let qemu = Qemu::prepare(10)?;
    let checks = smoke::check_all(&qemu, &machine, &images, "new.log", Extent::BRIEF, &|_| {})?;
    tally.pass(checks);
    Ok(())
}

/// An example on QEMU.
struct Example {
    session: Session,
    /// Where the second UART writes to.
    serial: PathBuf,
}

impl Example {
    fn boot(name: &str) -> Result<Example> {
        let images = build_images::build(&manifest(name))?;
        let machine = run::machine_for(&images)?;
        let serial = run::second_serial(&images).context("no VM has the second UART")?;
        fs::write(&serial, "")?;
        let log = workspace::output_dir().join(format!("{name}/boot.log"));
        let session = images.start(&Qemu::prepare(10)?, &machine, &log)?;
        Ok(Example { session, serial })
    }

    fn expect(&mut self, text: &str) -> Result<()> {
        let found = self.session.expect(text, BOOT).map(drop);
        found.with_context(|| last_words(&self.session))
    }

    /// Returns how many reports the real-time VM has made.
    fn reports(&self) -> Result<usize> {
        Ok(fs::read_to_string(&self.serial)?
            .matches(" periods, at most ")
            .count())
    }

    /// Waits for another report of the real-time VM.
    fn wait_for_report(&mut self) -> Result<()> {
        let before = self.reports()?;
        for _ in 0..600 {
            if self.reports()? > before {
                return Ok(());
            }
            self.session.listen(Duration::from_millis(100))?;
        }
        let said = fs::read_to_string(&self.serial)?;
        ensure!(
            false,
            "the real-time VM says no more:\n{said}\n{}",
            last_words(&self.session)
        );
        Ok(())
    }
}

/// Both programs run: one is seen on its own UART, the other by way of Gear2.
fn pair(tally: &mut Tally) -> Result<()> {
    let mut example = Example::boot("bare-metal-pair")?;
    example.wait_for_report()?;
    example.session.send(&format!("{ESCAPE}1"))?;
    example.expect(PERIODS)?;
    tally.pass(2);
    Ok(())
}

/// The device VM and the guest reach their shells, and the real-time VM runs on meanwhile and when the
/// device VM has been killed.
fn mixed(tally: &mut Tally) -> Result<()> {
    let mut example = Example::boot("mixed-criticality")?;
    example.expect(device_userland::READY)?;
    example.session.send("stty cols 1000\n")?;
    example.wait_for_report()?;
    let list = shell(
        &mut example.session,
        "until gearctl list; do sleep 0.2; done",
    )?;
    for vm in ["device", "linux", "control"] {
        ensure!(list.contains(vm), "{vm} is not in\n{list}");
    }
    tally.pass(2);
    for (how, state) in [
        ("stop", "stopped"),
        ("start", "running"),
        ("restart", "running"),
    ] {
        change(&mut example.session, how, "control", state)?;
        tally.pass(1);
    }
    example.session.send("gearctl console linux\n")?;
    let (before, after) = initramfs::READY;
    example.expect(&format!("{before}linux{after}"))?;
    example.wait_for_report()?;
    tally.pass(1);
    Ok(())
}
