//! Debian guests: what `run --smoke` checks, on every supported QEMU and CPU model.

use std::time::Duration;

use anyhow::{Context, Result, ensure};

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

/// One boot of a guest that works hard.
struct Stress {
    manifest: &'static str,
    model: &'static str,
    gic: u32,
    /// How long it works.
    seconds: u64,
    slow: bool,
}

impl Stress {
    const fn short(manifest: &'static str, model: &'static str, gic: u32) -> Stress {
        Stress {
            manifest,
            model,
            gic,
            seconds: 5,
            slow: false,
        }
    }

    const fn slow(self) -> Stress {
        Stress { slow: true, ..self }
    }

    const fn seconds(self, seconds: u64) -> Stress {
        Stress { seconds, ..self }
    }
}

/// GIC, number of vCPUs, CPU model and kernel.
const STRESS: &[Stress] = &[
    Stress::short("linux-4", "cortex-a72", 3).seconds(30).slow(),
    Stress::short("linux-4", "cortex-a53", 2).slow(),
    Stress::short("linux-6.1", "neoverse-n1", 3),
    Stress::short("linux-8", "max", 3).slow(),
    Stress::short("linux-4", "cortex-a57", 3)
        .seconds(180)
        .slow(),
    Stress::short("linux-8", "cortex-a72", 2)
        .seconds(180)
        .slow(),
    Stress::short("linux-8", "cortex-a53", 3).slow(),
    Stress::short("linux-8", "cortex-a57", 2).slow(),
    Stress::short("linux-8", "neoverse-n1", 3)
        .seconds(180)
        .slow(),
    Stress::short("linux-4", "neoverse-n1", 2).slow(),
    Stress::short("linux-4", "max", 2).slow(),
    Stress::short("linux-6.1", "cortex-a53", 2).slow(),
    Stress::short("linux-6.1", "cortex-a57", 3)
        .seconds(180)
        .slow(),
    Stress::short("linux-6.1", "cortex-a72", 2).slow(),
    Stress::short("linux-6.1", "max", 3).slow(),
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
    let stress = STRESS.iter().map(|run| {
        let Stress {
            manifest,
            model,
            gic,
            seconds,
            slow,
        } = run;
        let name = format!("linux stress {manifest} on {model}, GICv{gic}, {seconds} s");
        Part::new(name, |tally| stress(run, tally)).slow(*slow)
    });
    std::iter::once(native).chain(runs).chain(stress).collect()
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

/// What stress-ng does: computes, allocates, sets timers, waits on futexes, and has CPUs interrupt
/// each other.
const STRESSORS: &str = "--cpu 2 --cpu-method crc16 --vm 1 --vm-bytes 32m --timer 1 --timer-freq 1000 \
    --futex 2 --tlb-shootdown 1 --membarrier 1 --switch 1";

/// Boots a guest and has it work; its kernel may not warn of anything meanwhile.
fn stress(run: &Stress, tally: &mut Tally) -> Result<()> {
    let path = workspace::root().join(format!("tests/manifests/{}.dts", run.manifest));
    let images = build_images::build(&path)?;
    let machine = Machine {
        cpu: run.model.to_owned(),
        gic: run.gic,
        ..run::machine_for(&images)?
    };
    let (manifest, model, gic) = (run.manifest, run.model, run.gic);
    let log = workspace::output_dir().join(format!("stress-{manifest}-{model}-gicv{gic}.log"));
    let mut session = images.start(&Qemu::prepare(10)?, &machine, &log)?;
    let vcpus = images.manifest.vms.iter().map(|vm| vm.vcpus).sum();
    let checks = work(&mut session, run.seconds, vcpus)
        .with_context(|| build_images::last_words(&session))?;
    tally.pass(checks);
    Ok(())
}

/// Kernel messages of the level of warnings and above.
const WARNINGS: &str = "dmesg -r | grep '^<[0-4]>' || true";

fn work(session: &mut Session, seconds: u64, vcpus: usize) -> Result<usize> {
    let (before, after) = initramfs::READY;
    session.expect(&format!("{before}linux{after}"), Duration::from_secs(180))?;
    // What is typed is shown in one line then.
    session.send("stty cols 1000\n")?;
    let cpus = smoke::shell(session, "grep -c ^processor /proc/cpuinfo")?;
    ensure!(
        cpus.trim() == vcpus.to_string(),
        "{cpus:?} instead of {vcpus} CPUs"
    );
    let old = smoke::shell(session, WARNINGS)?;
    let command = format!("stress-ng {STRESSORS} --timeout {seconds}s --oomable");
    let timeout = Duration::from_secs(2 * seconds + 120);
    let result = smoke::shell_within(session, &command, timeout)?;
    ensure!(
        result.contains("successful run completed"),
        "it says {result:?}"
    );
    let new = smoke::shell(session, WARNINGS)?;
    ensure!(new == old, "the kernel warns of\n{new}");
    session.send("poweroff -f\n")?;
    session.expect_end(Duration::from_secs(60))?;
    Ok(4)
}
