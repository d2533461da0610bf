//! All figures of a run on one page of HTML that needs no other file.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};

use super::figures::{Figure, Results};
use super::plot::{self, Scale, escape};

const STYLE: &str = "body{font:15px/1.5 system-ui,sans-serif;max-width:76em;margin:2em auto;padding:0 1em;color:#222}\
    table{border-collapse:collapse;margin:1em 0}td,th{padding:.25em .8em;border-bottom:1px solid #ccc;text-align:right}\
    td:first-child,th:first-child{text-align:left}tr:hover td{background:#f2f6fb}svg{max-width:100%;height:auto;display:block}\
    h2{margin:1.6em 0 .2em}h3{margin-bottom:0}summary{cursor:pointer;color:#1f5fa8}.wide{overflow-x:auto}\
    .wide td,.wide th{padding:.25em .5em;font-size:13px}small{display:block;color:#666}.worse{color:#a61b1b}.better{color:#176b2c}";

/// Texts of a page around its results.
#[derive(Clone, Copy, Debug)]
pub struct Page<'a> {
    /// Title of the page.
    pub title: &'a str,
    /// Notes below the plots.
    pub notes: &'a [&'a str],
    /// Names of the rows that come first, in this order.
    pub order: &'a [&'a str],
    /// An older run, to be shown beside this one.
    pub old: Option<&'a Results>,
}

/// Returns the page: figures, with an older run's beside them if there is one, what they depend on,
/// notes, plots. Where there are several rows, a table of all medians comes first and each row's
/// samples are folded away.
fn page(page: &Page<'_>, results: &Results) -> Result<String> {
    let title = escape(page.title);
    let mut html = format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{title}</title>\
         <style>{STYLE}</style></head><body>\n<h1>{title}</h1>\n"
    );
    let rows = rows(page.order, results);
    if let [row] = rows[..] {
        html += &table(row, page.old, results);
        html += &conditions(page, results);
        html += &plots(row, results)?;
    } else {
        html += &overview(&rows, page.old, results);
        html += &conditions(page, results);
        html += &counts(results);
        for row in rows {
            html += &folded(row, page.old, results)?;
        }
    }
    Ok(html + "</body></html>\n")
}

/// Writes the results to a JSON file and the page beside it, and prints where.
pub fn save(texts: &Page<'_>, results: &Results, json: &Path) -> Result<()> {
    results.save(json)?;
    let html = json.with_extension("html");
    let text = page(texts, results)?;
    fs::write(&html, text).with_context(|| html.display().to_string())?;
    println!("plots: {}\nall samples: {}", html.display(), json.display());
    Ok(())
}

/// Returns a row's medians, and its samples folded away.
fn folded(row: &str, old: Option<&Results>, results: &Results) -> Result<String> {
    let mut html = format!("<h2>{}</h2>\n", escape(row));
    html += &plot::bars(&having(results, row));
    html += "<details><summary>distribution</summary>\n";
    html += &table(row, old, results);
    html += &plots(row, results)?;
    Ok(html + "</details>\n")
}

/// Returns the conditions that the figures depend on, and the notes.
fn conditions(page: &Page<'_>, results: &Results) -> String {
    let mut html = "<ul>\n".to_owned();
    for (name, value) in &results.conditions {
        let _ = writeln!(html, "<li>{}: {}</li>", escape(name), escape(value));
    }
    let _ = writeln!(
        html,
        "<li>SHA-256 of what ran: {}</li>",
        escape(&results.guest)
    );
    for note in page.notes {
        let _ = writeln!(html, "<li>{}</li>", escape(note));
    }
    html + "</ul>\n"
}

/// Returns all medians, a line a row and a column a configuration.
fn overview(rows: &[&str], old: Option<&Results>, results: &Results) -> String {
    let mut html = "<div class=\"wide\"><table><tr><th>median, ns</th>".to_owned();
    for (name, _) in &results.columns {
        let _ = write!(html, "<th>{}</th>", escape(name).replace(' ', "<br>"));
    }
    html += "</tr>\n";
    for row in rows {
        let _ = write!(html, "<tr><td>{}</td>", escape(row));
        for (name, figures) in &results.columns {
            let now = figures.get(*row).map(|figure| figure.median);
            let then = old.and_then(|old| Some(old.column(name)?.get(*row)?.median));
            html += &cell(now, then);
        }
        html += "</tr>\n";
    }
    html + "</table></div>\n"
}

/// Returns a median, with the older one below it if that was another.
fn cell(now: Option<u64>, then: Option<u64>) -> String {
    match (now, then) {
        (None, _) => "<td>-</td>".to_owned(),
        (Some(now), Some(then)) if now != then => {
            let class = if now > then { "worse" } else { "better" };
            format!("<td class=\"{class}\">{now}<small>was {then}</small></td>")
        }
        (Some(now), _) => format!("<td>{now}</td>"),
    }
}

/// Returns the counts, if there are any.
fn counts(results: &Results) -> String {
    if results.counts.is_empty() {
        return String::new();
    }
    let mut html = "<h2>Footprint and boot</h2>\n<table>\n".to_owned();
    for (name, count) in &results.counts {
        let _ = writeln!(html, "<tr><td>{}</td><td>{count}</td></tr>", escape(name));
    }
    html + "</table>\n"
}

/// Returns the names of all rows, each once.
fn rows<'a>(order: &[&'a str], results: &'a Results) -> Vec<&'a str> {
    let is_there = |row: &str| results.columns.iter().any(|(_, f)| f.contains_key(row));
    let mut rows: Vec<&str> = order.iter().copied().filter(|row| is_there(row)).collect();
    for (_, figures) in &results.columns {
        for row in figures.keys() {
            if !rows.contains(&row.as_str()) {
                rows.push(row);
            }
        }
    }
    rows
}

/// Returns the configurations that have a row, with its figure.
fn having<'a>(results: &'a Results, row: &str) -> Vec<(&'a str, &'a Figure)> {
    let columns = results.columns.iter();
    columns
        .filter_map(|(name, figures)| Some((name.as_str(), figures.get(row)?)))
        .collect()
}

/// Prefix of a native run's name; other runs are shown in relation to it.
const NATIVE: &str = "native";

fn table(row: &str, old: Option<&Results>, results: &Results) -> String {
    let all = having(results, row);
    let native = all.iter().find(|(name, _)| name.starts_with(NATIVE));
    let mut html = heading(row, native.is_some(), old.is_some());
    for (name, figure) in &all {
        let _ = write!(html, "<tr><td>{}</td>{}", escape(name), cells(figure));
        if let Some((_, native)) = native {
            html += &ratios(figure, native);
        }
        if let Some(old) = old {
            let then = old.column(name).and_then(|figures| figures.get(row));
            let then = then.map_or_else(|| "-".to_owned(), |figure| figure.max.to_string());
            let _ = write!(html, "<td>{then}</td>");
        }
        html += "</tr>\n";
    }
    html + "</table>\n"
}

/// Returns the first line of a row's table, with columns for ratios and for an older run.
fn heading(row: &str, has_native: bool, has_old: bool) -> String {
    let mut html = format!(
        "<table><tr><th>{}, ns</th><th>min</th><th>median</th><th>avg</th><th>p99</th><th>max</th>",
        escape(row)
    );
    if has_native {
        html += "<th>min/nat.</th><th>avg/nat.</th><th>max/nat.</th>";
    }
    if has_old {
        html += "<th>max then</th>";
    }
    html + "</tr>\n"
}

/// Returns a figure's cells.
fn cells(figure: &Figure) -> String {
    let Figure {
        min,
        median,
        mean,
        p99,
        max,
        samples: _,
    } = figure;
    [min, median, mean, p99, max]
        .map(|value| format!("<td>{value}</td>"))
        .concat()
}

/// Returns the cells of a figure in relation to the native one.
fn ratios(figure: &Figure, native: &Figure) -> String {
    let ratio = |of: fn(&Figure) -> u64| {
        let ratio = of(figure) as f64 / of(native).max(1) as f64;
        format!("<td>{ratio:.2}</td>")
    };
    ratio(|one| one.min) + &ratio(|one| one.mean) + &ratio(|one| one.max)
}

/// Returns both plots of each configuration whose samples differ, all to one scale.
fn plots(row: &str, results: &Results) -> Result<String> {
    let mut columns = having(results, row);
    columns.retain(|(_, figure)| !figure.samples.is_empty() && figure.min < figure.max);
    let Some(scale) = Scale::of(columns.iter().map(|(_, figure)| *figure)) else {
        return Ok(String::new());
    };
    let mut html = String::new();
    for (name, figure) in columns {
        let _ = writeln!(html, "<h3>{}</h3>", escape(name));
        html += &plot::histogram(figure, scale)?;
        html += &plot::series(figure, scale)?;
    }
    Ok(html)
}

#[cfg(test)]
mod tests;
