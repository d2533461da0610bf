//! The folder of `--firmware`: files of the board's maker, which GearV does not distribute.
//!
//! A board that lacks one of them gives no message, since what would write one is in the file that
//! is missing. Therefore the folder is judged here, before a card is written and carried to the
//! board.
//!
//! The files are copied as they are and never looked into: what the maker's firmware reads differs
//! from one release to the next.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use workbench::board::Name;

use super::card::CardFile;

/// Files that a Raspberry Pi 4 starts from, and that stand in no other folder of `--firmware`. The
/// boot ROM starts bootcode from the board's EEPROM, which asks for these two. A `bootcode.bin` is
/// of older boards.
const RPI4: &[&str] = &["start4.elf", "fixup4.dat"];

/// Characters that FAT has in no long name. Microsoft's FAT specification, long directory entries.
const NOT_IN_NAMES: &str = "\"*:<>?\\|";

/// Returns the files without which a board does not start from its card. QEMU and boards with
/// U-Boot in flash start without a file of the maker's. A match over all boards, so that a new
/// board does not compile before somebody has thought of its boot ROM.
pub(super) fn needed(board: Name) -> &'static [&'static str] {
    match board {
        Name::Rpi4 => RPI4,
        Name::QemuVirt | Name::RcarH3 | Name::Zcu102 | Name::Imx8mpEvk => &[],
    }
}

/// Returns the files below the folder, in order of their names, so that the same files give the
/// same image. `own` are GearV's files, which none replaces. Read as a whole before anything is
/// built: a folder that is wrong costs no build.
pub(super) fn read(folder: &Path, board: Name, own: &[&str]) -> Result<Vec<CardFile>> {
    ensure!(
        folder.is_dir(),
        "--firmware: {} is no folder that can be read",
        folder.display()
    );
    ensure_complete(folder, board)?;
    let mut files = Vec::new();
    add_folder(folder, "", own, &mut files)?;
    ensure_filled(folder, board, &files)?;
    Ok(files)
}

/// Refuses a folder without a file that the board's boot ROM or its firmware asks for. Without
/// these, the board shows a pattern of its LED and nothing else. All that are missing are named at
/// once.
fn ensure_complete(folder: &Path, board: Name) -> Result<()> {
    let is_missing = |name: &&&str| !folder.join(name).is_file();
    let missing: Vec<&str> = needed(board).iter().filter(is_missing).copied().collect();
    ensure!(
        missing.is_empty(),
        "--firmware: {} has no {}: name the folder that holds {}, such as the boot partition of a \
         Raspberry Pi OS (docs/boards/rpi4.md)",
        folder.display(),
        missing.join(" and no "),
        if missing.len() == 1 { "it" } else { "them" }
    );
    Ok(())
}

/// Refuses an empty file that the board needs, and no file at all. An empty file is what a copy
/// leaves that ran out of room. After the reading, since a file that is a link has its size behind
/// the link.
fn ensure_filled(folder: &Path, board: Name, files: &[CardFile]) -> Result<()> {
    let is_empty = |(name, bytes): &&CardFile| needed(board).contains(&&**name) && bytes.is_empty();
    if let Some((name, _)) = files.iter().find(is_empty) {
        bail!(
            "--firmware: {} is empty: copy it again (docs/boards/rpi4.md)",
            folder.join(name).display()
        );
    }
    ensure!(
        !files.is_empty(),
        "--firmware: {} holds no file: name the folder with the board's firmware, or leave the \
         option out",
        folder.display()
    );
    Ok(())
}

/// Refuses an output that lies in the folder, where the next run would take it for firmware. Paths
/// are compared behind all links. A folder that is not there yet cannot lie inside.
pub(super) fn ensure_apart(folder: &Path, out: &Path) -> Result<()> {
    let parent = out.parent().filter(|parent| *parent != Path::new(""));
    let parent = fs::canonicalize(parent.unwrap_or(Path::new(".")));
    let (Ok(folder), Ok(parent)) = (fs::canonicalize(folder), parent) else {
        return Ok(());
    };
    let is_inside = parent.starts_with(&folder) || fs::canonicalize(out).is_ok_and(|p| p == folder);
    ensure!(
        !is_inside,
        "--out: {} lies in the folder of --firmware, and would be taken for firmware: name another \
         place",
        out.display()
    );
    Ok(())
}

/// Adds the files below a folder. A card's file system does not tell upper from lower case.
/// Overlays lie in a folder of their own, so folders are followed.
fn add_folder(folder: &Path, below: &str, own: &[&str], files: &mut Vec<CardFile>) -> Result<()> {
    for path in sorted_entries(folder)? {
        let name = path.file_name().and_then(|name| name.to_str());
        let name = name.with_context(|| format!("{} has no name for a card", path.display()))?;
        let name = format!("{below}{name}");
        if path.is_dir() {
            add_folder(&path, &format!("{name}/"), own, files)?;
            continue;
        }
        ensure_fits(&path, &name, own, files)?;
        let bytes = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
        files.push((name, bytes));
    }
    Ok(())
}

/// Refuses what a card cannot hold beside GearV's files and those that are taken already. Each
/// refusal names the file in the person's folder, not on the card.
fn ensure_fits(path: &Path, name: &str, own: &[&str], files: &[CardFile]) -> Result<()> {
    ensure!(
        path.is_file(),
        "--firmware: {} is no file: take it out of the folder",
        path.display()
    );
    ensure!(
        !name.contains(|letter: char| NOT_IN_NAMES.contains(letter) || letter.is_control()),
        "--firmware: {}: a card's file system has no such name: rename the file, or take it out",
        path.display()
    );
    if own.iter().any(|own| own.eq_ignore_ascii_case(name)) {
        bail!(
            "--firmware: {}: {name} is GearV's own on the card: take it out of the folder",
            path.display()
        );
    }
    if let Some((known, _)) = files
        .iter()
        .find(|(known, _)| known.eq_ignore_ascii_case(name))
    {
        bail!(
            "--firmware: {}: {known} is there too, and a card has one of them only",
            path.display()
        );
    }
    Ok(())
}

/// The order of a directory is the host's own, and would show in the image. A card that is made
/// twice has the same bytes, which a test compares.
fn sorted_entries(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder);
    let entries = entries.with_context(|| format!("cannot read {}", folder.display()))?;
    let mut paths = entries
        .map(|entry| Ok(entry?.path()))
        .collect::<Result<Vec<_>>>()?;
    paths.sort();
    Ok(paths)
}

#[cfg(test)]
mod tests;
