//! The grammar of device tree source, as far as mistakes show.
//!
//! The parser goes on behind a fault whose extent is clear, and gives up at what it does not
//! understand: there dtc's own words stand.

use std::collections::HashMap;
use std::ops::Range;

use super::include::Texts;
use super::lexer::{Kind, Token};
use super::{Fault, MOST_FAULTS};

/// Deepest nesting of nodes; a manifest has four.
const MOST_NESTED: usize = 32;

/// The text does not go on as far as this parser understands.
pub(super) struct Lost;

pub(super) type Understood = Result<(), Lost>;

/// Returns the faults.
pub(super) fn parse(texts: &Texts, tokens: &[Token]) -> Vec<Fault> {
    let mut parser = Parser {
        texts,
        tokens,
        at: 0,
        depth: 0,
        faults: Vec::new(),
    };
    // Whether the end was reached does not matter: the faults before it stand.
    let _ = parser.file();
    parser.faults
}

pub(super) struct Parser<'t> {
    texts: &'t Texts,
    tokens: &'t [Token],
    at: usize,
    depth: usize,
    faults: Vec<Fault>,
}

/// Names of one body, with the place where each stands first.
type Names<'t> = HashMap<(bool, &'t str), &'t Token>;

impl<'t> Parser<'t> {
    pub(super) fn ahead(&self, count: usize) -> Option<&'t Token> {
        self.tokens.get(self.at + count)
    }

    pub(super) fn text(&self, token: &Token) -> &'t str {
        self.texts.of(token)
    }

    /// Tells whether the token `count` tokens from here is the mark.
    pub(super) fn is(&self, count: usize, mark: char) -> bool {
        self.ahead(count).is_some_and(|token| token.is(mark))
    }

    /// Tells whether a node or a property of the text has this label.
    pub(super) fn has_label(&self, label: &str) -> bool {
        let mut pairs = self.tokens.iter().zip(self.tokens.iter().skip(1));
        pairs.any(|(name, colon)| colon.is(':') && self.text(name) == label)
    }

    pub(super) fn pass(&mut self, count: usize) {
        self.at += count;
    }

    /// Reports a fault; too many of them end the reading.
    pub(super) fn report(&mut self, fault: Fault) -> Understood {
        self.faults.push(fault);
        match self.faults.len() < MOST_FAULTS {
            true => Ok(()),
            false => Err(Lost),
        }
    }

    pub(super) fn fault(token: &Token, what: impl Into<String>, help: impl Into<String>) -> Fault {
        Fault::new(token.file, token.range.clone(), what, help)
    }

    /// Expects a semicolon behind `last`, and passes over it.
    pub(super) fn semicolon(&mut self, last: &Token, what: &str) -> Understood {
        if self.is(0, ';') {
            self.pass(1);
            return Ok(());
        }
        let end = last.range.end;
        let message = format!("a ; is missing behind {what}");
        let fault = Fault::new(last.file, end..end, message, "write ; here");
        self.report(fault.repaired(";"))
    }

    fn file(&mut self) -> Understood {
        self.version()?;
        while let Some(token) = self.ahead(0) {
            match token.kind {
                Kind::Directive => self.directive()?,
                Kind::Mark('/') if self.is(1, '{') => self.node(2, token)?,
                Kind::Reference if self.is(1, '{') => self.node(2, token)?,
                Kind::Word if self.is(1, ':') => self.pass(2),
                Kind::Word if self.text(token).starts_with('#') => self.hash(token)?,
                Kind::Word if self.is(1, '{') => {
                    let help = "put the node between the braces of / { ... };";
                    self.report(Self::fault(
                        token,
                        "a node stands outside of the root node",
                        help,
                    ))?;
                    return Err(Lost);
                }
                Kind::Mark('}') => self.stray_brace(token)?,
                Kind::Mark('<') if self.is(1, '<') && self.is(2, '<') => {
                    let help = "choose one of the two sides, and remove the marks";
                    self.report(Self::fault(token, "a merge left its conflict here", help))?;
                    return Err(Lost);
                }
                _ => return Err(Lost),
            }
        }
        Ok(())
    }

    /// Reports a closing brace behind the last node, with its semicolon.
    fn stray_brace(&mut self, brace: &Token) -> Understood {
        let fault = Self::fault(brace, "this brace closes nothing", "remove the brace");
        let semicolon = self.ahead(1).filter(|next| next.is(';'));
        let end = semicolon.map_or(brace.range.end, |next| next.range.end);
        self.pass(1 + usize::from(semicolon.is_some()));
        let range = brace.range.start..end;
        self.report(Fault { range, ..fault }.repaired(""))
    }

    /// Judges the start of the file.
    fn version(&mut self) -> Understood {
        let Some(first) = self.ahead(0) else {
            let help = "cargo xtask new-manifest FILE writes a manifest to start from";
            return self.report(Fault::new(0, 0..0, "the file has comments alone", help));
        };
        let text = self.text(first);
        if text == "/dts-v1/" || text.starts_with('#') {
            return Ok(());
        }
        if first.is('/') || first.kind == Kind::Directive {
            let start = first.range.start;
            let what = "a device tree source begins with /dts-v1/;";
            let fault = Fault::new(first.file, start..start, what, "write it in the first line");
            return self.report(fault.repaired("/dts-v1/;\n"));
        }
        let what = "this is no device tree source";
        let help = "begin with /dts-v1/; and / { ... }; or see cargo xtask new-manifest";
        self.report(Self::fault(first, what, help))?;
        Err(Lost)
    }

    /// Passes over a directive and its arguments.
    fn directive(&mut self) -> Understood {
        while let Some(token) = self.ahead(0) {
            self.pass(1);
            if token.is(';') {
                return Ok(());
            }
            let goes_on = self.ahead(0).is_some_and(|next| {
                next.is(';') || matches!(next.kind, Kind::Word | Kind::Reference | Kind::Text)
            });
            if !goes_on {
                let text = self.text(token).to_owned();
                return self.semicolon(token, &text);
            }
        }
        Ok(())
    }

    /// Reports what begins with #: a line of the C preprocessor, or a comment of another language.
    fn hash(&mut self, token: &Token) -> Understood {
        let text = self.text(token);
        let mut range = token.range.clone();
        let rest = self.texts.text(token.file, &(range.start..usize::MAX));
        range.end = range.start + self.line_length(token).max(rest.len().min(1));
        self.pass(1);
        while self
            .ahead(0)
            .is_some_and(|next| next.file == token.file && next.range.start < range.end)
        {
            self.pass(1);
        }
        let line = self.texts.text(token.file, &range);
        let (what, help, repair) = hash_fault(text, line);
        let fault = Fault::new(token.file, range, what, help);
        self.report(Fault { repair, ..fault })
    }

    /// Returns the bytes from a token to the end of its line.
    fn line_length(&self, token: &Token) -> usize {
        let text = self
            .texts
            .files
            .get(token.file)
            .map_or("", |(_, text)| text);
        let rest = text.get(token.range.start..).unwrap_or_default();
        rest.lines().next().unwrap_or_default().trim_end().len()
    }

    /// Reads a node whose opening brace is `before - 1` tokens from here.
    fn node(&mut self, before: usize, name: &'t Token) -> Understood {
        let open = self.ahead(before - 1).ok_or(Lost)?;
        self.pass(before);
        self.depth += 1;
        if self.depth > MOST_NESTED {
            return Err(Lost);
        }
        let end = self.body(open, name)?;
        self.depth -= 1;
        self.semicolon(end, "the node's closing brace")
    }

    /// Reads properties and nodes up to the closing brace, and returns that.
    fn body(&mut self, open: &Token, name: &Token) -> Result<&'t Token, Lost> {
        let mut names = Names::new();
        let mut last_node: Option<&Token> = None;
        loop {
            let Some(token) = self.ahead(0) else {
                let what = format!("the brace of {} is never closed", self.text(name));
                self.report(Self::fault(open, what, "close the node with };"))?;
                return Err(Lost);
            };
            let text = self.text(token);
            match token.kind {
                Kind::Mark('}') => {
                    self.pass(1);
                    return Ok(token);
                }
                Kind::Mark(';') => {
                    let fault = Self::fault(token, "this ; ends nothing", "remove the semicolon");
                    self.pass(1);
                    self.report(fault.repaired(""))?;
                }
                Kind::Directive => self.directive()?,
                Kind::Word if self.is(1, ':') && !self.is_colon_for_equals() => {
                    self.label(token)?
                }
                Kind::Word if self.is_hash_comment(text) => self.hash(token)?,
                Kind::Word if self.is(1, '{') => {
                    self.unique(&mut names, true, token)?;
                    last_node = Some(token);
                    self.node(2, token)?;
                }
                Kind::Word => {
                    self.unique(&mut names, false, token)?;
                    if let Some(node) = last_node.filter(|_| self.is(1, '=') || self.is(1, ';')) {
                        self.behind_node(token, node)?;
                    }
                    self.property(token)?;
                }
                Kind::Text if self.is(1, '{') || self.is(1, '=') => {
                    let bare = text.trim_matches('"');
                    let fault = Self::fault(token, "a name has no quotes", "remove the quotes");
                    self.report(fault.repaired(bare))?;
                    return Err(Lost);
                }
                Kind::Mark('{') => return self.no_name(token, names.is_empty()),
                _ => return Err(Lost),
            }
        }
    }

    /// Reports a brace without a name before it; `is_second`: it may belong to the brace before.
    fn no_name(&mut self, brace: &Token, is_second: bool) -> Result<&'t Token, Lost> {
        let what = "this brace has no name before it";
        let help = match is_second {
            true => "write the name of the node, or remove a second brace",
            false => "write the name of the node: NAME { ... };",
        };
        self.report(Self::fault(brace, what, help))?;
        Err(Lost)
    }

    /// Reads a label and its colon (Devicetree Specification 0.4, 6.2).
    fn label(&mut self, token: &Token) -> Understood {
        let text = self.text(token);
        let is_plain = |one: char| one.is_ascii_alphanumeric() || one == '_';
        self.pass(2);
        if text.chars().all(is_plain) && !text.starts_with(|one: char| one.is_ascii_digit()) {
            return Ok(());
        }
        let what = format!("{text} is no label");
        let help = "a label has letters, digits and _, and begins with no digit";
        self.report(Self::fault(token, what, help))
    }

    /// Reports a name that stands a second time in a body.
    fn unique(&mut self, names: &mut Names<'t>, is_node: bool, token: &'t Token) -> Understood {
        let text = self.text(token);
        let Some(first) = names.get(&(is_node, text)) else {
            names.insert((is_node, text), token);
            return Ok(());
        };
        let what = match is_node {
            true => format!("the node {text} stands twice here"),
            false => format!("the property {text} stands twice here"),
        };
        let fault = Self::fault(token, what, "remove or rename one of the two");
        self.report(fault.against(first.file, first.range.clone()))
    }

    /// Reports a property behind a node, which dtc refuses.
    fn behind_node(&mut self, token: &Token, node: &Token) -> Understood {
        let text = self.text(token);
        let what = format!("the property {text} stands behind a node");
        let help = format!("move {text} before the node {}", self.text(node));
        let fault = Self::fault(token, what, help);
        self.report(fault.against(node.file, node.range.clone()))
    }

    /// Reads a property, whose name is the next token.
    fn property(&mut self, name: &'t Token) -> Understood {
        let Some(next) = self.ahead(1) else {
            return Err(Lost);
        };
        match next.kind {
            Kind::Mark('=') => {
                self.pass(2);
                self.value(name, next)
            }
            Kind::Mark(';') => {
                self.pass(2);
                Ok(())
            }
            Kind::Mark(':') => {
                let what = "a property's value stands behind =, not behind a colon";
                self.report(Self::fault(next, what, "write =").repaired("="))?;
                self.pass(2);
                self.value(name, next)
            }
            Kind::Mark('<') | Kind::Text => {
                let what = "a = is missing before the value";
                let end = name.range.end;
                let fault = Fault::new(name.file, end..end, what, "write = here");
                self.report(fault.repaired(" ="))?;
                self.pass(1);
                self.value(name, name)
            }
            Kind::Mark('}') => {
                self.pass(1);
                self.semicolon(name, "the property")
            }
            Kind::Word => self.two_names(name, next),
            _ => Err(Lost),
        }
    }

    /// Judges two names in sequence: the first lacks its semicolon, or the two are one name.
    fn two_names(&mut self, name: &Token, next: &Token) -> Understood {
        let between = name.range.end..next.range.start;
        if name.file != next.file || self.texts.text(name.file, &between).contains('\n') {
            self.pass(1);
            return self.semicolon(name, "the property");
        }
        let joined = format!("{}-{}", self.text(name), self.text(next));
        let range: Range<usize> = name.range.start..next.range.end;
        let fault = Fault::new(
            name.file,
            range,
            "a name has no blanks",
            "join the words with -",
        );
        self.report(fault.repaired(joined))?;
        Err(Lost)
    }

    /// Tells whether a colon stands where people who write YAML put it: before a value.
    fn is_colon_for_equals(&self) -> bool {
        let value = self.ahead(2);
        value.is_some_and(|token| token.is('<') || token.kind == Kind::Text)
    }

    /// Tells a comment from a property as `#address-cells`.
    fn is_hash_comment(&self, text: &str) -> bool {
        text.starts_with('#') && !self.is(1, '=') && !self.is(1, ';')
    }
}

/// Returns statement, help and repair of a line that begins with #, of which `text` is the first
/// word.
fn hash_fault(text: &str, line: &str) -> (&'static str, &'static str, Option<String>) {
    const PREPROCESSOR: &str = "the C preprocessor does not run on manifests";
    match text {
        "#include" => {
            let file = line.split('"').nth(1);
            let repair = file.map(|file| format!("/include/ \"{file}\""));
            (PREPROCESSOR, "write /include/ \"FILE\"", repair)
        }
        "#define" | "#if" | "#ifdef" | "#ifndef" | "#endif" | "#else" | "#undef" => {
            let help = "write the value itself, or run the preprocessor before: cpp -P -undef";
            (PREPROCESSOR, help, None)
        }
        _ => {
            let repair = format!("// {}", line.trim_start_matches('#').trim_start());
            let what = "comments do not begin with #";
            (what, "write // comment", Some(repair))
        }
    }
}
