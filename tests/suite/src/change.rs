//! Changes of the code that tests plant into a copy of the workspace.
//!
//! A comment `// planted: <name>` in the code is the place of the change with that name, so that
//! code may move and change its names without a change here. What becomes of the lines behind the
//! comment is told in their own terms, and as little of them is quoted as does.
//!
//! Patches with line numbers break with each commit. A place that moves along with the code leaves
//! the list of bugs true.

use std::collections::BTreeMap;
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use anyhow::{Context as _, Result, bail, ensure};
use workbench::{source, workspace};

/// How the comment begins.
const MARK: &str = "// planted: ";
/// Where code is changed.
const FOLDERS: [&str; 4] = ["device-model", "gear1", "gear2", "manifests"];
/// How many lines behind the comment a text may begin. A text that stands farther away probably
/// belongs to other code.
const NEAR: usize = 12;

/// Change of the code behind a comment.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Change {
    /// The statement is left out.
    Drop,
    /// The statement becomes this one.
    Become(&'static str),
    /// The first of these texts, where it stands next, becomes the second.
    Swap(&'static str, &'static str),
    /// Lines to insert ahead of the statement.
    Ahead(&'static str),
}

impl Change {
    /// Returns the text with the change at the comment of this name. A change that changes nothing
    /// is an error: the test would be blamed for not finding it.
    pub(crate) fn make(self, name: &str, text: &str) -> Result<String> {
        let start = behind(name, text)?;
        let (before, rest) = text.split_at(start);
        let changed = match self {
            Change::Drop => rest.split_at(statement(rest)).1.to_owned(),
            Change::Become(new) => {
                let (old, behind) = rest.split_at(statement(rest));
                let indent = old.len() - old.trim_start().len();
                let indent = old.split_at(indent).0;
                let lines = new.lines().map(|line| format!("{indent}{line}\n"));
                lines.collect::<String>() + behind
            }
            Change::Ahead(new) => format!("{new}{rest}"),
            Change::Swap(from, to) => {
                let at = rest.find(from);
                let at = at.filter(|at| rest.split_at(*at).0.matches('\n').count() < NEAR);
                ensure!(at.is_some(), "{from:?} does not stand behind {MARK}{name}");
                rest.replacen(from, to, 1)
            }
        };
        ensure!(changed != rest, "{MARK}{name}: nothing changes");
        Ok(before.to_owned() + &changed)
    }

    /// Returns the bytes of the text that the change at the comment of this name may replace.
    pub(crate) fn extent(self, name: &str, text: &str) -> Result<Range<usize>> {
        let start = behind(name, text)?;
        let rest = text.split_at(start).1;
        let length = match self {
            Change::Drop | Change::Become(_) => statement(rest),
            Change::Ahead(_) => 1,
            Change::Swap(from, _) => rest.find(from).map_or(1, |at| at + from.len()),
        };
        Ok(start..start + length)
    }

    /// Makes the change in a copy of the workspace; returns the file and what it held.
    pub(crate) fn plant(self, name: &str, copy: &Path) -> Result<(PathBuf, String)> {
        let path = copy.join(file(name)?);
        let good = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        fs::write(&path, self.make(name, &good)?)?;
        Ok((path, good))
    }
}

/// Returns where the first line of code behind the comment begins. Several comments may stand above
/// one statement, each with a bug of its own.
fn behind(name: &str, text: &str) -> Result<usize> {
    let mut is_behind = false;
    let mut start = 0;
    for line in text.split_inclusive('\n') {
        let comment = line.trim();
        match is_behind {
            true if !comment.starts_with("//") => return Ok(start),
            true => {}
            false => is_behind = comment.strip_prefix(MARK) == Some(name),
        }
        start += line.len();
    }
    bail!("no code behind {MARK}{name}")
}

/// Returns the length of the statement, match arm or field that a text begins with, in whole lines.
/// The value of a block ends where the block does. Brackets are counted and strings are not
/// understood, which suffices for the places in use: the unit tests make all changes.
fn statement(text: &str) -> usize {
    let mut open = 0_i32;
    let mut length = 0;
    for line in text.split_inclusive('\n') {
        if length > 0 && open == 0 && line.trim_start().starts_with('}') {
            break;
        }
        length += line.len();
        for c in line.chars() {
            open += match c {
                '(' | '[' | '{' => 1,
                ')' | ']' | '}' => -1,
                _ => 0,
            };
        }
        if open <= 0 && line.trim_end().ends_with([';', ',', '}']) {
            break;
        }
    }
    length
}

/// Returns the files that hold a comment for each name. Names are looked for in all code that bugs
/// are planted into.
pub(crate) fn places() -> Result<BTreeMap<String, Vec<String>>> {
    let mut places: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for folder in FOLDERS {
        for path in source::files(&workspace::root().join(folder), "rs")? {
            let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
            let names = text
                .lines()
                .filter_map(|line| line.trim().strip_prefix(MARK));
            for name in names {
                let files = places.entry(name.to_owned()).or_default();
                files.push(source::relative(&path)?);
            }
        }
    }
    Ok(places)
}

/// Returns the one file, from the root of the workspace, that holds the comment of this name. Files
/// are read once, because hundreds of changes ask for theirs.
pub(crate) fn file(name: &str) -> Result<&'static str> {
    static PLACES: OnceLock<BTreeMap<String, Vec<String>>> = OnceLock::new();
    let places = match PLACES.get() {
        Some(places) => places,
        None => {
            let found = places()?;
            PLACES.get_or_init(|| found)
        }
    };
    let files = places.get(name).map_or(&[][..], Vec::as_slice);
    match files {
        [file] => Ok(file),
        _ => bail!("{MARK}{name} stands in {files:?}, not in one place"),
    }
}

/// Returns the lines of a text that are code. A find is kept while code stays as it is; comments
/// may change.
pub(crate) fn code(text: &str) -> String {
    let lines = text
        .lines()
        .filter(|line| !line.trim_start().starts_with("//"));
    lines.flat_map(|line| [line, "\n"]).collect()
}

#[cfg(test)]
mod tests;
