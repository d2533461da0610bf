//! The disks of `run`: the manifest's own, which every run gets afresh unless it is kept, and files
//! of the user.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};
use std::process;

use anyhow::{Context as _, Result, bail, ensure};
use workbench::build_images::Images;
use workbench::qemu::{Disk, Format};
use workbench::{ext4, guest_userland, workspace};

/// Most disks beside the manifest's own: `virt` has 32 transports, and Linux names 26 disks by one
/// letter.
const MOST: usize = 24;

/// Judges the files that a user names, in their order. A disk twice would be two writers of one
/// file system.
pub(super) fn judged(files: &[PathBuf], snapshot: bool) -> Result<Vec<Disk>> {
    let count = files.len();
    ensure!(count <= MOST, "--disk: {count} disks; at most {MOST} fit");
    let mut known = Vec::new();
    let mut disks = Vec::new();
    for file in files {
        let disk = judge(file, snapshot).with_context(|| format!("--disk {}", file.display()))?;
        let path = file.canonicalize()?;
        ensure!(
            !known.contains(&path),
            "--disk {}: the file is named twice",
            file.display()
        );
        known.push(path);
        disks.push(disk);
    }
    Ok(disks)
}

/// Judges one file: an image that is not empty, or a block device; writable, unless nothing is
/// written to it. Writing is tried here, as QEMU would say so only when it starts.
fn judge(file: &Path, snapshot: bool) -> Result<Disk> {
    let Ok(facts) = fs::metadata(file) else {
        bail!(
            "there is no such file; `truncate -s 1G {}` makes an empty disk of 1 GiB",
            file.display()
        );
    };
    let kind = facts.file_type();
    let is_disk = kind.is_file() || kind.is_block_device();
    ensure!(is_disk, "neither a file nor a block device");
    let is_empty = kind.is_file() && facts.len() == 0;
    ensure!(
        !is_empty,
        "the file is empty; `truncate -s 1G {}` makes it a disk of 1 GiB",
        file.display()
    );
    if !snapshot {
        let opened = OpenOptions::new().write(true).open(file);
        opened.context("cannot be written to; with --snapshot it does not have to be")?;
    }
    Ok(Disk {
        file: file.to_owned(),
        format: Format::of(file)?,
    })
}

/// Returns the manifest's own disk as it is before the first boot, and this run's own; those of
/// runs that have ended are removed. The name is the process's number: two runs of one manifest
/// have two disks.
pub(super) fn fresh(images: &Images) -> Result<PathBuf> {
    let directory = images.archive.with_file_name("disks");
    fs::create_dir_all(&directory)?;
    for disk in fs::read_dir(&directory)?.flatten() {
        let disk = disk.path();
        let run = disk.file_stem().unwrap_or_default();
        if !Path::new("/proc").join(run).exists() {
            fs::remove_file(disk)?;
        }
    }
    let disk = directory.join(format!("{}.img", process::id()));
    ext4::copy(&guest_userland::disk(&workspace::output_dir())?, &disk)?;
    Ok(disk)
}

/// Name of a manifest's own disk that outlives its runs.
pub const KEPT: &str = "kept-disk.img";

/// Returns the manifest's own disk as the last run with `--keep` left it. Only one run at a time
/// may have it, which QEMU's lock of the image sees to.
pub(super) fn kept(images: &Images) -> Result<PathBuf> {
    let disk = images.archive.with_file_name(KEPT);
    if !disk.exists() {
        // Nobody finds half a disk after a copy that was interrupted.
        fs::rename(fresh(images)?, &disk)?;
    }
    Ok(disk)
}
