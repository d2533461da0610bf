//! Faults in the text of a manifest, before there is a tree.
//!
//! dtc judges: only what dtc refuses is looked at here. dtc tells of most mistakes as "syntax
//! error" at the token behind the mistake. This module reads the same text as a person would, and
//! finds the place, the reason and the repair. A text in which no fault is found keeps dtc's words.

mod include;
mod layout;
mod lexer;
mod parser;
#[cfg(test)]
mod tests;
mod value;

use std::ops::Range;
use std::path::Path;

pub(super) use include::{Texts, text_of};

/// Most faults that are told of at once: what follows from the first ones is noise.
const MOST_FAULTS: usize = 8;

/// A fault in a source.
#[derive(Clone, Debug)]
pub(super) struct Fault {
    /// Number of the source in [`Texts`].
    pub file: usize,
    /// Bytes of the source.
    pub range: Range<usize>,
    /// A statement on the text; the repair is said apart.
    pub message: String,
    /// Repair in words.
    pub help: String,
    /// Text that repairs, in place of the range.
    pub repair: Option<String>,
    /// The other place, of a name that stands twice.
    pub other: Option<(usize, Range<usize>)>,
}

impl Fault {
    /// Neither repair nor second place, which few faults have.
    fn new(
        file: usize,
        range: Range<usize>,
        message: impl Into<String>,
        help: impl Into<String>,
    ) -> Self {
        Self {
            file,
            range,
            message: message.into(),
            help: help.into(),
            repair: None,
            other: None,
        }
    }

    /// The text takes the place of the fault's range.
    fn repaired(self, text: impl Into<String>) -> Self {
        Self {
            repair: Some(text.into()),
            ..self
        }
    }

    /// For what stands twice, or in the wrong order.
    fn against(self, file: usize, range: Range<usize>) -> Self {
        Self {
            other: Some((file, range)),
            ..self
        }
    }
}

/// Returns the texts of a manifest and of what it includes, and the faults in them.
pub(super) fn faults(main: &Path) -> (Texts, Vec<Fault>) {
    let (texts, tokens, mut faults) = include::read(main);
    if faults.is_empty() {
        faults = parser::parse(&texts, &tokens);
    }
    faults.truncate(MOST_FAULTS);
    (texts, faults)
}

/// Returns what dtc takes otherwise than its author means: octal numbers, ranges that are
/// subtractions, references, and comments and strings that go on too far.
pub(super) fn surprises(main: &Path) -> (Texts, Vec<Fault>) {
    let (texts, tokens, mut found) = include::read(main);
    found.extend(references(&tokens));
    let mut is_cell = false;
    for token in &tokens {
        is_cell = match token.kind {
            lexer::Kind::Mark('<') => true,
            lexer::Kind::Mark('>') => false,
            _ => is_cell,
        };
        let odd = octal_fault(&texts, token).or_else(|| subtraction_fault(&texts, token));
        found.extend(odd.filter(|_| is_cell));
    }
    (texts, found)
}

/// Returns the references in values. One before a brace adds to a node of this manifest, and one
/// behind a directive names a node that goes away: both are what they look like.
fn references(tokens: &[lexer::Token]) -> impl Iterator<Item = Fault> {
    let places = tokens.iter().enumerate();
    let found = places.filter(|(at, token)| {
        let before = at.checked_sub(1).and_then(|before| tokens.get(before));
        let is_directed = before.is_some_and(|before| before.kind == lexer::Kind::Directive);
        let is_node = tokens.get(at + 1).is_some_and(|next| next.is('{'));
        token.kind == lexer::Kind::Reference && !is_directed && !is_node
    });
    found.map(|(_, token)| value::reference_fault(token))
}

/// Returns what is wrong with a range in parentheses, where dtc computes.
fn subtraction_fault(texts: &Texts, token: &lexer::Token) -> Option<Fault> {
    let text = texts.of(token);
    let (first, last) = value::range(text).filter(|(first, last)| first < last)?;
    let what = format!("{}: ({text}) is {first} less {last}", value::NO_RANGES);
    let range = token.range.clone();
    Some(Fault::new(token.file, range, what, "write each number"))
}

/// Returns what is wrong with an octal number.
fn octal_fault(texts: &Texts, token: &lexer::Token) -> Option<Fault> {
    let text = texts.of(token);
    let value = value::octal(text)?;
    let plain = text.trim_start_matches('0');
    let what = format!("a number that begins with 0 is octal: {text} is {value}");
    let fault = Fault::new(token.file, token.range.clone(), what, "write it in decimal");
    Some(fault.repaired(if plain.is_empty() { "0" } else { plain }))
}
