//! Writing an image to a card: only to a whole removable or otherwise unused disk, after showing
//! the disk and asking.
//!
//! Invariant: a disk of which anything is mounted, used for swapping or held by another disk is
//! refused, and nothing is opened for writing before a person has typed the device's name.

use std::fs::{self, OpenOptions};
use std::io::{self, IsTerminal as _, Write as _};
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};

/// Disk as the kernel describes it. Read from sysfs, so that neither root nor another program is
/// needed to look.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Disk {
    /// As in /dev and /sys/block.
    name: String,
    /// An image that is larger is refused.
    bytes: u64,
    /// A hint for the person; USB readers often say no.
    removable: bool,
    /// May be empty.
    model: String,
    /// Names of the disk and of its partitions.
    parts: Vec<String>,
}

/// Refuses a device that [`write()`] would refuse, before there is an image. Asked before the
/// build, which takes minutes.
pub(super) fn check(device: &Path) -> Result<()> {
    unused(device)?;
    ensure_terminal()
}

/// Asks, then writes `image` to `device`. The check comes again: a card may have been mounted since
/// the first one.
pub(super) fn write(image: &Path, device: &Path) -> Result<()> {
    let disk = unused(device)?;
    let size = fs::metadata(image)?.len();
    ensure!(
        size <= disk.bytes,
        "the image has {size} bytes, {} has {}",
        disk.name,
        disk.bytes
    );
    show(&disk, device);
    ask(&disk)?;
    let mut card = OpenOptions::new().write(true).open(device)?;
    io::copy(&mut fs::File::open(image)?, &mut card)?;
    card.sync_all()?;
    eprintln!("written");
    Ok(())
}

/// Returns the disk behind a device, and fails if the device is no disk or in use. A partition is
/// no place for an image with a partition table of its own.
fn unused(device: &Path) -> Result<Disk> {
    let kind = fs::metadata(device)
        .with_context(|| format!("--device: there is no {}", device.display()))?;
    ensure!(
        kind.file_type().is_block_device(),
        "--device: {} is no disk",
        device.display()
    );
    let disk = describe(Path::new("/sys"), device)?;
    let used = used(&disk, Path::new("/proc"), Path::new("/sys"))?;
    if let Some(why) = used {
        bail!("--device: {}: {why}; it is left alone", device.display());
    }
    Ok(disk)
}

/// Shows a person what would be overwritten. What a person compares with the label of a card:
/// maker, size, number of partitions.
fn show(disk: &Disk, device: &Path) {
    let gib = disk.bytes as f64 / (1 << 30) as f64;
    let removable = match disk.removable {
        true => "removable",
        false => "NOT removable",
    };
    let model = match disk.model.as_str() {
        "" => "no model",
        model => model,
    };
    eprintln!(
        "{}: {model}, {gib:.1} GiB, {removable}, {} partitions",
        device.display(),
        disk.parts.len() - 1
    );
}

/// A script that answers by itself would be no question.
fn ensure_terminal() -> Result<()> {
    ensure!(
        io::stdin().is_terminal(),
        "--device: it takes a terminal to say yes; nothing was written"
    );
    Ok(())
}

/// Fails unless a person at a terminal types the disk's name. The name is typed, as a "y" comes too
/// easily.
fn ask(disk: &Disk) -> Result<()> {
    ensure_terminal()?;
    eprint!("All that is on it is lost. Type {} to write: ", disk.name);
    io::stderr().flush()?;
    let mut answer = String::new();
    io::stdin().read_line(&mut answer)?;
    ensure!(answer.trim() == disk.name, "nothing was written");
    Ok(())
}

/// Reads what the kernel says of a whole disk. Links such as /dev/disk/by-id are followed, because
/// sysfs knows kernel names alone.
fn describe(sys: &Path, device: &Path) -> Result<Disk> {
    let real = fs::canonicalize(device)?;
    let name = real.file_name().and_then(|name| name.to_str());
    let name = name.context("the device has no name")?.to_owned();
    let folder = sys.join("block").join(&name);
    ensure!(folder.is_dir(), "{} is no whole disk", device.display());
    let read = |file: &str| fs::read_to_string(folder.join(file)).unwrap_or_default();
    let sectors: u64 = read("size")
        .trim()
        .parse()
        .context("the disk has no size")?;
    Ok(Disk {
        // The kernel counts in 512 bytes, whatever the disk's blocks have (sysfs-block).
        bytes: sectors * 512,
        removable: read("removable").trim() == "1",
        model: read("device/model").trim().to_owned(),
        parts: parts(&name, &folder)?,
        name,
    })
}

/// Returns the names of a disk and of its partitions, which are the folders with a `partition`.
/// Mounts and swap name partitions, so that all of them are needed.
fn parts(name: &str, folder: &Path) -> Result<Vec<String>> {
    let mut parts = vec![name.to_owned()];
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.path().join("partition").exists() {
            parts.push(entry.file_name().to_string_lossy().into_owned());
        }
    }
    Ok(parts)
}

/// Says what uses the disk or a partition of it, if anything does. Each way of use is told in its
/// own words: a person has to undo it.
fn used(disk: &Disk, proc: &Path, sys: &Path) -> Result<Option<String>> {
    if let Some(place) = mounted_on(disk, proc, sys)? {
        return Ok(Some(format!("it is mounted on {place}")));
    }
    if is_swap(disk, proc) {
        return Ok(Some("it is used for swapping".to_owned()));
    }
    let is_held = |part: &&String| {
        let holders = sys.join("class/block").join(part).join("holders");
        fs::read_dir(holders).is_ok_and(|mut holders| holders.next().is_some())
    };
    let held = disk.parts.iter().find(is_held);
    Ok(held.map(|part| format!("{part} is part of another disk")))
}

/// Tells whether the kernel swaps to the disk or to a partition of it. By proc_swaps(5): the first
/// column is the path.
fn is_swap(disk: &Disk, proc: &Path) -> bool {
    // A kernel without swapping has no such file.
    let swaps = fs::read_to_string(proc.join("swaps")).unwrap_or_default();
    let sources = swaps.lines().skip(1);
    let mut sources = sources.filter_map(|line| line.split_whitespace().next());
    sources.any(|source| disk.has(source))
}

/// Returns where the disk or a partition of it is mounted, by proc_pid_mountinfo(5): the third
/// field is the device's number, the fifth the place, and the second behind ` - ` the source.
fn mounted_on(disk: &Disk, proc: &Path, sys: &Path) -> Result<Option<String>> {
    let number = |part: &String| {
        let folder = sys.join("class/block").join(part);
        let number = fs::read_to_string(folder.join("dev")).ok()?;
        Some(number.trim().to_owned())
    };
    let numbers: Vec<String> = disk.parts.iter().filter_map(number).collect();
    for line in fs::read_to_string(proc.join("self/mountinfo"))?.lines() {
        let fields: Vec<&str> = line.split(' ').collect();
        let device = fields.get(2).copied().unwrap_or("");
        let source = line.split(" - ").nth(1);
        let source = source.and_then(|rest| rest.split(' ').nth(1));
        // btrfs has a device number of its own, so the source is compared as well.
        if numbers.iter().any(|number| number == device)
            || source.is_some_and(|source| disk.has(source))
        {
            return Ok(Some((*fields.get(4).unwrap_or(&"?")).to_owned()));
        }
    }
    Ok(None)
}

impl Disk {
    /// Tells whether a path leads to the disk or to a partition of it.
    fn has(&self, path: &str) -> bool {
        let real = fs::canonicalize(path).unwrap_or_else(|_| PathBuf::from(path));
        let name = real.file_name().and_then(|name| name.to_str());
        self.parts
            .iter()
            .any(|part| part == name.unwrap_or_default())
    }
}

#[cfg(test)]
mod tests;
