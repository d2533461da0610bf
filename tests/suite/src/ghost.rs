//! The checking image: guests run on a Gear1 in which the ghost specification (`gear1/ghost`) looks
//! at all stage-2 tables before and after each call that concerns them, and halts where the two
//! differ.
//!
//! Requirements: G1-MEM-011, G1-MEM-012, G1-MEM-016, G1-MEM-017.
//!
//! Guests judge what they can see. A wrong state of a page that no guest notices today is a hole
//! for the next change of the code. The specification notices at the call itself.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use workbench::qemu::{Machine, Qemu};
use workbench::{build_images, workspace};
use xtask::run;

use crate::guests::conclude;
use crate::part::{Part, Tally};
use crate::table::{TargetTest, target_tests};
use crate::{chaos, copy};

/// The target directory of the checking image, and the runtime's features. Checking code never
/// ships: the runtime's own image has none of it.
pub(super) const CHECKING: &str = "check-ghost";
const FEATURES: &str = "image,check-ghost";
/// Factor by which a call takes longer when every page is checked twice. A limit of time that a row
/// has for the shipped Gear1 would end it here.
const SLOWER: u64 = 5;
/// Manifests in each run of the tests; the others are slow. The calls of guest `ffa` take minutes
/// where each is checked twice; the ghost's own tests on the host make random ones in every run.
const OFTEN: [&str; 2] = ["reboot", "rt-passthrough"];
/// Manifests with VMs that share memory, that attack, that end and restart, and real-time ones.
const MANIFESTS: [&str; 8] = [
    "ffa",
    "isolation",
    "faults",
    "secrets",
    "reboot",
    "gear2-fails",
    "rt-passthrough",
    "rt-emulated",
];

/// Guests run beside: their limits of time are wide, and the target directory is their own.
pub(super) fn parts() -> Vec<Part> {
    let rows = target_tests().filter(|row| MANIFESTS.contains(&row.manifest));
    let guests = rows.map(|row| {
        let name = format!("the ghost beside Gear1: guest {}", row.manifest);
        let part = Part::new(name, move |tally| boot(row, &image()?, tally));
        part.slow(!OFTEN.contains(&row.manifest)).beside()
    });
    let mut parts: Vec<Part> = guests.collect();
    parts.push(Part::new("the ghost beside Gear1: chaos", |tally| {
        chaos::attack_other(image()?, Some(&runtime()), chaos::FEW, tally)
    }));
    let name = "the ghost beside Gear1: owner and borrower swapped";
    parts.push(Part::new(name, swapped).slow(true));
    parts
}

/// Builds the checking image. Built from the workspace itself, while the swapped ones come from a
/// copy.
fn image() -> Result<PathBuf> {
    build_images::build_gear1_of(workspace::root(), CHECKING, FEATURES)
}

/// Returns the path of the checking runtime. Chaos compares the bytes in memory with this file.
fn runtime() -> PathBuf {
    workspace::output_dir()
        .join(CHECKING)
        .join("gear1-runtime.bin")
}

/// Runs a row of the table on a Gear1 of its own. The first model of a row: the specification looks
/// at tables, which do not depend on the CPU.
fn boot(row: &TargetTest, gear1: &Path, tally: &mut Tally) -> Result<()> {
    let manifest = format!("tests/manifests/{}.dts", row.manifest);
    let manifest = workspace::root().join(manifest);
    let mut images = build_images::build_below(CHECKING, &manifest)?;
    images.gear1 = gear1.to_path_buf();
    let model = row.models.first().context("a row names a model")?;
    let machine = Machine {
        cpu: format!("{model}{}", row.cpu_properties),
        cpus: row.cpus,
        memory_mib: run::memory_for(&images)?,
        icount: row.icount,
        turn_us: row.turn_us,
        ..Machine::default()
    };
    let log = workspace::output_dir().join(format!("{CHECKING}/{}.log", row.manifest));
    let session = images.start(&Qemu::prepare(10)?, &machine, &log)?;
    let patient = TargetTest {
        timeout_s: SLOWER * row.timeout_s,
        ..*row
    };
    conclude(session, &patient, tally)
}

/// A bug that no guest notices: a file of Gear1, a text in it, and the replacement. Owner and
/// borrower may both access a shared page, so a guest cannot tell that their states changed places.
struct Swapped {
    name: &'static str,
    file: &'static str,
    pairs: &'static [(&'static str, &'static str)],
}

/// The ghost's own mistake is one of them: it shows that the comparison finds either side wrong.
const SWAPPED: [Swapped; 3] = [
    Swapped {
        name: "by Gear1",
        file: "core/src/ownership/transaction.rs",
        pairs: &[
            (
                "Kind::Share => PageState::SharedOwned",
                "Kind::Share => PageState::SharedBorrowed",
            ),
            (
                "Kind::Share | Kind::Lend => PageState::SharedBorrowed",
                "Kind::Share | Kind::Lend => PageState::SharedOwned",
            ),
        ],
    },
    Swapped {
        name: "by the ghost",
        file: "ghost/src/check.rs",
        pairs: &[
            (
                "Kind::Share => Must::Be(ALL, owner::SHARED)",
                "Kind::Share => Must::Be(ALL, owner::BORROWED)",
            ),
            (
                "Kind::Share | Kind::Lend => Must::Be(access, owner::BORROWED)",
                "Kind::Share | Kind::Lend => Must::Be(access, owner::SHARED)",
            ),
        ],
    },
    Swapped {
        name: "by Gear1, when memory is reclaimed",
        file: "core/src/ownership.rs",
        pairs: &[(
            "let is_own = transaction.offer.sender == sender;",
            "let is_own = transaction.offer.is_for(sender);",
        )],
    },
];

/// Shows that the checking image halts where owner and borrower are swapped. Guest `ffa` shares,
/// lends and reclaims, which the swapped states need.
fn swapped(tally: &mut Tally) -> Result<()> {
    let row = target_tests().find(|row| row.manifest == "ffa");
    let row = row.context("the manifest is in the table")?;
    let copy = copy::fresh(copy::FOR_IMAGES)?;
    for swapped in &SWAPPED {
        tally.check(swapped.name, swapped.is_found(row, &copy));
    }
    Ok(())
}

impl Swapped {
    /// Returns the file's text with the bug in it. A text that stands twice would be changed where
    /// it is not meant.
    fn apply(&self, good: &str) -> Result<String> {
        let mut bad = good.to_owned();
        for (from, to) in self.pairs {
            let count = bad.matches(from).count();
            ensure!(count == 1, "{} holds {from:?} {count} times", self.file);
            bad = bad.replace(from, to);
        }
        Ok(bad)
    }

    /// Builds the copy with the bug in it, and boots that. The good text comes back before the
    /// machine runs, since the next bug is planted into the copy too.
    fn is_found(&self, row: &TargetTest, copy: &Path) -> Result<()> {
        let path = copy.join("gear1").join(self.file);
        let good = fs::read_to_string(&path)?;
        fs::write(&path, self.apply(&good)?)?;
        let gear1 = build_images::build_gear1_of(copy, "swapped", FEATURES);
        fs::write(&path, good)?;
        let end = boot(
            row,
            &gear1.context("it does not build")?,
            &mut Tally::default(),
        );
        let end = end.err().map(|error| format!("{error:#}"));
        let said = end.as_deref().unwrap_or_default();
        // A halt alone could have another reason; the ghost's own line names the page.
        let said = said.lines().find(|line| line.contains("gear1: ghost: "));
        println!("{}: {}", self.name, said.context("the ghost says nothing")?);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The part that plants these is slow, so a text that is gone would be seen late.
    #[test]
    fn swapped_texts_are_there() {
        for swapped in &SWAPPED {
            let path = workspace::root().join("gear1").join(swapped.file);
            swapped.apply(&fs::read_to_string(path).unwrap()).unwrap();
        }
    }
}
