//! The bare-metal guests under GearV: builds, boots and judges each row of the table.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, ensure};

use super::table::{TARGET_TESTS, TargetTest};
use super::{Part, Tally};
use crate::build_images;
use crate::expect::Session;
use crate::qemu::{Boot, Console, Machine, Qemu};
use crate::{run, workspace};

/// The QEMU that the guests run on; the Debian guests run on all that are supported.
const QEMU: u32 = 10;

pub(super) fn parts() -> Vec<Part> {
    TARGET_TESTS.iter().flat_map(parts_of).collect()
}

fn parts_of(row: &'static TargetTest) -> impl Iterator<Item = Part> {
    let native = row.native.map(|bin| {
        let name = format!("guest {bin} without GearV");
        Part::new(name, move |tally| boot_native(row, bin, tally)).slow(row.slow)
    });
    let models = row.models.iter().map(move |model| {
        let name = format!("guest {} on {model}", row.manifest);
        Part::new(name, move |tally| boot(row, model, tally)).slow(row.slow)
    });
    native.into_iter().chain(models)
}

/// Runs a guest on the bare machine.
fn boot_native(row: &TargetTest, bin: &str, tally: &mut Tally) -> Result<()> {
    let guest = build_images::build_guest(bin)?;
    let machine = Machine {
        cpus: row.cpus,
        icount: row.icount,
        ..Machine::default()
    };
    let qemu = Qemu::prepare(QEMU)?;
    let command = qemu.command(&machine.without_el2(), &Boot::bare(&guest), Console::Pipes);
    let alone = TargetTest {
        guests: 1,
        passes: 1,
        ..*row
    };
    conclude(Session::start(command, &log(row, "native"))?, &alone, tally)
}

/// Runs a row under GearV.
fn boot(row: &TargetTest, model: &str, tally: &mut Tally) -> Result<()> {
    let manifest = format!("tests/manifests/{}.dts", row.manifest);
    let images = build_images::build(&workspace::root().join(manifest))?;
    let machine = Machine {
        cpu: model.to_owned(),
        cpus: row.cpus,
        memory_mib: run::memory_for(&images)?,
        icount: row.icount,
        ..Machine::default()
    };
    let session = images.start(&Qemu::prepare(QEMU)?, &machine, &log(row, model))?;
    conclude(session, row, tally)
}

fn log(row: &TargetTest, what: &str) -> PathBuf {
    workspace::output_dir().join(format!("{}/{what}.log", row.manifest))
}

/// Judges a running machine and, if it failed, shows its last words.
fn conclude(mut session: Session, row: &TargetTest, tally: &mut Tally) -> Result<()> {
    judge(&mut session, row, tally)
        .map_err(|error| anyhow!("{error:#}\n{}", build_images::last_words(&session)))
}

fn judge(session: &mut Session, row: &TargetTest, tally: &mut Tally) -> Result<()> {
    let end = wait_for_done(session, row.guests, Duration::from_secs(row.timeout_s));
    let passed = count_verdicts(session.transcript(), tally);
    end?;
    let expected = row.passes;
    ensure!(
        passed >= expected,
        "only {passed} of {expected} checks passed"
    );
    Ok(())
}

/// Waits until so many guests are done.
fn wait_for_done(session: &mut Session, guests: usize, timeout: Duration) -> Result<()> {
    let deadline = Instant::now() + timeout;
    let mut done = 0;
    while done < guests {
        let rest = deadline.saturating_duration_since(Instant::now());
        let before = session.expect("DONE\n", rest)?;
        // A label may stand before it, other words may not.
        let line = before.lines().last().unwrap_or_default();
        done += usize::from(before.ends_with('\n') || without_label(line).is_empty());
    }
    Ok(())
}

/// Tallies the guests' verdicts and returns how many checks passed.
fn count_verdicts(transcript: &str, tally: &mut Tally) -> usize {
    let mut passed = 0;
    for line in transcript.lines().map(without_label) {
        if line.starts_with("PASS ") {
            passed += 1;
        } else if let Some(failure) = line.strip_prefix("FAIL ") {
            tally.fail(failure);
        }
    }
    tally.pass(passed);
    passed
}

/// Removes the `[name] ` that the console puts before the lines of one VM among several.
fn without_label(line: &str) -> &str {
    let after = line
        .strip_prefix('[')
        .and_then(|rest| rest.split_once("] "));
    after.map_or(line, |(_, rest)| rest)
}

#[cfg(test)]
mod tests;
