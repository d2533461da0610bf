//! The files that are written for a board: never a device, and never a person's own file.
//!
//! Invariant: `--out` names a file. Only `--device` writes a disk, after showing it and asking; a
//! link to a disk, or another kind of device, is no file either.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::fs::FileTypeExt as _;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};

use super::{card, u_boot};

/// Fails if `path` is not to be written as a card's image: it is no file, or, unless `force` says
/// that this is wanted, a file that is not one of those images. A file that is empty, or was made
/// by this command, is replaced without a question.
pub(super) fn check_image(path: &Path, force: bool) -> Result<()> {
    let Some(found) = look(path)? else {
        let is_folder = path.as_os_str().as_encoded_bytes().ends_with(b"/");
        ensure!(
            !is_folder,
            "--out: {} names a folder: name a file",
            path.display()
        );
        return ensure_parent(path);
    };
    ensure_file(path, &found)?;
    ensure!(
        force || found.len() == 0 || is_card(path)?,
        "--out: {} is there, and no card image of GearV's: remove it, or write over it with --force",
        path.display()
    );
    Ok(())
}

/// Fails if `path` is something else than a folder, or if files with these names are there which
/// are not GearV's, unless `force` says that they are to be replaced. A folder with a `boot.scr` of
/// GearV's is one that was written before. `boot.scr` has a name that marks it (`u_boot.rs`), so a
/// second run needs no `--force`.
pub(super) fn check_folder(path: &Path, names: &[&str], force: bool) -> Result<()> {
    let Some(found) = look(path)? else {
        return ensure_parent(path);
    };
    ensure!(found.is_dir(), "--out: {} is no folder", path.display());
    let is_ours = fs::read(path.join("boot.scr")).is_ok_and(|bytes| u_boot::is_ours(&bytes));
    if force || is_ours {
        return Ok(());
    }
    let mut there = names.to_vec();
    there.retain(|name| fs::symlink_metadata(path.join(name)).is_ok());
    ensure!(
        there.is_empty(),
        "--out: {} holds {}, which may be somebody else's: name another folder, or write over with \
         --force",
        path.display(),
        there.join(", ")
    );
    Ok(())
}

/// Fails if the folder of a path that is not there yet is not there either. Folders are not made: a
/// typo in a path would make one.
fn ensure_parent(path: &Path) -> Result<()> {
    let parent = path.parent().filter(|parent| *parent != Path::new(""));
    let parent = parent.unwrap_or(Path::new("."));
    ensure!(
        parent.is_dir(),
        "--out: there is no folder {}: make it, or name another place",
        parent.display()
    );
    ensure_no_device_name(path, parent)
}

/// Fails if `path`, in the folder `parent`, would lie among the machine's devices: the name of a
/// card that is not in the reader is no file. A file there lies in memory, and keeps the kernel
/// from making the card's node. The message tells of `--device`, which is what was meant.
fn ensure_no_device_name(path: &Path, parent: &Path) -> Result<()> {
    let parent = parent.canonicalize()?;
    let is_device = parent.starts_with("/dev") && !parent.starts_with("/dev/shm");
    ensure!(
        !is_device,
        "--out: there is no device {}: name a file with --out, and a disk that is there with \
         --device, which shows what it is and asks",
        path.display()
    );
    Ok(())
}

/// Writes a file that is there or not. The file is opened without truncation, checked, and only
/// then emptied: between a look at a path and its opening, the path may come to mean a disk.
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

/// Returns the metadata of the path, behind all links. Links are followed, for a write would follow
/// them too.
fn look(path: &Path) -> Result<Option<Metadata>> {
    match fs::metadata(path) {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| path.display().to_string()),
    }
}

/// A pipe or a terminal is no place for an image either. Block devices have a message of their own,
/// as they are what a person means who writes a card.
fn ensure_file(path: &Path, found: &Metadata) -> Result<()> {
    let path = path.display();
    if found.file_type().is_block_device() {
        bail!(
            "{path} is a disk: name a file with --out, and the disk with --device, which shows what it is and asks"
        );
    }
    ensure!(
        !found.is_dir(),
        "{path} is a folder: name a file in it, such as {path}/card.img"
    );
    ensure!(found.is_file(), "{path} is no file");
    Ok(())
}

/// The first sector has the mark of our images. A shorter file is none.
fn is_card(path: &Path) -> Result<bool> {
    let mut sector = Vec::new();
    let file = File::open(path).with_context(|| path.display().to_string())?;
    file.take(card::SECTOR as u64).read_to_end(&mut sector)?;
    Ok(card::is_ours(&sector))
}

#[cfg(test)]
mod tests;
