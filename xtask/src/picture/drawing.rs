//! A terminal's lines, and its screen, as SVG.
//!
//! Text stays text: a reader can search and copy it, and the picture is sharp at each size. A font
//! is named by its family alone, so widths are given where cells must meet.

use crate::terminal::{Style, Terminal};

/// Columns that are drawn; what is behind them is cut off.
pub(super) const COLUMNS: usize = 92;
/// Size of a character's cell, and of the margin, in pixels. The width is that of the usual
/// monospaced fonts at this size.
const CELL: (f32, usize) = (8.0, 19);
/// Pixels around the text.
const MARGIN: usize = 16;
/// Background, and the colours of each kind of line.
const BACKGROUND: &str = "#14181d";
/// End of a picture.
const END: &str = "</g>\n</svg>\n";

/// A line of the terminal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Line {
    /// Decides the colour.
    kind: Kind,
    text: String,
}

/// The picture tells typed text from printed text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Typed,
    Printed,
}

impl Kind {
    /// Of a dark terminal, which most readers know.
    const fn colour(self) -> &'static str {
        match self {
            Self::Typed => "#7fd1ae",
            Self::Printed => "#d7dde4",
        }
    }
}

impl Line {
    /// A command behind its prompt.
    pub(super) fn typed(prompt: &str, command: &str) -> Self {
        Self::new(Kind::Typed, &format!("{prompt} {command}"))
    }

    /// Output of a program.
    pub(super) fn printed(text: &str) -> Self {
        Self::new(Kind::Printed, text)
    }

    /// A line that is too long is cut off, as a terminal of this width without wrapping does.
    fn new(kind: Kind, text: &str) -> Self {
        let text = plain(text).chars().take(COLUMNS).collect();
        Self { kind, text }
    }
}

/// Removes escape sequences and control characters. Colours of the shell are lost, which the
/// picture has its own for.
fn plain(text: &str) -> String {
    let mut plain = String::new();
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        if c == '\x1b' {
            // A sequence ends with its first letter.
            let _ = chars.find(char::is_ascii_alphabetic);
        } else if !c.is_control() {
            plain.push(c);
        }
    }
    plain.trim_end().to_owned()
}

/// Draws the lines. The baseline lies above the lower edge of the row, by the depth of letters such
/// as g.
pub(super) fn svg(lines: &[Line]) -> String {
    let mut svg = begin(lines.len(), "A session of GearV");
    for (row, line) in (1..).zip(lines) {
        let y = MARGIN + row * CELL.1 - 5;
        let colour = line.kind.colour();
        let text = escaped(&line.text);
        svg += &format!("<text x=\"{MARGIN}\" y=\"{y}\" fill=\"{colour}\">{text}</text>\n");
    }
    svg + END
}

/// Draws a terminal's screen, with its styles.
pub(super) fn screen(terminal: &Terminal, label: &str) -> String {
    let mut svg = begin(terminal.lines(), label);
    for row in 0..terminal.lines() {
        for (column, style, text) in terminal.parts(row) {
            svg += &part((row, column), style, &text);
        }
    }
    svg + END
}

/// Draws text of one style, exactly as wide as its cells: bars of a chart stand side by side.
fn part((row, column): (usize, usize), style: Style, text: &str) -> String {
    let is_blank = text.trim().is_empty();
    let (x, y) = (
        MARGIN as f32 + column as f32 * CELL.0,
        MARGIN + row * CELL.1,
    );
    let width = text.chars().count() as f32 * CELL.0;
    let (front, back) = (Kind::Printed.colour(), BACKGROUND);
    let mut svg = String::new();
    if style.reversed {
        let height = CELL.1;
        svg += &format!(
            "<rect x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" fill=\"{front}\"/>\n"
        );
    }
    if is_blank {
        return svg;
    }
    let fill = if style.reversed { back } else { front };
    let weight = if style.bold {
        " font-weight=\"bold\""
    } else {
        ""
    };
    let line = if style.underlined {
        " text-decoration=\"underline\""
    } else {
        ""
    };
    let (y, text) = (y + CELL.1 - 5, escaped(text));
    svg + &format!(
        "<text x=\"{x}\" y=\"{y}\" textLength=\"{width}\" lengthAdjust=\"spacingAndGlyphs\" \
         fill=\"{fill}\"{weight}{line}>{text}</text>\n"
    )
}

/// Begins a picture of so many rows. The label is what a screen reader says.
fn begin(rows: usize, label: &str) -> String {
    let width = COLUMNS as f32 * CELL.0 + 2.0 * MARGIN as f32;
    let height = rows * CELL.1 + 2 * MARGIN;
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
         role=\"img\" aria-label=\"{label}\">\n\
         <rect width=\"100%\" height=\"100%\" rx=\"8\" fill=\"{BACKGROUND}\"/>\n\
         <g font-family=\"ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace\" \
         font-size=\"13.3\" xml:space=\"preserve\">\n"
    )
}

/// XML's three characters; quotes stand in no attribute here.
fn escaped(text: &str) -> String {
    let text = text.replace('&', "&amp;");
    text.replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests;
