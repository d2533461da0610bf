//! Two VMs that attack everything at random, beside two that must not notice: `cargo xtask chaos`,
//! and parts of the tests. On a machine with an SMMU the device of a fifth VM attacks as well.
//!
//! The stream of attacks follows from the seed. In the end the other VMs' own checks, a halt, and
//! the bytes of Gear1 and Gear2 in memory tell whether anything got through.
//!
//! Requirements: G1-RUN-002, G1-MEM-003, G1-MEM-004.
//!
//! Tests with a purpose find what their authors thought of. Here nobody thinks: any call, access or
//! register with any value may come, in any order, from two VMs at once.

use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fmt, fs};

use anyhow::{Context as _, Result, anyhow, ensure};
use clap::Args;
use gear1_abi::image::{GEAR2_MAGIC, ImageHeader, RUNTIME_MAGIC};
use workbench::build_images::{self, Images};
use workbench::expect::Session;
use workbench::qemu::{Console, Machine, Qemu};
use workbench::workspace;

use crate::gdb::Gdb;
use crate::part::{Part, Tally};
use crate::{guests, record};

const MANIFEST: &str = "tests/manifests/chaos.dts";
/// End of the manifest, and the VM whose device attacks: QEMU's SMMU stands beside a GICv3 alone.
const MANIFEST_END: &str = "\t};\n};";
const MASTER: &str = "
\t\tmaster {
\t\t\tmemory-mib = <8>;
\t\t\tdevices = \"/pcie@10000000\";

\t\t\timage = \"artifact:guest:dma\";
\t\t\tcmdline = \"CMDLINE\";

\t\t\tconsole { };
\t\t};
";
/// RAM of the machine.
const RAM_MIB: u32 = 256;
/// Part of Gear2's line on an access of that device that was aborted.
const ABORTED: &str = "a device of master (StreamID";
/// VMs of the manifest, then the least number of checks that they make. Two attack; one computes
/// and one has its memory and timer watched.
const GUESTS: usize = 4;
/// A guest that says less has ended early.
const PASSES: usize = 16;
/// Line that an attacker prints after its last attack. Its own memory must be whole as well: a call
/// of the other attacker could have reached it.
const ENDED: &str = "PASS own-memory-unchanged";
/// Operations of each attacker in a part of the tests, and in a slow one.
pub(super) const FEW: u64 = 20_000;
const MANY: u64 = 1_000_000;
/// Transfers of the device that attacks, in a part of the tests and in a slow one, and the accesses
/// of one: 4 KiB in words of 4 bytes. QEMU's `edu` takes 100 ms for each.
const FEW_TRANSFERS: u64 = 100;
const MANY_TRANSFERS: u64 = 1_000;
const ACCESSES: u64 = 1024;
/// Transfers in ten seconds on a slow host. For the limit of time alone.
const SLOWEST_TRANSFERS: u64 = 20;
/// Operations a second on a slow host. For the limit of time alone.
const SLOWEST: u64 = 500;
/// Memory of Gear1 and Gear2 on this machine: in the smallest holes beside the archive. The images
/// are looked for there page by page, because init chooses their place.
const MEMORY: std::ops::Range<u64> = 0x4000_0000..0x4000_0000 + ((RAM_MIB as u64) << 20);
const PAGE: usize = 4096;

/// Options of an attack.
#[derive(Args, Clone, Debug)]
pub(crate) struct Options {
    /// Seed of the attacks
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Number of attacks of each of the two VMs
    #[arg(long, default_value_t = FEW)]
    operations: u64,
    /// QEMU's name of the CPU model
    #[arg(long, default_value = "max")]
    cpu: String,
    /// Version of the interrupt controller
    #[arg(long, default_value_t = 3)]
    gic: u32,
    /// Number of transfers of 4 KiB by a device behind the SMMU, which there is with GICv3
    #[arg(long, default_value_t = FEW_TRANSFERS)]
    transfers: u64,
}

/// Both GICs and three CPU models; each row has a seed of its own, so that more is seen in one run.
pub(super) fn parts() -> Vec<Part> {
    let rows = [
        ("max", 3, FEW, 1),
        ("cortex-a57", 2, FEW, 2),
        ("max", 3, MANY, 4),
        ("cortex-a72", 2, MANY, 5),
    ];
    let parts = rows.map(|(cpu, gic, operations, seed)| {
        let options = Options {
            seed,
            operations,
            cpu: cpu.to_owned(),
            gic,
            transfers: match operations {
                MANY => MANY_TRANSFERS,
                _ => FEW_TRANSFERS,
            },
        };
        let name = format!("chaos on {cpu} with GICv{gic}, {operations} operations");
        Part::new(name, move |tally| options.attack(tally)).slow(operations == MANY)
    });
    parts.into()
}

/// Attacks another Gear1 for a short time, and compares its bytes afterwards if this names its
/// runtime's flat image. A Gear1 with a planted bug differs in its bytes, so they are compared only
/// if its own file is given.
pub(super) fn attack_other(
    gear1: PathBuf,
    runtime: Option<&Path>,
    operations: u64,
    tally: &mut Tally,
) -> Result<()> {
    let options = Options {
        seed: 1,
        operations,
        cpu: "max".to_owned(),
        gic: 3,
        transfers: FEW_TRANSFERS,
    };
    let mut images = options.images()?;
    images.gear1 = gear1;
    options.attack_on(&images, runtime, tally)
}

impl Options {
    /// Runs the attacks, and reports the result. The figure is kept for the page of evidence, with
    /// the command that repeats it.
    pub(crate) fn run(self) -> Result<()> {
        let mut tally = Tally::default();
        self.attack(&mut tally)?;
        let violations = tally.failures.len();
        tally.failures.iter().for_each(|why| println!("FAIL {why}"));
        let figure = self.figure(&tally);
        let command = format!("cargo xtask chaos {self}");
        record::note("chaos", &figure, &command)?;
        ensure!(
            violations == 0,
            "seed {} finds {violations} violations",
            self.seed
        );
        Ok(())
    }

    fn attack(&self, tally: &mut Tally) -> Result<()> {
        let runtime = build_images::runtime(self.gic)?;
        self.attack_on(&self.images()?, Some(&runtime), tally)?;
        let figure = self.figure(tally);
        println!("{figure}");
        tally.figures.push(format!("{figure} with {self}"));
        Ok(())
    }

    /// Two VMs attack, so the number is doubled.
    fn figure(&self, tally: &Tally) -> String {
        let violations = tally.failures.len();
        let operations = 2 * self.operations;
        match self.has_smmu() {
            true => format!(
                "{operations} operations and {} accesses of a device, {violations} violations",
                ACCESSES * self.transfers
            ),
            false => format!("{operations} operations, {violations} violations"),
        }
    }

    const fn has_smmu(&self) -> bool {
        self.gic == 3
    }

    /// The machine waits for the debugger from the start, which later reads memory that no VM can.
    fn attack_on(&self, images: &Images, runtime: Option<&Path>, tally: &mut Tally) -> Result<()> {
        let device = ["-device", "edu,dma_mask=0xffffffffff"].map(Into::into);
        let machine = Machine {
            cpu: self.cpu.clone(),
            gic: self.gic,
            smmu: self.has_smmu(),
            memory_mib: RAM_MIB,
            options: device.to_vec(),
            ..Machine::default()
        };
        let command = Qemu::prepare(10)?.command(&machine, &images.boot(), Console::Pipes);
        let log = workspace::output_dir().join("chaos/machine.log");
        let (mut session, gdb) = Gdb::start(command, &log)?;
        session.give_up_on(build_images::FATAL);
        let end = self.judge(&mut session, gdb, runtime, tally);
        end.map_err(|error| anyhow!("{error:#}\n{}", build_images::last_words(&session)))
    }

    /// Builds the manifest with the seeds and the number of operations in it. Seeds differ, so the
    /// two VMs do not attack in step.
    fn images(&self) -> Result<Images> {
        let source = workspace::root().join(MANIFEST);
        let mut text = fs::read_to_string(&source).with_context(|| source.display().to_string())?;
        for (vm, seed) in [(1, self.seed), (2, self.seed ^ 0x5eed)] {
            let old = format!("\"seed={vm}\"");
            ensure!(text.contains(&old), "{MANIFEST} has no {old}");
            let new = format!("\"seed={seed} operations={}\"", self.operations);
            text = text.replacen(&old, &new, 1);
        }
        if self.has_smmu() {
            let cmdline = format!(
                "seed={} random={} random-mib={RAM_MIB} bytes={}",
                self.seed,
                self.transfers,
                4 * ACCESSES
            );
            let master = MASTER.replace("CMDLINE", &cmdline);
            let end = text.rfind(MANIFEST_END);
            text.insert_str(end.context("the manifest ends otherwise")?, &master);
        }
        let directory = workspace::output_dir().join("chaos");
        fs::create_dir_all(&directory)?;
        let manifest = directory.join("chaos.dts");
        fs::write(&manifest, text)?;
        build_images::build(&manifest)
    }

    /// The verdicts of guests come first, so that a run that does not end still counts what failed.
    fn judge(
        &self,
        session: &mut Session,
        mut gdb: Gdb,
        runtime: Option<&Path>,
        tally: &mut Tally,
    ) -> Result<()> {
        gdb.let_run()?;
        let attacks = self.operations / SLOWEST;
        let most = 120 + attacks.max(10 * self.transfers / SLOWEST_TRANSFERS);
        let count = GUESTS + usize::from(self.has_smmu());
        let end = guests::wait_for_done(session, count, Duration::from_secs(most));
        let passed = guests::count_verdicts(session.transcript(), tally);
        end?;
        let lines = guests::whole_lines(session.transcript());
        let attackers = lines.iter().filter(|line| *line == ENDED).count();
        ensure!(attackers == 2, "{attackers} attackers came to their end");
        ensure!(passed >= PASSES, "only {passed} of {PASSES} checks passed");
        ensure!(
            !self.has_smmu() || session.transcript().contains(ABORTED),
            "no access of the device was aborted"
        );
        // The machine stands still while its memory is read.
        gdb.interrupt()?;
        images_are_unchanged(&mut gdb, runtime, tally);
        Ok(())
    }
}

/// As options of the command.
impl fmt::Display for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Options {
            seed,
            operations,
            cpu,
            gic,
            transfers,
        } = self;
        write!(
            f,
            "--operations {operations} --seed {seed} --cpu {cpu} --gic {gic}"
        )?;
        match self.has_smmu() {
            true => write!(f, " --transfers {transfers}"),
            false => Ok(()),
        }
    }
}

/// Checks the code and constants of Gear1, unless it is another one, and of Gear2. Gear2 has to be
/// whole, too: a guest that writes there has what Gear2 may do.
fn images_are_unchanged(gdb: &mut Gdb, runtime: Option<&Path>, tally: &mut Tally) {
    let gear2 = workspace::output_dir().join("gear2.bin");
    if let Some(runtime) = runtime {
        tally.check("Gear1's bytes", unchanged(gdb, runtime, RUNTIME_MAGIC));
    }
    tally.check("Gear2's bytes", unchanged(gdb, &gear2, GEAR2_MAGIC));
}

/// Tells whether code and constants of a flat image are in memory as they are in its file, wherever
/// they are. Data are left out, because they change. An image that is found nowhere is a failure of
/// the search.
fn unchanged(gdb: &mut Gdb, flat: &Path, magic: u64) -> Result<()> {
    let file = fs::read(flat).with_context(|| flat.display().to_string())?;
    let header = ImageHeader::parse(&file, magic).map_err(|error| anyhow!("{error:?}"))?;
    let size = usize::try_from(header.rodata_end - header.base)?;
    let expected = file.get(..size).context("a file without its constants")?;
    let magic = magic.to_le_bytes();
    let mut copies = 0;
    for page in MEMORY.step_by(PAGE) {
        if gdb.physical(page, magic.len())? != magic {
            continue;
        }
        let found = gdb.physical(page, size)?;
        let wrong = found.iter().zip(expected).filter(|(a, b)| a != b).count();
        ensure!(wrong == 0, "{wrong} bytes at {page:#x} were changed");
        copies += 1;
    }
    ensure!(copies > 0, "it is nowhere");
    Ok(())
}
