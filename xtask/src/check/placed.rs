//! Whether Gear1's init finds a place on a board for what was built, with the place in the source
//! of what keeps it from that.

use std::fs;

use anyhow::{Error, Result, anyhow};
use gear1_init::refusal::Refusal;
use gear1_init::region::Region;
use workbench::board::BoardTree;
use workbench::build_images::Images;
use workbench::manifest::diagnostic::{Diagnostic, error_count};
use workbench::manifest::{self, Compiled};
use workbench::output;
use workbench::tools::Tools;

use super::judged;
use crate::placement::{self, Placement};

/// Runs Gear1's init for a board on what was built, and refuses the manifest as init would. The
/// code that places is init's own: what is accepted here boots, as far as memory goes.
pub fn place(images: &Images, board: &BoardTree, tools: &Tools) -> Result<Placement> {
    let archive = fs::read(&images.archive)?;
    let refusal = match placement::place(board.clone(), &archive, tools)? {
        Ok(placed) => return Ok(placed),
        Err(refusal) => refusal,
    };
    // The boot loader's own places count as taken.
    let loaded = placement::of_images(&board.read()?, archive.len() as u64)?;
    Err(explained(
        &images.manifest,
        board,
        &loaded,
        &refusal,
        tools,
    )?)
}

/// Returns init's refusal as what the manifest's author can act on: the rules that are broken, with
/// their places in the source, as far as rules say why. The rules' own findings come first, since
/// they have a place in the source.
fn explained(
    compiled: &Compiled,
    board: &BoardTree,
    loaded: &[Region; 2],
    refusal: &Refusal,
    tools: &Tools,
) -> Result<Error> {
    let mut list = judged(&compiled.blob, board, loaded)?;
    list.retain(Diagnostic::is_error);
    if list.is_empty() {
        let fault = refusal.fault.iter();
        list.extend(fault.map(|fault| Diagnostic::new(&fault.error())));
    }
    if list.is_empty() {
        return Ok(anyhow!("{}: {refusal}", compiled.dts.display()));
    }
    let drawn = manifest::sources(&compiled.dts, tools).draw(&list, output::styles_errors());
    let title = manifest::refusal(&compiled.dts, error_count(&list));
    Ok(anyhow!("{title} on {}\n\n{drawn}", board.name))
}
