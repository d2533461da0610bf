//! `cargo xtask bench --apps`: the papers' application benchmarks (gearv 4.4, table 9) natively,
//! under KVM, in GearV's device VM and in a guest that it serves.
//!
//! All have the same kernel, initramfs and programs, two CPUs, and a number of operations that is
//! given, not a time. With `icount` their time is the instructions of all CPUs, and what passed
//! while all of them slept: fio waits for QEMU's disk, so that its time says nothing, and its exits
//! do.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use workbench::expect::Session;
use workbench::progress::Step;
use workbench::qemu::{Boot, Console, Machine, Qemu};
use workbench::{apps_userland, build_images, payloads, workspace};
use xtask::run;

use super::column::{COUNTER, Column, SWITCH, log, source};
use super::papers;
use crate::kvm_host::KvmHost;

mod figures;

use figures::{Figure, parse};

/// The workloads, as the script calls them.
const NAMES: [&str; 7] = [
    "fio",
    "fio-depth-1",
    "fio-depth-1-cpu0",
    "fio-depth-1-cpu1",
    "sysbench-cpu",
    "sysbench-memory",
    "hackbench",
];
/// Beginning of the names of the workloads whose exits and interrupts are split by kind.
const SPLIT: &str = "fio";
/// Manifest with a device VM and a guest whose disk it serves. Both run the script, one after the
/// other.
const MANIFEST: &str = "bench-apps";
/// Placeholder in the manifest for the workloads' sizes.
const SIZES: &str = "SIZES";
/// Size of the disk: room for the 100 MiB that fio reads and writes in full size.
const DISK_BYTES: u64 = 128 << 20;
/// Memory of the native machine and of KVM's guest: as much as each VM of the manifest has, so that
/// memory pressure does not differ between places.
const MEMORY_MIB: u32 = 768;
/// Limit for a whole boot with all workloads. Under KVM the host and its guest boot before the
/// first of them.
const TIMEOUT: Duration = Duration::from_secs(1800);
/// Shell script that prints KVM's count of exits on the host's console every second. The guest
/// sleeps before and after a measurement.
const KVM_COUNTER: &str = "mount -t debugfs debug /sys/kernel/debug\n\
    while :; do echo \"EXITS $(cat /sys/kernel/debug/kvm/exits)\" > /dev/console; sleep 1; done";

/// Amount of work.
#[derive(Clone, Copy, Debug)]
pub(super) struct Size {
    /// MiB that fio reads and writes, and that sysbench writes to memory.
    mib: u32,
    /// Number of sysbench's prime searches.
    events: u32,
    /// Number of messages of each hackbench pair.
    loops: u32,
}

impl Size {
    /// A few minutes.
    const SHORT: Size = Size {
        mib: 4,
        events: 200,
        loops: 5,
    };
    /// The papers' 100 MB.
    const FULL: Size = Size {
        mib: 100,
        events: 10_000,
        loops: 100,
    };

    pub(super) const fn of(full: bool) -> Size {
        if full { Size::FULL } else { Size::SHORT }
    }

    /// Returns the words of the kernel's command line from which the script reads the sizes.
    fn words(self) -> String {
        let Size { mib, events, loops } = self;
        format!("apps.mib={mib} apps.events={events} apps.loops={loops}")
    }
}

/// Measures in all places whose names contain `only` and prints the tables.
pub(super) fn run(qemu: &Qemu, size: Size, only: &str) -> Result<()> {
    let mut all = Vec::new();
    let asked_for = |name: &str| name.contains(only);
    let names = PLACES.map(|(name, _)| name);
    ensure!(
        names.into_iter().any(asked_for),
        "no place is named {only:?}; the names: {}",
        names.join(", ")
    );
    for (name, measure) in PLACES.iter().filter(|(name, _)| asked_for(name)) {
        let step = Step::start(name);
        let printed = measure(qemu, size).with_context(|| (*name).to_owned())?;
        all.extend(parse(name, &printed)?);
        step.done(name);
    }
    let file = save(&all)?;
    let gear2 = Column::of("GearV EL0 a57 GICv3")?;
    let paths = gear2.run(qemu, false, SWITCH, None)?;
    let switch = paths.get("world_switch").map_or(0, |figure| figure.median);
    print!("{}", figures::table(&all, &NAMES));
    print!("{}", figures::kinds(&all, SPLIT));
    print!("{}", figures::interrupts(&all, SPLIT));
    print!("{}", gear2_cost(&all, switch));
    println!("\nas JSON: {}", file.display());
    Ok(())
}

/// Measures the workloads in a place, and returns what was printed.
type Measure = fn(&Qemu, Size) -> Result<String>;

/// The places, by the names that `--only` filters. Native comes first, because the tables divide by
/// it.
const PLACES: [(&str, Measure); 3] = [
    ("native", natively),
    ("KVM", under_kvm),
    ("GearV", under_gearv),
];

/// Writes the figures as JSON, and returns where.
fn save(figures: &[Figure]) -> Result<PathBuf> {
    let file = workspace::target_dir().join("bench/apps.json");
    fs::create_dir_all(file.parent().context("target")?)?;
    let text = serde_json::to_string_pretty(&figures::to_json(figures))?;
    fs::write(&file, text + "\n")?;
    Ok(file)
}

/// Returns table 8 and the result of formula 1 from it, beside the measurement.
fn gear2_cost(all: &[Figure], world_switch_ns: u64) -> String {
    let mut text = format!(
        "\n{:18} {:>14} {:>20} {:>20}\n",
        "GearV guest", "interrupts/s", "Gear2, formula 1", "Gear2, measured"
    );
    for figure in all.iter().filter(|figure| figure.place == "GearV guest") {
        let seconds = figure.ns as f64 * 1e-9;
        let frequency = figure.interrupts as f64 / seconds;
        let formula = papers::formula_1(frequency, world_switch_ns as f64);
        let measured = figure.gear2_ns as f64 / figure.ns as f64 * 100.0;
        text += &format!(
            "{:18} {frequency:>14.0} {formula:>18.3} % {measured:>18.3} %\n",
            figure.name
        );
    }
    text + &format!("(a world switch: {world_switch_ns} ns)\n")
}

/// Returns the machine of all places. Cortex-A57 is the core of the papers' board, R-Car H3.
fn machine() -> Machine {
    Machine {
        cpu: format!("cortex-a57,{}", COUNTER),
        memory_mib: MEMORY_MIB,
        icount: true,
        ..Machine::default()
    }
}

/// Makes a disk of zeroes. Each run has a fresh one, as a disk that an earlier run has written to
/// is no equal start.
fn disk(name: &str) -> Result<PathBuf> {
    let file = workspace::output_dir().join(format!("bench/apps-{name}.img"));
    fs::create_dir_all(file.parent().context("target")?)?;
    fs::File::create(&file)?.set_len(DISK_BYTES)?;
    Ok(file)
}

/// Runs the workloads on Debian's kernel without a hypervisor. The machine has no EL2, so that the
/// kernel runs at EL1 as it does in a VM.
fn natively(qemu: &Qemu, size: Size) -> Result<String> {
    let initramfs = apps_userland::initramfs(&workspace::output_dir())?;
    let kernel = payloads::debian_kernel()?;
    let command_line = format!("console=ttyAMA0 quiet {}", size.words());
    let boot = Boot {
        kernel: &kernel,
        initrd: Some(&initramfs),
        command_line: Some(&command_line),
    };
    let machine = Machine {
        disk: Some(disk("native")?),
        ..machine().without_el2()
    };
    let command = qemu.command(&machine, &boot, Console::Pipes);
    wait(Session::start(command, &log("apps-native"))?)
}

/// Runs the workloads as KVM's guest. Halt polling is off, since instructions of a host that polls
/// would count as the guest's time.
fn under_kvm(qemu: &Qemu, size: Size) -> Result<String> {
    let host = KvmHost {
        kernel: payloads::debian_kernel()?,
        initrd: Some(apps_userland::initramfs(&workspace::output_dir())?),
        command_line: format!("console=ttyAMA0 quiet {}", size.words()),
        memory_mib: MEMORY_MIB,
        cpus: vec![0, 1],
        halt_poll_ns: Some(0),
        background: KVM_COUNTER.to_owned(),
        disk: Some(disk("kvm")?),
        serves_disk: true,
        ..KvmHost::default()
    };
    let host = host.build(&workspace::output_dir().join("kvm-apps"))?;
    wait(host.start(qemu, &machine(), &log("apps-kvm"))?)
}

/// Runs the workloads under GearV, in one boot: first in the device VM, then in the guest. The
/// device VM serves the guest and prints the counters of both VMs.
fn under_gearv(qemu: &Qemu, size: Size) -> Result<String> {
    let manifest = source(MANIFEST, false, "")?;
    let text = fs::read_to_string(&manifest)?;
    ensure!(text.contains(SIZES), "{MANIFEST} does not hold {SIZES}");
    let directory = workspace::output_dir().join("bench-manifests");
    fs::create_dir_all(&directory)?;
    let manifest = directory.join("bench-apps.dts");
    fs::write(&manifest, text.replace(SIZES, &size.words()))?;
    let images = build_images::build(&manifest)?;
    let machine = Machine {
        memory_mib: run::memory_for(&images)?,
        cpus: u32::try_from(images.manifest.cpu_count)?,
        disk: Some(disk("gearv")?),
        ..machine()
    };
    wait(images.start(qemu, &machine, &log("apps-gearv"))?)
}

/// Waits for the end and returns all that was printed. A line `FAIL` is an error even if all other
/// workloads have figures: the script prints one when a program's exit code is not 0.
fn wait(mut session: Session) -> Result<String> {
    let printed = session.expect("DONE\n", TIMEOUT);
    let printed = printed.map_err(|error| anyhow!("{error:#}\n{}", session.tail(20)))?;
    let failed = printed.lines().find(|line| line.contains("FAIL "));
    match failed {
        None => Ok(printed),
        Some(line) => Err(anyhow!("{line}")),
    }
}
