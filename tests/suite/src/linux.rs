//! Debian guests: what `run --smoke` checks, on every supported QEMU and CPU model.
//!
//! A stock kernel uses far more of the architecture than the test guests do, and says by itself
//! when time or an interrupt went missing. All rows with all values would run for days. The rows
//! are chosen so that each CPU model, GIC, exception level of Gear2 and QEMU occurs in several
//! rows; most rows are left to `--slow`.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use workbench::expect::Session;
use workbench::qemu::{Boot, Console, Machine, Qemu};
use workbench::{build_images, initramfs, payloads, workspace};
use xtask::run;
use xtask::smoke::{self, Extent};

use crate::part::{Part, Tally};

/// A boot of Linux guests.
struct Run {
    /// File in `manifests`, without its ending.
    manifest: &'static str,
    /// QEMU's name of the CPU model.
    model: &'static str,
    /// Major version of QEMU.
    qemu: u32,
    /// Version of the interrupt controller.
    gic: u32,
    /// Whether Gear2 runs at EL1.
    el1: bool,
    /// How long the checks of the smoke run are.
    extent: Extent,
    slow: bool,
}

impl Run {
    /// GICv3 and Gear2 at EL0 are the defaults of GearV, and so of a row.
    const fn short(manifest: &'static str, model: &'static str, qemu: u32) -> Run {
        Run {
            manifest,
            model,
            qemu,
            gic: 3,
            el1: false,
            extent: Extent::SHORT,
            slow: false,
        }
    }

    /// For rows that add one value to what another row checks at length.
    const fn brief(manifest: &'static str, model: &'static str, qemu: u32) -> Run {
        Run {
            extent: Extent::BRIEF,
            ..Run::short(manifest, model, qemu)
        }
    }

    /// Repeats restarts, so that a leak of one restart shows.
    const fn full(manifest: &'static str, model: &'static str, qemu: u32) -> Run {
        Run {
            extent: Extent::FULL,
            ..Run::short(manifest, model, qemu)
        }
    }

    /// Another virtual GIC: MMIO in place of the system registers, and list registers in another
    /// layout.
    const fn on_gicv2(self) -> Run {
        Run { gic: 2, ..self }
    }

    /// The image is another one: it calls by HVC, and has exception vectors of its own.
    const fn at_el1(self) -> Run {
        Run { el1: true, ..self }
    }

    const fn slow(self) -> Run {
        Run { slow: true, ..self }
    }
}

/// Runs whose results `tests/README.md` lists. QEMU 7 is Debian 12's, QEMU 10 is Debian 13's, and
/// the README names both Debians. Rows that are not slow have both exception levels and both QEMUs
/// among them.
const RUNS: &[Run] = &[
    Run::short("minimal", "cortex-a57", 10).slow(),
    Run::full("minimal", "cortex-a72", 10).slow(),
    Run::short("minimal", "max", 10).slow(),
    Run::short("two-guests", "cortex-a57", 10).slow(),
    // In each run the Raspberry Pi's card shows this model with a GICv2, the R-Car's files the A57.
    Run::short("minimal", "cortex-a72", 10).on_gicv2().slow(),
    Run::short("minimal", "cortex-a57", 7).slow(),
    Run::short("two-guests", "max", 7),
    Run::brief("qemu-virt", "cortex-a57", 10),
    Run::brief("minimal", "cortex-a53", 10).at_el1(),
    Run::brief("two-guests", "neoverse-n1", 10).at_el1().slow(),
    Run::full("qemu-virt", "cortex-a72", 10).slow(),
    Run::short("qemu-virt", "cortex-a57", 7).slow(),
    Run::brief("qemu-virt", "cortex-a57", 10).on_gicv2().slow(),
    Run::brief("qemu-virt", "cortex-a57", 10).at_el1().slow(),
    Run::brief("qemu-virt", "neoverse-n1", 10).slow(),
    Run::brief("qemu-virt", "neoverse-n1", 10).at_el1().slow(),
    Run::brief("qemu-virt", "cortex-a53", 10).slow(),
    Run::brief("qemu-virt", "cortex-a53", 10)
        .on_gicv2()
        .at_el1()
        .slow(),
    Run::brief("qemu-virt", "max", 10).on_gicv2().slow(),
    Run::brief("minimal", "neoverse-n1", 10).slow(),
    Run::brief("minimal", "max", 10).on_gicv2().at_el1().slow(),
    Run::brief("two-guests", "cortex-a72", 10)
        .on_gicv2()
        .at_el1()
        .slow(),
    Run::brief("two-guests", "cortex-a53", 10).slow(),
    Run::short("two-guests", "cortex-a57", 10).on_gicv2().slow(),
];

/// A boot of a guest under load. The smoke run is mostly idle. Lost wake-ups, missed ticks and
/// stale translations need vCPUs that are preempted in the middle of something.
struct Stress {
    /// File in `tests/manifests`, without its ending: guests with stress-ng in their userland.
    manifest: &'static str,
    model: &'static str,
    /// Version of the interrupt controller.
    gic: u32,
    /// Whether Gear2 runs at EL1.
    el1: bool,
    /// Duration of the load in seconds.
    seconds: u64,
    slow: bool,
}

impl Stress {
    /// Slow unless said otherwise: a whole run has time for two of them.
    const fn new(manifest: &'static str, model: &'static str, gic: u32) -> Stress {
        Stress {
            manifest,
            model,
            gic,
            el1: false,
            seconds: 5,
            slow: true,
        }
    }

    const fn at_el1(self) -> Stress {
        Stress { el1: true, ..self }
    }

    const fn by_default(self) -> Stress {
        Stress {
            slow: false,
            ..self
        }
    }

    const fn seconds(self, seconds: u64) -> Stress {
        Stress { seconds, ..self }
    }
}

/// GIC, number of vCPUs, CPU model, kernel and where Gear2 is. A guest with more vCPUs than CPUs
/// comes first, because Gear2 preempts there all the time. 180 s are more than the times of the
/// kernel's own watches for soft lockups (20 s) and hung tasks (120 s).
const STRESS: &[Stress] = &[
    Stress::new("linux-4-on-2", "cortex-a57", 3)
        .seconds(10)
        .by_default(),
    Stress::new("linux-4-on-2", "cortex-a57", 3).seconds(30),
    Stress::new("linux-6.1", "neoverse-n1", 3),
    Stress::new("linux-4", "cortex-a53", 2).at_el1(),
    Stress::new("linux-4", "cortex-a72", 3).seconds(30),
    Stress::new("linux-4", "cortex-a57", 3).seconds(180),
    Stress::new("linux-4", "neoverse-n1", 3).at_el1(),
    Stress::new("linux-4", "max", 2),
    Stress::new("linux-8", "max", 3),
    Stress::new("linux-8", "max", 2).at_el1(),
    Stress::new("linux-8", "cortex-a53", 3),
    Stress::new("linux-8", "cortex-a57", 2),
    Stress::new("linux-8", "cortex-a57", 3).at_el1(),
    Stress::new("linux-8", "cortex-a72", 2).seconds(180),
    Stress::new("linux-8", "neoverse-n1", 3).seconds(180),
    Stress::new("linux-6.1", "cortex-a53", 2),
    Stress::new("linux-6.1", "cortex-a57", 3)
        .at_el1()
        .seconds(180),
    Stress::new("linux-6.1", "cortex-a72", 2).at_el1(),
    Stress::new("linux-6.1", "max", 3),
];

/// The native boot is first: if it fails, each row below it fails for the same reason.
pub(super) fn parts() -> Vec<Part> {
    // First, since the rows below boot this kernel, but for those of `linux-6.1`.
    let native = Part::new("linux without GearV", without_gearv);
    let runs = RUNS
        .iter()
        .map(|run| Part::new(run.name(), |tally| smoke(run, tally)).slow(run.slow));
    let stress = STRESS
        .iter()
        .map(|run| Part::new(run.name(), |tally| stress(run, tally)).slow(run.slow));
    std::iter::once(native).chain(runs).chain(stress).collect()
}

impl Run {
    /// Everything that a row can differ in is in the name, by which a filter chooses it.
    fn name(&self) -> String {
        let Run {
            manifest,
            model,
            qemu,
            gic,
            ..
        } = self;
        let place = place(self.el1);
        format!("linux {manifest} on {model}, GICv{gic}, QEMU {qemu}{place}")
    }
}

impl Stress {
    fn name(&self) -> String {
        let Stress {
            manifest,
            model,
            gic,
            seconds,
            ..
        } = self;
        let place = place(self.el1);
        format!("linux stress {manifest} on {model}, GICv{gic}, {seconds} s{place}")
    }
}

const fn place(el1: bool) -> &'static str {
    if el1 { ", Gear2 at EL1" } else { "" }
}

/// Returns the manifest, or a copy of it with Gear2 at EL1. The examples themselves say EL0, as
/// users get them, so the rows at EL1 need copies.
fn manifest(name: &str, el1: bool) -> Result<PathBuf> {
    let path = workspace::root().join(name);
    if !el1 {
        return Ok(path);
    }
    let text = with_gear2_at_el1(&fs::read_to_string(&path)?).context("no VMs")?;
    let stem = path.file_stem().context("no name")?.display();
    let copy = workspace::output_dir().join(format!("{stem}-el1.dts"));
    fs::create_dir_all(workspace::output_dir())?;
    fs::write(&copy, text)?;
    Ok(copy)
}

/// Adds the switch to a manifest's text, whether it says anything else of Gear2 or not. The text is
/// changed and not the compiled form: the copy goes the way of every manifest.
fn with_gear2_at_el1(manifest: &str) -> Option<String> {
    const SWITCH: &str = "gear2 {\n\t\tprivilege = \"el1\";";
    if let Some((before, after)) = manifest.split_once("gear2 {") {
        return Some(format!("{before}{SWITCH}{after}"));
    }
    let (before, after) = manifest.split_once("vms {")?;
    Some(format!("{before}{SWITCH}\n\t}};\n\n\tvms {{{after}"))
}

/// Shows that kernel and initramfs are good by themselves, so that a failure of the others is
/// GearV's. The machine has no EL2 there, as a guest sees it.
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

/// The checks are those of `cargo xtask run --smoke`, so that a user who runs it sees what the
/// tests saw.
fn smoke(run: &Run, tally: &mut Tally) -> Result<()> {
    let path = manifest(&format!("manifests/{}.dts", run.manifest), run.el1)?;
    let images = build_images::build(&path)?;
    let machine = Machine {
        cpu: run.model.to_owned(),
        gic: run.gic,
        ..run::machine_for(&images)?
    };
    let qemu = Qemu::prepare(run.qemu)?;
    let el = u32::from(run.el1);
    let log = format!(
        "smoke-{}-{}-gicv{}-el{el}.log",
        run.manifest, run.model, run.gic
    );
    let report = |line: &str| println!("{line}");
    let checks = smoke::check_all(&qemu, &machine, &images, &log, run.extent, &report)?;
    tally.pass(checks);
    Ok(())
}

/// Arguments of stress-ng: computing, allocation, timers, futexes, and interrupts between CPUs.
/// `--timer` needs exact wake-ups. `--membarrier` and `--futex` send SGIs to vCPUs that may not
/// run. `--tlb-shootdown` broadcasts invalidations, and `--switch` and `--vm` change translations.
pub(crate) const STRESSORS: &str = "--cpu 2 --cpu-method crc16 --vm 1 --vm-bytes 32m --timer 1 --timer-freq 1000 \
    --futex 2 --tlb-shootdown 1 --membarrier 1 --switch 1";

/// Boots a guest and has it work; its kernel may not warn of anything meanwhile.
fn stress(run: &Stress, tally: &mut Tally) -> Result<()> {
    let path = manifest(&format!("tests/manifests/{}.dts", run.manifest), run.el1)?;
    let images = build_images::build(&path)?;
    let machine = Machine {
        cpu: run.model.to_owned(),
        gic: run.gic,
        ..run::machine_for(&images)?
    };
    let (manifest, model, gic, el) = (run.manifest, run.model, run.gic, u32::from(run.el1));
    let log = format!("stress-{manifest}-{model}-gicv{gic}-el{el}.log");
    let log = workspace::output_dir().join(log);
    let mut session = images.start(&Qemu::prepare(10)?, &machine, &log)?;
    let vcpus = images.manifest.vms.iter().map(|vm| vm.vcpus).sum();
    let checks = work(&mut session, run.seconds, vcpus)
        .with_context(|| build_images::last_words(&session))?;
    tally.pass(checks);
    Ok(())
}

/// Prints the kernel's messages of the level of warnings and above, but for those on how long a
/// timer's interrupt took: in that time the vCPU may not have run, as a VM may have more vCPUs than
/// CPUs, and QEMU has more threads than the host has CPUs. Lines of the boot are compared with
/// those behind the work, so that the work alone is judged.
pub(crate) const WARNINGS: &str =
    "dmesg -r | grep '^<[0-4]>' | grep -v 'hrtimer: interrupt took [0-9]* ns' || true";

/// The number of CPUs is checked first: a vCPU that did not start would make the load lighter and
/// the row pass.
fn work(session: &mut Session, seconds: u64, vcpus: usize) -> Result<usize> {
    let (before, after) = initramfs::READY;
    session.expect(&format!("{before}linux{after}"), Duration::from_secs(180))?;
    // A wide terminal shows the typed command in one line.
    session.send("stty cols 1000\n")?;
    let cpus = smoke::shell(session, "grep -c ^processor /proc/cpuinfo")?;
    let is_all = cpus.trim() == vcpus.to_string();
    ensure!(is_all, "{cpus:?} instead of {vcpus} CPUs");
    let old = smoke::shell(session, WARNINGS)?;
    let command = format!("stress-ng {STRESSORS} --timeout {seconds}s --oomable");
    // A busy host runs the load's start and end several times as long; the load itself has its
    // time.
    let timeout = Duration::from_secs(2 * seconds + 120);
    // `--oomable`: a child that is killed for want of memory is no failure of GearV's.
    let result = smoke::shell_within(session, &command, timeout)?;
    let is_done = result.contains("successful run completed");
    ensure!(is_done, "it says {result:?}");
    let new = smoke::shell(session, WARNINGS)?;
    ensure!(new == old, "the kernel warns of\n{new}");
    session.send("poweroff -f\n")?;
    session.expect_end(Duration::from_secs(60))?;
    // The whole console is searched: what the kernel says while it goes down is in no `dmesg`.
    smoke::no_kernel_complains(session)?;
    Ok(5)
}

#[cfg(test)]
mod tests;
