//! Stock drivers of Linux on PCI devices behind the SMMU, and the same devices in the next life of
//! their VM.
//!
//! Requirements: G1-DMA-001, G1-DMA-002, G1-DMA-007.
//!
//! The attack by `edu` (part `guest dma`) shows what devices may not do. Here devices have to work:
//! an SMMU that blocks everything would pass there.

use std::fs::{self, File};

use anyhow::{Context, Result, ensure};
use workbench::expect::Session;
use workbench::qemu::Machine;
use workbench::workspace;
use xtask::smoke::shell;

use crate::device_shell::{at_prompt, power_off, wait_for_prompt};
use crate::guests::count_verdicts;
use crate::part::{Part, Tally};
use crate::realtime::Serial;

/// Bytes of the disk, and of what is written to it.
const DISK: u64 = 64 << 20;
/// Direct I/O passes the guest's page cache by.
const WRITTEN_MIB: u32 = 48;
/// Part of Gear2's line on an access that the SMMU has aborted. One abort would be a mapping that
/// is missing for a moment, which a driver's retry could hide.
const ABORTED: &str = " may not ";

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
/// to reach them meanwhile.
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
        two_lives(session, tally)
    })?;
    let verdicts = serial.text()?;
    count_verdicts(&verdicts, tally);
    ensure!(verdicts.contains("DONE"), "the real-time VM has not ended");
    Ok(())
}

fn on_pci(manifest: &str, tally: &mut Tally) -> Result<()> {
    at_prompt(None, manifest, machine([""; 2], &[])?, |session, _| {
        two_lives(session, tally)
    })
}

/// Returns a machine with a disk and a card at these places of the bus, and more devices.
/// `iommu_platform` makes the devices use the SMMU; without it QEMU's virtio passes it by. The
/// disk's serial number tells it from any other.
fn machine(places: [&str; 2], others: &[&str]) -> Result<Machine> {
    let image = workspace::output_dir().join("pci-linux.img");
    fs::create_dir_all(workspace::output_dir())?;
    File::create(&image)?.set_len(DISK)?;
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

/// The VM uses the devices, and its next life does.
fn two_lives(session: &mut Session, tally: &mut Tally) -> Result<()> {
    uses(session).context("first life")?;
    tally.pass(1);
    session.send("reboot -f\n")?;
    wait_for_prompt(session)?;
    uses(session).context("second life")?;
    tally.pass(1);
    power_off(session)
}

/// Writes a disk, reads it back from the disk itself, and reaches the network's router. Random
/// data, so that a block from elsewhere does not match.
fn uses(session: &mut Session) -> Result<()> {
    shell(session, "cat /sys/block/vda/serial | grep -x behind")?;
    let write = format!(
        "dd if=/dev/urandom of=/run/pattern bs=1M count={WRITTEN_MIB} && \
         dd if=/run/pattern of=/dev/vda bs=1M oflag=direct && \
         dd if=/dev/vda bs=1M count={WRITTEN_MIB} iflag=direct | cmp - /run/pattern"
    );
    shell(session, &write)?;
    // The device VM's init has made the card a port of its bridge.
    shell(session, "ping -c 3 -w 30 10.0.2.2")?;
    let transcript = session.transcript();
    ensure!(!transcript.contains(ABORTED), "an access was aborted");
    Ok(())
}
