//! `cargo xtask flash`: what a board boots GearV from, a card image or a folder of files.
//!
//! The same input gives the same bytes: no times, no names of this machine.
//!
//! The parts are independent of each other: `card` makes the file system, `u_boot` and `rpi4` the
//! boot files, `firmware` takes those of the board's maker, `judge` gives the verdict on the
//! manifest, and `file` and `device` write. Nothing is written before all of it is judged.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use workbench::board::{BoardTree, Name};
use workbench::build_images::{self, Images};
use workbench::tools::Tools;
use workbench::{guest_userland, number, workspace};

use crate::check;

mod card;
mod device;
mod file;
mod firmware;
mod judge;
mod rpi4;
mod u_boot;

pub use card::CardFile;

#[cfg(test)]
mod tests;

/// The options of `flash`. A card is written only on a separate option and after a question; an
/// image is a file.
#[derive(Args, Debug)]
pub struct Options {
    /// The board
    #[arg(long, value_enum, value_name = "NAME")]
    board: Name,
    /// The manifest to run [default: manifests/NAME.dts]
    #[arg(long, value_name = "FILE")]
    manifest: Option<PathBuf>,
    /// The board's memory in one piece, if it has less than the usual one
    #[arg(long, value_name = "MIB", value_parser = number::within(1..=u32::MAX))]
    memory: Option<u32>,
    /// The image, or for rcar-h3, zcu102 and imx8mp-evk the folder, to write; never a disk
    #[arg(long, value_name = "PATH")]
    out: PathBuf,
    /// A folder with the board's own firmware, copied to the image (rpi4: start4.elf and
    /// fixup4.dat)
    #[arg(long, value_name = "DIR")]
    firmware: Option<PathBuf>,
    /// A disk for a guest, copied to the card's second partition: an image, or
    /// artifact:guest-disk, which `run` gives a guest as well
    #[arg(long, value_name = "FILE")]
    disk: Option<PathBuf>,
    /// A card to write the image to, after asking
    #[arg(long, value_name = "DEVICE")]
    device: Option<PathBuf>,
    /// Write over files that are not GearV's
    #[arg(long)]
    force: bool,
}

impl Options {
    /// Builds the manifest and writes what the board boots from. Nothing is written before all that
    /// can be refused has been looked at. The order is from what takes no time to what does:
    /// places, firmware, manifest, archive.
    pub fn run(self) -> Result<()> {
        let firmware = self.look_ahead()?;
        let manifest = self.manifest.clone().unwrap_or_else(|| {
            let name = self.board.text();
            workspace::root().join(format!("manifests/{name}.dts"))
        });
        let tools = Tools::prepare()?;
        let board = BoardTree::named(self.board, &tools)?;
        let board = check::with_memory(board, self.memory, &tools)?;
        judge::manifest(&manifest, &board, &tools)?;
        let images = build_images::build(&manifest)?;
        judge::archive(&images, &board, &tools)?;
        let mut files = files(self.board, &images, &tools)?;
        files.extend(firmware);
        let disk = self.disk()?;
        match self.boots_from_folder() {
            true => write_folder(&self.out, &files),
            false => self.write_card(&files, &disk),
        }
    }

    /// Returns the bytes of the guest's disk; none without `--disk`.
    fn disk(&self) -> Result<Vec<u8>> {
        match &self.disk {
            Some(disk) if disk == Path::new(GUEST_DISK) => guest_disk(),
            Some(disk) => fs::read(disk).with_context(|| format!("--disk {}", disk.display())),
            None => Ok(Vec::new()),
        }
    }

    /// Tells whether the board boots from files beside others, and not from a card of its own. On
    /// both, U-Boot loads them from a file system that has other files as well.
    fn boots_from_folder(&self) -> bool {
        matches!(self.board, Name::RcarH3 | Name::Zcu102 | Name::Imx8mpEvk)
    }

    /// Refuses what is refused without a look at the manifest: the places that would be written,
    /// and the firmware, whose files are returned. Nothing has been built by then, so a wrong path
    /// costs a second.
    fn look_ahead(&self) -> Result<Vec<CardFile>> {
        let own = own_names(self.board);
        if let Some(folder) = &self.firmware {
            firmware::ensure_apart(folder, &self.out)?;
        }
        let firmware = match &self.firmware {
            Some(folder) => firmware::read(folder, self.board, &own)?,
            None => Vec::new(),
        };
        if let Some(disk) = self
            .disk
            .as_ref()
            .filter(|disk| *disk != Path::new(GUEST_DISK))
        {
            let length =
                fs::metadata(disk).with_context(|| format!("--disk {}", disk.display()))?;
            let is_file = length.is_file() && length.len() != 0;
            ensure!(
                is_file,
                "--disk {}: not a file with content",
                disk.display()
            );
        }
        if self.boots_from_folder() {
            ensure!(
                self.disk.is_none(),
                "--disk: {} boots from a folder: copy the disk to a partition of its card \
                 (docs/boards/{0}.md)",
                self.board.text()
            );
            ensure!(
                self.device.is_none(),
                "--device: {} boots from a folder, not from a card of its own",
                self.board.text()
            );
            let others = firmware.iter().map(|(name, _)| name.as_str());
            let names: Vec<&str> = own.into_iter().chain(others).collect();
            file::check_folder(&self.out, &names, self.force)?;
        } else {
            file::check_image(&self.out, self.force)?;
            self.check_device()?;
        }
        Ok(firmware)
    }

    /// Returns the firmware without which the board does not start, if the card will not have it.
    /// Names the files, since the board shows only a pattern of its LED without them.
    fn missing(&self) -> String {
        match self.firmware {
            Some(_) => String::new(),
            None => firmware::needed(self.board).join(" and "),
        }
    }

    /// Refuses a device that is not to be written, and a card that the board would not start from.
    /// A card that cannot start is no use to write, while an image of it may be completed.
    fn check_device(&self) -> Result<()> {
        let missing = self.missing();
        match &self.device {
            Some(_) if !missing.is_empty() => bail!(
                "--device: the board does not start from a card without {missing}: name the folder \
                 that holds them with --firmware (docs/boards/rpi4.md)"
            ),
            Some(device) => device::check(device),
            None => Ok(()),
        }
    }

    /// Writes a card's image, and the card itself if there is one. The image stays beside the card:
    /// it is what was tested, byte by byte.
    fn write_card(&self, files: &[CardFile], disk: &[u8]) -> Result<()> {
        file::write(&self.out, &card::image(files, disk)?)?;
        println!("{}", self.out.display());
        let missing = self.missing();
        if !missing.is_empty() {
            eprintln!(
                "the image lacks {missing}, and the board does not start from a card without: \
                 --firmware adds them (docs/boards/rpi4.md)"
            );
        }
        match &self.device {
            Some(device) => device::write(&self.out, device),
            None => Ok(()),
        }
    }
}

/// Returns the image of a card with these files, and a disk in its second partition unless that is
/// empty. For tests, which boot the same bytes on QEMU.
pub fn card_image(files: &[CardFile], disk: &[u8]) -> Result<Vec<u8>> {
    card::image(files, disk)
}

/// What `--disk` calls the disk that `run` gives a guest.
const GUEST_DISK: &str = "artifact:guest-disk";

/// Returns the disk that `run` gives a guest as it is before the first boot.
pub fn guest_disk() -> Result<Vec<u8>> {
    let disk = guest_userland::disk(&workspace::output_dir())?;
    fs::read(&disk).with_context(|| disk.display().to_string())
}

/// Returns a file of a card's image, as a board's firmware reads it. By the file allocation table,
/// not by where the writer put it.
pub fn read_card(image: &[u8], name: &str) -> Result<Vec<u8>> {
    card::read(image, name)
}

/// Returns the bytes of the second partition of a card's image.
pub fn second_partition(image: &[u8]) -> Option<&[u8]> {
    card::second_partition(image)
}

/// Returns what U-Boot does to start an archive of this size on a board. Tests type it into U-Boot
/// on QEMU.
pub fn boot_script(board: Name, archive_bytes: usize) -> String {
    u_boot::booti(&u_boot::places(board, archive_bytes))
}

/// Files of the images, on every board. Names that the boards' documents and scripts have.
const IMAGES: [&str; 2] = ["gear1.img", "archive.cpio"];
/// Files for U-Boot. The FIT and its script are a second way, which checks hashes.
const U_BOOT: [&str; 3] = ["gearv.itb", "boot.scr", "fit.scr"];

/// Returns the names of the files that [`files`] makes. Looked at before they are made, to refuse a
/// folder with foreign files of these names.
pub fn own_names(board: Name) -> Vec<&'static str> {
    let others: &[&str] = match board {
        Name::Rpi4 => &rpi4::NAMES,
        Name::QemuVirt | Name::RcarH3 | Name::Zcu102 | Name::Imx8mpEvk => &U_BOOT,
    };
    IMAGES.iter().chain(others).copied().collect()
}

/// Returns the files that a board boots a manifest's images with. All of them are in memory first:
/// a failure leaves no half of a card.
pub fn files(board: Name, images: &Images, tools: &Tools) -> Result<Vec<CardFile>> {
    let archive = fs::read(&images.archive)?;
    let archive_bytes = archive.len();
    let mut files = vec![
        file("gear1.img", fs::read(&images.gear1)?),
        file("archive.cpio", archive),
    ];
    files.extend(match board {
        Name::Rpi4 => rpi4::files(tools)?,
        Name::QemuVirt | Name::RcarH3 | Name::Zcu102 | Name::Imx8mpEvk => {
            let places = u_boot::places(board, archive_bytes);
            u_boot_files(&places, images, tools)?
        }
    });
    Ok(files)
}

/// Returns both of U-Boot's ways to Gear1: the script for the images, and a FIT with its script. A
/// board's U-Boot may lack either command.
fn u_boot_files(places: &u_boot::Places, images: &Images, tools: &Tools) -> Result<Vec<CardFile>> {
    let fit = u_boot::fit(&images.gear1, &images.archive, tools)?;
    Ok(vec![
        file("gearv.itb", fit),
        file("boot.scr", u_boot::script(&u_boot::booti(places))),
        file("fit.scr", u_boot::script(&u_boot::bootm(places))),
    ])
}

/// Makes an entry of a card.
fn file(name: &str, bytes: Vec<u8>) -> CardFile {
    (name.to_owned(), bytes)
}

/// Each path is printed, as these files go onto a card by hand.
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
