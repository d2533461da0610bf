//! Which brace is missing, or one too many: the grammar shows that at the end of the text, and the
//! indentation shows where.

use super::include::Texts;
use super::lexer::Token;

/// An opening brace, or a closing one, and the name of its node.
type Brace<'t> = (&'t Token, &'t Token);

/// Braces whose indentation speaks against the grammar.
#[derive(Default)]
pub(super) struct Layout<'t> {
    /// The first opening brace that a brace of an outer node closes.
    pub(super) unclosed: Option<Brace<'t>>,
    /// The first closing brace that closes an outer node.
    pub(super) early: Option<Brace<'t>>,
}

impl<'t> Layout<'t> {
    /// Notes that `brace` closes the node that `open` opened.
    pub(super) fn close(&mut self, texts: &Texts, open: Brace<'t>, brace: &'t Token) {
        let (opened, name) = open;
        let Some(closes) = indentation(texts, brace) else {
            return;
        };
        // The name may stand behind a label, and the opening brace behind the name.
        let opens = line(texts, opened).map(blanks);
        if opened.file != brace.file || opens == Some(closes) {
            return;
        }
        if opens.is_some_and(|opens| opens > closes) {
            self.unclosed.get_or_insert(open);
        } else {
            self.early.get_or_insert((brace, name));
        }
    }
}

/// Returns the blanks before a token that is the first of its line.
fn indentation(texts: &Texts, token: &Token) -> Option<usize> {
    let line = line(texts, token)?;
    line.trim().is_empty().then_some(line.len())
}

/// Returns the line of a token up to the token.
fn line<'t>(texts: &'t Texts, token: &Token) -> Option<&'t str> {
    let before = texts.text(token.file, &(0..token.range.start));
    before.split('\n').next_back()
}

/// Counts the blanks at the start of a line.
fn blanks(line: &str) -> usize {
    line.len() - line.trim_start().len()
}
