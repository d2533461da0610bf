//! The documents: links, names of files and widths; and rustdoc without a warning.

use anyhow::Result;
use workbench::workspace;
use xtask::docs;

use crate::part::{Part, Tally};

pub(super) fn parts() -> Vec<Part> {
    let parts = vec![
        Part::new("documents", check),
        Part::new("documents: rustdoc", |tally| {
            tally.check("cargo doc", docs::crates().map(drop));
            Ok(())
        }),
    ];
    parts.into_iter().map(Part::beside).collect()
}

fn check(tally: &mut Tally) -> Result<()> {
    let faults = docs::faults(workspace::root())?;
    if faults.is_empty() {
        tally.pass(1);
    }
    for fault in faults {
        println!("FAIL {fault}");
        tally.fail(fault);
    }
    Ok(())
}
