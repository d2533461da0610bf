//! The page of `jitter`, for whoever has to judge a real-time system by it.
//!
//! The page has no script and names no other file, so that it can be kept and sent as one file. The
//! verdict stands first, then the figures that it rests on, and last how they were made.

use std::fmt::Write as _;

use anyhow::Result;

use super::fact;
use super::papers;
use super::setup::condition;
use super::table::{self, or_dash};
use super::verdict::Verdict;
use crate::report::html::{self, escape};
use crate::report::{Axis, Figure, Origin, PERCENTILES, Results, Scale, cdf, overlay, series};

/// Title of the page, by which a browser's tabs tell it from that of `bench`.
const TITLE: &str = "GearV: jitter";

/// Returns the page: verdict, percentiles with exits, distributions, the papers' tables, samples in
/// their order, and how all that was made. The order of the sections is that of questions a reader
/// has: whether the system is good, by which figures, beside what others have measured, and whether
/// the figures can be trusted.
pub(super) fn page(
    results: &Results,
    old: Option<&Results>,
    verdict: &Verdict,
    notes: &[&str],
) -> Result<String> {
    let figures: Vec<(&str, &Figure)> = table::figures(results).collect();
    let mut contents = words(verdict) + "<h2>Latencies</h2>\n";
    contents += &percentiles(&figures, results, old);
    contents += &distributions(&figures);
    contents += "<h2>Beside the papers</h2>\n";
    contents += &papers::table(results);
    contents += "<h2>Samples in their order</h2>\n";
    contents += &orders(&figures)?;
    contents += "<h2>How this was made</h2>\n";
    contents += &conditions(results, notes);
    contents += &origins(results);
    contents += &failures(results);
    Ok(html::document(TITLE, &contents))
}

/// Returns the verdict, whose sentences are those of the terminal. The class gives the colour and
/// the word says the same without one. Names and sentences are escaped, as a failure's sentence
/// quotes what a console printed.
fn words(verdict: &Verdict) -> String {
    let (class, word) = match verdict.is_good {
        true => ("good", "Good"),
        false => ("bad", "Not good"),
    };
    let mut html = format!(
        "<p class=\"{class}\">{word}: {}.</p>\n<ul>\n",
        escape(&verdict.all)
    );
    for (name, sentence) in &verdict.each {
        let _ = writeln!(
            html,
            "<li><b>{}</b>: {}.</li>",
            escape(name),
            escape(sentence)
        );
    }
    html + "</ul>\n"
}

/// Returns the first row of the table of percentiles. The column of the earlier run is there only
/// with one. Columns are grouped by a line at their left, as so many columns of numbers are hard to
/// tell apart otherwise.
fn titles(has_old: bool) -> String {
    let mut html = "<tr><th>ns</th><th>min</th>".to_owned();
    for percentile in PERCENTILES {
        let _ = write!(html, "<th>{}</th>", percentile.name);
    }
    html += "<th>max</th><th>avg</th><th class=\"group\">avg<br>by native</th><th>max<br>by native</th>\
        <th class=\"group\">periods</th><th>exits</th><th>SGIs</th><th>SGIs by<br>its kernel</th>";
    if has_old {
        html += "<th class=\"group\">max<br>before</th>";
    }
    html + "</tr>\n"
}

/// Returns the cell with the largest latency of an earlier measurement. Only the maximum is
/// compared, as on the terminal. A configuration that the earlier run lacks has a dash.
fn most_before(old: &Results, name: &str) -> String {
    let then = table::figures(old).find(|(other, _)| *other == name);
    let most = or_dash(then.map(|(_, then)| then.max));
    format!("<td class=\"group\">{most}</td>")
}

/// Returns the table of percentiles, ratios and exits. The note on exits belongs to the table and
/// stands directly below, before the percentiles that are missing.
fn percentiles(figures: &[(&str, &Figure)], results: &Results, old: Option<&Results>) -> String {
    let native = figures.iter().find(|(name, _)| *name == "native");
    let native = native.map(|(_, native)| *native);
    let mut html = format!("<div class=\"wide\"><table>{}", titles(old.is_some()));
    for (name, figure) in figures {
        let _ = write!(html, "<tr><td>{}</td>{}", escape(name), latencies(figure));
        html += &ratios(figure, native);
        html += &exits(name, figure, results);
        html += &old.map_or(String::new(), |old| most_before(old, name));
        html += "</tr>\n";
    }
    html += &format!("</table></div>\n<p class=\"note\">{EXITS}</p>\n");
    html + &too_few(results)
}

/// Returns the cells of a configuration's latencies. A percentile with too few samples is a dash.
/// The dash is the honest value: with fewer samples the percentile would be the maximum under
/// another name.
fn latencies(figure: &Figure) -> String {
    let percentiles = PERCENTILES.map(|percentile| figure.percentile(percentile));
    let ends = [Some(figure.max), Some(figure.mean)];
    let all = [Some(figure.min)]
        .into_iter()
        .chain(percentiles)
        .chain(ends);
    all.map(|value| format!("<td>{}</td>", or_dash(value)))
        .collect()
}

/// Returns the ratios to native, whose average and maximum are the two that the verdict names. The
/// minimum's ratio is in the terminal's table alone.
fn ratios(figure: &Figure, native: Option<&Figure>) -> String {
    let ratio = |of: fn(&Figure) -> u64| table::ratio(native.map(of), of(figure));
    format!(
        "<td class=\"group\">{}</td><td>{}</td>",
        ratio(|figure| figure.mean),
        ratio(|figure| figure.max)
    )
}

/// Returns the cells of periods, exits and SGIs; a configuration without Gear1 has dashes for the
/// latter. The guest's own count of SGIs stands beside Gear1's, as both have to agree: an exit of
/// an SGI that the kernel did not send would be one that pass-through promises not to have.
fn exits(name: &str, figure: &Figure, results: &Results) -> String {
    let counts = [fact::EXITS, fact::SGIS, fact::OWN];
    let counts = counts.map(|what| results.fact(name, what).unwrap_or("-"));
    let counts = counts.map(|count| format!("<td>{count}</td>")).concat();
    format!("<td class=\"group\">{}</td>{counts}", figure.count())
}

/// Explanation of the columns of exits. The note stands below the table because a count per period
/// would mislead without it.
const EXITS: &str = "Exits other than those of SGIs, and SGIs by Gear1's count and by the guest's own, from the first look \
    at Gear1's counters to the second: the sleep around the measurement is in them (half an hour of virtual time without \
    load), so that few periods have many exits a period.";

/// Says which percentiles have too few samples.
fn too_few(results: &Results) -> String {
    let text = table::too_few(results);
    match text.is_empty() {
        true => text,
        false => format!(
            "<p class=\"note\">{}</p>\n",
            escape(text.trim_end()).replace('\n', "<br>\n")
        ),
    }
}

/// Returns the cumulative distributions in one plot, and each configuration over the first, all to
/// one scale. One axis serves all plots, since plots to different scales cannot be compared by eye.
/// The cumulative form comes first, because a requirement is a share of periods that are in time,
/// and this is what its line shows.
fn distributions(figures: &[(&str, &Figure)]) -> String {
    let only: Vec<&Figure> = figures.iter().map(|(_, figure)| *figure).collect();
    let Some(axis) = Axis::of(&only) else {
        return String::new();
    };
    let mut html = "<h2>Cumulative distribution</h2>\n<p class=\"note\">The share of periods that were not later. \
        The last step of a line is its latest period.</p>\n"
        .to_owned();
    html += &cdf(axis, figures);
    html + &beside_first(axis, figures)
}

/// Returns a plot of each configuration but the first, over that. The first is the native run
/// unless that was not measured. More than two distributions in one plot hide each other, so each
/// pair has a plot. The colour of a configuration is that of its place in the list, and so is the
/// same in all plots.
fn beside_first(axis: Axis, figures: &[(&str, &Figure)]) -> String {
    let [(first, reference), others @ ..] = figures else {
        return String::new();
    };
    let mut html = String::new();
    if !others.is_empty() {
        let _ = writeln!(
            html,
            "<h2>Each beside {}</h2>\n<p class=\"note\">The share of periods by their latency, \
             logarithmic, to the scale of the plot above.</p>",
            escape(first)
        );
    }
    for (index, (name, figure)) in (1..).zip(others) {
        let _ = writeln!(html, "<h3>{}</h3>", escape(name));
        html += &overlay(axis, [(first, 0, reference), (name, index, figure)]);
    }
    html
}

/// Returns each configuration's samples in their order, all to one scale. The order shows what a
/// distribution hides: whether late periods come together, or at the start. A scale of its own for
/// each plot would make a quiet configuration look as wild as a bad one.
fn orders(figures: &[(&str, &Figure)]) -> Result<String> {
    let Some(scale) = Scale::of(figures.iter().map(|(_, figure)| *figure)) else {
        return Ok(String::new());
    };
    let mut html = String::new();
    for (name, figure) in figures {
        let _ = writeln!(html, "<h3>{}</h3>", escape(name));
        html += &series(figure, scale)?;
    }
    Ok(html)
}

/// Returns the conditions of the measurement and the notes, without which no figure can be
/// repeated. The names are listed here instead of taken from the results, which gives their order.
fn conditions(results: &Results, notes: &[&str]) -> String {
    let names = [condition::MACHINE, condition::LOAD, condition::LOOPS];
    let conditions = names.into_iter();
    let conditions = conditions.filter_map(|name| Some((name, results.conditions.get(name)?)));
    let mut html = "<ul>\n".to_owned();
    for (name, value) in conditions {
        let _ = writeln!(html, "<li>{name}: {}</li>", escape(value));
    }
    for note in notes {
        let _ = writeln!(html, "<li>{}</li>", escape(note));
    }
    html + "</ul>\n"
}

/// The facts about each configuration that say where it comes from. Configurations of one page may
/// come from different runs and logs. The order is from the source to the log: what was built, when
/// and how it ran, and where its output is.
const ORIGINS: [(&str, &str); 6] = [
    (Origin::COMMIT, "commit"),
    (Origin::DATE, "date"),
    (Origin::COMMAND, "command"),
    (fact::KERNEL, "kernel"),
    (fact::INITRAMFS, "SHA-256 of the initramfs"),
    (fact::LOG, "log"),
];

/// Returns the beginning of a digest, which tells it apart; the JSON has all of it.
fn shortened<'a>(fact: &str, value: &'a str) -> &'a str {
    match fact {
        fact::INITRAMFS => value.get(..12).unwrap_or(value),
        _ => value,
    }
}

/// Returns where each configuration's figures come from; facts that none has are left out. A column
/// without any value would only widen the table: results of QEMU have no log, and those of a
/// board's log have no command.
fn origins(results: &Results) -> String {
    let columns = || results.columns.iter().map(|(name, _)| name.as_str());
    let known = ORIGINS.into_iter();
    let known: Vec<(&str, &str)> = known
        .filter(|(fact, _)| columns().any(|name| results.fact(name, fact).is_some()))
        .collect();
    let mut html = "<div class=\"wide\"><table class=\"text\"><tr><th>figures of</th>".to_owned();
    for (_, title) in &known {
        let _ = write!(html, "<th style=\"text-align:left\">{title}</th>");
    }
    html += "</tr>\n";
    for name in columns() {
        let _ = write!(html, "<tr><td>{}</td>", escape(name));
        for (fact, _) in &known {
            let value = results.fact(name, fact).unwrap_or("-");
            let _ = write!(html, "<td>{}</td>", escape(shortened(fact, value)));
        }
        html += "</tr>\n";
    }
    html + "</table></div>\n"
}

/// Returns the last words of configurations that were not measured. The words are shown unfolded: a
/// page without a configuration must say why. The words stay as the console has them, in `pre`,
/// since a register dump is unreadable without its lines.
fn failures(results: &Results) -> String {
    let mut html = String::new();
    for (name, facts) in &results.facts {
        if let Some(failure) = facts.get(fact::FAILURE) {
            let _ = writeln!(
                html,
                "<details open><summary>{} was not measured</summary><pre>{}</pre></details>",
                escape(name),
                escape(failure)
            );
        }
    }
    html
}

#[cfg(test)]
mod tests;
