//! The text of a manifest with all that it includes, in the order in which dtc reads.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::{fs, io};

use super::Fault;
use super::lexer::{Kind, Token, tokens};
use crate::dtb;

/// dtc says "syntax error" at the first character. Some editors write it, and show nothing of it.
const BYTE_ORDER_MARK: &str = "\u{feff}";

/// The sources, by number. A token names its source by number.
#[derive(Default)]
pub(in super::super) struct Texts {
    /// Path and text; the first is the manifest.
    pub files: Vec<(PathBuf, String)>,
}

/// Every method takes the number of a source, as tokens and faults have it.
impl Texts {
    /// Returns the text of a token.
    pub(super) fn of(&self, token: &Token) -> &str {
        self.text(token.file, &token.range)
    }

    /// Returns a part of a source; nothing where the range is none.
    pub(super) fn text(&self, file: usize, range: &Range<usize>) -> &str {
        let text = self.files.get(file).map_or("", |(_, text)| text.as_str());
        text.get(range.clone()).unwrap_or_default()
    }

    /// Returns the path of a source as messages show it.
    pub(in super::super) fn name(&self, file: usize) -> String {
        self.path(file).display().to_string()
    }

    /// Number 0 is the manifest itself.
    fn path(&self, file: usize) -> &Path {
        self.files.get(file).map_or(Path::new(""), |(path, _)| path)
    }
}

/// Reads `main` and what it includes. A fault of reading is one of the manifest's: it has no other
/// place.
pub(super) fn read(main: &Path) -> (Texts, Vec<Token>, Vec<Fault>) {
    let mut reader = Reader::default();
    match fs::read(main) {
        Ok(bytes) => reader.add(main, &bytes),
        Err(error) => {
            let what = format!("the manifest cannot be read: {error}");
            reader.texts.files.push((main.to_owned(), String::new()));
            reader.faults.push(Fault::new(0, 0..0, what, ""));
        }
    }
    (reader.texts, reader.tokens, reader.faults)
}

/// Included files are read depth first, as dtc does, so that tokens come in its order.
#[derive(Default)]
struct Reader {
    /// Sources so far.
    texts: Texts,
    /// Of all sources so far.
    tokens: Vec<Token>,
    /// Of lexing and of including.
    faults: Vec<Fault>,
    /// Numbers of the sources that are being read, each included by the one before.
    open: Vec<usize>,
}

impl Reader {
    /// A file may be included twice, each time as a source of its own.
    fn add(&mut self, path: &Path, bytes: &[u8]) {
        let file = self.texts.files.len();
        let text = text_of(bytes);
        self.texts.files.push((path.to_owned(), text.clone()));
        if let Some(fault) = no_source(file, bytes, &text) {
            self.faults.push(fault);
            return;
        }
        // Strings of another encoding are no values, and editors disagree on what they show.
        if let Err(error) = str::from_utf8(bytes) {
            let at = error.valid_up_to();
            let what = "this character is not in UTF-8";
            let help = "save the file in the encoding UTF-8";
            self.faults.push(Fault::new(file, at..at + 1, what, help));
        }
        let (found, faults) = tokens(file, &text);
        self.faults.extend(faults);
        self.open.push(file);
        self.take(found);
        self.open.pop();
    }

    /// Takes the tokens of a source, with those of a file in place of its `/include/`. `/include/`
    /// with anything but a string behind stays, for the parser to refuse.
    fn take(&mut self, found: Vec<Token>) {
        let mut found = found.into_iter().peekable();
        while let Some(token) = found.next() {
            let is_include = self.texts.of(&token) == "/include/";
            if let Some(name) = found.next_if(|next| is_include && next.kind == Kind::Text) {
                self.include(&name);
                continue;
            }
            if token.kind == Kind::Text && self.is_inside_incbin() {
                self.look_for(&token);
            }
            self.tokens.push(token);
        }
    }

    /// Tells whether the next token is the first one between the parentheses of `/incbin/`. The
    /// other arguments are numbers, so the string is the name of a file.
    fn is_inside_incbin(&self) -> bool {
        let mut last = self.tokens.iter().rev();
        let is_open = last.next().is_some_and(|token| token.is('('));
        is_open
            && last
                .next()
                .is_some_and(|token| self.texts.of(token) == "/incbin/")
    }

    /// Looks for the file whose bytes become a value. dtc names no place for one that is missing.
    /// The contents are not read: whatever they are, they are the value.
    fn look_for(&mut self, name: &Token) {
        let path = self.path_of(name);
        if let Err(error) = fs::File::open(&path) {
            self.faults.push(unreadable(name, &path, &error));
        }
    }

    /// Returns the path that the string `name` names, relative to the file that the string is in.
    fn path_of(&self, name: &Token) -> PathBuf {
        let text = self.texts.of(name).trim_matches('"');
        let folder = self.texts.path(name.file).parent();
        folder.unwrap_or(Path::new("")).join(text)
    }

    /// Reads the file that the string `name` names, relative to the file that the string is in. A
    /// circle is told with all of its files; dtc stops at a limit of depth, and names one file.
    fn include(&mut self, name: &Token) {
        let text = self.texts.of(name).trim_matches('"').to_owned();
        let path = self.path_of(name);
        let is_same = |file: &&usize| same(self.texts.path(**file), &path);
        let fault =
            |what: String, help: &str| Fault::new(name.file, name.range.clone(), what, help);
        if self.open.iter().any(|file| is_same(&file)) {
            let chain = self.open.iter().skip_while(|file| !is_same(file));
            let chain =
                chain.map(|file| self.texts.path(*file).display().to_string() + " includes ");
            let what = format!(
                "a file includes itself: {}{text}",
                chain.collect::<String>()
            );
            self.faults
                .push(fault(what, "remove one of these /include/ lines"));
            return;
        }
        match fs::read(&path) {
            Ok(bytes) => self.add(&path, &bytes),
            Err(error) => self.faults.push(unreadable(name, &path, &error)),
        }
    }
}

/// Tells of a file that a source names and that cannot be read. dtc looks in the folder of the
/// including file alone, as no search path is given to it.
fn unreadable(name: &Token, path: &Path, error: &io::Error) -> Fault {
    let what = format!("the file {} cannot be read: {error}", path.display());
    let help = "write a path relative to the folder of the file that includes it";
    Fault::new(name.file, name.range.clone(), what, help)
}

/// Returns a source as text, with a `?` for each byte that is no UTF-8: every other byte keeps its
/// place, by which dtc tells where something is. Replacing a byte by one character keeps dtc's
/// columns right.
pub(in super::super) fn text_of(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        text.extend(chunk.invalid().iter().map(|_| '?'));
    }
    text
}

/// Two paths to one file are equal; a path to nothing is compared as it is. Links and `..` lead to
/// one file by several paths, by which a circle would not be found.
fn same(one: &Path, other: &Path) -> bool {
    match (one.canonicalize(), other.canonicalize()) {
        (Ok(one), Ok(other)) => one == other,
        _ => one == other,
    }
}

/// Bytes of a file in UTF-16 among which there is a zero: a byte order mark and one character.
const UTF_16_ZERO: usize = 4;

/// Says why a file as a whole is no device tree source. From the surest sign to the least sure one.
fn no_source(file: usize, bytes: &[u8], text: &str) -> Option<Fault> {
    let fault = |length, what, help| Some(Fault::new(file, 0..length, what, help));
    // What people have who took a board's tree from a running system.
    if bytes.starts_with(&dtb::MAGIC) {
        let help = "name its source, or make one: dtc -I dtb -O dts FILE";
        return fault(0, "this is a compiled device tree, not a source", help);
    }
    if text.starts_with(BYTE_ORDER_MARK) {
        let help = "save the file as UTF-8 without a byte order mark";
        return fault(
            BYTE_ORDER_MARK.len(),
            "the file begins with a byte order mark",
            help,
        );
    }
    if let Some(at) = bytes.iter().position(|byte| *byte == 0) {
        // In UTF-16, a byte of value 0 is next to every character of ASCII.
        if at < UTF_16_ZERO {
            let help = "name a device tree source in UTF-8; UTF-16 is not one";
            return fault(0, "this is no text", help);
        }
        let what = "a text has no byte of value 0";
        let help = "remove the byte, or name another file if this one is no text";
        return Some(Fault::new(file, at..at + 1, what, help));
    }
    if text.trim().is_empty() {
        let help = "cargo xtask new-manifest FILE writes a manifest to start from";
        return fault(0, "the file is empty", help);
    }
    None
}
