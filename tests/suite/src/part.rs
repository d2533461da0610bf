//! A part of the test run, and its result.
//!
//! A part has no test harness of Rust's: it boots machines, takes minutes, and finds many results
//! in what they print. It tallies them one by one, so that a failure leaves the other results
//! valid.

use std::env;

use anyhow::Result;
use serde::{Deserialize, Serialize};

use crate::record::PartRun;

/// Result of a part. Results can be written to a file, because the second lane is another process.
#[derive(Debug, Default, Deserialize, Serialize)]
pub(crate) struct Tally {
    /// Number of tests that passed.
    pub(crate) passed: usize,
    /// Number of tests that were not run.
    pub(crate) skipped: usize,
    /// Reason for which each of the other tests failed.
    pub(crate) failures: Vec<String>,
    /// Figures that tests report for the page of evidence.
    pub(crate) figures: Vec<String>,
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

    /// Counts a test that failed, and says why. A failure has a reason and no number alone: the
    /// last lines of a run, all that CI keeps in view, must say what to look at.
    pub(crate) fn fail(&mut self, why: impl Into<String>) {
        self.failures.push(why.into());
    }

    /// Counts a test by its result. The chain of causes is one line, as the list of failures has
    /// one line for each.
    pub(crate) fn check(&mut self, name: &str, result: Result<()>) {
        match result {
            Ok(()) => self.pass(1),
            Err(error) => self.fail(format!("{name}: {error:#}")),
        }
    }

    /// Takes over what another part found.
    pub(crate) fn add(&mut self, other: Tally) {
        self.passed += other.passed;
        self.skipped += other.skipped;
        self.failures.extend(other.failures);
        self.figures.extend(other.figures);
    }

    /// Prefixes the results with the part's name. Further lines of a reason, such as the end of a
    /// console, were printed where the part ran, and would drown the list at the end.
    pub(crate) fn of(mut self, part: &str) -> Tally {
        for why in &mut self.failures {
            *why = format!("{part}: {}", why.lines().next().unwrap_or_default());
        }
        self
    }

    /// Returns the counts for the page of evidence.
    pub(crate) fn result(&self, name: &str) -> PartRun {
        PartRun {
            name: name.to_owned(),
            passed: self.passed,
            failed: self.failures.len(),
            skipped: self.skipped,
            figures: self.figures.clone(),
        }
    }

    /// Returns the counts in words.
    pub(crate) fn summary(&self) -> String {
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

/// Function that runs a part. An error is a part that could not go on; what it tallied until then
/// still counts.
type Body = Box<dyn Fn(&mut Tally) -> Result<()>>;

/// The lanes of a whole run that may run a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// The first lane, whose machines have the host's attention: Linux judges a machine by its
    /// clock, and reports stalls of a host that was busy elsewhere.
    First,
    /// The second lane alone.
    Second,
    /// The lane that comes to the part first. Such parts even out the lengths of the lanes, which
    /// nobody could keep equal by hand.
    Either,
}

/// A part of the test run.
pub(crate) struct Part {
    pub(crate) name: String,
    pub(crate) slow: bool,
    pub(crate) place: Place,
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
            place: Place::First,
            body: Box::new(body),
        }
    }

    /// Leaves the part to `--slow` if `slow`. A run of all parts has 30 minutes on two CPUs, so a
    /// sweep over models, seeds or times is slow, and one of its points is not.
    pub(crate) fn slow(self, slow: bool) -> Part {
        Part { slow, ..self }
    }

    /// Lets the part run in the second lane: its limits of time are wide or count instructions, and
    /// what it builds and logs has folders of its own.
    pub(crate) fn beside(self) -> Part {
        Part {
            place: Place::Second,
            ..self
        }
    }

    /// Lets the part run in the lane that comes to it first: its limits of time are as wide, and no
    /// other part builds its manifest or writes its files.
    pub(crate) fn either(self) -> Part {
        Part {
            place: Place::Either,
            ..self
        }
    }

    /// Runs the part; an error that keeps it from running counts as a failure.
    pub(crate) fn run(&self) -> Tally {
        let mut tally = Tally::default();
        if let Err(error) = (self.body)(&mut tally) {
            tally.fail(format!("{error:#}"));
        }
        tally
    }
}

/// Returns how often a long part does its work: what the environment says, or as usual.
pub(crate) fn count_of(variable: &str, usual: u32) -> u32 {
    let said = env::var(variable).ok();
    said.and_then(|said| said.parse().ok()).unwrap_or(usual)
}
