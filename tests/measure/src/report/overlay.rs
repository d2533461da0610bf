//! Two configurations' latencies, one over the other: how often each occurred.

use super::axis::Axis;
use super::figures::Figure;
use super::svg;

/// Number of bars of the whole axis. The number is less than half of the plot's width in pixels, so
/// that each bar is seen.
const BINS: usize = 400;

/// A configuration to draw: its name, its place in the order of colours, and its latencies. The
/// place is passed along, since a plot of two would otherwise always have the first two colours.
pub(super) type Drawn<'a> = (&'a str, usize, &'a Figure);

/// Draws two configurations over one axis; the shares are logarithmic, so that one sample is seen.
/// Both are half transparent: where they cover each other, neither hides the other.
pub fn overlay(axis: Axis, both: [Drawn<'_>; 2]) -> String {
    let most = both.iter().map(|(_, _, figure)| figure.count()).max();
    let decades = (most.unwrap_or(1).max(10) as f64).log10().ceil();
    let mut drawn = String::new();
    for (_, index, figure) in both {
        drawn += &format!(
            "<path d=\"{}\" fill=\"{colour}\" fill-opacity=\".28\" stroke=\"{colour}\"/>\n",
            outline(axis, figure, decades),
            colour = svg::colour(index)
        );
    }
    let legend = both.map(|(name, index, _)| (name, svg::colour(index)));
    svg::plot(axis, &levels(decades), &legend, &drawn)
}

/// Returns the shares that the axis names, at their places: each decade from all to one sample. The
/// percentages compare runs with different numbers of periods, which counts would not.
fn levels(decades: f64) -> Vec<(f64, String)> {
    let names = [
        "100 %", "10 %", "1 %", "0.1 %", "0.01 %", "0.001 %", "0.0001 %",
    ];
    let levels = (0_i32..).zip(names);
    let levels =
        levels.map(|(power, name)| (place(10.0_f64.powi(-power), decades), name.to_owned()));
    levels.filter(|(place, _)| *place >= 0.0).collect()
}

/// Returns the place of a share; a decade less than one sample is the bottom. The half decade below
/// keeps a bar of one sample from having no height.
fn place(share: f64, decades: f64) -> f64 {
    1.0 + share.log10() / (decades + 0.5)
}

/// Returns the outline of a configuration's bars. One path for all bars keeps the page small: only
/// changes of height are written.
fn outline(axis: Axis, figure: &Figure, decades: f64) -> String {
    let counts = bins(axis, figure);
    let count = figure.count().max(1) as f64;
    let mut path = format!("M{:.1} {:.1}", svg::x(0.0), svg::y(0.0));
    let mut before = 0;
    for (bin, samples) in counts.iter().enumerate() {
        if *samples != before {
            let y = match *samples {
                0 => svg::y(0.0),
                some => svg::y(place(some as f64 / count, decades)),
            };
            path += &format!("H{:.1}V{y:.1}", svg::x(bin as f64 / BINS as f64));
            before = *samples;
        }
    }
    path + &format!("H{:.1}V{:.1}Z", svg::x(1.0), svg::y(0.0))
}

/// Returns how many samples each bar has. Bars have equal widths on the axis and not in
/// nanoseconds, so those behind the split hold wider ranges.
fn bins(axis: Axis, figure: &Figure) -> Vec<u64> {
    let mut counts = vec![0; BINS];
    for (value, samples) in &figure.samples {
        let bin = (axis.place(*value) * BINS as f64) as usize;
        counts[bin.min(BINS - 1)] += samples;
    }
    counts
}

#[cfg(test)]
mod tests;
