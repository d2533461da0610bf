//! Counts of Gear1's source: lines, `unsafe` blocks, tests, crates.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use anyhow::{Context as _, Result, ensure};
use workbench::{source, workspace};

use super::rust;

/// Counts of one package of Gear1. Of whole packages, for the report; counts by subject are another
/// module's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    /// Lines that are neither blank nor only a comment, without tests and without checks that no
    /// image ships with.
    pub(super) lines: u64,
    /// Lines of tests that are neither blank nor only a comment.
    pub(super) test_lines: u64,
    /// Blocks, however many operations each has: clippy holds that to one.
    pub(super) unsafe_blocks: u64,
    /// `unsafe` blocks with a SAFETY comment above.
    pub(super) argued: u64,
}

/// Returns the counts by package, and the files that hold `unsafe` blocks. Packages are the folders
/// below `gear1`.
pub(super) fn count() -> Result<(BTreeMap<String, Counts>, BTreeSet<String>)> {
    let mut packages: BTreeMap<String, Counts> = BTreeMap::new();
    let mut holders = BTreeSet::new();
    for file in files()? {
        let text = fs::read_to_string(workspace::root().join(&file)).context(file.clone())?;
        let package = file.split('/').nth(1).unwrap_or(&file).to_owned();
        let counts = packages.entry(package).or_default();
        let of_file = rust::Counts::of(&text, is_test(&file));
        counts.lines += of_file.code;
        counts.test_lines += of_file.tests;
        let [blocks, argued] = of_file.unsafe_blocks;
        counts.unsafe_blocks += blocks;
        counts.argued += argued;
        if blocks > 0 {
            holders.insert(file);
        }
    }
    Ok((packages, holders))
}

/// Texts that only `gear1/arch` may contain: raw pointers, assembly, and what is sound by argument
/// alone. Plain text is searched, so that a macro's body counts as well.
const OF_ARCH: [&str; 10] = [
    "asm!(",
    "*mut ",
    "*const ",
    "ptr::",
    "transmute",
    "from_raw",
    "UnsafeCell",
    "unsafe impl",
    "static mut ",
    "_unchecked",
];

/// Returns where a file outside of `gear1/arch` uses more of `unsafe` than calls of functions whose
/// conditions the caller proves. No lint of the compiler tells a call of an `unsafe fn` from a raw
/// access.
pub(super) fn beyond_calls() -> Result<Vec<String>> {
    let mut beyond = Vec::new();
    for file in files()?.into_iter().filter(|file| !is_test(file)) {
        if file.starts_with("gear1/arch/") {
            continue;
        }
        let text = fs::read_to_string(workspace::root().join(&file)).context(file.clone())?;
        if let Some(what) = of_arch(&text) {
            beyond.push(format!("{file}: `{what}` outside of gear1/arch"));
        }
    }
    Ok(beyond)
}

/// Returns what only `gear1/arch` may use and a text uses. Comments may name what code may not use.
fn of_arch(text: &str) -> Option<&'static str> {
    let code = || {
        text.lines()
            .filter(|line| !line.trim_start().starts_with("//"))
    };
    OF_ARCH
        .into_iter()
        .find(|what| code().any(|line| line.contains(what)))
}

/// Guests that measure, or that test the device model: no tests of Gear1. Their lines would make
/// Gear1 look better tested than it is.
const OTHER_GUESTS: [&str; 4] = ["bench.rs", "wake.rs", "hostile.rs", "honest_io.rs"];

/// Returns the lines of the guests in `tests/guests` that test Gear1, and of what guests have in
/// common. Guests are tests of Gear1 that run at EL1.
pub(super) fn guests() -> Result<(u64, u64)> {
    let (mut tests, mut common) = (0, 0);
    for file in files_below("tests/guests/src")? {
        let text = fs::read_to_string(workspace::root().join(&file)).context(file.clone())?;
        match file.strip_prefix("tests/guests/src/bin/") {
            Some(bin) if OTHER_GUESTS.contains(&bin) => {}
            Some(_) => tests += lines(&text),
            None => common += lines(&text),
        }
    }
    Ok((tests, common))
}

/// Returns the crates that are linked into the runtime. From cargo itself, since features decide
/// what is linked.
pub(super) fn crates() -> Result<Vec<String>> {
    let mut cargo = workspace::cargo();
    cargo.args(["tree", "--package", "gear1-runtime", "--features", "image"]);
    cargo.args(["--target", workspace::BARE_TARGET, "--edges", "normal"]);
    cargo.args(["--prefix", "none", "--no-dedupe"]);
    let output = cargo.output().context("cargo cannot be run")?;
    ensure!(output.status.success(), "cargo tree failed");
    let text = String::from_utf8(output.stdout)?;
    let others = text.lines().filter(|line| !line.contains("gear1-"));
    let names: BTreeSet<String> = others.map(|line| line.trim().to_owned()).collect();
    Ok(names.into_iter().collect())
}

/// Returns Gear1's source files, relative to the workspace. The ghost is among them, and counts as
/// a test.
fn files() -> Result<Vec<String>> {
    files_below("gear1")
}

/// Sorted by path.
fn files_below(directory: &str) -> Result<Vec<String>> {
    let files = source::files(&workspace::root().join(directory), "rs")?;
    files.iter().map(|path| source::relative(path)).collect()
}

/// Tells whether a file is in no image that ships: tests, and what only the checking image has. By
/// file name, as the crates have them; modules inside a file are told by attributes.
pub(super) fn is_test(file: &str) -> bool {
    let name = file.rsplit('/').next().unwrap_or(file);
    let helpers = ["tests.rs", "test.rs", "testing.rs", "build.rs", "ghost.rs"];
    let is_ghost = file.starts_with("gear1/ghost/");
    is_ghost || helpers.contains(&name) || file.contains("/tests/")
}

/// Tests inside a guest's file count: all of it is a test.
fn lines(text: &str) -> u64 {
    rust::Counts::of(text, false).code
}

#[cfg(test)]
mod tests;
