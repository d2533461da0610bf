//! The cumulative distribution of latencies: for each, the share of periods that were not later.
//!
//! The shares' axis is logarithmic towards 1, because what matters are the few latest: 90 %, 99 %
//! and 99.9 % are as far apart as 0 % and 90 %.

use super::axis::Axis;
use super::figures::Figure;
use super::svg;

/// Least change of a coordinate that is drawn. Steps below it are left out, as a long run may have
/// thousands of them, each a piece of the page.
const VISIBLE: f64 = 0.1;

/// Draws the distributions of all configurations over one axis. The height is that of the run with
/// the most periods, since its latest period has the smallest share.
pub fn cdf(axis: Axis, figures: &[(&str, &Figure)]) -> String {
    let most = figures.iter().map(|(_, figure)| figure.count()).max();
    let decades = (most.unwrap_or(1).max(2) as f64).log10();
    let mut drawn = String::new();
    let mut legend = Vec::new();
    for (index, (name, figure)) in figures.iter().enumerate() {
        let colour = svg::colour(index);
        legend.push((*name, colour));
        drawn += &format!(
            "<path d=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.8\"/>\n",
            path(axis, figure, decades)
        );
    }
    svg::plot(axis, &levels(decades), &legend, &drawn)
}

/// Returns the shares that the axis names, at their places. A share finer than one period of the
/// longest run is left out, as no line could reach it.
fn levels(decades: f64) -> Vec<(f64, String)> {
    let mut levels = vec![
        (0.0, "0 %".to_owned()),
        (place(0.5, decades), "50 %".to_owned()),
    ];
    for (nines, name) in (1_i32..).zip(["90 %", "99 %", "99.9 %", "99.99 %", "99.999 %"]) {
        if f64::from(nines) <= decades {
            levels.push((place(10.0_f64.powi(-nines), decades), name.to_owned()));
        }
    }
    levels
}

/// Returns the place of the share of periods that are later than a latency. The latest period, than
/// which none is later, is at the top.
fn place(later: f64, decades: f64) -> f64 {
    // A third of a decade is left for the step of the latest period.
    let whole = decades + 0.3;
    match later > 0.0 {
        true => (-later.log10() / whole).min(1.0),
        false => 1.0,
    }
}

/// Returns a step at each latency that occurred. The last step is always drawn, however small: the
/// latest period is what a real-time system is judged by.
fn path(axis: Axis, figure: &Figure, decades: f64) -> String {
    let count = figure.count();
    let (mut x, mut y) = (svg::x(axis.place(figure.min)), svg::y(0.0));
    let mut path = format!("M{x:.1} {y:.1}");
    let mut seen = 0;
    for (value, samples) in figure.sorted() {
        seen += samples;
        let later = (count - seen) as f64 / count as f64;
        let (new_x, new_y) = (svg::x(axis.place(value)), svg::y(place(later, decades)));
        let last = seen == count;
        if last || new_x - x >= VISIBLE || y - new_y >= VISIBLE {
            path += &format!("H{new_x:.1}V{new_y:.1}");
            (x, y) = (new_x, new_y);
        }
    }
    path
}

#[cfg(test)]
mod tests;
