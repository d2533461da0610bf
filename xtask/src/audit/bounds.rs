//! The bounds of Gear1's loops, each in a comment at its loop: `// Bound: MAX_CPUS (8)`.
//!
//! A comment belongs to the statement below it, by file and lines, so that code may move and change
//! its name. Two comments above one statement are for two loops in that statement.
//!
//! Invariant: a loop without a bound at its place and a bound without a loop at its place are
//! findings; a bound elsewhere counts for neither.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use anyhow::{Context as _, Result};
use workbench::{source, workspace};

use super::loops::{Loop, Stands};
use super::places::Owner;
use super::rules::Rules;
use super::rust::Statements;
use super::source::is_test;

/// Start of a bound's comment. The text behind says the number and where it comes from; no program
/// reads that.
const MARK: &str = "// Bound: ";
/// The crates whose code the runtime is linked from. init and tests may loop as they like: nothing
/// waits for them.
const CRATES: [&str; 4] = ["abi", "arch", "core", "runtime"];

/// The bounds above one statement. The function matters only for loops whose line the compiler does
/// not tell.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Bound {
    /// The function that the statement is in.
    function: String,
    /// The line of the first comment.
    comment: u32,
    /// First and last line of the statement.
    lines: (u32, u32),
    /// Number of comments.
    count: usize,
}

/// A file and the line of a bound's first comment. Named by comment and not by loop: the message
/// leads to the text to change.
type Comment = (String, u32);
/// Where the loops close that a bound is for: line and column. Copies by inlining close at the same
/// place, and need one bound.
type Places = BTreeSet<(u32, u32)>;

/// The bounds of all loops, and the loops that were found for each. Both images are compared with
/// one set, since a bound may have its loop in one of them.
#[derive(Default)]
pub(super) struct Bounds {
    /// By file, in the order of the text.
    beside: BTreeMap<String, Vec<Bound>>,
    /// Of assembly and libraries: the number of bounds by function.
    listed: BTreeMap<Owner, usize>,
    /// Places of all images together, since a loop of one image may miss in the other.
    found: BTreeMap<Comment, Places>,
    /// Of assembly and libraries, which have no places of ours.
    found_listed: BTreeSet<Owner>,
}

impl Bounds {
    /// Reads the bounds beside the loops, and those of assembly and libraries, which `rules` list.
    /// Files of tests are left out: their loops are in no image.
    pub(super) fn read(rules: &Rules) -> Result<Bounds> {
        let mut bounds = Bounds::default();
        for name in CRATES {
            let folder = workspace::root().join("gear1").join(name).join("src");
            for path in source::files(&folder, "rs")? {
                let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
                let file = source::relative(&path)?;
                if !is_test(&file) {
                    bounds.beside.insert(file, of_text(&text));
                }
            }
        }
        bounds.list(rules);
        Ok(bounds)
    }

    /// The number of entries is the number of loops in that function.
    fn list(&mut self, rules: &Rules) {
        for (file, functions) in &rules.loops {
            for (function, listed) in functions {
                self.listed.insert(Owner::of(file, function), listed.len());
            }
        }
    }

    /// Compares the loops of an image with their bounds. Returns the loops without one. Several
    /// loops may share a statement, hence places are counted, not loops.
    pub(super) fn compare(&mut self, loops: &[Loop]) -> Vec<String> {
        let mut wrong = Vec::new();
        let mut beside: BTreeMap<Comment, (usize, Places)> = BTreeMap::new();
        let mut listed: BTreeMap<&Owner, BTreeSet<u32>> = BTreeMap::new();
        for each in loops {
            if let Some(bound) = self.of(each) {
                let comment = (each.owner.file.clone(), bound.comment);
                let (count, places) = beside.entry(comment).or_default();
                *count = bound.count;
                places.insert(each.closes);
            } else if self.listed.contains_key(&each.owner) {
                listed.entry(&each.owner).or_default().insert(each.closes.0);
            } else {
                wrong.push(without_bound(each));
            }
        }
        wrong.extend(self.compare_beside(beside));
        wrong.extend(self.compare_listed(listed));
        wrong.sort();
        wrong.dedup();
        wrong
    }

    /// Notes the loops below each comment; returns the comments that are too few. More loops than
    /// bounds means that one of them was not thought about.
    fn compare_beside(&mut self, loops: BTreeMap<Comment, (usize, Places)>) -> Vec<String> {
        let mut wrong = Vec::new();
        for ((file, line), (count, closes)) in loops {
            if closes.len() > count {
                wrong.push(format!(
                    "{file}:{line}: {count} bounds for the loops that close at {closes:?}"
                ));
            }
            self.found.entry((file, line)).or_default().extend(closes);
        }
        wrong
    }

    /// Notes the functions of assembly and libraries with loops; returns those with too few bounds.
    /// Assembly has no statements, so its lines stand for places.
    fn compare_listed(&mut self, loops: BTreeMap<&Owner, BTreeSet<u32>>) -> Vec<String> {
        let mut wrong = Vec::new();
        for (owner, lines) in loops {
            let count = self.listed.get(owner).copied().unwrap_or(0);
            if lines.len() > count {
                let Owner { file, function } = owner;
                wrong.push(format!(
                    "{file}: {function}: {count} bounds for the loops that close on lines {lines:?}"
                ));
            }
            self.found_listed.insert(owner.clone());
        }
        wrong
    }

    /// Returns the bound of a loop: that of the shortest statement which has all of the loop's
    /// lines. A loop whose lines are not known has the next bound of the function. Statements nest,
    /// and the shortest is the loop's own.
    fn of(&self, each: &Loop) -> Option<&Bound> {
        let bounds = self.beside.get(&each.owner.file)?.iter();
        match each.stands {
            Stands::On(first, last) => bounds
                .filter(|bound| bound.lines.0 <= first && last <= bound.lines.1)
                .min_by_key(|bound| bound.lines.1 - bound.lines.0),
            Stands::Behind(line) => bounds
                .filter(|bound| bound.function == each.owner.function)
                .find(|bound| bound.lines.0 >= line),
        }
    }

    /// Returns the bounds that no loop was found for in any image. A bound without a loop is a
    /// claim about nothing, left by a change.
    pub(super) fn surplus(&self) -> Vec<String> {
        let mut surplus = Vec::new();
        for (file, bounds) in &self.beside {
            surplus.extend(bounds.iter().filter_map(|bound| self.unused(file, bound)));
        }
        for owner in self.listed.keys() {
            if !self.found_listed.contains(owner) {
                let Owner { file, function } = owner;
                surplus.push(format!(
                    "gear1/audit.toml: {file}: {function}: a bound, and no loop in any image"
                ));
            }
        }
        surplus
    }

    /// Says how many loops a statement's bounds have, if those are too few. Fewer loops than
    /// bounds: one of the comments is for a loop that is gone.
    fn unused(&self, file: &str, bound: &Bound) -> Option<String> {
        let found = self.found.get(&(file.to_owned(), bound.comment));
        let found = found.map_or(0, BTreeSet::len);
        (found < bound.count).then(|| {
            format!(
                "{file}:{}: {} bounds, and {found} loops below in all images",
                bound.comment, bound.count
            )
        })
    }
}

/// Says where a loop without a bound is. The range of lines is what the branches have.
fn without_bound(each: &Loop) -> String {
    let Owner { file, function } = &each.owner;
    let place = match each.stands {
        Stands::On(first, last) => format!("{first} to {last}"),
        Stands::Behind(line) => format!("behind {line}"),
    };
    format!("{file}: {function}: a loop without a bound, line {place}")
}

/// Returns the bounds of a text, each with the statement below. Two comments above one statement
/// count as two bounds.
fn of_text(text: &str) -> Vec<Bound> {
    let statements = Statements::new(text);
    let mut bounds: Vec<Bound> = Vec::new();
    let lines = (1_u32..).zip(text.lines());
    for (comment, _) in lines.filter(|(_, line)| line.trim_start().starts_with(MARK)) {
        let lines = statements.below(comment);
        if let Some(last) = bounds.last_mut().filter(|last| last.lines == lines) {
            last.count += 1;
            continue;
        }
        let function = source::function_at(text, comment).unwrap_or_default();
        bounds.push(Bound {
            function: function.to_owned(),
            comment,
            lines,
            count: 1,
        });
    }
    bounds
}

#[cfg(test)]
mod tests;
