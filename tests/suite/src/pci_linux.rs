//! Stock drivers of Linux on PCI devices behind the SMMU, and the same devices in the next life of
//! their VM.
//!
//! Requirements: G1-DMA-001, G1-DMA-002, G1-DMA-007.
//!
//! The attack by `edu` (part `guest dma`) shows what devices may not do. Here devices have to work:
//! an SMMU that blocks everything would pass there.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use workbench::expect::Session;
use workbench::qemu::Machine;
use workbench::{ext4, guest_userland, workspace};
use xtask::smoke::fio::{fio, fio_result};
use xtask::smoke::{shell, shell_within};

use crate::device_shell::{at_prompt, power_off, wait_for_prompt};
use crate::guests::count_verdicts;
use crate::part::{Part, Tally};
use crate::realtime::Serial;

/// Written in each life, with direct I/O, which passes the VM's page cache by.
const WRITTEN_MIB: u32 = 16;
const WRITING: Duration = Duration::from_secs(300);
/// Part of Gear2's line on an access that the SMMU has aborted. One abort would be a mapping that
/// is missing for a moment, which a driver's retry could hide.
const ABORTED: &str = " may not ";
/// The VM that restarts all the time, with a pause of a tenth of a second, and its fewest restarts
/// in one use of the devices.
const OTHER: &str = "other";
const RESTARTS: usize = 20;

pub(super) fn parts() -> Vec<Part> {
    let part = |kind: &str, manifest: &'static str| {
        let name = format!("PCI devices of Linux in a {kind} VM");
        Part::new(name, move |tally| on_pci(manifest, tally)).slow(true)
    };
    vec![
        part("device", "pci-linux"),
        part("real-time", "pci-rt-linux"),
        part("scheduled", "pci-guest-linux"),
        Part::new(
            "PCI functions of Linux beside a real-time VM's",
            beside_another,
        )
        .slow(true),
    ]
}

/// The same devices as functions of a bus that a real-time VM has a function of, whose guest tries
/// to reach them meanwhile. The serial ports are those two VMs', so the device VM asks Gear2.
fn beside_another(tally: &mut Tally) -> Result<()> {
    let output = workspace::output_dir();
    fs::create_dir_all(&output)?;
    let serial = Serial::new(&output)?;
    let other = ["-device", "edu,addr=2.0,dma_mask=0xffffffffff"];
    let machine = Machine {
        second_serial: Some(serial.file.clone()),
        ..machine([",addr=1.0", ",addr=3.0"], &other)?
    };
    at_prompt(None, "pci-functions-linux", machine, |session, _| {
        two_lives(session, tally, |session| {
            Ok(Told {
                restarts: told_of(session, OTHER, "restarts")?,
                aborted: told_of(session, "device", "aborted_accesses")?,
            })
        })
    })?;
    let verdicts = serial.text()?;
    count_verdicts(&verdicts, tally);
    ensure!(verdicts.contains("DONE"), "the real-time VM has not ended");
    Ok(())
}

/// Returns a figure of a VM's that `gearctl info` knows.
fn told_of(session: &mut Session, vm: &str, figure: &str) -> Result<usize> {
    let command = format!("gearctl info {vm} | sed -n 's/^{figure}: //p'");
    let told = shell(session, &command)?;
    let number = told.trim().parse();
    number.with_context(|| format!("{figure} of {vm}: {told:?}"))
}

/// The VM owns the whole bridge and the second serial port; Gear2 writes to the first one.
fn on_pci(manifest: &str, tally: &mut Tally) -> Result<()> {
    let gear2 = Serial::new(&workspace::output_dir().join(manifest))?;
    let machine = Machine {
        first_serial: Some(gear2.file.clone()),
        ..machine([""; 2], &[])?
    };
    at_prompt(None, manifest, machine, |session, _| {
        two_lives(session, tally, |_| {
            let text = gear2.text()?;
            let lines = |part: &str| text.lines().filter(|line| line.contains(part)).count();
            Ok(Told {
                restarts: lines(&format!("{OTHER} restarted")),
                aborted: lines(ABORTED),
            })
        })
    })
}

/// Counts that Gear2 tells of the VMs by now.
struct Told {
    restarts: usize,
    aborted: usize,
}

/// Returns a machine with a disk and a card at these places of the bus, and more devices.
/// `iommu_platform` makes the devices use the SMMU; without it QEMU's virtio passes it by. The
/// disk's serial number tells it from any other.
fn machine(places: [&str; 2], others: &[&str]) -> Result<Machine> {
    let output = workspace::output_dir();
    let image = output.join("pci-linux.img");
    ext4::copy(&guest_userland::disk(&output)?, &image)?;
    let drive = format!("if=none,id=disk,format=raw,file={}", image.display());
    let [disk, card] = places;
    let options = [
        "-drive",
        &drive,
        "-device",
        &format!(
            "virtio-blk-pci,drive=disk,disable-legacy=on,iommu_platform=on,serial=behind{disk}"
        ),
        "-netdev",
        "user,id=net,restrict=on",
        "-device",
        &format!("virtio-net-pci,netdev=net,disable-legacy=on,iommu_platform=on,romfile={card}"),
    ];
    let options = options.iter().chain(others);
    Ok(Machine {
        smmu: true,
        cpus: 3,
        options: options.map(Into::into).collect(),
        ..Machine::default()
    })
}

/// The VM uses the devices, and its next life does, while the other VM restarts.
fn two_lives(
    session: &mut Session,
    tally: &mut Tally,
    mut ask: impl FnMut(&mut Session) -> Result<Told>,
) -> Result<()> {
    for life in 1..=2 {
        if life == 2 {
            session.send("reboot -f\n")?;
            wait_for_prompt(session)?;
        }
        let before = ask(session)?;
        uses(session).with_context(|| format!("life {life}"))?;
        let after = ask(session)?;
        ensure!(
            after.aborted == 0,
            "{} accesses were aborted",
            after.aborted
        );
        let restarts = after.restarts - before.restarts;
        ensure!(
            restarts >= RESTARTS,
            "{OTHER} restarted {restarts} times only"
        );
        println!("{OTHER} restarted {restarts} times meanwhile");
        tally.pass(1);
    }
    power_off(session)
}

/// Has fio write the disk's file system and verify what it has written, and reaches the network's
/// router.
fn uses(session: &mut Session) -> Result<()> {
    shell(session, "cat /sys/block/vda/serial | grep -x behind")?;
    shell(session, "mkdir -p /mnt && mount /dev/vda /mnt")?;
    let fio = format!("chroot /mnt {}", fio(WRITTEN_MIB));
    let said = fio_result(&shell_within(session, &fio, WRITING)?)?;
    println!("fio verified {WRITTEN_MIB} MiB: {said}");
    // The device VM's init has made the card a port of its bridge.
    shell(session, "ping -c 3 -w 30 10.0.2.2").map(drop)
}
