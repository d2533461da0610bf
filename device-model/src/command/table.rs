//! Answers as tables, as wide as the terminal.

use std::fmt::Write as _;

use crate::json::Json;

/// Space between two columns.
const GAP: usize = 2;
/// No column is made narrower: a terminal that has no room for that gets paragraphs.
const NARROWEST: usize = 10;

/// Prints lists of objects as tables, and an object's numbers and texts as lines.
pub(super) fn as_text(json: &Json, width: Option<usize>) -> String {
    match json {
        Json::List(rows) => table(rows, width),
        Json::Object(fields) => {
            let mut text = String::new();
            for (name, value) in fields {
                let _ = match value {
                    // A list of numbers or names is a value, one of objects is a table.
                    Json::List(rows) if rows.iter().any(is_object) => {
                        writeln!(text, "{name}:\n{}", table(rows, width))
                    }
                    other => writeln!(text, "{name}: {}", cell(other)),
                };
            }
            text
        }
        other => format!("{}\n", cell(other)),
    }
}

/// Returns a text in lines of at most this width, broken between words where that is possible.
pub fn wrap(text: &str, width: usize) -> Vec<String> {
    let width = width.max(1);
    if text.chars().count() <= width {
        return vec![text.to_owned()];
    }
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let mut word: Vec<char> = word.chars().collect();
        let used = lines.last().map_or(0, |line| line.chars().count());
        let is_first = used == 0;
        if !is_first && used + 1 + word.len() > width {
            lines.push(String::new());
        } else if !is_first {
            lines.last_mut().into_iter().for_each(|line| line.push(' '));
        }
        // A path has no blanks, and is cut where the line ends.
        while word.len() > width {
            let rest = word.split_off(width);
            lines
                .last_mut()
                .into_iter()
                .for_each(|line| line.extend(&word));
            lines.push(String::new());
            word = rest;
        }
        lines
            .last_mut()
            .into_iter()
            .for_each(|line| line.extend(&word));
    }
    lines
}

/// Tells whether a value is a row of a table.
fn is_object(value: &Json) -> bool {
    matches!(value, Json::Object(_))
}

/// Returns a value as a table shows it. An empty text is a dash, so that no column looks empty.
fn cell(json: &Json) -> String {
    match json {
        Json::Null => "-".into(),
        Json::Text(text) if text.is_empty() => "-".into(),
        Json::Text(text) => text.clone(),
        Json::Bool(value) => (if *value { "yes" } else { "no" }).into(),
        Json::Number(number) => number.to_string(),
        Json::List(values) if values.is_empty() => "-".into(),
        Json::List(values) => values.iter().map(cell).collect::<Vec<_>>().join(" "),
        Json::Object(fields) => {
            let fields = fields.iter();
            let fields = fields.map(|(name, value)| format!("{name} {}", cell(value)));
            fields.collect::<Vec<_>>().join(", ")
        }
    }
}

/// Returns the rows below their names, each column as wide as its widest cell, or narrower where
/// the table would be wider than the terminal.
fn table(rows: &[Json], width: Option<usize>) -> String {
    let rows = cells(rows);
    let columns = rows.first().map_or(0, Vec::len);
    let widest = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let mut widths: Vec<usize> = (0..columns).map(widest).collect();
    match width {
        // A table that does not fit is no table: its lines would be cut or wrapped by the terminal.
        // planted: a table is wider than the terminal
        Some(width) if !narrow(&mut widths, width) => paragraphs(&rows, width),
        Some(_) | None => rows.iter().map(|row| lines(row, &widths)).collect(),
    }
}

/// Makes the widest columns narrower until all fit. Returns whether they do.
fn narrow(widths: &mut [usize], width: usize) -> bool {
    let gaps = GAP * widths.len().saturating_sub(1);
    loop {
        // Columns lose half of their width at most at a time, so that two wide ones share the loss.
        let excess = (widths.iter().sum::<usize>() + gaps).saturating_sub(width);
        let Some(widest) = widths.iter_mut().max() else {
            return true;
        };
        if excess == 0 || *widest <= NARROWEST {
            return excess == 0;
        }
        *widest = widest
            .saturating_sub(excess.min(*widest / 2).max(1))
            .max(NARROWEST);
    }
}

/// Returns each row as a paragraph of names and values, for a terminal that has no room for the
/// columns.
fn paragraphs(rows: &[Vec<String>], width: usize) -> String {
    let [names, rows @ ..] = rows else {
        return String::new();
    };
    let mut text = String::new();
    for row in rows {
        let pairs = names.iter().zip(row);
        let pairs: Vec<String> = pairs.map(|(name, cell)| format!("{name} {cell}")).collect();
        for line in wrap(&pairs.join(", "), width) {
            text += &format!("{line}\n");
        }
    }
    text
}

/// Returns a row: as many lines as its highest cell has.
fn lines(row: &[String], widths: &[usize]) -> String {
    let cells = row.iter().zip(widths);
    let cells: Vec<Vec<String>> = cells.map(|(cell, width)| wrap(cell, *width)).collect();
    // A cell that is wrapped makes its row higher; the others are blank below.
    let height = cells.iter().map(Vec::len).max().unwrap_or(0);
    let mut text = String::new();
    for line in 0..height {
        let parts = cells.iter().zip(widths).map(|(cell, width)| {
            let part = cell.get(line).map_or("", String::as_str);
            format!("{part:width$}")
        });
        let parts: Vec<String> = parts.collect();
        text.push_str(parts.join(&" ".repeat(GAP)).trim_end());
        text.push('\n');
    }
    text
}

/// Returns the cells of a table, the names of the first row's fields at the top: all rows of a list
/// have the same fields.
fn cells(rows: &[Json]) -> Vec<Vec<String>> {
    let mut lines: Vec<Vec<String>> = Vec::new();
    for row in rows {
        let Json::Object(fields) = row else {
            continue;
        };
        if lines.is_empty() {
            lines.push(fields.iter().map(|(name, _)| name.to_uppercase()).collect());
        }
        lines.push(fields.iter().map(|(_, value)| cell(value)).collect());
    }
    lines
}

#[cfg(test)]
mod tests;
