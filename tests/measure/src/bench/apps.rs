//! `cargo xtask bench --apps`: the papers' application benchmarks (gearv 4.4, table 9) natively,
//! under KVM, in GearV's device VM and in a guest that it serves.
//!
//! All have the same kernel, initramfs and programs, two CPUs, and a number of operations that is
//! given, not a time. A plugin of QEMU counts the instructions of all CPUs, at each exception level,
//! and so the device model's, the VMM's and the host's as well. Each program also runs in its least
//! size, whose instructions are subtracted. Programs that depend on where Linux wakes a thread run
//! several times: the run in the middle is the figure, beside the lowest and the highest one. With
//! `icount` the time is the instructions and what
//! passed while all CPUs slept.
//!
//! Load of the machine that runs QEMU changes no instruction, so the places need no turns.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, ensure};
use workbench::expect::Session;
use workbench::progress::Step;
use workbench::qemu::{Boot, Console, Machine, Qemu};
use workbench::{apps_userland, build_images, payloads, workspace};
use xtask::run;

use super::column::{COUNTER, log, source};
use crate::kvm_host::KvmHost;
use crate::plugin;

mod figures;
mod papers;
mod places;
mod size;

use figures::{Figure, parse};
use places::{PLACES, Place, SHORT, SLICE};
pub use size::Size;
use size::{Part, Work};

/// Beginnings of the names of the workloads whose exits and interrupts are split by kind.
const SPLIT: [&str; 4] = ["fio", "tcp", "nginx", "memcached"];
/// Manifest with a device VM and a guest whose disk it serves. Both run the script, one after the
/// other.
const MANIFEST: &str = "bench-apps";
/// Placeholders in the manifest for the workloads' names and sizes, and for settings of Gear2.
const SIZES: &str = "SIZES";
const GEAR2: &str = "/* GEAR2 */";
/// The disk: QEMU's driver without a file, of 1 GiB, which answers at once. A request to a file
/// waits for the host's disk, whose time would be idle ticks in the figures.
const DISK: &str = "null-co://";
/// The device handles a request where the driver tells of it. A thread of QEMU's that has to be
/// woken first takes the host's time.
const AT_ONCE: &str = "virtio-mmio.ioeventfd=off";
/// Memory of the native machine and of KVM's guest: as much as each VM of the manifest has, so that
/// memory pressure does not differ between places.
const MEMORY_MIB: u32 = 768;
/// Tap device behind the card of KVM's guest.
const TAP: &str = "tap0";
/// Lines after which no workload ends: those of a kernel, of the script, and of GearV.
const FATAL: &[&str] = &[
    "Kernel panic",
    "FAIL ",
    build_images::HALT,
    build_images::STOPPED,
];
/// Shell script that prints KVM's count of exits on the host's console every second. The guest
/// sleeps before and after a measurement.
const KVM_COUNTER: &str = "mount -t debugfs debug /sys/kernel/debug\n\
    while :; do echo \"EXITS $(cat /sys/kernel/debug/kvm/exits)\" > /dev/console; sleep 1; done";

/// Measures in all places whose names contain `only` the workloads whose names contain one of
/// `texts`, all without any, and prints the tables.
pub(super) fn run(qemu: &Qemu, size: Size, only: &str, texts: &[String]) -> Result<()> {
    let asked_for = |place: &&Place| place.name.contains(only);
    let places: Vec<&Place> = PLACES.iter().filter(asked_for).collect();
    ensure!(
        !places.is_empty(),
        "no place is named {only:?}; the names: {}",
        PLACES.map(|place| place.name).join(", ")
    );
    let parts: Vec<Part> = places.iter().map(|place| place.part).collect();
    let work = Work::only(size, texts, &parts)?;
    let file = workspace::target_dir().join(file_of(&places, texts));
    let all = measure(qemu, work, &places, &file)?;
    print!("{}", figures::table(&all));
    for begin in SPLIT {
        print!("{}", figures::kinds(&all, begin));
        print!("{}", figures::interrupts(&all, begin));
    }
    print!("{}", figures::gear2_cost(&all));
    println!("\nas JSON: {}", file.display());
    Ok(())
}

/// Returns the file for the figures of a run. A run of a part leaves those of the last run of all.
fn file_of(places: &[&Place], texts: &[String]) -> &'static str {
    match places.len() == PLACES.len() && texts.is_empty() {
        true => "bench/apps.json",
        false => "bench/apps-part.json",
    }
}

/// Measures in those of these places that have a workload. What is measured is saved after each, as
/// a run of all takes long.
fn measure(qemu: &Qemu, work: Work<'_>, places: &[&Place], file: &Path) -> Result<Vec<Figure>> {
    let mut all = Vec::new();
    let has_work = |place: &&&Place| !work.names(place.part).is_empty();
    for place in places.iter().filter(has_work) {
        let step = Step::start(place.name);
        let figures = measure_in(qemu, work, place);
        all.extend(figures.with_context(|| place.name.to_owned())?);
        step.done(place.name);
        save(&all, file)?;
    }
    Ok(all)
}

/// Measures in a place.
fn measure_in(qemu: &Qemu, work: Work<'_>, place: &Place) -> Result<Vec<Figure>> {
    let printed = (place.run)(qemu, work, place)?;
    let mut figures = parse(place.name, &printed)?;
    let counts = fs::read_to_string(counts_of(place))?;
    figures::add_instructions(&mut figures, &counts)?;
    figures::in_the_middle(figures)
}

/// Measures small sizes natively and under GearV, if `with_disk` also under KVM and with fio, and
/// returns each workload's name with its instructions an operation natively and in GearV's guest.
/// For a test.
pub fn in_short(qemu: &Qemu, with_disk: bool) -> Result<Vec<(String, [f64; 2])>> {
    let places: &[Place] = if with_disk { &SHORT } else { &SLICE };
    let file = workspace::output_dir().join("bench/apps-short.json");
    let all = measure(
        qemu,
        Work::all(Size::SHORTEST),
        &places.iter().collect::<Vec<_>>(),
        &file,
    )?;
    let of = |place: &str, name: &str| {
        let figure = all.iter().find(|f| f.place == place && f.name == name);
        let figure = figure.with_context(|| format!("{name} was not measured in {place}"))?;
        figure.instructions_an_operation().context(name.to_owned())
    };
    let names = all.iter().filter(|figure| figure.place == places::NATIVE);
    names
        .map(|figure| {
            let name = figure.name.clone();
            let both = [of(places::NATIVE, &name)?, of(places::GUEST, &name)?];
            Ok((name, both))
        })
        .collect()
}

/// Writes the figures as JSON.
fn save(figures: &[Figure], file: &Path) -> Result<()> {
    fs::create_dir_all(file.parent().context("target")?)?;
    let text = serde_json::to_string_pretty(&figures::to_json(figures))?;
    fs::write(file, text + "\n")?;
    Ok(())
}

/// Returns the file to which QEMU's plugin writes the counts of a place.
fn counts_of(place: &Place) -> PathBuf {
    let file = format!("bench/apps-{}.counts", place.file_name());
    workspace::output_dir().join(file)
}

/// Returns the machine of a place, with the plugin that counts. Cortex-A57 is the core of the
/// papers' board, R-Car H3.
fn machine(place: &Place) -> Result<Machine> {
    let counts = counts_of(place);
    fs::create_dir_all(counts.parent().context("a folder")?)?;
    let mut plugin = plugin::build()?.into_os_string();
    plugin.push(",total=on,out=");
    plugin.push(&counts);
    Ok(Machine {
        cpu: format!("cortex-a57,{}", COUNTER),
        memory_mib: MEMORY_MIB,
        cpus: place.cpus(),
        icount: true,
        disk: Some(DISK.into()),
        options: vec!["-global".into(), AT_ONCE.into(), "-plugin".into(), plugin],
        ..Machine::default()
    })
}

/// Runs the workloads on Debian's kernel without a hypervisor. The machine has no EL2, so that the
/// kernel runs at EL1 as it does in a VM.
fn natively(qemu: &Qemu, work: Work<'_>, place: &Place) -> Result<String> {
    let initramfs = apps_userland::initramfs(&workspace::output_dir())?;
    let kernel = payloads::debian_kernel()?;
    let command_line = format!("console=ttyAMA0 quiet {}", work.words(place.part));
    let boot = Boot {
        kernel: &kernel,
        initrd: Some(&initramfs),
        command_line: Some(&command_line),
    };
    let machine = machine(place)?.without_el2();
    let command = qemu.command(&machine, &boot, Console::Pipes);
    wait(Session::start(command, &log_of(place))?, work.size)
}

/// Runs the workloads as KVM's guest. Halt polling is off, since instructions of a host that polls
/// would count as the guest's time.
fn under_kvm(qemu: &Qemu, work: Work<'_>, place: &Place) -> Result<String> {
    let machine = machine(place)?;
    let host = KvmHost {
        kernel: payloads::debian_kernel()?,
        initrd: Some(apps_userland::initramfs(&workspace::output_dir())?),
        command_line: format!("console=ttyAMA0 quiet {}", work.words(place.part)),
        memory_mib: MEMORY_MIB,
        cpus: vec![0, place.cpus() - 1],
        halt_poll_ns: Some(0),
        background: KVM_COUNTER.to_owned(),
        disk: machine.disk.clone(),
        serves_disk: true,
        tap: Some(TAP.to_owned()),
        has_peer: true,
        ..KvmHost::default()
    };
    let directory = workspace::output_dir().join(format!("apps-{}", place.file_name()));
    let session = host
        .build(&directory)?
        .start(qemu, &machine, &log_of(place))?;
    wait(session, work.size)
}

/// Runs the workloads under GearV, in one boot: first in the device VM, then in the guest. The
/// device VM serves the guest and prints the counters of both VMs.
fn under_gearv(qemu: &Qemu, work: Work<'_>, place: &Place) -> Result<String> {
    let manifest = manifest_of(work, place)?;
    let images = build_images::build(&manifest)?;
    let machine = Machine {
        memory_mib: run::memory_for(&images)?,
        cpus: u32::try_from(images.manifest.cpu_count)?,
        ..machine(place)?
    };
    wait(images.start(qemu, &machine, &log_of(place))?, work.size)
}

/// Writes the manifest of a place, and returns its path. Where two vCPUs share a CPU, both VMs have
/// one CPU.
fn manifest_of(work: Work<'_>, place: &Place) -> Result<PathBuf> {
    let mut text = fs::read_to_string(source(MANIFEST, false, "")?)?;
    let words = work.words(place.part);
    let [device, guest] = match place.cpus() {
        1 => ["<0>", "<2>"],
        _ => ["<0 1>", "<2 3>"],
    };
    for (from, to) in [
        (SIZES, words.as_str()),
        (GEAR2, place.gear2),
        ("<0 1>", device),
        ("<2 3>", guest),
    ] {
        ensure!(text.contains(from), "{MANIFEST} does not hold {from}");
        text = text.replace(from, to);
    }
    let directory = workspace::output_dir().join("bench-manifests");
    fs::create_dir_all(&directory)?;
    let manifest = directory.join(format!("bench-apps-{}.dts", place.file_name()));
    fs::write(&manifest, text)?;
    Ok(manifest)
}

/// Returns the log of a place.
fn log_of(place: &Place) -> PathBuf {
    log(&format!("apps-{}", place.file_name()))
}

/// Waits for the end and returns all that was printed. A line `FAIL` is an error even if all other
/// workloads have figures: the script prints one when a program's exit code is not 0.
fn wait(mut session: Session, size: Size) -> Result<String> {
    session.give_up_on(FATAL);
    let printed = session.expect("DONE\n", size.limit());
    let printed = printed.map_err(|error| anyhow!("{error:#}\n{}", session.tail(20)))?;
    let failed = printed.lines().find(|line| line.contains("FAIL "));
    match failed {
        None => Ok(printed),
        Some(line) => Err(anyhow!("{line}")),
    }
}

#[cfg(test)]
mod tests {
    use super::{PLACES, Place, file_of};

    #[test]
    fn a_run_of_a_part_leaves_the_figures_of_all() {
        let all: Vec<&Place> = PLACES.iter().collect();
        let texts = ["tcp-".to_owned()];
        assert_eq!(file_of(&all, &[]), "bench/apps.json");
        for (places, texts) in [
            (&all[..], &texts[..]),
            (&all[1..], &[]),
            (&all[1..], &texts),
        ] {
            assert_eq!(file_of(places, texts), "bench/apps-part.json");
        }
    }
}
