//! A case under GearV: a manifest and a machine for each run.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Result, anyhow};
use workbench::build_images::{self, Images};
use workbench::expect::Session;
use workbench::qemu::{Machine, Qemu};
use workbench::workspace;
use xtask::run;

use super::case::{Case, System};
use super::guest::{self, Report};
use super::kvm::{CPU, TURN_US};
use super::vm::{Run, Vm};
use crate::bench::column::{ensure_holds, log};

/// Longest time of a run, on an idle machine. The longest runs have 100,000 frames or jobs, each of
/// which is many instructions under `icount`.
const TIMEOUT: Duration = Duration::from_secs(900);
/// Start of the measurement, behind the boot of all VMs. The start is an instant of the physical
/// counter, which all VMs of the machine share. A VM that came later than the start would miss
/// periods, which looks like a policy that is late.
const START_MS: &str = "500";
/// Memory of each VM: the guest is small, and the least memory keeps the boot short.
const MEMORY_MIB: u32 = 8;

/// Runs the case, and returns the reports of each run.
pub(super) fn measure(qemu: &Qemu, guest: &Path, case: &Case) -> Result<Vec<Vec<Report>>> {
    let runs = case.runs.iter();
    runs.map(|run| start(qemu, guest, case, run)).collect()
}

/// Boots the system of a run. A case has a boot for each run, since a manifest names all VMs.
fn start(qemu: &Qemu, guest: &Path, case: &Case, run: &Run) -> Result<Vec<Report>> {
    let (images, machine) = prepare(guest, case, run)?;
    let mut session = images.start(qemu, &machine, &log("sched-gearv"))?;
    guest::reports(run, &wait(&mut session, run)?)
}

/// Returns the images of a run, and its machine. A machine with two CPUs runs them in short turns:
/// with turns of QEMU's default length one CPU would be far ahead of the other one in the middle of
/// a measurement.
pub(super) fn prepare(guest: &Path, case: &Case, run: &Run) -> Result<(Images, Machine)> {
    let source = write(&manifest(case, run))?;
    let images = build_images::build_below("sched", &source)?;
    ensure_holds(&images.archive, guest)?;
    let machine = Machine {
        cpu: CPU.to_owned(),
        cpus: case.cpus,
        icount: true,
        turn_us: (case.cpus > 1).then_some(TURN_US),
        memory_mib: run::memory_for(&images)?,
        ..Machine::default()
    };
    Ok((images, machine))
}

/// Waits until all VMs are done, and returns what they printed. Each VM prints `DONE` once, behind
/// its report. The order in which VMs end does not matter, as each report names its VM.
pub(super) fn wait(session: &mut Session, run: &Run) -> Result<String> {
    let mut printed = String::new();
    for _ in &run.vms {
        let more = session.expect("DONE\n", TIMEOUT);
        let last_words = || build_images::last_words(session);
        printed += &more.map_err(|error| anyhow!("{error:#}\n{}", last_words()))?;
    }
    Ok(printed)
}

/// Writes the manifest over that of the run before, as images are built from it at once.
fn write(manifest: &str) -> Result<PathBuf> {
    let directory = workspace::output_dir().join("bench-manifests");
    fs::create_dir_all(&directory)?;
    let file = directory.join("sched.dts");
    fs::write(&file, manifest)?;
    Ok(file)
}

/// Returns the manifest of a run. The text is a manifest like that of a user: the policies are
/// measured as they can be configured. A case of Linux has no manifest, and its text is empty.
fn manifest(case: &Case, run: &Run) -> String {
    let System::GearV { policy, settings } = &case.system else {
        return String::new();
    };
    let mut text = format!(
        "/dts-v1/;
/ {{
	compatible = \"gearv,manifest\";
	version = <1>;
	gear2 {{ scheduler = \"{policy}\"; {settings} }};
	vms {{
"
    );
    for (id, vm) in run.vms.iter().enumerate() {
        text += &node(id, vm, run.ms);
    }
    text + "\t};\n};\n"
}

/// Returns the node of a VM. All VMs have a console, by which they report. The names `vm0`, `vm1`
/// and so on are those that the time table's windows refer to.
fn node(id: usize, vm: &Vm, ms: u64) -> String {
    let cpus = match vm.cpu {
        Some(cpu) => format!("cpus = <{cpu}>;"),
        None => String::new(),
    };
    let (vcpus, more) = (vm.vcpus, &vm.gearv);
    let command_line = vm.command_line(id, START_MS, ms);
    format!(
        "		vm{id} {{
			vcpus = <{vcpus}>; {cpus} memory-mib = <{MEMORY_MIB}>; {more}
			image = \"artifact:guest:sched\";
			cmdline = \"{command_line}\";
			console {{ }};
		}};
"
    )
}
