//! The figures of a run that has many rows, on one page of HTML that needs no other file.
//!
//! The page has no script: rows are unfolded by HTML's own element, so that the file can be opened
//! anywhere and kept.

use std::fmt::Write as _;

use anyhow::Result;

use super::figures::{Figure, Results};
use super::html::{self, escape};
use super::plot::{self, Scale};

/// A row of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row<'a> {
    /// Name in the results.
    pub name: &'a str,
    /// A line that says what was measured.
    pub what: &'a str,
    /// The most that the median of the judged column may be; none where the row is only watched.
    pub goal: Option<u64>,
}

/// Texts of a page around its results.
#[derive(Clone, Copy, Debug)]
pub struct Page<'a> {
    /// Title of the page.
    pub title: &'a str,
    /// Notes below the plots.
    pub notes: &'a [&'a str],
    /// The rows that come first, in this order.
    pub rows: &'a [Row<'a>],
    /// The column that has to meet the goals.
    pub judged: &'a str,
    /// An older run, to be shown beside this one.
    pub old: Option<&'a Results>,
}

/// Returns the page: all medians, with an older run's where they differ, what they depend on,
/// notes, and each row with its samples folded away. The sentence on the goals comes first and the
/// plots last: most readers want to know whether anything is over, and which row.
pub fn page(page: &Page<'_>, results: &Results) -> Result<String> {
    let rows = rows(page.rows, results);
    let mut contents = goals(page, &rows, results);
    contents += &overview(page, &rows, results);
    contents += &conditions(page, results);
    contents += &counts(results);
    for row in &rows {
        contents += &folded(page, row, results)?;
    }
    Ok(html::document(page.title, &contents))
}

/// Returns whether a row's goal is met, if it has one and was measured. The median is judged, as
/// the distribution's ends depend on what else interrupts.
fn is_met(page: &Page<'_>, row: &Row<'_>, results: &Results) -> Option<bool> {
    let median = results.column(page.judged)?.get(row.name)?.median;
    Some(median <= row.goal?)
}

/// Returns a sentence on how many goals are met, and by which rows they are not. A run without the
/// judged column says so, and is not taken for one that meets all goals. Rows without a goal, and
/// rows that were not measured, are not in the number: a filtered run would look worse than it is.
fn goals(page: &Page<'_>, rows: &[Row<'_>], results: &Results) -> String {
    let judged: Vec<(&str, bool)> = rows
        .iter()
        .filter_map(|row| Some((row.name, is_met(page, row, results)?)))
        .collect();
    if judged.is_empty() {
        let judged = escape(page.judged);
        return format!(
            "<p class=\"note\">The column with the goals, {judged}, was not measured.</p>\n"
        );
    }
    let over: Vec<&str> = judged
        .iter()
        .filter(|(_, met)| !met)
        .map(|(row, _)| *row)
        .collect();
    let (class, which) = match over.is_empty() {
        true => ("good", String::new()),
        false => (
            "bad",
            format!("; over their goals: {}", escape(&over.join(", "))),
        ),
    };
    format!(
        "<p class=\"{class}\">{} of {} goals are met by {}{which}.</p>\n",
        judged.len() - over.len(),
        judged.len(),
        escape(page.judged)
    )
}

/// Returns what a row is, its medians, and its samples folded away. A page of all plots at once
/// would be too long to find a row in. The bars stay unfolded, as they are what configurations are
/// compared by.
fn folded(page: &Page<'_>, row: &Row<'_>, results: &Results) -> Result<String> {
    let mut html = format!("<h2>{}</h2>\n", escape(row.name));
    html += &format!("<p>{}{}</p>\n", escape(row.what), goal(page, row, results));
    html += &plot::bars(&having(results, row.name), row.goal);
    html += "<details><summary>distribution</summary>\n";
    html += &table(row.name, page.old, results);
    html += &plots(row.name, results)?;
    Ok(html + "</details>\n")
}

/// Returns a sentence on the row's goal, if it has one. A row that the judged column lacks says
/// `not measured`, so that a goal which nothing was held against is not taken for one that is met.
fn goal(page: &Page<'_>, row: &Row<'_>, results: &Results) -> String {
    let Some(goal) = row.goal else {
        return String::new();
    };
    let met = match is_met(page, row, results) {
        Some(true) => "<span class=\"better\">met</span>",
        Some(false) => "<span class=\"worse\">over</span>",
        None => "not measured",
    };
    format!(" Goal for {}: at most {goal}, {met}.", escape(page.judged))
}

/// Returns the conditions that the figures depend on, and the notes. Two pages compare only if
/// these agree, the hash of the guest among them.
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

/// Returns all medians, a line a row and a column a configuration, behind the goals. Names are
/// broken at spaces, since twenty columns do not fit side by side otherwise. The table scrolls
/// sideways by itself, so that the page below keeps its width.
fn overview(page: &Page<'_>, rows: &[Row<'_>], results: &Results) -> String {
    let mut html = "<div class=\"wide\"><table><tr><th>median, ns</th><th>goal</th>".to_owned();
    for (name, _) in &results.columns {
        let _ = write!(html, "<th>{}</th>", escape(name).replace(' ', "<br>"));
    }
    html += "</tr>\n";
    for row in rows {
        html += &overview_line(page, row, results);
    }
    html + "</table></div>\n"
}

/// Returns a row's line. The row's explanation is a tooltip here and a sentence further below. An
/// older median is looked up by the column's and the row's name, so columns may have come or gone
/// since.
fn overview_line(page: &Page<'_>, row: &Row<'_>, results: &Results) -> String {
    let mut html = format!(
        "<tr><td title=\"{}\">{}</td>",
        escape(row.what),
        escape(row.name)
    );
    html += &goal_cell(row, is_met(page, row, results));
    for (name, figures) in &results.columns {
        let now = figures.get(row.name).map(|figure| figure.median);
        let then = page.old;
        let then = then.and_then(|old| Some(old.column(name)?.get(row.name)?.median));
        html += &cell(now, then);
    }
    html + "</tr>\n"
}

/// Returns the cell of a goal. Words say what the colour says, for those who do not see colours. A
/// goal that nothing was measured for has its number and no colour.
fn goal_cell(row: &Row<'_>, met: Option<bool>) -> String {
    match (row.goal, met) {
        (None, _) => "<td>-</td>".to_owned(),
        (Some(goal), None) => format!("<td>{goal}</td>"),
        (Some(goal), Some(true)) => format!("<td class=\"better\">{goal} met</td>"),
        (Some(goal), Some(false)) => format!("<td class=\"worse\">{goal} over</td>"),
    }
}

/// Returns a median, with the older one below it if that was another. Most medians do not change,
/// and a second number in each cell would hide the few that do. All values of the table are costs,
/// so that larger is worse in every cell.
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

/// Returns the counts, if there are any. They have no distribution and no column, as they belong to
/// the tree and not to a configuration. The names carry their units, and one column of plain
/// numbers is therefore enough.
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

/// Tells whether any column has a row. Rows that no column has are left out of the page. A heading
/// without any figure below would look like a measurement that failed.
fn has_figures(results: &Results, row: &str) -> bool {
    let mut columns = results.columns.iter();
    columns.any(|(_, figures)| figures.contains_key(row))
}

/// Returns all rows, each once; a row that the page does not describe has no words. Undescribed
/// rows come last. A new row of the guest thus appears on the page before anybody describes it, and
/// cannot be forgotten.
fn rows<'a>(described: &[Row<'a>], results: &'a Results) -> Vec<Row<'a>> {
    let is_there = |row: &Row<'_>| has_figures(results, row.name);
    let mut rows: Vec<Row<'_>> = described.iter().copied().filter(is_there).collect();
    for (_, figures) in &results.columns {
        for name in figures.keys() {
            if !rows.iter().any(|row| row.name == name) {
                rows.push(Row {
                    name,
                    what: "",
                    goal: None,
                });
            }
        }
    }
    rows
}

/// Returns the configurations that have a row, with its figure. Columns without the row, as
/// natively those of Gear2, have neither a bar nor a plot.
fn having<'a>(results: &'a Results, row: &str) -> Vec<(&'a str, &'a Figure)> {
    let columns = results.columns.iter();
    columns
        .filter_map(|(name, figures)| Some((name.as_str(), figures.get(row)?)))
        .collect()
}

/// Beginning of a native column's name. There are several, one for each CPU and GIC; the first that
/// has the row is what others are divided by. Native columns come before all others, so that the
/// first one that has the row is found by a search from the front.
const NATIVE: &str = "native";

/// Returns a row's distributions. The earlier run's maximum stands beside the new one, as medians
/// are in the overview already. Ratios are there only with a native column: rows of Gear2 do not
/// exist natively.
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

/// Returns the first line of a row's table, with columns for ratios and for an older run. The
/// conditions are the same as those of the cells, so that a title stands above each.
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

/// Returns a figure's cells. The figure is taken apart by name: a new member of it does not compile
/// until this place decides whether to show it.
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

/// Returns the cells of a figure in relation to the native one. The divisor is at least 1, as a
/// figure may be 0. Ratios of medians are a matter of the bars above.
fn ratios(figure: &Figure, native: &Figure) -> String {
    let ratio = |of: fn(&Figure) -> u64| {
        let ratio = of(figure) as f64 / of(native).max(1) as f64;
        format!("<td>{ratio:.2}</td>")
    };
    ratio(|one| one.min) + &ratio(|one| one.mean) + &ratio(|one| one.max)
}

/// Returns both plots of each configuration whose samples differ, all to one scale. A figure whose
/// samples are all equal, as most under `icount`, has nothing to draw. The scale is of the drawn
/// ones alone, as a column of equal samples far away would squeeze all others.
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
