//! Functions of one PCI bus that two VMs own.
//!
//! Requirements: G1-DMA-007.
//!
//! The guest `pci_functions` says what it finds of the bus and of its function, in a VM that Gear2
//! schedules and in a real-time VM at once. Each tries to reach the other's, and both work.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, ensure};
use workbench::build_images::last_words;
use workbench::qemu::{Console, Machine, Qemu};

use crate::guests::count_verdicts;
use crate::part::{Part, Tally};
use crate::realtime::{Serial, images};

const MANIFEST: &str = "pci-functions";
/// Checks of each VM.
const CHECKS: usize = 17;
const TIMEOUT: Duration = Duration::from_secs(120);

pub(super) fn parts() -> Vec<Part> {
    let part = |(name, gic)| Part::new(name, move |tally| of_two_vms(gic, None, tally));
    let names = [
        ("PCI functions of two VMs", 3),
        ("PCI functions of two VMs with GICv2", 2),
    ];
    names.map(part).into()
}

/// Has the VMs use their functions under another Gear1, which may let them do more.
pub(super) fn of_two_vms_other(gear1: PathBuf, tally: &mut Tally) -> Result<()> {
    of_two_vms(3, Some(gear1), tally)
}

/// QEMU's SMMU stands beside a GICv3 alone; without it the guest has to be trusted.
fn of_two_vms(gic: u32, gear1: Option<PathBuf>, tally: &mut Tally) -> Result<()> {
    let manifest = if gic == 3 {
        MANIFEST
    } else {
        "pci-functions-trusted"
    };
    let images = images(manifest, gear1)?;
    let directory = images.archive.with_file_name("");
    let serial = Serial::new(&directory)?;
    let edu = ["-device", "edu,addr=1.0,dma_mask=0xffffffffff"];
    let second = ["-device", "edu,addr=2.0,dma_mask=0xffffffffff"];
    let machine = Machine {
        gic,
        cpus: 2,
        memory_mib: 128,
        smmu: gic == 3,
        icount: true,
        options: [edu, second].concat().into_iter().map(Into::into).collect(),
        second_serial: Some(serial.file.clone()),
        ..Machine::default()
    };
    let command = Qemu::prepare(10)?.command(&machine, &images.boot(), Console::Pipes);
    let mut session = images.start_by(command, &directory.join("console.log"))?;
    let ended = serial
        .wait_for("DONE", &mut session)
        .and_then(|()| session.expect("DONE", TIMEOUT));
    let passed = [
        count_verdicts(&serial.text()?, tally),
        count_verdicts(session.transcript(), tally),
    ];
    ended.map_err(|error| anyhow::anyhow!("{error:#}\n{}", last_words(&session)))?;
    ensure!(passed == [CHECKS; 2], "{passed:?} checks passed");
    Ok(())
}
