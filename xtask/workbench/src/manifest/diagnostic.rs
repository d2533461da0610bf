//! Diagnostics: violations in a manifest, shown in its source as a compiler would.
//!
//! Owns the way from a finding of the rules back to the text that a person wrote, and the two forms
//! of output: text with the source underlined, and JSON for programs. Judges nothing.

use std::collections::HashMap;
use std::fs;
use std::ops::Range;

use annotate_snippets::{AnnotationKind, Group, Level, Patch, Renderer, Snippet};
use gearv_manifest::{CELL_PROPERTIES, Found, ManifestError, Rule, Severity};
use serde_json::{Value, json};

use super::spans::{Place, Spans};

/// The id of what dtc refuses before any rule is tried.
const DTC: &str = "dtc";

/// A finding, with all that the display needs.
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
    node: String,
    property: Option<String>,
    /// Wrong string, where the value is a list of strings.
    text: Option<String>,
    /// Whether the node's name is wrong.
    at_name: bool,
    other: Option<String>,
    nearest: Option<String>,
}

impl Diagnostic {
    /// Keeps what a rule found.
    pub fn new(error: &ManifestError<'_>) -> Self {
        let rule = error.rule;
        let text = match error.found {
            Found::Text(text) => Some(text.to_owned()),
            Found::Reason(reason) => reason.split(':').next().map(str::to_owned),
            Found::Nothing
            | Found::Number(_)
            | Found::Range(..)
            | Found::Blob(_)
            | Found::Digest(_) => None,
        };
        Self {
            id: rule.id(),
            severity: rule.severity(),
            message: format!("{}{}", rule.what(), error.found),
            help: rule.repair().to_owned(),
            node: error.node.to_string(),
            property: error.property.map(str::to_owned),
            text,
            at_name: matches!(rule, Rule::UnknownProperty | Rule::UnknownNode),
            other: error.other.map(|other| other.to_string()),
            nearest: error.nearest.map(str::to_owned),
        }
    }

    /// Makes the finding of a string where the binding has a number.
    fn string_for_number(node: &str, property: &str) -> Self {
        let (rule, unit) = (Rule::WrongType, unit_of(property));
        Self {
            id: rule.id(),
            severity: rule.severity(),
            message: format!("{} (a string)", rule.what()),
            help: format!("write a number{unit} in angle brackets: {property} = <N>;"),
            node: node.to_owned(),
            property: Some(property.to_owned()),
            text: None,
            at_name: false,
            other: None,
            nearest: None,
        }
    }

    fn is_error(&self) -> bool {
        self.severity == Severity::Error
    }

    /// Names the place in the manifest, whatever file it is in.
    fn label(&self) -> String {
        match &self.property {
            Some(property) => format!("{property} of {}", self.node),
            None => self.node.clone(),
        }
    }
}

/// Counts the errors among `list`.
pub fn error_count(list: &[Diagnostic]) -> usize {
    list.iter().filter(|one| one.is_error()).count()
}

/// The source of a manifest, and where in it everything is.
pub struct Sources {
    main: String,
    spans: Spans,
    texts: HashMap<String, String>,
}

/// A part of a source's text.
struct Part<'s> {
    file: &'s str,
    text: &'s str,
    range: Range<usize>,
}

impl Part<'_> {
    /// Returns the line and column of a place in the text, both from 1.
    fn position(&self, at: usize) -> (usize, usize) {
        let before = &self.text[..at];
        let line_start = before.rfind('\n').map_or(0, |end| end + 1);
        let column = before[line_start..].chars().count() + 1;
        (before.matches('\n').count() + 1, column)
    }
}

impl Sources {
    /// Reads the files that `spans` and `main` name.
    pub(super) fn new(main: &str, spans: Spans) -> Self {
        let mut texts = HashMap::new();
        for file in spans.files().chain([main]) {
            if !texts.contains_key(file) {
                let text = fs::read_to_string(file).unwrap_or_default();
                texts.insert(file.to_owned(), text);
            }
        }
        Self {
            main: main.to_owned(),
            spans,
            texts,
        }
    }

    /// Puts the strings that stand for numbers in front of `list`. What other rules say of these
    /// properties follows from a reading of the string as a number, and goes.
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
    /// name.
    fn part(&self, diagnostic: &Diagnostic) -> Option<Part<'_>> {
        let property = diagnostic.property.as_deref();
        let Some(name) = property else {
            return self.node_name(&diagnostic.node);
        };
        let Some(part) = self.property(&diagnostic.node, name) else {
            return self.node_name(&diagnostic.node);
        };
        let within = |text: &str| {
            let start = part.range.start + part.text[part.range.clone()].find(text)?;
            Some(start..start + text.len())
        };
        let quoted = diagnostic.text.as_ref().map(|text| format!("\"{text}\""));
        let narrow = if diagnostic.at_name {
            within(name)
        } else {
            quoted.and_then(|quoted| within(&quoted))
        };
        let range = narrow.unwrap_or_else(|| part.range.clone());
        Some(Part { range, ..part })
    }

    /// Finds the other side of a conflict.
    fn other(&self, diagnostic: &Diagnostic) -> Option<Part<'_>> {
        let node = diagnostic.other.as_deref()?;
        let property = diagnostic.property.as_deref();
        property
            .and_then(|property| self.property(node, property))
            .or_else(|| self.node_name(node))
    }

    fn property(&self, node: &str, name: &str) -> Option<Part<'_>> {
        let part = self.part_at(self.spans.property(node, name)?)?;
        let text = &part.text[part.range.clone()];
        let end = part.range.start + text.trim_end_matches(';').trim_end().len();
        let range = part.range.start..end;
        Some(Part { range, ..part })
    }

    /// Finds a node's name, which stands before its braces.
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

    /// Draws the diagnostics, one paragraph each, with colours if `styled`.
    pub fn draw(&self, list: &[Diagnostic], styled: bool) -> String {
        let renderer = if styled {
            Renderer::styled()
        } else {
            Renderer::plain()
        };
        let drawn = list.iter().map(|one| self.draw_one(one, &renderer));
        drawn.collect::<Vec<_>>().join("\n\n")
    }

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
            None => group.element(Level::NOTE.message(format!("in {}: {label}", self.main))),
        };
        if let Some((nearest, part)) = diagnostic.nearest.as_ref().zip(part.as_ref()) {
            return renderer.render(&[group, suggestion(nearest, part)]);
        }
        let help = Level::HELP.message(diagnostic.help.as_str());
        renderer.render(&[group.element(help)])
    }

    /// Returns the diagnostics for a program.
    pub fn json(&self, list: &[Diagnostic]) -> Vec<Value> {
        list.iter().map(|one| self.json_one(one)).collect()
    }

    fn json_one(&self, diagnostic: &Diagnostic) -> Value {
        let place = |part: Part<'_>| {
            let (line, column) = part.position(part.range.start);
            let (end_line, end_column) = part.position(part.range.end);
            json!({
                "file": part.file, "line": line, "column": column,
                "end-line": end_line, "end-column": end_column,
            })
        };
        let other = diagnostic
            .other
            .as_ref()
            .map(|node| json!({ "node": node, "place": self.other(diagnostic).map(place) }));
        json!({
            "id": diagnostic.id,
            "severity": match diagnostic.severity {
                Severity::Error => "error",
                Severity::Warning => "warning",
            },
            "message": diagnostic.message,
            "help": diagnostic.help,
            "node": diagnostic.node,
            "property": diagnostic.property,
            "place": self.part(diagnostic).map(place),
            "conflict": other,
            "suggestion": diagnostic.nearest,
        })
    }
}

/// Shows a part and, of a conflict, the other part, which may be in another file.
fn with_places<'a>(
    group: Group<'a>,
    part: &'a Part<'_>,
    other: Option<&'a Part<'_>>,
    label: String,
) -> Group<'a> {
    let primary = AnnotationKind::Primary.span(part.range.clone());
    let snippet = Snippet::source(part.text).path(part.file);
    let snippet = snippet.annotation(primary.label(label));
    let Some(other) = other else {
        return group.element(snippet);
    };
    let context = AnnotationKind::Context.span(other.range.clone());
    let context = context.label("in conflict with this");
    if other.file == part.file {
        return group.element(snippet.annotation(context));
    }
    let elsewhere = Snippet::source(other.text).path(other.file);
    group
        .element(snippet)
        .element(elsewhere.annotation(context))
}

/// Shows a part with what the person may have meant, in quotes if the part is.
fn suggestion<'a>(nearest: &str, part: &'a Part<'_>) -> Group<'a> {
    let replacement = match part.text[part.range.clone()].starts_with('"') {
        true => format!("\"{nearest}\""),
        false => nearest.to_owned(),
    };
    let title = Level::HELP.secondary_title(format!("did you mean {nearest}?"));
    let snippet = Snippet::source(part.text).path(part.file);
    let patch = Patch::new(part.range.clone(), replacement);
    title.element(snippet.patch(patch))
}

/// Draws what dtc refuses: `Error: FILE:LINE.COLUMN-COLUMN MESSAGE`, or with lines on both sides.
pub(super) fn refused_by_dtc(message: &str) -> Option<String> {
    let (place, what) = message.lines().find_map(|line| {
        let rest = line.strip_prefix("Error: ")?;
        rest.split_once(' ')
    })?;
    let place = dtc_place(place)?;
    let sources = Sources::new(&place.file, Spans::default());
    let part = sources.part_at(&place)?;
    let annotation = AnnotationKind::Primary.span(part.range.clone());
    let snippet = Snippet::source(part.text).path(part.file);
    let title = Level::ERROR.primary_title(what).id(DTC);
    let group = title.element(snippet.annotation(annotation));
    Some(Renderer::plain().render(&[group]))
}

/// Reads a place as dtc writes it. The end has no line of its own on the line of the start.
fn dtc_place(place: &str) -> Option<Place> {
    let (file, place) = place.rsplit_once(':')?;
    let (start, end) = place.split_once('-')?;
    let point = |text: &str| {
        let (line, column) = text.split_once('.')?;
        Some((line.parse::<usize>().ok()?, column.parse::<usize>().ok()?))
    };
    let start = point(start)?;
    let end = point(end).or_else(|| Some((start.0, end.parse().ok()?)))?;
    Some(Place {
        file: file.to_owned(),
        start,
        end,
    })
}

/// Returns the unit of a number by the ending of the property's name.
fn unit_of(property: &str) -> &'static str {
    match property.rsplit('-').next() {
        Some("ms") => " of milliseconds",
        Some("us") => " of microseconds",
        Some("mib") => " of MiB",
        _ => "",
    }
}
