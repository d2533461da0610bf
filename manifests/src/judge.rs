//! The verdict on a compiled manifest: reading, and all rules.

use crate::blob::{Blob, BlobError};
use crate::error::{ManifestError, Refused, Report};
use crate::model::Manifest;
use crate::read::read_blob;
use crate::rules::{Board, check_on, check_placed};
#[cfg(any(test, feature = "host"))]
use crate::rules::{Exposed, check_exposure};

/// Verdict on a manifest.
#[derive(Clone, Copy, Debug)]
pub struct Judged<'a> {
    /// Manifest without the VMs that have errors; `None` if the blob is no manifest at all.
    pub manifest: Option<Manifest<'a>>,
    /// Number of errors.
    pub error_count: usize,
}

/// Reads a compiled manifest and judges it by all rules, those of the board, if there is one,
/// included. Where an error was found, no other rule of the same VM is tried.
pub fn judge<'a>(
    blob: &'a [u8],
    board: Option<&Board<'_>>,
    sink: &mut dyn FnMut(ManifestError<'a>),
) -> Judged<'a> {
    let mut manifest = Manifest::EMPTY;
    let (is_manifest, error_count) = judge_into(&mut manifest, Blob::new(blob), board, sink);
    Judged {
        manifest: is_manifest.then_some(manifest),
        error_count,
    }
}

/// Judges a manifest as [`judge`] does, in place. Returns whether it is one, and the number of
/// errors.
fn judge_into<'a>(
    manifest: &mut Manifest<'a>,
    blob: Result<Blob<'a>, BlobError>,
    board: Option<&Board<'_>>,
    sink: &mut dyn FnMut(ManifestError<'a>),
) -> (bool, usize) {
    let mut report = Report::new(sink);
    let is_manifest = read_blob(manifest, blob, &mut report);
    if is_manifest {
        keep_sound(manifest, board, &mut report);
    }
    (is_manifest, report.error_count)
}

/// Leaves out the VMs with an error, and judges the others by the rules of the board. What a rule of
/// the board would say of a VM with an error follows, mostly, from that error.
fn keep_sound<'a>(
    manifest: &mut Manifest<'a>,
    board: Option<&Board<'_>>,
    report: &mut Report<'_, 'a>,
) {
    manifest.vms.retain(|vm| report.is_sound(vm));
    if let Some(board) = board {
        check_on(manifest, board, report);
        manifest.vms.retain(|vm| report.is_sound(vm));
    }
    manifest.is_complete = report.error_count == 0;
}

/// Judges `blob` on `board`; returns the manifest only if no rule is broken.
#[cfg(test)]
pub(crate) fn validate<'a>(
    blob: &'a [u8],
    board: &Board<'_>,
    sink: &mut dyn FnMut(ManifestError<'a>),
) -> Result<Manifest<'a>, Refused> {
    let mut manifest = Manifest::EMPTY;
    validate_into(&mut manifest, Blob::new(blob), board, sink)?;
    Ok(manifest)
}

/// Reads `blob` into `manifest`, which is empty, and judges it on `board`; an error tells that a
/// rule is broken. In place, as a manifest is large, and each move of it is a copy. The caller has
/// checked the blob, and may have made an index: a blob that is damaged breaks a rule, too.
pub fn validate_into<'a>(
    manifest: &mut Manifest<'a>,
    blob: Result<Blob<'a>, BlobError>,
    board: &Board<'_>,
    sink: &mut dyn FnMut(ManifestError<'a>),
) -> Result<(), Refused> {
    match judge_into(manifest, blob, Some(board), sink) {
        (true, 0) => Ok(()),
        (_, error_count) => Err(Refused { error_count }),
    }
}

/// Judges what a manifest that broke no other rule has scheduled where, on a machine with
/// `cpu_count` CPUs. [`judge`] does the same with a board.
pub fn judge_scheduling<'a>(
    manifest: &Manifest<'a>,
    cpu_count: usize,
    sink: &mut dyn FnMut(ManifestError<'a>),
) -> Result<(), Refused> {
    let mut report = Report::new(sink);
    check_placed(manifest, cpu_count, &mut report);
    report.outcome()
}

/// Warns of what runs, and exposes more than the manifest's author may know, or runs worse; the
/// warnings go to `sink`. A boot, which has nobody to advise, has no warnings.
#[cfg(any(test, feature = "host"))]
pub fn warn<'a>(
    manifest: &Manifest<'a>,
    board: Option<&Exposed<'_>>,
    sink: &mut dyn FnMut(ManifestError<'a>),
) {
    check_exposure(manifest, board, &mut Report::new(sink));
}
