//! Results for planted bugs, kept from run to run as long as neither bug nor code nor test change.
//! `cargo xtask evidence` writes them into the repository.
//!
//! All bugs together take long, so a find is kept with a hash of what it depends on. The score is
//! of finds that hold for the present sources alone: a change of a test or of the code around a bug
//! takes its find away, until the bug is looked for again.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};
use workbench::{cache, workspace};

use super::bug::Bug;
use super::list::bugs;
use crate::change;
use crate::part::Tally;
use crate::record;
use crate::requirements::Requirements;

/// Requirements that no bug is planted for, and why. A unit test wants each requirement either here
/// or broken by a bug, and none in both: a reason that no longer holds has to go.
pub(super) const WITHOUT: [(&str, &str); 6] = [
    (
        "G1-BOOT-013",
        "its test, part \"boot with too small a stack\", itself makes the stack too small",
    ),
    ("G1-CPU-006", "by review: QEMU cannot mix models"),
    (
        "G1-RT-001",
        "parts \"protections of real-time VMs, one out\" take them out",
    ),
    (
        "G1-RT-008",
        "parts \"protections of real-time VMs, one out\" take them out",
    ),
    (
        "G1-RUN-001",
        "of the linked image: a panic does not link, the unit tests of audit find the rest in code of theirs",
    ),
    (
        "G1-RUN-011",
        "part \"worst cases\" counts instructions against a limit and a baseline",
    ),
];

/// Outcome of each planted bug, by its name.
#[derive(Debug, Default, Deserialize, Serialize)]
pub(crate) struct Score {
    outcomes: BTreeMap<String, Outcome>,
    /// Outcomes that the repository keeps, for a tree in which nothing was looked for yet. They are
    /// not written with the others: a run's own file has what this tree has found.
    #[serde(skip)]
    kept: BTreeMap<String, Outcome>,
}

#[derive(Debug, Deserialize, Serialize)]
struct Outcome {
    is_found: bool,
    /// Hash of the change, of its file with the bug in it, and of the test.
    hash: String,
}

/// Returns the file of this tree's own outcomes.
fn path() -> PathBuf {
    workspace::output_dir().join("planted.json")
}

/// Returns the file of the outcomes that the repository keeps.
fn kept() -> PathBuf {
    workspace::root().join("docs/evidence/planted.json")
}

/// Returns the hash of what a find depends on: the code in which the bug is, the bug, and the test.
/// Comments do not count: a find holds as long as the code is what it was. What the test uses from
/// other files does not count either, as nearly every commit would take all finds away.
fn hash(bug: &Bug) -> Result<String> {
    let code = |file: &str| -> Result<String> {
        let text = fs::read_to_string(workspace::root().join(file));
        Ok(change::code(&text.with_context(|| file.to_owned())?))
    };
    let file = change::file(bug.name)?;
    let good = fs::read_to_string(workspace::root().join(file));
    let planted = bug
        .change
        .make(bug.name, &good.with_context(|| file.to_owned())?)?;
    // Both texts of the file, so that the hash has the place of the change.
    let parts = [code(file)?, change::code(&planted), code(bug.test)?];
    cache::sha256_of(parts.concat().as_bytes())
}

/// Notes whether a bug was found. The file is read and written as a whole, so the lock is held over
/// both.
pub(super) fn note(bug: &Bug, is_found: bool) -> Result<()> {
    let directory = workspace::output_dir();
    fs::create_dir_all(&directory)?;
    // Bugs on the host are looked for in another process.
    let lock = fs::File::create(directory.join("planted.lock"))?;
    lock.lock().context("planted.lock")?;
    let mut score = Score::read();
    let hash = hash(bug)?;
    score
        .outcomes
        .insert(bug.name.to_owned(), Outcome { is_found, hash });
    fs::write(path(), serde_json::to_string_pretty(&score)?)?;
    Ok(())
}

/// Says the score; a bug that was not found, or not looked for, is a failure. A change of
/// a test takes finds away without a word; here each of them is named.
pub(super) fn tell(tally: &mut Tally) -> Result<()> {
    let score = Score::read();
    for bug in bugs() {
        match score.is_found(bug)? {
            true => tally.pass(1),
            false => tally.fail(format!("not found: {}", bug.name)),
        }
    }
    println!("{}", score.summary()?);
    for id in score.without()? {
        match WITHOUT.iter().find(|(without, _)| *without == id) {
            Some((_, why)) => println!("{id} without a bug: {why}"),
            None => tally.fail(format!("no bug is found that breaks {id}")),
        }
    }
    Ok(())
}

impl Score {
    /// Reads what the last runs found, here and in the repository. A file that is missing or
    /// damaged has no finds: the bugs are looked for again.
    pub(crate) fn read() -> Score {
        let read = |path: PathBuf| -> Option<Score> {
            serde_json::from_str(&fs::read_to_string(path).ok()?).ok()
        };
        let score = read(path()).unwrap_or_default();
        Score {
            kept: read(kept()).unwrap_or_default().outcomes,
            ..score
        }
    }

    /// Writes the finds that hold into the repository. Outcomes of bugs that were not found, and of
    /// bugs that no longer exist, are left out: the repository keeps evidence, and no history.
    pub(crate) fn keep(&self) -> Result<()> {
        let mut finds = Score::default();
        for bug in bugs() {
            if self.is_found(bug)? {
                let found = Outcome {
                    is_found: true,
                    hash: hash(bug)?,
                };
                finds.outcomes.insert(bug.name.to_owned(), found);
            }
        }
        record::keep(&kept(), &finds)
    }

    /// Tells whether the last run that holds found it. The tree's own outcome comes first: a bug
    /// that is no longer found here must not pass by an older find of the repository's.
    pub(super) fn is_found(&self, bug: &Bug) -> Result<bool> {
        let hash = hash(bug)?;
        let outcomes = [self.outcomes.get(bug.name), self.kept.get(bug.name)];
        let last = outcomes.into_iter().flatten().find(|o| o.hash == hash);
        Ok(last.is_some_and(|outcome| outcome.is_found))
    }

    /// Returns the requirements that have no bug which was found. One found bug is enough for a
    /// requirement; that each other bug of it is found, [`tell`] judges.
    fn without(&self) -> Result<BTreeSet<String>> {
        let requirements = Requirements::read()?;
        let mut without: BTreeSet<String> = requirements.identifiers().map(str::to_owned).collect();
        for bug in bugs() {
            if self.is_found(bug)? {
                bug.breaks.iter().for_each(|id| {
                    without.remove(*id);
                });
            }
        }
        Ok(without)
    }

    /// Returns the score in words, which `docs/evidence.md` quotes.
    pub(crate) fn summary(&self) -> Result<String> {
        let all = bugs().count();
        let mut found = 0;
        for bug in bugs() {
            found += usize::from(self.is_found(bug)?);
        }
        let requirements = Requirements::read()?.count();
        let bitten = requirements - self.without()?.len();
        Ok(format!(
            "{found} of {all} planted bugs found; {bitten} of {requirements} requirements have one that a test which cites them found, {} have none for a reason (tests/suite/src/planted/score.rs)",
            WITHOUT.len()
        ))
    }
}
