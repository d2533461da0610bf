//! `cargo xtask test`: all tests, part by part, one after another.
//!
//! A part is a name and a function that tallies what passed and failed; `parts` lists them in
//! the order in which they run, cheap ones first. A part that cannot run at all counts as one
//! failure. The last line is always `N passed, N failed`, and the exit code tells the same.

mod bench;
mod boards;
mod boot;
pub(crate) mod chaos;
mod errata;
mod examples;
mod fuzz;
mod gdb;
mod gear2_registers;
mod ghost;
mod guests;
mod halt;
mod host;
mod hostile;
mod images;
mod invalid;
mod jitter;
mod kvm;
mod layouts;
mod linux;
mod mutants;
pub(crate) mod planted;
mod realtime;
mod refusals;
mod table;
mod userlands;

use std::io::Write as _;
use std::time::{Duration, Instant};

use anyhow::Result;
use clap::Args;

use crate::coverage;
use crate::evidence::{PartRun, Run};

/// How many of the slowest parts are listed at the end.
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
}

/// What a part found.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    passed: usize,
    skipped: usize,
    failures: Vec<String>,
}

impl Tally {
    /// Counts tests that passed.
    pub(crate) fn pass(&mut self, count: usize) {
        self.passed += count;
    }

    /// Counts tests that were not run.
    pub(crate) fn skip(&mut self, count: usize) {
        self.skipped += count;
    }

    /// Counts a test that failed, and says why.
    pub(crate) fn fail(&mut self, why: impl Into<String>) {
        self.failures.push(why.into());
    }

    /// Counts a test by its result.
    pub(crate) fn check(&mut self, name: &str, result: Result<()>) {
        match result {
            Ok(()) => self.pass(1),
            Err(error) => self.fail(format!("{name}: {error:#}")),
        }
    }

    fn add(&mut self, other: Tally) {
        self.passed += other.passed;
        self.skipped += other.skipped;
        self.failures.extend(other.failures);
    }

    fn result(&self, name: &str) -> PartRun {
        PartRun {
            name: name.to_owned(),
            passed: self.passed,
            failed: self.failures.len(),
            skipped: self.skipped,
        }
    }

    /// Returns the counts in words.
    fn summary(&self) -> String {
        let skipped = match self.skipped {
            0 => String::new(),
            count => format!(", {count} skipped"),
        };
        format!(
            "{} passed, {} failed{skipped}",
            self.passed,
            self.failures.len()
        )
    }
}

/// What a part does.
type Body = Box<dyn Fn(&mut Tally) -> Result<()>>;

/// One part of the test run.
pub(crate) struct Part {
    name: String,
    slow: bool,
    body: Body,
}

impl Part {
    /// Makes a part.
    pub(crate) fn new(
        name: impl Into<String>,
        body: impl Fn(&mut Tally) -> Result<()> + 'static,
    ) -> Part {
        Part {
            name: name.into(),
            slow: false,
            body: Box::new(body),
        }
    }

    /// Leaves the part to `--slow` if `slow`.
    pub(crate) fn slow(self, slow: bool) -> Part {
        Part { slow, ..self }
    }

    /// Runs it; whatever keeps it from running is a failure of its own.
    fn run(&self) -> Tally {
        let mut tally = Tally::default();
        if let Err(error) = (self.body)(&mut tally) {
            tally.fail(format!("{error:#}"));
        }
        tally
    }
}

fn parts() -> Vec<Part> {
    let mut parts = host::parts();
    parts.extend(images::parts());
    parts.extend(invalid::parts());
    parts.extend(examples::parts());
    parts.extend(boards::parts());
    parts.extend(layouts::parts());
    parts.extend(fuzz::parts());
    parts.extend(boot::parts());
    parts.extend(refusals::parts());
    parts.extend(halt::parts());
    parts.extend(guests::parts());
    parts.extend(realtime::parts());
    parts.extend(chaos::parts());
    parts.extend(ghost::parts());
    parts.extend(gear2_registers::parts());
    parts.extend(userlands::parts());
    parts.extend(hostile::parts());
    parts.extend(planted::parts());
    parts.extend(mutants::parts());
    parts.extend(jitter::parts());
    parts.extend(linux::parts());
    parts.extend(kvm::parts());
    parts.extend(bench::parts());
    parts
}

impl Options {
    /// Runs the chosen parts and reports.
    pub(crate) fn run(self) -> Result<()> {
        let filter = self.filter.unwrap_or_default();
        let is_whole = filter.is_empty();
        let mut chosen = parts();
        chosen.retain(|part| part.name.contains(&filter) && (self.slow || !part.slow));
        if self.list {
            chosen.iter().for_each(|part| println!("{}", part.name));
            return Ok(());
        }
        if is_whole || self.coverage {
            coverage::watch()?;
        }
        let mut total = Tally::default();
        let mut times = Vec::new();
        let mut run = Run::default();
        for part in &chosen {
            println!("---- {}", part.name);
            let start = Instant::now();
            let tally = part.run();
            times.push((start.elapsed(), part.name.as_str()));
            report(part, &tally, start.elapsed());
            run.parts.push(tally.result(&part.name));
            total.add(tally);
        }
        if chosen.is_empty() {
            total.fail(format!("no part is named {filter:?}"));
        }
        if is_whole || self.coverage {
            let (text, tally) = covered(is_whole);
            run.coverage = text;
            total.add(tally);
        }
        if is_whole {
            run.write()?;
        }
        println!("\nslowest parts:");
        times.sort_unstable_by(|a, b| b.cmp(a));
        for (time, name) in times.iter().take(SLOWEST) {
            println!("{:8.1} s  {name}", time.as_secs_f32());
        }
        println!("\n{}", total.summary());
        std::io::stdout().flush()?;
        std::process::exit(i32::from(!total.failures.is_empty()));
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

fn report(part: &Part, tally: &Tally, time: Duration) {
    for failure in &tally.failures {
        println!("FAIL {failure}");
    }
    let verdict = if tally.failures.is_empty() {
        "ok  "
    } else {
        "FAIL"
    };
    println!(
        "{verdict} {}: {} ({:.1} s)",
        part.name,
        tally.summary(),
        time.as_secs_f32()
    );
}

#[cfg(test)]
mod tests;
