//! A Rust text told apart: code, comments and literals, line by line.

/// A line of a source. One pass makes all of them; the counts and rules ask for nothing else of a
/// text.
#[derive(Clone, Debug, Default)]
pub(super) struct Line {
    /// Where the line begins in the text.
    pub(super) start: usize,
    /// The line without comments, literals blanked.
    pub(super) code: String,
    /// The text of a comment on the line.
    pub(super) comment: String,
    /// Whether the comment documents an item or a module.
    pub(super) is_doc: bool,
    /// Whether only tests have the line; the items set it afterwards.
    pub(super) is_test: bool,
}

impl Line {
    /// A brace alone is code, as in the counts of other projects.
    pub(super) fn has_code(&self) -> bool {
        !self.code.trim().is_empty()
    }

    /// A comment behind code does not count: the ratio is of lines.
    pub(super) fn is_comment(&self) -> bool {
        !self.has_code() && !self.comment.is_empty()
    }
}

/// Returns the lines of a text, and the text with comments and literals blanked, byte by byte.
/// Masking keeps every byte's position, so that a place found in one form is one in the other.
pub(super) fn scan(text: &str) -> (Vec<Line>, Vec<u8>) {
    let mut scanner = Scanner::new(text);
    scanner.scan();
    (scanner.lines, scanner.masked)
}

/// Tells whether a byte may stand in a name. Bytes above ASCII are letters of names, which Rust
/// allows.
pub(super) const fn is_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80
}

/// Context of the next character. States last over line ends, but for a line comment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Code,
    /// Up to the end of the line.
    LineComment,
    /// How deep block comments nest.
    BlockComment(u32),
    /// Between quotes; a backslash takes the next byte with it.
    Text,
    /// A raw string, by the number of its `#`.
    RawText(usize),
}

/// Kind of some bytes between two states. Literals are told from code because a brace or `//` in a
/// string is neither.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Piece {
    Code,
    Comment,
    Literal,
}

/// A byte at a time: all bytes that matter are ASCII, and UTF-8 never has these inside a character.
struct Scanner<'t> {
    /// The source, which may be any bytes.
    text: &'t [u8],
    /// Offset of the next byte.
    at: usize,
    state: State,
    /// Whether the comment documents something.
    is_doc: bool,
    /// Lines that are done.
    lines: Vec<Line>,
    /// As long as the text.
    masked: Vec<u8>,
}

impl<'t> Scanner<'t> {
    /// Code is what a file begins with.
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

    /// Line by line, because the result has a record for each, blank ones included.
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

    /// Scans up to the end of a line. The code of a line is made anew with blanks where comments
    /// were, so that columns stay.
    fn line(&mut self, end: usize) {
        let mut line = Line {
            start: self.at,
            ..Line::default()
        };
        let (mut code, mut comment) = (Vec::new(), Vec::new());
        while self.at < end {
            let (piece, length) = self.piece(end - self.at);
            let bytes = self.text.get(self.at..self.at + length).unwrap_or_default();
            match piece {
                Piece::Comment => {
                    comment.extend_from_slice(bytes);
                    line.is_doc |= self.is_doc;
                    code.resize(code.len() + length, b' ');
                }
                Piece::Code => code.extend_from_slice(bytes),
                // The ends of a literal stand for it.
                Piece::Literal => code.resize(code.len() + length, b'"'),
            }
            self.at += length;
        }
        if self.state == State::LineComment {
            self.state = State::Code;
        }
        self.masked.extend_from_slice(&code);
        line.code = String::from_utf8_lossy(&code).into_owned();
        line.comment = String::from_utf8_lossy(&comment).into_owned();
        self.lines.push(line);
    }

    /// Goes on to the next state. Returns what lies between, and how many bytes of it a line with
    /// `left` more bytes has. The end of a literal or comment belongs to it, and so does its
    /// beginning.
    fn piece(&mut self, left: usize) -> (Piece, usize) {
        let before = self.state;
        let (length, next) = self.step();
        let length = length.min(left);
        self.state = next;
        let is_comment = |state| matches!(state, State::LineComment | State::BlockComment(_));
        let piece = if is_comment(before) || is_comment(next) {
            Piece::Comment
        } else if before == State::Code && next == State::Code && length == 1 {
            Piece::Code
        } else {
            Piece::Literal
        };
        (piece, length)
    }

    /// Returns how many bytes go together, and the state behind them. A step never passes the end
    /// of the line: `piece` cuts it there.
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
            State::RawText(hashes) if closes_raw(rest, hashes) => (1 + hashes, State::Code),
            State::RawText(hashes) => (1, State::RawText(hashes)),
        }
    }

    /// A quote opens a character or a lifetime, which only what follows tells.
    fn code(&mut self, rest: &[u8]) -> (usize, State) {
        let before = self.at.checked_sub(1).and_then(|at| self.text.get(at));
        let is_in_name = before.is_some_and(|byte| is_name(*byte));
        match rest {
            [b'/', b'/', ..] => {
                self.is_doc = is_line_doc(rest);
                (2, State::LineComment)
            }
            [b'/', b'*', ..] => {
                self.is_doc = is_block_doc(rest);
                (2, State::BlockComment(0))
            }
            [b'"', ..] => (1, State::Text),
            [b'r', b'"' | b'#', ..] | [b'b', b'r', b'"' | b'#', ..] if !is_in_name => raw(rest),
            [b'\'', b'\\', _, ..] => {
                let end = rest.iter().skip(3).position(|byte| *byte == b'\'');
                (end.map_or(1, |length| length + 4), State::Code)
            }
            [b'\'', ..] => (character(rest), State::Code),
            _ => (1, State::Code),
        }
    }
}

/// Tells whether `//` begins a doc comment; four slashes or more do not. The rule is the Rust
/// reference's ("Comments", doc comments).
fn is_line_doc(rest: &[u8]) -> bool {
    let is_doc = rest.starts_with(b"///") || rest.starts_with(b"//!");
    is_doc && !rest.starts_with(b"////")
}

/// Tells whether `/*` begins a doc comment; `/**/` and `/***` do not.
fn is_block_doc(rest: &[u8]) -> bool {
    let is_doc = rest.starts_with(b"/**") || rest.starts_with(b"/*!");
    is_doc && !rest.starts_with(b"/**/") && !rest.starts_with(b"/***")
}

/// Passes over the beginning of a raw string; `r#name` is a name. An identifier such as `r#type`
/// has a `#` and no quote behind.
fn raw(rest: &[u8]) -> (usize, State) {
    let prefix = 1 + usize::from(rest.first() == Some(&b'b'));
    let behind = rest.get(prefix..).unwrap_or_default();
    let hashes = behind.iter().take_while(|byte| **byte == b'#').count();
    match behind.get(hashes) {
        Some(b'"') => (prefix + hashes + 1, State::RawText(hashes)),
        Some(_) | None => (1, State::Code),
    }
}

/// Tells whether a quote with so many `#` behind is what comes next. Fewer `#` than at the
/// beginning are a part of the string.
fn closes_raw(rest: &[u8], hashes: usize) -> bool {
    let end = rest.get(1..=hashes);
    rest.first() == Some(&b'"') && end.is_some_and(|end| end.iter().all(|b| *b == b'#'))
}

/// Returns the bytes of a character literal, or 1 for a lifetime's quote. A lifetime has no closing
/// quote within the length of one UTF-8 character.
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
