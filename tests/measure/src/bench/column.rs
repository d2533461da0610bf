//! The columns of the benchmark: a configuration each, and how its guest is run.
//!
//! A column is what runs below the guest, the CPU model and the version of the GIC.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};
use workbench::build_images::{self, Images};
use workbench::expect::Session;
use workbench::qemu::{Boot, Console, Machine, Qemu};
use workbench::workspace;
use xtask::run;

use crate::kvm_host::{BuiltHost, KvmHost, Peer};
use crate::report::{self, Figures};
use crate::xen::{self, Guest, Xen};

/// Limit for one boot with all its rows, the device VM's boot of Linux included.
pub(super) const TIMEOUT: Duration = Duration::from_secs(600);
/// Frequency of the counter: a tick an instruction under `icount`. The 62.5 MHz of most models
/// would round each figure to 16 instructions.
pub(super) const COUNTER: &str = "cntfrq=1000000000";

/// Property of the guest in a manifest. Settings of the VM are put behind it.
const GUEST: &str = "image = \"artifact:guest:bench\";";
/// The manifest of the guest with a device that GDM serves.
pub(super) const SERVED: &str = "bench-gdm";
/// The manifests of a VM that interrupts another: by a channel, by a doorbell, and on one CPU.
pub(super) const KICK: &str = "bench-kick";
pub(super) const DOORBELL: &str = "bench-doorbell";
pub(super) const SWITCH: &str = "bench-switch";

/// Under what the guest runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Under {
    /// Nothing.
    Native,
    /// GearV, with Gear2 at EL0 or at EL1.
    GearV {
        /// Whether Gear2 is at EL1.
        el1: bool,
    },
    /// KVM on Debian's kernel, with its default halt polling or none.
    Kvm {
        /// Whether a halted vCPU polls first.
        polls: bool,
    },
    /// Debian's Xen without a dom0.
    Xen {
        /// Whether a vCPU in WFI waits in the guest, or blocks, which is the default.
        waits: bool,
    },
}

/// A run of the guest.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    /// Below the guest.
    pub under: Under,
    /// Model of QEMU's: `max` has all extensions, and the named cores lack VHE (A57) or have it
    /// (N1).
    cpu: &'static str,
    /// Version of the interrupt controller.
    pub(super) gic: u32,
}

/// All columns, in the order in which they are shown. A57 stands for cores without VHE, on which
/// KVM's host kernel is at EL1.
pub const COLUMNS: [Column; 20] = {
    const fn column(under: Under, cpu: &'static str, gic: u32) -> Column {
        Column { under, cpu, gic }
    }
    const EL0: Under = Under::GearV { el1: false };
    const EL1: Under = Under::GearV { el1: true };
    const POLLS: Under = Under::Kvm { polls: true };
    const BLOCKS: Under = Under::Kvm { polls: false };
    const XEN_WAITS: Under = Under::Xen { waits: true };
    const XEN_BLOCKS: Under = Under::Xen { waits: false };
    [
        column(Under::Native, "max", 3),
        column(Under::Native, "max", 2),
        column(Under::Native, "cortex-a57", 3),
        column(Under::Native, "cortex-a57", 2),
        column(EL0, "max", 3),
        column(EL0, "max", 2),
        column(EL0, "cortex-a57", 3),
        column(EL0, "cortex-a57", 2),
        column(EL1, "max", 3),
        column(EL1, "max", 2),
        column(EL1, "cortex-a57", 3),
        column(EL1, "cortex-a57", 2),
        column(POLLS, "cortex-a57", 3),
        column(BLOCKS, "cortex-a57", 3),
        column(POLLS, "neoverse-n1", 3),
        column(BLOCKS, "neoverse-n1", 3),
        column(XEN_WAITS, "max", 3),
        column(XEN_BLOCKS, "max", 3),
        column(XEN_WAITS, "cortex-a57", 3),
        column(XEN_BLOCKS, "cortex-a57", 3),
    ]
};

impl Column {
    /// Returns the column of this name.
    pub fn of(name: &str) -> Result<Column> {
        let column = COLUMNS.into_iter().find(|column| column.name() == name);
        column.with_context(|| format!("there is no column {name:?}"))
    }

    /// Returns the column's name; it is one in JSON and in the baseline, too. The CPU's name is
    /// what follows its last hyphen, which keeps the table's head narrow.
    pub fn name(&self) -> String {
        let under = match self.under {
            Under::Native => "native",
            Under::GearV { el1: false } => "GearV EL0",
            Under::GearV { el1: true } => "GearV EL1",
            Under::Kvm { polls: true } => "KVM polling",
            Under::Kvm { polls: false } => "KVM blocking",
            Under::Xen { waits: true } => "Xen waiting",
            Under::Xen { waits: false } => "Xen blocking",
        };
        let cpu = self.cpu.rsplit('-').next().unwrap_or(self.cpu);
        format!("{under} {cpu} GICv{}", self.gic)
    }

    /// Returns the machine, whose memory is still the default. With wall time there is no `icount`,
    /// and QEMU's CPUs run on threads of their own.
    pub(super) fn machine(&self, wall: bool) -> Machine {
        Machine {
            cpu: format!("{},{COUNTER}", self.cpu),
            gic: self.gic,
            icount: !wall,
            ..Machine::default()
        }
    }

    /// Returns the manifests whose rows are measured without Linux, a boot each: the guest alone,
    /// and beside a VM that it interrupts, which there is not natively. Two guests of Xen have no
    /// doorbell but a device of the machine's, which is no channel. Where vCPUs wait in the guest,
    /// none gives up its CPU.
    pub(super) fn manifests(&self) -> &'static [&'static str] {
        match self.under {
            Under::Native | Under::Xen { waits: true } => &["bench"],
            Under::Xen { waits: false } => &["bench", SWITCH],
            Under::GearV { .. } | Under::Kvm { .. } => &["bench", KICK, SWITCH],
        }
    }

    /// Runs the guest alone and beside a VM that it interrupts, and returns its figures. The
    /// doorbell between two guests and the guest that shares its CPUs are measured under GearV
    /// alone.
    pub fn measure(&self, qemu: &Qemu, wall: bool) -> Result<Figures> {
        let mut figures = Figures::new();
        for manifest in self.manifests() {
            figures.extend(self.run(qemu, wall, manifest, None)?);
        }
        if let Under::GearV { .. } = self.under {
            figures.extend(self.run(qemu, wall, DOORBELL, None)?);
            figures.extend(shared(self.run(qemu, wall, "bench-shared", None)?));
        }
        Ok(figures)
    }

    /// Runs the guest alone, on this Gear1 or the usual one.
    pub fn measure_paths(&self, qemu: &Qemu, gear1: Option<PathBuf>) -> Result<Figures> {
        self.run(qemu, false, "bench", gear1)
    }

    /// Runs the guest alone under GearV with another policy than the default. `gear2` and `vm` are
    /// more settings of Gear2 and of the VM. The policy's name is a part of the file's and of the
    /// log's names, so that runs of policies do not overwrite each other.
    pub fn measure_policy(
        &self,
        qemu: &Qemu,
        (policy, gear2, vm): (&str, &str, &str),
    ) -> Result<Figures> {
        let guest = build_images::build_guest("bench")?;
        let log = log(&format!("{}-{policy}", self.name().replace(' ', "-")));
        let settings = format!("scheduler = \"{policy}\"; {gear2}");
        let text = with_settings("bench", &settings)?;
        let text = replaced(&text, GUEST, &format!("{GUEST} {vm}"))?;
        let source = write_source(&format!("bench-{policy}.dts"), &text)?;
        let images = build_images::build_below("bench", &source)?;
        ensure_holds(&images.archive, &guest)?;
        let machine = machine_of(&images, self.machine(false))?;
        measure(images.start(qemu, &machine, &log)?)
    }

    /// Runs the guest with a disk served by GDM, if this column is GearV. A boot of Linux takes
    /// most of the time of such a run, so `--short` leaves it out.
    pub(super) fn measure_served(&self, qemu: &Qemu, wall: bool) -> Result<Figures> {
        match self.under {
            Under::GearV { .. } => self.run(qemu, wall, SERVED, None),
            Under::Native | Under::Kvm { .. } | Under::Xen { .. } => Ok(Figures::new()),
        }
    }

    /// Runs the guest as the manifest of this name has it, or as much of that as there is without
    /// GearV, and returns its figures.
    pub(super) fn run(
        &self,
        qemu: &Qemu,
        wall: bool,
        manifest: &str,
        gear1: Option<PathBuf>,
    ) -> Result<Figures> {
        let session = self.start(qemu, self.machine(wall), manifest, gear1)?;
        match self.under {
            Under::Xen { .. } => of_xen(&printed(session)?),
            _ => measure(session),
        }
    }

    /// Starts the guest of a manifest on this machine, which is this column's with more options.
    /// The native machine has no EL2: the guest must start at EL1, as in a VM.
    pub(super) fn start(
        &self,
        qemu: &Qemu,
        machine: Machine,
        manifest: &str,
        gear1: Option<PathBuf>,
    ) -> Result<Session> {
        let guest = build_images::build_guest("bench")?;
        let log = log(&format!("{}-{manifest}", self.name().replace(' ', "-")));
        match self.under {
            Under::Native => {
                let machine = machine.without_el2();
                let command = qemu.command(&machine, &Boot::bare(&guest), Console::Pipes);
                Session::start(command, &log)
            }
            Under::GearV { el1 } => {
                let mut images = build_images::build_below("bench", &source(manifest, el1, "")?)?;
                images.gear1 = gear1.unwrap_or(images.gear1);
                ensure_holds(&images.archive, &guest)?;
                images.start(qemu, &machine_of(&images, machine)?, &log)
            }
            Under::Kvm { polls } => {
                let host = build_host(&guest, polls, manifest)?;
                host.start(qemu, &machine, &log)
            }
            Under::Xen { waits } => {
                let (guests, cpus) = xen_guests(manifest)?;
                let xen = Xen {
                    kernel: &guest,
                    guests,
                    waits_in_guest: waits,
                };
                let directory = format!("{}-{manifest}", self.name().replace(' ', "-"));
                let directory = workspace::output_dir().join("xen").join(directory);
                xen.start(qemu, &Machine { cpus, ..machine }, &directory, &log)
            }
        }
    }
}

/// Returns the machine with the CPUs and the memory that images need. The manifest decides on both,
/// so that no CPU is there that no VM has.
pub(super) fn machine_of(images: &Images, machine: Machine) -> Result<Machine> {
    Ok(Machine {
        memory_mib: run::memory_for(images)?,
        cpus: u32::try_from(images.manifest.cpu_count)?,
        ..machine
    })
}

/// End of the names of rows that are measured beside another VM on the same CPUs.
pub(super) const SHARED: &str = "_shared";

/// Returns the rows of waits of a guest that shares its CPUs, under names of their own. The others
/// are as long as without the other VM.
fn shared(figures: Figures) -> Figures {
    let waits = ["timer_wfi", "ipi_wfi_entry"];
    let rows = figures.into_iter();
    rows.filter(|(row, _)| waits.contains(&row.as_str()))
        .map(|(row, figure)| (format!("{row}{SHARED}"), figure))
        .collect()
}

/// Builds the host of what a manifest describes. The initramfs is checked to hold the guest, as
/// GearV's archive is. Hosts with and without polling have folders of their own, because the build
/// of one would replace the other.
fn build_host(guest: &Path, polls: bool, manifest: &str) -> Result<BuiltHost> {
    let directory = if polls { "kvm-polling" } else { "kvm-blocking" };
    let directory = workspace::output_dir().join(directory).join(manifest);
    let host = kvm_host(guest, polls, manifest).build(&directory)?;
    ensure_holds(host.initramfs(), guest)?;
    Ok(host)
}

/// Returns the host of what a manifest describes: two vCPUs, or two VMs that interrupt each other.
/// The roles on the command line are those of GearV's manifests. `bench-switch` has both VMs on CPU
/// 0, where a wake-up of one must take the CPU from the other.
fn kvm_host(guest: &Path, polls: bool, manifest: &str) -> KvmHost {
    let host = KvmHost {
        kernel: guest.to_owned(),
        cpus: vec![0, 1],
        memory_mib: 32,
        halt_poll_ns: (!polls).then_some(0),
        ..KvmHost::default()
    };
    let (command_line, cpu) = match manifest {
        KICK => ("role=1", 1),
        SWITCH => ("role=1 switch=1", 0),
        _ => return host,
    };
    KvmHost {
        command_line: command_line.to_owned(),
        cpus: vec![0],
        peer: Some(Peer {
            command_line: "role=2".to_owned(),
            cpus: vec![cpu],
        }),
        ..host
    }
}

/// Returns Xen's guests of what a manifest describes, and the number of CPUs. Xen pins no vCPU
/// without a toolstack: two guests share a CPU if the machine has one only.
fn xen_guests(manifest: &str) -> Result<(&'static [Guest<'static>], u32)> {
    const fn guest(vcpus: u32, command_line: &str) -> Guest<'_> {
        Guest {
            vcpus,
            command_line,
        }
    }
    match manifest {
        "bench" => Ok((&const { [guest(2, "")] }, 2)),
        SWITCH => Ok((
            &const { [guest(1, "role=1 switch=1"), guest(1, "role=2")] },
            1,
        )),
        _ => bail!("{manifest} is not measured under Xen"),
    }
}

/// Returns a manifest of `tests/manifests`, with Gear2 at EL1 if that is wanted and these words on
/// the guest's command line. A changed manifest with Gear2 at EL1 gets a file name of its own, so
/// that columns of both privileges do not share a build.
pub(super) fn source(name: &str, el1: bool, command_line: &str) -> Result<PathBuf> {
    let path = manifest(name);
    if !el1 && command_line.is_empty() {
        return Ok(path);
    }
    let mut text = match el1 {
        true => with_settings(name, "privilege = \"el1\";")?,
        false => fs::read_to_string(&path).with_context(|| path.display().to_string())?,
    };
    if !command_line.is_empty() {
        let (from, to) = match name {
            SERVED => ("\"role=3", format!("\"{command_line} role=3")),
            KICK | DOORBELL | SWITCH => ("\"role=1", format!("\"{command_line} role=1")),
            _ => (GUEST, format!("{GUEST} cmdline = \"{command_line}\";")),
        };
        text = replaced(&text, from, &to).context(name.to_owned())?;
    }
    let variant = if el1 { "-el1" } else { "" };
    write_source(&format!("{name}{variant}.dts"), &text)
}

/// Returns the path of a manifest of `tests/manifests`.
fn manifest(name: &str) -> PathBuf {
    workspace::root().join(format!("tests/manifests/{name}.dts"))
}

/// Returns a manifest of `tests/manifests` with settings of Gear2. The node `gear2` stands in front
/// of `vms`, as in the manifests of the repository.
fn with_settings(name: &str, settings: &str) -> Result<String> {
    let path = manifest(name);
    let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let gear2 = format!("\tgear2 {{ {settings} }};\n\n\tvms {{");
    replaced(&text, "\tvms {", &gear2).context(name.to_owned())
}

/// Writes a manifest that differs from the one in the repository.
fn write_source(name: &str, text: &str) -> Result<PathBuf> {
    let directory = workspace::output_dir().join("bench-manifests");
    fs::create_dir_all(&directory)?;
    let file = directory.join(name);
    fs::write(&file, text)?;
    Ok(file)
}

/// Replaces a text that must be there. A replacement that finds nothing would measure another
/// system under this name.
fn replaced(text: &str, from: &str, to: &str) -> Result<String> {
    ensure!(text.contains(from), "the manifest does not hold {from}");
    Ok(text.replace(from, to))
}

/// Returns the file for the console of a machine.
pub(super) fn log(what: &str) -> PathBuf {
    workspace::output_dir().join(format!("bench/{what}.log"))
}

/// Refuses a file that does not hold the guest byte by byte: all columns measure the same program.
pub(super) fn ensure_holds(container: &Path, guest: &Path) -> Result<()> {
    let (content, guest) = (fs::read(container)?, fs::read(guest)?);
    let holds = content
        .windows(guest.len())
        .any(|window| window == guest.as_slice());
    ensure!(holds, "{} holds another guest", container.display());
    Ok(())
}

/// Samples that the guest takes of each row (`ITERATIONS` of `tests/guests/src/bin/bench.rs`).
const SAMPLES: u64 = 1_000;

/// Reads the figures from Xen's console. A row with more samples or fewer than the guest takes is
/// an error: a console that cuts lines in another way than Debian's Xen would lose samples.
fn of_xen(console: &str) -> Result<Figures> {
    let figures = report::parse(&xen::guest_lines(console));
    ensure!(!figures.is_empty(), "Xen's console has no row");
    for (row, figure) in &figures {
        let count = figure.count();
        ensure!(
            count == SAMPLES,
            "Xen's console has {count} samples of {row} instead of {SAMPLES}"
        );
    }
    Ok(figures)
}

/// Waits for the benchmark's end and reads its figures.
pub(super) fn measure(session: Session) -> Result<Figures> {
    Ok(report::parse(&printed(session)?))
}

/// Waits for the benchmark's end and returns what it printed. A failed check of the guest is an
/// error even with all figures there: a wrong path may be a short one.
pub(super) fn printed(mut session: Session) -> Result<String> {
    let printed = session.expect("DONE\n", TIMEOUT);
    let last_words = || build_images::last_words(&session);
    let printed = printed.map_err(|error| anyhow!("{error:#}\n{}", last_words()))?;
    ensure!(
        printed.contains("BENCH ") && !printed.contains("FAIL "),
        "it was not measured:\n{}",
        last_words()
    );
    Ok(printed)
}
