//! The axis of latencies that a page's plots share.
//!
//! Latencies of one page span three decades, and what is compared lies in a third of one. A linear
//! axis of all is squeezed by a single outlier, and a logarithmic one by a configuration that waits
//! for time slices. So the axis is linear as far as the best configuration's bulk goes, and
//! logarithmic behind it.

use super::figures::{Figure, PERCENTILES};

/// Part of the axis that is linear, where some samples lie behind it. The bulk is compared, and the
/// tail needs less room because it is logarithmic.
const LINEAR: f64 = 0.7;
/// The linear part ends at this many times the 99.9th percentile of the configuration that has the
/// smallest. Twice leaves room for the bulk of other good configurations, which lie a little behind
/// the best.
const BULK: u64 = 2;
/// The most values that the linear part names. More names would overlap at the width of a plot.
const MOST_TICKS: u64 = 10;

/// An axis from the least sample to the largest. Without a logarithmic part the split equals the
/// upper end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Axis {
    low: u64,
    /// End of the linear part.
    split: u64,
    high: u64,
}

impl Axis {
    /// Returns the axis that holds all of these; none if there is nothing to draw. A twentieth is
    /// left at both ends, so that no line lies on the frame.
    pub fn of(figures: &[&Figure]) -> Option<Axis> {
        let low = figures.iter().map(|figure| figure.min).min()?;
        let high = figures.iter().map(|figure| figure.max).max()?;
        let bulk = figures.iter().map(|figure| bulk(figure)).min()?;
        let low = low - low / 20;
        let split = (bulk * BULK).max(low + 10);
        let high = high + high / 20 + 1;
        let axis = match high > split + split / 4 {
            true => Axis { low, split, high },
            // What lies behind would be a sliver.
            false => Axis {
                low,
                split: high.max(low + 10),
                high: high.max(low + 10),
            },
        };
        Some(axis)
    }

    /// Returns where the logarithmic part begins, if there is one. The plot marks that place, since
    /// distances on both sides of it do not compare.
    pub fn split(self) -> Option<u64> {
        (self.split < self.high).then_some(self.split)
    }

    /// Returns the place of a value, from 0 to 1. A value outside of the axis is at its nearer end.
    pub fn place(self, value: u64) -> f64 {
        let Axis { low, split, high } = self;
        let value = value.clamp(low, high);
        let linear = (value.min(split) - low) as f64 / (split - low) as f64;
        if split == high {
            return linear;
        }
        if value <= split {
            return LINEAR * linear;
        }
        let decades = |to: u64| (to as f64 / split as f64).ln();
        LINEAR + (1.0 - LINEAR) * decades(value) / decades(high)
    }

    /// Returns the values that the axis names, in their order.
    pub fn ticks(self) -> Vec<u64> {
        let step = round_step((self.split - self.low).div_ceil(MOST_TICKS).max(1));
        let linear = self.low.next_multiple_of(step)..=self.split;
        let linear = linear.step_by(usize::try_from(step).unwrap_or(usize::MAX));
        let powers = (0..19).map(|power| 10_u64.pow(power));
        // Three names a decade overlap where there are many decades.
        let steps: &[u64] = match self.high / self.split > 300 {
            true => &[1],
            false => &[1, 2, 5],
        };
        let logarithmic = powers.flat_map(|power| steps.iter().map(move |step| step * power));
        // A name close to the split would overlap its neighbour.
        let behind = self.split + self.split / 3;
        let logarithmic = logarithmic.filter(|value| (behind..=self.high).contains(value));
        linear.chain(logarithmic).collect()
    }
}

/// Returns the value below which all but a thousandth of the samples lie, as far as there are
/// enough. The maximum stands in for a short run, whose samples are too few for that percentile.
fn bulk(figure: &Figure) -> u64 {
    let [.., p99_9, _, _] = PERCENTILES;
    figure.percentile(p99_9).unwrap_or(figure.max)
}

/// Returns 1, 2 or 5 times a power of ten that is not smaller. Names at round values are read at a
/// glance, and a step that is larger than needed only makes them fewer.
fn round_step(least: u64) -> u64 {
    let powers = (0..19).map(|power| 10_u64.pow(power));
    let mut steps = powers.flat_map(|power| [1, 2, 5].map(|step| step * power));
    steps.find(|step| *step >= least).unwrap_or(least)
}

/// Returns a latency as a person reads it, with three digits that count. Zeroes at the end are
/// dropped after a point only, where they say nothing.
pub fn shown(ns: u64) -> String {
    let (value, unit) = match ns {
        0..1000 => return format!("{ns} ns"),
        1000..1_000_000 => (ns as f64 / 1e3, "µs"),
        _ => (ns as f64 / 1e6, "ms"),
    };
    let text = match value {
        ..10.0 => format!("{value:.2}"),
        ..100.0 => format!("{value:.1}"),
        _ => return format!("{value:.0} {unit}"),
    };
    format!(
        "{} {unit}",
        text.trim_end_matches('0').trim_end_matches('.')
    )
}

#[cfg(test)]
mod tests;
