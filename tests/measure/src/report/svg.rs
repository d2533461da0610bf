//! The frame of a plot over an axis of latencies, as SVG.
//!
//! The axis of these plots is linear up to a split and logarithmic from there on (`axis.rs`), which
//! shows both the bulk and the tail of a distribution.

use std::fmt::Write as _;

use super::axis::{self, Axis};
use super::html::escape;

/// Size of a plot, and of the margins around what is drawn.
const WIDTH: f64 = 1000.0;
const HEIGHT: f64 = 360.0;
const LEFT: f64 = 78.0;
const RIGHT: f64 = 22.0;
const TOP: f64 = 40.0;
const BOTTOM: f64 = 50.0;
/// Least distance of two names on the axis of latencies: closer ones would overlap.
const APART: f64 = 56.0;
/// Colours of the configurations, in their order. A configuration has one colour in all plots of a
/// page. The first is a grey, since the first configuration is the native one, over which others
/// are drawn.
const COLOURS: [&str; 6] = [
    "#444444", "#c2571a", "#8b4fb0", "#1b8a5a", "#1f5fa8", "#b08a00",
];

/// Returns the colour of a configuration. More configurations than colours begin again with the
/// first.
pub(super) fn colour(index: usize) -> &'static str {
    COLOURS[index % COLOURS.len()]
}

/// Returns the x coordinate of a place from 0 to 1.
pub(super) fn x(place: f64) -> f64 {
    LEFT + place * (WIDTH - LEFT - RIGHT)
}

/// Returns the y coordinate of a place from 0, below, to 1. SVG counts from above, and a plot from
/// below. A place outside of the frame is drawn at its edge.
pub(super) fn y(place: f64) -> f64 {
    HEIGHT - BOTTOM - place.clamp(0.0, 1.0) * (HEIGHT - TOP - BOTTOM)
}

/// Returns a plot: what `drawn` holds in a frame, the names of both axes' values, and a legend of
/// names with their colours. Grid and ground are drawn first, so that lines of figures lie over
/// them.
pub(super) fn plot(
    axis: Axis,
    levels: &[(f64, String)],
    legend: &[(&str, &str)],
    drawn: &str,
) -> String {
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
         width=\"{WIDTH}\" height=\"{HEIGHT}\" font-family=\"sans-serif\" font-size=\"13\">\n\
         <rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"#fff\"/>\n"
    );
    svg += &behind_the_split(axis);
    svg += &horizontal_lines(levels);
    svg += &vertical_lines(axis);
    svg += &split_text(axis);
    svg += drawn;
    svg += &legend_of(legend);
    svg + "</svg>\n"
}

/// Marks the part of the axis that is logarithmic. Distances on both sides of the split do not
/// compare, which the colour of the ground tells.
fn behind_the_split(axis: Axis) -> String {
    let Some(split) = axis.split() else {
        return String::new();
    };
    let (left, right) = (x(axis.place(split)), x(1.0));
    let (top, bottom) = (y(1.0), y(0.0));
    format!(
        "<rect x=\"{left:.1}\" y=\"{top}\" width=\"{:.1}\" height=\"{:.1}\" fill=\"#f6f1e7\"/>\n\
         <path d=\"M{left:.1} {top}V{bottom}\" stroke=\"#b59b6a\" stroke-dasharray=\"5 4\"/>\n",
        right - left,
        bottom - top
    )
}

/// Says what the mark is, on a ground of its own: lines of the grid would cross the words.
fn split_text(axis: Axis) -> String {
    let Some(split) = axis.split() else {
        return String::new();
    };
    format!(
        "<text x=\"{:.1}\" y=\"{:.1}\" fill=\"#7d6a45\" font-size=\"12\" stroke=\"#f6f1e7\" \
         stroke-width=\"4\" paint-order=\"stroke\">logarithmic from {} on</text>\n",
        x(axis.place(split)) + 6.0,
        y(1.0) + 14.0,
        axis::shown(split)
    )
}

/// Draws the levels that the caller names, each with its name to the left of the frame. The callers
/// choose the levels, as both kinds of plots have different shares.
fn horizontal_lines(levels: &[(f64, String)]) -> String {
    let mut svg = String::new();
    for (place, name) in levels {
        let y = y(*place);
        let _ = writeln!(
            svg,
            "<path d=\"M{LEFT} {y:.1}H{:.1}\" stroke=\"#e3e3e3\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            x(1.0),
            LEFT - 8.0,
            y + 4.5,
            escape(name)
        );
    }
    svg
}

/// Draws the values of the axis of latencies; of names that would overlap the first is shown. A
/// value without a name has no line either: a line that cannot be named helps nobody.
fn vertical_lines(axis: Axis) -> String {
    let (top, bottom) = (y(1.0), y(0.0));
    let mut svg = format!(
        "<path d=\"M{LEFT} {top}V{bottom}H{:.1}\" stroke=\"#444\" fill=\"none\"/>\n",
        x(1.0)
    );
    let mut last = f64::NEG_INFINITY;
    for value in axis.ticks() {
        let x = x(axis.place(value));
        if x - last < APART {
            continue;
        }
        last = x;
        vertical_line(&mut svg, x, &axis::shown(value));
    }
    let (middle, below) = (x(0.5), bottom + 40.0);
    let _ = writeln!(
        svg,
        "<text x=\"{middle:.1}\" y=\"{below:.1}\" text-anchor=\"middle\" fill=\"#666\">latency</text>"
    );
    svg
}

/// Draws the line of a value over the frame's height, its tick, and its label below.
fn vertical_line(svg: &mut String, x: f64, label: &str) {
    let (top, bottom) = (y(1.0), y(0.0));
    let _ = writeln!(
        svg,
        "<path d=\"M{x:.1} {top}V{bottom:.1}\" stroke=\"#e3e3e3\"/>\
         <path d=\"M{x:.1} {bottom}v5\" stroke=\"#444\"/>\
         <text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{label}</text>",
        bottom + 20.0,
    );
}

/// Draws the names of what is drawn, each behind its colour, above the frame. The place of the next
/// name is estimated by the number of characters, as no font is known here. The legend stands above
/// the frame, where no line of a figure can cross it.
fn legend_of(legend: &[(&str, &str)]) -> String {
    let mut svg = String::new();
    let mut x = LEFT;
    for (name, colour) in legend {
        let _ = writeln!(
            svg,
            "<rect x=\"{x:.1}\" y=\"13\" width=\"14\" height=\"14\" fill=\"{colour}\"/>\
             <text x=\"{:.1}\" y=\"25\">{}</text>",
            x + 20.0,
            escape(name)
        );
        x += 44.0 + 7.4 * name.chars().count() as f64;
    }
    svg
}
