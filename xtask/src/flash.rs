//! `cargo xtask flash`: what a board boots GearV from, a card image or a folder of files.
//!
//! The same input gives the same bytes: no times, no names of this machine.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use workbench::board::Name;
use workbench::build_images::{self, Images};
use workbench::tools::Tools;
use workbench::{payloads, workspace};

mod card;
mod device;
mod file;
mod u_boot;

pub use card::CardFile;

#[cfg(test)]
mod tests;

/// The options of `flash`.
#[derive(Args, Debug)]
pub struct Options {
    /// The board
    #[arg(long, value_enum, value_name = "NAME")]
    board: Name,
    /// The manifest to run [default: manifests/NAME.dts]
    #[arg(long, value_name = "FILE")]
    manifest: Option<PathBuf>,
    /// The image, or for rcar-h3 and zcu102 the folder, to write; never a disk
    #[arg(long, value_name = "PATH")]
    out: PathBuf,
    /// A folder with the board's own firmware, copied to the image (rpi4: start4.elf, fixup4.dat,
    /// overlays)
    #[arg(long, value_name = "DIR")]
    firmware: Option<PathBuf>,
    /// A card to write the image to, after asking
    #[arg(long, value_name = "DEVICE")]
    device: Option<PathBuf>,
    /// Write over a file that is no card image of GearV's
    #[arg(long)]
    force: bool,
}

impl Options {
    /// Builds the manifest and writes what the board boots from.
    pub fn run(self) -> Result<()> {
        let boots_from_folder = matches!(self.board, Name::RcarH3 | Name::Zcu102);
        match boots_from_folder {
            true => file::check_folder(&self.out)?,
            false => file::check_image(&self.out, self.force)?,
        }
        let manifest = self.manifest.clone().unwrap_or_else(|| {
            let name = self.board.text();
            workspace::root().join(format!("manifests/{name}.dts"))
        });
        let images = build_images::build(&manifest)?;
        let mut files = files(self.board, &images, &Tools::prepare()?)?;
        if let Some(folder) = &self.firmware {
            add_folder(folder, "", &mut files)?;
        }
        match boots_from_folder {
            true => self.write_folder(&files),
            false => self.write_card(&files),
        }
    }

    /// Writes a folder, whose files a person copies to where the board's U-Boot looks.
    fn write_folder(&self, files: &[CardFile]) -> Result<()> {
        ensure!(
            self.device.is_none(),
            "{} boots from a folder, not from a card of its own",
            self.board.text()
        );
        write_folder(&self.out, files)
    }

    /// Writes a card's image, and the card itself if there is one.
    fn write_card(&self, files: &[CardFile]) -> Result<()> {
        file::write(&self.out, &card_image(files)?)?;
        println!("{}", self.out.display());
        if self.board == Name::Rpi4 && self.firmware.is_none() {
            eprintln!(
                "without --firmware the board does not start from it: docs/boards/rpi4.md says which files are needed"
            );
        }
        match &self.device {
            Some(device) => device::write(&self.out, device),
            None => Ok(()),
        }
    }
}

/// Returns the image of a card with these files.
pub fn card_image(files: &[CardFile]) -> Result<Vec<u8>> {
    card::image(files)
}

/// Returns a file of a card's image, as a board's firmware reads it.
pub fn read_card(image: &[u8], name: &str) -> Result<Vec<u8>> {
    card::read(image, name)
}

/// Returns what U-Boot does to start an archive of this size on a board.
pub fn boot_script(board: Name, archive_bytes: usize) -> String {
    u_boot::booti(&u_boot::places(board, archive_bytes))
}

/// Returns the files that a board boots a manifest's images with.
pub fn files(board: Name, images: &Images, tools: &Tools) -> Result<Vec<CardFile>> {
    let archive = fs::read(&images.archive)?;
    let archive_bytes = archive.len();
    let mut files = vec![
        file("gear1.img", fs::read(&images.gear1)?),
        file("archive.cpio", archive),
    ];
    files.extend(match board {
        Name::Rpi4 => rpi4_files()?,
        Name::QemuVirt | Name::RcarH3 | Name::Zcu102 => {
            let places = u_boot::places(board, archive_bytes);
            u_boot_files(&places, images, tools)?
        }
    });
    Ok(files)
}

/// Returns what the Raspberry Pi's firmware reads besides the images.
fn rpi4_files() -> Result<Vec<CardFile>> {
    let tree = fs::read(payloads::rpi4_device_tree()?)?;
    Ok(vec![
        file("config.txt", RPI4_CONFIG.into()),
        file("bcm2711-rpi-4-b.dtb", tree),
    ])
}

/// Returns both of U-Boot's ways to Gear1: the script for the images, and a FIT with its script.
fn u_boot_files(places: &u_boot::Places, images: &Images, tools: &Tools) -> Result<Vec<CardFile>> {
    let fit = u_boot::fit(&images.gear1, &images.archive, tools)?;
    Ok(vec![
        file("gearv.itb", fit),
        file("boot.scr", u_boot::script(&u_boot::booti(places))),
        file("fit.scr", u_boot::script(&u_boot::bootm(places))),
    ])
}

fn file(name: &str, bytes: Vec<u8>) -> CardFile {
    (name.to_owned(), bytes)
}

/// Boot configuration for the firmware of the Raspberry Pi: Gear1 starts in 64-bit state, with the
/// archive as initial RAM disk on a page of its own, and with PL011 on the pins of the header.
const RPI4_CONFIG: &str = "\
# Written by GearV's `cargo xtask flash`.
[pi4]
arm_64bit=1
enable_gic=1
kernel=gear1.img
initramfs archive.cpio 0x08000000
device_tree=bcm2711-rpi-4-b.dtb
enable_uart=1
dtoverlay=disable-bt
gpu_mem=64
";

/// Adds the files below a folder, in order of their names, so that the same files give the same
/// image.
fn add_folder(folder: &Path, below: &str, files: &mut Vec<CardFile>) -> Result<()> {
    for path in sorted_entries(folder)? {
        let name = path.file_name().and_then(|name| name.to_str());
        let name = name.with_context(|| format!("{} has no name for a card", path.display()))?;
        let name = format!("{below}{name}");
        if path.is_dir() {
            add_folder(&path, &format!("{name}/"), files)?;
        } else if files.iter().any(|(known, _)| *known == name) {
            bail!("{}: {name} is GearV's own on the card", path.display());
        } else {
            files.push((name, fs::read(&path)?));
        }
    }
    Ok(())
}

fn sorted_entries(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder);
    let entries = entries.with_context(|| format!("cannot read {}", folder.display()))?;
    let mut paths = entries
        .map(|entry| Ok(entry?.path()))
        .collect::<Result<Vec<_>>>()?;
    paths.sort();
    Ok(paths)
}

fn write_folder(folder: &Path, files: &[CardFile]) -> Result<()> {
    for (name, bytes) in files {
        let path = folder.join(name);
        let parent = path.parent().context("a file lies in a folder")?;
        fs::create_dir_all(parent)?;
        file::write(&path, bytes)?;
        println!("{}", path.display());
    }
    Ok(())
}
