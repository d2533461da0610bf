//! The bare-metal guests under GearV: builds, boots and judges each row of the table.
//!
//! Guests judge themselves, as only they see what a VM sees. Their words are on the console, which
//! is Gear2's work: a guest whose lines do not arrive has failed, whatever it did. Hence no verdict
//! is taken from a guest's silence, and a row counts the checks that it expects.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, ensure};
use workbench::expect::Session;
use workbench::qemu::{Boot, Console, Machine, Qemu};
use workbench::{build_images, workspace};
use xtask::run;

use crate::part::{Part, Tally};
use crate::table::{TargetTest, target_tests};

/// The QEMU that the guests run on; the Debian guests run on all that are supported.
const QEMU: u32 = 10;
/// After what a machine with another Gear1 has failed: a guest's check, or as any machine.
const FAILURES: &[&str] = &["FAIL ", build_images::HALT, build_images::STOPPED];
/// A guest's last line. A guest that hangs or ends early never prints it.
const DONE: &str = "DONE";

pub(super) fn parts() -> Vec<Part> {
    target_tests().flat_map(parts_of).collect()
}

/// Returns the parts of a row: without GearV first, since a guest whose expectations the bare
/// machine does not meet says nothing about GearV.
fn parts_of(row: &'static TargetTest) -> impl Iterator<Item = Part> {
    let gics: &[u32] = if row.gicv2 { &[3, 2] } else { &[3] };
    let native = gics.iter().filter_map(move |&gic| {
        let bin = row.native?;
        let name = format!("guest {bin} without GearV{}", with(gic));
        Some(Part::new(name, move |tally| boot_native(row, bin, gic, tally)).slow(row.slow))
    });
    let models = row.models.iter().map(|&model| (model, 3, row.slow));
    let slow_models = row.slow_models.iter().map(|&model| (model, 3, true));
    // Gear1 has a runtime for each version. The CPU model makes no difference to a GICv2, which
    // lies outside of the CPUs.
    let gicv2 = row.models.first().filter(|_| row.gicv2);
    let gicv2 = gicv2.map(|&model| (model, 2, row.slow));
    let all = models.chain(slow_models).chain(gicv2);
    let under = all.map(move |(model, gic, is_slow)| {
        let name = format!("guest {} on {model}{}", row.manifest, with(gic));
        Part::new(name, move |tally| boot(row, model, gic, tally)).slow(is_slow)
    });
    native.chain(under)
}

/// Names the interrupt controller if it is not the usual one. Names of parts are what people filter
/// by, and what the evidence lists.
fn with(gic: u32) -> &'static str {
    if gic == 2 { " with GICv2" } else { "" }
}

/// Runs a guest on the bare machine. One check is enough there: the guest leaves out those of
/// GearV's own calls, other guests are not there, and nobody says what a row expects of Gear2.
fn boot_native(row: &TargetTest, bin: &str, gic: u32, tally: &mut Tally) -> Result<()> {
    let guest = build_images::build_guest(bin)?;
    let model = row.models.first().context("a row names a model")?;
    // With EL2 the guest would be entered there, and guests are made for EL1.
    let machine = machine(row, model, gic).without_el2();
    let qemu = Qemu::prepare(QEMU)?;
    let command = qemu.command(&machine, &Boot::bare(&guest), Console::Pipes);
    let alone = TargetTest {
        guests: 1,
        passes: 1,
        says: &[],
        ..*row
    };
    let log = log(row, &format!("native-gicv{gic}"));
    conclude(Session::start(command, &log)?, &alone, tally)
}

/// Returns the machine of a row.
fn machine(row: &TargetTest, model: &str, gic: u32) -> Machine {
    Machine {
        cpu: format!("{model}{}", row.cpu_properties),
        gic,
        cpus: row.cpus,
        icount: row.icount,
        turn_us: row.turn_us,
        ..Machine::default()
    }
}

/// Runs a row under GearV.
fn boot(row: &TargetTest, model: &str, gic: u32, tally: &mut Tally) -> Result<()> {
    let log = log(row, &format!("{model}-gicv{gic}"));
    conclude(start(row, model, gic, None, &log)?, row, tally)
}

/// Runs a row of the table under another Gear1, up to the first check that fails. A planted bug is
/// found by then, and a guest that goes on wrongly could keep the machine until the limit.
pub(super) fn boot_other(
    gear1: &Path,
    manifest: &str,
    model: &str,
    tally: &mut Tally,
) -> Result<()> {
    let row = target_tests().find(|row| row.manifest == manifest);
    let row = row.with_context(|| format!("the table has no {manifest}"))?;
    let mut session = start(row, model, 3, Some(gear1), &log(row, "other-gear1"))?;
    session.give_up_on(FAILURES);
    conclude(session, row, tally)
}

/// Runs a row on the first of its models, judges it, and returns what the terminal showed, for
/// parts that read figures from there. The log has a name of its own: the row's part may have run
/// before.
pub(super) fn run_row(row: &TargetTest, tally: &mut Tally) -> Result<String> {
    let model = row.models.first().context("a row names a model")?;
    let mut session = start(row, model, 3, None, &log(row, "supervision"))?;
    judge(&mut session, row, tally)
        .map_err(|error| anyhow!("{error:#}\n{}", build_images::last_words(&session)))?;
    Ok(session.transcript().to_owned())
}

/// Starts a row, with another Gear1 if one is given. The archive with manifest and guests is the
/// usual one: a bug or a check is in Gear1 alone.
fn start(
    row: &TargetTest,
    model: &str,
    gic: u32,
    gear1: Option<&Path>,
    log: &Path,
) -> Result<Session> {
    let manifest = format!("tests/manifests/{}.dts", row.manifest);
    let mut images = build_images::build(&workspace::root().join(manifest))?;
    if let Some(gear1) = gear1 {
        images.gear1 = gear1.to_owned();
    }
    // As much as the manifest's VMs need, which is what `cargo xtask run` gives them.
    let machine = Machine {
        memory_mib: run::memory_for(&images)?,
        ..machine(row, model, gic)
    };
    images.start(&Qemu::prepare(QEMU)?, &machine, log)
}

/// Returns where the console of a run goes. One manifest has several runs, each with a file.
fn log(row: &TargetTest, what: &str) -> PathBuf {
    workspace::output_dir().join(format!("{}/{what}.log", row.manifest))
}

/// Judges a running machine and, if it failed, shows its last words.
pub(super) fn conclude(mut session: Session, row: &TargetTest, tally: &mut Tally) -> Result<()> {
    judge(&mut session, row, tally)
        .map_err(|error| anyhow!("{error:#}\n{}", build_images::last_words(&session)))
}

/// Waits for the guests' end and judges their words. Verdicts are counted before the wait's own
/// failure is told: the check that failed is the reason why a guest did not come to its end.
fn judge(session: &mut Session, row: &TargetTest, tally: &mut Tally) -> Result<()> {
    let end = wait_for_done(session, row.guests, Duration::from_secs(row.timeout_s));
    let passed = count_verdicts(session.transcript(), tally);
    end?;
    for text in row.says {
        let name = format!("it says {text:?}");
        let said = session.transcript().contains(text);
        tally.check(&name, said.then_some(()).ok_or(anyhow!("it does not")));
    }
    let expected = row.passes;
    ensure!(
        passed >= expected,
        "only {passed} of {expected} checks passed"
    );
    Ok(())
}

/// Waits until `guests` guests are done. Whole lines are counted: the word may arrive in two
/// pieces.
pub(super) fn wait_for_done(session: &mut Session, guests: usize, timeout: Duration) -> Result<()> {
    session.wait_until("DONE of all guests", timeout, |transcript| {
        let lines = whole_lines(transcript);
        lines.iter().filter(|line| *line == DONE).count() >= guests
    })
}

/// Tallies the guests' verdicts and returns how many checks passed. Lines of Gear2 begin with
/// neither word.
pub(super) fn count_verdicts(transcript: &str, tally: &mut Tally) -> usize {
    let mut passed = 0;
    for line in whole_lines(transcript) {
        if line.starts_with("PASS ") {
            passed += 1;
        } else if let Some(failure) = line.strip_prefix("FAIL ") {
            tally.fail(failure);
        }
    }
    tally.pass(passed);
    passed
}

/// Returns the guests' lines without labels, each with its position.
///
/// The line of the VM in focus is shown byte by byte, so another VM's line may have torn it. A line
/// that does not begin like a report, and follows another VM's line, continues the VM's last one.
pub(super) fn whole_lines(transcript: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    let mut last_of: HashMap<&str, usize> = HashMap::new();
    let mut previous = "";
    for line in transcript.lines() {
        let (label, text) = label_and_text(line);
        let torn = !label.is_empty() && label != previous && !begins_a_line(text);
        match last_of.get(label) {
            // Behind its last line a guest has nothing to say: noise of a console does not change
            // it.
            Some(&last) if torn && lines[last] != DONE => lines[last] += text,
            _ => {
                last_of.insert(label, lines.len());
                lines.push(text.to_owned());
            }
        }
        previous = label;
    }
    lines
}

/// Tells whether a guest's report may begin like this, be it with part of a word.
fn begins_a_line(text: &str) -> bool {
    let mut words = ["PASS ", "FAIL ", "BENCH", "KILLS ", DONE].into_iter();
    !text.is_empty() && words.any(|word| text.starts_with(word) || word.starts_with(text))
}

/// Splits off the name in the `[name] ` that the console puts before the lines of one VM among
/// several.
fn label_and_text(line: &str) -> (&str, &str) {
    line.strip_prefix('[')
        .and_then(|rest| rest.split_once("] "))
        .unwrap_or(("", line))
}

#[cfg(test)]
mod tests;
