//! Checks of a document: links, names of source files, widths, and lengths.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Component, Path, PathBuf};

use anyhow::{Context as _, Result};

use super::{CHAPTERS, read};

/// The most columns of a line; tables and code are exempt. Readers of the source have the same
/// width there as in code.
const COLUMNS: usize = 100;
/// Documents with a limit, and the most words that they have. A page that grows by a paragraph a
/// change is read by nobody in the end.
const WORDS: &[(&str, usize)] = &[("docs/ARCHITECTURE.md", 3500)];
/// Written by programs, so their lines are as long as what was measured. Their links are checked
/// like all others.
const GENERATED: &[&str] = &["docs/evidence.md", "docs/requirements/matrix.md"];
/// Folders without documents or sources.
const SKIPPED: [&str; 2] = ["target", ".git"];

/// Returns what is wrong with the documents of the workspace at `root`. All faults are returned at
/// once: a person mends a document in one go.
pub fn faults(root: &Path) -> Result<Vec<String>> {
    let tree = Tree::read(root)?;
    let chapters: BTreeSet<&Path> = CHAPTERS.iter().map(|(_, file)| Path::new(*file)).collect();
    let mut faults = Vec::new();
    for (file, text) in &tree.documents {
        let name = file.display();
        if !chapters.contains(file.as_path()) {
            faults.push(format!(
                "{name}: no chapter of the book (xtask/src/docs.rs)"
            ));
        }
        let found = Document { file, text }.faults(&tree).into_iter();
        faults.extend(found.map(|(line, what)| format!("{name}:{line}: {what}")));
    }
    Ok(faults)
}

/// Files that the documents may refer to, by path below the workspace. Read once, since each link
/// is a question to it.
struct Tree {
    /// All files, so that a link to any of them can be told good from dead.
    files: BTreeSet<PathBuf>,
    /// The documents, with their texts.
    documents: BTreeMap<PathBuf, String>,
}

impl Tree {
    /// Only documents are kept as text; of other files the name is enough.
    fn read(root: &Path) -> Result<Tree> {
        let files = tree(root)?;
        let mut documents = BTreeMap::new();
        for file in files.iter().filter(|file| is_document(file)) {
            documents.insert(file.clone(), read(&root.join(file))?);
        }
        Ok(Tree { files, documents })
    }
}

/// Tells whether a file belongs to the documents: those at the top, in docs/, and of the tests.
/// Issue templates and the like are not part of the book.
fn is_document(file: &Path) -> bool {
    file.extension().is_some_and(|kind| kind == "md")
        && (file.parent() == Some(Path::new(""))
            || file.starts_with("docs")
            || file == Path::new("tests/README.md"))
}

/// Returns all files below `root`, relative to it. The walk is of files as they are, tracked or
/// not: a link to a new file is right before its commit.
fn tree(root: &Path) -> Result<BTreeSet<PathBuf>> {
    let mut files = BTreeSet::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        let entries = fs::read_dir(&folder).with_context(|| folder.display().to_string())?;
        for entry in entries {
            let path = entry?.path();
            let is_skipped = SKIPPED.iter().any(|name| path.ends_with(name));
            if path.is_dir() && !is_skipped {
                folders.push(path);
            } else if !path.is_dir() {
                files.insert(path.strip_prefix(root)?.to_owned());
            }
        }
    }
    Ok(files)
}

/// A document and where it is. Links are relative to the document's own folder.
struct Document<'a> {
    file: &'a Path,
    text: &'a str,
}

impl Document<'_> {
    /// Returns what is wrong in the document, by line. Generated documents have lines as long as
    /// their tables need.
    fn faults(&self, tree: &Tree) -> Vec<(usize, String)> {
        let mut faults = Vec::new();
        let is_generated = GENERATED.iter().any(|file| self.file == Path::new(file));
        for (number, line) in prose(self.text) {
            let is_table = line.trim_start().starts_with('|');
            if line.chars().count() > COLUMNS && !is_table && !is_generated {
                faults.push((number, format!("more than {COLUMNS} columns")));
            }
            let wrong = self.wrong_references(line, tree).into_iter();
            faults.extend(wrong.map(|what| (number, what)));
        }
        let mut limits = WORDS.iter();
        if let Some((_, most)) = limits.find(|(file, _)| self.file == Path::new(file)) {
            let count = self.text.split_whitespace().count();
            if count > *most {
                faults.push((1, format!("{count} words, more than {most}")));
            }
        }
        faults
    }

    /// Returns the links of a line that lead nowhere, and the names of sources that are not there.
    /// A source that a document names must exist; renaming one would else leave the documents
    /// behind.
    fn wrong_references(&self, line: &str, tree: &Tree) -> Vec<String> {
        let (code, rest) = split_code(line);
        let dead = links(&rest).filter_map(|target| self.dead(target, tree));
        let mut wrong: Vec<String> = dead.collect();
        for source in code.iter().filter(|code| is_source(code)) {
            if !tree.files.iter().any(|file| file.ends_with(source)) {
                wrong.push(format!("there is no file {source}"));
            }
        }
        wrong
    }

    /// Says why a link leads nowhere, if it does. Links into the web are not followed: a test must
    /// not need the network.
    fn dead(&self, target: &str, tree: &Tree) -> Option<String> {
        if target.contains("://") || target.starts_with("mailto:") {
            return None;
        }
        let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
        let file = match path {
            "" => self.file.to_owned(),
            _ => normal(&self.file.join("..").join(path)),
        };
        if !tree.files.iter().any(|there| there.starts_with(&file)) {
            return Some(format!(
                "a link to {target}: there is no {}",
                file.display()
            ));
        }
        let text = tree.documents.get(&file);
        let has_anchor = text.is_some_and(|text| anchors(text).contains(anchor));
        (!anchor.is_empty() && !has_anchor)
            .then(|| format!("a link to {target}: there is no such heading"))
    }
}

/// Returns the lines outside of code blocks, by number. Code blocks may be wide, and a link in one
/// is an example.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut is_code = false;
    (1..).zip(text.lines()).filter(move |(_, line)| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        !is_code && !is_fence && !line.starts_with("    ")
    })
}

/// Splits a line into its code spans and what is left of it. A span with two backquotes inside is
/// not used here.
fn split_code(line: &str) -> (Vec<&str>, String) {
    let pieces = || (0..).zip(line.split('`'));
    let code = pieces().filter(|(at, _)| at % 2 == 1);
    let rest = pieces().filter(|(at, _)| at % 2 == 0);
    (
        code.map(|(_, piece)| piece).collect(),
        rest.map(|(_, piece)| piece).collect::<Vec<_>>().join("`"),
    )
}

/// Returns where the links of a line lead. Reference links (`[a][b]`) are not used here.
fn links(line: &str) -> impl Iterator<Item = &str> {
    line.split("](")
        .skip(1)
        .filter_map(|rest| rest.split_once(')').map(|(target, _)| target))
}

/// Tells whether a code span names a Rust file; one with a capital letter is a placeholder.
/// Placeholders as `NAME.rs` stand in instructions.
fn is_source(code: &str) -> bool {
    let is_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "_-./".contains(c);
    code.ends_with(".rs") && code.chars().all(is_name)
}

/// Returns the anchors of a document's headings, as GitHub and mdBook make them. Equal headings
/// would get numbers, which no link here uses.
fn anchors(text: &str) -> BTreeSet<String> {
    let headings = prose(text).filter_map(|(_, line)| line.strip_prefix('#'));
    headings
        .map(|heading| slug(heading.trim_start_matches('#').trim()))
        .collect()
}

/// The rule is GitHub's: lower case, dashes for blanks, no punctuation.
fn slug(heading: &str) -> String {
    let kept = heading.chars().filter_map(|c| match c {
        ' ' => Some('-'),
        _ if c.is_alphanumeric() || "-_".contains(c) => Some(c.to_ascii_lowercase()),
        _ => None,
    });
    kept.collect()
}

/// Returns a path without `.` and `..`. Paths are compared as text, so that no file has to exist.
pub(super) fn normal(path: &Path) -> PathBuf {
    let mut normal = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => drop(normal.pop()),
            Component::CurDir => {}
            _ => normal.push(part),
        }
    }
    normal
}

/// Returns the files that a document includes by mdBook's directive. The examples in the book are
/// the files that `test` compiles.
pub(super) fn included(text: &str) -> impl Iterator<Item = &str> {
    let directives = text.split("{{#include ").skip(1);
    directives.filter_map(|rest| rest.split_once("}}").map(|(file, _)| file.trim()))
}

/// Returns the pictures in a folder. SVG and PNG are all that browsers show everywhere and that the
/// documents have.
pub(super) fn pictures(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut pictures = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path
            .extension()
            .is_some_and(|kind| kind == "svg" || kind == "png")
        {
            pictures.push(path);
        }
    }
    Ok(pictures)
}

#[cfg(test)]
mod tests;
