//! Counts of a Rust source: lines, functions, documentation, `unsafe`, panics.
//!
//! Owns a scanner that tells code from comments and literals, and no more of Rust's grammar than
//! the counts need. Code under `#[cfg(test)]`, `#[test]` or a feature of a checking image counts as
//! tests. The scanner takes any text: what it does not understand counts as code.

use std::ops::Range;

/// Openings of a doc comment that name no subject.
const PRONOUNS: [&str; 12] = [
    "it", "its", "they", "their", "this", "that", "these", "those", "the same", "what", "who", "so",
];
/// What ends a program, or a test of a program's own, at run time.
const PANICS: [&str; 9] = [
    "panic!",
    "assert!",
    "assert_eq!",
    "assert_ne!",
    "unreachable!",
    "todo!",
    "unimplemented!",
    ".unwrap()",
    ".expect(",
];
/// Words that an item behind `pub` begins with.
const ITEMS: [&str; 9] = [
    "fn", "struct", "enum", "union", "trait", "const", "static", "type", "mod",
];
/// Words that may stand between `pub` and the item's.
const QUALIFIERS: [&str; 4] = ["async", "unsafe", "extern", "const"];

/// Counts of a text, or of several.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    /// Lines with code, without those of tests.
    pub(super) code: u64,
    /// Lines with code of tests.
    pub(super) tests: u64,
    /// Lines with nothing but a comment, without those of tests.
    pub(super) comments: u64,
    /// Lines of each function, from `fn` to the closing brace.
    pub(super) functions: Vec<u64>,
    /// All lines of each file.
    pub(super) files: Vec<u64>,
    /// Public items, and those with a doc comment.
    pub(super) public: [u64; 2],
    /// `unsafe` blocks, and those with a SAFETY comment above their statement.
    pub(super) unsafe_blocks: [u64; 2],
    /// Functions that are `unsafe`.
    pub(super) unsafe_functions: u64,
    /// Panics and assertions.
    pub(super) panics: u64,
    /// Doc comments, and those that open with a pronoun.
    pub(super) docs: [u64; 2],
}

impl Counts {
    /// Counts a text; all of it is a test's if `is_test`.
    pub(super) fn of(text: &str, is_test: bool) -> Counts {
        let source = Source::new(text);
        if is_test {
            return Counts {
                tests: source.lines.iter().filter(|line| line.has_code()).count() as u64,
                ..Counts::default()
            };
        }
        source.counts()
    }

    /// Adds the counts of another text.
    pub(super) fn add(&mut self, other: &Counts) {
        self.code += other.code;
        self.tests += other.tests;
        self.comments += other.comments;
        self.functions.extend(&other.functions);
        self.files.extend(&other.files);
        for (sum, more) in [
            (&mut self.public, other.public),
            (&mut self.unsafe_blocks, other.unsafe_blocks),
            (&mut self.docs, other.docs),
        ] {
            sum.iter_mut()
                .zip(more)
                .for_each(|(sum, more)| *sum += more);
        }
        self.unsafe_functions += other.unsafe_functions;
        self.panics += other.panics;
    }
}

/// Returns the value that `percent` of the values do not exceed, by the nearest rank; 0 of none.
pub(super) fn percentile(values: &[u64], percent: u64) -> u64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    let rank = (sorted.len() as u64 * percent).div_ceil(100).max(1);
    let at = usize::try_from(rank - 1).unwrap_or(usize::MAX);
    sorted.get(at).copied().unwrap_or(0)
}

/// A line of a source.
#[derive(Clone, Debug, Default)]
struct Line {
    /// Where the line begins in the text.
    start: usize,
    /// The line without comments, literals blanked.
    code: String,
    /// The text of a comment on the line.
    comment: String,
    /// Whether the comment documents an item or a module.
    is_doc: bool,
    is_test: bool,
}

impl Line {
    fn has_code(&self) -> bool {
        !self.code.trim().is_empty()
    }

    fn is_comment(&self) -> bool {
        !self.has_code() && !self.comment.is_empty()
    }
}

/// A text that is told apart.
struct Source {
    lines: Vec<Line>,
    /// The text, byte by byte, with comments and literals blanked.
    masked: Vec<u8>,
}

impl Source {
    fn new(text: &str) -> Source {
        let mut scanner = Scanner::new(text);
        scanner.scan();
        let mut source = Source {
            lines: scanner.lines,
            masked: scanner.masked,
        };
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

    fn counts(&self) -> Counts {
        let code = self.lines.iter().filter(|line| line.has_code());
        let (tests, code): (Vec<&Line>, Vec<&Line>) = code.partition(|line| line.is_test);
        let comments = self
            .lines
            .iter()
            .filter(|line| line.is_comment() && !line.is_test);
        Counts {
            code: code.len() as u64,
            tests: tests.len() as u64,
            comments: comments.count() as u64,
            functions: self.functions().map(|lines| lines.len() as u64).collect(),
            files: vec![self.lines.len() as u64],
            public: self.public_items(),
            unsafe_blocks: self.unsafe_blocks(),
            unsafe_functions: self.unsafe_functions(),
            panics: self.panics(),
            docs: self.docs(),
        }
    }

    fn unsafe_functions(&self) -> u64 {
        let own = self.lines.iter().filter(|line| !line.is_test);
        let is_unsafe = |line: &&Line| {
            let code = &line.code;
            let is_foreign = words(code, "unsafe extern") > 0 && words(code, "fn") > 0;
            is_foreign || words(code, "unsafe fn") > 0
        };
        own.filter(is_unsafe).count() as u64
    }

    /// Returns the panics and assertions, without those that the compiler evaluates.
    fn panics(&self) -> u64 {
        let is_own = |line: &&Line| !line.is_test && !line.code.starts_with("const _: () =");
        let own = self.lines.iter().filter(is_own);
        own.flat_map(|line| PANICS.map(|panic| words(&line.code, panic)))
            .sum()
    }

    /// Returns the index of the line that holds this byte.
    fn line_at(&self, at: usize) -> usize {
        let behind = self.lines.partition_point(|line| line.start <= at);
        behind.saturating_sub(1)
    }

    /// Returns the lines of each function that has a body.
    fn functions(&self) -> impl Iterator<Item = Range<usize>> {
        let starts = self.starts_of("fn");
        starts.filter_map(|start| {
            let end = self.end_of_item(start + 2)?;
            let has_body = self.masked.get(end - 1) == Some(&b'}');
            has_body.then(|| self.line_at(start)..self.line_at(end - 1) + 1)
        })
    }

    /// Iterates over the places of a word, where a name follows.
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

    /// Returns the first byte behind the item or statement that goes on at `from`: behind a `;` or a
    /// body in braces. What is no item ends at a `,` too.
    fn end_of_item(&self, from: usize) -> Option<usize> {
        let rest = self.masked.get(from..)?;
        let first: Vec<u8> = rest
            .iter()
            .copied()
            .skip_while(u8::is_ascii_whitespace)
            .take_while(|byte| is_name(*byte))
            .collect();
        let is_item = ["pub", "impl", "use", "macro_rules"]
            .iter()
            .chain(&ITEMS)
            .chain(&QUALIFIERS)
            .any(|word| word.as_bytes() == first)
            || self
                .masked
                .get(..from)
                .is_some_and(|before| before.ends_with(b"fn"));
        let mut depth = 0_u32;
        let mut braces = 0_u32;
        for (offset, byte) in rest.iter().enumerate() {
            match byte {
                b'(' | b'[' => depth += 1,
                b')' | b']' if depth == 0 => return Some(from + offset),
                b')' | b']' => depth -= 1,
                b'{' => braces += 1,
                b'}' if braces == 0 => return Some(from + offset),
                b'}' => {
                    braces -= 1;
                    if braces == 0 && depth == 0 {
                        return Some(from + offset + 1);
                    }
                }
                b';' if braces == 0 && depth == 0 => return Some(from + offset + 1),
                b',' if braces == 0 && depth == 0 && !is_item => return Some(from + offset + 1),
                _ => {}
            }
        }
        None
    }

    /// Returns what no shipped image has, each with its attribute.
    fn test_spans(&self, text: &str) -> Vec<Range<usize>> {
        let mut spans: Vec<Range<usize>> = Vec::new();
        let masked = &self.masked;
        let starts = masked.windows(2).enumerate();
        for (start, _) in starts.filter(|(_, window)| window == b"#[") {
            let is_inside = spans.iter().any(|span| span.contains(&start));
            let Some(end) = self.end_of_attribute(start) else {
                continue;
            };
            if is_inside || !text.get(start..end).is_some_and(is_test_attribute) {
                continue;
            }
            // Behind all attributes, the item.
            let mut item = self.skip_blank(end);
            while masked
                .get(item..)
                .is_some_and(|rest| rest.starts_with(b"#["))
            {
                let Some(end) = self.end_of_attribute(item) else {
                    break;
                };
                item = self.skip_blank(end);
            }
            let end = self.end_of_item(item).unwrap_or(masked.len());
            spans.push(start..end);
        }
        spans
    }

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

    fn skip_blank(&self, from: usize) -> usize {
        let rest = self.masked.get(from..).unwrap_or_default();
        let blank = rest.iter().take_while(|byte| byte.is_ascii_whitespace());
        from + blank.count()
    }

    /// Returns the public items, and how many are documented.
    fn public_items(&self) -> [u64; 2] {
        let is_public = |line: &Line| {
            let code = line.code.trim_start();
            let mut words = code.strip_prefix("pub ")?.split([' ', '(', '<']);
            let is_qualifier = |word: &str| QUALIFIERS.contains(&word) || word.starts_with('"');
            let item = words.find(|word| !is_qualifier(word) && !word.is_empty());
            // `pub const NAME`: the qualifier is the item.
            let is_constant = code.starts_with("pub const ");
            let item = item.filter(|word| ITEMS.contains(word) || is_constant);
            item.map(|_| ())
        };
        let mut counts = [0, 0];
        for (number, line) in self.lines.iter().enumerate() {
            if line.is_test || is_public(line).is_none() {
                continue;
            }
            // A module in a file of its own has its documentation there.
            if line.code.trim_start().starts_with("pub mod ") && line.code.contains(';') {
                continue;
            }
            counts[0] += 1;
            let above = self.lines.get(..number).unwrap_or_default().iter().rev();
            let is_above = |line: &&Line| {
                let code = line.code.trim();
                line.is_comment() || code.starts_with("#[") || code.ends_with(")]") || code == "]"
            };
            let is_documented = |line: &Line| line.is_doc || line.code.contains("#[doc");
            let mut above = above.take_while(is_above);
            counts[1] += u64::from(above.any(is_documented));
        }
        counts
    }

    /// Returns the `unsafe` blocks, and how many have a SAFETY comment above their statement.
    fn unsafe_blocks(&self) -> [u64; 2] {
        let mut counts = [0, 0];
        for (number, line) in self.lines.iter().enumerate() {
            let blocks = words(&line.code, "unsafe {");
            if line.is_test || blocks == 0 {
                continue;
            }
            counts[0] += blocks;
            let ends = |line: &&Line| line.has_code() && line.code.trim_end().ends_with([';', '}']);
            let above = self.lines.get(..number).unwrap_or_default().iter().rev();
            let mut comment = above
                .skip_while(|line| !line.is_comment() && !ends(line))
                .take_while(|line| line.is_comment());
            let is_argued = |line: &Line| line.comment.contains("SAFETY");
            if comment.any(is_argued) || is_argued(line) || self.is_argued_inside(number) {
                counts[1] += blocks;
            }
        }
        counts
    }

    /// Tells whether the first line of a block is a SAFETY comment.
    fn is_argued_inside(&self, number: usize) -> bool {
        let opens = |line: &Line| line.code.trim_end().ends_with('{');
        let argues = |line: &Line| line.is_comment() && line.comment.contains("SAFETY");
        let at = |number: usize| self.lines.get(number);
        at(number).is_some_and(opens) && at(number + 1).is_some_and(argues)
    }

    /// Returns the doc comments, and how many open with a pronoun.
    fn docs(&self) -> [u64; 2] {
        let mut counts = [0, 0];
        let mut before = false;
        for line in &self.lines {
            let is_doc = line.is_doc && line.is_comment();
            if is_doc && !before && !line.is_test {
                counts[0] += 1;
                counts[1] += u64::from(opens_with_pronoun(&line.comment));
            }
            before = is_doc;
        }
        counts
    }
}

/// Tells whether an attribute keeps its item out of the images that ship.
fn is_test_attribute(attribute: &str) -> bool {
    let inner = attribute.trim_start_matches("#[").trim_start();
    let condition = inner.strip_prefix("cfg(");
    let Some(condition) = condition else {
        return ["test]", "tokio::test", "bench]"]
            .iter()
            .any(|test| inner.starts_with(test));
    };
    let is_checking = condition.starts_with("feature = \"check-");
    let has_test = words(condition, "test") > 0;
    let is_negated = condition.starts_with("not(");
    (is_checking || has_test) && !is_negated
}

fn opens_with_pronoun(comment: &str) -> bool {
    let text = comment
        .trim_start_matches(['/', '!', '*'])
        .trim_start()
        .to_lowercase();
    PRONOUNS.iter().any(|pronoun| {
        let rest = text.strip_prefix(pronoun);
        rest.is_some_and(|rest| !rest.starts_with(|next: char| next.is_alphanumeric()))
    })
}

/// Counts how often `what` stands in a line of code and is no part of a longer name.
fn words(code: &str, what: &str) -> u64 {
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

const fn is_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80
}

/// What the scanner is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Code,
    LineComment,
    /// How deep block comments nest.
    BlockComment(u32),
    Text,
    /// A raw string, by the number of its `#`.
    RawText(usize),
}

struct Scanner<'t> {
    text: &'t [u8],
    at: usize,
    state: State,
    /// Whether the comment documents something.
    is_doc: bool,
    lines: Vec<Line>,
    masked: Vec<u8>,
}

impl<'t> Scanner<'t> {
    fn new(text: &'t str) -> Scanner<'t> {
        Scanner {
            text: text.as_bytes(),
            at: 0,
            state: State::Code,
            is_doc: false,
            lines: Vec::new(),
            masked: Vec::new(),
        }
    }

    fn scan(&mut self) {
        while self.at < self.text.len() {
            let end = self.text.get(self.at..).unwrap_or_default();
            let end = end.iter().position(|byte| *byte == b'\n');
            let end = end.map_or(self.text.len(), |length| self.at + length);
            self.line(end);
            self.masked.push(b'\n');
            self.at = end + 1;
        }
        self.masked.truncate(self.text.len());
    }

    /// Scans up to the end of a line.
    fn line(&mut self, end: usize) {
        let mut line = Line {
            start: self.at,
            ..Line::default()
        };
        let (mut code, mut comment) = (Vec::new(), Vec::new());
        while self.at < end {
            let before = self.state;
            let (length, next) = self.step();
            let length = length.min(end - self.at);
            let bytes = self.text.get(self.at..self.at + length).unwrap_or_default();
            let is_comment = |state| matches!(state, State::LineComment | State::BlockComment(_));
            if is_comment(before) || is_comment(next) {
                comment.extend_from_slice(bytes);
                line.is_doc |= self.is_doc;
                code.resize(code.len() + length, b' ');
            } else if before == State::Code && next == State::Code && length == 1 {
                code.extend_from_slice(bytes);
            } else {
                // A literal: its ends stand for it.
                code.resize(code.len() + length, b'"');
            }
            self.at += length;
            self.state = next;
        }
        if self.state == State::LineComment {
            self.state = State::Code;
        }
        self.masked.extend_from_slice(&code);
        line.code = String::from_utf8_lossy(&code).into_owned();
        line.comment = String::from_utf8_lossy(&comment).into_owned();
        self.lines.push(line);
    }

    /// Returns how many bytes go together, and the state behind them.
    fn step(&mut self) -> (usize, State) {
        let rest = self.text.get(self.at..).unwrap_or_default();
        match self.state {
            State::Code => self.code(rest),
            State::LineComment => (1, State::LineComment),
            State::BlockComment(depth) => match rest {
                [b'*', b'/', ..] if depth == 0 => (2, State::Code),
                [b'*', b'/', ..] => (2, State::BlockComment(depth - 1)),
                [b'/', b'*', ..] => (2, State::BlockComment(depth + 1)),
                _ => (1, State::BlockComment(depth)),
            },
            State::Text => match rest {
                [b'\\', _, ..] => (2, State::Text),
                [b'"', ..] => (1, State::Code),
                _ => (1, State::Text),
            },
            State::RawText(hashes) => {
                let closes = rest.first() == Some(&b'"')
                    && rest
                        .get(1..=hashes)
                        .is_some_and(|end| end.iter().all(|b| *b == b'#'));
                if closes {
                    (1 + hashes, State::Code)
                } else {
                    (1, State::RawText(hashes))
                }
            }
        }
    }

    fn code(&mut self, rest: &[u8]) -> (usize, State) {
        let before = self.at.checked_sub(1).and_then(|at| self.text.get(at));
        let is_in_name = before.is_some_and(|byte| is_name(*byte));
        match rest {
            [b'/', b'/', ..] => {
                let is_plain = rest.starts_with(b"////");
                let is_doc = rest.starts_with(b"///") || rest.starts_with(b"//!");
                self.is_doc = is_doc && !is_plain;
                (2, State::LineComment)
            }
            [b'/', b'*', ..] => {
                let is_empty = rest.starts_with(b"/**/") || rest.starts_with(b"/***");
                let is_doc = rest.starts_with(b"/**") || rest.starts_with(b"/*!");
                self.is_doc = is_doc && !is_empty;
                (2, State::BlockComment(0))
            }
            [b'"', ..] => (1, State::Text),
            [b'r', b'"' | b'#', ..] | [b'b', b'r', b'"' | b'#', ..] if !is_in_name => {
                let prefix = 1 + usize::from(rest.first() == Some(&b'b'));
                let behind = rest.get(prefix..).unwrap_or_default();
                let hashes = behind.iter().take_while(|byte| **byte == b'#').count();
                // `r#name` is a name.
                match behind.get(hashes) {
                    Some(b'"') => (prefix + hashes + 1, State::RawText(hashes)),
                    Some(_) | None => (1, State::Code),
                }
            }
            [b'\'', b'\\', _, ..] => {
                let end = rest.iter().skip(3).position(|byte| *byte == b'\'');
                (end.map_or(1, |length| length + 4), State::Code)
            }
            [b'\'', ..] => (character(rest), State::Code),
            _ => (1, State::Code),
        }
    }
}

/// Returns the bytes of a character literal, or 1 for a lifetime's quote.
fn character(rest: &[u8]) -> usize {
    let text = rest.get(..rest.len().min(6)).unwrap_or_default();
    let first = text.get(1).copied().unwrap_or(0);
    let length = match first {
        0..0x80 => 1,
        0x80..0xe0 => 2,
        0xe0..0xf0 => 3,
        0xf0.. => 4,
    };
    match text.get(1 + length) {
        Some(b'\'') => length + 2,
        Some(_) | None => 1,
    }
}

#[cfg(test)]
mod tests;
