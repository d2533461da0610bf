//! The rows as text and as JSON.
//!
//! A case that could not be measured keeps its row, with the reason in the JSON and at the end of
//! the command: the others' figures are not lost by a failure of one.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};
use serde_json::{Map, Value, json};

use super::case::Case;
use super::figures::{Figure, Goal};

/// The answer of one system to one question. The texts are copies, so that rows outlive the cases
/// and their machines.
#[derive(Debug)]
pub(super) struct Row {
    what: String,
    system: String,
    answer: Result<Vec<Figure>, String>,
}

impl Row {
    /// Takes in an answer, with the whole chain of causes of an error.
    pub(super) fn new(case: &Case, answer: Result<Vec<Figure>>) -> Row {
        Row {
            what: case.what.clone(),
            system: case.system.name(),
            answer: answer.map_err(|error| format!("{error:#}")),
        }
    }

    /// Returns the figures in a line. Progress shows this line when the case ends.
    pub(super) fn brief(&self) -> String {
        match &self.answer {
            Ok(figures) => cells(figures),
            Err(_) => "not measured".to_owned(),
        }
    }
}

/// Returns the table: a line for each system below its case, with the goals that it missed or met.
/// Rows of one case follow each other, which the order of the cases guarantees.
pub(super) fn text(rows: &[Row]) -> String {
    let mut text = String::new();
    let mut what = "";
    for row in rows {
        if row.what != what {
            what = &row.what;
            let _ = writeln!(text, "\n{what}");
        }
        let goals = row.answer.as_deref().map(verdict).unwrap_or_default();
        let line = format!("  {:22} {} {goals}", row.system, row.brief());
        let _ = writeln!(text, "{}", line.trim_end());
    }
    text
}

/// Returns what was not measured, and why. The command fails with them after the table, so that
/// what was measured is seen.
pub(super) fn failures(rows: &[Row]) -> Vec<String> {
    let failures = rows.iter().filter_map(|row| row.answer.as_ref().err());
    failures.cloned().collect()
}

/// Writes the rows as JSON. The file has the same order as the table, so that two runs can be
/// compared line by line.
pub(super) fn save(rows: &[Row], file: &Path) -> Result<()> {
    if let Some(directory) = file.parent() {
        fs::create_dir_all(directory)?;
    }
    let rows: Vec<Value> = rows.iter().map(to_json).collect();
    let text = serde_json::to_string_pretty(&rows)? + "\n";
    fs::write(file, text).with_context(|| file.display().to_string())
}

/// Returns a row's figures by name, or the failure in their place. A reader thus tells a row that
/// failed from one that has no figures.
fn to_json(row: &Row) -> Value {
    let (what, system) = (&row.what, &row.system);
    match &row.answer {
        Ok(figures) => {
            let figures: Map<String, Value> = figures.iter().map(figure_to_json).collect();
            json!({ "case": what, "system": system, "figures": figures })
        }
        Err(error) => json!({ "case": what, "system": system, "failure": error }),
    }
}

/// Returns a figure with its goal as text and whether the value meets it. A figure without a goal
/// has neither member, instead of a goal that it could not miss.
fn figure_to_json(figure: &Figure) -> (String, Value) {
    let mut value = json!({ "value": figure.value });
    if let Some(goal) = figure.goal {
        value["goal"] = json!(goal_text(goal));
        value["met"] = json!(goal.is_met(figure.value));
    }
    (figure.name.to_owned(), value)
}

/// Returns the figures of a row in one line.
fn cells(figures: &[Figure]) -> String {
    let cells: Vec<String> = figures.iter().map(cell).collect();
    cells.join("  ")
}

/// Returns a figure with its unit. A count has no fraction. The unit is the last word of the
/// figure's name, by which a name without a space is a count.
fn cell(figure: &Figure) -> String {
    let Figure { name, value, .. } = figure;
    match name.rsplit_once(' ') {
        Some((name, unit)) => format!("{name} {value:.3} {unit}"),
        None => format!("{name} {value:.0}"),
    }
}

/// Returns the goals of a row and whether they are met. Each goal is named with its figure, since a
/// row may have several and miss one of them.
fn verdict(figures: &[Figure]) -> String {
    let goals = figures
        .iter()
        .filter_map(|figure| Some((figure, figure.goal?)));
    let goals = goals.map(|(figure, goal)| {
        let met = if goal.is_met(figure.value) {
            "met"
        } else {
            "over"
        };
        let (text, name) = (goal_text(goal), figure.name);
        let name = name.rsplit_once(' ').map_or(name, |(name, _)| name);
        format!("{name} {text} {met}")
    });
    let goals: Vec<String> = goals.collect();
    match goals.is_empty() {
        true => String::new(),
        false => format!("| {}", goals.join(", ")),
    }
}

/// Returns a goal as the table and the JSON have it, in ASCII for terminals of any encoding.
fn goal_text(goal: Goal) -> String {
    match goal {
        Goal::AtMost(most) => format!("<= {most}"),
        Goal::Within(middle, most) => format!("{middle} +- {most}"),
    }
}

#[cfg(test)]
mod tests;
