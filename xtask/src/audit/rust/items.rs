//! Items and statements of a Rust text: where each begins and ends, and which only tests have.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::ops::Range;

use super::scan::{Line, is_name, scan};
use super::{ITEMS, QUALIFIERS};

/// Statements of a text, by line. Rules whose marker is a comment above a statement (bounds of
/// loops, planted bugs) find the lines of that statement here.
pub(in crate::audit) struct Statements(Source);

impl Statements {
    /// Scans the text once; each question about it is a search in the result.
    pub(in crate::audit) fn new(text: &str) -> Statements {
        Statements(Source::new(text))
    }

    /// Returns first and last line of the statement or item below a line, comments and attributes
    /// aside. A statement that begins with a block ends with it. Blank lines, attributes and
    /// further comments may stand between marker and statement.
    pub(in crate::audit) fn below(&self, line: u32) -> (u32, u32) {
        let Statements(source) = self;
        let start = source.lines.get(line as usize);
        let start = start.map_or(source.masked.len(), |line| line.start);
        let start = source.skip_attributes(start);
        let end = source.end_of_item(start).unwrap_or(source.masked.len());
        let number = |at: usize| u32::try_from(source.line_at(at) + 1).unwrap_or(u32::MAX);
        (number(start), number(end.saturating_sub(1).max(start)))
    }
}

/// Lines of code of a text, without those of tests, by what an image has of them. The split tells
/// what a reader of Gear1 has to trust at run time: the functions that an image really has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::audit) struct Linked {
    /// Of functions that the image has a line of.
    pub(in crate::audit) functions: u64,
    /// Of functions that the image has nothing of.
    pub(in crate::audit) not_linked: u64,
    /// Outside of functions.
    pub(in crate::audit) declarations: u64,
}

impl Linked {
    /// Counts a text of which the image has these lines. A function counts as a whole once one of
    /// its lines is linked: an arm that no test reaches is trusted as well.
    pub(in crate::audit) fn of(text: &str, linked: &BTreeSet<u32>) -> Linked {
        let source = Source::new(text);
        let mut functions: Vec<Range<usize>> = source.functions().collect();
        // The innermost function of a line comes last.
        functions.sort_by_key(|lines| (lines.start, Reverse(lines.end)));
        let number = |index: usize| u32::try_from(index + 1).unwrap_or(u32::MAX);
        let is_linked = |lines: &Range<usize>| {
            let numbers = number(lines.start)..number(lines.end);
            linked.range(numbers).next().is_some()
        };
        let mut counts = Linked::default();
        for (index, line) in source.lines.iter().enumerate() {
            if line.is_test || !line.has_code() {
                continue;
            }
            match functions.iter().rfind(|lines| lines.contains(&index)) {
                None => counts.declarations += 1,
                Some(lines) if is_linked(lines) => counts.functions += 1,
                Some(_) => counts.not_linked += 1,
            }
        }
        counts
    }

    /// Returns all lines of code: what a reader of the file has to read.
    pub(in crate::audit) fn all(&self) -> u64 {
        self.functions + self.not_linked + self.declarations
    }
}

/// Returns the functions of a text that have more lines: the line, the name, the number of lines.
/// Closures belong to the function that they stand in.
pub(in crate::audit) fn longer_functions(text: &str, most: usize) -> Vec<(usize, String, usize)> {
    let source = Source::new(text);
    let long = source.functions().filter(|lines| lines.len() > most);
    let told = long.map(|lines| {
        let code = source.lines.get(lines.start).map_or("", |line| &line.code);
        let (_, name) = code.split_once("fn ").unwrap_or_default();
        let end = name.bytes().position(|byte| !is_name(byte));
        let name = name.get(..end.unwrap_or(name.len())).unwrap_or_default();
        (lines.start + 1, name.to_owned(), lines.len())
    });
    told.collect()
}

/// A text that is told apart. Both forms are kept: rules on lines ask for comments, and rules on
/// items need braces and semicolons that are really code.
pub(super) struct Source {
    /// Every line of the text, blank ones included, so that numbers agree.
    pub(super) lines: Vec<Line>,
    /// The text, byte by byte, with comments and literals blanked.
    pub(super) masked: Vec<u8>,
}

impl Source {
    /// Code of tests is blanked in `masked` after it was found, so that its braces and functions
    /// are counted nowhere.
    pub(super) fn new(text: &str) -> Source {
        let (lines, masked) = scan(text);
        let mut source = Source { lines, masked };
        for span in source.test_spans(text) {
            let lines = source.line_at(span.start)..=source.line_at(span.end.saturating_sub(1));
            for line in source.lines.get_mut(lines).into_iter().flatten() {
                line.is_test = true;
            }
            let test = source.masked.get_mut(span).into_iter().flatten();
            test.filter(|byte| **byte != b'\n')
                .for_each(|byte| *byte = b' ');
        }
        source
    }

    /// Returns the index of the line that holds this byte. Lines begin in ascending order, hence
    /// the binary search.
    pub(super) fn line_at(&self, at: usize) -> usize {
        let behind = self.lines.partition_point(|line| line.start <= at);
        behind.saturating_sub(1)
    }

    /// Returns the lines of each function that has a body. A function of a trait without a body has
    /// none to count.
    pub(super) fn functions(&self) -> impl Iterator<Item = Range<usize>> {
        let starts = self.starts_of("fn");
        starts.filter_map(|start| {
            let end = self.end_of_item(start + 2)?;
            let has_body = self.masked.get(end - 1) == Some(&b'}');
            has_body.then(|| self.line_at(start)..self.line_at(end - 1) + 1)
        })
    }

    /// Iterates over the places of a word, where a name follows. `fn` in the middle of a name, or
    /// as a type `fn(u32)`, begins no function.
    fn starts_of(&self, word: &str) -> impl Iterator<Item = usize> {
        let text = &self.masked;
        let length = word.len();
        let is_word = move |at: &usize| {
            let before = at.checked_sub(1).and_then(|before| text.get(before));
            let behind = text.get(at + length..).unwrap_or_default();
            let name = behind.iter().find(|byte| !byte.is_ascii_whitespace());
            let is_apart = behind.first().is_some_and(u8::is_ascii_whitespace);
            !before.is_some_and(|byte| is_name(*byte))
                && is_apart
                && name.is_some_and(|byte| is_name(*byte))
        };
        let windows = text.windows(length).enumerate();
        let word = word.as_bytes().to_vec();
        let found = windows.filter(move |(_, window)| *window == word);
        found.map(|(at, _)| at).filter(is_word)
    }

    /// Returns the first byte behind the item or statement that goes on at `from`: behind a `;` or
    /// a body in braces. What is no item ends at a `,` too. A match arm or a field ends at its
    /// comma, where an item's generic parameters may hold one. `None`: the text ends first.
    pub(super) fn end_of_item(&self, from: usize) -> Option<usize> {
        let rest = self.masked.get(from..)?;
        let is_item = self.is_item(from);
        let mut depth = 0_u32;
        let mut braces = 0_u32;
        for (offset, byte) in rest.iter().enumerate() {
            let at = from + offset;
            let is_outside = braces == 0 && depth == 0;
            match byte {
                b'(' | b'[' => depth += 1,
                // The end of what the statement is in.
                b')' | b']' if depth == 0 => return Some(at),
                b'}' if braces == 0 => return Some(at),
                b')' | b']' => depth -= 1,
                b'{' => braces += 1,
                b'}' if braces == 1 && depth == 0 => return Some(at + 1),
                b'}' => braces -= 1,
                b';' if is_outside => return Some(at + 1),
                b',' if is_outside && !is_item => return Some(at + 1),
                _ => {}
            }
        }
        None
    }

    /// Tells whether the first word at `from`, or an `fn` right before, begins an item. The words
    /// are Rust's own: nothing else can begin an item.
    fn is_item(&self, from: usize) -> bool {
        let (before, rest) = self.masked.split_at(from);
        let first: Vec<u8> = rest
            .iter()
            .copied()
            .skip_while(u8::is_ascii_whitespace)
            .take_while(|byte| is_name(*byte))
            .collect();
        let mut words = ["pub", "impl", "use", "macro_rules"]
            .iter()
            .chain(&ITEMS)
            .chain(&QUALIFIERS);
        before.ends_with(b"fn") || words.any(|word| word.as_bytes() == first)
    }

    /// Returns what no shipped image has, each with its attribute. A file whose inner attribute
    /// keeps it out of the images counts as a whole. Spans inside others are left out, or a line
    /// would be blanked twice.
    fn test_spans(&self, text: &str) -> Vec<Range<usize>> {
        if text.lines().any(is_test_file) {
            return std::iter::once(0..text.len()).collect();
        }
        let mut spans: Vec<Range<usize>> = Vec::new();
        let starts = self.masked.windows(2).enumerate();
        for (start, _) in starts.filter(|(_, window)| window == b"#[") {
            let is_inside = spans.iter().any(|span| span.contains(&start));
            let Some(end) = self.end_of_attribute(start) else {
                continue;
            };
            if is_inside || !text.get(start..end).is_some_and(is_test_attribute) {
                continue;
            }
            let item = self.skip_attributes(end);
            let end = self.end_of_item(item).unwrap_or(self.masked.len());
            spans.push(start..end);
        }
        spans
    }

    /// Returns where an item begins, behind blanks and attributes. Attributes nest no braces but
    /// any brackets. Several attributes may stand between `#[cfg(test)]` and its item.
    fn skip_attributes(&self, from: usize) -> usize {
        let mut item = self.skip_blank(from);
        while self.masked[item..].starts_with(b"#[")
            && let Some(end) = self.end_of_attribute(item)
        {
            item = self.skip_blank(end);
        }
        item
    }

    /// Brackets inside, as of `#[cfg(any(...))]`'s arrays, are counted.
    fn end_of_attribute(&self, start: usize) -> Option<usize> {
        let mut depth = 0_u32;
        for (offset, byte) in self.masked.get(start..)?.iter().enumerate() {
            match byte {
                b'[' => depth += 1,
                b']' => {
                    depth -= 1;
                    if depth == 0 {
                        return Some(start + offset + 1);
                    }
                }
                _ => {}
            }
        }
        None
    }

    /// Comments are blank here, since they are masked.
    fn skip_blank(&self, from: usize) -> usize {
        let rest = self.masked.get(from..).unwrap_or_default();
        let blank = rest.iter().take_while(|byte| byte.is_ascii_whitespace());
        from + blank.count()
    }
}

/// Tells whether a line is an attribute that keeps the whole file out of the images that ship. The
/// form is `#![cfg(test)]`, at the beginning of a line.
fn is_test_file(line: &str) -> bool {
    let inner = line.strip_prefix("#!");
    inner.is_some_and(|attribute| is_test_attribute(&format!("#{attribute}")))
}

/// Tells whether an attribute keeps its item out of the images that ship. `not(test)` is what
/// ships, and stays. What hosts or checking images have is no part of the count of Gear1.
fn is_test_attribute(attribute: &str) -> bool {
    let inner = attribute.trim_start_matches("#[").trim_start();
    let condition = inner.strip_prefix("cfg(");
    let Some(condition) = condition else {
        return ["test]", "tokio::test", "bench]"]
            .iter()
            .any(|test| inner.starts_with(test));
    };
    let is_checking = condition.starts_with("feature = \"check-");
    let is_hosts = condition.starts_with("feature = \"host\"");
    let has_test = words(condition, "test") > 0;
    let is_negated = condition.starts_with("not(");
    (is_checking || is_hosts || has_test) && !is_negated
}

/// Counts how often `what` stands in a line of code and is no part of a longer name. A longer name
/// that contains the word is another name: `unsafe_code` is no `unsafe`.
pub(super) fn words(code: &str, what: &str) -> u64 {
    let starts_name = what.as_bytes().first().is_some_and(|byte| is_name(*byte));
    let ends_name = what.as_bytes().last().is_some_and(|byte| is_name(*byte));
    let found = code.match_indices(what).filter(|(at, _)| {
        let before = code.as_bytes().get(at.wrapping_sub(1));
        let behind = code.as_bytes().get(at + what.len());
        let is_longer = starts_name && before.is_some_and(|byte| is_name(*byte))
            || ends_name && behind.is_some_and(|byte| is_name(*byte));
        !is_longer
    });
    found.count() as u64
}
