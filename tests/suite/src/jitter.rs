//! The jitter suite in short: real-time VMs against a native run of the same length, and what is
//! left of a run whose machine is killed.
//!
//! The whole suite is `cargo xtask jitter`. Figures are judged against a native run of this part,
//! because figures of another host or another QEMU say nothing here.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, ensure};
use clap::Parser;
use tests_measure::jitter::{self, Configuration, Load, Setup};
use tests_measure::report::Results;
use workbench::workspace;

use crate::part::{Part, Tally};

/// Periods of a millisecond. Two seconds of the guest's time for each.
const LOOPS: u64 = 2000;
/// The most that a figure of the real-time VM with pass-through may be, native being 1. An exit on
/// the way of an interrupt would add more.
const RATIO: f64 = 1.05;
const CONFIGURATIONS: [Configuration; 3] = [
    Configuration::Native,
    Configuration::Emulated,
    Configuration::PassThrough,
];

/// The short run has no guest of Gear2's; the slow part has it.
pub(super) fn parts() -> Vec<Part> {
    vec![
        Part::new("jitter in short, GICv3", |tally| short(3, tally)),
        Part::new("jitter in short, GICv2", |tally| short(2, tally)).slow(true),
        Part::new("jitter in a guest", in_guest).slow(true),
        Part::new("jitter with a killed configuration", one_is_killed),
    ]
}

/// Each configuration counts, then the ratios of all of them once.
fn short(gic: u32, tally: &mut Tally) -> Result<()> {
    let setup = Setup::new(10, "cortex-a57", gic, Load::Off, LOOPS)?;
    let faults = measure(&setup)?;
    tally.pass(CONFIGURATIONS.len());
    let ratios = if faults.is_empty() {
        Ok(())
    } else {
        Err(anyhow!(faults.join("; ")))
    };
    tally.check("ratios, exits", ratios);
    Ok(())
}

/// Measures in a guest that Gear2 schedules: its figures leave by an emulated serial port, which
/// still transmits when the guest powers off.
fn in_guest(tally: &mut Tally) -> Result<()> {
    let setup = Setup::new(10, "cortex-a57", 3, Load::Off, LOOPS)?;
    setup.measure(Configuration::Guest)?;
    tally.pass(1);
    Ok(())
}

/// Measures all configurations. Returns violations in the figures.
fn measure(setup: &Setup) -> Result<Vec<String>> {
    let mut results = setup.results()?;
    for configuration in CONFIGURATIONS {
        let measured = setup.measure(configuration)?;
        setup.add(&mut results, configuration, measured)?;
    }
    Ok(jitter::judge(&results, RATIO))
}

/// The command line of `jitter`. Parsed, so that the run is the user's own command.
#[derive(Parser)]
struct Line {
    #[command(flatten)]
    options: jitter::Options,
}

/// Number of periods that no other part measures, by which its machine is found. An odd number, so
/// that no other run on the host is killed.
const ODD_LOOPS: &str = "41";

/// Measures a guest and natively. The second machine is killed; the guest's figures are kept. A
/// long run that lost all figures by one failure would have to be made again.
fn one_is_killed(tally: &mut Tally) -> Result<()> {
    let json = workspace::output_dir().join("jitter-killed/jitter.json");
    let path = json.to_string_lossy();
    let words = ["jitter", "--loops", ODD_LOOPS, "--json", &path];
    let chosen = ["--configurations", "guest,native"];
    let line = Line::try_parse_from(words.into_iter().chain(chosen))?;
    let ended = AtomicBool::new(false);
    let outcome = std::thread::scope(|scope| {
        let killer = scope.spawn(|| kill_native(&ended));
        let outcome = line.options.run();
        ended.store(true, Ordering::Relaxed);
        killer.join().map(|killed| (outcome, killed))
    });
    let (outcome, killed) = outcome.map_err(|_| anyhow!("the killer panicked"))?;
    ensure!(killed?, "the native machine was not found");
    let error = outcome.err().context("a killed machine is no failure")?;
    let error = format!("{error:#}");
    tally.check("the failure names what was killed", {
        let named = error.contains("native was not measured: it ended (signal: 9");
        named.then_some(()).context(error)
    });
    tally.check("the other figures are kept", is_kept(&json));
    Ok(())
}

/// Checks that the guest's figures are in the JSON and on the page, and the reason why native's are
/// not. The page is what a person reads, and must not look complete.
fn is_kept(json: &Path) -> Result<()> {
    let results = Results::load(json)?;
    let guest = results
        .column("GearV guest")
        .context("the guest's figures")?;
    let count = guest.values().map(|figure| figure.count()).max();
    ensure!(count.map(|count| count.to_string()).as_deref() == Some(ODD_LOOPS));
    ensure!(results.column("native").is_none());
    let page = fs::read_to_string(json.with_extension("html"))?;
    for text in [
        "<td>GearV guest</td>",
        "native was not measured",
        "signal: 9",
    ] {
        ensure!(page.contains(text), "{text:?} is not on the page");
    }
    Ok(())
}

/// Kills this program's QEMU that measures natively. Returns whether one was found before `ended`.
/// Only a child of this process counts: another run of the tests may measure at the same time.
fn kill_native(ended: &AtomicBool) -> Result<bool> {
    let option = format!("jitter.loops={ODD_LOOPS} jitter.name=native");
    while !ended.load(Ordering::Relaxed) {
        for process in fs::read_dir("/proc")?.flatten() {
            let Ok(pid) = process.file_name().to_string_lossy().parse::<u32>() else {
                continue;
            };
            if is_own_with(pid, &option) {
                let status = std::process::Command::new("kill")
                    .args(["-KILL", &pid.to_string()])
                    .status()?;
                return Ok(status.success());
            }
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(false)
}

/// Returns whether a process was started by this one with an argument that holds a text. A process
/// may end between two reads; an empty text then matches nothing.
fn is_own_with(pid: u32, text: &str) -> bool {
    let read = |file: &str| fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
    let status = String::from_utf8_lossy(&read("status")).into_owned();
    let parent = status.lines().find_map(|line| line.strip_prefix("PPid:"));
    let parent = parent.and_then(|parent| parent.trim().parse().ok());
    parent == Some(std::process::id()) && String::from_utf8_lossy(&read("cmdline")).contains(text)
}
