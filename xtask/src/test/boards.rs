//! What `flash` writes, booted: QEMU's `virt` through U-Boot.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};

use super::{Part, Tally};
use crate::board::Name;
use crate::build_images;
use crate::expect::Session;
use crate::flash;
use crate::qemu::{Machine, Qemu};
use crate::smoke::{self, Extent};
use crate::tools::Tools;
use crate::{payloads, run, workspace};

pub(super) fn parts() -> Vec<Part> {
    vec![
        Part::new("U-Boot starts GearV by booti", |tally| {
            u_boot("booti", "boot.scr", tally)
        }),
        Part::new("U-Boot starts GearV by a FIT", |tally| {
            u_boot("bootm", "fit.scr", tally)
        }),
        Part::new("the Raspberry Pi's card runs on raspi4b", raspi4b),
        Part::new("images of boards are the same twice", same),
    ]
}

/// Boots a card with the minimal system whose script is the one named.
fn u_boot(command: &str, script: &str, tally: &mut Tally) -> Result<()> {
    let images = build_images::build(&build_images::smallest_manifest())?;
    let mut files = flash::files(Name::QemuVirt, &images, &Tools::prepare()?)?;
    // U-Boot starts what is called boot.scr.
    let wanted = files
        .iter()
        .find(|(name, _)| name == script)
        .map(|(_, bytes)| bytes.clone());
    for (name, bytes) in &mut files {
        if let ("boot.scr", Some(wanted)) = (name.as_str(), &wanted) {
            bytes.clone_from(wanted);
        }
    }
    let card = workspace::output_dir().join(format!("u-boot-{command}.img"));
    fs::write(&card, flash::card_image(&files)?)?;
    let machine = Machine {
        disk: Some(card.clone()),
        firmware: Some(payloads::u_boot_qemu()?),
        ..run::machine_for(&images)?
    };
    let log = format!("u-boot-{command}.log");
    let qemu = Qemu::prepare(10)?;
    let checks = smoke::check_guests(&qemu, &machine, &images, &log, Extent::BRIEF, &|_| {});
    fs::remove_file(card)?;
    let text = fs::read_to_string(workspace::output_dir().join(&log))?;
    let checks = checks?;
    let by = format!("GearV by {command}");
    ensure!(text.contains(&by), "U-Boot did not run {script}");
    tally.pass(checks);
    Ok(())
}

/// Boots the files of a card on QEMU's Raspberry Pi 4 until its guest has hashed what it was given.
fn raspi4b(tally: &mut Tally) -> Result<()> {
    let images = build_images::build(&workspace::root().join("manifests/rpi4.dts"))?;
    let files = flash::files(Name::Rpi4, &images, &Tools::prepare()?)?;
    let card = flash::card_image(&files)?;
    let folder = workspace::output_dir().join("raspi4b");
    fs::create_dir_all(&folder)?;
    let paths = ["gear1.img", "archive.cpio", "bcm2711-rpi-4-b.dtb"].map(|name| folder.join(name));
    for path in &paths {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        fs::write(path, flash::read_card(&card, &name)?)?;
    }
    let [gear1, archive, tree] = &paths;
    let command = Qemu::prepare(10)?.raspi4b([gear1, archive, tree]);
    let mut session = Session::start(command, &folder.join("boot.log"))?;
    session.give_up_on(build_images::FATAL);
    smoke::reach_guest(&mut session, "linux").with_context(|| session.tail(60))?;
    tally.pass(1);
    Ok(())
}

/// Two builds of each board's files give the same bytes.
fn same(tally: &mut Tally) -> Result<()> {
    let tools = Tools::prepare()?;
    for board in [Name::QemuVirt, Name::Rpi4, Name::RcarH3] {
        let manifest: PathBuf = workspace::root().join(match board {
            Name::QemuVirt => "manifests/minimal.dts".to_owned(),
            Name::Rpi4 | Name::RcarH3 => format!("manifests/{}.dts", board.text()),
        });
        let make = || -> Result<Vec<u8>> {
            let images = build_images::build(&manifest)?;
            flash::card_image(&flash::files(board, &images, &tools)?)
        };
        let is_same = make()? == make()?;
        ensure!(is_same, "two images for {} differ", board.text());
        tally.pass(1);
    }
    Ok(())
}
