//! The small Linux userland that guests boot into: busybox and one init script.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Result;
use cpio::newc::{Builder, trailer};
use flate2::Compression;
use flate2::write::GzEncoder;

use crate::payloads;

/// What init prints when the shell is there; the guest's name stands in between.
pub(crate) const READY: (&str, &str) = ("GearV guest ", ": shell ready");

const INIT: &str = include_str!("initramfs/init.sh");
const PROFILE: &str = include_str!("initramfs/profile.sh");

const DIRECTORY: u32 = 0o040_755;
const EXECUTABLE: u32 = 0o100_755;
const REGULAR: u32 = 0o100_644;
const SYMLINK: u32 = 0o120_777;
const CHARACTER_DEVICE: u32 = 0o020_600;

/// Builds the initramfs below `out_dir` and returns its path.
pub(crate) fn build(out_dir: &Path) -> Result<PathBuf> {
    let busybox = fs::read(payloads::busybox()?)?;
    fs::create_dir_all(out_dir)?;
    let path = out_dir.join("busybox-initramfs.cpio.gz");
    let mut archive = Archive {
        writer: GzEncoder::new(File::create(&path)?, Compression::default()),
        next_inode: 1,
    };
    for directory in [
        "bin", "dev", "etc", "proc", "root", "sbin", "sys", "tmp", "usr", "usr/bin", "usr/sbin",
    ] {
        archive.add(directory, DIRECTORY, &[])?;
    }
    // The kernel opens the console for init before anything has mounted a /dev.
    archive.add_device("dev/console", 5, 1)?;
    archive.add("bin/busybox", EXECUTABLE, &busybox)?;
    archive.add("bin/sh", SYMLINK, b"busybox")?;
    archive.add("init", EXECUTABLE, INIT.as_bytes())?;
    archive.add("etc/profile", REGULAR, PROFILE.as_bytes())?;
    trailer(archive.writer)?.finish()?;
    Ok(path)
}

/// A cpio archive of files that root owns, without dates: the same input gives the same bytes.
struct Archive<W: Write> {
    writer: W,
    next_inode: u32,
}

impl<W: Write> Archive<W> {
    fn builder(&mut self, name: &str, mode: u32) -> Builder {
        let inode = self.next_inode;
        self.next_inode += 1;
        Builder::new(name).ino(inode).mode(mode).nlink(1)
    }

    fn add(&mut self, name: &str, mode: u32, content: &[u8]) -> Result<()> {
        let builder = self.builder(name, mode);
        let mut file = builder.write(&mut self.writer, u32::try_from(content.len())?);
        file.write_all(content)?;
        file.finish()?;
        Ok(())
    }

    fn add_device(&mut self, name: &str, major: u32, minor: u32) -> Result<()> {
        let builder = self
            .builder(name, CHARACTER_DEVICE)
            .rdev_major(major)
            .rdev_minor(minor);
        builder.write(&mut self.writer, 0).finish()?;
        Ok(())
    }
}
