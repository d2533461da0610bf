//! Path lengths under GearV, against the committed baseline.

use anyhow::{Result, bail};

use super::{Part, Tally};
use crate::bench::{COLUMNS, Column, Under, baseline};
use crate::qemu::Qemu;

pub(super) fn parts() -> Vec<Part> {
    let gearv = COLUMNS
        .into_iter()
        .filter(|column| matches!(column.under, Under::GearV { .. }));
    gearv
        .map(|column| {
            let name = format!("path lengths: {}", column.name());
            Part::new(name, move |tally| compare(&column, tally))
        })
        .collect()
}

fn compare(column: &Column, tally: &mut Tally) -> Result<()> {
    let figures = column.measure(&Qemu::prepare(10)?, false)?;
    let worse = baseline::regressions(&column.name(), &figures)?;
    tally.pass(figures.len() - worse.len().min(figures.len()));
    if !worse.is_empty() {
        bail!("{}", worse.join("; "));
    }
    Ok(())
}
