//! Output of a guest that measures, and a run of all configurations as JSON.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::{Map, Value, json};

/// The distribution of one figure, in nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Figure {
    /// Minimum.
    pub min: u64,
    /// Median of the samples.
    pub median: u64,
    /// Mean of the samples.
    pub mean: u64,
    /// 99th percentile of the samples.
    pub p99: u64,
    /// Maximum.
    pub max: u64,
    /// All samples in order, as runs of equal ones: value and number.
    pub samples: Vec<(u64, u64)>,
}

/// Figures by their rows' names.
pub type Figures = BTreeMap<String, Figure>;

/// Figures that are one number each, by what they are, unit included.
pub type Counts = BTreeMap<String, u64>;

/// All columns of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Results {
    /// SHA-256 of the guest, the same in all columns.
    pub guest: String,
    /// Conditions that the figures depend on.
    pub conditions: BTreeMap<String, String>,
    /// Columns, in the order of the tables.
    pub columns: Vec<(String, Figures)>,
    /// Counts beside the figures.
    pub counts: Counts,
}

/// Parses the lines `BENCH <name> <min> <median> <mean> <p99> <max>` and `RAW <name> <ns>[x<count>]
/// ...`, of which a name may have several. Without the former the latter say all.
pub fn parse(printed: &str) -> Figures {
    let mut figures: Figures = printed.lines().filter_map(parse_line).collect();
    let mut all: BTreeMap<&str, Vec<(u64, u64)>> = BTreeMap::new();
    for (name, samples) in printed.lines().filter_map(parse_raw) {
        all.entry(name).or_default().extend(samples);
    }
    for (name, samples) in all {
        match figures.get_mut(name) {
            Some(figure) => figure.samples = samples,
            None => {
                figures.extend(Figure::of(samples).map(|figure| (name.to_owned(), figure)));
            }
        }
    }
    figures
}

fn parse_line(line: &str) -> Option<(String, Figure)> {
    let (_, rest) = line.split_once("BENCH ")?;
    let mut words = rest.split_whitespace();
    let name = words.next()?.to_owned();
    let mut next = || words.next()?.parse().ok();
    let figure = Figure {
        min: next()?,
        median: next()?,
        mean: next()?,
        p99: next()?,
        max: next()?,
        samples: Vec::new(),
    };
    Some((name, figure))
}

fn parse_raw(line: &str) -> Option<(&str, Vec<(u64, u64)>)> {
    let (_, rest) = line.split_once("RAW ")?;
    let mut words = rest.split_whitespace();
    let name = words.next()?;
    let runs = words.map(|word| {
        let (value, count) = word.split_once('x').unwrap_or((word, "1"));
        Some((value.parse().ok()?, count.parse().ok()?))
    });
    Some((name, runs.collect::<Option<_>>()?))
}

impl Results {
    /// Returns a column's figures.
    pub fn column(&self, name: &str) -> Option<&Figures> {
        let mut columns = self.columns.iter();
        columns.find(|(n, _)| n == name).map(|(_, figures)| figures)
    }

    /// Writes the results as JSON.
    pub fn save(&self, path: &Path) -> Result<()> {
        if let Some(directory) = path.parent() {
            fs::create_dir_all(directory)?;
        }
        let text = serde_json::to_string_pretty(&self.to_json())?;
        fs::write(path, text + "\n").with_context(|| path.display().to_string())
    }

    /// Reads saved results.
    pub fn load(path: &Path) -> Result<Results> {
        let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
        let json = serde_json::from_str(&text).with_context(|| path.display().to_string())?;
        Results::from_json(&json)
            .with_context(|| format!("{} holds no measurement", path.display()))
    }

    /// Returns the results as JSON.
    pub fn to_json(&self) -> Value {
        let columns = self.columns.iter().map(|(name, figures)| {
            let rows: Map<String, Value> = figures
                .iter()
                .map(|(row, figure)| (row.clone(), figure.to_json()))
                .collect();
            json!({ "name": name, "rows": rows })
        });
        json!({
            "unit": "ns",
            "guest-sha256": self.guest,
            "conditions": self.conditions,
            "columns": columns.collect::<Vec<_>>(),
            "counts": self.counts,
        })
    }

    fn from_json(json: &Value) -> Option<Results> {
        // Results of before there were any have none.
        let counts = json["counts"].as_object().into_iter().flatten();
        let counts = counts.map(|(name, count)| Some((name.clone(), count.as_u64()?)));
        let conditions = json["conditions"].as_object().into_iter().flatten();
        let conditions =
            conditions.map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned())));
        let columns = json["columns"].as_array()?.iter();
        Some(Results {
            guest: json["guest-sha256"].as_str()?.to_owned(),
            conditions: conditions.collect::<Option<_>>()?,
            columns: columns.map(column_from_json).collect::<Option<_>>()?,
            counts: counts.collect::<Option<_>>()?,
        })
    }
}

fn column_from_json(json: &Value) -> Option<(String, Figures)> {
    let rows = json["rows"].as_object()?.iter();
    let figures = rows.map(|(row, figure)| Some((row.clone(), Figure::from_json(figure)?)));
    let name = json["name"].as_str()?.to_owned();
    Some((name, figures.collect::<Option<_>>()?))
}

impl Figure {
    /// Returns the distribution of samples; none has none.
    pub fn of(samples: Vec<(u64, u64)>) -> Option<Figure> {
        let mut sorted = samples.clone();
        sorted.sort_unstable();
        let count: u64 = sorted.iter().map(|(_, count)| count).sum();
        let sum: u128 = sorted
            .iter()
            .map(|(value, count)| u128::from(*value) * u128::from(*count))
            .sum();
        let figure = Figure {
            min: sorted.first()?.0,
            median: quantile(&sorted, count.div_ceil(2)),
            mean: u64::try_from((sum + u128::from(count) / 2).checked_div(count.into())?).ok()?,
            p99: quantile(&sorted, (count * 99).div_ceil(100)),
            max: sorted.last()?.0,
            samples,
        };
        Some(figure)
    }

    /// Returns how many samples there are.
    pub fn count(&self) -> u64 {
        self.samples.iter().map(|(_, count)| count).sum()
    }

    fn to_json(&self) -> Value {
        json!({
            "min": self.min,
            "median": self.median,
            "mean": self.mean,
            "p99": self.p99,
            "max": self.max,
            "samples": self.samples,
        })
    }

    fn from_json(json: &Value) -> Option<Figure> {
        let run = |run: &Value| Some((run[0].as_u64()?, run[1].as_u64()?));
        Some(Figure {
            min: json["min"].as_u64()?,
            median: json["median"].as_u64()?,
            mean: json["mean"].as_u64()?,
            p99: json["p99"].as_u64()?,
            max: json["max"].as_u64()?,
            samples: json["samples"]
                .as_array()?
                .iter()
                .map(run)
                .collect::<Option<_>>()?,
        })
    }
}

/// Returns the sample of this rank, counted from 1, in sorted runs.
fn quantile(sorted: &[(u64, u64)], rank: u64) -> u64 {
    let mut before = 0;
    let reaches = sorted.iter().find(|(_, count)| {
        before += count;
        before >= rank
    });
    reaches.or(sorted.last()).map_or(0, |(value, _)| *value)
}

#[cfg(test)]
mod tests;
