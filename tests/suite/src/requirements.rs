//! `cargo xtask requirements`: the matrix of requirements, code and tests
//! (docs/requirements/matrix.md).
//!
//! A requirement is a row `| G1-… | sentence |` in a page of docs/requirements whose table says
//! "shall". Code and tests cite its identifier. Invariant: a requirement without code or test, an
//! unknown or doubled identifier, and a module of Gear1 that cites none are faults.
//!
//! A requirement that nobody builds and a test that nobody asked for are found by names alone.
//! Whether code and test do what the sentence says is left to readers and to planted bugs.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use workbench::source::files;
use workbench::workspace;

/// Start of a requirement's row when a person has to review the requirement; the reason follows.
/// The reason is part of the row, since a requirement without a test needs one.
const REVIEW: &str = "By review:";

/// Requirements, and the files that cite them. Maps and sets are sorted: the matrix is a file in
/// the repository, and must not change by chance.
pub(crate) struct Requirements {
    /// Requirements by identifier.
    stated: BTreeMap<String, Stated>,
    /// Modules of Gear1 that cite no requirement.
    silent: Vec<String>,
    /// Identifiers that are cited and not stated, with the file.
    unknown: BTreeSet<(String, String)>,
    /// Identifiers of two rows: a citation would not say which of the two is meant.
    doubled: Vec<String>,
}

#[derive(Debug, Default)]
struct Stated {
    /// Whether the row says that no test shows the requirement.
    by_review: bool,
    /// Files of code that cite it.
    modules: BTreeSet<String>,
    /// Files of tests that cite it.
    tests: BTreeSet<String>,
}

/// Writes the matrix, and fails if something is wrong. Nothing is written while there is a fault: a
/// matrix with a hole would look finished.
pub(crate) fn command() -> Result<()> {
    let requirements = Requirements::read()?;
    let faults = requirements.faults();
    faults.iter().for_each(|fault| println!("FAIL {fault}"));
    ensure!(faults.is_empty(), "{} faults", faults.len());
    fs::write(matrix_path(), requirements.matrix())?;
    println!("{}", matrix_path().display());
    Ok(())
}

fn folder() -> PathBuf {
    workspace::root().join("docs/requirements")
}

fn matrix_path() -> PathBuf {
    folder().join("matrix.md")
}

impl Requirements {
    /// Reads the pages and everything that may cite them.
    pub(crate) fn read() -> Result<Requirements> {
        let mut requirements = Requirements {
            stated: BTreeMap::new(),
            silent: Vec::new(),
            unknown: BTreeSet::new(),
            doubled: Vec::new(),
        };
        for page in files(&folder(), "md")? {
            // The matrix has rows with all identifiers, and states none.
            if page != matrix_path() {
                requirements.state(&read(&page)?);
            }
        }
        requirements.cite_sources()?;
        Ok(requirements)
    }

    /// Only Gear1's modules have to cite; other code may.
    fn cite_sources(&mut self) -> Result<()> {
        for directory in ["gear1", "gear2", "tests", "xtask", "manifests"] {
            for file in files(&workspace::root().join(directory), "rs")? {
                let relative = file.strip_prefix(workspace::root())?;
                let name = relative.to_str().context("a path that is not UTF-8")?;
                self.cite(name, &read(&file)?);
            }
        }
        Ok(())
    }

    /// A row that names several identifiers states the first; the others are references.
    fn state(&mut self, page: &str) {
        for row in page.lines().filter(|line| line.starts_with("| G1-")) {
            let Some(id) = identifiers(row).next() else {
                continue;
            };
            let stated = Stated {
                by_review: row.contains(REVIEW),
                ..Stated::default()
            };
            if self.stated.insert(id.to_owned(), stated).is_some() {
                self.doubled.push(id.to_owned());
            }
        }
    }

    /// Whole files are searched, comments included: a citation is a comment.
    fn cite(&mut self, file: &str, text: &str) {
        // Two sources quote identifiers of others: the tests of this module, and the planted bugs.
        let says_others = ["tests/suite/src/requirements", "tests/suite/src/planted"];
        if says_others.iter().any(|start| file.starts_with(start)) {
            return;
        }
        let is_test = is_test(file);
        // Requirements are Gear1's, so only its modules are held to them.
        let is_module = file.starts_with("gear1/") && !is_test;
        let cited: BTreeSet<&str> = identifiers(text).collect();
        if is_module && cited.is_empty() {
            self.silent.push(file.to_owned());
        }
        for id in cited {
            let Some(stated) = self.stated.get_mut(id) else {
                self.unknown.insert((id.to_owned(), file.to_owned()));
                continue;
            };
            match is_test {
                true => stated.tests.insert(file.to_owned()),
                false => stated.modules.insert(file.to_owned()),
            };
        }
    }

    /// Returns all identifiers.
    pub(crate) fn identifiers(&self) -> impl Iterator<Item = &str> {
        self.stated.keys().map(String::as_str)
    }

    /// Tells whether a test file cites a requirement.
    #[cfg(test)]
    pub(crate) fn is_cited_by(&self, id: &str, test: &str) -> bool {
        let stated = self.stated.get(id);
        stated.is_some_and(|stated| stated.tests.contains(test))
    }

    /// Returns how many requirements there are.
    pub(crate) fn count(&self) -> usize {
        self.stated.len()
    }

    /// Returns all violations. All faults at once, since a new requirement usually has several.
    pub(crate) fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        for (id, stated) in &self.stated {
            if stated.modules.is_empty() {
                faults.push(format!("{id}: no module cites it"));
            }
            if stated.tests.is_empty() && !stated.by_review {
                faults.push(format!("{id}: no test cites it"));
            }
        }
        let doubled = self.doubled.iter().map(|id| format!("{id}: stated twice"));
        faults.extend(doubled);
        let unknown = self.unknown.iter();
        faults.extend(unknown.map(|(id, file)| format!("{file}: {id} is not stated anywhere")));
        let silent = self.silent.iter();
        faults.extend(silent.map(|file| format!("{file}: cites no requirement")));
        faults
    }

    /// Tells whether the matrix in the repository is the one that would be written. Part of the
    /// tests, so that no commit leaves the matrix behind.
    pub(crate) fn is_written(&self) -> Result<()> {
        let written = read(&matrix_path())?;
        ensure!(
            written == self.matrix(),
            "docs/requirements/matrix.md is not up to date: cargo xtask requirements"
        );
        Ok(())
    }

    /// The last line's count of reviews is what a reader asks first.
    fn matrix(&self) -> String {
        let mut text = String::from(
            "# Requirements, code and tests\n\nWritten by `cargo xtask requirements`; do not edit. A module of Gear1 cites what it \
             carries out, a test what it would find broken.\n\n| ID | code | tests |\n|---|---|---|\n",
        );
        let list = |files: &BTreeSet<String>| {
            let files: Vec<String> = files.iter().map(|file| format!("`{file}`")).collect();
            files.join(", ")
        };
        for (id, stated) in &self.stated {
            let tests = match stated.tests.is_empty() {
                true => "by review".to_owned(),
                false => list(&stated.tests),
            };
            text += &format!("| {id} | {} | {tests} |\n", list(&stated.modules));
        }
        let reviewed = self.stated.values().filter(|s| s.tests.is_empty());
        let (count, reviewed) = (self.stated.len(), reviewed.count());
        text + &format!("\n{count} requirements, {reviewed} of them by review alone.\n")
    }
}

/// The ghost and the fakes are tools of tests, although they lie beside the code.
fn is_test(file: &str) -> bool {
    let of_gear1 = file.ends_with("/tests.rs") || file.contains("/tests/");
    let helpers = file.ends_with("/testing.rs") || file.ends_with("/ghost.rs");
    let helpers = helpers || file.starts_with("gear1/ghost/");
    of_gear1 || helpers || file.starts_with("tests/")
}

/// Returns the identifiers in a text. Three digits, letters before: other words that begin alike
/// are no citation.
fn identifiers(text: &str) -> impl Iterator<Item = &str> {
    text.match_indices("G1-").filter_map(|(start, _)| {
        let rest = text.get(start..)?;
        let letters = rest.get(3..)?.find(|c: char| !c.is_ascii_uppercase())?;
        let dash = 3 + letters;
        let end = dash + 4;
        let number = rest.get(dash + 1..end)?;
        let is_number = number.bytes().all(|byte| byte.is_ascii_digit());
        let is_whole = letters > 0 && rest.as_bytes().get(dash) == Some(&b'-') && is_number;
        is_whole.then(|| rest.get(..end)).flatten()
    })
}

fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| path.display().to_string())
}

#[cfg(test)]
mod tests;
