//! The grammar of device tree source, as far as mistakes show.
//!
//! The parser goes on behind a fault whose extent is clear, and gives up at what it does not
//! understand: there dtc's own words stand.
//!
//! A fault ends in one of two ways. Where the text behind the mistake is clear, as behind a
//! semicolon that is missing, reading goes on, so that one run shows all mistakes. Where two
//! readings are possible, [`Lost`] ends the reading: every message behind a wrong guess would be
//! about the guess.
//!
//! Messages say what stands there and what to write, and never the grammar's own words: a reader
//! who knew what a token is would not need the message.

use std::collections::HashMap;
use std::ops::Range;

use gearv_manifest::binding;

use super::include::Texts;
use super::layout::Layout;
use super::lexer::{Kind, Token};
use super::{Fault, MOST_FAULTS};

/// Deepest nesting of nodes; a manifest has four. A limit for what is no manifest at all: the
/// parser is recursive.
const MOST_NESTED: usize = 32;

/// Directives of dtc. The list is that of dtc's lexer (dtc-lexer.l).
const DIRECTIVES: [&str; 9] = [
    "/dts-v1/",
    "/include/",
    "/incbin/",
    "/bits/",
    "/delete-node/",
    "/delete-property/",
    "/memreserve/",
    "/omit-if-no-ref/",
    "/plugin/",
];
/// Tables of the binding's properties. A name alone on its line is a switch without its semicolon
/// if a table has it.
const PROPERTIES: [&[&str]; 6] = [
    binding::ROOT_PROPERTIES,
    binding::GEAR2_PROPERTIES,
    binding::VM_PROPERTIES,
    binding::VIRTIO_PROPERTIES,
    binding::SHARED_PROPERTIES,
    binding::CHANNEL_PROPERTIES,
];

/// The text does not go on as far as this parser understands. No fault by itself: dtc has the last
/// word on such a text.
pub(super) struct Lost;

/// `?` ends the reading there, with the faults that were found before.
pub(super) type Understood = Result<(), Lost>;

/// Returns the faults. Never decides whether a text is good: dtc compiles it afterwards in any
/// case.
pub(super) fn parse(texts: &Texts, tokens: &[Token]) -> Vec<Fault> {
    let mut parser = Parser {
        texts,
        tokens,
        at: 0,
        depth: 0,
        layout: Layout::default(),
        faults: Vec::new(),
    };
    // Whether the end was reached does not matter: the faults before it stand.
    let _ = parser.file();
    parser.faults
}

/// One token is enough to tell what comes; labels and nodes take two.
pub(super) struct Parser<'t> {
    /// For the words of tokens and of messages.
    texts: &'t Texts,
    /// Of all sources, in the order in which dtc reads.
    tokens: &'t [Token],
    /// Index of the next token.
    at: usize,
    /// Nodes that are open.
    depth: usize,
    layout: Layout<'t>,
    /// In the order of the text.
    faults: Vec<Fault>,
}

/// Names of one body, with the place where each stands first. Nodes and properties of one name may
/// stand side by side.
type Names<'t> = HashMap<(bool, &'t str), &'t Token>;

impl<'t> Parser<'t> {
    /// Looks ahead without moving.
    pub(super) fn ahead(&self, count: usize) -> Option<&'t Token> {
        self.tokens.get(self.at + count)
    }

    /// Returns a token as it stands in its source.
    pub(super) fn text(&self, token: &Token) -> &'t str {
        self.texts.of(token)
    }

    /// Returns a part of a source, such as what several tokens span.
    pub(super) fn text_at(&self, file: usize, range: &Range<usize>) -> &'t str {
        self.texts.text(file, range)
    }

    /// Tells whether the token `count` tokens from here is the mark.
    pub(super) fn is(&self, count: usize, mark: char) -> bool {
        self.ahead(count).is_some_and(|token| token.is(mark))
    }

    /// Tells whether a node or a property of the text has this label. Labels may stand behind their
    /// references, so the whole text is searched.
    pub(super) fn has_label(&self, label: &str) -> bool {
        let mut pairs = self.tokens.iter().zip(self.tokens.iter().skip(1));
        pairs.any(|(name, colon)| colon.is(':') && self.text(name) == label)
    }

    /// Moves behind the next `count` tokens.
    pub(super) fn pass(&mut self, count: usize) {
        self.at += count;
    }

    /// Reports a fault; too many of them end the reading. Faults behind many others are mostly
    /// consequences.
    pub(super) fn report(&mut self, fault: Fault) -> Understood {
        self.faults.push(fault);
        match self.faults.len() < MOST_FAULTS {
            true => Ok(()),
            false => Err(Lost),
        }
    }

    /// Makes a fault at a token.
    pub(super) fn fault(token: &Token, what: impl Into<String>, help: impl Into<String>) -> Fault {
        Fault::new(token.file, token.range.clone(), what, help)
    }

    /// Expects a semicolon behind `last`, and passes over it. The place is the end of the last
    /// token, which is where a person adds it: dtc names the token behind, often on another line.
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

    /// Several root nodes and references to nodes may follow each other, as dtc merges them.
    fn file(&mut self) -> Understood {
        self.version()?;
        while let Some(token) = self.ahead(0) {
            match token.kind {
                Kind::Directive => self.directive()?,
                Kind::Mark('/') if self.is(1, '{') => self.node(2, token)?,
                Kind::Reference if self.is(1, '{') => self.node(2, token)?,
                Kind::Word if self.is(1, ':') => self.pass(2),
                Kind::Word if self.text(token).starts_with('#') => self.hash(token)?,
                Kind::Word => return self.outside(token),
                Kind::Mark('}') => self.stray_brace(token)?,
                _ if self.is_merge_conflict() => return self.merge_conflict(token),
                _ => return Err(Lost),
            }
        }
        Ok(())
    }

    /// Reports what stands behind the root node, or without one: a brace before it was too many, or
    /// it belongs into the node.
    fn outside(&mut self, token: &Token) -> Understood {
        let (what, help) = match self.ahead(1).map(|next| next.kind) {
            Some(Kind::Mark('{')) => (
                "a node stands outside of the root node",
                "put the node between the braces of / { ... };",
            ),
            Some(Kind::Mark('=' | ';')) => (
                "a property stands outside of the root node",
                "put the property between the braces of / { ... };",
            ),
            _ => (
                "a word stands outside of the root node",
                "remove it, or write it as a comment: // ...",
            ),
        };
        match self.layout.early {
            Some((brace, node)) => self.surplus_brace(brace, node, token)?,
            None => self.report(Self::fault(token, what, help))?,
        }
        Err(Lost)
    }

    /// Reports a closing brace behind the last node. The one that is too many stands where the
    /// indentation says. The semicolon goes with the brace, so that the repair leaves none alone.
    fn stray_brace(&mut self, brace: &'t Token) -> Understood {
        if let Some((early, node)) = self.layout.early.take() {
            self.surplus_brace(early, node, brace)?;
            return Err(Lost);
        }
        let range = self.with_semicolon(brace);
        let is_long = range.end > brace.range.end;
        self.pass(1 + usize::from(is_long));
        let fault = Self::fault(brace, "this brace closes nothing", "remove the brace");
        self.report(Fault { range, ..fault }.repaired(""))
    }

    /// Reports the brace that closed `node` before its author meant to, as `behind` shows.
    fn surplus_brace(&mut self, brace: &Token, node: &Token, behind: &Token) -> Understood {
        let what = format!("this brace closes {}, and is one too many", self.text(node));
        let fault = Self::fault(brace, what, "remove the brace");
        let range = self.with_semicolon(brace);
        let fault = Fault { range, ..fault }.repaired("");
        self.report(fault.against(behind.file, behind.range.clone()))
    }

    /// Returns where a brace and the semicolon behind it are. The brace's own semicolon, in the
    /// same file: an included file may end with the brace.
    fn with_semicolon(&self, brace: &Token) -> Range<usize> {
        let mut behind = self.tokens.iter();
        let behind = behind
            .find(|token| token.file == brace.file && token.range.start >= brace.range.end)
            .filter(|token| token.is(';'));
        brace.range.start..behind.map_or(brace.range.end, |token| token.range.end)
    }

    /// Tells whether git's mark of a conflict is next. Three suffice: the mark has seven, and no
    /// value begins with two.
    fn is_merge_conflict(&self) -> bool {
        (0..3).all(|count| self.is(count, '<'))
    }

    /// Reading ends there, as both sides follow one another and every name would stand twice.
    fn merge_conflict(&mut self, token: &Token) -> Understood {
        let help = "choose one of the two sides, and remove the marks";
        self.report(Self::fault(token, "a merge left its conflict here", help))?;
        Err(Lost)
    }

    /// Judges the start of the file. dtc says "syntax error" of whatever stands there.
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

    /// Passes over a directive and its arguments. The arguments are not judged: dtc does that. An
    /// unknown directive is mostly a comment with one slash, as `/ comment /`.
    fn directive(&mut self) -> Understood {
        if let Some(token) = self.ahead(0)
            && !DIRECTIVES.contains(&self.text(token))
        {
            let what = format!("there is no directive {}", self.text(token));
            let help = "remove it; a comment stands between /* and */, or behind //";
            self.report(Self::fault(token, what, help))?;
            return Err(Lost);
        }
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
    /// The tokens up to the end of the line belong to the comment that was meant.
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

    /// Returns the bytes from a token to the end of its line. Trailing blanks are not underlined.
    /// Bytes, as every range here.
    fn line_length(&self, token: &Token) -> usize {
        let text = self
            .texts
            .files
            .get(token.file)
            .map_or("", |(_, text)| text);
        let rest = text.get(token.range.start..).unwrap_or_default();
        rest.lines().next().unwrap_or_default().trim_end().len()
    }

    /// Reads a node whose opening brace is `before - 1` tokens from here. The name is for messages
    /// of a brace that is never closed.
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

    /// Reads properties and nodes up to the closing brace, and returns that. One loop for all of a
    /// node's content, because order is a fault of its own: properties come first.
    fn body(&mut self, open: &'t Token, name: &'t Token) -> Result<&'t Token, Lost> {
        let mut names = Names::new();
        let mut last_node: Option<&Token> = None;
        loop {
            let Some(token) = self.ahead(0) else {
                return self.never_closed(open, name);
            };
            let text = self.text(token);
            match token.kind {
                Kind::Mark('}') => {
                    self.layout.close(self.texts, (open, name), token);
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
                // Names are compared before the node is read, so that the first of two is the one
                // of the message.
                Kind::Word if self.is(1, '{') => {
                    self.unique(&mut names, true, token)?;
                    last_node = Some(token);
                    self.node(2, token)?;
                }
                Kind::Word => {
                    self.unique(&mut names, false, token)?;
                    let is_node = self.is(1, '=') && self.is(2, '{');
                    let is_property = !is_node && (self.is(1, '=') || self.is(1, ';'));
                    if let Some(node) = last_node.filter(|_| is_property) {
                        self.behind_node(token, node)?;
                    }
                    self.property(token)?;
                }
                // `"vm" { ... };` and `"vcpus" = <2>;`, as JSON has names.
                Kind::Text if self.is(1, '{') || self.is(1, '=') => {
                    let bare = text.trim_matches('"');
                    let fault = Self::fault(token, "a name has no quotes", "remove the quotes");
                    self.report(fault.repaired(bare))?;
                    return Err(Lost);
                }
                // Not repaired: the name is the author's.
                Kind::Mark('{') => return self.no_name(token, names.is_empty()),
                _ if self.is_merge_conflict() => {
                    self.merge_conflict(token)?;
                    return Err(Lost);
                }
                _ => return Err(Lost),
            }
        }
    }

    /// Reports a brace that is open where the text ends: the one whose own closing brace is
    /// missing, as the indentation says.
    fn never_closed(&mut self, open: &Token, name: &Token) -> Result<&'t Token, Lost> {
        let (open, name) = self.layout.unclosed.unwrap_or((open, name));
        let what = format!("the brace of {} is never closed", self.text(name));
        self.report(Self::fault(open, what, "close the node with };"))?;
        Err(Lost)
    }

    /// Reports a brace without a name before it; `is_second`: it may belong to the brace before. A
    /// first brace in an empty node is often a second one by mistake.
    fn no_name(&mut self, brace: &Token, is_second: bool) -> Result<&'t Token, Lost> {
        let what = "this brace has no name before it";
        let help = match is_second {
            true => "write the name of the node, or remove a second brace",
            false => "write the name of the node: NAME { ... };",
        };
        self.report(Self::fault(brace, what, help))?;
        Err(Lost)
    }

    /// Reads a label and its colon (Devicetree Specification 0.4, 6.2). dtc's message for such a
    /// label is "syntax error". A hyphen in a label is the usual slip, since names of nodes have
    /// hyphens.
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

    /// Reports a name that stands a second time in a body. dtc's message has the second place
    /// alone.
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

    /// Reports a property behind a node, which dtc refuses. dtc's own message names neither of the
    /// two.
    fn behind_node(&mut self, token: &Token, node: &Token) -> Understood {
        let text = self.text(token);
        let what = format!("the property {text} stands behind a node");
        let help = format!("move {text} before the node {}", self.text(node));
        let fault = Self::fault(token, what, help);
        self.report(fault.against(node.file, node.range.clone()))
    }

    /// Reads a property, whose name is the next token. Each of the arms is a mistake that people
    /// make who come from YAML, TOML or JSON.
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
            // `vcpus <2>;`: the habit of device configurations without an equals sign.
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
            // Whether one name or two were meant, the line break tells.
            Kind::Word => self.two_names(name, next),
            _ => Err(Lost),
        }
    }

    /// Judges two names in sequence: the first lacks its semicolon, or the two are one name. A line
    /// break between the two decides: on one line they are one name with a blank. `memory mib` on
    /// one line is one name; two lines are two statements.
    fn two_names(&mut self, name: &Token, next: &Token) -> Understood {
        let between = name.range.end..next.range.start;
        if name.file != next.file || self.texts.text(name.file, &between).contains('\n') {
            return self.alone(name);
        }
        if self.text(name).starts_with("--") {
            return self.dashes(name);
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

    /// Reports a name alone on its line. A property lacks its semicolon; another name may be a
    /// node's, whose brace is missing, and what follows from that says nothing more. The place of
    /// the message is the end of the line, where the missing character goes.
    fn alone(&mut self, name: &Token) -> Understood {
        let text = self.text(name);
        if PROPERTIES.iter().any(|names| names.contains(&text)) {
            self.pass(1);
            return self.semicolon(name, "the property");
        }
        let end = name.range.end;
        let what = format!("a {{ or a ; is missing behind {text}");
        let help = "a node is NAME { ... }; and a switch NAME;";
        self.report(Fault::new(name.file, end..end, what, help))?;
        Err(Lost)
    }

    /// Reports a comment as SQL and Lua have it.
    fn dashes(&mut self, name: &Token) -> Understood {
        let range = name.range.start..name.range.start + self.line_length(name);
        let line = self.texts.text(name.file, &range);
        let repair = format!("// {}", line.trim_start_matches('-').trim_start());
        let what = "comments do not begin with --";
        let fault = Fault::new(name.file, range, what, "write // comment");
        self.report(fault.repaired(repair))?;
        Err(Lost)
    }

    /// Tells whether a colon stands where people who write YAML put it: before a value. A label
    /// also has a colon, and a name behind. A label before a value is legal to dtc and has no use
    /// in a manifest, so nothing is lost.
    fn is_colon_for_equals(&self) -> bool {
        let value = self.ahead(2);
        value.is_some_and(|token| token.is('<') || token.kind == Kind::Text)
    }

    /// Tells a comment from a property as `#address-cells`. Names such as `#address-cells` begin
    /// with # by the specification.
    fn is_hash_comment(&self, text: &str) -> bool {
        text.starts_with('#') && !self.is(1, '=') && !self.is(1, ';')
    }
}

/// Returns statement, help and repair of a line that begins with #, of which `text` is the first
/// word. An `#include` has a counterpart in device tree source; the other directives have none.
fn hash_fault(text: &str, line: &str) -> (&'static str, &'static str, Option<String>) {
    /// Trees of Linux go through it, and manifests do not: dtc reads them as they are.
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
