//! Cards of boards whose device VM serves a guest: the disk is the card's second partition.
//!
//! QEMU's models of the boards have the controllers and none of the clocks, power domains and
//! regulators. The device VM starts Debian's stock drivers without those, by `/as-booted`.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use workbench::board::{BoardTree, Name};
use workbench::build_images::{self, Images};
use workbench::expect::Session;
use workbench::qemu::Qemu;
use workbench::tools::Tools;
use workbench::{device_userland, workspace};
use xtask::flash;
use xtask::smoke::device_vm;
use xtask::smoke::fio::{fio, fio_result};
use xtask::smoke::{self, LONG, shell, shell_within};

use super::{BOOT, ending, with_board};
use crate::part::Tally;

/// What the guest writes, and the card holds afterwards.
const MARK: &str = "GearV: this line is on the card";
/// MiB that the guest writes and verifies.
const WRITTEN_MIB: u32 = 8;
/// QEMU's own address in its network.
const GATEWAY: &str = "10.0.2.2";

/// Boots the ZCU102's system on QEMU's, with its files on the card's first partition as `flash`
/// makes them.
pub(super) fn zcu102(tally: &mut Tally) -> Result<()> {
    let images = build_images::build(&ending("manifests/zcu102.dts", &[])?)?;
    let tools = Tools::prepare()?;
    let files = flash::files(Name::Zcu102, &images, &tools)?;
    let card = write_card("zcu102", &flash::card_image(&files, &flash::guest_disk()?)?)?;
    let tree = workspace::output_dir().join("zcu102.dtb");
    fs::write(&tree, BoardTree::zcu102_of_qemu(&tools)?.bytes())?;
    let log = workspace::output_dir().join("zcu102.log");
    let command =
        Qemu::prepare(10)?.zcu102_with_network([&images.gear1, &images.archive, &tree], &card);
    let checks = with_board(command, &log, |session| {
        session.expect(" on 4 CPUs, GICv2, 2048 MiB", BOOT)?;
        let checks = use_card(session)?;
        // The guest's frames go by the bridge and the board's own Ethernet.
        shell(session, &format!("ping -c 3 {GATEWAY}"))?;
        restart_device_vm(session, &images)?;
        Ok(checks + 3)
    })?;
    holds_mark(&card)?;
    tally.pass(checks + 1);
    Ok(())
}

/// Waits for the device VM and its guest, and lets the guest write to the card. The session ends in
/// the guest's shell.
pub(super) fn use_card(session: &mut Session) -> Result<usize> {
    session.expect(device_userland::READY, BOOT)?;
    session.send("stty cols 1000\n")?;
    let list = shell(session, "until gearctl list; do sleep 0.2; done")?;
    for vm in ["device", "linux", "control"] {
        ensure!(list.contains(vm), "{vm} is not in\n{list}");
    }
    let disks = shell(session, "cat /proc/partitions; gearctl device list")?;
    ensure!(disks.contains("/dev/mmcblk0p2"), "no card in\n{disks}");
    // The real-time VM runs beside all this, and ends after its interrupts.
    shell_within(session, "gearctl wait control stopped", LONG)?;
    session.send("gearctl console --all linux\n")?;
    session.expect(&smoke::ready("linux"), BOOT)?;
    smoke::check_input(session)?;
    shell(session, "grep '^/dev/vda / ext4' /proc/mounts")?;
    shell_within(session, &format!("{} > /run/fio", fio(WRITTEN_MIB)), LONG)?;
    fio_result(&shell(session, "cat /run/fio")?)?;
    shell(session, &format!("echo '{MARK}' > /root/mark && sync"))?;
    Ok(6)
}

/// Starts the device VM again under its guest, which goes on with its disk and network. Gear1 stops
/// the SD host controller and the Ethernet in between, and drivers find both as firmware never
/// left them.
fn restart_device_vm(session: &mut Session, images: &Images) -> Result<()> {
    let guest = images.manifest.vms.iter().find(|vm| vm.name == "linux");
    device_vm::leave(session)?;
    session.send("gearctl restart device\n")?;
    session.expect(device_userland::READY, BOOT)?;
    session.send("stty cols 1000\n")?;
    shell(session, "until gearctl list; do sleep 0.2; done")?;
    device_vm::enter(session, guest.context("no guest")?)?;
    shell_within(session, &format!("{} > /run/fio", fio(1)), LONG)?;
    fio_result(&shell(session, "cat /run/fio")?)?;
    shell(session, &format!("ping -c 3 {GATEWAY}")).map(drop)
}

/// Writes a card's image; QEMU takes cards whose size is a power of two.
pub(super) fn write_card(name: &str, image: &[u8]) -> Result<PathBuf> {
    let card = workspace::output_dir().join(format!("{name}-card.img"));
    fs::write(&card, image)?;
    let size = (image.len() as u64).next_power_of_two();
    File::options().write(true).open(&card)?.set_len(size)?;
    Ok(card)
}

/// Looks for what the guest wrote in the card's second partition, and removes the card.
pub(super) fn holds_mark(card: &Path) -> Result<()> {
    let bytes = fs::read(card)?;
    fs::remove_file(card)?;
    let disk = flash::second_partition(&bytes).context("the card has no second partition")?;
    let mut places = disk.windows(MARK.len());
    let is_there = places.any(|place| place == MARK.as_bytes());
    ensure!(is_there, "the card does not hold what the guest wrote");
    Ok(())
}
