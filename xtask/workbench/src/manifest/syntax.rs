//! Faults in the text of a manifest, before there is a tree.
//!
//! dtc judges: only what dtc refuses is looked at here. dtc tells of most mistakes as "syntax
//! error" at the token behind the mistake. This module reads the same text as a person would, and
//! finds the place, the reason and the repair. A text in which no fault is found keeps dtc's words.

mod include;
mod layout;
mod lexer;
mod parser;
mod surprise;
#[cfg(test)]
mod tests;
mod value;

use std::ops::Range;
use std::path::Path;

pub(super) use include::{Texts, text_of};
pub(super) use surprise::surprises;

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
