//! `cargo xtask test`: all tests, part by part, one after another.
//!
//! A part is a name and a function that tallies what passed and failed; `parts` lists them in the
//! order in which they run, cheap ones first. In a whole run, those that no busy host disturbs run
//! beside the others, in a second lane (`lane.rs`). A part that cannot run at all counts as one
//! failure. The last line is always `N passed, N failed`, and the exit code tells the same.

use std::io::Write as _;
use std::path::PathBuf;
use std::time::Instant;

use anyhow::Result;
use clap::Args;
use workbench::trace;

use crate::lane::{Claims, Lane, Ran};
use crate::part::{Part, Tally};
use crate::record::{self, Run};
use crate::{
    bench, board_watchdogs, boards, boot, channels, chaos, coverage, cpu_time, devices, dma,
    documents, examples, firmware, fuzz, gear2_registers, gearctl_sched, ghost, guests, halt, host,
    hostile, images, invalid, jitter, kvm, lane, layouts, linux, moves, mutants, own_devices,
    pci_functions, pci_linux, peripherals, planted, programs, realtime, refusals, running,
    schedules, smmu_v2, storage, supervision, sve, tour, tracing, userlands, watchdogs,
    worst_cases,
};

/// Number of the slowest parts listed at the end: a part that grows is seen before the whole run is
/// too long.
const SLOWEST: usize = 10;

/// The options of `test`.
#[derive(Args, Debug)]
pub(crate) struct Options {
    /// Run also what takes long
    #[arg(long)]
    slow: bool,
    /// Run only the parts whose names contain this
    filter: Option<String>,
    /// Only list the parts
    #[arg(long)]
    list: bool,
    /// Tell which lines of Gear1's runtime the chosen parts ran; a run of all parts always does
    #[arg(long)]
    coverage: bool,
    /// Run only the parts of the second lane, and write what they found to this file
    #[arg(long, hide = true)]
    host_lane: Option<PathBuf>,
}

/// Returns all parts. The order is that of a run of the first lane: what breaks most often and
/// costs least comes first, and a wrong image is found before a system that needs it boots.
fn parts() -> Vec<Part> {
    let mut parts = host::parts();
    parts.extend(documents::parts());
    parts.extend(images::parts());
    parts.extend(invalid::parts());
    parts.extend(examples::parts());
    parts.extend(boards::parts());
    parts.extend(layouts::parts());
    parts.extend(fuzz::parts());
    parts.extend(boot::parts());
    parts.extend(refusals::parts());
    parts.extend(running::parts());
    parts.extend(tour::parts());
    parts.extend(halt::parts());
    parts.extend(guests::parts());
    parts.extend(firmware::parts());
    parts.extend(schedules::parts());
    parts.extend(smmu_v2::parts());
    parts.extend(realtime::parts());
    parts.extend(chaos::parts());
    parts.extend(ghost::parts());
    parts.extend(gear2_registers::parts());
    parts.extend(userlands::parts());
    parts.extend(hostile::parts());
    parts.extend(gearctl_sched::parts());
    parts.extend(tracing::parts());
    parts.extend(moves::parts());
    parts.extend(pci_functions::parts());
    parts.extend(pci_linux::parts());
    parts.extend(storage::parts());
    parts.extend(programs::parts());
    parts.extend(devices::parts());
    parts.extend(dma::parts());
    parts.extend(own_devices::parts());
    parts.extend(peripherals::parts());
    parts.extend(channels::parts());
    parts.extend(planted::parts());
    parts.extend(mutants::parts());
    parts.extend(jitter::parts());
    parts.extend(linux::parts());
    parts.extend(sve::parts());
    parts.extend(watchdogs::parts());
    parts.extend(board_watchdogs::parts());
    parts.extend(supervision::parts());
    parts.extend(kvm::parts());
    parts.extend(bench::parts());
    parts.extend(worst_cases::parts());
    parts
}

impl Options {
    /// Runs the chosen parts and reports. The process ends here, with an exit code of its own: a
    /// failed test is no error of the command, which would print a chain of reasons.
    pub(crate) fn run(self) -> Result<()> {
        let filter = self.filter.as_deref().unwrap_or_default();
        let mut chosen = parts();
        chosen.retain(|part| part.name.contains(filter) && (self.slow || !part.slow));
        if self.list {
            chosen.iter().for_each(|part| println!("{}", part.name));
            return Ok(());
        }
        if let Some(file) = self.host_lane {
            trace::watch_beside();
            let ran = run_all(&lane::second(&chosen), Some(&Claims::of_run()))?;
            return lane::write(&file, &ran);
        }
        let total = self.run_chosen(chosen)?;
        println!();
        total.failures.iter().for_each(|why| println!("FAIL {why}"));
        println!("{}", total.summary());
        std::io::stdout().flush()?;
        std::process::exit(i32::from(!total.failures.is_empty()));
    }

    /// Runs parts, and keeps what a whole run found. Without a filter the run is a whole one. Only
    /// a whole run has a second lane: a few parts are done before another process has started, and
    /// their output is wanted while they run.
    fn run_chosen(&self, chosen: Vec<Part>) -> Result<Tally> {
        let is_whole = self.filter.as_deref().unwrap_or_default().is_empty();
        let is_watched = is_whole || self.coverage;
        let begin = Instant::now();
        if is_watched {
            trace::watch()?;
        }
        let beside = is_whole.then(|| Lane::start(self.slow)).transpose()?;
        let mut ran = match is_whole {
            true => run_all(&lane::first(&chosen), Some(&Claims::of_run()))?,
            false => run_all(&chosen.iter().enumerate().collect::<Vec<_>>(), None)?,
        };
        let mut total = Tally::default();
        match beside.map(Lane::finish) {
            Some(Ok(more)) => ran.splice(0..0, more).for_each(drop),
            Some(Err(error)) => total.fail(format!("{error:#}")),
            None => {}
        }
        if ran.is_empty() {
            let filter = self.filter.as_deref().unwrap_or_default();
            total.fail(format!("no part is named {filter:?}"));
        }
        if is_watched {
            let (coverage, tally) = covered(is_whole);
            total.add(tally);
            if is_whole {
                keep(&ran, coverage, begin)?;
            }
        }
        slowest(&mut ran);
        for Ran { name, tally, .. } in ran {
            total.add(tally.of(&name));
        }
        Ok(total)
    }
}

/// Writes down what a whole run found, for the page of the evidence. The commit is kept with it, as
/// a page of another commit's results would prove nothing.
fn keep(ran: &[Ran], coverage: String, begin: Instant) -> Result<()> {
    let parts = ran.iter().map(|Ran { name, tally, .. }| tally.result(name));
    let run = Run {
        parts: parts.collect(),
        coverage,
        seconds: begin.elapsed().as_secs(),
        commit: record::commit(),
    };
    run.write()
}

/// Runs parts one after another, but for those that the other lane has, and prints the result of
/// each. The last line tells how long the lane was busy.
fn run_all(chosen: &[(usize, &Part)], claims: Option<&Claims>) -> Result<Vec<Ran>> {
    let begin = Instant::now();
    let mut all = Vec::new();
    for (number, part) in chosen {
        if claims.map_or(Ok(true), |claims| claims.take(*number))? {
            all.push(run_one(part));
        }
    }
    if claims.is_some() {
        let cpu: f32 = all.iter().map(|ran| ran.cpu_seconds).sum();
        let seconds = begin.elapsed().as_secs();
        println!("end of the lane after {seconds} s, {cpu:.0} s of CPU time");
    }
    Ok(all)
}

/// Runs a part between two looks at the clock and at the CPU time. The time of the processes that
/// the part has started is in the second figure once they have ended.
fn run_one(part: &Part) -> Ran {
    println!("---- {}", part.name);
    let (start, used) = (Instant::now(), cpu_time::used());
    let ran = Ran {
        tally: part.run(),
        name: part.name.clone(),
        seconds: start.elapsed().as_secs_f32(),
        cpu_seconds: (cpu_time::used() - used).as_secs_f32(),
    };
    report(&ran);
    ran
}

/// Prints the parts that took longest. Their CPU time tells which of them would gain from less
/// work, and which only wait.
fn slowest(ran: &mut [Ran]) {
    println!("\nslowest parts, and their CPU time:");
    ran.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
    for ran in ran.iter().take(SLOWEST) {
        let (seconds, cpu) = (ran.seconds, ran.cpu_seconds);
        println!("{seconds:8.1} s {cpu:8.1} s  {}", ran.name);
    }
}

/// Says what ran of the runtime; a run of all parts has to have run enough of it.
fn covered(is_whole: bool) -> (String, Tally) {
    let mut tally = Tally::default();
    let (text, is_enough) =
        coverage::report().unwrap_or_else(|e| (format!("coverage: {e:#}"), false));
    println!("\n{text}");
    match is_enough || !is_whole {
        true => tally.pass(usize::from(is_whole)),
        false => tally.fail("not enough of the runtime ran"),
    }
    (text, tally)
}

/// Prints each failure of a part and then its result, in one line that a search for `FAIL` or `ok`
/// finds in the log of a run.
fn report(ran: &Ran) {
    for failure in &ran.tally.failures {
        println!("FAIL {failure}");
    }
    let verdict = if ran.tally.failures.is_empty() {
        "ok  "
    } else {
        "FAIL"
    };
    println!(
        "{verdict} {}: {} ({:.1} s, CPU {:.1} s)",
        ran.name,
        ran.tally.summary(),
        ran.seconds,
        ran.cpu_seconds
    );
}

#[cfg(test)]
mod tests;
