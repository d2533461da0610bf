//! Verdict on a manifest for the board that boots it: that of `cargo xtask check --board`, and
//! where Gear1's init places the archive and the VMs.
//!
//! Both come before anything is written: a card that does not boot tells nobody why, and a person
//! carries it to the board first.

use std::path::Path;

use anyhow::{Context as _, Result, bail};
use gearv_manifest::Rule;
use workbench::board::BoardTree;
use workbench::build_images::Images;
use workbench::manifest::diagnostic::{Diagnostic, error_count};
use workbench::tools::Tools;
use workbench::{manifest, output};

use crate::check;

/// Warnings that need the board's device tree; the build shows the others. A warning is shown once
/// in a run.
const OF_BOARD: [Rule; 2] = [Rule::TwoClusters, Rule::NeedsOther];

/// Refuses a manifest that breaks a rule on the board, and shows its errors.
pub(super) fn manifest(file: &Path, board: &BoardTree, tools: &Tools) -> Result<()> {
    let findings = check::check(file, board, tools)?;
    let errors = error_count(&findings.list);
    let is_of_board = |one: &Diagnostic| OF_BOARD.iter().any(|rule| rule.id() == one.id);
    let list = findings.list.into_iter();
    let list: Vec<Diagnostic> = list.filter(|one| errors != 0 || is_of_board(one)).collect();
    let drawn = findings.sources.draw(&list, output::styles_errors());
    if errors != 0 {
        bail!(
            "{}, for {}\n\n{drawn}\n\nnothing was written",
            manifest::refusal(file, errors),
            board.name
        );
    }
    if !list.is_empty() {
        eprintln!("{drawn}\n");
    }
    Ok(())
}

/// Refuses an archive whose contents have no place in the board's memory. The rules cannot tell:
/// sizes of the images and of the guests' trees are part of the answer.
pub(super) fn archive(images: &Images, board: &BoardTree, tools: &Tools) -> Result<()> {
    let placed = check::place(images, board, tools);
    placed.map(drop).context("nothing was written")
}
