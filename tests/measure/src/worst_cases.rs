//! `cargo xtask worst-cases`: how many instructions Gear1 executes at most from an exit to the
//! entry that follows, by what the exit asks for.
//!
//! Machines run under `-icount` with a plugin of ours (`tests/exit-counter`), which counts exactly
//! whatever happens. What grows is found against `tests/worst-cases.txt`; `docs/worst-cases.md`
//! shows it.
//!
//! Test guests cause the exits. One of them searches for sequences of calls that take long and
//! prints those that it found; kept sequences are replayed by each run, so that a run without a
//! search sees the same worst cases.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, ensure};
use clap::Args;
use object::{Object as _, ObjectSection as _, ObjectSymbol as _, SectionKind, SymbolKind};
use workbench::build_images::{self, Images};
use workbench::expect::Session;
use workbench::qemu::{Console, Machine, Qemu};
use workbench::workspace;
use xtask::run;

use crate::bench::breakdown::function_name;
use crate::plugin;

mod name;

/// Most instructions that any exit may take. The limit is in docs/worst-cases.md, and holds however
/// a figure came to be: a baseline cannot raise it.
pub const LIMIT: u64 = 20_000;
/// Tolerated growth of a figure over the baseline: per cent, and instructions. Which exits fall
/// together on the way to the worst case shifts with every instruction of a build, and so does how
/// many other vCPUs have to be told, each by about 100 instructions.
const TOLERATED_PERCENT: u64 = 10;
const TOLERATED: u64 = 500;
/// Most instructions of a kind that is in no baseline. A new call or register is expected to be
/// shorter, and a longer one is told before it gets a baseline.
const UNKNOWN: u64 = 5_000;
/// Longest time of a run. The plugin is called at each instruction, which slows QEMU down.
const TIMEOUT: Duration = Duration::from_secs(900);
/// The plugin's interface is that of QEMU 10.
const QEMU: u32 = 10;
/// A counter of 1 GHz ticks once an instruction, so that a guest's times are counts as well. A
/// counter of another rate would divide the counts that the search compares, and short ways would
/// look equal.
const CPU: &str = "max,cntfrq=1000000000";
/// A line a kind, in the order of names: a change of a figure is one line of a diff.
const BASELINE: &str = "tests/worst-cases.txt";
/// The table between the marks is written by `--accept` after a search, and the words around it by
/// hand.
const PAGE: &str = "docs/worst-cases.md";
/// Inputs that the search starts from.
const INPUTS: &str = "tests/guests/src/bin/worst_cases/inputs.txt";
/// Marks around the table of the page.
const MARKS: [&str; 2] = ["<!-- table -->\n", "<!-- end of table -->\n"];
/// Command line of the search in its manifest: no rounds, so that the guest only replays.
const SEARCH: &str = "seed=1 rounds=0";

/// A machine whose exits are counted. The machines differ in the exits that they cause. A machine
/// is slow under the plugin, so that a manifest is in the list only for exits that no other one
/// causes.
struct Run {
    /// Name of the manifest, without its extension.
    manifest: &'static str,
    gic: u32,
    cpus: u32,
    /// Number of guests that print `DONE`.
    guests: usize,
}

/// Both versions of the GIC are measured with the search's guest, since the two have different ways
/// through Gear1. The other manifests cause what that guest cannot: a restart, a failing Gear2,
/// timers of vCPUs that share a CPU, real-time VMs, supervision, FF-A between two VMs, maintenance of
/// the instruction cache, and vectors of 2048 bits.
const RUNS: &[Run] = &[
    run_of("worst-cases", 3, 2, 1),
    run_of("worst-cases", 2, 2, 1),
    run_of("reboot", 3, 1, 1),
    run_of("gear2-fails", 3, 2, 3),
    run_of("psci", 3, 2, 2),
    run_of("timers-shared", 3, 1, 2),
    run_of("rt-emulated", 3, 3, 1),
    run_of("supervised", 3, 2, 2),
    run_of("heartbeat", 3, 4, 1),
    run_of("ffa", 3, 2, 2),
    run_of("ffa-last", 3, 2, 2),
    run_of("icache", 3, 3, 1),
    run_of("sve", 3, 1, 3),
];

const fn run_of(manifest: &'static str, gic: u32, cpus: u32, guests: usize) -> Run {
    Run {
        manifest,
        gic,
        cpus,
        guests,
    }
}

/// The options of `worst-cases`.
#[derive(Args, Debug)]
pub struct Options {
    /// Sequences that the search tries for each goal; without this option, kept sequences are
    /// replayed
    #[arg(long, value_name = "COUNT")]
    rounds: Option<u64>,
    /// Seed of the search
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    seed: u64,
    /// Only the machines whose manifest's name contains this
    #[arg(long, value_name = "TEXT", default_value = "")]
    only: String,
    /// Write the baseline; after a search the inputs that were found, and the page's table
    #[arg(long)]
    accept: bool,
}

impl Options {
    /// Measures and prints the table. `--accept` with a part of the machines is refused: the kinds
    /// of the others would be lost from the baseline.
    pub fn run(self) -> Result<()> {
        let command_line = self
            .rounds
            .map(|rounds| format!("seed={} rounds={rounds}", self.seed));
        let figures = measure(&self.only, command_line.as_deref())?;
        print!("{}", figures.table());
        if self.accept {
            ensure!(self.only.is_empty(), "--accept wants all machines");
            match self.rounds {
                Some(_) => figures.accept_inputs()?,
                None => figures.accept_baseline()?,
            }
        }
        Ok(())
    }
}

/// Longest exit of a kind, with what is needed to cause the exit again. The input is kept beside
/// the number: a figure that nobody can cause again cannot be shortened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Worst {
    instructions: u64,
    /// Name of the machine.
    on: String,
    /// Description by the plugin: kind, registers, functions.
    input: String,
}

impl Worst {
    /// Says how an exit has grown since the baseline, if it has by more than is tolerated. Both
    /// tolerances together apply: the percentage is nothing for short ways, and the number is
    /// nothing for long ones.
    fn growth(&self, name: &str, then: Option<&u64>) -> Option<String> {
        let Worst {
            instructions: now,
            on,
            input,
        } = self;
        match then {
            Some(then) if *now > then + then * TOLERATED_PERCENT / 100 + TOLERATED => {
                Some(format!(
                    "{name}: {now} instructions, {then} in the baseline ({on}: {input}; if that must be: cargo xtask worst-cases --accept)"
                ))
            }
            None if *now > UNKNOWN => Some(format!(
                "{name}: {now} instructions, not in the baseline ({on}: {input})"
            )),
            _ => None,
        }
    }
}

/// All kinds by name, and what the searches found. The maximum over all machines is kept for a
/// kind, since a limit has to hold on each.
#[derive(Debug, Default)]
pub struct Measured {
    kinds: BTreeMap<String, Worst>,
    inputs: String,
}

/// Runs the machines, with another command line of the search's if one is given.
pub fn measure(only: &str, command_line: Option<&str>) -> Result<Measured> {
    let plugin = plugin::build()?;
    let qemu = Qemu::prepare(QEMU)?;
    let mut measured = Measured::default();
    for run in RUNS.iter().filter(|run| run.manifest.contains(only)) {
        run.measure(&qemu, &plugin, command_line, &mut measured)?;
    }
    Ok(measured)
}

impl Run {
    /// Returns the machine's name in the table and in messages.
    fn name(&self) -> String {
        format!("{} GICv{}", self.manifest, self.gic)
    }

    fn measure(
        &self,
        qemu: &Qemu,
        plugin: &Path,
        command_line: Option<&str>,
        measured: &mut Measured,
    ) -> Result<()> {
        let directory = workspace::output_dir().join("worst-cases");
        fs::create_dir_all(&directory)?;
        let manifest = self.manifest(&directory, command_line)?;
        let images = build_images::build_below("worst-cases", &manifest)?;
        let stem = format!("{}-gicv{}", self.manifest, self.gic);
        let [symbols, out, log] =
            ["symbols", "exits", "log"].map(|what| directory.join(format!("{stem}.{what}")));
        let target = if self.gic == 2 { "gicv2" } else { "" };
        let elf = workspace::bare_elf_in(target, "gear1-runtime");
        fs::write(&symbols, symbols_of(&elf)?)?;
        let machine = self.machine(&images)?;
        let mut command = qemu.command(&machine, &images.boot(), Console::Pipes);
        command
            .arg("-plugin")
            .arg(plugin_options(plugin, &symbols, &out));
        let mut session = images.start_by(command, &log)?;
        self.take_inputs(&mut session, measured)?;
        drop(session);
        self.read(&out, measured)
    }

    /// Waits until the guests are done, and keeps the inputs that they found to take longest. The
    /// machine can be stopped then, as the plugin's file is whole at any time. A machine whose
    /// guests do not come to their end is an error: exits that the rest would have caused are
    /// missing.
    fn take_inputs(&self, session: &mut Session, measured: &mut Measured) -> Result<()> {
        wait(session, self.guests).map_err(|error| {
            let last = build_images::last_words(session);
            anyhow!("{}: {error:#}\n{last}", self.name())
        })?;
        let found = session.transcript().lines().filter_map(input);
        found.for_each(|line| _ = writeln!(measured.inputs, "{line}"));
        Ok(())
    }

    /// Returns the machine. `icount` makes runs of one image repeat.
    fn machine(&self, images: &Images) -> Result<Machine> {
        Ok(Machine {
            cpu: CPU.to_owned(),
            gic: self.gic,
            cpus: self.cpus,
            memory_mib: run::memory_for(images)?,
            icount: true,
            ..Machine::default()
        })
    }

    /// Takes in what the plugin wrote. A file that is empty is an error: without a count nothing
    /// could have grown.
    fn read(&self, out: &Path, measured: &mut Measured) -> Result<()> {
        let text = fs::read_to_string(out).with_context(|| out.display().to_string())?;
        ensure!(!text.is_empty(), "{}: nothing was counted", self.name());
        for line in text.lines() {
            measured.add(&self.name(), self.gic, line)?;
        }
        Ok(())
    }

    /// Returns the manifest, with another command line if it is the search's. Manifests without the
    /// search's command line are measured as they are.
    fn manifest(&self, directory: &Path, command_line: Option<&str>) -> Result<PathBuf> {
        let path = workspace::root().join(format!("tests/manifests/{}.dts", self.manifest));
        let Some(command_line) = command_line else {
            return Ok(path);
        };
        let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        if !text.contains(SEARCH) {
            return Ok(path);
        }
        let file = directory.join(format!("{}.dts", self.manifest));
        fs::write(&file, text.replace(SEARCH, command_line))?;
        Ok(file)
    }
}

/// Returns the value of QEMU's option `-plugin`, whose parts are separated by commas.
fn plugin_options(plugin: &Path, symbols: &Path, out: &Path) -> String {
    let [plugin, symbols, out] = [plugin, symbols, out].map(Path::display);
    format!("{plugin},symbols={symbols},out={out}")
}

/// Waits until all guests are done. A console's line may have its VM's name before it. Counting the
/// lines instead of matching one covers guests that end in any order.
fn wait(session: &mut Session, guests: usize) -> Result<()> {
    session.wait_until("DONE of all guests", TIMEOUT, |transcript| {
        let done = |line: &&str| line.ends_with("DONE");
        transcript.lines().filter(done).count() >= guests
    })
}

/// Returns what the search found, if the line says that.
fn input(line: &str) -> Option<&str> {
    let at = line.find("INPUT ")?;
    line.get(at..)
}

/// Returns the runtime's functions for the plugin, and where its code is. The plugin tells kinds of
/// interrupts apart by the functions that handle them. Names are shortened to their last part,
/// which the plugin compares with. Mapping symbols (`$x`, `$d`) are no functions. The end of the
/// code is the last line, because a symbol has only its start: without the end, what follows the
/// last function would count as a part of it.
fn symbols_of(elf: &Path) -> Result<String> {
    let bytes = fs::read(elf).with_context(|| elf.display().to_string())?;
    let file = object::File::parse(&*bytes)?;
    let mut text = String::new();
    for symbol in file.symbols() {
        let name = symbol.name().unwrap_or_default();
        if name == "gear1_vectors" || symbol.kind() == SymbolKind::Text && !name.starts_with('$') {
            let name = function_name(name);
            let name = name.rsplit("::").next().unwrap_or_default();
            let _ = writeln!(text, "{:x} {name}", symbol.address());
        }
    }
    let code = file.sections().find(|s| s.kind() == SectionKind::Text);
    let code = code.with_context(|| format!("{} has no code", elf.display()))?;
    let _ = writeln!(text, "{:x} gear1_end", code.address() + code.size());
    Ok(text)
}

impl Measured {
    /// Takes in a line of the plugin's. Of two exits of the same length the first is kept, so that
    /// the table does not change without a reason.
    fn add(&mut self, on: &str, gic: u32, line: &str) -> Result<()> {
        let mut words = line.split(' ');
        let (kind, instructions) = words
            .next()
            .zip(words.next().and_then(|number| number.parse().ok()))
            .with_context(|| format!("the plugin wrote {line:?}"))?;
        let worst = self.kinds.entry(name::of(kind, gic)).or_default();
        if instructions > worst.instructions {
            *worst = Worst {
                instructions,
                on: on.to_owned(),
                input: line.to_owned(),
            };
        }
        Ok(())
    }

    /// Returns the kinds, the longest first. Kinds of the same length are in the order of names, so
    /// that two runs print the same table.
    fn sorted(&self) -> Vec<(&String, &Worst)> {
        let mut sorted: Vec<_> = self.kinds.iter().collect();
        sorted.sort_by_key(|(name, worst)| (std::cmp::Reverse(worst.instructions), *name));
        sorted
    }

    /// Returns the kinds as text, each with the machine on which it was longest.
    fn table(&self) -> String {
        let mut text = String::new();
        for (name, worst) in self.sorted() {
            let (instructions, on) = (worst.instructions, &worst.on);
            let _ = writeln!(text, "{instructions:7}  {name}  ({on})");
        }
        text
    }

    /// Returns the table of the page.
    fn page(&self) -> String {
        let mut text =
            String::from("\n| exit | instructions | seen on | with |\n|---|---|---|---|\n");
        for (name, worst) in self.sorted() {
            let (instructions, on) = (worst.instructions, &worst.on);
            let input = shown(&worst.input);
            let _ = writeln!(text, "| {name} | {instructions} | {on} | {input} |");
        }
        text.push('\n');
        text
    }

    /// Writes the baseline. All kinds are written, also those that have become shorter, so that a
    /// later growth is seen.
    fn accept_baseline(&self) -> Result<()> {
        let mut lines = String::new();
        for (name, worst) in &self.kinds {
            let _ = writeln!(lines, "{name}: {}", worst.instructions);
        }
        fs::write(workspace::root().join(BASELINE), lines)?;
        println!("written: {BASELINE}");
        Ok(())
    }

    /// Writes the inputs that a search found, and the page's table. The inputs become a part of the
    /// guest, which replays them from then on.
    fn accept_inputs(&self) -> Result<()> {
        let root = workspace::root();
        fs::write(root.join(INPUTS), &self.inputs)?;
        let path = root.join(PAGE);
        let page = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        let [begin, end] = MARKS;
        let parts = page
            .split_once(begin)
            .and_then(|(before, rest)| Some((before, rest.split_once(end)?.1)));
        let (before, after) = parts.with_context(|| format!("{PAGE} has no table"))?;
        fs::write(&path, format!("{before}{begin}{}{end}{after}", self.page()))?;
        println!("written: {INPUTS}, {PAGE}; now the baseline: cargo xtask worst-cases --accept");
        Ok(())
    }

    /// Returns how many kinds there are.
    pub fn count(&self) -> usize {
        self.kinds.len()
    }

    /// Returns the exits over the limit, a line each.
    pub fn over_the_limit(&self) -> Vec<String> {
        let over = self.sorted().into_iter();
        over.take_while(|(_, worst)| worst.instructions > LIMIT)
            .map(|(name, worst)| {
                let (instructions, on) = (worst.instructions, &worst.on);
                format!(
                    "{name}: {instructions} instructions, the limit is {LIMIT} ({on}: {})",
                    worst.input
                )
            })
            .collect()
    }

    /// Returns what has grown since the baseline, or was not seen, a line each.
    pub fn grown(&self) -> Result<Vec<String>> {
        let path = workspace::root().join(BASELINE);
        let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        Ok(self.grown_since(&parse(&text)?))
    }

    /// Returns what has grown. A kind of the baseline that was not measured is told too: the test
    /// that caused the exit may no longer do so.
    fn grown_since(&self, baseline: &BTreeMap<String, u64>) -> Vec<String> {
        let kinds = self.kinds.iter();
        let grown = kinds.filter_map(|(name, worst)| worst.growth(name, baseline.get(name)));
        let mut lines: Vec<String> = grown.collect();
        let gone = baseline.keys().filter(|name| {
            // Interrupts fall together with other exits by chance, so their kinds may be missing.
            !name.contains("interrupt") && !self.kinds.contains_key(*name)
        });
        gone.for_each(|name| lines.push(format!("{name}: was not seen")));
        lines
    }
}

/// Reads the baseline. A line that is not understood is an error, as the kind behind it would never
/// be compared.
fn parse(text: &str) -> Result<BTreeMap<String, u64>> {
    text.lines()
        .map(|line| {
            let pair = line.rsplit_once(": ");
            let pair = pair.and_then(|(name, count)| Some((name.to_owned(), count.parse().ok()?)));
            pair.with_context(|| format!("{BASELINE}: {line:?}"))
        })
        .collect()
}

/// Returns the page's form of a line of the plugin: the called function and its arguments. Four
/// registers hold the function and the arguments of most calls.
fn shown(line: &str) -> String {
    let mut words = line.split(' ');
    let kind = words.next().unwrap_or_default();
    let what = kind.split_once(':').map_or(kind, |(_, what)| what);
    let registers = words.find_map(|word| word.strip_prefix("x="));
    let registers: Vec<&str> = registers.unwrap_or_default().split(',').take(4).collect();
    match registers.as_slice() {
        [first, ..] if !first.is_empty() && (what.contains("vc:") || what.contains("smc:")) => {
            format!("`{what}`, X0 to X3 {}", registers.join(" "))
        }
        _ => format!("`{what}`"),
    }
}

#[cfg(test)]
mod tests;
