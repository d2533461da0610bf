//! Parts of SVG pictures that several commands draw: head, colours, text.
//!
//! Pictures have rectangles, lines and text alone: no script, no font of their own and no style
//! sheet, so that each viewer shows them and a difference of two pictures can be read.

use std::fmt::Display;

/// Colours of VMs, taken in turn. They are light enough for black text, and differ in brightness as
/// well, for people who do not tell red from green.
pub const COLOURS: [&str; 8] = [
    "#8ecae6", "#ffb703", "#90be6d", "#f28482", "#cdb4db", "#84dcc6", "#f4a261", "#a3b18a",
];

/// Opens a picture of this size in pixels. The ground is white: a viewer in dark mode would put
/// black behind black text.
pub fn head(width: impl Display, height: impl Display) -> String {
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    )
}

/// Returns a text as it stands in a picture: names come from manifests and may hold any character.
pub fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}
