//! Supervision on the target: guests, real-time VMs and Gear2 fail in each way, and the time until
//! that is found, and until they serve again, is measured.
//!
//! Times are those of the counter under `-icount`, on which the host's load has no influence.
//!
//! Requirements: G1-RUN-012.
//!
//! A table in docs/supervision.md has the times. A detector that works and is slow fails its
//! purpose, so the times are judged by the guests, who know their watchdogs.

use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use workbench::expect::Session;
use workbench::qemu::{Machine, Qemu};
use workbench::{build_images, workspace};
use xtask::smoke::ESCAPE;

use crate::board_watchdogs;
use crate::guests::{self, count_verdicts, whole_lines};
use crate::part::{Part, Tally};
use crate::table::target_tests;

mod kills;

/// Time of the host, which nothing is measured by.
const PATIENCE: Duration = Duration::from_secs(300);
/// Checks of the guest that fails: two of each failure, one of each life, and one of the first; and
/// that of the guest that makes progress. A guest that dies early prints fewer lines, none of which
/// says FAIL.
const CHECKS: usize = 2 * 6 + 7 + 1 + 1;
/// Register in which the guest marks each life's failure, and the mark. The last words must show
/// the registers of the failure itself, and not those of the next life.
const MARK: (&str, u64) = ("X28", 0x5eed_0000);

/// A thousand kills take long, and find only what rarely happens.
pub(super) fn parts() -> Vec<Part> {
    vec![
        Part::new("supervision of a guest up to the power-off", power_off),
        Part::new("supervision shows last words", last_words),
        Part::new(
            "supervision shows a real-time VM's last words",
            real_time_words,
        ),
        Part::new("supervision of all layers, with times", all_layers).slow(true),
        Part::new(
            "supervision of VMs and Gear2 through a thousand kills of each",
            vm_kills,
        )
        .slow(true),
        Part::new("supervision of Gear1 through a thousand kills", gear1_kills).slow(true),
    ]
}

/// A failure, and how long it took until it was found and until there was service again; the
/// latter is not known of all. Times are the guests' own, in microseconds of the counter.
#[derive(Debug)]
struct Row {
    /// Layer of the failure, in the words of docs/supervision.md.
    layer: String,
    /// How the layer fails.
    fault: String,
    found_us: Option<u64>,
    served_us: Option<u64>,
}

/// Starts the guest that fails in each way, under another Gear1 if one is given. QEMU runs CPUs in
/// turns; short ones keep a time that is measured across two CPUs right.
fn start(name: &str, gear1: Option<PathBuf>) -> Result<Session> {
    start_manifest("supervision", name, gear1)
}

fn start_manifest(manifest: &str, name: &str, gear1: Option<PathBuf>) -> Result<Session> {
    let manifest = workspace::root().join(format!("tests/manifests/{manifest}.dts"));
    let mut images = build_images::build(&manifest)?;
    if let Some(gear1) = gear1 {
        images.gear1 = gear1;
    }
    let machine = Machine {
        icount: true,
        turn_us: Some(10),
        cpu: "cortex-a57,cntfrq=1000000000".into(),
        ..Machine::default()
    };
    let log = workspace::output_dir().join(format!("supervision/{name}.log"));
    images.start(&Qemu::prepare(10)?, &machine, &log)
}

/// The guest fails more often than it is started again, which powers the machine off. Figures go to
/// the page of evidence by the part that is in each run.
fn power_off(tally: &mut Tally) -> Result<()> {
    let rows = guest_rows(tally)?;
    tally.figures.extend(rows.iter().map(figure));
    Ok(())
}

/// Runs the guest up to the power-off, and returns what it measured. The terminal must name each
/// cause in words: a person who sees a VM restart wants to know why.
fn guest_rows(tally: &mut Tally) -> Result<Vec<Row>> {
    let mut session = start("power-off", None)?;
    let ended = session.expect_end(PATIENCE);
    let passed = count_verdicts(session.transcript(), tally);
    ended.with_context(|| build_images::last_words(&session))?;
    ensure!(passed >= CHECKS, "only {passed} of {CHECKS} checks passed");
    for said in [
        "gear2: main vCPU 0 cannot go on: ",
        "gear2: main hangs: it does not refresh its watchdog",
        "gear2: main resets itself",
        "gear2: busy hangs: its vCPUs run, and do nothing that shows",
        "gear2: busy is given up: it was restarted 1 times already",
        "gear2: main is given up: it was restarted 6 times already",
        "gear2: power off",
    ] {
        ensure!(session.has(said), "the terminal does not show {said:?}");
        tally.pass(1);
    }
    // A detector of missing progress that fires at a busy guest would be worse than none.
    ensure!(!session.has("lively hangs"), "a guest with exits hangs");
    tally.pass(1);
    let lines = whole_lines(session.transcript());
    let rows: Vec<Row> = lines.iter().filter_map(|line| guest_row(line)).collect();
    ensure!(rows.len() == 6, "{} failures were measured", rows.len());
    Ok(rows)
}

/// Reads what the guest says of a failure. A line that was broken by another VM's output does not
/// parse, and the count of rows then fails.
fn guest_row(line: &str) -> Option<Row> {
    let mut words = line.strip_prefix("SUPERVISION ")?.split(' ');
    Some(Row {
        layer: words.next()?.into(),
        fault: words.next()?.into(),
        found_us: words.next()?.parse().ok(),
        served_us: words.next()?.parse().ok(),
    })
}

/// The key shows the registers of the life that has ended last, whichever that is by then. Lives go
/// on while the key is typed, so the life that is shown is not known in advance.
fn last_words(tally: &mut Tally) -> Result<()> {
    last_words_of(None, tally)
}

/// Does so under another Gear1. The mark in X28 ties the registers to the life that the heading
/// names.
pub(super) fn last_words_of(gear1: Option<PathBuf>, tally: &mut Tally) -> Result<()> {
    let mut session = start("last-words", gear1)?;
    session.expect("SUPERVISION guest hang", PATIENCE)?;
    session.send(&format!("{ESCAPE}0{ESCAPE}w"))?;
    session.expect("main vCPU 0: PC 0x", PATIENCE)?;
    session.expect("X30 0x", PATIENCE)?;
    // The second vCPU was on in the first life only.
    session.expect("main vCPU 1: ", PATIENCE)?;
    let second = session.expect("\n", PATIENCE)?;
    ensure!(
        second.starts_with("not known"),
        "vCPU 1 of later lives: {second}"
    );
    let text = session.transcript();
    let head = text
        .lines()
        .find_map(|line| line.split_once(" in its life "));
    let (cause, rest) = head.context("the life is not shown")?;
    let (life, _) = rest.split_once(',').context("the life has no number")?;
    let life: u64 = life.parse().context("the life has no number")?;
    let (_, registers) = text
        .split_once("main vCPU 0: PC 0x")
        .context("the registers are shown")?;
    // Of a reset and a storm, calls of PSCI are in the registers.
    let hung = cause.ends_with("main hung") || cause.ends_with("main could not go on");
    ensure!(life == 5 || life == 6 || hung, "life {life}: {cause}");
    let mark = format!("{} {:#x} ", MARK.0, MARK.1 + life);
    let is_marked = registers.contains(&mark);
    ensure!(life > 4 || is_marked, "{mark} is not in {registers}");
    tally.pass(3);
    Ok(())
}

/// The CPU of a real-time VM has no Gear2, so what its vCPU leaves is copied on the way from the
/// guest. X28 is one of the registers that no exit of that way stores by itself.
fn real_time_words(tally: &mut Tally) -> Result<()> {
    let mut session = start_manifest("last-words-rt", "last-words-rt", None)?;
    session.expect("rt turned itself off", PATIENCE)?;
    session.send(&format!("{ESCAPE}0{ESCAPE}w"))?;
    session.expect("rt vCPU 0: PC 0x", PATIENCE)?;
    session.expect("X30 0x", PATIENCE)?;
    let text = session.transcript();
    let registers = text
        .split_once("rt vCPU 0: PC 0x")
        .map_or("", |(_, after)| after);
    let mark = format!("{} {:#x} ", MARK.0, MARK.1);
    ensure!(registers.contains(&mark), "{mark} is not in {registers}");
    tally.pass(1);
    Ok(())
}

/// Kills guests, real-time VMs and Gear2. Rows of a thousand kills have the worst time of all.
fn vm_kills(tally: &mut Tally) -> Result<()> {
    let rows = kills::run(tally)?;
    tally.figures.extend(rows.iter().map(figure));
    write_table("kills", &rows)
}

/// Kills Gear1. Times of the board's watchdogs are whole seconds here.
fn gear1_kills(tally: &mut Tally) -> Result<()> {
    let kills = board_watchdogs::kills::run(tally)?;
    let rows: Vec<Row> = kills
        .iter()
        .map(|(fault, kills)| Row {
            layer: format!("Gear1, {} times", kills.count),
            fault: (*fault).into(),
            found_us: Some(kills.found_s * 1_000_000),
            served_us: Some(kills.served_s * 1_000_000),
        })
        .collect();
    tally.figures.extend(rows.iter().map(figure));
    write_table("gear1-kills", &rows)
}

/// Measures all layers, and writes the table. One run for the whole table, so that its rows are of
/// one build.
fn all_layers(tally: &mut Tally) -> Result<()> {
    let mut rows = guest_rows(tally)?;
    // Rows of the table of guests bring machines of their own.
    rows.extend(rows_of("heartbeat", tally, heartbeat_row)?);
    rows.extend(rows_of("gear2-fails", tally, gear2_row)?);
    tally.figures.extend(rows.iter().map(figure));
    write_table("table", &rows)
}

/// Writes the table of failures below this name, and shows it. The form is that of
/// docs/supervision.md, for pasting.
fn write_table(name: &str, rows: &[Row]) -> Result<()> {
    let mut table = String::from(
        "| layer | fault | found after, us | service again after, us |\n|---|---|---|---|\n",
    );
    for row in rows {
        let cell = |us: Option<u64>| us.map_or("-".to_owned(), |us| us.to_string());
        let (found, served) = (cell(row.found_us), cell(row.served_us));
        let (layer, fault) = (&row.layer, &row.fault);
        writeln!(table, "| {layer} | {fault} | {found} | {served} |")?;
    }
    let folder = workspace::output_dir().join("supervision");
    fs::create_dir_all(&folder).with_context(|| format!("{}", folder.display()))?;
    let file = folder.join(format!("{name}.md"));
    fs::write(&file, &table).with_context(|| format!("{}", file.display()))?;
    println!("{table}");
    Ok(())
}

/// Runs a row of the table of guests, and returns what its guests say of failures. The rows of the
/// table of guests measure on the way what they check.
fn rows_of(
    manifest: &str,
    tally: &mut Tally,
    row: impl Fn(&str) -> Option<Row>,
) -> Result<Vec<Row>> {
    let test = target_tests().find(|test| test.manifest == manifest);
    let transcript = guests::run_row(test.context("the manifest is in the table")?, tally)?;
    let rows: Vec<Row> = whole_lines(&transcript)
        .iter()
        .filter_map(|line| row(line))
        .collect();
    ensure!(!rows.is_empty(), "{manifest} measures nothing");
    Ok(rows)
}

/// Reads what a real-time VM says: `HEARTBEAT life 1: told after 2100 us, runs again after ...`.
/// The order of faults is the order of the guest's lives.
fn heartbeat_row(line: &str) -> Option<Row> {
    let (life, rest) = line.strip_prefix("HEARTBEAT life ")?.split_once(": ")?;
    let faults = [
        "hang",
        "silence",
        "no heartbeat at all",
        "hang, first vCPU off",
    ];
    let mut numbers = rest.split(' ').filter_map(|word| word.parse().ok());
    Some(Row {
        layer: "real-time VM".into(),
        fault: (*faults.get(life.parse::<usize>().ok()?.checked_sub(1)?)?).into(),
        found_us: numbers.next(),
        served_us: numbers.next(),
    })
}

/// Reads what the guest that makes Gear2 fail says: `hangs: 100123 us`. A restart of Gear2 may cost
/// the line feed before that. The time until it is found is not in the guest's reach: a guest sees
/// only that answers come again.
fn gear2_row(line: &str) -> Option<Row> {
    let (text, us) = line.strip_suffix(" us")?.split_once(": ")?;
    let faults = [
        ("hangs", "hang"),
        ("touches-nothing", "access to nothing"),
        ("writes-its-code", "store to its code"),
        ("executes-nothing", "undefined instruction"),
        ("panics", "panic"),
    ];
    let mut faults = faults.iter();
    let (_, fault) = faults.find(|(word, _)| text.ends_with(word))?;
    Some(Row {
        layer: "Gear2".into(),
        fault: (*fault).into(),
        found_us: None,
        served_us: Some(us.parse().ok()?),
    })
}

fn figure(row: &Row) -> String {
    let us = |us: Option<u64>| us.map_or("-".to_owned(), |us| format!("{us} us"));
    format!(
        "{}, {}: found after {}, service again after {}",
        row.layer,
        row.fault,
        us(row.found_us),
        us(row.served_us)
    )
}
