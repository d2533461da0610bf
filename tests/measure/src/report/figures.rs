//! Output of a guest that measures, and a run of all configurations as JSON.
//!
//! Samples are kept as runs of equal values in their order: under `icount` most are equal, and a
//! file has all of them without being large. Percentiles are samples by their rank and never
//! interpolated, so that each is a value that occurred.

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

/// Figures that are one number each, by what they are, unit included. A name has the unit because
/// the numbers of one table are bytes and instructions.
pub type Counts = BTreeMap<String, u64>;

/// Facts about how a column came to be, by their names. Facts are free text: they explain a figure,
/// and nothing is computed from most of them.
pub type Facts = BTreeMap<String, String>;

/// All columns of a run. The form is that of the JSON, by which runs of different days are
/// compared.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Results {
    /// SHA-256 of the guest, the same in all columns.
    pub guest: String,
    /// Conditions that the figures depend on.
    pub conditions: BTreeMap<String, String>,
    /// Columns, in the order of the tables.
    pub columns: Vec<(String, Figures)>,
    /// Counts beside the figures.
    pub counts: Counts,
    /// Facts by the column's name. A column that could not be measured has facts and no figures.
    pub facts: BTreeMap<String, Facts>,
}

/// A percentile: a value that all samples but one of `beyond` do not exceed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Percentile {
    /// Name in tables.
    pub name: &'static str,
    /// Number of samples of which one lies beyond; fewer samples have no such percentile.
    pub beyond: u64,
}

/// The percentiles of a latency, from the median to the one sample of 100,000. Each step has a
/// tenth of the samples of the one before beyond it, after the median.
pub const PERCENTILES: [Percentile; 6] = {
    const fn percentile(name: &'static str, beyond: u64) -> Percentile {
        Percentile { name, beyond }
    }
    [
        percentile("p50", 2),
        percentile("p90", 10),
        percentile("p99", 100),
        percentile("p99.9", 1000),
        percentile("p99.99", 10_000),
        percentile("p99.999", 100_000),
    ]
};

/// Parses the lines `BENCH <name> <min> <median> <mean> <p99> <max>` and `RAW <name> <ns>[x<count>]
/// ...`, of which a name may have several. Without the former the latter say all. A guest's own
/// statistics win over those of the samples.
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

/// Reads `BENCH`. A line that is cut short is left out as a whole.
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

/// Reads `RAW`. A run without a count is one sample.
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

    /// Returns a fact about a column.
    pub fn fact(&self, column: &str, fact: &str) -> Option<&str> {
        self.facts.get(column)?.get(fact).map(String::as_str)
    }

    /// Takes in a column; an earlier one of this name is replaced, its facts included. Facts that
    /// were left would tell of another run than the figures do.
    pub fn replace(&mut self, name: &str, figures: Figures, facts: Facts) {
        match self.columns.iter_mut().find(|(other, _)| other == name) {
            Some((_, earlier)) => *earlier = figures,
            None => self.columns.push((name.to_owned(), figures)),
        }
        self.facts.insert(name.to_owned(), facts);
    }

    /// Writes the results as JSON. Directories are made, so that `--json` takes any path.
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
            "facts": self.facts,
        })
    }

    /// Reads results. A member of the wrong type makes the whole file no measurement; half of one
    /// would compare wrongly.
    fn from_json(json: &Value) -> Option<Results> {
        // Results of before there were any have none.
        let facts = json["facts"].as_object().into_iter().flatten();
        let facts = facts.map(|(column, facts)| Some((column.clone(), texts(facts)?)));
        let counts = json["counts"].as_object().into_iter().flatten();
        let counts = counts.map(|(name, count)| Some((name.clone(), count.as_u64()?)));
        let columns = json["columns"].as_array()?.iter();
        Some(Results {
            guest: json["guest-sha256"].as_str()?.to_owned(),
            conditions: texts(&json["conditions"])?,
            columns: columns.map(column_from_json).collect::<Option<_>>()?,
            counts: counts.collect::<Option<_>>()?,
            facts: facts.collect::<Option<_>>()?,
        })
    }
}

/// Returns an object's texts; no object has none.
fn texts(json: &Value) -> Option<Facts> {
    let texts = json.as_object().into_iter().flatten();
    let texts = texts.map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned())));
    texts.collect()
}

/// Reads a column: its name, and the figures of its rows.
fn column_from_json(json: &Value) -> Option<(String, Figures)> {
    let rows = json["rows"].as_object()?.iter();
    let figures = rows.map(|(row, figure)| Some((row.clone(), Figure::from_json(figure)?)));
    let name = json["name"].as_str()?.to_owned();
    Some((name, figures.collect::<Option<_>>()?))
}

impl Figure {
    /// Returns the distribution of samples; none has none. The sum is of 128 bits, as samples are
    /// nanoseconds of any size. The mean is rounded to the nearest one.
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
            median: sample_of_rank(&sorted, count.div_ceil(2)),
            mean: u64::try_from((sum + u128::from(count) / 2).checked_div(count.into())?).ok()?,
            p99: sample_of_rank(&sorted, (count * 99).div_ceil(100)),
            max: sorted.last()?.0,
            samples,
        };
        Some(figure)
    }

    /// Returns how many samples there are.
    pub fn count(&self) -> u64 {
        self.samples.iter().map(|(_, count)| count).sum()
    }

    /// Returns the samples in the order of their values.
    pub fn sorted(&self) -> Vec<(u64, u64)> {
        let mut sorted = self.samples.clone();
        sorted.sort_unstable();
        sorted
    }

    /// Returns a percentile; none where there are too few samples for one beyond it. The rank is
    /// that of the last sample that `count / beyond` samples lie beyond.
    pub fn percentile(&self, percentile: Percentile) -> Option<u64> {
        let count = self.count();
        let beyond = count.checked_div(percentile.beyond)?;
        (beyond > 0).then(|| sample_of_rank(&self.sorted(), count - beyond))
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

    /// Reads a figure with all its samples.
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

/// Returns the sample of this rank, counted from 1, in sorted runs. A rank beyond the last sample
/// gives the last one. The samples are not expanded, since a file may stand for millions of equal
/// ones.
fn sample_of_rank(sorted: &[(u64, u64)], rank: u64) -> u64 {
    let mut before = 0;
    let reaches = sorted.iter().find(|(_, count)| {
        before += count;
        before >= rank
    });
    reaches.or(sorted.last()).map_or(0, |(value, _)| *value)
}

#[cfg(test)]
mod tests;
