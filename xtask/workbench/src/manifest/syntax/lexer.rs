//! Tokens of device tree source (Devicetree Specification 0.4, chapter 6).
//!
//! Owns the faults of characters: quotes of word processors, blanks that are none, strings and
//! comments that never end.
//!
//! A fault of the lexer is one that no later token could tell of: a comment or a string without an
//! end takes the rest of the file.

use std::ops::Range;

use super::Fault;

/// Kind of a token. Fewer kinds than dtc's own lexer has: context tells a number from a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A name or a number: the same characters serve both.
    Word,
    /// A string in double quotes.
    Text,
    /// A character in single quotes.
    Character,
    /// `/name/`, as in `/include/`.
    Directive,
    /// `&label`, or `&{/path}`.
    Reference,
    /// One character of punctuation.
    Mark(char),
}

/// A piece of a source. Texts stay in their sources; a token is a range.
#[derive(Clone, Debug)]
pub(super) struct Token {
    /// Told by the first character, mostly.
    pub(super) kind: Kind,
    /// Number of the source.
    pub(super) file: usize,
    /// Bytes of the source.
    pub(super) range: Range<usize>,
}

impl Token {
    /// Tells whether the token is this punctuation.
    pub(super) fn is(&self, mark: char) -> bool {
        self.kind == Kind::Mark(mark)
    }
}

/// Splits a source into tokens; comments and blanks are none. Never fails: a fault is noted, and
/// reading goes on behind it.
pub(super) fn tokens(file: usize, text: &str) -> (Vec<Token>, Vec<Fault>) {
    let mut lexer = Lexer {
        file,
        text,
        at: 0,
        tokens: Vec::new(),
        faults: Vec::new(),
    };
    while lexer.step() {}
    (lexer.tokens, lexer.faults)
}

/// By characters and not bytes, since faults of encoding are what it looks for.
struct Lexer<'t> {
    file: usize,
    text: &'t str,
    /// Offset of the next character.
    at: usize,
    /// Tokens so far.
    tokens: Vec<Token>,
    /// Faults so far, in the order of the text.
    faults: Vec<Fault>,
}

impl Lexer<'_> {
    /// Reads a token, a blank or a comment. `false`: the source ends here. The order of arms is
    /// that of the specification's ambiguities: `/` begins three things.
    fn step(&mut self) -> bool {
        let rest = &self.text[self.at..];
        let Some(first) = rest.chars().next() else {
            return false;
        };
        let line = rest.find('\n').unwrap_or(rest.len());
        match first {
            _ if first.is_ascii_whitespace() => self.at += 1,
            '/' if rest.starts_with("//") => self.at += line,
            '/' if rest.starts_with("/*") => self.comment(),
            '/' => match directive_length(rest) {
                Some(length) => self.push(Kind::Directive, length),
                None => self.push(Kind::Mark('/'), 1),
            },
            '"' => self.quoted(),
            '\'' => self.in_single_quotes(&rest[..line]),
            _ if OTHER_QUOTES.contains(first) => self.in_other_quotes(&rest[..line]),
            '&' => self.push(Kind::Reference, reference_length(rest)),
            // A comma within a name is the vendor's; one in front stands between values.
            ',' => self.push(Kind::Mark(','), 1),
            _ if is_word(first) => {
                let length = rest.find(|other| !is_word(other)).unwrap_or(rest.len());
                self.push(Kind::Word, length);
            }
            _ if first.is_ascii_graphic() => self.push(Kind::Mark(first), 1),
            _ => self.foreign(first),
        }
        true
    }

    /// Reads a character in single quotes, which is a number; people mean a string. dtc reads one
    /// character as its code.
    fn in_single_quotes(&mut self, line: &str) {
        let Some(end) = line[1..].find('\'').map(|end| end + 1) else {
            let help = "strings stand in double quotes: \"text\"";
            return self.fault(1, "the quote has no partner on its line", help, None);
        };
        let inside = &line[1..end];
        if inside.chars().count() == 1 || inside.starts_with('\\') {
            return self.push(Kind::Character, end + 1);
        }
        let help = "write double quotes";
        let what = "a string stands in double quotes";
        self.fault(end + 1, what, help, Some(format!("\"{inside}\"")));
    }

    /// Reads a string in quotes as word processors and other languages have them. The repair
    /// replaces both quotes at once.
    fn in_other_quotes(&mut self, line: &str) {
        let mut inside = line.char_indices().skip(1);
        let end = inside.find(|(_, one)| OTHER_QUOTES.contains(*one) || *one == '"');
        let Some((end, last)) = end else {
            let first = line.chars().next().map_or(1, char::len_utf8);
            return self.fault(first, "these quotes are typographic", "write \"", None);
        };
        let length = end + last.len_utf8();
        let trim = |one: char| OTHER_QUOTES.contains(one) || one == '"';
        let text = line[..length].trim_matches(trim);
        let repair = Some(format!("\"{text}\""));
        self.fault(
            length,
            "these quotes are typographic",
            "write plain double quotes",
            repair,
        );
    }

    /// Reads a character that has no place outside of strings and comments. Pages and chats put
    /// such characters in place of blanks and dashes; on a screen they look right.
    fn foreign(&mut self, one: char) {
        let plain = match one {
            '\u{a0}' | '\u{2007}' | '\u{202f}' | '\u{3000}' => Some(" "),
            '\u{2010}'..='\u{2015}' | '\u{2212}' => Some("-"),
            '\u{200b}' | '\u{200c}' | '\u{200d}' | '\u{2060}' | '\u{feff}' => Some(""),
            _ => None,
        };
        let what = format!(
            "the character U+{:04X} has no place outside of strings and comments",
            u32::from(one)
        );
        let help = match plain {
            Some(" ") => "write a plain blank",
            Some("-") => "write a plain -",
            Some(_) => "remove it; editors do not show it",
            None => "names have letters from a to z, digits, and , . _ + * # ? @ -",
        };
        self.fault(one.len_utf8(), &what, help, plain.map(str::to_owned));
    }

    /// Reports the next `length` bytes, and passes over them. Later tokens come out as if it were
    /// repaired.
    fn fault(&mut self, length: usize, what: &str, help: &str, repair: Option<String>) {
        let range = self.at..self.at + length;
        self.at = range.end;
        let fault = Fault::new(self.file, range, what, help);
        self.faults.push(Fault { repair, ..fault });
    }

    /// Adds the token that the next `length` bytes are.
    fn push(&mut self, kind: Kind, length: usize) {
        let range = self.at..self.at + length;
        self.at = range.end;
        self.tokens.push(Token {
            kind,
            file: self.file,
            range,
        });
    }

    /// Reads a comment, which ends at the first `*/` whatever stands in it. An end that is missing
    /// takes the rest of the file with it.
    fn comment(&mut self) {
        let Some(inside) = self.text[self.at + 2..].find("*/") else {
            self.fault(2, "the comment has no end", "end the comment with */", None);
            self.at = self.text.len();
            return;
        };
        let end = self.at + 2 + inside + 2;
        self.comment_in_comment(end);
        self.at = end;
    }

    /// Reports a comment up to `end` in which another one begins: either it was to go on behind the
    /// inner one's end, or its own end is missing, and it takes in what was to count. A path such
    /// as `/soc/*` in a comment begins none, nor does a comment in which prose alone stands before.
    /// Reported only where it did harm: a repair of what is right would annoy. The first `*/` ends
    /// both, and what follows is read as text of the manifest.
    fn comment_in_comment(&mut self, end: usize) {
        let (outer, body) = (self.at..self.at + 2, self.at + 2..end - 2);
        let Some(inner) = opener(&self.text[body.clone()]) else {
            return;
        };
        let inner = body.start + inner;
        let rest = &self.text[end..];
        let goes_on = match (rest.find("*/"), rest.find("/*")) {
            (Some(close), Some(open)) => close < open,
            (close, _) => close.is_some(),
        };
        let mut before = self.text[body.start..inner].lines();
        let hides_code = before.any(|line| line.trim_end().ends_with([';', '{']));
        let (what, help) = match (goes_on, hides_code) {
            (true, _) => (
                "comments do not nest: the first */ ends both",
                "end this one before the other begins, or write // in front of each line",
            ),
            (false, true) => (
                "the comment has no end before the next one begins",
                "end it with */ where it was to end",
            ),
            (false, false) => return,
        };
        let fault = Fault::new(self.file, outer, what, help);
        self.faults.push(fault.against(self.file, inner..inner + 2));
    }

    /// Reads a string. dtc lets a string go on over the end of the line. Where that takes in what
    /// was to count, the closing quote is missing. A string that goes on over a line's end swallows
    /// the properties there.
    fn quoted(&mut self) {
        let rest = &self.text[self.at..];
        if let Some(length) = string_length(rest) {
            let inside = &rest[..length];
            let is_joined = inside.contains("\\\n");
            if !inside.contains('\n') || is_whole(inside, &rest[length..]) && !is_joined {
                return self.push(Kind::Text, length);
            }
            if is_joined {
                let parts = inside.split("\\\n").map(str::trim_start);
                let repair = Some(parts.collect::<String>());
                let what = "a \\ does not join the lines of a string";
                return self.fault(length, what, "write the string in one line", repair);
            }
        }
        let line = rest.lines().next().unwrap_or_default().trim_end();
        let length = line.trim_end_matches(';').len().max(1);
        let closed = Some(format!("{}\"", &line[..length]));
        let what = "the string has no closing quote on its line";
        self.fault(length, what, "close the string with \"", closed);
    }
}

/// Returns the length of the string at the start of `text`, quotes included.
fn string_length(text: &str) -> Option<usize> {
    let mut escaped = false;
    let end = text.char_indices().skip(1).find(|(_, one)| {
        let is_end = *one == '"' && !escaped;
        escaped = *one == '\\' && !escaped;
        is_end
    });
    end.map(|(at, _)| at + 1)
}

/// Tells whether a string of several lines ends where its author meant it to: a value goes on or
/// ends behind it, and no line of it ends as code does.
fn is_whole(inside: &str, behind: &str) -> bool {
    let ends_as_code = |line: &str| line.trim_end().ends_with([';', '{', '}']);
    behind.trim_start().starts_with([';', ',']) && !inside.lines().any(ends_as_code)
}

/// Returns where a comment begins in the text of another one. A person puts a blank before it.
/// `/soc/*` and the like have no blank before.
fn opener(text: &str) -> Option<usize> {
    let mut found = text.match_indices("/*").map(|(at, _)| at);
    found.find(|at| text[..*at].ends_with(char::is_whitespace))
}

/// Quotes that are none in device tree source. Those of English, German and French typography, and
/// the backquote.
const OTHER_QUOTES: &str = "\u{201c}\u{201d}\u{201e}\u{201f}\u{2018}\u{2019}\u{201a}\u{ab}\u{bb}`";

/// Characters of names of nodes and properties, and of numbers. The specification's set for names
/// (2.2.1 and 2.2.4).
fn is_word(one: char) -> bool {
    one.is_ascii_alphanumeric() || ",._+*#?@-".contains(one)
}

/// Returns the length of `/name/`, if the text begins with one.
fn directive_length(text: &str) -> Option<usize> {
    let name = text.strip_prefix('/')?;
    let length = name.find(|one: char| !one.is_ascii_alphanumeric() && one != '-')?;
    (length > 0 && name[length..].starts_with('/')).then_some(length + 2)
}

/// Returns the length of a reference; one without its brace goes to the end.
fn reference_length(text: &str) -> usize {
    let end = match text.starts_with("&{") {
        true => text.find('}').map(|end| end + 1),
        false => text[1..].find(|one| !is_word(one)).map(|end| end + 1),
    };
    end.unwrap_or(text.len())
}
