//! `cargo xtask bench`: one benchmark guest natively, under GearV and under KVM, side by side.
//!
//! By default one instruction is one nanosecond of virtual time, so that figures are path
//! lengths and repeat exactly. The guest's bytes are the same in all columns.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use clap::Args;

use crate::build_images;
use crate::cache::sha256;
use crate::expect::Session;
use crate::kvm_host::KvmHost;
use crate::progress::Step;
use crate::qemu::{Boot, Console, Machine, Qemu};
use crate::report::{self, Figures, Results};
use crate::{run, workspace};

pub(crate) mod baseline;
mod breakdown;
mod table;
pub(crate) mod wake;

const TIMEOUT: Duration = Duration::from_secs(300);
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
pub(crate) struct Options {
    /// Only the columns whose names contain this: native, GearV, KVM, max, GICv2, ...
    #[arg(long, value_name = "TEXT", default_value = "")]
    only: String,
    /// The major version of QEMU: 10, or Debian 12's 7
    #[arg(long, value_name = "VERSION", default_value_t = QEMU)]
    qemu: u32,
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
    /// Show what Gear1 executes for this row, by function, in the first column of GearV's that `--only` leaves
    #[arg(long, value_name = "ROW")]
    breakdown: Option<String>,
    /// Measure how long a signal takes to a program of the device VM, and natively
    #[arg(long, exclusive = true)]
    wake: bool,
}

/// Under what the guest runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Under {
    /// Nothing.
    Native,
    /// GearV, with Gear2 at EL0 or at EL1.
    GearV { el1: bool },
    /// KVM on Debian's kernel, with its default halt polling or none.
    Kvm { polls: bool },
}

/// One run of the guest.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Column {
    pub(crate) under: Under,
    cpu: &'static str,
    gic: u32,
}

/// All columns, in the order in which they are shown.
pub(crate) const COLUMNS: [Column; 16] = {
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
    /// Returns the column's name; it is one in JSON and in the baseline, too.
    pub(crate) fn name(&self) -> String {
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

    /// Runs the guest and returns its figures.
    pub(crate) fn measure(&self, qemu: &Qemu, wall: bool) -> Result<Figures> {
        let guest = build_images::build_guest("bench")?;
        let machine = self.machine(wall);
        let log = log(&self.name().replace(' ', "-"));
        let session = match self.under {
            Under::Native => {
                let machine = machine.without_el2();
                let command = qemu.command(&machine, &Boot::bare(&guest), Console::Pipes);
                Session::start(command, &log)?
            }
            Under::GearV { el1 } => {
                let manifest = manifest(el1);
                let images = build_images::build(&workspace::root().join(manifest))?;
                ensure_holds(&images.archive, &guest)?;
                let memory_mib = run::memory_for(&images)?;
                let machine = Machine {
                    memory_mib,
                    ..machine
                };
                images.start(qemu, &machine, &log)?
            }
            Under::Kvm { polls } => {
                let host = KvmHost {
                    kernel: guest.clone(),
                    cpus: vec![0, 1],
                    memory_mib: 32,
                    halt_poll_ns: (!polls).then_some(0),
                    ..KvmHost::default()
                };
                let directory = if polls { "kvm-polling" } else { "kvm-blocking" };
                let host = host.build(&workspace::output_dir().join(directory))?;
                ensure_holds(host.initramfs(), &guest)?;
                host.start(qemu, &machine, &log)?
            }
        };
        measure(session)
    }
}

/// Returns the manifest of the benchmark, from the workspace's root.
fn manifest(el1: bool) -> &'static str {
    match el1 {
        true => "tests/manifests/bench-el1.dts",
        false => "tests/manifests/bench.dts",
    }
}

impl Options {
    /// Measures all chosen columns, prints the table and writes the JSON.
    pub(crate) fn run(self) -> Result<()> {
        let qemu = Qemu::prepare(self.qemu)?;
        if self.wake {
            return run_wake(&qemu);
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
        print!("{}", table::all(&results));
        if let Some(old) = &old {
            print!("\n{}", table::changes(old, &results));
        }
        let json = self.json.clone();
        let json = json.unwrap_or_else(|| workspace::target_dir().join("bench/bench.json"));
        results.save(&json)?;
        let page = report::page(TITLE, NOTES, old.as_ref(), &results)?;
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
            let figures = column.measure(qemu, self.wall);
            columns.push((name.clone(), figures.with_context(|| name.clone())?));
            step.done(&name);
        }
        ensure!(
            !columns.is_empty(),
            "no column is named {:?}; the names: {}",
            self.only,
            COLUMNS.map(|column| column.name()).join(", ")
        );
        let guest = sha256(&build_images::build_guest("bench")?)?;
        Ok(Results {
            guest,
            conditions: [("qemu".to_owned(), self.qemu.to_string())].into(),
            columns,
        })
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
