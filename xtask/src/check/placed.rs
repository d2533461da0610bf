//! Whether Gear1's init finds a place on a board for what was built, with the place in the source
//! of what keeps it from that.

use std::fs;

use anyhow::{Result, anyhow};
use workbench::board::BoardTree;
use workbench::build_images::Images;
use workbench::manifest;
use workbench::manifest::diagnostic::{Diagnostic, error_count};
use workbench::output;
use workbench::tools::Tools;

use super::judged;
use crate::placement::{self, Placement};

/// Runs Gear1's init for a board on what was built, and refuses the manifest as init would.
pub fn place(images: &Images, board: &BoardTree, tools: &Tools) -> Result<Placement> {
    let archive = fs::read(&images.archive)?;
    let refusal = match placement::place(board.clone(), &archive, tools)? {
        Ok(placed) => return Ok(placed),
        Err(refusal) => refusal,
    };
    let compiled = &images.manifest;
    let loaded = placement::of_images(&board.read()?, archive.len() as u64)?;
    let mut list = judged(&compiled.blob, board, &loaded)?;
    list.retain(Diagnostic::is_error);
    if list.is_empty() {
        list.extend(
            refusal
                .fault
                .iter()
                .map(|fault| Diagnostic::new(&fault.error())),
        );
    }
    if list.is_empty() {
        return Err(anyhow!("{}: {refusal}", compiled.dts.display()));
    }
    let drawn = manifest::sources(&compiled.dts, tools).draw(&list, output::styles_errors());
    let title = manifest::refusal(&compiled.dts, error_count(&list));
    Err(anyhow!("{title} on {}\n\n{drawn}", board.name))
}
