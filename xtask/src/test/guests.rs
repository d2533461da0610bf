//! The bare-metal guests under GearV: builds, boots and judges each row of the table.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use super::table::{Expected, TARGET_TESTS, TargetTest};
use super::{Part, Tally};
use crate::build_images;
use crate::expect::Session;
use crate::qemu::{Boot, Console, Machine, Qemu};
use crate::{run, workspace};

pub(super) fn parts() -> Vec<Part> {
    let rows = TARGET_TESTS
        .iter()
        .flat_map(|row| row.models.iter().map(move |model| (row, model)));
    rows.map(|(row, model)| {
        let name = format!("guest {} on {model}", row.manifest);
        Part::new(name, move |tally| boot(row, model, tally)).slow(row.slow)
    })
    .collect()
}

fn boot(row: &TargetTest, model: &str, tally: &mut Tally) -> Result<()> {
    let manifest = format!("tests/manifests/{}.dts", row.manifest);
    let images = build_images::build(&workspace::root().join(manifest))?;
    let qemu = Qemu::prepare(10)?;
    let machine = Machine {
        cpu: model.to_owned(),
        cpus: row.cpus,
        memory_mib: run::memory_for(&images)?,
        icount: row.icount,
        ..Machine::default()
    };
    let boot = Boot {
        kernel: &images.gear1,
        initrd: Some(&images.archive),
        command_line: None,
    };
    let command = qemu.command(&machine, &boot, Console::Pipes);
    let log = workspace::output_dir()
        .join(row.manifest)
        .join(format!("{model}.log"));
    let mut session = Session::start(command, &log)?;
    let timeout = Duration::from_secs(row.timeout_s);
    if let Err(error) = judge(&mut session, row.expected, timeout, tally) {
        bail!("{error:#}\n{}", session.tail(60));
    }
    Ok(())
}

fn judge(
    session: &mut Session,
    expected: Expected,
    timeout: Duration,
    tally: &mut Tally,
) -> Result<()> {
    match expected {
        Expected::Refusal(text) => {
            session.expect(text, timeout)?;
            tally.pass(1);
            Ok(())
        }
        Expected::Done { guests, passes } => {
            let end = wait_for_done(session, guests, timeout);
            let passed = count_verdicts(session.transcript(), tally);
            end?;
            if passed < passes {
                bail!("only {passed} of {passes} checks were made");
            }
            Ok(())
        }
    }
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
