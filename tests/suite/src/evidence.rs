//! `cargo xtask evidence`: the page with the figure of each piece of evidence (docs/evidence.md).
//!
//! Figures come from the linked images, the requirements, what the last whole run of the tests left
//! behind, and what longer runs found: that is kept in the repository, `docs/evidence`. Invariant:
//! nothing is written that was not measured.
//!
//! A figure that a person copies into a page grows old unseen. Here each figure comes with the
//! command that makes it, and a figure that nobody made is shown as missing.

use std::collections::BTreeSet;
use std::fs;

use anyhow::{Context as _, Result};
use workbench::workspace;
use xtask::audit;

use crate::planted::Score;
use crate::record::{Longer, PartRun, Run, longer_runs};
use crate::requirements::Requirements;

/// Writes the page. The score of planted bugs is kept first, beside the figures that a clone has
/// without a run. A run of all tests must have been: with some parts alone the page would show
/// fewer tests than there are.
pub(crate) fn command() -> Result<()> {
    let score = Score::read();
    score.keep()?;
    let evidence = Evidence {
        run: Run::read()?,
        longer: longer_runs()?,
        audit: audit::run()?,
        requirements: Requirements::read()?,
        planted: score.summary()?,
    };
    let path = workspace::root().join("docs/evidence.md");
    fs::write(&path, evidence.page()).with_context(|| path.display().to_string())?;
    println!("{}", path.display());
    Ok(())
}

/// Contents of the page. Everything is read before the page is begun, so that a missing part leaves
/// the old page whole.
struct Evidence {
    run: Run,
    longer: Vec<Longer>,
    audit: audit::Findings,
    requirements: Requirements,
    planted: String,
}

/// An item of the page's first table, and what its figures are known by: a word of what the tests
/// tell of themselves, one of the names of parts, one of the names of longer runs. An empty word
/// stands for no figures of that source.
struct Item {
    /// The table's first column.
    name: &'static str,
    /// Part of a figure that a test prints.
    told: &'static str,
    /// Part of the names of parts, whose verdicts are added up.
    parts: &'static str,
    /// Part of the names of longer runs, as [`Longer`] keeps them.
    longer: &'static str,
    /// The command by which a reader repeats the figure.
    command: &'static str,
}

const ITEMS: &[Item] = &[
    // The figure of each run is small; the longer run made a million calls.
    Item {
        name: "Ghost specification beside random calls, on the host",
        told: "calls of three VMs",
        parts: "",
        longer: "ownership GEARV_CALLS",
        command: "cargo test -p gear1-core ffa::tests::ghost",
    },
    // Parts alone tell of it, by the checks of the guests that ran on the checking image.
    Item {
        name: "Ghost specification around every call, on QEMU",
        told: "",
        parts: "the ghost beside Gear1",
        longer: "",
        command: "cargo xtask test --slow \"the ghost beside Gear1\"",
    },
    // States are counted twice: all, and those that differ in more than the names of pages and VMs.
    Item {
        name: "Model checking of the ownership of pages",
        told: "but for names",
        parts: "",
        longer: "ownership GEARV_PAGES",
        command: "cargo test -p gear1-core ownership::tests::model",
    },
    // Orders of the steps of two CPUs are tried completely, those of more CPUs by chance.
    Item {
        name: "Model checking of kick, inject, block and wake",
        told: "orders of",
        parts: "",
        longer: "ownership GEARV_ORDERS",
        command: "cargo test -p gear1-core --test protocol",
    },
    Item {
        name: "Transition tests: every state and every call",
        told: "states of a",
        parts: "",
        longer: "",
        command: "cargo test -p gear1-core every_call_in_every_state",
    },
    Item {
        name: "Hostile guests",
        told: "violations",
        parts: "",
        longer: "chaos",
        command: "cargo xtask chaos",
    },
    // The corpus with mutations runs with the unit tests; libFuzzer's runs are longer ones.
    Item {
        name: "Fuzzing of parsers of outside bytes",
        told: "mutations",
        parts: "fuzzed",
        longer: "fuzz target",
        command: "cargo test -p tests-fuzz",
    },
    // Only the slow part has this figure: the share that 25 minutes have found.
    Item {
        name: "Changes of gear1-core that its tests find",
        told: "",
        parts: "",
        longer: "mutants",
        command: "cargo xtask test --slow \"mutants\"",
    },
];

impl Item {
    /// Returns all figures of it, in words. A set, because several parts tell of the same figure.
    /// No figure at all reads **not run**, which a reader cannot overlook.
    fn figures(&self, run: &Run, longer: &[Longer]) -> String {
        let has = |text: &str, word: &str| !word.is_empty() && text.contains(word);
        let mut figures = BTreeSet::new();
        let told = run.parts.iter().flat_map(|part| &part.figures);
        figures.extend(told.filter(|figure| has(figure, self.told)).cloned());
        let parts: Vec<&PartRun> = (run.parts.iter())
            .filter(|part| has(&part.name, self.parts))
            .collect();
        if !parts.is_empty() {
            let sum = |of: fn(&PartRun) -> usize| parts.iter().map(|part| of(part)).sum::<usize>();
            let (passed, failed) = (sum(|part| part.passed), sum(|part| part.failed));
            let count = parts.len();
            figures.insert(format!("{count} parts, {passed} passed, {failed} failed"));
        }
        // With the command, because a longer run has parameters that the table's command has not.
        for run in longer.iter().filter(|run| has(&run.name, self.longer)) {
            figures.insert(format!("{} (`{}`)", run.figure, run.command));
        }
        match figures.is_empty() {
            true => "**not run**".to_owned(),
            false => figures.into_iter().collect::<Vec<_>>().join("; "),
        }
    }
}

impl Evidence {
    fn page(&self) -> String {
        let mut page = String::from(
            "# Evidence\n\nWritten by `cargo xtask evidence` after `cargo xtask test`; do not edit. What it is evidence of: \
             [the safety manual](safety-manual.md). [evidence/](evidence/) keeps what longer runs found.\n\n",
        );
        page += &self.items();
        page += &self.tests();
        page += &self.images();
        page += "\n## Longer runs\n\n| what | figure | command | commit |\n|---|---|---|---|\n";
        for run in &self.longer {
            let Longer {
                name,
                figure,
                command,
                commit,
            } = run;
            page += &format!("| {name} | {figure} | `{command}` | {commit} |\n");
        }
        page
    }

    /// Returns a line for each kind of evidence. Items whose figures do not come from parts of
    /// tests have a row of their own here.
    fn items(&self) -> String {
        let mut table = String::from("| evidence | figure | command |\n|---|---|---|\n");
        let mut row = |name: &str, figure: &str, command: &str| {
            table += &format!("| {name} | {figure} | `{command}` |\n");
        };
        row("All tests", &self.all_tests(), "cargo xtask test");
        // The audit runs now; all others are figures of an earlier run.
        let (holds, fails) = (self.audit.holds.len(), self.audit.fails.len());
        let figure = format!("{holds} statements hold, {fails} do not");
        row("The linked runtime images", &figure, "cargo xtask audit");
        for item in ITEMS {
            let figures = item.figures(&self.run, &self.longer);
            row(item.name, &figures, item.command);
        }
        let command = "cargo xtask test --slow \"planted bug\"";
        row("Planted bugs", &self.planted, command);
        let figure = format!(
            "{} requirements, {} faults; [the matrix](requirements/matrix.md)",
            self.requirements.count(),
            self.requirements.faults().len(),
        );
        row("Requirements", &figure, "cargo xtask requirements");
        let coverage = "Coverage of the runtime image";
        // Coverage is a figure of the whole run, and of no part.
        row(coverage, &self.run.coverage, "cargo xtask test");
        table
    }

    /// Returns the sums of all parts. Commit and duration tell how old the figures are and what a
    /// repetition costs.
    fn all_tests(&self) -> String {
        let run = &self.run;
        let sum = |of: fn(&PartRun) -> usize| run.parts.iter().map(of).sum::<usize>();
        format!(
            "{} passed, {} failed, {} skipped in {} parts; {} min {} s{}",
            sum(|part| part.passed),
            sum(|part| part.failed),
            sum(|part| part.skipped),
            run.parts.len(),
            run.seconds / 60,
            run.seconds % 60,
            match run.commit.as_str() {
                "" => String::new(),
                commit => format!("; commit {commit}"),
            },
        )
    }

    /// Every part has a row, so that a part that disappears shows in the page's difference.
    fn tests(&self) -> String {
        let mut table = String::from(
            "\n## Tests: `cargo xtask test`\n\n| part | passed | failed | skipped |\n|---|---|---|---|\n",
        );
        for part in &self.run.parts {
            let PartRun {
                name,
                passed,
                failed,
                skipped,
                figures: _,
            } = part;
            table += &format!("| {name} | {passed} | {failed} | {skipped} |\n");
        }
        table
    }

    /// Markdown would take `<` in names of symbols for HTML.
    fn images(&self) -> String {
        let mut list = String::from("\n## The linked runtime images: `cargo xtask audit`\n\n");
        for line in &self.audit.holds {
            list += &format!("- {}\n", line.replace('<', "\\<"));
        }
        for line in &self.audit.fails {
            list += &format!("- **FAIL** {line}\n");
        }
        list
    }
}
