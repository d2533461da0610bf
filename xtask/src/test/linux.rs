//! Debian guests: what `run --smoke` checks, on every supported QEMU and CPU model.

use std::time::Duration;

use anyhow::{Context, Result};

use super::{Part, Tally};
use crate::expect::Session;
use crate::qemu::{Boot, Console, Machine, Qemu};
use crate::{build_images, initramfs, payloads, run, smoke, workspace};

/// Manifest, CPU model, QEMU, reboots.
const RUNS: [(&str, &str, u32, usize); 6] = [
    ("minimal", "cortex-a57", 10, 5),
    ("minimal", "cortex-a72", 10, 1),
    ("minimal", "max", 10, 1),
    ("two-guests", "cortex-a57", 10, 1),
    ("minimal", "cortex-a57", 7, 1),
    ("two-guests", "max", 7, 1),
];

pub(super) fn parts() -> Vec<Part> {
    let native = Part::new("linux without GearV", without_gearv);
    let runs = RUNS.into_iter().map(|(manifest, model, qemu, reboots)| {
        let name = format!("linux {manifest} on {model}, QEMU {qemu}");
        Part::new(name, move |tally| {
            smoke(manifest, model, qemu, reboots, tally)
        })
    });
    std::iter::once(native).chain(runs).collect()
}

/// Shows that kernel and initramfs are good by themselves, so that a failure of the others is
/// GearV's.
fn without_gearv(tally: &mut Tally) -> Result<()> {
    let qemu = Qemu::prepare(10)?;
    let kernel = payloads::debian_kernel()?;
    let initramfs = initramfs::build(&workspace::output_dir())?;
    let boot = Boot {
        kernel: &kernel,
        initrd: Some(&initramfs),
        command_line: Some("console=ttyAMA0"),
    };
    let machine = Machine::default().without_el2();
    let command = qemu.command(&machine, &boot, Console::Pipes);
    let mut session = Session::start(command, &workspace::output_dir().join("native.log"))?;
    let (before, after) = initramfs::READY;
    let ready = session.expect(&format!("{before}native{after}"), Duration::from_secs(120));
    ready.with_context(|| session.tail(60))?;
    session.send("poweroff -f\n")?;
    session.expect_end(Duration::from_secs(60))?;
    tally.pass(1);
    Ok(())
}

fn smoke(manifest: &str, model: &str, qemu: u32, reboots: usize, tally: &mut Tally) -> Result<()> {
    let path = workspace::root().join(format!("manifests/{manifest}.dts"));
    let images = build_images::build(&path)?;
    let machine = Machine {
        cpu: model.to_owned(),
        memory_mib: run::memory_for(&images)?,
        ..Machine::default()
    };
    let qemu = Qemu::prepare(qemu)?;
    let log = format!("smoke-{manifest}-{model}.log");
    let checks = smoke::check_all(&qemu, &machine, &images, &log, reboots, &|line| {
        println!("{line}")
    })?;
    tally.pass(checks);
    Ok(())
}
