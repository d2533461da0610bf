//! Facts of a Rust source about modules: those that it declares, the names that it imports, the
//! paths that it uses. Comments, literals and code under `#[cfg(test)]` say nothing.

use anyhow::{Result, bail};

/// A path and the line on which it ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Path {
    pub(super) segments: Vec<String>,
    pub(super) line: usize,
}

/// A name that `use` brings into a module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Import {
    /// `*` for all names of the path.
    pub(super) name: String,
    pub(super) path: Path,
}

/// A module without the modules in other files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Module {
    /// Names of modules in files of their own, with the file that `path` gives.
    pub(super) files: Vec<(String, Option<String>)>,
    /// Modules between braces.
    pub(super) inline: Vec<(String, Module)>,
    pub(super) imports: Vec<Import>,
    /// Paths of at least two segments, in code.
    pub(super) paths: Vec<Path>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Kind {
    Word(String),
    Text(String),
    /// `::`
    Colons,
    Other(char),
}

#[derive(Clone, Debug)]
struct Token {
    kind: Kind,
    line: usize,
}

/// Reads a source file.
pub(super) fn read(text: &str) -> Result<Module> {
    let tokens = tokens(text);
    let mut reader = Reader {
        tokens: &tokens,
        at: 0,
    };
    reader.module()
}

/// Splits a text, and leaves out comments, characters and raw strings.
fn tokens(text: &str) -> Vec<Token> {
    let characters: Vec<char> = text.chars().collect();
    let mut tokens = Vec::new();
    let (mut at, mut line) = (0, 1);
    while let Some(&first) = characters.get(at) {
        let next = characters.get(at + 1).copied();
        let start = at;
        match first {
            '/' if next == Some('/') => at = end_of_line(&characters, at),
            '/' if next == Some('*') => at = end_of_comment(&characters, at),
            '"' => {
                at = end_of_text(&characters, at);
                let inside = characters.get(start + 1..at - 1).unwrap_or_default();
                tokens.push(Token {
                    kind: Kind::Text(inside.iter().collect()),
                    line,
                });
            }
            '\'' => at = end_of_character(&characters, at),
            ':' if next == Some(':') => {
                tokens.push(Token {
                    kind: Kind::Colons,
                    line,
                });
                at += 2;
            }
            _ if first == '_' || first.is_alphanumeric() => {
                while characters
                    .get(at)
                    .is_some_and(|c| *c == '_' || c.is_alphanumeric())
                {
                    at += 1;
                }
                let word: String = characters[start..at].iter().collect();
                let is_raw = matches!(&*word, "r" | "br" | "cr");
                match characters.get(at) {
                    Some('"' | '#') if is_raw => match end_of_raw(&characters, at) {
                        Some(end) => at = end,
                        // `r#` of a raw identifier.
                        None => at += 1,
                    },
                    _ => tokens.push(Token {
                        kind: Kind::Word(word),
                        line,
                    }),
                }
            }
            _ => {
                if !first.is_whitespace() {
                    tokens.push(Token {
                        kind: Kind::Other(first),
                        line,
                    });
                }
                at += 1;
            }
        }
        line += characters[start..at].iter().filter(|c| **c == '\n').count();
    }
    tokens
}

fn end_of_line(characters: &[char], mut at: usize) -> usize {
    while characters.get(at).is_some_and(|c| *c != '\n') {
        at += 1;
    }
    at
}

/// Comments between `/*` and `*/` nest.
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

/// A character, or only the quote of a lifetime.
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

/// A raw string that begins with its first `#` or quote; `None`: it is none.
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

struct Reader<'a> {
    tokens: &'a [Token],
    at: usize,
}

impl Reader<'_> {
    fn kind(&self, ahead: usize) -> Option<&Kind> {
        self.tokens.get(self.at + ahead).map(|token| &token.kind)
    }

    fn word(&self, ahead: usize) -> Option<&str> {
        match self.kind(ahead) {
            Some(Kind::Word(word)) => Some(word),
            _ => None,
        }
    }

    fn is(&self, ahead: usize, character: char) -> bool {
        self.kind(ahead) == Some(&Kind::Other(character))
    }

    fn line(&self) -> usize {
        self.tokens.get(self.at).map_or(0, |token| token.line)
    }

    /// Reads up to the end of the text, or of the braces that it stands between.
    fn module(&mut self) -> Result<Module> {
        let mut module = Module::default();
        let mut depth = 0_usize;
        let mut file = None;
        while let Some(kind) = self.kind(0) {
            match kind {
                Kind::Other('{') => {
                    depth += 1;
                    self.at += 1;
                }
                Kind::Other('}') => {
                    self.at += 1;
                    match depth.checked_sub(1) {
                        Some(less) => depth = less,
                        None => break,
                    }
                }
                Kind::Other('#') => file = self.attribute().or(file),
                Kind::Word(word) if word == "mod" && self.word(1).is_some() => {
                    self.declaration(&mut module, file.take())?;
                }
                // Not the lifetimes that a type captures: `use<'a>`.
                Kind::Word(word) if word == "use" && !self.is(1, '<') => {
                    self.at += 1;
                    self.tree(&mut Vec::new(), &mut module.imports)?;
                }
                Kind::Word(_) => {
                    let path = self.path();
                    if path.segments.len() > 1 {
                        module.paths.push(path);
                    }
                }
                Kind::Text(_) | Kind::Colons | Kind::Other(_) => self.at += 1,
            }
        }
        Ok(module)
    }

    /// Passes over an attribute, and over what follows if only tests have it. Returns the file that
    /// `path` gives.
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
        let words: Vec<&str> = attribute
            .iter()
            .filter_map(|token| match &token.kind {
                Kind::Word(word) => Some(&**word),
                _ => None,
            })
            .collect();
        if words == ["cfg", "test"] {
            self.item();
        }
        let is_path = words == ["path"];
        let mut texts = attribute.iter().filter_map(|token| match &token.kind {
            Kind::Text(text) => Some(text.clone()),
            _ => None,
        });
        texts.next().filter(|_| is_path)
    }

    /// Passes over brackets and what is between them.
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

    /// Passes over an item with its attributes.
    fn item(&mut self) {
        while self.is(0, '#') {
            self.at += 1;
            self.group('[', ']');
        }
        let mut is_use = false;
        while let Some(kind) = self.kind(0) {
            match kind {
                Kind::Word(word) if matches!(&**word, "use" | "static" | "const" | "type") => {
                    is_use = true;
                }
                // `const fn`
                Kind::Word(word) if word == "fn" => is_use = false,
                Kind::Other('{') => {
                    self.group('{', '}');
                    if is_use {
                        continue;
                    }
                    return;
                }
                Kind::Other('(') => {
                    self.group('(', ')');
                    continue;
                }
                Kind::Other(';' | ',') => {
                    self.at += 1;
                    return;
                }
                _ => {}
            }
            self.at += 1;
        }
    }

    /// `mod name;` or `mod name { ... }`
    fn declaration(&mut self, module: &mut Module, file: Option<String>) -> Result<()> {
        let name = self.word(1).unwrap_or_default().to_owned();
        self.at += 2;
        if self.is(0, ';') {
            module.files.push((name, file));
        } else if self.is(0, '{') {
            self.at += 1;
            let inline = self.module()?;
            module.inline.push((name, inline));
        } else {
            bail!("line {}: mod {name} without ; or {{", self.line());
        }
        Ok(())
    }

    /// A path in code. Generic arguments between two segments end it.
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

    /// The tree behind `use`, below what stands before it.
    fn tree(&mut self, before: &mut Vec<String>, imports: &mut Vec<Import>) -> Result<()> {
        let length = before.len();
        if self.kind(0) == Some(&Kind::Colons) {
            // `::name`: another crate.
            self.at += 1;
            before.push(String::new());
        }
        loop {
            if self.is(0, '{') {
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
                break;
            }
            let line = self.line();
            let word = match self.kind(0) {
                Some(Kind::Word(word)) => word.clone(),
                Some(Kind::Other('*')) => "*".to_owned(),
                other => bail!("line {line}: {other:?} in a use"),
            };
            self.at += 1;
            if self.kind(0) == Some(&Kind::Colons) {
                self.at += 1;
                before.push(word);
                continue;
            }
            let mut segments = before.clone();
            // `path::{self}` is the path.
            let is_self = word == "self" && !segments.is_empty();
            if word != "*" && !is_self {
                segments.push(word.clone());
            }
            let mut name = match is_self {
                true => segments.last().cloned().unwrap_or_default(),
                false => word,
            };
            if self.word(0) == Some("as") {
                name = self.word(1).unwrap_or_default().to_owned();
                self.at += 2;
            }
            let path = Path { segments, line };
            imports.push(Import { name, path });
            break;
        }
        before.truncate(length);
        Ok(())
    }
}
