//! Parts of a source as the library that draws them takes them: underlined, and changed.

use annotate_snippets::{AnnotationKind, Group, Level, Patch, Snippet};

use super::Part;

/// Shows a part and, of a conflict, the other part, which may be in another file. Two annotations
/// in one file share a picture; in two files each has its own.
pub(super) fn with_places<'a>(
    group: Group<'a>,
    part: &'a Part<'_>,
    other: Option<&'a Part<'_>>,
    label: String,
) -> Group<'a> {
    let primary = AnnotationKind::Primary.span(part.range.clone());
    let snippet = Snippet::source(part.text).path(part.file);
    let snippet = snippet.annotation(match label.is_empty() {
        true => primary,
        false => primary.label(label),
    });
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

/// Shows a part with what the person may have meant, in quotes if the part is. The quotes belong to
/// a string's text in the source. A suggestion excludes the help: the corrected line says the same,
/// shorter.
pub(super) fn suggestion<'a>(nearest: &str, part: &'a Part<'_>) -> Group<'a> {
    let replacement = match part.text[part.range.clone()].starts_with('"') {
        true => format!("\"{nearest}\""),
        false => nearest.to_owned(),
    };
    let title = Level::HELP.secondary_title(format!("did you mean {nearest}?"));
    let snippet = Snippet::source(part.text).path(part.file);
    let patch = Patch::new(part.range.clone(), replacement);
    title.element(snippet.patch(patch))
}

/// Shows a part with the text that repairs it. Drawn as a patch, which shows what is inserted or
/// removed.
pub(super) fn replacement<'a>(help: &'a str, repair: &str, part: &'a Part<'_>) -> Group<'a> {
    let snippet = Snippet::source(part.text).path(part.file);
    let patch = Patch::new(part.range.clone(), repair.to_owned());
    Level::HELP
        .secondary_title(help)
        .element(snippet.patch(patch))
}
