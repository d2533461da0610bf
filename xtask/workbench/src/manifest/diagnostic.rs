//! Diagnostics: violations in a manifest, shown in its source as a compiler would.
//!
//! Owns the way from a finding of the rules back to the text that a person wrote, and the two forms
//! of output: text with the source underlined, and JSON for programs. Judges nothing.
//!
//! An object of the JSON has these keys; `null` stands for what does not apply, so that a program
//! need not ask whether a key exists:
//!
//! | key | value |
//! |---|---|
//! | `id` | rule as docs/manifest.md lists it, or `syntax`, `dtc` or `file` |
//! | `severity` | `error` refuses the manifest, `warning` does not |
//! | `message`, `help` | what is wrong with what stands there, and what to write |
//! | `node`, `property` | where in the manifest, by name |
//! | `place` | where in the source: `file`, and `line` and `column` of both ends, from 1 |
//! | `conflict` | the other node or place, of two that exclude each other |
//! | `suggestion` | a text to put in the place, if one is sure |

use std::collections::HashMap;
use std::fs;
use std::ops::Range;
use std::path::PathBuf;

use annotate_snippets::{Group, Level, Renderer};
use gearv_manifest::binding::CELL_PROPERTIES;
use gearv_manifest::{Found, Manifest, ManifestError, Rule, Severity};
use serde_json::{Value, json};

use super::spans::{Place, Spans};
use super::syntax::{self, Fault, Texts};
use super::{expected, repair};
use crate::output;

mod drawing;
mod dtc;
mod narrow;

use drawing::{replacement, suggestion, with_places};

pub(super) use dtc::refused_by_dtc;

/// The id of a fault in the text, before any rule is tried. Identifiers of rules begin with `M-`,
/// so this one cannot be one of theirs.
const SYNTAX: &str = "syntax";

/// A finding, with all that the display needs. A copy of everything: the blob that a rule looked at
/// is gone by the time of display.
#[derive(Clone, Debug)]
pub struct Diagnostic {
    /// Identifier of the rule, as in `M-MEM-001`.
    pub id: &'static str,
    /// Severity.
    pub severity: Severity,
    /// Message.
    pub message: String,
    /// Repair.
    help: String,
    /// Path of the node that is wrong.
    node: String,
    /// Property that is wrong or missing; `None`: the node itself.
    property: Option<String>,
    /// Wrong string, where the value is a list of strings. Narrows the underlined part from the
    /// whole value to one string.
    text: Option<String>,
    /// Whether the node's name is wrong. The value says nothing then, and is not underlined.
    at_name: bool,
    /// Path of the node that the first one contradicts.
    other: Option<String>,
    /// Known name that is most like the wrong one. Editors offer it as a replacement.
    nearest: Option<String>,
    /// Place in the text, of a fault that has no node yet. A text that does not parse has no nodes
    /// to name.
    site: Option<Site>,
    /// The other place in the text.
    other_site: Option<Site>,
    /// Text that repairs, in place of the site's. Only where the repair is sure: an editor applies
    /// it without a look.
    repair: Option<String>,
}

/// A part of a file. Bytes and not lines, as the lexer has them.
#[derive(Clone, Debug)]
struct Site {
    /// Of the manifest itself, or of one that it includes.
    file: String,
    /// May be empty: something is missing there.
    range: Range<usize>,
}

/// Makers: each fills in what it knows, and the rest says that there is nothing to show.
impl Diagnostic {
    /// Keeps what a rule found. A reason has the string before a colon, which is how init writes
    /// reasons on devices.
    pub fn new(error: &ManifestError<'_>) -> Self {
        let rule = error.rule;
        let text = match error.found {
            Found::Text(text) | Found::Word(text, _) => Some(text.to_owned()),
            Found::Reason(reason) => reason.split(": ").next().map(str::to_owned),
            Found::Nothing
            | Found::Number(_)
            | Found::Mib(_)
            | Found::Memory(..)
            | Found::Range(..)
            | Found::Blob(_)
            | Found::Digest(_)
            | Found::Us(_)
            | Found::Ms(_)
            | Found::Budget(_)
            | Found::Span(..)
            | Found::Overflow(..)
            | Found::Wait(..)
            | Found::Load(_)
            | Found::Left(..)
            | Found::Scheduler(..) => None,
        };
        Self {
            id: rule.id(),
            severity: rule.severity(),
            message: format!("{}{}", rule.what(), error.found),
            help: repair::text(error),
            node: error.node.to_string(),
            property: error.property.map(str::to_owned),
            text,
            at_name: matches!(rule, Rule::UnknownProperty | Rule::UnknownNode),
            other: error.other.map(|other| other.to_string()),
            nearest: repair::nearest(error).map(str::to_owned),
            ..Self::empty()
        }
    }

    /// Makes an error without a place. All fields at once, so that each maker names what differs.
    fn empty() -> Self {
        Self {
            id: SYNTAX,
            severity: Severity::Error,
            message: String::new(),
            help: String::new(),
            node: String::new(),
            property: None,
            text: None,
            at_name: false,
            other: None,
            nearest: None,
            site: None,
            other_site: None,
            repair: None,
        }
    }

    /// Makes the finding of a fault in one of `texts`. Faults of the text come before any rule,
    /// from the lexer and the parser.
    pub(super) fn of_fault(fault: Fault, texts: &Texts) -> Self {
        let site = |file, range| {
            let file = texts.name(file);
            Some(Site { file, range })
        };
        Self {
            message: fault.message,
            help: fault.help,
            repair: fault.repair,
            site: site(fault.file, fault.range),
            other_site: fault.other.and_then(|(file, range)| site(file, range)),
            ..Self::empty()
        }
    }

    /// Makes the warning of a fault that dtc does not mind. dtc compiles such a text, so it cannot
    /// be an error.
    pub(super) fn warning(fault: Fault, texts: &Texts) -> Self {
        Self {
            severity: Severity::Warning,
            ..Self::of_fault(fault, texts)
        }
    }

    /// Makes the finding of a path that names no file. Most first runs of a new user end here, so
    /// the help tells how to begin.
    pub(super) fn without_file(file: &str, is_folder: bool) -> Self {
        let (message, help) = match is_folder {
            true => (
                format!("{file} is a folder"),
                format!(
                    "name the manifests in it: {}/*.dts",
                    file.trim_end_matches('/')
                ),
            ),
            false => (
                format!("there is no manifest {file}"),
                "cargo xtask new-manifest FILE writes a manifest to start from".to_owned(),
            ),
        };
        Self {
            id: "file",
            message,
            help,
            ..Self::empty()
        }
    }

    /// Tells of Gear2's and each VM's memory where all of them together have too much. The sum
    /// alone does not show which VM has too much.
    pub fn add_memory(&mut self, manifest: &Manifest<'_>) {
        if self.id == Rule::OutOfMemory.id() {
            let sizes = manifest.vms.iter().map(|vm| (vm.name, vm.memory.bytes));
            let sizes = sizes.chain([("Gear2", manifest.gear2.memory_bytes)]);
            let sizes = sizes.map(|(name, bytes)| format!("{name} has {} MiB", bytes >> 20));
            let sizes: Vec<String> = sizes.collect();
            self.help = format!("{}: {}", self.help, sizes.join(", "));
        }
    }

    /// Makes the finding of a string where the binding has a number. dtc takes `"5"` as two bytes,
    /// which a reader of cells finds to be of wrong length: a message on lengths would lead astray.
    fn string_for_number(node: &str, property: &str) -> Self {
        let rule = Rule::WrongType;
        Self {
            id: rule.id(),
            message: format!("{} (a string)", rule.what()),
            help: expected::value(node, property).unwrap_or_else(|| rule.repair().to_owned()),
            node: node.to_owned(),
            property: Some(property.to_owned()),
            ..Self::empty()
        }
    }

    /// Returns the severity as compilers name it, which editors look for. The words are gcc's.
    fn severity_name(&self) -> &'static str {
        match self.severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
        }
    }

    /// Tells whether the manifest is refused for this.
    pub fn is_error(&self) -> bool {
        self.severity == Severity::Error
    }

    /// Tells who has the memory that a VM cannot have. Only the caller knows where the boot loader
    /// puts things.
    pub fn add_reserved(&mut self, who: &str) {
        if self.id == Rule::MemoryReserved.id() {
            self.help = format!("{}; {who}", self.help);
        }
    }

    /// Names the place in the manifest, whatever file it is in. Printed beside the underlined part,
    /// and alone where there is no part. Paths of nodes are long, and hence stand beside the
    /// picture and not in the message.
    fn label(&self) -> String {
        match &self.property {
            Some(property) => format!("{property} of {}", self.node),
            None => self.node.clone(),
        }
    }
}

/// Counts the errors among `list`. Warnings are left out: the number stands in the sentence that
/// refuses the manifest.
pub fn error_count(list: &[Diagnostic]) -> usize {
    list.iter().filter(|one| one.is_error()).count()
}

/// The source of a manifest, and where in it everything is. Texts are read once more for display,
/// in the form in which dtc counts lines.
pub struct Sources {
    /// Named where nothing more exact is known.
    main: String,
    /// Places of nodes and properties, if dtc took the text.
    spans: Spans,
    /// By file name, as places name files.
    texts: HashMap<String, String>,
}

/// A part of a source's text. Borrowed from [`Sources`]: the drawing library wants slices.
struct Part<'s> {
    file: &'s str,
    text: &'s str,
    range: Range<usize>,
}

impl Part<'_> {
    /// Returns the line and column of a place in the text, both from 1. Columns count characters,
    /// as editors show them; dtc counts bytes.
    fn position(&self, at: usize) -> (usize, usize) {
        let before = &self.text[..at];
        let line_start = before.rfind('\n').map_or(0, |end| end + 1);
        let column = before[line_start..].chars().count() + 1;
        (before.matches('\n').count() + 1, column)
    }
}

impl Sources {
    /// Reads the files that `spans` and `main` name. A file that is gone meanwhile is shown as
    /// empty: the finding matters more than its picture.
    pub(super) fn new(main: &str, spans: Spans) -> Self {
        let mut texts = HashMap::new();
        for file in spans.files().chain([main]) {
            if !texts.contains_key(file) {
                let text = syntax::text_of(&fs::read(file).unwrap_or_default());
                texts.insert(file.to_owned(), text);
            }
        }
        Self {
            main: main.to_owned(),
            spans,
            texts,
        }
    }

    /// Keeps texts that were read before, of which the first is the manifest. Faults of a text name
    /// bytes of what was read, which the file may no longer have.
    pub(super) fn of_texts(texts: Texts) -> Self {
        let main = texts.name(0);
        let named = |(path, text): (PathBuf, String)| (path.display().to_string(), text);
        Self {
            main,
            spans: Spans::default(),
            texts: texts.files.into_iter().map(named).collect(),
        }
    }

    /// Puts the strings that stand for numbers in front of `list`. What other rules say of these
    /// properties follows from a reading of the string as a number, and goes. dtc keeps no types in
    /// the blob; only the source tells a string from cells.
    pub(super) fn judge_strings(&self, list: &mut Vec<Diagnostic>) {
        let strings = self.spans.strings();
        let strings = strings.filter(|(_, property)| CELL_PROPERTIES.contains(property));
        let found: Vec<Diagnostic> = strings
            .map(|(node, property)| Diagnostic::string_for_number(node, property))
            .collect();
        list.retain(|one| {
            found
                .iter()
                .all(|string| (&string.node, &string.property) != (&one.node, &one.property))
        });
        list.splice(0..0, found);
    }

    /// Finds the part that a diagnostic is about: of the property that is there, or the node's
    /// name. From the most exact place to the least: a site, the string in a value, the property, a
    /// node that has the property's name, the node. Something is always underlined.
    fn part(&self, diagnostic: &Diagnostic) -> Option<Part<'_>> {
        if let Some(site) = &diagnostic.site {
            return self.site(site);
        }
        let property = diagnostic.property.as_deref();
        let Some(name) = property else {
            return self.nearest_node(&diagnostic.node);
        };
        let Some(part) = self.property(&diagnostic.node, name) else {
            let below = format!("{}/{name}", diagnostic.node);
            let below = self.node_name(&below);
            return below.or_else(|| self.nearest_node(&diagnostic.node));
        };
        let within = |text: &str| {
            let start = part.range.start + part.text[part.range.clone()].find(text)?;
            Some(start..start + text.len())
        };
        // With the quotes first: `"a"` does not occur in `"ab"`, and a bare `a` does.
        let quoted = |text: &str| within(&format!("\"{text}\""));
        let narrow = match &diagnostic.text {
            // Of an unknown property the name is wrong, and the value need not be.
            _ if diagnostic.at_name => within(name),
            None => None,
            Some(text) => {
                let value = &part.text[part.range.clone()];
                let pattern = || quoted(narrow::pattern_of(value, text)?);
                let word = || narrow::word_of(value, text).filter(|_| name == "cmdline");
                quoted(text).or_else(pattern).or_else(|| {
                    let word = word()?;
                    Some(part.range.start + word.start..part.range.start + word.end)
                })
            }
        };
        let range = narrow.unwrap_or_else(|| part.range.clone());
        Some(Part { range, ..part })
    }

    /// Finds the other side of a conflict. Of two nodes in conflict, the same property of the other
    /// one is shown first.
    fn other(&self, diagnostic: &Diagnostic) -> Option<Part<'_>> {
        if let Some(site) = &diagnostic.other_site {
            return self.site(site);
        }
        let node = diagnostic.other.as_deref()?;
        let property = diagnostic.property.as_deref();
        property
            .and_then(|property| self.property(node, property))
            .or_else(|| self.node_name(node))
    }

    /// A range beyond the text would abort the drawing.
    fn site<'s>(&'s self, site: &Site) -> Option<Part<'s>> {
        let (file, text) = self.texts.get_key_value(&site.file)?;
        text.get(site.range.clone())?;
        let range = site.range.clone();
        Some(Part { file, text, range })
    }

    /// The semicolon is left out of the underlined part. A picture that underlines the semicolon
    /// would say that it is part of the mistake.
    fn property(&self, node: &str, name: &str) -> Option<Part<'_>> {
        let part = self.part_at(self.spans.property(node, name)?)?;
        let text = &part.text[part.range.clone()];
        let end = part.range.start + text.trim_end_matches(';').trim_end().len();
        let range = part.range.start..end;
        Some(Part { range, ..part })
    }

    /// Finds the name of a node, or of the one that the node is missing in.
    fn nearest_node(&self, node: &str) -> Option<Part<'_>> {
        self.node_name(node).or_else(|| {
            let (above, _) = node.rsplit_once('/')?;
            match above {
                "" => self.node_name("/"),
                above => self.nearest_node(above),
            }
        })
    }

    /// Finds a node's name, which stands before its braces. dtc tells where a node's braces are,
    /// and not its name.
    fn node_name(&self, node: &str) -> Option<Part<'_>> {
        let braces = self.part_at(self.spans.node(node)?)?;
        let name = match node.rsplit('/').next() {
            Some("") | None => "/",
            Some(name) => name,
        };
        let start = braces.text[..braces.range.start].rfind(name)?;
        let range = start..start + name.len();
        Some(Part { range, ..braces })
    }

    /// dtc's lines and columns begin with 1, and its columns count bytes. A place that the text
    /// does not have, as of a file that has changed meanwhile, is no part.
    fn part_at<'s>(&'s self, place: &'s Place) -> Option<Part<'s>> {
        let text = self.texts.get(&place.file)?;
        let offset = |(line, column): (usize, usize)| {
            let start = match line.checked_sub(2) {
                None => 0,
                Some(before) => text.match_indices('\n').nth(before)?.0 + 1,
            };
            let at = start + column.checked_sub(1)?;
            text.is_char_boundary(at).then_some(at)
        };
        let range = offset(place.start)?..offset(place.end)?;
        (range.start <= range.end).then_some(Part {
            file: &place.file,
            text,
            range,
        })
    }

    /// Draws the diagnostics, one paragraph each, with colours if `styled`. Paragraphs are apart,
    /// so that one error can be read by itself.
    pub fn draw(&self, list: &[Diagnostic], styled: bool) -> String {
        let renderer = if styled {
            Renderer::styled()
        } else {
            Renderer::plain()
        };
        let drawn = list.iter().map(|one| self.draw_one(one, &renderer));
        drawn.collect::<Vec<_>>().join("\n\n")
    }

    /// Draws those that this process has not drawn by this function before. `check` and a later
    /// build in the same process find the same.
    pub fn draw_new(&self, list: &[Diagnostic], styled: bool) -> String {
        let drawn = list
            .iter()
            .map(|one| self.draw(std::slice::from_ref(one), styled));
        let new = drawn.filter(|drawn| output::is_new(drawn));
        new.collect::<Vec<_>>().join("\n\n")
    }

    /// A suggestion is drawn as a change of the text, where there is one; otherwise the help is a
    /// sentence.
    fn draw_one(&self, diagnostic: &Diagnostic, renderer: &Renderer) -> String {
        let level = match diagnostic.severity {
            Severity::Error => Level::ERROR,
            Severity::Warning => Level::WARNING,
        };
        let title = level.primary_title(diagnostic.message.as_str());
        let group = Group::with_title(title.id(diagnostic.id));
        let part = self.part(diagnostic);
        let other = self.other(diagnostic);
        let label = diagnostic.label();
        let group = match &part {
            Some(part) => with_places(group, part, other.as_ref(), label),
            None if label.is_empty() => group,
            None => group.element(Level::NOTE.message(format!("in {}: {label}", self.main))),
        };
        if let Some((nearest, part)) = diagnostic.nearest.as_ref().zip(part.as_ref()) {
            return renderer.render(&[group, suggestion(nearest, part)]);
        }
        if let Some((repair, part)) = diagnostic.repair.as_ref().zip(part.as_ref()) {
            return renderer.render(&[group, replacement(&diagnostic.help, repair, part)]);
        }
        if diagnostic.help.is_empty() {
            return renderer.render(&[group]);
        }
        let help = Level::HELP.message(diagnostic.help.as_str());
        renderer.render(&[group.element(help)])
    }

    /// Writes the diagnostics one a line, as compilers do for editors: `FILE:LINE:COLUMN: error:
    /// MESSAGE [ID]; HELP`. The form is gcc's, which editors parse without settings. A place is
    /// always there, if only line 1 of the manifest: editors drop lines without one.
    pub fn lines(&self, list: &[Diagnostic]) -> String {
        let line = |one: &Diagnostic| {
            let place = match self.part(one) {
                Some(part) => {
                    let (line, column) = part.position(part.range.start);
                    format!("{}:{line}:{column}", part.file)
                }
                None => format!("{}:1:1", self.main),
            };
            let (severity, message) = (one.severity_name(), &one.message);
            let help = match &one.nearest {
                Some(nearest) => format!("; did you mean {nearest}?"),
                None if one.help.is_empty() => String::new(),
                None => format!("; {}", one.help),
            };
            format!("{place}: {severity}: {message} [{}]{help}\n", one.id)
        };
        list.iter().map(line).collect()
    }

    /// Returns the diagnostics for a program. The same findings in the same order as the text.
    pub fn json(&self, list: &[Diagnostic]) -> Vec<Value> {
        list.iter().map(|one| self.json_one(one)).collect()
    }

    /// Places have both ends, for an editor to underline.
    fn json_one(&self, diagnostic: &Diagnostic) -> Value {
        let place = |part: Part<'_>| {
            let (line, column) = part.position(part.range.start);
            let (end_line, end_column) = part.position(part.range.end);
            json!({
                "file": part.file, "line": line, "column": column,
                "end-line": end_line, "end-column": end_column,
            })
        };
        let other = self.other(diagnostic).map(place);
        let other = (diagnostic.other.is_some() || other.is_some())
            .then(|| json!({ "node": diagnostic.other, "place": other }));
        json!({
            "id": diagnostic.id,
            "severity": diagnostic.severity_name(),
            "message": diagnostic.message,
            "help": diagnostic.help,
            "node": (!diagnostic.node.is_empty()).then_some(&diagnostic.node),
            "property": diagnostic.property,
            "place": self.part(diagnostic).map(place),
            "conflict": other,
            "suggestion": diagnostic.nearest.as_ref().or(diagnostic.repair.as_ref()),
        })
    }
}
