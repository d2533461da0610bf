//! `cargo xtask audit --table`: what the sources look like, beside those of other projects.
//!
//! A figure of this table is a claim about somebody else's work. Therefore peers are counted by the
//! functions that count this project, from sources that anybody can fetch, and nothing is left out
//! by name: what counts as a test follows the conventions of cargo.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use workbench::{source, workspace};

use super::rust::{Counts, percentile};

/// The sources of this project, by column. The columns are what a reader would compare with another
/// project: one trust level each.
const OWN: [(&str, &[&str]); 6] = [
    (
        "Gear1",
        &[
            "gear1/abi",
            "gear1/core",
            "gear1/arch",
            "gear1/runtime",
            "gear1/init",
        ],
    ),
    ("Gear2", &["gear2"]),
    ("manifests", &["manifests"]),
    ("device-model", &["device-model"]),
    ("xtask", &["xtask"]),
    ("tests", &["tests/suite", "tests/measure", "tests/kvm-vmm"]),
];
/// Names of files that only tests have. Names by convention of the ecosystem, so that they fit the
/// peers as well.
const TEST_FILES: [&str; 6] = [
    "tests.rs",
    "test.rs",
    "testing.rs",
    "build.rs",
    "ghost.rs",
    "simulator.rs",
];
/// Names of directories that only tests have, or that a build leaves. `simulator` is ours; the
/// others are cargo's or usual.
const TEST_DIRECTORIES: [&str; 6] = [
    "tests",
    "benches",
    "examples",
    "fuzz",
    "target",
    "simulator",
];

/// Returns the cell of a row.
type Value = fn(&Counts) -> String;

/// A column of the table. Name and sums of one project. Sums, because a mean of files would weigh a
/// file of ten lines like one of a thousand.
struct Column {
    name: String,
    counts: Counts,
}

/// Prints the table of this project, and of the sources in `others`. Peers are counted by the same
/// functions: a table is fair only if one script made all of it.
pub(super) fn print(others: &[PathBuf]) -> Result<()> {
    let root = workspace::root();
    let own = OWN.iter().map(|(name, directories)| {
        let directories: Vec<PathBuf> = directories.iter().map(|part| root.join(part)).collect();
        Column::new(name, &directories)
    });
    let others = others.iter().map(|directory| {
        let name = directory.file_name().unwrap_or(directory.as_os_str());
        Column::new(&name.to_string_lossy(), std::slice::from_ref(directory))
    });
    let columns = own.chain(others).collect::<Result<Vec<_>>>()?;
    println!("{}", text(&columns));
    Ok(())
}

impl Column {
    /// Bytes that are no UTF-8 are replaced, because a peer's sources are not ours to mend.
    fn new(name: &str, directories: &[PathBuf]) -> Result<Column> {
        let mut counts = Counts::default();
        for directory in directories {
            for file in source::files(directory, "rs")? {
                let text = fs::read(&file).with_context(|| file.display().to_string())?;
                let below = file.strip_prefix(directory).unwrap_or(&file);
                counts.add(&Counts::of(&String::from_utf8_lossy(&text), is_test(below)));
            }
        }
        Ok(Column {
            name: name.to_owned(),
            counts,
        })
    }
}

/// Tells whether a file below a project's directory is in none of the project's programs. A path
/// below the project decides, never the project's own place: that may lie in a folder named
/// `tests`.
pub(super) fn is_test(file: &Path) -> bool {
    let mut parts = file.iter().map(|part| part.to_string_lossy());
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    TEST_FILES.contains(&&*name) || parts.any(|part| TEST_DIRECTORIES.contains(&&*part))
}

/// Rows of the table, in the order of docs/budgets.md. Whoever changes a row changes the table
/// there.
const ROWS: [(&str, Value); 12] = [
    ("lines of code", |counts| counts.code.to_string()),
    ("lines of tests", |counts| counts.tests.to_string()),
    ("lines a function, p50/p90/max", |counts| {
        ranks(&counts.functions, [50, 90, 100])
    }),
    ("lines a file, p90/max", |counts| {
        ranks(&counts.files, [90, 100])
    }),
    ("public items documented", |counts| {
        let [all, documented] = counts.public;
        percent(documented, all)
    }),
    ("SAFETY", |counts| {
        let [all, argued] = counts.unsafe_blocks;
        format!("{argued}/{all}")
    }),
    ("`unsafe fn`", |counts| counts.unsafe_functions.to_string()),
    ("panics + asserts a kLoC", |counts| {
        tenths(counts.panics * 1000, counts.code)
    }),
    ("comments : code", |counts| {
        let hundredths = counts.comments * 100 / counts.code.max(1);
        format!("{}.{:02}", hundredths / 100, hundredths % 100)
    }),
    ("doc comments", |counts| counts.docs[0].to_string()),
    ("that open with a pronoun", |counts| {
        counts.docs[1].to_string()
    }),
    ("of all doc comments", |counts| {
        percent(counts.docs[1], counts.docs[0])
    }),
];

/// Returns the table in Markdown. Markdown, to be pasted into a document: docs/budgets.md has a
/// copy with rounded cells, which is read where no sources of peers are.
fn text(columns: &[Column]) -> String {
    let names = columns.iter().map(|column| format!(" {} |", column.name));
    let mut text = format!("| |{}\n|---|", names.collect::<String>());
    text += &"---|".repeat(columns.len());
    for (title, value) in ROWS {
        let cells = columns
            .iter()
            .map(|column| format!(" {} |", value(&column.counts)));
        text += &format!("\n| {title} |{}", cells.collect::<String>());
    }
    text
}

/// Several percentiles in one cell. The maximum alone would tell of one odd function, and the
/// median of none.
fn ranks<const N: usize>(values: &[u64], percents: [u64; N]) -> String {
    percents
        .map(|percent| percentile(values, percent).to_string())
        .join("/")
}

/// Returns a share in percent, to a tenth. No quotient is shown where there is nothing to divide.
fn percent(part: u64, whole: u64) -> String {
    match whole {
        0 => "-".to_owned(),
        whole => format!("{} %", tenths(part * 100, whole)),
    }
}

/// Returns a quotient to a tenth. Integers throughout: a table must not change with a rounding
/// mode.
fn tenths(dividend: u64, divisor: u64) -> String {
    let tenths = dividend * 10 / divisor.max(1);
    format!("{}.{}", tenths / 10, tenths % 10)
}

#[cfg(test)]
mod tests;
