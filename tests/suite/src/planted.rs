//! Shows that the tests find what they look for: each bug planted here into a copy of the workspace
//! makes the test fail that cites the requirement.
//!
//! A bug is a replacement of text in one file. Those whose test runs on the host are found by
//! `cargo test`; the others go into an image of Gear1, on which a part of the tests is run. What a
//! bug in an image shows as is a failed check, a halt, or a guest that never ends. A build that
//! fails finds nothing. `cargo xtask test` runs a sample, `--slow` all of them and the score: how
//! many requirements have a bug that a test which cites them found. Finds are kept as long as
//! neither bug nor code nor test change; `GEARV_KEPT=1` leaves those bugs out.
//!
//! Each row has a comment: which property breaks, why a review or an ordinary run passes over the
//! bug, and by which arrangement the test sees it. A bug that every test would find shows nothing,
//! so most rows weaken a check where taking it out would be noticed at once.

mod boot;
mod bug;
mod compile;
mod cpu;
mod device_model;
mod dma;
mod doorbells;
mod finder;
mod fuzz;
mod gear2;
mod gic;
mod list;
mod manifest;
mod memory;
mod realtime;
mod runtime;
mod score;
mod time;

use std::{env, fs};

use anyhow::{Result, bail};

use crate::copy;
use crate::part::{Part, Tally};
use bug::Bug;
use list::bugs;
pub(crate) use score::Score;

/// Bugs that every run of the tests plants: they show that the machinery plants and finds. All are
/// found by quick tests of one package, which is built for them once.
const SAMPLE: [&str; 3] = [
    "EL2's code is writable",
    "an SGI reaches every vCPU",
    "a message goes in another's name",
];

/// Environment variable with which a run continues an earlier one: bugs with a kept result are left
/// out, and the tests without a bug are not repeated.
const KEPT: &str = "GEARV_KEPT";

pub(super) fn parts() -> Vec<Part> {
    let parts = bugs().map(|bug| {
        let is_slow = !bug.is_in_sample();
        let part = |place| {
            let name = format!("planted bug {place}: {}", bug.name);
            Part::new(name, move |tally| find(bug, tally)).slow(is_slow)
        };
        match bug.finder.is_on_host() {
            // A part that compiles and starts no machine belongs into the second lane.
            true => part("on the host").beside(),
            false => part("in an image"),
        }
    });
    let mut parts: Vec<Part> = parts.collect();
    parts.push(Part::new("planted bugs compile", compile::all).slow(true));
    parts.push(Part::new("planted bugs: the score", score::tell).slow(true));
    parts
}

/// Plants a bug, sees whether it is found, and takes it out.
fn find(bug: &'static Bug, tally: &mut Tally) -> Result<()> {
    let goes_on = env::var_os(KEPT).is_some();
    if goes_on && Score::read().is_found(bug)? {
        tally.skip(1);
        return Ok(());
    }
    // Noted before the search: a run that is cut off must not leave an older find standing.
    score::note(bug, false)?;
    let copy = copy::fresh(bug.finder.copy())?;
    if !goes_on {
        bug.finder.passes_without(bug, &copy)?;
    }
    let (path, good) = bug.change.plant(bug.name, &copy)?;
    let found = bug.finder.look(bug, &copy);
    // Before the result is looked at: the next bug begins with a copy that has none.
    fs::write(&path, good)?;
    let Some(found) = found? else {
        bail!("{} does not find it", bug.test);
    };
    println!("found: {found}");
    score::note(bug, true)?;
    tally.pass(1);
    Ok(())
}

/// Returns the names of all places.
#[cfg(test)]
pub(crate) fn places() -> Vec<String> {
    bugs().map(|bug| bug.name.to_owned()).collect()
}

#[cfg(test)]
mod tests;
