//! A figure's samples as SVG: how often each value occurred, and the values in their order.
//!
//! Latencies span several orders of magnitude, so their axis is logarithmic. All plots of one row
//! have the same scale.

use anyhow::{Context as _, Result, anyhow};
use plotters::backend::SVGBackend;
use plotters::chart::ChartBuilder;
use plotters::coord::Shift;
use plotters::coord::combinators::{BindKeyPoints as _, IntoLogRange as _};
use plotters::drawing::{DrawingArea, IntoDrawingArea as _};
use plotters::element::Rectangle;
use plotters::series::LineSeries;
use plotters::style::{Color as _, RGBColor, WHITE};

use super::figures::Figure;
use super::html::escape;

/// Width and height of a plot. All plots have one size, and so a distance on one of them is the
/// same ratio on the others of its row.
const SIZE: (u32, u32) = (900, 260);
/// Number of bins of a histogram: a few pixels each. Finer bins would split equal paths by a few
/// nanoseconds, and coarser ones would merge neighbouring peaks.
const BINS: u64 = 300;
/// The most columns of a time series: through each, the line goes from the least to the largest
/// value. The number is near the plot's width in pixels: more of them would be drawn over each
/// other.
const COLUMNS: usize = 800;

/// Font and size of the axes' labels.
const LABEL: (&str, u32) = ("sans-serif", 15);
/// Lines of the grid are nearly white: figures are read from the samples, and the grid only helps
/// the eye.
const GRID: RGBColor = RGBColor(0xee, 0xee, 0xee);
const COLOUR: RGBColor = RGBColor(0x1f, 0x5f, 0xa8);

/// The values that a set of plots is drawn for, so that they can be compared by eye. The least
/// value is 1, as a logarithm of 0 does not exist. A scale is made once for a row and given to each
/// of its plots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scale {
    low: u64,
    high: u64,
}

impl Scale {
    /// Returns the scale that holds all of these; none if there is nothing to draw. A tenth is left
    /// at both ends, so that no sample lies on the frame.
    pub fn of<'a>(figures: impl Iterator<Item = &'a Figure>) -> Option<Scale> {
        figures
            .map(|figure| (figure.min, figure.max))
            .reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)))
            .map(|(min, max)| Scale {
                low: (min - min / 10).max(1),
                high: (max + max / 10).max(min + 10),
            })
    }

    /// Returns the values that the axis names: 1, 2 and 5 times powers of ten, and each number
    /// between if they are few. The library's own key points are powers of ten, of which a row
    /// within one decade would have none or one.
    pub(super) fn ticks(self) -> Vec<f64> {
        let steps: &[u64] = if self.high / self.low < 6 {
            &[1, 2, 3, 4, 5, 6, 7, 8, 9]
        } else {
            &[1, 2, 5]
        };
        let powers = (0..19).map(|power| 10_u64.pow(power));
        let all =
            powers.flat_map(|power| steps.iter().map(move |step| power.saturating_mul(*step)));
        let seen = all.filter(|value| (self.low..=self.high).contains(value));
        seen.map(|value| value as f64).collect()
    }

    /// Returns the bin of a value; bins grow with the value, as the axis does. A value at the upper
    /// end belongs to the last bin. The clamp is needed for the upper end alone: a scale holds all
    /// samples it was made of.
    fn bin(self, value: u64) -> u64 {
        let (low, high) = ((self.low as f64).ln(), (self.high as f64).ln());
        let place = ((value.max(1) as f64).ln() - low) / (high - low);
        ((place * BINS as f64) as u64).min(BINS - 1)
    }

    /// Returns where a bin begins. The function is the inverse of [`Scale::bin`], so that a bar
    /// covers exactly the values that it counts.
    fn edge(self, bin: u64) -> f64 {
        let (low, high) = ((self.low as f64).ln(), (self.high as f64).ln());
        (low + (high - low) * bin as f64 / BINS as f64).exp()
    }
}

/// Draws the medians as bars of one scale, the longest for the largest, and the goal as a line
/// across. Lengths are linear here, as the eye compares them. The goal counts as a length too, or
/// its line could lie outside.
pub(super) fn bars(figures: &[(&str, &Figure)], goal: Option<u64>) -> String {
    let most = figures.iter().map(|(_, figure)| figure.median).max();
    let most = most.max(goal).unwrap_or(0).max(1);
    let height = HEIGHT * figures.len();
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"900\" height=\"{height}\" viewBox=\"0 0 900 {height}\" font-size=\"14\">\n"
    );
    let line = goal.map(|goal| NAMES + goal * LONGEST / most);
    for (index, (name, figure)) in figures.iter().enumerate() {
        svg += &bar(index, name, figure.median, most, line);
    }
    if let (Some(goal), Some(x)) = (goal, line) {
        // On white, since red on the blue of a bar that is too long is hardly seen.
        svg += &format!(
            "<path d=\"M{x} 0V{height}\" stroke=\"#fff\" stroke-width=\"5\"/>\
             <path d=\"M{x} 0V{height}\" stroke=\"#a61b1b\" stroke-width=\"2\" \
             stroke-dasharray=\"4 3\">\
             <title>goal: {goal}</title></path>\n"
        );
    }
    svg + "</svg>\n"
}

/// Height of a bar with its gap, width of the names, and length of the longest bar.
const HEIGHT: usize = 22;
const NAMES: u64 = 200;
const LONGEST: u64 = 600;

/// Width of a digit of a bar's number, rounded up.
const DIGIT: u64 = 9;

/// Returns where the number of a bar that ends at `end` begins: behind the bar, or behind the
/// goal's line if the line would cross the number. Numbers are placed by their estimated width, as
/// no font is known here. The number itself is never left out, since the length of a bar is too
/// coarse to read a value from.
fn number_at(end: u64, number: u64, line: Option<u64>) -> u64 {
    let digits = u64::from(number.checked_ilog10().unwrap_or(0)) + 1;
    let taken = end..=end + 10 + digits * DIGIT;
    match line.filter(|line| taken.contains(line)) {
        Some(line) => line + 8,
        None => end + 6,
    }
}

/// Draws a bar with its name before it and its number behind it. A median of 0 still has a bar of
/// one pixel.
fn bar(index: usize, name: &str, median: u64, most: u64, line: Option<u64>) -> String {
    let (y, text_y) = (index * HEIGHT + 3, index * HEIGHT + 16);
    let length = (median * LONGEST / most).max(1);
    format!(
        "<text x=\"{}\" y=\"{text_y}\" text-anchor=\"end\">{}</text>\
         <rect x=\"{NAMES}\" y=\"{y}\" width=\"{length}\" height=\"{}\" fill=\"#1f5fa8\"/>\
         <text x=\"{}\" y=\"{text_y}\">{median}</text>\n",
        NAMES - 8,
        escape(name),
        HEIGHT - 6,
        number_at(NAMES + length, median, line),
    )
}

/// Draws how often each latency occurred, both axes logarithmic. The counts are logarithmic too: a
/// single late sample is seen beside a thousand equal ones. The vertical axis begins below 1, since
/// a single sample would have no height on a logarithmic axis from 1.
pub(super) fn histogram(figure: &Figure, scale: Scale) -> Result<String> {
    let mut counts = vec![0_u64; usize::try_from(BINS)?];
    for (value, count) in &figure.samples {
        counts[usize::try_from(scale.bin(*value))?] += count;
    }
    let most = counts.iter().copied().max().unwrap_or(1).max(1);
    draw(|area| {
        let mut chart = ChartBuilder::on(area)
            .margin(8)
            .margin_right(40)
            .x_label_area_size(44)
            .y_label_area_size(80)
            .build_cartesian_2d(
                (scale.low as f64..scale.high as f64)
                    .log_scale()
                    .with_key_points(scale.ticks()),
                (0.5..most as f64 * 1.5).log_scale(),
            )
            .map_err(failed)?;
        let format = |value: &f64| format!("{value:.0}");
        chart
            .configure_mesh()
            .x_desc("ns")
            .y_desc("samples")
            .x_label_formatter(&format)
            .y_label_formatter(&format)
            .label_style(LABEL)
            .light_line_style(GRID)
            .draw()
            .map_err(failed)?;
        let bars = (0..BINS).zip(&counts).filter(|(_, count)| **count > 0);
        let bars = bars.map(|(bin, count)| {
            let corners = [(scale.edge(bin), 0.5), (scale.edge(bin + 1), *count as f64)];
            Rectangle::new(corners, COLOUR.filled())
        });
        chart.draw_series(bars).map_err(failed)?;
        Ok(())
    })
}

/// Draws the samples in their order: where there are too many to see, a line from the least to the
/// largest of each group. Both ends of each group are drawn, so that a single late sample among
/// thousands is not averaged away. The order shows what a histogram cannot: a warm-up that is too
/// short, a drift, or an interrupt of a fixed period.
pub fn series(figure: &Figure, scale: Scale) -> Result<String> {
    let (count, ends) = ends_of_groups(figure);
    draw(|area| {
        let mut chart = ChartBuilder::on(area)
            .margin(8)
            .margin_right(40)
            .x_label_area_size(44)
            .y_label_area_size(80)
            .build_cartesian_2d(
                0.0..count.max(1) as f64,
                (scale.low as f64..scale.high as f64)
                    .log_scale()
                    .with_key_points(scale.ticks()),
            )
            .map_err(failed)?;
        let format = |value: &f64| format!("{value:.0}");
        chart
            .configure_mesh()
            .x_desc("sample")
            .y_desc("ns")
            .x_label_formatter(&format)
            .y_label_formatter(&format)
            .label_style(LABEL)
            .light_line_style(GRID)
            .draw()
            .map_err(failed)?;
        chart
            .draw_series(LineSeries::new(ends, COLOUR))
            .map_err(failed)?;
        Ok(())
    })
}

/// Returns the number of samples, and the least and the largest of each group, by their place. Few
/// samples make groups of one, whose two ends coincide, and the line is then exact.
fn ends_of_groups(figure: &Figure) -> (usize, Vec<(f64, f64)>) {
    let runs = figure.samples.iter();
    let samples: Vec<u64> = runs
        .flat_map(|(value, count)| {
            std::iter::repeat_n(*value, usize::try_from(*count).unwrap_or(0))
        })
        .collect();
    let group = samples.len().div_ceil(COLUMNS).max(1);
    let mut ends = Vec::new();
    for (index, group_samples) in samples.chunks(group).enumerate() {
        let at = (index * group) as f64;
        let both = [group_samples.iter().min(), group_samples.iter().max()];
        ends.extend(both.into_iter().flatten().map(|value| (at, *value as f64)));
    }
    (samples.len(), ends)
}

/// Returns the SVG that `onto` draws. The picture is a string, as the page holds it inline. The
/// area borrows the string, and is dropped before the string is returned.
fn draw(onto: impl FnOnce(&DrawingArea<SVGBackend<'_>, Shift>) -> Result<()>) -> Result<String> {
    let mut svg = String::new();
    let area = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
    area.fill(&WHITE).map_err(failed)?;
    onto(&area)?;
    area.present().map_err(failed).context("the plot")?;
    drop(area);
    Ok(svg)
}

/// Plotters' errors borrow, so only what they say is kept.
fn failed(error: impl std::fmt::Display) -> anyhow::Error {
    anyhow!("cannot draw: {error}")
}

#[cfg(test)]
mod tests {
    use super::number_at;

    #[test]
    fn the_line_of_the_goal_crosses_no_number() {
        assert_eq!(number_at(300, 109, None), 306);
        assert_eq!(number_at(300, 109, Some(290)), 306);
        assert_eq!(number_at(300, 109, Some(338)), 306);
        for line in [300, 307, 337] {
            assert_eq!(number_at(300, 109, Some(line)), line + 8, "{line}");
        }
    }
}
