//! Devices of the machine that a guest owns which Gear2 schedules.
//!
//! Requirements: G1-DMA-005, G1-GIC-018.
//!
//! The guest `own_device` counts the exits of its interrupts and resets itself; its second life
//! looks at what the first has left. The transport needs a device behind it, as QEMU's has no
//! registers to set without one.

use std::path::PathBuf;

use anyhow::Result;
use workbench::qemu::{Machine, Qemu};
use workbench::{build_images, workspace};

use crate::guests;
use crate::part::{Part, Tally};
use crate::table::{DEFAULT, TargetTest};

const MANIFEST: &str = "own-device";
/// Two lives: the devices, each CPU's interrupts and the exits beside them, CPU_ON; and what the
/// second life finds.
const ROW: TargetTest = TargetTest {
    manifest: MANIFEST,
    passes: 2 * (2 + 2 * 7 + 1) + 4,
    ..DEFAULT
};

pub(super) fn parts() -> Vec<Part> {
    let part = |(name, gic)| Part::new(name, move |tally| owns(gic, None, tally));
    let names = [
        ("a guest's own devices", 3),
        ("a guest's own devices with GICv2", 2),
    ];
    names.map(part).into()
}

/// Has the guest use its devices under another Gear1.
pub(super) fn owns_other(gear1: PathBuf, tally: &mut Tally) -> Result<()> {
    owns(3, Some(gear1), tally)
}

/// Under `icount` a guest that polls meets its interrupt between two instructions that are the same
/// in each run, so the counts are exact.
fn owns(gic: u32, gear1: Option<PathBuf>, tally: &mut Tally) -> Result<()> {
    let manifest = workspace::root().join(format!("tests/manifests/{MANIFEST}.dts"));
    let mut images = build_images::build(&manifest)?;
    images.gear1 = gear1.unwrap_or(images.gear1);
    let options = ["-device", "virtio-rng-device"];
    let machine = Machine {
        gic,
        cpus: 2,
        icount: true,
        options: options.map(Into::into).to_vec(),
        ..Machine::default()
    };
    let log = workspace::output_dir().join(format!("{MANIFEST}/gicv{gic}.log"));
    let session = images.start(&Qemu::prepare(10)?, &machine, &log)?;
    guests::conclude(session, &ROW, tally)
}
