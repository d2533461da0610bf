//! Where nodes and properties stand in the source, from dtc's annotated output.
//!
//! `dtc -T -T -O dts` writes the tree again, one node or property a line, each with
//! `/* FILE:LINE:COLUMN-LINE:COLUMN */` behind it. What does not look like this is left out: a
//! missing place costs a better message, nothing else.

use std::collections::HashMap;

/// Places by node path and property.
#[derive(Clone, Debug, Default)]
pub(super) struct Spans {
    places: HashMap<(String, Option<String>), String>,
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
                let name = code.split([' ', ';']).next().unwrap_or(code);
                spans.add(&path, Some(name), place);
            }
        }
        spans
    }

    /// Returns `FILE:LINE:COLUMN` of a property, or of its node if it is not there itself.
    pub(super) fn find(&self, node: &str, property: Option<&str>) -> Option<&str> {
        let at = |property: Option<&str>| {
            self.places
                .get(&(node.to_owned(), property.map(str::to_owned)))
        };
        property
            .and_then(|name| at(Some(name)))
            .or_else(|| at(None))
            .map(String::as_str)
    }

    fn add(&mut self, path: &[&str], property: Option<&str>, place: String) {
        let names = path.iter().filter(|name| **name != "/");
        let node: String = names.map(|name| format!("/{name}")).collect();
        let node = if node.is_empty() {
            "/".to_owned()
        } else {
            node
        };
        self.places
            .insert((node, property.map(str::to_owned)), place);
    }
}

/// Splits a line into its code and the start of the first place behind it.
fn split(line: &str) -> Option<(&str, String)> {
    let (code, comment) = line.trim().rsplit_once(" /* ")?;
    let first = comment.strip_suffix(" */")?.split(", ").next()?;
    let (start, _) = first.rsplit_once('-')?;
    Some((code, start.to_owned()))
}

#[cfg(test)]
mod tests;
