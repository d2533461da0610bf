//! The papers' figures (gearv 4.5, tables 10 and 11) beside ours.
//!
//! The papers' figures are of a board and an older kernel. Only the order of the configurations
//! compares with that here.

use std::fmt::Write as _;

use super::configuration::{ALL, Configuration};
use super::table;
use crate::report::html::escape;
use crate::report::{Figure, Results};

/// Least, average and largest latency in microseconds, and the largest by that of the native run,
/// as the papers print them. The values stay text: the papers' digits are quoted and never computed
/// with.
type Printed = [&'static str; 4];

/// Returns the papers' name of a configuration, its Xenomai row and its PREEMPT_RT row. The match
/// has no default, so that a new configuration does not compile without the papers' row.
fn printed(configuration: Configuration) -> (&'static str, Printed, Printed) {
    match configuration {
        Configuration::Native => ("Native", ["1", "2", "38", "1"], ["1", "6", "40", "1"]),
        Configuration::Kvm => (
            "KVM RT VM",
            ["8", "49", "3177", "83.6"],
            ["8", "51", "4337", "108.42"],
        ),
        Configuration::Guest => (
            "GearV non-RT VM",
            ["12", "67", "24250", "638.15"],
            ["11", "66", "28120", "703"],
        ),
        Configuration::Emulated => (
            "GearV RT VM vGIC",
            ["1", "11", "60", "1.39"],
            ["1", "13", "75", "1.85"],
        ),
        Configuration::PassThrough => (
            "GearV RT VM",
            ["1", "2", "40", "1.05"],
            ["1", "6", "45", "1.12"],
        ),
    }
}

/// The conditions of both, which decide what can be compared.
const NOTE: &str = "The papers: R-Car H3, Linux 4.14, an hour, and a loop that writes to a disk in the \
    background; their largest latencies hold caches and buses that VMs share. Here: QEMU, an instruction a \
    nanosecond, which has neither; only the order of the configurations compares. The papers print 1.39 where \
    60 by 38 is 1.58.";

/// Returns the papers' tables and ours as one of HTML. All configurations have a row, measured or
/// not, since the papers' figures are worth showing alone.
pub(super) fn table(results: &Results) -> String {
    let mut html = format!(
        "<table><tr><th></th><th colspan=\"4\" class=\"group\">the papers' table 10: Xenomai</th>\
         <th colspan=\"4\" class=\"group\">the papers' table 11: PREEMPT_RT</th>\
         <th colspan=\"4\" class=\"group\">here: PREEMPT_RT</th></tr>\n<tr><th>µs</th>{}</tr>\n",
        "<th class=\"group\">min</th><th>avg</th><th>max</th><th>by native</th>".repeat(3)
    );
    for configuration in ALL {
        let (name, xenomai, preempt_rt) = printed(configuration);
        let _ = writeln!(
            html,
            "<tr><td>{name}<small>{}</small></td>{}{}{}</tr>",
            escape(configuration.text()),
            cells(xenomai.map(str::to_owned)),
            cells(preempt_rt.map(str::to_owned)),
            cells(ours(results, configuration))
        );
    }
    html + &format!("</table>\n<p class=\"note\">{NOTE}</p>\n")
}

/// Returns four cells, of which the first begins a group of columns and has a line at its left.
fn cells(values: [String; 4]) -> String {
    let [first, rest @ ..] = values;
    let rest = rest.map(|value| format!("<td>{value}</td>")).concat();
    format!("<td class=\"group\">{first}</td>{rest}")
}

/// Returns our figures in the papers' form. One decimal of a microsecond is more than the papers
/// have, and needed: the latest period of a native run is below ten here.
fn ours(results: &Results, configuration: Configuration) -> [String; 4] {
    let Some(figure) = table::figure(results, configuration) else {
        return ["-"; 4].map(str::to_owned);
    };
    let native = table::figure(results, Configuration::Native);
    let microseconds = |get: fn(&Figure) -> u64| format!("{:.1}", get(figure) as f64 / 1e3);
    [
        microseconds(|figure| figure.min),
        microseconds(|figure| figure.mean),
        microseconds(|figure| figure.max),
        table::ratio(native.map(|native| native.max), figure.max),
    ]
}

#[cfg(test)]
mod tests;
