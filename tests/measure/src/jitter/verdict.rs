//! The figures in words.
//!
//! A verdict is for a reader who knows no percentiles: one sentence for all, and one for each
//! configuration. The words follow from ratios to the native run.

use super::configuration::{ALL, Configuration};
use super::fact;
use super::table;
use crate::report::{Figure, PERCENTILES, Results, shown};

/// Below this ratio, figures under load say nothing: they hold turns of the other CPU. The limit
/// equals the one by which ratios under load are judged.
const TELLING_UNDER_LOAD: f64 = 1.5;

/// A sentence on all, and one on each configuration by its name. The sentences are made once, for
/// the terminal and for the page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Verdict {
    /// Whether everything was measured and nothing is worse than it may be.
    pub(super) is_good: bool,
    /// Sentence on all configurations, or the faults.
    pub(super) all: String,
    /// Sentence on each configuration that was measured or failed, by its name.
    pub(super) each: Vec<(&'static str, String)>,
}

impl Verdict {
    /// Returns the verdict on results with these faults. A configuration without figures and
    /// without a failure was not asked for, and has no sentence.
    pub(super) fn of(results: &Results, faults: &[String]) -> Verdict {
        let all = match faults {
            [] => good(results),
            faults => faults
                .iter()
                .map(|fault| first_line(fault))
                .collect::<Vec<_>>()
                .join("; "),
        };
        let each = ALL
            .into_iter()
            .filter_map(|one| Some((one.text(), sentence(results, one)?)));
        Verdict {
            is_good: faults.is_empty(),
            all,
            each: each.collect(),
        }
    }

    /// Returns the verdict as text, a line a sentence.
    pub(super) fn text(&self) -> String {
        let word = if self.is_good { "GOOD" } else { "NOT GOOD" };
        let mut text = format!("verdict: {word}: {}\n", self.all);
        for (name, sentence) in &self.each {
            text += &format!("  {name}: {sentence}\n");
        }
        text
    }
}

/// Returns the line of a message that says what failed; a colon leads to the lines behind. The
/// rest, such as a console's last lines, stays in the failure itself.
fn first_line(message: &str) -> &str {
    let line = message.lines().next().unwrap_or_default();
    line.trim_end_matches(':')
}

/// Returns the sentence on results without a fault: what the best real-time VM costs. Pass-through
/// is the better one of both real-time VMs, and the emulated controller stands in where it was not
/// measured.
fn good(results: &Results) -> String {
    let native = table::figure(results, Configuration::Native);
    let best = [Configuration::PassThrough, Configuration::Emulated];
    let best = best
        .into_iter()
        .find_map(|one| Some((one, table::figure(results, one)?)));
    let (Some(native), Some((best, figure))) = (native, best) else {
        return "what was measured has no fault; a native run and a real-time VM are not both in it"
            .to_owned();
    };
    format!(
        "the real-time VM ({}) is {}",
        best.text(),
        beside(results, best, figure, native)
    )
}

/// Returns the sentence on one configuration; none if nothing is known about it. Figures of an
/// earlier file may stand beside a failure of this run, and the sentence must not pass them off as
/// new.
fn sentence(results: &Results, configuration: Configuration) -> Option<String> {
    let failure = results.fact(configuration.text(), fact::FAILURE);
    let failure = failure.map(first_line);
    let figure = table::figure(results, configuration);
    let measured = figure.map(|figure| {
        let native = table::figure(results, Configuration::Native);
        match native.filter(|_| configuration != Configuration::Native) {
            Some(native) => beside(results, configuration, figure, native),
            None => alone(figure),
        }
    });
    match (measured, failure) {
        (None, None) => None,
        (Some(measured), None) => Some(measured),
        (None, Some(failure)) => Some(format!("not measured: {failure}")),
        (Some(measured), Some(failure)) => Some(format!(
            "{measured}. These are earlier figures: it was not measured anew: {failure}"
        )),
    }
}

/// Returns what can be said without another configuration. The native run is described like this,
/// as nothing is the measure for it.
fn alone(figure: &Figure) -> String {
    format!(
        "99 of 100 periods begin within {}, the latest {} late",
        shown(figure.p99),
        shown(figure.max)
    )
}

/// Returns what a configuration costs, native being 1. The word in front is for the worse of the
/// average and the highest percentile. Numbers of periods that differ are told, because the longer
/// run has more chances of a late one.
fn beside(results: &Results, one: Configuration, figure: &Figure, native: &Figure) -> String {
    let ratio = |value: u64, by: u64| value as f64 / by.max(1) as f64;
    let average = ratio(figure.mean, native.mean);
    let mut text = format!("{average:.2} times native's average");
    let mut most = average;
    if let Some((name, value, by)) = highest_percentile(figure, native) {
        most = most.max(ratio(value, by));
        text += &format!(", {:.2} times its {name}", ratio(value, by));
    }
    text += &format!(
        ", {:.2} times its maximum ({} to {})",
        ratio(figure.max, native.max),
        shown(figure.max),
        shown(native.max)
    );
    text += &exits(results, one);
    if figure.count() != native.count() {
        text += &format!(
            "; of {} and {} periods, so that their maxima do not compare",
            figure.count(),
            native.count()
        );
    }
    format!("{}: {text}", word(results, most))
}

/// Returns the word for what a configuration costs. The maximum does not decide: it is one sample,
/// in which paths of the guest's own kernel coincide.
fn word(results: &Results, most: f64) -> &'static str {
    match most {
        most if table::is_loaded(results) && most < TELLING_UNDER_LOAD => {
            "as native, as far as a run under load can tell"
        }
        ..=1.05 => "as native",
        ..=1.5 => "close to native",
        ..=10.0 => "slower than native",
        _ => "far from native",
    }
}

/// Returns the highest percentile that both have, by its name. The highest one says most about late
/// periods, and a percentile that one of both lacks cannot be compared.
fn highest_percentile(figure: &Figure, native: &Figure) -> Option<(&'static str, u64, u64)> {
    PERCENTILES.into_iter().rev().find_map(|percentile| {
        let both = (
            figure.percentile(percentile)?,
            native.percentile(percentile)?,
        );
        Some((percentile.name, both.0, both.1))
    })
}

/// Returns how many exits there were, as a clause. A configuration without Gear1 has no count. Zero
/// is what pass-through promises.
fn exits(results: &Results, one: Configuration) -> String {
    match results.fact(one.text(), fact::EXITS) {
        None => String::new(),
        Some("0") => "; no exit while it measured".to_owned(),
        Some(exits) => format!("; {exits} exits, those of its sleep before it measured included"),
    }
}

#[cfg(test)]
mod tests;
