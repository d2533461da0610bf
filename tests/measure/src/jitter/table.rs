//! The papers' table (gearv, tables 10 and 11), and the judgement of its values.

use std::fmt::Write as _;

use super::configuration::Configuration;
use super::setup::{EXITS, Measured, OWN, ROW, SGIS};
use crate::report::{Figure, Results};

/// The most that the emulated interrupt controller may cost, native being 1.
const EMULATED_RATIO: f64 = 1.5;

/// The least limit of any ratio under load, where figures hold turns of the other CPU.
const LOADED_RATIO: f64 = 1.5;

/// The least limit of a maximum's ratio. A maximum is one sample, in which paths of the guest's own
/// kernel coincide: native runs have 8,528 ns in 2,000 samples and 9,680 ns in 60,000. What Gear1
/// itself executes shows in its exits, of which pass-through has none.
const MAXIMUM_RATIO: f64 = 1.25;

/// A part of a figure, the least limit of its ratio, and how it is taken.
type Part = (&'static str, f64, fn(&Figure) -> u64);

/// Values that may not be much larger than natively.
const JUDGED: [Part; 3] = [
    ("minimum", 1.0, |figure| figure.min),
    ("average", 1.0, |figure| figure.mean),
    ("maximum", MAXIMUM_RATIO, |figure| figure.max),
];

/// Returns the table: nanoseconds, and the maximum by that of the native run.
pub(super) fn all(results: &Results) -> String {
    let native = figure(results, Configuration::Native);
    let mut text = format!(
        "{:24} {:>8} {:>8} {:>8} {:>8} {:>9} | {:>6} {:>6} {:>8} {:>9} {:>6}\n",
        "latency, ns", "min", "median", "avg", "p99", "max", "min", "avg", "max", "exits", "SGIs"
    );
    for (name, figures) in &results.columns {
        if let Some(figure) = figures.get(ROW) {
            text += &line(name, figure, native, results);
        }
    }
    text
}

fn line(name: &str, figure: &Figure, native: Option<&Figure>, results: &Results) -> String {
    let ratio = |get: fn(&Figure) -> u64| ratio(native.map(get), get(figure));
    format!(
        "{name:24} {:>8} {:>8} {:>8} {:>8} {:>9} | {:>6} {:>6} {:>8} {:>9} {:>6}\n",
        figure.min,
        figure.median,
        figure.mean,
        figure.p99,
        figure.max,
        ratio(|figure| figure.min),
        ratio(|figure| figure.mean),
        ratio(|figure| figure.max),
        count(results, EXITS, name).unwrap_or("-"),
        count(results, SGIS, name).unwrap_or("-"),
    )
}

/// Returns one configuration's figures in a few words.
pub(super) fn brief(measured: &Measured) -> String {
    let Some(figure) = measured.figures.get(ROW) else {
        return "nothing".to_owned();
    };
    format!(
        "{} to {} ns, {} on average",
        figure.min, figure.max, figure.mean
    )
}

/// Returns the maxima that were others in an older run.
pub(super) fn changes(old: &Results, new: &Results) -> String {
    let mut text = format!("{:24} {:>9} {:>9}\n", "maximum, ns", "then", "now");
    for (name, figures) in &new.columns {
        let then = old.column(name).and_then(|figures| figures.get(ROW));
        if let (Some(then), Some(now)) = (then, figures.get(ROW)) {
            let (then, now) = (then.max, now.max);
            let change = 100.0 * (now as f64 / then.max(1) as f64 - 1.0);
            let _ = writeln!(text, "{name:24} {then:>9} {now:>9} {change:+7.1}%");
        }
    }
    for (name, value) in &new.conditions {
        let then = old.conditions.get(name).map_or("-", String::as_str);
        if then != value {
            let _ = writeln!(text, "{name}: {then}, now {value}");
        }
    }
    text
}

/// Returns violations in the measured configurations.
pub fn judge(results: &Results, max_ratio: f64) -> Vec<String> {
    let mut faults = Vec::new();
    let limits = [
        (Configuration::PassThrough, max_ratio),
        (Configuration::Emulated, max_ratio.max(EMULATED_RATIO)),
    ];
    let load = results.conditions.get("load");
    let loaded = load.is_some_and(|load| load != "off");
    for (configuration, limit) in limits {
        let limit = if loaded {
            limit.max(LOADED_RATIO)
        } else {
            limit
        };
        faults.extend(over(results, configuration, limit));
    }
    faults.extend(exits_of_pass_through(results));
    faults.extend(load_was_there(results));
    faults
}

/// Returns the values of a configuration that are more than `limit` times the native ones.
fn over(results: &Results, configuration: Configuration, limit: f64) -> Vec<String> {
    let native = figure(results, Configuration::Native);
    let Some((native, figure)) = native.zip(figure(results, configuration)) else {
        return Vec::new();
    };
    let mut faults = Vec::new();
    for (part, least, of) in JUDGED {
        let limit = limit.max(least);
        if of(figure) as f64 > limit * of(native) as f64 {
            faults.push(format!(
                "{}: its {part} of {} ns is more than {limit} times that of the native run, {} ns",
                configuration.text(),
                of(figure),
                of(native)
            ));
        }
    }
    faults
}

/// Pass-through has no exit but one for each SGI that its kernel sends.
fn exits_of_pass_through(results: &Results) -> Vec<String> {
    let mut faults = Vec::new();
    let pass_through = Configuration::PassThrough.text();
    let count = |what| count(results, what, pass_through)?.parse::<u64>().ok();
    if let (Some(exits), Some(sgis), Some(own)) = (count(EXITS), count(SGIS), count(OWN)) {
        if exits > 0 {
            faults.push(format!("{pass_through}: {exits} exits while it measured"));
        }
        if sgis > own {
            faults.push(format!("{pass_through}: {sgis} exits for {own} SGIs"));
        }
    }
    faults
}

/// With load a guest that shares its CPU waits for the others; where it does not, there was no
/// load.
fn load_was_there(results: &Results) -> Option<String> {
    let load = results.conditions.get("load")?;
    let guest = figure(results, Configuration::Guest)?;
    let rt = figure(results, Configuration::PassThrough)?;
    let there = load == "off" || guest.max > rt.max;
    (!there).then(|| {
        format!(
            "the load was not there: the guest's maximum is {} ns, the real-time VM's {} ns",
            guest.max, rt.max
        )
    })
}

fn figure(results: &Results, configuration: Configuration) -> Option<&Figure> {
    results.column(configuration.text())?.get(ROW)
}

/// Returns a count of a configuration.
fn count<'a>(results: &'a Results, what: &str, name: &str) -> Option<&'a str> {
    let count = results.conditions.get(&format!("{what}, {name}"));
    count.map(String::as_str)
}

fn ratio(native: Option<u64>, value: u64) -> String {
    match native {
        Some(native) if native > 0 => format!("{:.2}", value as f64 / native as f64),
        _ => "-".to_owned(),
    }
}

#[cfg(test)]
mod tests;
