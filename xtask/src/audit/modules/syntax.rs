//! Facts of a Rust source about modules: those that it declares, the names that it imports, the
//! paths that it uses. Comments, literals and code under `#[cfg(test)]` say nothing.
//!
//! What the reader does not know makes no arrow, and so could hide a circle. Therefore a `mod` or a
//! `use` that is not understood is an error. Macros are read as the tokens that they are: a path
//! inside one counts.

use anyhow::{Result, bail};

/// A path and the line on which it ends. The line is the last one, since rustfmt breaks a long
/// `use` over several.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Path {
    /// As written: `self` and `super` are resolved by the graph.
    pub(super) segments: Vec<String>,
    pub(super) line: usize,
}

/// A name that `use` brings into a module. The name is what code of the module writes: an `as`
/// renames it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Import {
    /// `*` for all names of the path.
    pub(super) name: String,
    /// The whole path, with what stands before the braces of a tree.
    pub(super) path: Path,
}

/// A module without the modules in other files. Nothing else of a source makes an arrow, so nothing
/// else is kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Module {
    /// Names of modules in files of their own, with the file that `path` gives.
    pub(super) files: Vec<(String, Option<String>)>,
    /// Modules between braces.
    pub(super) inline: Vec<(String, Module)>,
    /// Of `use`, nested trees flattened.
    pub(super) imports: Vec<Import>,
    /// Paths of at least two segments, in code.
    pub(super) paths: Vec<Path>,
}

/// The least that tells modules, imports and paths apart; every other character stands for itself.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Kind {
    /// Names, keywords and numbers alike: who reads them knows which can stand there.
    Word(String),
    /// Between quotes, with its escapes as written: only `path` attributes are read.
    Text(String),
    /// `::`
    Colons,
    /// A character by itself: braces, semicolons, the `#` of an attribute.
    Other(char),
}

/// A token with its line, for the message that names an arrow.
#[derive(Clone, Debug)]
struct Token {
    kind: Kind,
    line: usize,
}

/// Reads a source file. The whole grammar of Rust is not needed, and a parser of it would be a
/// dependency that changes with each edition.
pub(super) fn read(text: &str) -> Result<Module> {
    let tokens = tokens(text);
    let mut reader = Reader {
        tokens: &tokens,
        at: 0,
    };
    reader.module()
}

/// Splits a text, and leaves out comments, characters and raw strings. Raw strings hold test data
/// and shaders of text, never a path. Lines are counted in what is left out, too.
fn tokens(text: &str) -> Vec<Token> {
    let characters: Vec<char> = text.chars().collect();
    let mut tokens = Vec::new();
    let (mut at, mut line) = (0, 1);
    while at < characters.len() {
        let (kind, end) = lexeme(&characters, at);
        tokens.extend(kind.map(|kind| Token { kind, line }));
        line += characters[at..end].iter().filter(|c| **c == '\n').count();
        at = end;
    }
    tokens
}

/// Returns the token that begins at `at`, unless what begins there says nothing, and the end of
/// what begins there. Comments vanish here, so that a module named in a doc comment makes no arrow.
fn lexeme(characters: &[char], at: usize) -> (Option<Kind>, usize) {
    let next = characters.get(at + 1);
    match characters[at] {
        '/' if next == Some(&'/') => (None, end_of_line(characters, at)),
        '/' if next == Some(&'*') => (None, end_of_comment(characters, at)),
        '\'' => (None, end_of_character(characters, at)),
        '"' => {
            let end = end_of_text(characters, at);
            let inside = characters.get(at + 1..end - 1).unwrap_or_default();
            (Some(Kind::Text(inside.iter().collect())), end)
        }
        ':' if next == Some(&':') => (Some(Kind::Colons), at + 2),
        first if is_of_word(first) => word(characters, at),
        first if first.is_whitespace() => (None, at + 1),
        first => (Some(Kind::Other(first)), at + 1),
    }
}

/// A name, a keyword or a number; the prefix of a raw string goes with the string, and that of a
/// raw identifier alone, so that the identifier is a word.
fn word(characters: &[char], at: usize) -> (Option<Kind>, usize) {
    let length = characters[at..].iter().take_while(|c| is_of_word(**c));
    let end = at + length.count();
    let word: String = characters[at..end].iter().collect();
    let is_prefix = matches!(&*word, "r" | "br" | "cr");
    if is_prefix && matches!(characters.get(end), Some('"' | '#')) {
        return (None, end_of_raw(characters, end).unwrap_or(end + 1));
    }
    (Some(Kind::Word(word)), end)
}

/// Unicode letters count, as in Rust's identifiers.
fn is_of_word(character: char) -> bool {
    character == '_' || character.is_alphanumeric()
}

/// The line break stays: the next lexeme is blank. Doc comments are comments here: an example in
/// one uses the crate from outside.
fn end_of_line(characters: &[char], mut at: usize) -> usize {
    while characters.get(at).is_some_and(|c| *c != '\n') {
        at += 1;
    }
    at
}

/// Comments between `/*` and `*/` nest. Rust's block comments nest, unlike C's.
fn end_of_comment(characters: &[char], mut at: usize) -> usize {
    let mut depth = 0;
    while at < characters.len() {
        match (characters[at], characters.get(at + 1)) {
            ('/', Some('*')) => {
                depth += 1;
                at += 2;
            }
            ('*', Some('/')) => {
                depth -= 1;
                at += 2;
                if depth == 0 {
                    break;
                }
            }
            _ => at += 1,
        }
    }
    at
}

/// Returns the end of a string behind its closing quote. A backslash takes the next character with
/// it, be that a quote.
fn end_of_text(characters: &[char], mut at: usize) -> usize {
    at += 1;
    while let Some(&c) = characters.get(at) {
        at += 1;
        match c {
            '"' => break,
            '\\' => at += 1,
            _ => {}
        }
    }
    at.min(characters.len())
}

/// A character, or only the quote of a lifetime. A lifetime is told by the missing quote two
/// characters on.
fn end_of_character(characters: &[char], at: usize) -> usize {
    match (characters.get(at + 1), characters.get(at + 2)) {
        (Some('\\'), _) => {
            let mut end = at + 3;
            while characters.get(end).is_some_and(|c| *c != '\'') {
                end += 1;
            }
            (end + 1).min(characters.len())
        }
        (Some(_), Some('\'')) => at + 3,
        _ => at + 1,
    }
}

/// A raw string that begins with its first `#` or quote; `None`: it is none. As many `#` close it
/// as opened it; fewer are a part of the text.
fn end_of_raw(characters: &[char], at: usize) -> Option<usize> {
    let hashes = characters[at..].iter().take_while(|c| **c == '#').count();
    if characters.get(at + hashes) != Some(&'"') {
        return None;
    }
    let mut end = at + hashes + 1;
    while end < characters.len() {
        let behind = &characters[end + 1..];
        let closes = behind.iter().take(hashes).filter(|c| **c == '#').count() == hashes;
        if characters[end] == '"' && closes {
            return Some(end + 1 + hashes);
        }
        end += 1;
    }
    Some(end)
}

/// A cursor in the tokens. Each method reads one thing and stands behind it afterwards.
struct Reader<'a> {
    tokens: &'a [Token],
    /// Index of the next token.
    at: usize,
}

impl Reader<'_> {
    /// Looks ahead without moving; nothing stands behind the end.
    fn kind(&self, ahead: usize) -> Option<&Kind> {
        self.tokens.get(self.at + ahead).map(|token| &token.kind)
    }

    /// Looks ahead for a name or keyword.
    fn word(&self, ahead: usize) -> Option<&str> {
        match self.kind(ahead) {
            Some(Kind::Word(word)) => Some(word),
            _ => None,
        }
    }

    /// Looks ahead for one character.
    fn is(&self, ahead: usize, character: char) -> bool {
        self.kind(ahead) == Some(&Kind::Other(character))
    }

    /// Line 0 stands for the end of the text.
    fn line(&self) -> usize {
        self.tokens.get(self.at).map_or(0, |token| token.line)
    }

    /// Reads up to the end of the text, or to the closing brace of those that it stands between.
    /// Bodies of functions are read like everything else: paths stand there most of all. A module
    /// between braces ends at the brace that was not opened inside.
    fn module(&mut self) -> Result<Module> {
        let mut module = Module::default();
        let mut depth = 0_usize;
        let mut file = None;
        while let Some(kind) = self.kind(0) {
            match kind {
                Kind::Other('}') if depth == 0 => break,
                Kind::Other('#') => file = self.attribute().or(file),
                Kind::Word(_) => self.statement(&mut module, &mut file)?,
                Kind::Text(_) | Kind::Colons | Kind::Other(_) => {
                    depth += usize::from(self.is(0, '{'));
                    depth -= usize::from(self.is(0, '}'));
                    self.at += 1;
                }
            }
        }
        Ok(module)
    }

    /// A module's declaration, which takes the file that an attribute gave, an import, or a path.
    /// Paths of one segment are local names, or were brought in by an import that counts itself.
    fn statement(&mut self, module: &mut Module, file: &mut Option<String>) -> Result<()> {
        match self.word(0) {
            Some("mod") if self.word(1).is_some() => self.declaration(module, file.take()),
            // Not the lifetimes that a type captures: `use<'a>`.
            Some("use") if !self.is(1, '<') => {
                self.at += 1;
                self.tree(&[], &mut module.imports)
            }
            _ => {
                let path = self.path();
                if path.segments.len() > 1 {
                    module.paths.push(path);
                }
                Ok(())
            }
        }
    }

    /// Passes over an attribute, and over what follows if only tests have it. Returns the file that
    /// `path` gives. `#[cfg(test)]` alone is passed over here; a feature's code belongs to some
    /// image. `cfg_attr` and others have no module inside.
    fn attribute(&mut self) -> Option<String> {
        let start = self.at;
        self.at += 1;
        if self.is(0, '!') {
            self.at += 1;
        }
        if !self.is(0, '[') {
            return None;
        }
        self.group('[', ']');
        let attribute = &self.tokens[start..self.at];
        match &*words(attribute) {
            ["cfg", "test"] => self.item(),
            ["path"] => return first_text(attribute),
            _ => {}
        }
        None
    }

    /// Passes over brackets and what is between them. Brackets of one kind are counted: others
    /// inside are balanced by the compiler.
    fn group(&mut self, open: char, close: char) {
        let mut depth = 0;
        while self.at < self.tokens.len() {
            depth += i32::from(self.is(0, open)) - i32::from(self.is(0, close));
            self.at += 1;
            if depth == 0 {
                break;
            }
        }
    }

    /// Passes over an item with its attributes. The end depends on what it is: a function ends with
    /// its body, and a constant's value may hold a block before the semicolon.
    fn item(&mut self) {
        while self.is(0, '#') {
            self.at += 1;
            self.group('[', ']');
        }
        let mut has_semicolon = false;
        while let Some(kind) = self.kind(0) {
            match kind {
                Kind::Other('(') => self.group('(', ')'),
                Kind::Other('{') => {
                    self.group('{', '}');
                    if !has_semicolon {
                        return;
                    }
                }
                Kind::Other(';' | ',') => {
                    self.at += 1;
                    return;
                }
                other => {
                    has_semicolon = ends_with_semicolon(other).unwrap_or(has_semicolon);
                    self.at += 1;
                }
            }
        }
    }

    /// `mod name;` or `mod name { ... }`. Anything else behind the name is an error, because a
    /// module that is passed over hides its arrows.
    fn declaration(&mut self, module: &mut Module, file: Option<String>) -> Result<()> {
        let name = self.word(1).unwrap_or_default().to_owned();
        self.at += 2;
        if self.is(0, ';') {
            module.files.push((name, file));
        } else if self.is(0, '{') {
            self.at += 1;
            let inline = self.module()?;
            module.inline.push((name, inline));
            // The closing brace.
            self.at += 1;
        } else {
            bail!("line {}: mod {name} without ; or {{", self.line());
        }
        Ok(())
    }

    /// A path in code. Generic arguments between two segments end it. A macro's `!` ends the path
    /// too: the macro's name is the last segment. `Vec::<u8>::new` is two paths, of which each
    /// names what it needs.
    fn path(&mut self) -> Path {
        let mut segments = Vec::new();
        let mut line = self.line();
        while let Some(word) = self.word(0) {
            segments.push(word.to_owned());
            line = self.line();
            self.at += 1;
            if self.kind(0) != Some(&Kind::Colons) || self.word(1).is_none() {
                break;
            }
            self.at += 1;
        }
        Path { segments, line }
    }

    /// The tree behind `use`, below what stands before it. Trees nest (`a::{b, c::{d}}`), and each
    /// leaf is an import of its own.
    fn tree(&mut self, before: &[String], imports: &mut Vec<Import>) -> Result<()> {
        let mut before = before.to_vec();
        // `::name`: another crate.
        if self.takes_colons() {
            before.push(String::new());
        }
        while !self.is(0, '{') {
            let line = self.line();
            let segment = self.segment()?;
            if !self.takes_colons() {
                imports.push(self.import(before, segment, line));
                return Ok(());
            }
            before.push(segment);
        }
        self.branches(&before, imports)
    }

    /// The trees between braces, below one path. A trailing comma is allowed.
    fn branches(&mut self, before: &[String], imports: &mut Vec<Import>) -> Result<()> {
        self.at += 1;
        while !self.is(0, '}') {
            if self.at >= self.tokens.len() {
                bail!("a use tree without its end");
            }
            self.tree(before, imports)?;
            if self.is(0, ',') {
                self.at += 1;
            }
        }
        self.at += 1;
        Ok(())
    }

    /// A name or `*` of a tree. Anything else in a `use` is refused: silence would lose an arrow.
    fn segment(&mut self) -> Result<String> {
        let segment = match self.kind(0) {
            Some(Kind::Word(word)) => word.clone(),
            Some(Kind::Other('*')) => "*".to_owned(),
            other => bail!("line {}: {other:?} in a use", self.line()),
        };
        self.at += 1;
        Ok(segment)
    }

    /// The end of a tree: its last segment, with the name that it is given. `_` as a name is kept:
    /// a trait that is imported for its methods is used all the same.
    fn import(&mut self, before: Vec<String>, last: String, line: usize) -> Import {
        let mut segments = before;
        // `path::{self}` is the path.
        let is_self = last == "self" && !segments.is_empty();
        if last != "*" && !is_self {
            segments.push(last.clone());
        }
        let mut name = match is_self {
            true => segments.last().cloned().unwrap_or_default(),
            false => last,
        };
        if self.word(0) == Some("as") {
            name = self.word(1).unwrap_or_default().to_owned();
            self.at += 2;
        }
        let path = Path { segments, line };
        Import { name, path }
    }

    /// Passes over `::`, if that is what follows. Tells whether they were there.
    fn takes_colons(&mut self) -> bool {
        let is_there = self.kind(0) == Some(&Kind::Colons);
        self.at += usize::from(is_there);
        is_there
    }
}

/// Returns the words among some tokens. Strings and signs are left out: attributes are told by
/// their words.
fn words(tokens: &[Token]) -> Vec<&str> {
    let words = tokens.iter().filter_map(|token| match &token.kind {
        Kind::Word(word) => Some(&**word),
        Kind::Text(_) | Kind::Colons | Kind::Other(_) => None,
    });
    words.collect()
}

/// Returns the first string among some tokens.
fn first_text(tokens: &[Token]) -> Option<String> {
    tokens.iter().find_map(|token| match &token.kind {
        Kind::Text(text) => Some(text.clone()),
        Kind::Word(_) | Kind::Colons | Kind::Other(_) => None,
    })
}

/// Tells whether the item that this token begins goes on behind a block; `None`: the token does not
/// tell. Behind `const`, `fn` has the last word. Only the first telling token matters, but for
/// `const fn`.
fn ends_with_semicolon(kind: &Kind) -> Option<bool> {
    let Kind::Word(word) = kind else {
        return None;
    };
    match &**word {
        "use" | "static" | "const" | "type" => Some(true),
        "fn" => Some(false),
        _ => None,
    }
}
