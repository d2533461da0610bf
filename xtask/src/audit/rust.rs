//! Counts of a Rust source: lines, functions, documentation, `unsafe`, panics.
//!
//! Owns a scanner that tells code from comments and literals, and no more of Rust's grammar than
//! the counts need. Code under `#[cfg(test)]`, `#[test]`, or a feature that no image ships with (of
//! a checking image, of hosts) counts as tests. The scanner takes any text: what it does not
//! understand counts as code.

mod items;
mod scan;

pub(super) use self::items::{Linked, Statements, longer_functions};
use self::items::{Source, words};
use self::scan::Line;

/// Openings of a doc comment that name no subject. The style wants a subject first; the review of
/// the tree counted these.
const PRONOUNS: [&str; 12] = [
    "it", "its", "they", "their", "this", "that", "these", "those", "the same", "what", "who", "so",
];
/// Macros and methods that end a program, or a test of a program's own, at run time. What tests do
/// is left out before these are counted.
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
/// Words that an item behind `pub` begins with. Fields and variants are no items, and neither are
/// methods of traits without `pub`.
const ITEMS: [&str; 9] = [
    "fn", "struct", "enum", "union", "trait", "const", "static", "type", "mod",
];
/// Words that may stand between `pub` and the item's. `extern` has its ABI behind, a word in
/// quotes.
const QUALIFIERS: [&str; 4] = ["async", "unsafe", "extern", "const"];

/// Counts of a text, or of several. Raw numbers and no ratios, so that counts of files can be
/// added.
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
    /// Counts a text; all of it is a test's if `is_test`. A file of tests has no functions or
    /// documents that a reader of the product meets.
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

    /// Adds the counts of another text. Lists of lengths are joined, since a percentile of
    /// percentiles means nothing.
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
/// Nearest rank: the value is one that really occurs.
pub(super) fn percentile(values: &[u64], percent: u64) -> u64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    let rank = (sorted.len() as u64 * percent).div_ceil(100).max(1);
    let at = usize::try_from(rank - 1).unwrap_or(usize::MAX);
    sorted.get(at).copied().unwrap_or(0)
}

impl Source {
    /// Tests inside the file are counted apart, so that the ratio of comments is the product's.
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

    /// Foreign declarations count too, of which callers have to know a condition.
    fn unsafe_functions(&self) -> u64 {
        let own = self.lines.iter().filter(|line| !line.is_test);
        let is_unsafe = |line: &&Line| {
            let code = &line.code;
            let is_foreign = words(code, "unsafe extern") > 0 && words(code, "fn") > 0;
            is_foreign || words(code, "unsafe fn") > 0
        };
        own.filter(is_unsafe).count() as u64
    }

    /// Returns the panics and assertions, without those that the compiler evaluates. `const _: () =
    /// assert!(...)` fails a build and never a machine.
    fn panics(&self) -> u64 {
        let is_own = |line: &&Line| !line.is_test && !line.code.starts_with("const _: () =");
        let own = self.lines.iter().filter(is_own);
        own.flat_map(|line| PANICS.map(|panic| words(&line.code, panic)))
            .sum()
    }

    /// Returns the public items, and how many are documented. `pub(crate)` is left out: other
    /// crates cannot name it.
    fn public_items(&self) -> [u64; 2] {
        let mut counts = [0, 0];
        for (number, line) in self.lines.iter().enumerate() {
            // A module in a file of its own has its documentation there.
            let is_elsewhere =
                line.code.trim_start().starts_with("pub mod ") && line.code.contains(';');
            if line.is_test || is_elsewhere || !begins_public_item(&line.code) {
                continue;
            }
            counts[0] += 1;
            counts[1] += u64::from(self.is_documented(number));
        }
        counts
    }

    /// Tells whether the comments and attributes above an item's first line document the item.
    /// Attributes may stand between the comment and the item.
    fn is_documented(&self, number: usize) -> bool {
        let above = self.lines.get(..number).unwrap_or_default().iter().rev();
        let is_above = |line: &&Line| {
            let code = line.code.trim();
            line.is_comment() || code.starts_with("#[") || code.ends_with(")]") || code == "]"
        };
        let documents = |line: &Line| line.is_doc || line.code.contains("#[doc");
        above.take_while(is_above).any(documents)
    }

    /// Returns the `unsafe` blocks, and how many have a SAFETY comment above their statement. The
    /// style wants one operation a block with its proof beside it; blocks on one line share a
    /// comment.
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

    /// Tells whether the first line of a block is a SAFETY comment. rustfmt moves a comment into a
    /// block that it breaks.
    fn is_argued_inside(&self, number: usize) -> bool {
        let opens = |line: &Line| line.code.trim_end().ends_with('{');
        let argues = |line: &Line| line.is_comment() && line.comment.contains("SAFETY");
        let at = |number: usize| self.lines.get(number);
        at(number).is_some_and(opens) && at(number + 1).is_some_and(argues)
    }

    /// Returns the doc comments, and how many open with a pronoun. Consecutive lines are one
    /// comment: only its first word is judged.
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

/// Tells whether a line of code begins an item that is public everywhere. A macro's output is not
/// seen; the few that make items document them by themselves.
fn begins_public_item(code: &str) -> bool {
    let code = code.trim_start();
    let Some(behind) = code.strip_prefix("pub ") else {
        return false;
    };
    let is_qualifier = |word: &str| QUALIFIERS.contains(&word) || word.starts_with('"');
    let mut words = behind.split([' ', '(', '<']);
    let item = words.find(|word| !is_qualifier(word) && !word.is_empty());
    // `pub const NAME`: the qualifier is the item.
    let is_constant = code.starts_with("pub const ");
    item.is_some_and(|word| ITEMS.contains(&word) || is_constant)
}

/// The word must end there: "Items" begins with "it".
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

#[cfg(test)]
mod tests;
