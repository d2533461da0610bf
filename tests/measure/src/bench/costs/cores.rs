//! Cycles that cores take for instructions of each kind, by public measurements.
//!
//! Few of these costs are published, and none for every core. A cost that is published has the
//! numbers of its source. A cost that is not is a range which is as wide as what is not known.

use std::fmt::Write as _;

use super::Costs;

/// Least and most.
type Span = [f64; 2];

/// A core: the cycles of each kind of instruction that is not plain, by the plugin's names, and how
/// many plain ones the core executes in a cycle. Caches and TLBs are warm.
#[derive(Debug)]
pub(super) struct Core {
    pub(super) name: &'static str,
    pub(super) kinds: [(&'static str, Span); 12],
    pub(super) plain_a_cycle: Span,
}

/// An exception to EL2 and the return to EL1, measured for several causes on an Applied Micro Atlas
/// core: 68 to 76 cycles, and 65 (NEVE, SOSP 2017, section 5).
const TRAP: Span = [133.0, 141.0];
/// KVM's save of some 25 EL1 registers in 230 cycles and their restore in 511, on the same kind of
/// core, with a load or store for each (ARM Virtualization, ISCA 2016, table 3; cited from memory
/// and not checked against the paper): 9 and 20 a register. The lower ends have half of that, for
/// cores that do not serialize the access.
const READ: Span = [4.0, 9.0];
const WRITE: Span = [10.0, 20.0];
/// KVM's some 25 reads and writes of a GICv2's memory take 3,250 cycles by the same table.
const DEVICE: Span = [60.0, 130.0];
/// Not published: no faster than another register, and no slower than the GIC's memory.
const GIC: Span = [10.0, 60.0];
/// Not published: the front end of the core is filled again, and what is ordered has completed.
const ISB: Span = [10.0, 40.0];
const DSB: Span = [10.0, 60.0];
/// Not published: the broadcast to other CPUs and its answers.
const TLBI: Span = [20.0, 200.0];
const CACHE: Span = [5.0, 60.0];
const TRANSLATE: Span = [20.0, 100.0];
/// Not published: the line is in the first-level cache, and no other CPU wants it.
const ATOMIC: Span = [3.0, 20.0];
/// MSR DAIFSet: 0.63 ns on Cortex-A53, 20 ns on Cortex-A72 at 1.5 GHz (a public measurement that
/// systemonchips.com repeats, "High latency in DAIF register operations").
const DAIF_IN_ORDER: Span = [1.0, 2.0];
const DAIF: Span = [3.0, 30.0];

/// Returns a core with costs that are common to all but for those of DAIF.
const fn core(name: &'static str, daif: Span, plain_a_cycle: Span) -> Core {
    Core {
        name,
        kinds: [
            ("return", TRAP),
            ("read", READ),
            ("write", WRITE),
            ("gic", GIC),
            ("device", DEVICE),
            ("isb", ISB),
            ("dsb", DSB),
            ("tlbi", TLBI),
            ("cache", CACHE),
            ("translate", TRANSLATE),
            ("pstate", daif),
            ("atomic", ATOMIC),
        ],
        plain_a_cycle,
    }
}

/// The cores, by the width of their decoders: two in order, three, three, and four (Arm's Software
/// Optimization Guides of the last three). Straight system code reaches a part of that.
pub(super) const CORES: [Core; 4] = [
    core("A53", DAIF_IN_ORDER, [0.6, 1.2]),
    core("A57", DAIF, [0.9, 2.0]),
    core("A72", DAIF, [1.0, 2.2]),
    core("A76", DAIF, [1.3, 3.0]),
];

/// Cycles of a path that were published.
struct Published {
    column: &'static str,
    row: &'static str,
    /// Name of the core that comes nearest.
    core: &'static str,
    cycles: f64,
    source: &'static str,
}

/// Published cycles beside the estimate. The published kernels and the measured one are years
/// apart, so an estimate near a figure proves nothing, and one far off shows an error.
const PUBLISHED: [Published; 2] = [
    Published {
        column: "KVM blocking a57 GICv3",
        row: "hypercall",
        core: "A57",
        cycles: 2729.0,
        source: "NEVE, table 1: Linux 4.10 on an Applied Micro Atlas core",
    },
    Published {
        column: "KVM blocking a57 GICv3",
        row: "hypercall",
        core: "A57",
        cycles: 5187.0,
        source: "GearV, table 7: 3,458 ns on a Cortex-A57 of an R-Car H3, at 1.5 GHz",
    },
];

/// Returns the published figures of the rows of a column beside the estimates.
pub(super) fn checks(column: &str, rows: &[Costs]) -> String {
    let mut text = String::new();
    for published in PUBLISHED.iter().filter(|known| known.column == column) {
        let row = rows.iter().find(|costs| costs.row == published.row);
        let core = CORES.iter().find(|core| core.name == published.core);
        let Some((row, core)) = row.zip(core) else {
            continue;
        };
        let ([least, most], is) = (row.cycles(core), published.cycles);
        let off = if is < least {
            (least - is) / is
        } else {
            (is - most).max(0.0) / is
        };
        let _ = writeln!(
            text,
            "{column}, {} on {}: {least:.0} to {most:.0} estimated, {is:.0} published, {:.0} % \
             outside ({})",
            row.row,
            core.name,
            off * 100.0,
            published.source
        );
    }
    text
}
