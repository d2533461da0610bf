//! The documents: links, names of files and widths; and rustdoc without a warning.
//!
//! A link to a heading that was renamed, or a file that was moved, is found here and not by a
//! reader.

use anyhow::Result;
use workbench::workspace;
use xtask::docs;

use crate::part::{Part, Tally};

/// Neither needs a machine, so both are in the second lane.
pub(super) fn parts() -> Vec<Part> {
    let parts = vec![
        Part::new("documents", check),
        Part::new("documents: rustdoc", |tally| {
            tally.check("cargo doc", docs::crates().map(drop));
            Ok(())
        })
        .slow(true),
    ];
    parts.into_iter().map(Part::beside).collect()
}

/// Each fault counts by itself.
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
