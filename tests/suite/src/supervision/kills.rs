//! A thousand kills of guests, of real-time VMs and of Gear2, beside a real-time VM that measures
//! its timer: what they leave behind, and what that VM notices.
//!
//! One restart that leaks a page, a vCPU or a timer is invisible. A thousand of them end the
//! machine, or show in the list of VMs.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use workbench::build_images;
use workbench::expect::Session;
use workbench::qemu::{Machine, Qemu};
use workbench::workspace;
use xtask::smoke::ESCAPE;

use crate::guests::{count_verdicts, whole_lines};
use crate::part::Tally;
use crate::realtime::{Serial, images, undisturbed, windows};

use super::Row;

/// Longest time on a slow host. Hours, since a kill waits for a watchdog and `icount` is slow.
const PATIENCE: Duration = Duration::from_secs(7200);
/// Kills of each layer, as the manifest says.
pub(super) const KILLS: u64 = 1000;
/// Checks of the guest that sees to it. A guest that ends early says less.
const CHECKS: usize = 2 + 1 + 1 + 2 * 2 + 1;
/// `period-us` of the VM that measures, which is the deadline of each of its interrupts. An
/// interrupt that is later than its period runs into the next.
const DEADLINE_NS: u64 = 100_000;
/// Interrupts of a window.
const OF_A_WINDOW: u64 = 100;
/// Longest time from a sign of life to the end that its absence has. The limit is for signs that
/// are sought by a timer; ends that Gear1 sees are told sooner.
const FOUND_US: u64 = 20_000;

/// Kills guests, real-time VMs and Gear2. QEMU runs the five CPUs in turns, and short ones keep
/// their times near each other.
pub(super) fn run(tally: &mut Tally) -> Result<Vec<Row>> {
    let directory = workspace::output_dir().join("kills");
    let serial = Serial::new(&directory)?;
    let machine = Machine {
        cpu: "cortex-a57,cntfrq=1000000000".into(),
        cpus: 5,
        icount: true,
        turn_us: Some(20),
        second_serial: Some(serial.file.clone()),
        ..Machine::default()
    };
    let log = directory.join("console.log");
    let mut session = images("kills", None)?.start(&Qemu::prepare(10)?, &machine, &log)?;
    let ended = live_through(&mut session, tally);
    let rows = ended.with_context(|| build_images::last_words(&session))?;
    missed_none(&serial, tally)?;
    Ok(rows)
}

/// Lists are compared at rest, before the first kill and after the last.
fn live_through(session: &mut Session, tally: &mut Tally) -> Result<Vec<Row>> {
    session.expect("KILLS quiet", PATIENCE)?;
    let before = list(session)?;
    session.expect("KILLS begin", PATIENCE)?;
    session.expect("KILLS end", PATIENCE)?;
    let after = list(session)?;
    ensure!(
        before == after,
        "VMs and vCPUs before: {before:?}; after: {after:?}"
    );
    let said = without_colours(session.transcript());
    let passed = count_verdicts(&said, tally);
    ensure!(passed >= CHECKS, "only {passed} of {CHECKS} checks passed");
    let lines = whole_lines(&said);
    let kills: Vec<Kills> = lines.iter().filter_map(|line| Kills::of(line)).collect();
    for layer in ["guest", "real-time VM", "Gear2"] {
        let of_layer = kills.iter().filter(|kills| kills.row.layer == layer);
        let count: u64 = of_layer.map(|kills| kills.count).sum();
        // One more of each VM sees whether somebody watches over it still.
        ensure!(
            (KILLS..=KILLS + 1).contains(&count),
            "{count} kills of {layer}"
        );
        tally.pass(1);
    }
    let late = kills
        .iter()
        .find(|kills| kills.row.found_us > Some(FOUND_US));
    ensure!(late.is_none(), "found too late: {late:?}");
    tally.pass(1);
    Ok(kills.into_iter().map(|kills| kills.row).collect())
}

/// Removes the colours of labels, which a terminal that types gets. Verdicts are found at the
/// beginning of a line.
fn without_colours(transcript: &str) -> String {
    let mut said = transcript.replace("\x1b[0m", "");
    for colour in 1..=6 {
        said = said.replace(&format!("\x1b[3{colour}m"), "");
    }
    said
}

/// A line of the guest.
#[derive(Debug)]
struct Kills {
    row: Row,
    count: u64,
}

// The layer's and the fault's names have dashes for blanks, so that a line splits into words.
impl Kills {
    fn of(line: &str) -> Option<Self> {
        let words: Vec<&str> = line.strip_prefix("KILLS ")?.split(' ').collect();
        let [layer, fault, count, _least, most, served] = words[..] else {
            return None;
        };
        let row = Row {
            layer: layer.replace('-', " ").replace("real time", "real-time"),
            fault: fault.replace('-', " "),
            found_us: most.parse().ok(),
            served_us: served.parse().ok(),
        };
        Some(Self {
            row,
            count: count.parse().ok()?,
        })
    }
}

/// Returns the VMs with their states, and how many of their vCPUs are on, as Gear2 shows them.
/// Lines of the same kind may stand in the transcript from the earlier list, so only what is new
/// counts.
fn list(session: &mut Session) -> Result<Vec<String>> {
    session.receive_all()?;
    let known = session.transcript().len();
    session.send(&format!("{ESCAPE}l"))?;
    session.wait_until("the list of VMs", Duration::from_secs(300), |transcript| {
        let said = transcript.get(known..).unwrap_or_default();
        // The last VM's line, to its end: the console brings a line in pieces.
        said.split_inclusive('\n')
            .any(|line| line.starts_with("gear2: 4 rt-told ") && line.ends_with('\n'))
    })?;
    let said = session.transcript().get(known..).unwrap_or_default();
    let lines = said.lines().filter_map(|line| line.strip_prefix("gear2: "));
    let vms = lines.filter(|line| line.starts_with(|first: char| first.is_ascii_digit()));
    Ok(vms.filter_map(state).collect())
}

/// Returns a VM's number, name and state, and the number of its vCPUs that are on. Times and counts
/// of exits differ from list to list, and are left out.
fn state(line: &str) -> Option<String> {
    let (vm, vcpus) = line.split_once(',')?;
    let on = vcpus.matches("on CPU").count() - vcpus.matches(": off").count();
    let given_up = if line.contains("given up") {
        ", given up"
    } else {
        ""
    };
    Some(format!("{vm}, {on} vCPUs{given_up}"))
}

/// Checks that the real-time VM met every deadline, left its CPU for nothing, and took no interrupt
/// of anybody else's. Kills of others must not show on the CPU of a real-time VM.
fn missed_none(serial: &Serial, tally: &mut Tally) -> Result<()> {
    let windows = windows(&serial.text()?)?;
    undisturbed(&windows)?;
    let worst = windows.iter().map(|window| window.worst).max();
    let worst = worst.context("no window")?;
    let deadlines = windows.len() as u64 * OF_A_WINDOW;
    let figure =
        format!("{deadlines} deadlines of a real-time VM beside it, worst latency {worst} ns");
    println!("{figure}");
    tally.figures.push(figure);
    ensure!(
        worst < DEADLINE_NS,
        "a deadline was missed by {} ns",
        worst - DEADLINE_NS
    );
    tally.pass(1);
    Ok(())
}
