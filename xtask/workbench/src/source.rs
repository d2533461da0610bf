//! Source files, and what stands where in them.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use crate::workspace;

/// Returns the files with an extension below a directory, in order.
///
/// # Errors
///
/// Fails if a directory cannot be read.
pub fn files(directory: &Path, extension: &str) -> Result<Vec<PathBuf>> {
    let mut open = vec![directory.to_owned()];
    let mut files = Vec::new();
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(&directory).with_context(|| directory.display().to_string())? {
            let path = entry?.path();
            if path.is_dir() {
                open.push(path);
            } else if path.extension().is_some_and(|found| found == extension) {
                files.push(path);
            }
        }
    }
    files.sort();
    Ok(files)
}

/// Returns a path from the root of the workspace on.
///
/// # Errors
///
/// Fails for a path that lies outside, or is not UTF-8.
pub fn relative(path: &Path) -> Result<String> {
    let relative = path.strip_prefix(workspace::root())?.to_str();
    Ok(relative.context("a path that is not UTF-8")?.to_owned())
}

/// Returns the function that a line is in: the last one that begins above it.
pub fn function_at(source: &str, line: u32) -> Option<&str> {
    /// Words that may stand before `fn`.
    const BEFORE: [&str; 7] = [
        "pub",
        "pub(crate)",
        "pub(super)",
        "const",
        "unsafe",
        "extern",
        "\"C\"",
    ];
    let heads = source.lines().take(line as usize).filter_map(|line| {
        let (before, after) = line.trim_start().split_once("fn ")?;
        let is_head = before.split_whitespace().all(|word| BEFORE.contains(&word));
        let end = after.find(['(', '<'])?;
        is_head.then(|| after.split_at(end).0)
    });
    heads.last()
}

#[cfg(test)]
mod tests;
