//! `cargo xtask bench`: one benchmark guest natively, under GearV and under KVM, side by side.
//!
//! By default one instruction is one nanosecond of virtual time, so that figures are path
//! lengths and repeat exactly. The guest's bytes are the same in all columns.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use clap::Args;
use workbench::cache::sha256;
use workbench::expect::Session;
use workbench::progress::Step;
use workbench::qemu::{Boot, Console, Machine, Qemu};
use workbench::{build_images, workspace};
use xtask::run;

use crate::kvm_host::{KvmHost, Peer};
use crate::report::{self, Counts, Figures, Results};

pub mod apps;
pub mod baseline;
pub mod breakdown;
mod footprint;
mod papers;
mod table;
pub mod wake;

const TIMEOUT: Duration = Duration::from_secs(600);
/// A counter tick an instruction: most models' own frequency cannot show short paths.
const COUNTER: &str = "cntfrq=1000000000";
const QEMU: u32 = 10;
/// Over the page of plots, and below it.
const TITLE: &str = "GearV: path lengths";
const NOTES: &[&str] = &[
    "Instructions of all CPUs together, one a nanosecond of virtual time: path lengths, which repeat exactly, and no times. Caches, TLBs and barriers cost nothing in them.",
];

/// The options of `bench`.
#[derive(Args, Debug)]
pub struct Options {
    /// Only the columns, or places of --apps, whose names contain this: native, GearV, KVM, max,
    /// GICv2, ...
    #[arg(long, value_name = "TEXT", default_value = "")]
    only: String,
    /// The major version of QEMU: 10, or Debian 12's 7
    #[arg(long, value_name = "VERSION", default_value_t = QEMU)]
    qemu: u32,
    /// Leave out the rows that need Linux in a device VM
    #[arg(long)]
    short: bool,
    /// Measure wall time instead of instructions
    #[arg(long)]
    wall: bool,
    /// Also write all figures and samples to this file, instead of target/bench/bench.json
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Show what has changed since a run whose JSON this is
    #[arg(long, value_name = "OLD.json")]
    compare: Option<PathBuf>,
    /// Write GearV's figures into the baseline that `test` compares with
    #[arg(long)]
    accept: bool,
    /// Show what Gear1 executes for this row, by function, in the first column of GearV's that
    /// `--only` leaves
    #[arg(long, value_name = "ROW")]
    breakdown: Option<String>,
    /// Measure only Gear1's size and its work between reset and the first VM; a run of all columns
    /// does so too
    #[arg(long)]
    footprint: bool,
    /// Measure fio, sysbench and hackbench natively, under KVM and under GearV
    #[arg(long)]
    apps: bool,
    /// With --apps, as much as the papers have, which takes long
    #[arg(long, requires = "apps")]
    full: bool,
    /// Measure how long a signal takes to a program of the device VM, and natively
    #[arg(long, exclusive = true)]
    wake: bool,
}

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
}

/// A run of the guest.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    /// Below the guest.
    pub under: Under,
    cpu: &'static str,
    gic: u32,
}

/// All columns, in the order in which they are shown.
pub const COLUMNS: [Column; 16] = {
    const fn column(under: Under, cpu: &'static str, gic: u32) -> Column {
        Column { under, cpu, gic }
    }
    const EL0: Under = Under::GearV { el1: false };
    const EL1: Under = Under::GearV { el1: true };
    const POLLS: Under = Under::Kvm { polls: true };
    const BLOCKS: Under = Under::Kvm { polls: false };
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
    ]
};

impl Column {
    /// Returns the column of this name.
    pub fn of(name: &str) -> Result<Column> {
        let column = COLUMNS.into_iter().find(|column| column.name() == name);
        column.with_context(|| format!("there is no column {name:?}"))
    }

    /// Returns the column's name; it is one in JSON and in the baseline, too.
    pub fn name(&self) -> String {
        let under = match self.under {
            Under::Native => "native",
            Under::GearV { el1: false } => "GearV EL0",
            Under::GearV { el1: true } => "GearV EL1",
            Under::Kvm { polls: true } => "KVM polling",
            Under::Kvm { polls: false } => "KVM blocking",
        };
        let cpu = self.cpu.rsplit('-').next().unwrap_or(self.cpu);
        format!("{under} {cpu} GICv{}", self.gic)
    }

    /// Returns the machine, whose memory is still the default.
    fn machine(&self, wall: bool) -> Machine {
        Machine {
            cpu: format!("{},{COUNTER}", self.cpu),
            gic: self.gic,
            icount: !wall,
            ..Machine::default()
        }
    }

    /// Runs the guest alone and beside a VM that it interrupts, and returns its figures.
    pub fn measure(&self, qemu: &Qemu, wall: bool) -> Result<Figures> {
        let mut figures = self.run(qemu, wall, "bench", None)?;
        if self.under != Under::Native {
            figures.extend(self.run(qemu, wall, "bench-kick", None)?);
            figures.extend(self.run(qemu, wall, "bench-switch", None)?);
        }
        Ok(figures)
    }

    /// Runs the guest alone, on this Gear1 or the usual one.
    pub fn measure_paths(&self, qemu: &Qemu, gear1: Option<PathBuf>) -> Result<Figures> {
        self.run(qemu, false, "bench", gear1)
    }

    /// Runs the guest with a disk served by GDM, if this column is GearV.
    fn measure_served(&self, qemu: &Qemu, wall: bool) -> Result<Figures> {
        match self.under {
            Under::GearV { .. } => self.run(qemu, wall, "bench-gdm", None),
            Under::Native | Under::Kvm { .. } => Ok(Figures::new()),
        }
    }

    /// Runs the guest as the manifest of this name has it, or as much of that as there is without
    /// GearV.
    fn run(
        &self,
        qemu: &Qemu,
        wall: bool,
        manifest: &str,
        gear1: Option<PathBuf>,
    ) -> Result<Figures> {
        let guest = build_images::build_guest("bench")?;
        let machine = self.machine(wall);
        let log = log(&format!("{}-{manifest}", self.name().replace(' ', "-")));
        let session = match self.under {
            Under::Native => {
                let machine = machine.without_el2();
                let command = qemu.command(&machine, &Boot::bare(&guest), Console::Pipes);
                Session::start(command, &log)?
            }
            Under::GearV { el1 } => {
                let mut images = build_images::build(&source(manifest, el1, "")?)?;
                images.gear1 = gear1.unwrap_or(images.gear1);
                ensure_holds(&images.archive, &guest)?;
                let machine = Machine {
                    memory_mib: run::memory_for(&images)?,
                    cpus: u32::try_from(images.manifest.cpu_count)?,
                    ..machine
                };
                images.start(qemu, &machine, &log)?
            }
            Under::Kvm { polls } => {
                let directory = if polls { "kvm-polling" } else { "kvm-blocking" };
                let directory = workspace::output_dir().join(directory).join(manifest);
                let host = kvm_host(&guest, polls, manifest);
                let host = host.build(&directory)?;
                ensure_holds(host.initramfs(), &guest)?;
                host.start(qemu, &machine, &log)?
            }
        };
        measure(session)
    }
}

/// Returns the host of what a manifest describes: two vCPUs, or two VMs that interrupt each other.
fn kvm_host(guest: &Path, polls: bool, manifest: &str) -> KvmHost {
    let host = KvmHost {
        kernel: guest.to_owned(),
        cpus: vec![0, 1],
        memory_mib: 32,
        halt_poll_ns: (!polls).then_some(0),
        ..KvmHost::default()
    };
    let (command_line, cpu) = match manifest {
        "bench-kick" => ("role=1", 1),
        "bench-switch" => ("role=1 switch=1", 0),
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

/// Returns a manifest of `tests/manifests`, with Gear2 at EL1 if that is wanted and a command line
/// for a guest that has none.
fn source(name: &str, el1: bool, command_line: &str) -> Result<PathBuf> {
    let path = workspace::root().join(format!("tests/manifests/{name}.dts"));
    if !el1 && command_line.is_empty() {
        return Ok(path);
    }
    let mut text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let mut replace = |from: &str, to: &str| -> Result<()> {
        ensure!(
            text.contains(from),
            "{} does not hold {from}",
            path.display()
        );
        text = text.replace(from, to);
        Ok(())
    };
    if el1 {
        replace("\tvms {", "\tgear2 { privilege = \"el1\"; };\n\n\tvms {")?;
    }
    if !command_line.is_empty() {
        let guest = "image = \"artifact:guest:bench\";";
        replace(guest, &format!("{guest} cmdline = \"{command_line}\";"))?;
    }
    let directory = workspace::output_dir().join("bench-manifests");
    fs::create_dir_all(&directory)?;
    let variant = if el1 { "-el1" } else { "" };
    let file = directory.join(format!("{name}{variant}.dts"));
    fs::write(&file, text)?;
    Ok(file)
}

impl Options {
    /// Measures all chosen columns, prints the table and writes the JSON.
    pub fn run(self) -> Result<()> {
        let qemu = Qemu::prepare(self.qemu)?;
        if self.wake {
            return run_wake(&qemu);
        }
        if self.apps {
            let size = if self.full {
                apps::Size::FULL
            } else {
                apps::Size::SHORT
            };
            return apps::run(&qemu, size, &self.only);
        }
        if self.footprint {
            print!("{}", table::counts(&footprint::measure(&qemu)?));
            return Ok(());
        }
        if let Some(row) = &self.breakdown {
            let column = COLUMNS.into_iter().find(|column| {
                matches!(column.under, Under::GearV { .. }) && column.name().contains(&self.only)
            });
            let column = column.with_context(|| format!("GearV has no column {:?}", self.only))?;
            return breakdown::run(&column, row, &qemu);
        }
        let old = self.compare.as_deref().map(Results::load).transpose()?;
        let results = self.measure_all(&qemu)?;
        print!("{}{}", table::all(&results), papers::table(&results));
        print!("\n{}", table::counts(&results.counts));
        if let Some(old) = &old {
            print!("\n{}", table::changes(old, &results));
        }
        let json = self.json();
        results.save(&json)?;
        let page = report::Page {
            title: TITLE,
            notes: NOTES,
            order: &table::ROWS.map(|(row, _)| row),
            old: old.as_ref(),
        };
        let page = report::page(&page, &results)?;
        let html = json.with_extension("html");
        fs::write(&html, page).with_context(|| html.display().to_string())?;
        println!(
            "\nall samples: {}\nplots: {}",
            json.display(),
            html.display()
        );
        if self.accept {
            baseline::accept(&results)?;
        }
        Ok(())
    }

    fn measure_all(&self, qemu: &Qemu) -> Result<Results> {
        let mut columns = Vec::new();
        for column in COLUMNS {
            let name = column.name();
            if !name.contains(&self.only) {
                continue;
            }
            let step = Step::start(&name);
            let measured = || -> Result<Figures> {
                let mut figures = column.measure(qemu, self.wall)?;
                if !self.short {
                    figures.extend(column.measure_served(qemu, self.wall)?);
                }
                Ok(figures)
            };
            columns.push((name.clone(), measured().with_context(|| name.clone())?));
            step.done(&name);
            // A run of all columns takes long: its results so far survive when it is stopped.
            self.results(columns.clone(), Counts::new())?
                .save(&self.json())?;
        }
        ensure!(
            !columns.is_empty(),
            "no column is named {:?}; the names: {}",
            self.only,
            COLUMNS.map(|column| column.name()).join(", ")
        );
        // The filter names columns, and counts belong to no column: only a full run measures them.
        let counts = match self.only.is_empty() {
            true => footprint::measure(qemu)?,
            false => Counts::new(),
        };
        self.results(columns, counts)
    }

    fn results(&self, columns: Vec<(String, Figures)>, counts: Counts) -> Result<Results> {
        Ok(Results {
            counts,
            guest: sha256(&build_images::build_guest("bench")?)?,
            conditions: [("qemu".to_owned(), self.qemu.to_string())].into(),
            columns,
        })
    }

    /// Returns where the figures go.
    fn json(&self) -> PathBuf {
        let json = self.json.clone();
        json.unwrap_or_else(|| workspace::target_dir().join("bench/bench.json"))
    }
}

fn run_wake(qemu: &Qemu) -> Result<()> {
    let images = build_images::build(&workspace::root().join("tests/manifests/wake.dts"))?;
    let machine = Machine {
        cpu: format!("max,{COUNTER}"),
        memory_mib: run::memory_for(&images)?,
        icount: true,
        ..Machine::default()
    };
    let command = wake::natively(qemu, &machine)?;
    let native = measure(Session::start(command, &log("wake-native"))?)?;
    let machine = Machine {
        cpus: u32::try_from(images.manifest.cpu_count)?,
        ..machine
    };
    let gearv = measure(images.start(qemu, &machine, &log("wake-gearv"))?)?;
    print!("{}", table::wake(&wake::ROWS, &native, &gearv));
    Ok(())
}

fn log(what: &str) -> PathBuf {
    workspace::output_dir().join(format!("bench/{what}.log"))
}

/// Refuses a file that does not hold the guest byte by byte: all columns measure the same program.
fn ensure_holds(container: &Path, guest: &Path) -> Result<()> {
    let (content, guest) = (fs::read(container)?, fs::read(guest)?);
    let holds = content
        .windows(guest.len())
        .any(|window| window == guest.as_slice());
    ensure!(holds, "{} holds another guest", container.display());
    Ok(())
}

/// Waits for the benchmark's end and reads its figures.
fn measure(mut session: Session) -> Result<Figures> {
    let printed = session.expect("DONE\n", TIMEOUT);
    let last_words = || build_images::last_words(&session);
    let printed = printed.map_err(|error| anyhow!("{error:#}\n{}", last_words()))?;
    let figures = report::parse(&printed);
    ensure!(
        !figures.is_empty() && !printed.contains("FAIL "),
        "it was not measured:\n{}",
        last_words()
    );
    Ok(figures)
}
