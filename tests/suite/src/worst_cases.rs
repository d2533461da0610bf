//! Gear1's longest paths from an exit to an entry, against the limit and the committed baseline.
//!
//! Interrupts are masked on these paths, so their length bounds the latency that Gear1 adds
//! (docs/worst-cases.md).

use anyhow::Result;
use tests_measure::worst_cases::{self, Measured};

use crate::part::{Part, Tally};

/// Searches that no other run makes: sequences a goal, and what each begins with. Fixed seeds, so
/// that a find can be repeated.
const LONG: [&str; 2] = ["seed=1001 rounds=1500", "seed=2002 rounds=1500"];

/// Instructions are counted, so a busy host changes nothing, and the part runs beside.
pub(super) fn parts() -> Vec<Part> {
    let mut parts = vec![
        Part::new("worst cases", |tally| {
            let measured = worst_cases::measure("", None)?;
            let grown = measured.grown()?;
            judge(&measured, grown, tally);
            Ok(())
        })
        .beside(),
    ];
    for command_line in LONG {
        let name = format!("worst cases, long search, {command_line}");
        parts.push(Part::new(name, move |tally| search(command_line, tally)).slow(true));
    }
    parts
}

/// Searches for inputs that are worse than any known: no baseline has them, but the limit holds.
fn search(command_line: &str, tally: &mut Tally) -> Result<()> {
    let measured = worst_cases::measure("worst-cases", Some(command_line))?;
    judge(&measured, Vec::new(), tally);
    Ok(())
}

fn judge(measured: &Measured, grown: Vec<String>, tally: &mut Tally) {
    let wrong = [measured.over_the_limit(), grown].concat();
    tally.pass(measured.count().saturating_sub(wrong.len()));
    wrong.into_iter().for_each(|line| tally.fail(line));
}
