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

/// Disk as the kernel describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Disk {
    name: String,
    bytes: u64,
    removable: bool,
    model: String,
    /// Names of the disk and of its partitions.
    parts: Vec<String>,
}

/// Asks, then writes `image` to `device`.
pub(super) fn write(image: &Path, device: &Path) -> Result<()> {
    let kind = fs::metadata(device).with_context(|| format!("there is no {}", device.display()))?;
    ensure!(
        kind.file_type().is_block_device(),
        "{} is no disk",
        device.display()
    );
    let disk = describe(Path::new("/sys"), device)?;
    let used = used(&disk, Path::new("/proc"), Path::new("/sys"))?;
    if let Some(why) = used {
        bail!("{}: {why}; it is left alone", device.display());
    }
    let size = fs::metadata(image)?.len();
    ensure!(
        size <= disk.bytes,
        "the image has {size} bytes, {} has {}",
        disk.name,
        disk.bytes
    );
    let gib = disk.bytes as f64 / (1 << 30) as f64;
    let removable = if disk.removable {
        "removable"
    } else {
        "NOT removable"
    };
    eprintln!(
        "{}: {}, {gib:.1} GiB, {removable}, {} partitions",
        device.display(),
        if disk.model.is_empty() {
            "no model"
        } else {
            &disk.model
        },
        disk.parts.len() - 1
    );
    ensure!(io::stdin().is_terminal(), "it takes a terminal to say yes");
    eprint!("All that is on it is lost. Type {} to write: ", disk.name);
    io::stderr().flush()?;
    let mut answer = String::new();
    io::stdin().read_line(&mut answer)?;
    ensure!(answer.trim() == disk.name, "nothing was written");
    let mut card = OpenOptions::new().write(true).open(device)?;
    io::copy(&mut fs::File::open(image)?, &mut card)?;
    card.sync_all()?;
    eprintln!("written");
    Ok(())
}

/// Reads what the kernel says of a whole disk.
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
    let mut parts = vec![name.clone()];
    for entry in fs::read_dir(&folder)? {
        let entry = entry?;
        if entry.path().join("partition").exists() {
            parts.push(entry.file_name().to_string_lossy().into_owned());
        }
    }
    Ok(Disk {
        bytes: sectors * 512,
        removable: read("removable").trim() == "1",
        model: read("device/model").trim().to_owned(),
        name,
        parts,
    })
}

/// Says what uses the disk or a partition of it, if anything does.
fn used(disk: &Disk, proc: &Path, sys: &Path) -> Result<Option<String>> {
    let is_part = |path: &str| {
        let real = fs::canonicalize(path).unwrap_or_else(|_| PathBuf::from(path));
        let name = real
            .file_name()
            .and_then(|name| name.to_str())
            .unwrap_or("");
        disk.parts.iter().any(|part| part == name)
    };
    let number = |part: &String| {
        let folder = sys.join("class/block").join(part);
        fs::read_to_string(folder.join("dev")).map(|dev| dev.trim().to_owned())
    };
    let numbers: Vec<String> = disk
        .parts
        .iter()
        .filter_map(|part| number(part).ok())
        .collect();
    // The third field is the device's number, the fifth where it is mounted (proc(5)).
    for line in fs::read_to_string(proc.join("self/mountinfo"))?.lines() {
        let fields: Vec<&str> = line.split(' ').collect();
        let device = fields.get(2).copied().unwrap_or("");
        let source = line
            .split(" - ")
            .nth(1)
            .and_then(|rest| rest.split(' ').nth(1));
        if numbers.iter().any(|number| number == device) || source.is_some_and(is_part) {
            let place = fields.get(4).copied().unwrap_or("?");
            return Ok(Some(format!("it is mounted on {place}")));
        }
    }
    for line in fs::read_to_string(proc.join("swaps"))
        .unwrap_or_default()
        .lines()
        .skip(1)
    {
        if line.split_whitespace().next().is_some_and(is_part) {
            return Ok(Some("it is used for swapping".to_owned()));
        }
    }
    for part in &disk.parts {
        let holders = sys.join("class/block").join(part).join("holders");
        if fs::read_dir(holders).is_ok_and(|mut holders| holders.next().is_some()) {
            return Ok(Some(format!("{part} is part of another disk")));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests;
