//! The files that are written for a board: never a device, and never a person's own file.
//!
//! Invariant: `--out` names a file. Only `--device` writes a disk, after showing it and asking; a
//! link to a disk, or another kind of device, is no file either.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::fs::FileTypeExt as _;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};

use super::card;

/// Fails if `path` is not to be written as a card's image: it is no file, or, unless `force` says
/// that this is wanted, a file that is not one of those images.
pub(super) fn check_image(path: &Path, force: bool) -> Result<()> {
    let Some(found) = look(path)? else {
        return Ok(());
    };
    ensure_file(path, &found)?;
    ensure!(
        force || found.len() == 0 || is_card(path)?,
        "{} is there, and no card image of GearV's: remove it, or write over it with --force",
        path.display()
    );
    Ok(())
}

/// Fails if `path` is something else than a folder.
pub(super) fn check_folder(path: &Path) -> Result<()> {
    let found = look(path)?;
    let is_folder = found.is_none_or(|found| found.is_dir());
    ensure!(is_folder, "{} is no folder", path.display());
    Ok(())
}

/// Writes a file that is there or not.
pub(super) fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    let write = || -> Result<()> {
        // The open does no harm to a device. The opened file is the one that is checked.
        let mut options = OpenOptions::new();
        let mut file = options
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)?;
        ensure_file(path, &file.metadata()?)?;
        file.set_len(0)?;
        Ok(file.write_all(bytes)?)
    };
    if let Some(found) = look(path)? {
        ensure_file(path, &found)?;
    }
    write().with_context(|| format!("cannot write {}", path.display()))
}

/// Returns the metadata of the path, behind all links.
fn look(path: &Path) -> Result<Option<Metadata>> {
    match fs::metadata(path) {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| path.display().to_string()),
    }
}

fn ensure_file(path: &Path, found: &Metadata) -> Result<()> {
    let path = path.display();
    if found.file_type().is_block_device() {
        bail!(
            "{path} is a disk: name a file with --out, and the disk with --device, which shows what it is and asks"
        );
    }
    ensure!(found.is_file(), "{path} is no file");
    Ok(())
}

fn is_card(path: &Path) -> Result<bool> {
    let mut sector = Vec::new();
    let file = File::open(path).with_context(|| path.display().to_string())?;
    file.take(card::SECTOR as u64).read_to_end(&mut sector)?;
    Ok(card::is_ours(&sector))
}

#[cfg(test)]
mod tests;
