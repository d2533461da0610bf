//! The figures as text, and the judgement of their values.
//!
//! The judgement is of ratios to the native run of the same command, as absolute figures depend on
//! the kernel and on the model of the CPU.

use std::fmt::Write as _;

use gearv_manifest::Scheduler;

use super::configuration::{Configuration, Load};
use super::fact;
use super::setup::{Measured, ROW, condition};
use crate::report::{Figure, PERCENTILES, Percentile, Results};

/// The most that the emulated interrupt controller may cost, native being 1. Gear1 puts each
/// interrupt into a list register there, which the pass-through of the controller saves. The
/// guest's own interrupt path stays as it is natively, and Gear1's exit comes on top of it.
const EMULATED_RATIO: f64 = 1.5;

/// The least limit of any ratio under load, where figures hold turns of the other CPU. QEMU runs
/// one CPU after the other in turns, so a wake-up may fall into a turn of the loaded CPU.
const LOADED_RATIO: f64 = 1.5;

/// The least limit of a maximum's ratio. A maximum is one sample, in which paths of the guest's own
/// kernel coincide: native runs have 8,528 ns in 2,000 samples and 9,680 ns in 60,000. What Gear1
/// itself executes shows in its exits, of which pass-through has none.
const MAXIMUM_RATIO: f64 = 1.25;

/// A part of a figure, the least limit of its ratio, and the function that takes it from the
/// figure. The function is a plain pointer, which a constant can hold.
type Part = (&'static str, f64, fn(&Figure) -> u64);

/// Values that may not be much larger than natively. The papers' tables have these three.
///
const JUDGED: [Part; 3] = [
    ("minimum", 1.0, |figure| figure.min),
    ("average", 1.0, |figure| figure.mean),
    ("maximum", MAXIMUM_RATIO, |figure| figure.max),
];

/// Returns two tables: percentiles in nanoseconds, and the papers' values by those of the native
/// run with the exits. Notes on percentiles that have too few samples follow the tables.
pub(super) fn all(results: &Results) -> String {
    let mut text = percentiles(results);
    text += &by_native(results);
    text += &too_few(results);
    text
}

/// Returns the table of percentiles, with a dash where there are too few samples. The columns of
/// the percentiles come from one list, so that the page and the terminal show the same ones.
fn percentiles(results: &Results) -> String {
    let mut text = format!("{:22} {:>7}", "latency, ns", "min");
    for percentile in PERCENTILES {
        let _ = write!(text, " {:>8}", percentile.name);
    }
    let _ = writeln!(text, " {:>9} {:>8}", "max", "avg");
    for (name, figure) in figures(results) {
        let _ = write!(text, "{name:22} {:>7}", figure.min);
        for percentile in PERCENTILES {
            let _ = write!(text, " {:>8}", or_dash(figure.percentile(percentile)));
        }
        let _ = writeln!(text, " {:>9} {:>8}", figure.max, figure.mean);
    }
    text
}

/// Returns the table of ratios. Without a native run its cells are dashes, and exits are still
/// shown. The number of periods stands beside the ratios, as maxima of runs of different lengths do
/// not compare.
fn by_native(results: &Results) -> String {
    let native = figure(results, Configuration::Native);
    let mut text = format!(
        "{:22} {:>7} {:>8} {:>8} | {:>8} {:>8} {:>8}\n",
        "by native", "min", "avg", "max", "exits", "SGIs", "periods"
    );
    for (name, figure) in figures(results) {
        let ratio = |get: fn(&Figure) -> u64| ratio(native.map(get), get(figure));
        let _ = writeln!(
            text,
            "{name:22} {:>7} {:>8} {:>8} | {:>8} {:>8} {:>8}",
            ratio(|figure| figure.min),
            ratio(|figure| figure.mean),
            ratio(|figure| figure.max),
            results.fact(name, fact::EXITS).unwrap_or("-"),
            results.fact(name, fact::SGIS).unwrap_or("-"),
            figure.count(),
        );
    }
    text
}

/// Says which percentiles have too few samples. A percentile without a sample beyond it would be
/// the maximum under another name. The configuration with the fewest periods decides, and the
/// message says which option to give.
pub(super) fn too_few(results: &Results) -> String {
    let counts = figures(results).map(|(_, figure)| figure.count());
    let Some(least) = counts.min() else {
        return String::new();
    };
    let mut text = String::new();
    for Percentile { name, beyond } in PERCENTILES {
        if least < beyond {
            let _ = writeln!(
                text,
                "{name} needs {beyond} periods for one beyond it: --loops {beyond}; {least} were measured."
            );
        }
    }
    text
}

/// Returns all measured configurations with their latencies.
pub(super) fn figures(results: &Results) -> impl Iterator<Item = (&str, &Figure)> {
    let columns = results.columns.iter();
    columns.filter_map(|(name, figures)| Some((name.as_str(), figures.get(ROW)?)))
}

/// Returns a value as a cell of a table. A dash stands for what was not measured, or not often
/// enough.
pub(super) fn or_dash(value: Option<u64>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

/// Returns one configuration's figures in a few words. The line is that of progress, before all
/// tables are there. A measurement takes long, and this line tells early that one of them went
/// wrong.
pub(super) fn brief(measured: &Measured) -> String {
    let Some(figure) = measured.figures.get(ROW) else {
        return "nothing".to_owned();
    };
    format!(
        "{} to {} ns, {} on average",
        figure.min, figure.max, figure.mean
    )
}

/// Returns the maxima that were others in an older run. Maxima are compared, since a real-time
/// system is built for them. Conditions that differ are told below, as they may be the reason.
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

/// Returns violations in the measured configurations. KVM and native are not judged: the first is
/// there to compare with, the second is the measure. Under load no limit is below `LOADED_RATIO`.
/// Exits are judged beside ratios: an exit that happens not to be late is a broken promise, too.
pub fn judge(results: &Results, max_ratio: f64) -> Vec<String> {
    let mut faults = Vec::new();
    let limits = [
        (Configuration::PassThrough, max_ratio),
        (Configuration::Emulated, max_ratio.max(EMULATED_RATIO)),
    ];
    let loaded = is_loaded(results);
    for (configuration, limit) in limits {
        let limit = if loaded {
            limit.max(LOADED_RATIO)
        } else {
            limit
        };
        faults.extend(over(results, configuration, limit));
    }
    faults.extend(exits_of_pass_through(results));
    faults.extend(guest_beside_load(results));
    faults.extend(load_was_there(results));
    faults
}

/// Returns the values of a configuration that are more than `limit` times the native ones. A fault
/// says how many samples are above, so that a reader can tell one late period from a slow path. A
/// configuration that was not measured has no fault here; its failure is told elsewhere.
fn over(results: &Results, configuration: Configuration, limit: f64) -> Vec<String> {
    let native = figure(results, Configuration::Native);
    let Some((native, figure)) = native.zip(figure(results, configuration)) else {
        return Vec::new();
    };
    let mut faults = Vec::new();
    for (part, least, of) in JUDGED {
        let limit = limit.max(least);
        let most = limit * of(native) as f64;
        let (found, reference) = (of(figure), of(native));
        if found as f64 > most {
            let (name, above, count) = (configuration.text(), above(figure, most), figure.count());
            let chance = chance(above, count, native.count());
            faults.push(format!(
                "{name}: its {part} of {found} ns is more than {limit} times that of the native \
                 run, {reference} ns ({above} of {count} periods are above{chance})"
            ));
        }
    }
    faults
}

/// Says what so few samples tell. In two runs of one and the same thing each sample above a limit is
/// in either run with the chance of its length, so that all of them are in one by that chance to the
/// power of their number. From one in twenty on the run says by itself that it is worse.
fn chance(above: u64, count: u64, native: u64) -> String {
    let share = (count + native) as f64 / count.max(1) as f64;
    let odds = share.powi(i32::try_from(above).unwrap_or(i32::MAX));
    if odds >= 20.0 {
        return String::new();
    }
    format!(
        "; chance alone puts as few all into this run in one of {odds:.0} cases: measure more \
         periods, or both again"
    )
}

/// Returns how many samples are above a value. One of thousands is another fault than all. Runs of
/// equal samples count each of their samples.
fn above(figure: &Figure, most: f64) -> u64 {
    let samples = figure.samples.iter();
    let above = samples.filter(|(value, _)| *value as f64 > most);
    above.map(|(_, count)| count).sum()
}

/// Returns the exits of the VM with pass-through that break its promise: no exit but one for each
/// SGI that its kernel sends. Fewer exits than SGIs are no fault. Without both counts nothing is
/// judged, as in a log of a board whose second console was not kept.
fn exits_of_pass_through(results: &Results) -> Vec<String> {
    let mut faults = Vec::new();
    let pass_through = Configuration::PassThrough.text();
    let count = |what| results.fact(pass_through, what)?.parse::<u64>().ok();
    let counts = (count(fact::EXITS), count(fact::SGIS), count(fact::OWN));
    if let (Some(exits), Some(sgis), Some(own)) = counts {
        if exits > 0 {
            faults.push(format!("{pass_through}: {exits} exits while it measured"));
        }
        if sgis > own {
            faults.push(format!("{pass_through}: {sgis} exits for {own} SGIs"));
        }
    }
    faults
}

/// The most that the median of a scheduled guest may be beside load, native being 1. The limit is
/// wide, as a wake-up beside load has a world switch and QEMU's turns. The median is judged and not
/// the mean, since a few periods that fall into turns of the other CPU would move a mean.
const GUEST_MEDIAN_RATIO: f64 = 3.0;

/// The most that any latency of a scheduled guest may be beside load, in nanoseconds. A period of
/// cyclictest is a millisecond: a wake-up later than that misses the next one.
const GUEST_MAXIMUM: u64 = 1_000_000;

/// A guest that sleeps most of the time runs at once when it wakes, whatever else computes. A round
/// robin promises no such thing: a wake-up goes to the end of the queue. Beside both loads a third
/// VM is on the CPU, and the guest's own start is not over when it measures: then it has its share.
fn guest_beside_load(results: &Results) -> Vec<String> {
    let name = Configuration::Guest.text();
    let scheduler = results.fact(name, fact::SCHEDULER);
    let promises = scheduler.is_some_and(|name| name != Scheduler::RoundRobin.name());
    let guest =
        figure(results, Configuration::Guest).filter(|_| promises && !is_alone_or_crowded(results));
    let Some((guest, native)) = guest.zip(figure(results, Configuration::Native)) else {
        return Vec::new();
    };
    let mut faults = Vec::new();
    let (median, native) = (guest.median, native.median);
    if median as f64 > GUEST_MEDIAN_RATIO * native as f64 {
        faults.push(format!(
            "{name}: its median of {median} ns is more than {GUEST_MEDIAN_RATIO} times that of the \
             native run, {native} ns"
        ));
    }
    if guest.max > GUEST_MAXIMUM {
        let (max, beyond) = (guest.max, above(guest, GUEST_MAXIMUM as f64));
        let count = guest.count();
        faults.push(format!(
            "{name}: its maximum of {max} ns is more than {GUEST_MAXIMUM} ns ({beyond} of {count} \
             periods are above)"
        ));
    }
    faults
}

/// Tells whether there is no load or all of it. A run whose conditions are unknown counts as one
/// without load, so that nothing is judged that was not promised.
fn is_alone_or_crowded(results: &Results) -> bool {
    let load = results.conditions.get(condition::LOAD);
    load.is_none_or(|load| {
        [Load::Off, Load::All]
            .map(Load::text)
            .contains(&load.as_str())
    })
}

/// With load a guest that shares its CPU finds another VM there each time it wakes; where it does
/// not, there was no load. A load that failed to start would give good figures, and no other check
/// would see that. Only the guest shares its CPU with the load.
fn load_was_there(results: &Results) -> Option<String> {
    let guest = figure(results, Configuration::Guest)?;
    let rt = figure(results, Configuration::PassThrough)?;
    let there = !is_loaded(results) || guest.mean > rt.mean;
    (!there).then(|| {
        format!(
            "the load was not there: the guest wakes after {} ns on average, the real-time VM after {} ns",
            guest.mean, rt.mean
        )
    })
}

/// Returns whether the other CPU was loaded. Results without that condition count as not loaded,
/// for which the limits are the stricter ones.
pub(super) fn is_loaded(results: &Results) -> bool {
    let load = results.conditions.get(condition::LOAD);
    load.is_some_and(|load| load != Load::Off.text())
}

/// Returns a configuration's latencies, if it was measured.
pub(super) fn figure(results: &Results, configuration: Configuration) -> Option<&Figure> {
    results.column(configuration.text())?.get(ROW)
}

/// Returns how many times native a value is. A value of 0 natively has no ratio.
pub(super) fn ratio(native: Option<u64>, value: u64) -> String {
    match native {
        Some(native) if native > 0 => format!("{:.2}", value as f64 / native as f64),
        _ => "-".to_owned(),
    }
}

#[cfg(test)]
pub(super) mod tests;
