//! Verdict on a manifest for a board before there are images, as `cargo xtask check` gives it.
//!
//! Only hosts have this (feature `host`). The rules and their order are those of a boot.
//!
//! Requirements: G1-BOOT-002.
#![cfg(feature = "host")]

use alloc::string::String;
use alloc::vec::Vec;

use gearv_manifest::blob::Blob;
use gearv_manifest::{Exposed, Manifest, ManifestError};

use super::system::Owners;
use super::with_facts;
use crate::devices;
use crate::fdt::{self, Board};
use crate::layout::{self, FreeMemory};
use crate::refusal::{Fault, Refusal, refusal};
use crate::shared;

/// Judges a manifest for a board before there are images: by all rules, those on devices and on the
/// place of memory included. Errors and warnings go to `sink`; an error is returned if the board
/// itself will not do. Returns the number of errors.
///
/// The sizes of Gear1's runtime, of Gear2's image and of the archive are not known yet: a manifest
/// that leaves too little for them is refused when the image is built.
pub fn judge(
    blob: &[u8],
    board: &Board,
    tree: &[u8],
    sink: &mut dyn FnMut(&ManifestError<'_>),
) -> Result<usize, Refusal> {
    let mut index = Vec::new();
    let tree = fdt::indexed(tree, &mut index, fdt::BOARD_NODES)
        .map_err(|error| refusal!(Board, "{error}"))?;
    let judged = with_facts(board, &board.reserved, |facts| {
        gearv_manifest::judge(blob, Some(facts), &mut |error| sink(&error))
    });
    let Some(manifest) = judged.manifest else {
        return Ok(judged.error_count);
    };
    warn(&manifest, board, &tree, sink);
    let mut faults = faults_of_owners(board, &tree, &manifest)?;
    // Memory that is too small or taken twice has no place either: one message is enough.
    if judged.error_count == 0 {
        faults.extend(fault_of_place(board, &manifest));
    }
    faults.iter().for_each(|fault| sink(&fault.error()));
    Ok(judged.error_count + faults.len())
}

/// Returns what the manifest does wrong in giving devices away.
fn faults_of_owners(
    board: &Board,
    tree: &Blob<'_>,
    manifest: &Manifest<'_>,
) -> Result<Vec<Fault>, Refusal> {
    let mut faults = Vec::new();
    Owners::find(manifest, tree, board, &mut faults)?;
    Ok(faults)
}

/// Warns of what the board's devices and CPUs cost the manifest's VMs.
fn warn(
    manifest: &Manifest<'_>,
    board: &Board,
    tree: &Blob<'_>,
    sink: &mut dyn FnMut(&ManifestError<'_>),
) {
    let masters = devices::bus_masters(manifest, tree);
    let masters: Vec<&str> = masters.iter().map(String::as_str).collect();
    let clusters: Vec<u64> = board.cpus.iter().map(|cpu| cpu.cluster.into()).collect();
    let exposed = Exposed {
        cpu_count: board.cpus.len(),
        clusters: &clusters,
        masters: &masters,
    };
    gearv_manifest::warn(manifest, Some(&exposed), &mut |error| sink(&error));
}

/// Returns what keeps the manifest's memory from having a place on the board. The order is that of
/// [`Placed::place`](super::placed::Placed::place): what has a fixed address goes first.
fn fault_of_place(board: &Board, manifest: &Manifest<'_>) -> Option<Fault> {
    let mut free = FreeMemory::new(&board.memory, &board.reserved);
    let placed = shared::take(&mut free, manifest)
        .and_then(|()| layout::take_fixed(&mut free, manifest))
        .and_then(|fixed| layout::take_rest(&mut free, manifest, &fixed));
    placed.err()?.fault.map(|fault| *fault)
}
