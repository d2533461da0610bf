//! `cargo xtask clean`: gives back the space of what was built, made and downloaded.
//!
//! Deletes only what cargo and xtask wrote: the workspace's own target directory, xtask's folder in
//! any other one, and those folders of the cache that xtask makes. Disks that a user kept stay.

use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use clap::Args;
use workbench::cache::Cache;
use workbench::workspace;

use crate::run::disks::KEPT;

/// The options of `clean`. Downloads cost time and network, and disks cost a user's work, hence
/// both have a switch.
#[derive(Args, Clone, Copy, Debug, Default)]
pub struct Options {
    /// Leave what was downloaded, which takes the network to get again
    #[arg(long)]
    keep_downloads: bool,
    /// Delete also the disks that `run --keep` kept
    #[arg(long)]
    disks: bool,
    /// Only say what would be deleted
    #[arg(long)]
    dry_run: bool,
}

/// Mark that cargo leaves in its target directories (<https://bford.info/cachedir/>). Without it a
/// folder named `target` may be anybody's.
const TAG: &str = "CACHEDIR.TAG";

impl Options {
    /// Deletes, and says how much. A running machine keeps its disk open: deleting that would lose
    /// what a guest writes.
    pub fn run(self) -> Result<()> {
        let target = workspace::target_dir();
        ensure_no_machine(&target, &target)?;
        let is_ours = is_own_target(&target, workspace::root());
        let (builds, left) = builds(&target, is_ours, self.disks);
        let mut freed = self.delete("built and made", &target, &builds)?;
        if !self.keep_downloads {
            freed += self.delete_downloads()?;
        }
        let verb = if self.dry_run {
            "would be freed"
        } else {
            "freed"
        };
        println!("{} {verb}", megabytes(freed));
        for disk in left {
            println!("left: {} (--disks deletes it)", disk.display());
        }
        let is_cargos = target.join(TAG).is_file();
        if !is_ours && is_cargos {
            let target = target.display();
            println!(
                "left: what cargo built in {target}, which may have other users; cargo clean \
                 deletes it"
            );
        }
        Ok(())
    }

    /// Deletes the downloads under the cache's lock: another xtask may be unpacking them. The lock
    /// is the one that a download holds while it unpacks.
    fn delete_downloads(&self) -> Result<u64> {
        let cache = Cache::open()?;
        let _lock = cache.lock()?;
        let downloads = downloads(&cache);
        self.delete("downloaded", &cache.path(""), &downloads)
    }

    /// Deletes files and folders, and returns their size. The size comes first, because a user who
    /// asked by mistake can still stop a long deletion.
    fn delete(self, what: &str, place: &Path, paths: &[PathBuf]) -> Result<u64> {
        let mut known = HashSet::new();
        let sizes = paths.iter().map(|path| size(path, &mut known));
        let bytes = sizes.sum();
        println!("{what}, in {}: {}", place.display(), megabytes(bytes));
        for path in paths.iter().filter(|_| !self.dry_run) {
            let is_folder = path.is_dir() && !path.is_symlink();
            let deleted = match is_folder {
                true => fs::remove_dir_all(path),
                false => fs::remove_file(path),
            };
            deleted.with_context(|| format!("cannot delete {}", path.display()))?;
        }
        Ok(bytes)
    }
}

/// Decimal, as disks are sold and as `df -H` shows.
fn megabytes(bytes: u64) -> String {
    format!("{:.0} MB", bytes as f64 / 1e6)
}

/// Tells whether a target directory is this workspace's own: cargo made it, at its usual place.
/// CARGO_TARGET_DIR may lead to a folder that several workspaces share.
fn is_own_target(target: &Path, root: &Path) -> bool {
    target == root.join("target") && !target.is_symlink() && target.join(TAG).is_file()
}

/// Refuses while a program below `programs` runs a machine on a disk below `target`. Disks are
/// named by the number of the process that made them. A number that another program got since then
/// is no reason to refuse, hence its executable is looked at.
fn ensure_no_machine(target: &Path, programs: &Path) -> Result<()> {
    for folder in entries(&target.join("gearv")) {
        for disk in entries(&folder.join("disks")) {
            let process = disk.file_stem().unwrap_or_default();
            let program = fs::read_link(Path::new("/proc").join(process).join("exe"));
            let is_ours = program.is_ok_and(|program| program.starts_with(programs));
            ensure!(
                !is_ours,
                "a machine runs on {}: end process {} first",
                disk.display(),
                process.display()
            );
        }
    }
    Ok(())
}

/// Returns what to delete below a target directory, and the disks that stay. In a shared folder
/// only xtask's own is deleted.
fn builds(target: &Path, is_ours: bool, disks: bool) -> (Vec<PathBuf>, Vec<PathBuf>) {
    let made = target.join("gearv");
    let mut deleted = Vec::new();
    let mut left = Vec::new();
    if is_ours {
        deleted.extend(entries(target).into_iter().filter(|path| *path != made));
    }
    for path in entries(&made) {
        let kept = path.join(KEPT);
        if disks || !kept.is_file() {
            deleted.push(path);
        } else {
            deleted.extend(entries(&path).into_iter().filter(|path| *path != kept));
            left.push(kept);
        }
    }
    (deleted, left)
}

/// Returns what to delete in the cache: what xtask put there. The list is of names and not of all
/// there is: the cache may have been put into a folder with other things.
fn downloads(cache: &Cache) -> Vec<PathBuf> {
    let ours = ["apt", "cargo", "incoming", "packages", "sets", "unpacking"];
    let paths = ours.map(|name| cache.path(name));
    paths.into_iter().filter(|path| path.exists()).collect()
}

/// Returns what is in a folder; nothing if there is none. A folder that is not there has nothing to
/// delete.
fn entries(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).collect()
}

/// Returns the bytes that a file or folder has on the disk; what has several names counts once.
/// Blocks and not lengths: images of disks have holes.
fn size(path: &Path, known: &mut HashSet<(u64, u64)>) -> u64 {
    /// `st_blocks` counts these (stat(2)), whatever the file system's own blocks are.
    const BLOCK: u64 = 512;
    let Ok(facts) = fs::symlink_metadata(path) else {
        return 0;
    };
    if !known.insert((facts.dev(), facts.ino())) {
        return 0;
    }
    let below = match facts.is_dir() {
        true => entries(path).iter().map(|path| size(path, known)).sum(),
        false => 0,
    };
    below + facts.blocks() * BLOCK
}

#[cfg(test)]
mod tests;
