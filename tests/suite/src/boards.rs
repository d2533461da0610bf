//! Boot of the images that `flash` writes: QEMU's `virt` through U-Boot, and the boards that QEMU
//! has.
//!
//! A file that `flash` writes is used by firmware that no test has. U-Boot on QEMU is the nearest
//! one that reads the same scripts, images and partitions.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::ValueEnum as _;
use workbench::board::Name;
use workbench::build_images::{self, Images};
use workbench::expect::Session;
use workbench::qemu::{Machine, Qemu};
use workbench::tools::Tools;
use workbench::{device_userland, initramfs, payloads, workspace};
use xtask::flash::{self, CardFile};
use xtask::run;
use xtask::smoke::{self, ESCAPE, Extent, shell};

use crate::part::{Part, Tally};

mod rpi4;
mod served;

/// U-Boot loads Gear1 and an archive with Debian's kernel from its card before the boot of Linux
/// begins.
const BOOT: Duration = Duration::from_secs(300);

/// Four lives of a bare-metal guest, and Gear1's boot.
const LIVES: Duration = Duration::from_secs(60);

pub(super) fn parts() -> Vec<Part> {
    // Each way of U-Boot's runs once in short: the FIT with a device VM, booti with the R-Car's
    // files.
    vec![
        Part::new("U-Boot starts GearV by booti", |tally| {
            u_boot("booti", "boot.scr", tally)
        })
        .slow(true),
        Part::new("U-Boot starts GearV by a FIT", |tally| {
            u_boot("bootm", "fit.scr", tally)
        })
        .slow(true),
        Part::new("U-Boot starts the device VM's system by booti", |tally| {
            u_boot_system("booti", "boot.scr", tally)
        })
        .slow(true),
        Part::new("U-Boot starts the device VM's system by a FIT", |tally| {
            u_boot_system("bootm", "fit.scr", tally)
        }),
        Part::new("the R-Car H3's system runs on four banks", rcar_h3_banks).slow(true),
        Part::new("the R-Car H3's files run on virt by booti", |tally| {
            rcar_h3("booti", "boot.scr", tally)
        }),
        Part::new("the R-Car H3's files run on virt by a FIT", |tally| {
            rcar_h3("bootm", "fit.scr", tally)
        })
        .slow(true),
        // With four emulated CPUs the part takes two and a half minutes of both CPUs of a host.
        Part::new(
            "the device VM of raspi4b serves its card",
            rpi4::served_card,
        )
        .slow(true),
        Part::new("the Raspberry Pi's card runs on raspi4b", rpi4::pl011).slow(true),
        Part::new("the mini-UART of raspi4b", rpi4::mini_uart),
        Part::new(
            "the mini-UART of raspi4b is the device VM's",
            rpi4::mini_uart_of_device_vm,
        )
        .slow(true),
        Part::new(
            "the device VM of xlnx-zcu102 serves its card",
            served::zcu102,
        ),
        Part::new("Gear2 has the UART of xlnx-zcu102", zcu102_console),
        Part::new(
            "bus masters of xlnx-zcu102 stop with their VM",
            stopped_masters,
        ),
        Part::new("the i.MX 8M Plus's system runs on imx8mp-evk", imx8mp_evk),
        Part::new("images of boards are the same twice", same),
    ]
}

/// Returns a card's files with the script of this name as the one that U-Boot starts. A card's
/// `boot.scr` is what U-Boot runs by itself, so the other way to boot is put in its place.
fn files_with(board: Name, images: &Images, script: &str) -> Result<Vec<CardFile>> {
    let mut files = flash::files(board, images, &Tools::prepare()?)?;
    let wanted = files.iter().find(|(name, _)| name == script);
    let wanted = wanted.map(|(_, bytes)| bytes.clone());
    let wanted = wanted.with_context(|| format!("no {script}"))?;
    for (name, bytes) in &mut files {
        if name == "boot.scr" {
            bytes.clone_from(&wanted);
        }
    }
    Ok(files)
}

/// Writes a card whose script is the one named, as `NAME.img`. Cards are made in whole, with their
/// partition table: U-Boot has to find the partition by itself.
fn write_card(name: &str, board: Name, images: &Images, script: &str) -> Result<PathBuf> {
    let card = workspace::output_dir().join(format!("{name}.img"));
    let bytes = flash::card_image(&files_with(board, images, script)?, &[])?;
    fs::write(&card, bytes)?;
    Ok(card)
}

/// Boots a card with the minimal system whose script is the one named. The minimal system has no
/// disk of its own, so the card can be the machine's disk. Each script says its way: without a look
/// at that, a `boot.scr` that was not replaced would pass.
fn u_boot(command: &str, script: &str, tally: &mut Tally) -> Result<()> {
    let images = build_images::build(&build_images::smallest_manifest())?;
    let name = format!("u-boot-{command}");
    let card = write_card(&name, Name::QemuVirt, &images, script)?;
    let machine = Machine {
        disk: Some(card.clone()),
        firmware: Some(payloads::u_boot_qemu()?),
        ..run::machine_for(&images)?
    };
    let log = format!("{name}.log");
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

/// Boots a card with the device VM's system until its guest, reached from the device VM, has hashed
/// its input. The card is an NVMe disk beside the device VM's disk. A device VM that is started by
/// U-Boot must find its devices as U-Boot has left them.
fn u_boot_system(command: &str, script: &str, tally: &mut Tally) -> Result<()> {
    let images = build_images::build(&build_images::default_manifest())?;
    let name = format!("u-boot-system-{command}");
    let card = write_card(&name, Name::QemuVirt, &images, script)?;
    let machine = run::machine_for(&images)?;
    let checks = with_card(&name, &images, machine, card, |session| {
        use_system(session, command)
    })?;
    tally.pass(checks);
    Ok(())
}

/// Boots a machine by U-Boot from a card, which is an NVMe disk, and removes the card behind the
/// test.
fn with_card(
    name: &str,
    images: &Images,
    machine: Machine,
    card: PathBuf,
    test: impl FnOnce(&mut Session) -> Result<usize>,
) -> Result<usize> {
    let machine = Machine {
        card: Some(card.clone()),
        firmware: Some(payloads::u_boot_qemu()?),
        ..machine
    };
    let log = workspace::output_dir().join(format!("{name}.log"));
    let mut session = images.start(&Qemu::prepare(10)?, &machine, &log)?;
    let outcome = test(&mut session);
    let outcome = outcome.with_context(|| build_images::last_words(&session));
    drop(session);
    fs::remove_file(card)?;
    outcome
}

/// The guest's root must be the disk that GDM serves it, behind a driver of the device VM's.
fn use_system(session: &mut Session, command: &str) -> Result<usize> {
    session.expect(&format!("GearV by {command}"), BOOT)?;
    session.expect(device_userland::READY, BOOT)?;
    session.send("stty cols 1000\n")?;
    let list = shell(session, "until gearctl list; do sleep 0.2; done")?;
    // The list shows that the device model reaches Gear2.
    for vm in ["device", "linux"] {
        ensure!(list.contains(vm), "{vm} is not in\n{list}");
    }
    session.send("gearctl console --all linux\n")?;
    let (before, after) = initramfs::READY;
    session.expect(&format!("{before}linux{after}"), BOOT)?;
    smoke::check_input(session)?;
    // The guest's root is a disk only if the device VM has served it one.
    let disk = shell(session, "mount")?;
    ensure!(disk.contains("/dev/vda on / "), "its root is\n{disk}");
    Ok(4)
}

/// A `virt` that comes near an R-Car H3: eight Cortex-A57, a GICv2, PSCI by SMC. QEMU has no R-Car
/// H3; docs/boards/rcar-h3.md lists what stays unseen.
fn near_rcar_h3(images: &Images) -> Result<Machine> {
    Ok(Machine {
        gic: 2,
        cpus: 8,
        memory_mib: 4096,
        ..run::machine_for(images)?
    })
}

/// Boots the R-Car H3's system with the memory in four banks, each a node of the tree as on the
/// board. Init must read all nodes: a memory of one node is what QEMU has otherwise.
fn rcar_h3_banks(tally: &mut Tally) -> Result<()> {
    let images = build_images::build(&workspace::root().join("manifests/rcar-h3.dts"))?;
    let machine = Machine {
        banks: 4,
        ..near_rcar_h3(&images)?
    };
    let log = workspace::output_dir().join("rcar-h3-banks.log");
    let mut session = images.start(&Qemu::prepare(10)?, &machine, &log)?;
    let outcome = reach_both(&mut session);
    tally.pass(outcome.with_context(|| build_images::last_words(&session))?);
    Ok(())
}

/// Boots the files of `flash --board rcar-h3` as they are, from a card by U-Boot. The memory of
/// `virt` begins below the board's, and has all addresses that the script names. The addresses in
/// the script are the board's, not the machine's.
fn rcar_h3(command: &str, script: &str, tally: &mut Tally) -> Result<()> {
    let images = build_images::build(&workspace::root().join("manifests/rcar-h3.dts"))?;
    let name = format!("u-boot-rcar-{command}");
    let card = write_card(&name, Name::RcarH3, &images, script)?;
    let machine = near_rcar_h3(&images)?;
    let checks = with_card(&name, &images, machine, card, |session| {
        session.expect(&format!("GearV by {command}"), BOOT)?;
        reach_both(session)
    })?;
    // One for the way by which U-Boot started.
    tally.pass(1 + checks);
    Ok(())
}

/// Waits for both guests, and makes one hash its input. Both guests start at once, so either may be
/// first.
fn reach_both(session: &mut Session) -> Result<usize> {
    // All banks and CPUs were found, by init's own line.
    session.expect(" on 8 CPUs, GICv2, 4096 MiB", BOOT)?;
    let (before, after) = initramfs::READY;
    let [fast, frugal] = ["fast", "frugal"].map(|name| format!("{before}{name}{after}"));
    let (_, first) = session.expect_any(&[&fast, &frugal], BOOT)?;
    // `expect` looks behind the first match only, so the other name is awaited.
    session.expect(if first == 0 { &frugal } else { &fast }, BOOT)?;
    smoke::focus(session, 0, "fast")?;
    smoke::check_input(session)?;
    Ok(4)
}

/// Boots a system without a device VM on QEMU's ZCU102: one guest hashes its input, the other's
/// timer ticks, and the real-time VM takes its interrupts without exits. Gear2 has the board's
/// UART. The tree is that of Debian's kernel package, as a board's firmware would hand it over.
fn zcu102_console(tally: &mut Tally) -> Result<()> {
    // The copy ends the real-time VM after its interrupts, which says that it got them.
    let manifest = ending("tests/manifests/zcu102-console.dts", &[])?;
    let images = build_images::build(&manifest)?;
    let tree = payloads::zcu102_device_tree()?;
    let log = workspace::output_dir().join("zcu102-console.log");
    // QEMU starts Gear1 at EL2 in place of the board's firmware.
    let command = Qemu::prepare(10)?.zcu102([&images.gear1, &images.archive, &tree], None);
    tally.pass(with_board(command, &log, use_zcu102)?);
    Ok(())
}

/// A VM that leaves an SD host controller, a GEM and a CAN controller running finds them stopped in
/// each of its next lives.
fn stopped_masters(tally: &mut Tally) -> Result<()> {
    let images = build_images::build(&workspace::root().join("tests/manifests/bus-masters.dts"))?;
    let tree = payloads::zcu102_device_tree()?;
    let log = workspace::output_dir().join("bus-masters.log");
    let command = Qemu::prepare(10)?.zcu102([&images.gear1, &images.archive, &tree], None);
    tally.pass(with_board(command, &log, see_stopped)?);
    Ok(())
}

/// Waits for four lives, and counts those that have found all devices stopped. The first life finds
/// what firmware has left, and so says nothing.
fn see_stopped(session: &mut Session) -> Result<usize> {
    for life in 0..4 {
        session.expect("found [", LIVES)?;
        let line = session.expect("\n", LIVES)?;
        ensure!(line.ends_with("left [1ff, c, 2]"), "no mark stays: {line}");
        let is_stopped = line.starts_with("0, 0, 0]");
        ensure!(life == 0 || is_stopped, "devices run on: {line}");
    }
    Ok(3)
}

/// Boots the i.MX 8M Plus EVK's system on QEMU's: the real-time VM takes its interrupts without
/// exits, and Gear2 has the console. QEMU connects no virtual interrupt before 10.0.3, so that the
/// other VMs wait for their first one.
fn imx8mp_evk(tally: &mut Tally) -> Result<()> {
    let images = build_images::build(&ending("manifests/imx8mp-evk.dts", &[])?)?;
    let tree = payloads::imx8mp_evk_device_tree()?;
    let log = workspace::output_dir().join("imx8mp-evk.log");
    let command = Qemu::prepare(10)?.imx8mp_evk([&images.gear1, &images.archive, &tree]);
    tally.pass(with_board(command, &log, use_imx8mp_evk)?);
    Ok(())
}

/// Copies a manifest, with words of it replaced. The real-time VM, which has no console, turns
/// itself off after 3,000 interrupts of its timer. Interrupts are counted inside of the VM. Its end
/// is the only sign that it can give. Kernels have no page table isolation, which takes QEMU's time
/// (`tests/README.md`).
fn ending(manifest: &str, replaced: &[(&str, &str)]) -> Result<PathBuf> {
    let path = workspace::root().join(manifest);
    let mut text = fs::read_to_string(&path)?;
    for (words, others) in replaced {
        ensure!(text.contains(words), "no {words} in {manifest}");
        text = text.replace(words, others);
    }
    let text = text.replace("\"console=", "\"kpti=0 console=");
    let (before, own) = text.split_once("\t\tcontrol {\n").context("no control")?;
    let name = path.file_stem().context("no name")?.to_string_lossy();
    let file = workspace::output_dir().join(format!("{name}-ending.dts"));
    let periods = "\t\tcontrol {\n\t\t\tcmdline = \"periods=3000\";\n";
    fs::write(&file, format!("{before}{periods}{own}"))?;
    Ok(file)
}

/// Waits until the real-time VM of [`ending`] has turned itself off, if it has not. The end may
/// come before or after the other checks: `expect` would not find a text that another wait has
/// passed already.
fn see_it_end(session: &mut Session) -> Result<()> {
    let end = "gear2: control turned itself off";
    if session.transcript().contains(end) {
        return Ok(());
    }
    session.expect(end, BOOT).map(drop)
}

/// Starts a board's machine, and uses it. A line that says a gear has failed ends the wait at once.
fn with_board(
    command: Command,
    log: &Path,
    test: impl FnOnce(&mut Session) -> Result<usize>,
) -> Result<usize> {
    let mut session = Session::start(command, log)?;
    session.give_up_on(build_images::FATAL);
    let outcome = test(&mut session);
    outcome.with_context(|| build_images::last_words(&session))
}

/// CPUs, GIC and memory in init's line show that it read the board's tree as it is.
fn use_zcu102(session: &mut Session) -> Result<usize> {
    session.expect(" on 4 CPUs, GICv2, 2048 MiB", BOOT)?;
    smoke::reach_guest(session, "linux")?;
    see_it_end(session)?;
    session.send(&format!("{ESCAPE}1"))?;
    session.expect("control loop: 2000 periods", BOOT)?;
    Ok(4)
}

/// The list is asked for by a key, which shows that Gear2 has input as well.
fn use_imx8mp_evk(session: &mut Session) -> Result<usize> {
    session.expect(" on 4 CPUs, GICv3, 1024 MiB", BOOT)?;
    see_it_end(session)?;
    session.send(&format!("{ESCAPE}l"))?;
    session.expect("gear2: 2 control stopped", BOOT)?;
    Ok(3)
}

/// Returns the manifest that a board's files are made of here.
fn manifest_for(board: Name) -> PathBuf {
    workspace::root().join(match board {
        Name::QemuVirt => "manifests/minimal.dts".to_owned(),
        Name::Rpi4 | Name::RcarH3 | Name::Zcu102 | Name::Imx8mpEvk => {
            format!("manifests/{}.dts", board.text())
        }
    })
}

/// Two builds of each board's files give the same bytes. A time or a path in a file would make two
/// builds differ. The names of files are compared, because `flash` looks for foreign files of these
/// names before it builds anything.
fn same(tally: &mut Tally) -> Result<()> {
    let tools = Tools::prepare()?;
    for board in Name::value_variants() {
        let manifest = manifest_for(*board);
        let make = || -> Result<Vec<u8>> {
            let images = build_images::build(&manifest)?;
            flash::card_image(&flash::files(*board, &images, &tools)?, &[])
        };
        // Whole cards are compared, with partition table and file system.
        let is_same = make()? == make()?;
        ensure!(is_same, "two images for {} differ", board.text());
        let files = flash::files(*board, &build_images::build(&manifest)?, &tools)?;
        let names = files.iter().map(|(name, _)| name.as_str());
        let is_told = names.eq(flash::own_names(*board));
        ensure!(is_told, "{} has files that it does not tell", board.text());
        tally.pass(1);
    }
    Ok(())
}
