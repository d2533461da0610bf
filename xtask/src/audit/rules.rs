//! Rules of the audit, from `gear1/audit.toml`.

use std::collections::BTreeMap;
use std::fs;

use anyhow::{Context as _, Result};
use serde::Deserialize;
use workbench::workspace;

/// The whole file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rules {
    /// By what is measured: lines, bytes, blocks.
    pub(super) budget: BTreeMap<String, Budget>,
    /// By entry.
    pub(super) stack: BTreeMap<String, Size>,
    /// Goals that hold for every crate of the workspace.
    pub(super) crates: Crates,
    /// By subject, the beginnings of the paths of the subject's sources.
    pub(super) subjects: BTreeMap<String, Vec<String>>,
    /// Required coverage of the runtime.
    pub coverage: Coverage,
    /// By file and function, the bound of each loop.
    pub(super) loops: BTreeMap<String, BTreeMap<String, Vec<String>>>,
}

/// Goals of every crate.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Crates {
    /// Lines that nine of ten functions do not exceed.
    pub(super) function_p90: u64,
    /// Lines of comments a line of code, at least.
    pub(super) comments: f64,
}

/// Coverage of the runtime that a run of all tests must reach.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Coverage {
    pub percent: f64,
    /// By file and function, the hardware or the fault that its other lines need.
    pub excused: BTreeMap<String, BTreeMap<String, String>>,
}

/// Budget for one quantity.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Budget {
    /// A value above is reported, and fails nothing.
    pub(super) goal: u64,
    /// The value from which the audit fails; without one, only the goal is compared.
    pub(super) limit: Option<u64>,
}

/// The size of a stack.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum Size {
    Bytes(u64),
    /// The value of a symbol of the image.
    Symbol(String),
}

impl Rules {
    /// Reads the file.
    pub fn read() -> Result<Rules> {
        let path = workspace::root().join("gear1/audit.toml");
        let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        toml::from_str(&text).with_context(|| path.display().to_string())
    }
}

#[cfg(test)]
mod tests;
