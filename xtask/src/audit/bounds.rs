//! The bounds of Gear1's loops, each in a comment at its loop: `// Bound: MAX_CPUS (8)`.
//!
//! A comment belongs to the function that it stands in, so that code may move and change its name.

use std::collections::BTreeMap;
use std::fs;

use anyhow::{Context as _, Result};
use workbench::{source, workspace};

use super::loops::Owner;
use super::rules::Rules;
use super::source::is_test;

/// Start of a bound's comment.
const MARK: &str = "// Bound: ";
/// The crates whose code the runtime is linked from.
const CRATES: [&str; 4] = ["abi", "arch", "core", "runtime"];

/// Number of bounds in each function.
#[derive(Default)]
pub(super) struct Bounds(BTreeMap<Owner, usize>);

/// Returns how many bounds stand in each function of the source.
fn of_source() -> Result<Bounds> {
    let mut bounds = Bounds::default();
    for name in CRATES {
        let folder = workspace::root().join("gear1").join(name).join("src");
        for path in source::files(&folder, "rs")? {
            let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
            let file = source::relative(&path)?;
            if is_test(&file) {
                continue;
            }
            for function in of_text(&text) {
                bounds.add(Owner::of(&file, function), 1);
            }
        }
    }
    Ok(bounds)
}

impl Bounds {
    /// Reads the bounds beside the loops, and those of assembly and libraries, which `rules` list.
    pub(super) fn read(rules: &Rules) -> Result<Bounds> {
        let mut bounds = of_source()?;
        for (file, functions) in &rules.loops {
            for (function, listed) in functions {
                bounds.add(Owner::of(file, function), listed.len());
            }
        }
        Ok(bounds)
    }

    fn add(&mut self, owner: Owner, count: usize) {
        *self.0.entry(owner).or_default() += count;
    }

    /// Returns the functions whose bounds are for the loops of `owner`. Where nothing stands in
    /// that function of that file, the debug information named the file of who inlined it, or a
    /// macro made the function.
    pub(super) fn of(&self, owner: &Owner) -> Vec<&Owner> {
        let is_same = |other: &&Owner| other.function == owner.function;
        let is_made = |other: &&Owner| other.file == owner.file && other.function.starts_with('$');
        if let Some((exact, _)) = self.0.get_key_value(owner) {
            return vec![exact];
        }
        let same: Vec<&Owner> = self.0.keys().filter(is_same).collect();
        match same.is_empty() {
            true => self.0.keys().filter(is_made).collect(),
            false => same,
        }
    }

    /// Returns how many bounds these functions have.
    pub(super) fn count(&self, owners: &[&Owner]) -> usize {
        owners.iter().filter_map(|owner| self.0.get(*owner)).sum()
    }

    /// Returns all functions that have bounds.
    pub(super) fn owners(&self) -> impl Iterator<Item = &Owner> {
        self.0.keys()
    }
}

/// Returns the function that each bound of a file stands in; without one, the empty name.
fn of_text(text: &str) -> impl Iterator<Item = &str> {
    let bounds = (1..).zip(text.lines());
    let bounds = bounds.filter(|(_, line)| line.trim_start().starts_with(MARK));
    bounds.map(|(line, _)| source::function_at(text, line).unwrap_or_default())
}

#[cfg(test)]
mod tests;
