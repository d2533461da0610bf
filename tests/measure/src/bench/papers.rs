//! The papers' micro-benchmarks beside ours (gearv tables 6 and 7).
//!
//! The papers' figures are nanoseconds on a board, those here instructions on QEMU. The two are not
//! compared with each other: the table shows the ratio of GearV to KVM on each side.

use crate::report::{Figures, Results};

/// A micro-benchmark: its name, the papers' nanoseconds on R-Car H3 for GearV and KVM, and the row
/// here that takes the way which comes nearest. The nearest way is not the same way: hardware and
/// kernels differ.
struct Row {
    name: &'static str,
    papers: [u64; 2],
    ours: &'static str,
}

/// The micro-benchmarks. `VM trap` of the papers is an access to the distributor, and `I/O out` a
/// store that a program serves: here one that GDM has to answer, as Gear2 answers the others
/// itself.
const ROWS: [Row; 5] = [
    Row {
        name: "hypercall",
        papers: [441, 3458],
        ours: "hypercall",
    },
    Row {
        name: "VM trap",
        papers: [732, 4366],
        ours: "mmio_gicd",
    },
    Row {
        name: "world switch",
        papers: [1485, 1729],
        ours: "world_switch",
    },
    Row {
        name: "virtual IPI",
        papers: [9928, 9040],
        ours: "ipi_entry",
    },
    Row {
        name: "I/O out",
        papers: [8774, 7811],
        ours: "mmio_user_answer",
    },
];
/// The columns that stand for the papers' two: the same core, no VHE.
const COLUMNS: [&str; 2] = ["GearV EL0 a57 GICv3", "KVM blocking a57 GICv3"];

/// Returns both side by side, or nothing if a column was not measured. The ratio is what the two
/// sides have in common, as it has no unit.
pub(super) fn table(results: &Results) -> String {
    let [gearv, kvm] = COLUMNS.map(|name| results.column(name));
    let Some((gearv, kvm)) = gearv.zip(kvm) else {
        return String::new();
    };
    let mut text = format!(
        "\n{:14} {:>16} {:>8} {:>6}   {:16} {:>8} {:>8} {:>6}\n",
        "papers, ns", "GearV", "KVM", "ratio", "here, instr.", "GearV", "KVM", "ratio"
    );
    for row in ROWS {
        text += &line(&row, gearv, kvm);
    }
    text
}

/// Returns a line of the table. A row of the device model is a dash without the long run, since
/// `--short` leaves those rows out.
fn line(row: &Row, gearv: &Figures, kvm: &Figures) -> String {
    let [paper_gearv, paper_kvm] = row.papers;
    let cell = |column: &Figures| column.get(row.ours).map(|figure| figure.median);
    let (ours, theirs) = (cell(gearv), cell(kvm));
    let ratio = ours.zip(theirs).filter(|(ours, _)| *ours > 0);
    let ratio = ratio.map_or_else(|| "-".to_owned(), |(g, k)| ratio_of(g, k));
    let shown = |value: Option<u64>| value.map_or_else(|| "-".to_owned(), |v| v.to_string());
    format!(
        "{:14} {paper_gearv:>16} {paper_kvm:>8} {:>6}   {:16} {:>8} {:>8} {ratio:>6}\n",
        row.name,
        ratio_of(paper_gearv, paper_kvm),
        row.ours,
        shown(ours),
        shown(theirs),
    )
}

/// Returns how many times as much KVM takes. The papers' figures are never 0, and a 0 of ours is
/// left out before.
fn ratio_of(gearv: u64, kvm: u64) -> String {
    format!("{:.1}", kvm as f64 / gearv as f64)
}

#[cfg(test)]
mod tests;
