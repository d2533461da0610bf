//! The benchmark's figures as text.
//!
//! A goal is a number of instructions, because that does not depend on the host. The table shows
//! whether a goal is met and fails nothing by it: `baseline.rs` fails a growth, also one that a
//! goal would still allow.

use std::fmt::Write as _;

use super::footprint;
use crate::report::{Counts, Figure, Figures, Results, Row};

/// The rows in order, with their goals in instructions; what has none is only watched. The order is
/// that of the way through the gears: Gear1 alone first, then Gear2, then a program in another VM.
/// Rows with the suffix `_shared` and those from `world_switch` on come from boots of their own,
/// with manifests of their own, since each needs other VMs than the first boot has.
pub(super) const ROWS: [Row<'_>; 24] = [
    Row {
        // A call without any work: the row is of the entry to Gear1 and the return alone.
        name: "hypercall",
        goal: Some(60),
        what: "A call that Gear1 answers (PSCI_VERSION), from HVC to the return.",
    },
    Row {
        // GICD_TYPER is a constant of the VM, so the row is of the fault and its decoding alone.
        name: "mmio_gicd",
        goal: Some(100),
        what: "A load of GICD_TYPER: stage-2 fault, the virtual GIC's answer, return.",
    },
    Row {
        name: "sysreg",
        goal: Some(80),
        what: "MRS of ID_AA64MMFR0_EL1: trap, the filter's answer, return.",
    },
    Row {
        // The virtual CPU interface is hardware, so this row is near native's. A larger figure
        // means that an access traps.
        name: "eoi",
        goal: Some(7),
        what: "Acknowledge and end of an interrupt, for which a guest does not exit.",
    },
    Row {
        name: "sgi_self_entry",
        goal: Some(140),
        what: "From a write of ICC_SGI1R_EL1 to the first instruction of the guest's own handler.",
    },
    Row {
        name: "timer",
        goal: Some(95),
        what: "From the virtual timer's deadline to the handler, the vCPU spinning.",
    },
    Row {
        // Under KVM this row has the sleep and the wake of a thread, which a spinning vCPU does not
        // show.
        name: "timer_wfi",
        goal: Some(70),
        what: "The same with the vCPU in WFI, which does not trap, as the vCPU is the only one of its CPU.",
    },
    Row {
        name: "timer_wfi_shared",
        goal: Some(220),
        what: "The same with another vCPU on that CPU, which sleeps: the wait is Gear1's.",
    },
    Row {
        name: "ipi_entry",
        goal: Some(260),
        what: "From an SGI to a vCPU that spins on another CPU, to the handler there.",
    },
    Row {
        name: "ipi_wfi_entry",
        goal: Some(260),
        what: "The same with that vCPU in WFI, the only one of its CPU.",
    },
    Row {
        name: "ipi_wfi_entry_shared",
        goal: Some(470),
        what: "The same with another vCPU on that CPU, which sleeps: the wait is Gear1's.",
    },
    Row {
        // Gear2 does nothing for this call, so the row is of both changes of the gear.
        name: "gear2_roundtrip",
        goal: Some(220),
        what: "A call that Gear1 forwards to Gear2 (GEAR2_NOP), from HVC to the return.",
    },
    Row {
        name: "world_switch",
        goal: Some(1050),
        what: "From WFI of one VM, with an interrupt pending for another on this CPU, to that one's handler.",
    },
    Row {
        name: "mmio_user_read",
        goal: None,
        what: "A load of a device's register that a program serves. GearV's guests read a shared page.",
    },
    Row {
        name: "mmio_user_write",
        goal: Some(700),
        what: "A store to a register by which a driver sets a served device up, one after the other. Gear2 does it.",
    },
    Row {
        // The device VM is woken by a write only if Gear2 does not do the write itself: a
        // difference to the row before tells that.
        name: "mmio_user_write_asleep",
        goal: Some(800),
        what: "The same after a pause of 1 ms, in which the program's system has fallen asleep.",
    },
    Row {
        name: "mmio_user_write_poll",
        goal: Some(700),
        what: "The same with a device model that polls (gdm --poll).",
    },
    Row {
        // Gear2 cannot answer this store, so the row has the whole way to a program in the device
        // VM.
        name: "mmio_user_answer",
        goal: None,
        what: "A store to a device's register that the program which serves it has to answer, one after the other.",
    },
    Row {
        name: "mmio_user_answer_asleep",
        goal: None,
        what: "The same after a pause of 1 ms, in which the program's system has fallen asleep.",
    },
    Row {
        name: "mmio_user_answer_poll",
        goal: Some(1100),
        what: "The same with a device model that polls (gdm --poll).",
    },
    Row {
        name: "channel_kick",
        goal: None,
        what: "From a store to a channel's doorbell to the peer's handler; the peer spins on another CPU.",
    },
    Row {
        name: "channel_kick_wfi",
        goal: Some(1600),
        what: "The same with the peer in WFI.",
    },
    Row {
        name: "doorbell",
        goal: None,
        what: "From a store to another guest's doorbell to its handler; it spins on another CPU.",
    },
    Row {
        name: "doorbell_wfi",
        goal: None,
        what: "The same with that guest in WFI.",
    },
];
/// The column that has to meet the goals. Gear2 at EL0 is a manifest's default, and `max` has no
/// erratum whose workaround would lengthen a path.
pub(super) const JUDGED: &str = "GearV EL0 max GICv3";
/// Columns whose ratio is shown: the second by the first. KVM without VHE is compared on the core
/// that GearV's column has. With VHE the models differ, N1 against `max`, since KVM is not measured
/// on `max`. The first ratio is what GearV adds to the bare machine, and the others are how much
/// longer a general hypervisor's paths are. KVM's columns are those without halt polling: polling
/// hides the wake of the vCPU's thread, at the price of a CPU that does not rest. Xen's column is
/// the one whose vCPUs wait in the guest, as those of GearV's column do.
const RATIOS: [(&str, &str, &str); 4] = [
    ("GearV/nat.", "native max GICv3", JUDGED),
    (
        "nVHE/GearV",
        "GearV EL0 a57 GICv3",
        "KVM blocking a57 GICv3",
    ),
    ("VHE/GearV", JUDGED, "KVM blocking n1 GICv3"),
    ("Xen/GearV", JUDGED, "Xen waiting max GICv3"),
];

/// Returns the medians of all columns, the goals and the ratios. A row that a column does not have
/// is a dash, as natively for all rows of Gear2. The hash of the guest stands above the table, as
/// only figures of the very same guest compare.
pub(super) fn all(results: &Results) -> String {
    let mut text = format!("guest {}\nmedians, ns\n", results.guest);
    let names: Vec<&str> = results
        .columns
        .iter()
        .map(|(name, _)| name.as_str())
        .collect();
    text += &heading(&names);
    for Row {
        name: row, goal, ..
    } in ROWS
    {
        let cells = results
            .columns
            .iter()
            .map(|(_, figures)| median(figures, row));
        text += &line(results, row, goal, &cells.collect::<Vec<_>>());
    }
    text
}

/// Returns the counts, a line each, with the goal where there is one: the instructions until a
/// real-time VM starts have one, and those of them that neither copy nor wipe. Sizes have no goal
/// here: the budgets of the runtime's image are kept by the audit, which fails when one is
/// exceeded.
pub(super) fn counts(counts: &Counts) -> String {
    let mut text = String::new();
    for (name, count) in counts {
        let _ = write!(text, "{name:56} {count:>12}");
        if let Some(goal) = footprint::goal(name) {
            let met = if *count <= goal { "met" } else { "over" };
            let _ = write!(text, " | {goal} {met}");
        }
        text.push('\n');
    }
    text
}

/// Returns the columns' names, a word a line. Twenty columns fit a terminal only with names that
/// are split at their spaces. The names of the ratios stand in the last line alone, beside the
/// GIC's version, since they are one word each.
fn heading(names: &[&str]) -> String {
    let words: Vec<Vec<&str>> = names.iter().map(|name| name.split(' ').collect()).collect();
    let depth = words.iter().map(Vec::len).max().unwrap_or(0);
    let mut text = String::new();
    for level in 0..depth {
        let _ = write!(text, "{:20}", "");
        for words in &words {
            let _ = write!(text, "{:>9}", word_at(words, level, depth));
        }
        if level + 1 == depth {
            let _ = write!(text, " | {:>4}     ", "goal");
            for (name, _, _) in RATIOS {
                let _ = write!(text, " {name:>10}");
            }
        }
        text.push('\n');
    }
    text
}

/// Returns a name's word at a level. The shorter names have nothing in their second line. GearV's,
/// KVM's and Xen's columns have a word more, as EL0 or polling, than native ones. CPU and GIC thus
/// stand at one height in all columns.
fn word_at<'a>(words: &[&'a str], level: usize, depth: usize) -> &'a str {
    match (words.len() < depth, level) {
        (true, 1) => "",
        (true, 2..) => words[level - 1],
        _ => words[level],
    }
}

/// Returns a row: the medians, whether the judged column meets the goal, and the ratios. A row that
/// the judged column lacks has neither `met` nor `over`: a filtered run may have left the column
/// out, and an empty cell claims nothing.
fn line(results: &Results, row: &str, goal: Option<u64>, cells: &[Option<u64>]) -> String {
    let mut text = format!("{row:20}");
    for cell in cells {
        let _ = write!(text, "{:>9}", shown(*cell));
    }
    let of = |column: &str| median(results.column(column)?, row);
    let met = match (goal, of(JUDGED)) {
        (Some(goal), Some(value)) if value <= goal => "met",
        (Some(_), Some(_)) => "over",
        _ => "",
    };
    let _ = write!(text, " | {:>4} {met:4}", shown(goal));
    for (_, by, column) in RATIOS {
        let _ = write!(text, " {:>10}", ratio(of(by), of(column)));
    }
    text + "\n"
}

/// Returns the median of a row. The few samples that another interrupt hits move a mean and leave
/// the median.
fn median(figures: &Figures, row: &str) -> Option<u64> {
    figures.get(row).map(|figure| figure.median)
}

/// Returns a value as text, or a dash for what was not measured. A zero in its place would be read
/// as the best value of all.
fn shown(value: Option<u64>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

/// Returns the medians that differ from those of an older run. Rows that only one of both runs has
/// are left out: there is nothing to compare with. Equal medians are not printed. Runs under
/// `icount` repeat exactly, so that any difference, however small, is one of the code and not
/// noise.
pub(super) fn changes(old: &Results, new: &Results) -> String {
    let mut text = String::new();
    for (column, figures) in &new.columns {
        let before = old.column(column);
        for (row, figure) in figures {
            let (then, now) = (before.and_then(|old| median(old, row)), figure.median);
            let Some(then) = then.filter(|then| *then != now) else {
                continue;
            };
            let change = 100.0 * (now as f64 / then.max(1) as f64 - 1.0);
            let _ = writeln!(text, "{column:24} {row:20} {then:8} {now:8} {change:+7.1}%");
        }
    }
    if text.is_empty() {
        return "no median has changed\n".to_owned();
    }
    let heading = ["changed since", "", "then", "now", ""];
    let [since, row, then, now, change] = heading;
    format!("{since:24} {row:20} {then:>8} {now:>8} {change:>8}\n{text}")
}

/// Returns the figures of `rows` natively and under GearV. The distribution is shown for GearV
/// alone. Linux's wake-ups spread by more than a hypervisor's paths, and the median natively is
/// what they are compared with. A row of one side only keeps its line with dashes, so that a
/// measurement that failed is seen as missing.
pub(super) fn wake(rows: &[&str], native: &Figures, gearv: &Figures) -> String {
    let mut text = format!(
        "{:20} {:>8} | {:>8} {:>8} {:>8} {:>8} {:>8} | {:>7}\n",
        "median, ns", "native", "GearV", "min", "mean", "p99", "max", "ratio"
    );
    for row in rows {
        let cell = |get: fn(&Figure) -> u64| shown(gearv.get(*row).map(get));
        let natively = median(native, row);
        let _ = writeln!(
            text,
            "{row:20} {:>8} | {:>8} {:>8} {:>8} {:>8} {:>8} | {:>7}",
            shown(natively),
            cell(|f| f.median),
            cell(|f| f.min),
            cell(|f| f.mean),
            cell(|f| f.p99),
            cell(|f| f.max),
            ratio(natively, median(gearv, row)),
        );
    }
    text
}

/// Returns how many times as much a figure is. A figure of zero, as of a path that is as long as
/// two counter reads, has no ratio. One decimal is enough: the hypervisors differ by factors, and a
/// difference of a few per cent is told by [`changes`].
fn ratio(by: Option<u64>, value: Option<u64>) -> String {
    match (by, value) {
        (Some(by), Some(value)) if by > 0 => format!("{:.1}", value as f64 / by as f64),
        _ => "-".to_owned(),
    }
}

#[cfg(test)]
mod tests;
