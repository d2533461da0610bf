//! What `gear1/audit.toml` allows.

use std::collections::BTreeMap;
use std::fs;

use anyhow::{Context as _, Result};
use serde::Deserialize;

use crate::workspace;

/// The whole file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Rules {
    pub(super) budget: BTreeMap<String, Budget>,
    /// By entry.
    pub(super) stack: BTreeMap<String, Size>,
    /// By file and function, the bound of each loop.
    pub(super) loops: BTreeMap<String, BTreeMap<String, Vec<String>>>,
}

/// What may be used up of something.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Budget {
    pub(super) goal: u64,
    pub(super) limit: u64,
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
    pub(super) fn read() -> Result<Rules> {
        let path = workspace::root().join("gear1/audit.toml");
        let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        toml::from_str(&text).with_context(|| path.display().to_string())
    }
}
