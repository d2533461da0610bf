//! All figures of a run on one page of HTML that needs no other file.

use std::fmt::Write as _;

use anyhow::Result;

use super::plot::{self, Scale};
use super::{Figure, Results};

const STYLE: &str = "body{font:15px/1.5 system-ui,sans-serif;max-width:60em;margin:2em auto;padding:0 1em;color:#222}\
    table{border-collapse:collapse;margin:1em 0}td,th{padding:.25em .8em;border-bottom:1px solid #ccc;text-align:right}\
    td:first-child,th:first-child{text-align:left}svg{max-width:100%;height:auto}h3{margin-bottom:0}";

/// Returns the page: figures, with an older run's beside them if there is one, what they depend on, notes, plots.
pub(crate) fn page(
    title: &str,
    notes: &[&str],
    old: Option<&Results>,
    results: &Results,
) -> Result<String> {
    let title = escape(title);
    let mut html = format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{title}</title>\
         <style>{STYLE}</style></head><body>\n<h1>{title}</h1>\n"
    );
    for row in rows(results) {
        html += &table(row, old, results);
    }
    html += "<ul>\n";
    for (name, value) in &results.conditions {
        let _ = writeln!(html, "<li>{}: {}</li>", escape(name), escape(value));
    }
    let _ = writeln!(
        html,
        "<li>SHA-256 of what ran: {}</li>",
        escape(&results.guest)
    );
    for note in notes {
        let _ = writeln!(html, "<li>{}</li>", escape(note));
    }
    html += "</ul>\n";
    for row in rows(results) {
        html += &plots(row, results)?;
    }
    html += "</body></html>\n";
    Ok(html)
}

/// Returns the names of all rows, each once.
fn rows(results: &Results) -> Vec<&str> {
    let mut rows: Vec<&str> = Vec::new();
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

/// What a native run begins its name with; others are shown in relation to it.
const NATIVE: &str = "native";

fn table(row: &str, old: Option<&Results>, results: &Results) -> String {
    let mut html = format!(
        "<table><tr><th>{}, ns</th><th>min</th><th>median</th><th>avg</th><th>p99</th><th>max</th>",
        escape(row)
    );
    let all = having(results, row);
    let native = all.iter().find(|(name, _)| name.starts_with(NATIVE));
    if native.is_some() {
        html += "<th>min/nat.</th><th>avg/nat.</th><th>max/nat.</th>";
    }
    if old.is_some() {
        html += "<th>max then</th>";
    }
    html += "</tr>\n";
    for (name, figure) in &all {
        let Figure {
            min,
            median,
            mean,
            p99,
            max,
            samples: _,
        } = figure;
        let _ = write!(
            html,
            "<tr><td>{}</td><td>{min}</td><td>{median}</td><td>{mean}</td><td>{p99}</td><td>{max}</td>",
            escape(name)
        );
        if let Some((_, native)) = native {
            for (own, natively) in [(min, native.min), (mean, native.mean), (max, native.max)] {
                let ratio = *own as f64 / natively.max(1) as f64;
                let _ = write!(html, "<td>{ratio:.2}</td>");
            }
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

/// Returns both plots of each configuration whose samples differ, all to one scale.
fn plots(row: &str, results: &Results) -> Result<String> {
    let mut columns = having(results, row);
    columns.retain(|(_, figure)| !figure.samples.is_empty() && figure.min < figure.max);
    let Some(scale) = Scale::of(columns.iter().map(|(_, figure)| *figure)) else {
        return Ok(String::new());
    };
    let mut html = format!("<h2>{}</h2>\n", escape(row));
    for (name, figure) in columns {
        let _ = writeln!(html, "<h3>{}</h3>", escape(name));
        html += &plot::histogram(figure, scale)?;
        html += &plot::series(figure, scale)?;
    }
    Ok(html)
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

#[cfg(test)]
mod tests;
