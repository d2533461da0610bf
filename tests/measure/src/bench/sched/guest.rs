//! The reports of the guest `sched`.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};

use super::vm::Run;

/// Report of one vCPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Report {
    /// The VM's number.
    pub(super) id: u64,
    /// Figures by their names; times are nanoseconds.
    figures: BTreeMap<String, u64>,
    /// Begin and end of the first runs, in nanoseconds from the start, of a guest that traces them.
    pub(super) runs: Vec<[u64; 2]>,
}

impl Report {
    /// Returns a figure. A figure that is missing is an error, with the number of the VM that
    /// should have reported it.
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
    let mut reports: Vec<Report> = printed.lines().filter_map(report).collect();
    for (id, run) in printed.lines().filter_map(traced) {
        let of_vm = reports.iter_mut().find(|report| report.id == id);
        of_vm
            .with_context(|| format!("VM {id} traces and reports nothing"))?
            .runs
            .push(run);
    }
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
    let figures = figures(line.split_once("SCHED ")?.1);
    let id = figures.get("id").copied()?;
    let runs = Vec::new();
    Some(Report { id, figures, runs })
}

/// Reads a line `TRACE id=<number> cpu=<number> from=<ns> to=<ns>`. Only VMs with one vCPU trace.
fn traced(line: &str) -> Option<(u64, [u64; 2])> {
    let figures = figures(line.split_once("TRACE ")?.1);
    let get = |name| figures.get(name).copied();
    Some((get("id")?, [get("from")?, get("to")?]))
}

/// Reads words `<name>=<number>`; others are left out.
pub(super) fn figures(words: &str) -> BTreeMap<String, u64> {
    words.split_whitespace().filter_map(figure).collect()
}

/// Reads one word. A role's name is no number and is left out so.
fn figure(word: &str) -> Option<(String, u64)> {
    let (name, value) = word.split_once('=')?;
    Some((name.to_owned(), value.parse().ok()?))
}

#[cfg(test)]
pub(super) mod tests;
