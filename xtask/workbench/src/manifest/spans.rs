//! Positions of nodes and properties in the source, from dtc's annotated output.
//!
//! `dtc -T -T -O dts` writes the tree again, one node or property a line, each with `/*
//! FILE:LINE:COLUMN-LINE:COLUMN */` behind it. Other lines are ignored: a missing position costs a
//! better message, nothing else.

use std::collections::HashMap;

/// A piece of a source file; lines and columns count from 1, a tab is one column, and the end lies
/// behind the last character.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// As dtc names it, relative to where dtc ran.
    pub file: String,
    pub start: (usize, usize),
    pub end: (usize, usize),
}

impl Place {
    /// Reads `FILE:LINE:COLUMN-LINE:COLUMN`.
    fn parse(text: &str) -> Option<Self> {
        let (start, end) = text.rsplit_once('-')?;
        let (start, column) = start.rsplit_once(':')?;
        let (file, line) = start.rsplit_once(':')?;
        let (end_line, end_column) = end.split_once(':')?;
        Some(Self {
            file: file.to_owned(),
            start: (line.parse().ok()?, column.parse().ok()?),
            end: (end_line.parse().ok()?, end_column.parse().ok()?),
        })
    }
}

/// Places by node path and property.
#[derive(Clone, Debug, Default)]
pub(super) struct Spans {
    /// By path of the node, and by property; without one: the node's braces.
    places: HashMap<(String, Option<String>), Place>,
    /// Node and name of each property whose value begins with a string.
    strings: Vec<(String, String)>,
}

impl Spans {
    /// Reads dtc's annotated output.
    pub(super) fn parse(annotated: &str) -> Self {
        let mut spans = Self::default();
        let mut path: Vec<&str> = Vec::new();
        for line in annotated.lines() {
            let Some((code, place)) = split(line) else {
                continue;
            };
            if code == "};" {
                path.pop();
            } else if let Some(name) = code.strip_suffix(" {") {
                path.push(name.rsplit(' ').next().unwrap_or(name));
                spans.add(&path, None, place);
            } else {
                spans.add_property(&path, code, place);
            }
        }
        spans
    }

    /// Adds a property, which is written as `code`.
    fn add_property(&mut self, path: &[&str], code: &str, place: Place) {
        let name = code.split([' ', ';']).next().unwrap_or(code);
        self.add(path, Some(name), place);
        let value = code.strip_prefix(name).unwrap_or_default();
        if value.starts_with(" = \"") {
            self.strings.push((node_path(path), name.to_owned()));
        }
    }

    /// Returns where a property is.
    pub(super) fn property(&self, node: &str, property: &str) -> Option<&Place> {
        let key = (node.to_owned(), Some(property.to_owned()));
        self.places.get(&key)
    }

    /// Returns where a node's braces are.
    pub(super) fn node(&self, node: &str) -> Option<&Place> {
        self.places.get(&(node.to_owned(), None))
    }

    /// Iterates over the files that something stands in, more than once each.
    pub(super) fn files(&self) -> impl Iterator<Item = &str> {
        self.places.values().map(|place| place.file.as_str())
    }

    /// Iterates over the node and the name of each property whose value begins with a string.
    pub(super) fn strings(&self) -> impl Iterator<Item = (&str, &str)> {
        self.strings
            .iter()
            .map(|(node, property)| (node.as_str(), property.as_str()))
    }

    /// The first place wins: later ones are merges into the same node.
    fn add(&mut self, path: &[&str], property: Option<&str>, place: Place) {
        let key = (node_path(path), property.map(str::to_owned));
        self.places.insert(key, place);
    }
}

/// Returns the path of the node that these names lead to.
fn node_path(names: &[&str]) -> String {
    let names = names.iter().filter(|name| **name != "/");
    let node: String = names.map(|name| format!("/{name}")).collect();
    match node.is_empty() {
        true => "/".to_owned(),
        false => node,
    }
}

/// Splits a line into its code and the first place behind it.
fn split(line: &str) -> Option<(&str, Place)> {
    let (code, comment) = line.trim().rsplit_once(" /* ")?;
    let first = comment.strip_suffix(" */")?.split(", ").next()?;
    Some((code, Place::parse(first)?))
}

#[cfg(test)]
mod tests;
