//! `cargo xtask audit --table`: what the sources look like, beside those of other projects.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use workbench::{source, workspace};

use super::rust::{Counts, percentile};

/// The sources of this project, by column.
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
/// Names of files that only tests have.
const TEST_FILES: [&str; 6] = [
    "tests.rs",
    "test.rs",
    "testing.rs",
    "build.rs",
    "ghost.rs",
    "simulator.rs",
];
/// Names of directories that only tests have, or that a build leaves.
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

/// A column of the table.
struct Column {
    name: String,
    counts: Counts,
}

/// Prints the table of this project, and of the sources in `others`.
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

/// Tells whether a file below a project's directory is in none of the project's programs.
pub(super) fn is_test(file: &Path) -> bool {
    let mut parts = file.iter().map(|part| part.to_string_lossy());
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    TEST_FILES.contains(&&*name) || parts.any(|part| TEST_DIRECTORIES.contains(&&*part))
}

/// Rows of the table, in the order of docs/budgets.md.
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

/// Returns the table in Markdown.
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

fn ranks<const N: usize>(values: &[u64], percents: [u64; N]) -> String {
    percents
        .map(|percent| percentile(values, percent).to_string())
        .join("/")
}

/// Returns a share in percent, to a tenth.
fn percent(part: u64, whole: u64) -> String {
    match whole {
        0 => "-".to_owned(),
        whole => format!("{} %", tenths(part * 100, whole)),
    }
}

/// Returns a quotient to a tenth.
fn tenths(dividend: u64, divisor: u64) -> String {
    let tenths = dividend * 10 / divisor.max(1);
    format!("{}.{}", tenths / 10, tenths % 10)
}

#[cfg(test)]
mod tests;
