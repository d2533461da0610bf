//! Output of the workloads' script, as figures and as tables.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

/// Reasons of exits that are interrupts (`gear1/abi/src/exit.rs`).
const INTERRUPTS: [&str; 5] = ["timer", "irq-direct", "irq-other", "kick", "deadline"];
/// The reasons whose time in Gear2 is no work, but sleep.
const SLEEP: [&str; 2] = ["wfi", "wfe"];

/// A workload in one place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Figure {
    pub(super) place: String,
    pub(super) name: String,
    /// Virtual time, and the operations done in it.
    pub(super) ns: u64,
    pub(super) operations: u64,
    /// Exits by VM, if the place is a VM: those of the measured VM, then those of the VM that
    /// serves it.
    pub(super) exits: Vec<(String, u64)>,
    /// Exits of the measured VM that were interrupts, and the time that all its exits spent in
    /// Gear2.
    pub(super) interrupts: u64,
    pub(super) gear2_ns: u64,
}

/// Parses `WHERE <place>`, `APP <name> <ns> <operations>`, `COUNTERS <name> <JSON>` `START <name>`
/// and KVM's `EXITS <count>`.
pub(super) fn parse(place: &str, printed: &str) -> Result<Vec<Figure>> {
    let mut figures = Vec::<Figure>::new();
    let mut own = String::new();
    let mut counters = Vec::<Value>::new();
    let mut kvm_now: Option<u64> = None;
    let mut kvm_before: Option<u64> = None;
    let mut ended = false;
    for line in printed.lines() {
        let after = |word| line.split_once(word).map(|(_, rest)| rest);
        if let Some(vm) = after("WHERE ") {
            vm.trim().clone_into(&mut own);
        } else if let Some(rest) = after("COUNTERS ") {
            let (_, json) = rest.split_once(' ').context("COUNTERS without JSON")?;
            counters.push(serde_json::from_str(json.trim())?);
        } else if let Some(count) = after("EXITS ").and_then(|rest| rest.trim().parse().ok()) {
            kvm_now = Some(count);
            // The first count behind a workload, after which the guest sleeps.
            let counted = figures.last_mut().filter(|f| f.exits.is_empty());
            if let (Some(figure), Some(before)) = (counted, kvm_before.take_if(|_| ended)) {
                figure.exits = vec![("KVM".to_owned(), count - before)];
            }
        } else if line.contains("START ") {
            kvm_before = kvm_now;
            ended = false;
        } else if let Some(rest) = after("APP ") {
            let mut words = rest.split_whitespace();
            let name = words.next().context("APP without a name")?.to_owned();
            let mut number = || words.next()?.parse::<u64>().ok();
            figures.push(Figure {
                place: format!("{place} {own}").trim().to_owned(),
                name,
                ns: number().with_context(|| line.to_owned())?,
                operations: number().with_context(|| line.to_owned())?,
                exits: Vec::new(),
                interrupts: 0,
                gear2_ns: 0,
            });
            ended = true;
        }
    }
    // In the guest's part the figure comes behind both, in the device VM's between them.
    for (figure, pair) in figures.iter_mut().zip(counters.chunks(2)) {
        if let [before, after] = pair {
            count(figure, before, after);
        }
    }
    Ok(figures)
}

/// Notes what both states of GearV's counters say.
fn count(figure: &mut Figure, before: &Value, after: &Value) {
    let own = match figure.place.ends_with("guest") {
        true => "guest",
        false => "device",
    };
    let before = rows(before);
    let mut exits = BTreeMap::<String, u64>::new();
    for ((vm, vcpu, reason), [count, ticks]) in rows(after) {
        let key = (vm.clone(), vcpu, reason.clone());
        let [old_count, old_ticks] = before.get(&key).copied().unwrap_or_default();
        let (count, ticks) = (count - old_count, ticks - old_ticks);
        *exits.entry(vm.clone()).or_default() += count;
        if vm == own && INTERRUPTS.contains(&reason.as_str()) {
            figure.interrupts += count;
        }
        if vm == own && !SLEEP.contains(&reason.as_str()) {
            figure.gear2_ns += ticks;
        }
    }
    figure.exits = exits.into_iter().collect();
}

/// Returns exits and ticks by VM, vCPU and reason.
fn rows(stats: &Value) -> BTreeMap<(String, u64, String), [u64; 2]> {
    let rows = stats["exits"].as_array().into_iter().flatten();
    let row = |row: &Value| {
        let key = (
            row["vm"].as_str()?.to_owned(),
            row["vcpu"].as_u64()?,
            row["reason"].as_str()?.to_owned(),
        );
        Some((key, [row["exits"].as_u64()?, row["ticks"].as_u64()?]))
    };
    rows.filter_map(row).collect()
}

/// Returns a line for each workload in each place.
pub(super) fn table(figures: &[Figure], names: &[&str]) -> String {
    let mut text = format!(
        "{:18} {:20} {:>10} {:>14} {:>9}   exits, exits an operation\n",
        "", "", "operations", "ns an operation", "x native"
    );
    for name in names {
        let native = figures
            .iter()
            .find(|figure| figure.name == *name && figure.place == "native");
        for figure in figures.iter().filter(|figure| figure.name == *name) {
            let each = figure.ns as f64 / figure.operations.max(1) as f64;
            let ratio = native.map(|native| figure.ns as f64 / native.ns as f64);
            let ratio = ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.3}"));
            let _ = write!(
                text,
                "{name:18} {:20} {:>10} {each:>14.0} {ratio:>9}  ",
                figure.place, figure.operations
            );
            for (vm, exits) in &figure.exits {
                let each = *exits as f64 / figure.operations.max(1) as f64;
                let _ = write!(text, " {vm} {exits} ({each:.3})");
            }
            text.push('\n');
        }
    }
    text
}

/// Returns all figures as JSON.
pub(super) fn to_json(figures: &[Figure]) -> Value {
    let figure = |figure: &Figure| {
        json!({
            "place": figure.place,
            "name": figure.name,
            "ns": figure.ns,
            "operations": figure.operations,
            "exits": figure.exits.iter().cloned().collect::<BTreeMap<_, _>>(),
            "interrupts": figure.interrupts,
            "gear2-ns": figure.gear2_ns,
        })
    };
    json!({ "figures": figures.iter().map(figure).collect::<Vec<_>>() })
}

#[cfg(test)]
mod tests;
