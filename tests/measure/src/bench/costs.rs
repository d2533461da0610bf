//! `cargo xtask bench --costs`: what a hypervisor executes for each row, by kind, and an estimate
//! of the cycles that this takes.
//!
//! A path length hides what an instruction costs: a barrier and an addition are one each. A plugin
//! of QEMU counts the instructions of all exception levels outside of the guests' addresses,
//! between two marks that the guest executes around each row (`tests/exit-counter/src/costs.rs`).
//! The counts are of a whole iteration of the row, preparation included: a row of two VMs has the
//! way there and the way back.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use workbench::progress::Step;
use workbench::qemu::{Machine, Qemu};
use workbench::workspace;

use self::cores::{CORES, Core};
use super::breakdown::ITERATIONS;
use super::column::{Column, Under, printed};
use crate::plugin;

mod cores;
#[cfg(test)]
mod tests;

/// The columns that are measured, if `--only` leaves them: the three hypervisors on a core without
/// VHE, and GearV and KVM on one with all that they use. Xen is at EL2 without VHE on any core.
const COLUMNS: [&str; 6] = [
    "GearV EL0 a57 GICv3",
    "KVM blocking a57 GICv3",
    "Xen waiting a57 GICv3",
    "Xen blocking a57 GICv3",
    "GearV EL0 max GICv3",
    "KVM blocking n1 GICv3",
];
/// Addresses of all guests: guest-physical memory begins at 1 GiB on QEMU's `virt`, and the guest
/// runs where it is loaded. No hypervisor here has code below 4 GiB but Gear2, and Xen 4.17 from 2
/// MiB on, both of which are below 1 GiB.
const GUESTS: &str = "guests=40000000-100000000";
/// Kinds in the order of the table, by the plugin's names: the name, and the head of the column.
/// Those that are not here are in `other`: they cost about as much as an addition.
const KINDS: [(&str, &str); 11] = [
    ("return", "traps"),
    ("read", "MRS"),
    ("write", "MSR"),
    ("gic", "GIC"),
    ("device", "MMIO"),
    ("isb", "ISB"),
    ("dsb", "DSB"),
    ("tlbi", "TLBI"),
    ("cache", "DC/IC"),
    ("pstate", "DAIF"),
    ("atomic", "atomics"),
];

/// Instructions of an iteration by the plugin's names of kinds.
type Kinds = BTreeMap<String, f64>;

/// A row of a column.
#[derive(Debug)]
struct Costs {
    row: String,
    kinds: Kinds,
}

impl Costs {
    /// Reads a line of the plugin's. A kind that the table names and the line lacks is an error:
    /// it would count as 0.
    fn parse(row: &str, line: &str) -> Result<Costs> {
        let mut kinds = Kinds::new();
        for word in line.split_whitespace() {
            let (name, count) = word.split_once('=').context("a word without a count")?;
            let count: u64 = count
                .parse()
                .with_context(|| format!("the count {word:?}"))?;
            kinds.insert(name.to_owned(), count as f64 / ITERATIONS as f64);
        }
        for (name, _) in KINDS {
            ensure!(kinds.contains_key(name), "{row} has no count of {name:?}");
        }
        Ok(Costs {
            row: row.to_owned(),
            kinds,
        })
    }

    fn count(&self, kind: &str) -> f64 {
        self.kinds.get(kind).copied().unwrap_or(0.0)
    }

    /// Returns all instructions. An access of a device is a load or store as well.
    fn instructions(&self) -> f64 {
        self.kinds.values().sum::<f64>() - self.count("device")
    }

    /// Returns the least and the most cycles that the core is estimated to take.
    fn cycles(&self, core: &Core) -> [f64; 2] {
        let special: f64 = core.kinds.iter().map(|(kind, _)| self.count(kind)).sum();
        // The special ones have a kind of their own, or are loads and stores of devices.
        let plain = self.instructions() - special;
        [0, 1].map(|end| {
            let kinds = core.kinds.iter();
            let special: f64 = kinds.map(|(kind, cost)| self.count(kind) * cost[end]).sum();
            special + plain / core.plain_a_cycle[1 - end]
        })
    }
}

/// Returns the counts of a row of GearV's on a core without VHE: traps, writes of system registers,
/// and barriers. For a test, since a path may become slower while it becomes no longer.
pub fn of_gearv(qemu: &Qemu, rows: &[&str]) -> Result<Vec<[u64; 3]>> {
    let column = Column::of(COLUMNS[0])?;
    let measured = measure(qemu, &plugin::build()?, &column, "bench")?;
    let of = |row: &&str| {
        let costs = measured.iter().find(|costs| costs.row == *row);
        let costs = costs.with_context(|| format!("{row} was not measured"))?;
        let barriers = costs.count("isb") + costs.count("dsb");
        let counts = [costs.count("return"), costs.count("write"), barriers];
        Ok(counts.map(|count| count.round() as u64))
    };
    rows.iter().map(of).collect()
}

/// Measures the columns whose names contain `only`, and prints a table for each.
pub(super) fn run(qemu: &Qemu, only: &str) -> Result<()> {
    let mut chosen = COLUMNS.to_vec();
    chosen.retain(|name| name.contains(only));
    ensure!(
        !chosen.is_empty(),
        "no column of --costs is named {only:?}; the names: {}",
        COLUMNS.join(", ")
    );
    let plugin = plugin::build()?;
    for name in chosen {
        let (column, mut rows) = (Column::of(name)?, Vec::new());
        let step = Step::start(name);
        for manifest in column.manifests() {
            rows.extend(measure(qemu, &plugin, &column, manifest)?);
        }
        step.done(name);
        print!("{}{}", table(name, &rows), cores::checks(name, &rows));
    }
    Ok(())
}

/// Runs the guest of a manifest in a column, and returns the costs of its rows.
fn measure(qemu: &Qemu, plugin: &Path, column: &Column, manifest: &str) -> Result<Vec<Costs>> {
    ensure!(column.under != Under::Native, "there is no hypervisor");
    let out = workspace::output_dir().join("bench/costs");
    fs::create_dir_all(out.parent().context("a folder")?)?;
    let mut option = plugin.as_os_str().to_owned();
    option.push(format!(",{GUESTS},out="));
    option.push(&out);
    let machine = Machine {
        options: vec![OsString::from("-plugin"), option],
        ..column.machine(false)
    };
    let text = printed(column.start(qemu, machine, manifest, None)?)?;
    of_rows(&text, &fs::read_to_string(&out)?)
}

/// Joins the guest's rows, in the order in which it prints them, with the plugin's lines. One
/// number of lines more or less would shift all that follow.
fn of_rows(printed: &str, lines: &str) -> Result<Vec<Costs>> {
    let names = printed.lines().filter_map(|line| {
        let (_, rest) = line.split_once("BENCH ")?;
        rest.split(' ').next()
    });
    let (names, lines): (Vec<&str>, Vec<&str>) = (names.collect(), lines.lines().collect());
    ensure!(
        !names.is_empty() && names.len() == lines.len(),
        "the guest measured {} rows, and the plugin counted {}",
        names.len(),
        lines.len()
    );
    let rows = names.iter().zip(lines);
    rows.map(|(name, line)| Costs::parse(name, line)).collect()
}

/// Returns the table of a column: counts an iteration, and cycles of each core.
fn table(name: &str, rows: &[Costs]) -> String {
    let kinds = KINDS.map(|(_, head)| format!(" {head:>7}")).concat();
    let cores = CORES.iter().map(|core| format!(" {:>13}", core.name));
    let cores: String = cores.collect();
    let mut text = format!("\n{name:24} {:>7}{kinds}{cores}\n", "instr.");
    for costs in rows {
        text += &line(costs);
    }
    text
}

/// Returns a line of the table.
fn line(costs: &Costs) -> String {
    let mut text = format!("{:24} {:>7.0}", costs.row, costs.instructions());
    for (kind, _) in KINDS {
        let _ = write!(text, " {:>7.1}", costs.count(kind));
    }
    for core in &CORES {
        let [least, most] = costs.cycles(core);
        let _ = write!(text, " {:>13}", format!("{least:.0}-{most:.0}"));
    }
    text + "\n"
}
