//! The reports of the guest `sched`.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};

use super::vm::Run;

/// What one vCPU reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Report {
    /// The VM's number.
    pub(super) id: u64,
    /// Figures by their names; times are nanoseconds.
    figures: BTreeMap<String, u64>,
}

impl Report {
    /// Returns a figure.
    pub(super) fn get(&self, name: &str) -> Result<u64> {
        let figure = self.figures.get(name).copied();
        figure.with_context(|| format!("VM {} reports no {name}", self.id))
    }
}

/// Reads the reports of a run from what its guests printed. A guest that failed, or that reported
/// nothing, is an error.
pub(super) fn reports(run: &Run, printed: &str) -> Result<Vec<Report>> {
    if let Some(line) = printed.lines().find(|line| line.contains("FAIL ")) {
        anyhow::bail!("a guest says {}", line.trim());
    }
    let reports: Vec<Report> = printed.lines().filter_map(report).collect();
    for (id, vm) in (0_u64..).zip(&run.vms) {
        let found = reports.iter().filter(|report| report.id == id).count();
        ensure!(
            found == vm.vcpus,
            "VM {id} has {} vCPUs, and {found} of them reported; it was started with {:?}",
            vm.vcpus,
            vm.words
        );
    }
    Ok(reports)
}

/// Reads a line `SCHED role=<role> id=<number> <name>=<number> ...`.
fn report(line: &str) -> Option<Report> {
    let (_, words) = line.split_once("SCHED ")?;
    let figures: BTreeMap<String, u64> = words.split_whitespace().filter_map(figure).collect();
    let id = figures.get("id").copied()?;
    Some(Report { id, figures })
}

fn figure(word: &str) -> Option<(String, u64)> {
    let (name, value) = word.split_once('=')?;
    Some((name.to_owned(), value.parse().ok()?))
}

#[cfg(test)]
pub(super) mod tests;
