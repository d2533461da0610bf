//! Debian guests: what `run --smoke` checks, on every supported QEMU and CPU model.

use std::time::Duration;

use anyhow::{Context, Result};

use super::{Part, Tally};
use crate::expect::Session;
use crate::qemu::{Boot, Console, Machine, Qemu};
use crate::smoke::Extent;
use crate::{build_images, initramfs, payloads, run, smoke, workspace};

/// One boot.
struct Run {
    manifest: &'static str,
    model: &'static str,
    qemu: u32,
    gic: u32,
    extent: Extent,
    slow: bool,
}

impl Run {
    const fn short(manifest: &'static str, model: &'static str, qemu: u32) -> Run {
        Run {
            manifest,
            model,
            qemu,
            gic: 3,
            extent: Extent::SHORT,
            slow: false,
        }
    }

    const fn brief(manifest: &'static str, model: &'static str, qemu: u32) -> Run {
        Run {
            extent: Extent::BRIEF,
            ..Run::short(manifest, model, qemu)
        }
    }

    const fn full(manifest: &'static str, model: &'static str, qemu: u32) -> Run {
        Run {
            extent: Extent::FULL,
            ..Run::short(manifest, model, qemu)
        }
    }

    const fn on_gicv2(self) -> Run {
        Run { gic: 2, ..self }
    }

    const fn slow(self) -> Run {
        Run { slow: true, ..self }
    }
}

const RUNS: &[Run] = &[
    Run::full("minimal", "cortex-a57", 10),
    Run::short("minimal", "cortex-a72", 10),
    Run::short("minimal", "max", 10),
    Run::short("two-guests", "cortex-a57", 10),
    Run::short("minimal", "cortex-a72", 10).on_gicv2(),
    Run::short("minimal", "cortex-a57", 7),
    Run::short("two-guests", "max", 7),
    Run::brief("qemu-virt", "cortex-a57", 10),
    Run::full("qemu-virt", "cortex-a72", 10).slow(),
    Run::short("qemu-virt", "cortex-a57", 7).slow(),
    Run::brief("qemu-virt", "cortex-a57", 10).on_gicv2().slow(),
    Run::short("two-guests", "cortex-a57", 10).on_gicv2().slow(),
];

pub(super) fn parts() -> Vec<Part> {
    let native = Part::new("linux without GearV", without_gearv);
    let runs = RUNS.iter().map(|run| {
        let Run {
            manifest,
            model,
            qemu,
            gic,
            extent: _,
            slow,
        } = run;
        let name = format!("linux {manifest} on {model}, GICv{gic}, QEMU {qemu}");
        Part::new(name, |tally| smoke(run, tally)).slow(*slow)
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

fn smoke(run: &Run, tally: &mut Tally) -> Result<()> {
    let path = workspace::root().join(format!("manifests/{}.dts", run.manifest));
    let images = build_images::build(&path)?;
    let machine = Machine {
        cpu: run.model.to_owned(),
        gic: run.gic,
        ..run::machine_for(&images)?
    };
    let qemu = Qemu::prepare(run.qemu)?;
    let log = format!("smoke-{}-{}-gicv{}.log", run.manifest, run.model, run.gic);
    let report = |line: &str| println!("{line}");
    let checks = smoke::check_all(&qemu, &machine, &images, &log, run.extent, &report)?;
    tally.pass(checks);
    Ok(())
}
