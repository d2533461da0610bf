//! dtc's own words on a source that it refuses, where no fault was found in the text.
//!
//! dtc's messages have no format that is promised. A line that is not understood is shown as it is.

use super::{Diagnostic, Place, Site, Sources, Spans};

/// The id of what only dtc refuses. dtc's words are shown as they are: whoever searches for them
/// finds dtc's own pages.
const DTC: &str = "dtc";

/// Reads what dtc says of a text in which no fault was found. "syntax error" is all that bison lets
/// dtc say, so a help is added.
pub(in super::super) fn refused_by_dtc(message: &str) -> (Sources, Diagnostic) {
    let found = message.lines().find_map(dtc_line);
    let place = found.as_ref().map(|(place, _)| place);
    let sources = Sources::new(place.map_or("", |place| &place.file), Spans::default());
    let part = place.and_then(|place| sources.part_at(place));
    let site = part.map(|part| Site {
        file: part.file.to_owned(),
        range: part.range,
    });
    let whole = message.trim_start_matches("FATAL ERROR: ").trim_end();
    let what = found.map_or(whole, |(_, what)| what);
    let diagnostic = Diagnostic {
        id: DTC,
        message: what.to_owned(),
        help: dtc_help(what).to_owned(),
        site,
        ..Diagnostic::empty()
    };
    (sources, diagnostic)
}

/// Starts of what dtc says, and the repairs.
const DTC_HELP: &[(&str, &str)] = &[
    (
        "syntax error",
        "a property is NAME = VALUE; and a node NAME { ... };",
    ),
    (
        "Label or path",
        "write a label before the node, LABEL: NAME { ... };, or remove what refers to it",
    ),
    ("Division by zero", "write another divisor than 0"),
    (
        "Value out of range",
        "write a smaller number: a cell has 32 bits, and an address may have two cells, the upper \
         half first",
    ),
    (
        "Duplicate label",
        "remove or rename one of the two; no property needs a label",
    ),
];

/// Says how to repair what dtc refuses.
fn dtc_help(what: &str) -> &'static str {
    let mut known = DTC_HELP.iter();
    let known = known.find(|(start, _)| what.starts_with(start));
    let other = "remove it, or write it as the examples in docs/manifest.md are written";
    known.map_or(other, |(_, help)| help)
}

/// Reads the place and the message of a line. dtc has three forms: `Error: FILE:LINE.COLUMN-COLUMN
/// MESSAGE`, with lines on both sides of the dash or not, `FILE:PLACE: ERROR (CHECK): NODE:
/// MESSAGE`, and a line without a place, which gives `None`. The forms are those of dtc's srcpos.c
/// and checks.c.
fn dtc_line(line: &str) -> Option<(Place, &str)> {
    let (place, what) = match line.split_once("rror: ") {
        Some((_, rest)) => rest.split_once(' ')?,
        None => {
            let (place, what) = line.split_once(": ERROR ")?;
            (place, what.split_once("): ").map_or(what, |(_, what)| what))
        }
    };
    Some((dtc_place(place)?, what))
}

/// Reads a place as dtc writes it. The end has no line of its own on the line of the start. Without
/// a dash there is no range, and the message stays without a place.
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
