//! Faults in the text of a manifest, before there is a tree.
//!
//! dtc judges: only what dtc refuses is looked at here. dtc tells of most mistakes as "syntax
//! error" at the token behind the mistake. This module reads the same text as a person would, and
//! finds the place, the reason and the repair. A text in which no fault is found keeps dtc's words.

mod include;
mod lexer;
mod parser;
#[cfg(test)]
mod tests;
mod value;

use std::ops::Range;
use std::path::Path;

pub(super) use include::Texts;

/// Most faults that are told of at once: what follows from the first ones is noise.
const MOST_FAULTS: usize = 8;

/// A fault in a source.
#[derive(Clone, Debug)]
pub(super) struct Fault {
    /// Number of the source in [`Texts`].
    pub file: usize,
    /// Bytes of the source.
    pub range: Range<usize>,
    pub message: String,
    /// Repair in words.
    pub help: String,
    /// Text that repairs, in place of the range.
    pub repair: Option<String>,
    /// The other place, of a name that stands twice.
    pub other: Option<(usize, Range<usize>)>,
}

impl Fault {
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

    fn repaired(self, text: impl Into<String>) -> Self {
        Self {
            repair: Some(text.into()),
            ..self
        }
    }

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

/// Returns the numbers of a manifest that dtc reads as octal: nobody writes a size like that.
pub(super) fn octal_numbers(main: &Path) -> (Texts, Vec<Fault>) {
    let (texts, tokens, _) = include::read(main);
    let mut found = Vec::new();
    let mut is_cell = false;
    for token in &tokens {
        is_cell = match token.kind {
            lexer::Kind::Mark('<') => true,
            lexer::Kind::Mark('>') => false,
            _ => is_cell,
        };
        found.extend(octal_fault(&texts, token).filter(|_| is_cell));
    }
    (texts, found)
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
