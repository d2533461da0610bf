//! `cargo xtask bench --breakdown ROW`: what both gears execute for a row, by function, and what
//! Gear1 executes, by kind.
//!
//! QEMU logs each instruction of Gear1's runtime and of Gear2 while the guest measures that row
//! alone, and once more while it measures nothing: the difference is the row's.
//!
//! A count of instructions shows no time: a barrier and an addition are one each. Accesses of
//! system registers and of the GIC, barriers and exceptions are therefore counted by kind as well,
//! as they cost many times as much on a real CPU.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{BufRead as _, BufReader};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use addr2line::Loader;
use anyhow::{Context, Result, anyhow, bail, ensure};
use object::{Object as _, ObjectSection as _, SectionKind};
use workbench::build_images::{self, Images};
use workbench::expect::Session;
use workbench::qemu::{Console, Machine, Qemu};
use workbench::workspace;

use super::column::{
    Column, DOORBELL, KICK, SERVED, SHARED, SWITCH, TIMEOUT, Under, log, machine_of, source,
};

/// Iterations of a row, the warm-up included: `ITERATIONS` and `WARM_UP` of
/// `tests/guests/src/bin/bench.rs`, which a test compares. A wrong number would show in each count,
/// as the sum is divided by it.
pub(super) const ITERATIONS: u64 = 1100;
/// Name of no row: the guest boots, finds nothing to measure and ends. The whole boot is in both
/// counts then, and the subtraction leaves the row alone.
const NONE: &str = "none";
/// Key that stands for no program counter. The key is in the counts if the guest has printed a
/// figure.
const MEASURED: u64 = u64::MAX;
/// Source file of the functions that access device registers. The compiler inlines them everywhere,
/// so the innermost frame of an instruction tells where it comes from.
const MMIO: &str = "mmio.rs";
/// Time between two looks whether the reader of the log is done.
const LOOK: Duration = Duration::from_millis(50);
/// Time in which the reader takes what a pipe holds after QEMU's end: 64 KiB, a thousand lines.
const DRAIN: Duration = Duration::from_secs(5);

/// Cost of an instruction that a count of instructions does not show. The order is that of the
/// output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Register,
    GicRegister,
    GicMemory,
    Barrier,
    Return,
    Other,
}

impl Kind {
    /// Classifies an A64 instruction (Arm DDI 0487, C4.1.94, system instructions). The masks are of
    /// the instruction's fixed fields alone: registers and immediates do not matter.
    fn of(word: u32, in_mmio: bool) -> Kind {
        let system_register = word & 0xffd0_0000 == 0xd510_0000;
        // S3_*_C12_C8..C13_*: the GIC's.
        let gic =
            (word >> 19 & 1, word >> 12 & 0xf) == (1, 12) && matches!(word >> 8 & 0xf, 8..=13);
        let load_or_store = word >> 25 & 0b101 == 0b100;
        match word {
            _ if system_register && gic => Kind::GicRegister,
            _ if system_register => Kind::Register,
            0xd69f_03e0 => Kind::Return,
            _ if word & 0xffff_f01f == 0xd503_301f => Kind::Barrier,
            _ if load_or_store && in_mmio => Kind::GicMemory,
            _ => Kind::Other,
        }
    }

    /// Returns the kind's words in the output. Other instructions have none, and no line.
    fn text(self) -> &'static str {
        match self {
            Kind::Register => "system register accesses",
            Kind::GicRegister => "of the GIC's CPU interface and list registers",
            Kind::GicMemory => "accesses of GIC memory",
            Kind::Barrier => "barriers",
            Kind::Return => "traps and interrupts, counted by their ERET",
            Kind::Other => "",
        }
    }
}

/// Runs the row in a column of GearV's and prints what the gears execute. A row that the guest does
/// not know would give counts of zero after the subtraction, and is an error here.
pub(super) fn run(column: &Column, row: &str, qemu: &Qemu) -> Result<()> {
    let Under::GearV { el1 } = column.under else {
        bail!("{} is not under GearV", column.name());
    };
    let directory = if column.gic == 2 { "gicv2" } else { "" };
    let (manifest, measured) = manifest_of(row);
    let images = |row: &str| build_images::build(&source(manifest, el1, &format!("row={row}"))?);
    let with_row = images(measured)?;
    // Behind the build, which makes them.
    let gear1 = Program::load(&workspace::bare_elf_in(directory, "gear1-runtime"))?;
    let gear2 = Program::load(&workspace::bare_elf("gear2"))?;
    let ranges = [gear1.code.clone(), gear2.code.clone()];
    let counted = |images: &Images| {
        let machine = machine_of(images, column.machine(false))?;
        trace(qemu, &machine, images, &ranges, None)
    };
    let mut counts = counted(&with_row)?;
    let is_measured = counts.remove(&MEASURED).is_some();
    ensure!(is_measured, "the guest has no row {row:?}");
    take_off(&mut counts, counted(&images(NONE)?)?);
    print!("{row}: {}", gear1.describe("Gear1", &counts));
    print!("{}", gear1.describe_kinds(&counts));
    print!("{row}: {}", gear2.describe("Gear2", &counts));
    Ok(())
}

/// Returns the manifest whose guest measures a row, and the guest's name of the row: rows of the
/// device model need the device VM, and those of two VMs the second one. A row with the suffix of a
/// shared CPU has its own manifest, and the guest knows the row without the suffix.
fn manifest_of(row: &str) -> (&'static str, &str) {
    let begins = [
        ("mmio_user_", SERVED),
        ("world_switch", SWITCH),
        ("channel_kick", KICK),
        ("doorbell", DOORBELL),
    ];
    if let Some((_, manifest)) = begins.iter().find(|(begin, _)| row.starts_with(begin)) {
        (manifest, row)
    } else if let Some(row) = row.strip_suffix(SHARED) {
        ("bench-shared", row)
    } else {
        ("bench", row)
    }
}

/// Takes off what a run without any row executes: boot and the guest's own start. The subtraction
/// stops at zero, because two boots may poll a device different numbers of times.
fn take_off(counts: &mut BTreeMap<u64, u64>, without: BTreeMap<u64, u64>) {
    for (pc, count) in without {
        if let Some(all) = counts.get_mut(&pc) {
            *all = all.saturating_sub(count);
        }
    }
}

/// Has QEMU log each execution of an instruction in these ranges: each instruction is a translation
/// block of its own, and without chaining no block is entered past the log. The filter keeps the
/// guest's own instructions out of the log, which would be most of it.
pub(super) fn log_instructions(command: &mut Command, ranges: &[Range<u64>], to: &Path) {
    let filter = ranges
        .iter()
        .map(|range| format!("{:#x}+{:#x}", range.start, range.end - range.start));
    command.args(["-accel", "tcg,one-insn-per-tb=on", "-d", "exec,nochain"]);
    command.args(["-dfilter", &filter.collect::<Vec<_>>().join(",")]);
    command.arg("-D").arg(to);
}

/// Runs the machine and counts how often each instruction in these ranges is executed: until the
/// guest is done, or before the one at `end` is executed. The log is read by a thread of its own,
/// since QEMU blocks when the pipe is full, and the console would then never show the guest's end.
pub(super) fn trace(
    qemu: &Qemu,
    machine: &Machine,
    images: &Images,
    ranges: &[Range<u64>],
    end: Option<u64>,
) -> Result<BTreeMap<u64, u64>> {
    let pipe = make_pipe()?;
    let mut command = qemu.command(machine, &images.boot(), Console::Pipes);
    log_instructions(&mut command, ranges, &pipe);
    let counter = thread::spawn(move || count(&pipe, end));
    let mut session = Session::start(command, &log("breakdown"))?;
    let measured = match end {
        None => is_measured(&mut session)?,
        Some(_) => wait_for(&counter, &mut session, TIMEOUT).map(|()| false)?,
    };
    let counts = counter.join();
    let mut counts = counts.map_err(|_| anyhow!("the trace cannot be read"))??;
    if measured {
        counts.insert(MEASURED, 1);
    }
    Ok(counts)
}

/// Makes the named pipe that QEMU writes its log to. The log of a boot has a line for each
/// instruction of the gears, so the reader counts while QEMU writes and nothing is stored. A pipe
/// that a killed run has left is replaced.
pub(super) fn make_pipe() -> Result<PathBuf> {
    let directory = workspace::output_dir().join("breakdown");
    fs::create_dir_all(&directory)?;
    let pipe = directory.join("trace");
    if pipe.exists() {
        fs::remove_file(&pipe)?;
    }
    let made = Command::new("mkfifo").arg(&pipe).status();
    ensure!(made.is_ok_and(|status| status.success()), "mkfifo fails");
    Ok(pipe)
}

/// Waits for the guest's end, and tells whether the guest has measured its row. QEMU's end closes
/// the pipe, at which the reader's thread ends.
fn is_measured(session: &mut Session) -> Result<bool> {
    let printed = session.expect("DONE\n", TIMEOUT);
    let status = session.expect_end(TIMEOUT);
    let printed = printed.map_err(|error| anyhow!("{error:#}\n{}", session.tail(20)))?;
    status?;
    Ok(printed.contains("BENCH "))
}

/// Waits until the reader of the log is done. A guest that never comes to the instruction at which
/// the reader stops may run for ever, so the wait has a limit. An error leaves the reader behind:
/// the session ends QEMU, whose end closes the pipe, and a pipe that no writer has ever opened holds
/// the reader until the command itself ends.
fn wait_for<T>(reader: &JoinHandle<T>, session: &mut Session, limit: Duration) -> Result<()> {
    let end = Instant::now() + limit;
    while !reader.is_finished() {
        let waited = limit.as_secs();
        ensure!(
            Instant::now() < end,
            "the trace does not come to its end within {waited} s\n{}",
            session.tail(20)
        );
        if let Err(ended) = session.listen(LOOK) {
            // QEMU's end ends the log, unless QEMU has never opened the pipe.
            thread::sleep(DRAIN);
            let tail = session.tail(20);
            ensure!(reader.is_finished(), "{ended:#}\n{tail}");
        }
    }
    Ok(())
}

/// Counts the program counters in QEMU's log, `Trace <cpu>: <host> [<flags>/<pc>/...`, before
/// `end`. A log without `end` is an error: its counts are of another part of the run than asked
/// for.
fn count(pipe: &Path, end: Option<u64>) -> Result<BTreeMap<u64, u64>> {
    let mut counts = BTreeMap::new();
    let mut reader = BufReader::with_capacity(1 << 20, File::open(pipe)?);
    let mut line = String::new();
    while reader.read_line(&mut line)? > 0 {
        let pc = line.split('/').nth(1);
        if let Some(pc) = pc.and_then(|pc| u64::from_str_radix(pc, 16).ok()) {
            // The boot loader's first instruction may lie where the guest's does later.
            if end == Some(pc) && !counts.is_empty() {
                return Ok(counts);
            }
            *counts.entry(pc).or_insert(0) += 1;
        }
        line.clear();
    }
    if let Some(end) = end {
        bail!("the machine ended before it came to the instruction at {end:#x}");
    }
    Ok(counts)
}

/// An image with its symbols. Symbols come from the debug information, and the code's bytes tell
/// the kind of an instruction. Both are read from one file, so that they cannot be of different
/// builds.
pub(super) struct Program {
    loader: Loader,
    /// Addresses of the code, which are the link addresses: both gears run where they are linked.
    pub(super) code: Range<u64>,
    text: Vec<u8>,
}

impl Program {
    /// Reads an ELF file as the linker wrote it. The flat image that boots has no symbols.
    pub(super) fn load(elf: &Path) -> Result<Program> {
        let bytes = fs::read(elf).with_context(|| elf.display().to_string())?;
        let file = object::File::parse(&*bytes)?;
        let mut sections = file.sections();
        let text = sections.find(|section| section.kind() == SectionKind::Text);
        let text = text.with_context(|| format!("{} has no code", elf.display()))?;
        Ok(Program {
            code: text.address()..text.address() + text.size(),
            text: text.data()?.to_vec(),
            loader: Loader::new(elf).map_err(|error| anyhow!("{}: {error}", elf.display()))?,
        })
    }

    /// Returns the instruction at a program counter, or 0 outside the code.
    pub(super) fn word(&self, pc: u64) -> u32 {
        let at = pc.wrapping_sub(self.code.start) as usize;
        let bytes = self.text.get(at..at.saturating_add(4));
        bytes.map_or(0, |b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]))
    }

    /// Tells whether an instruction was inlined from where device registers are accessed. An
    /// instruction without a location is taken for one that was not.
    fn in_mmio(&self, pc: u64) -> bool {
        let innermost = || {
            self.loader
                .find_frames(pc)
                .ok()?
                .next()
                .ok()??
                .location?
                .file
        };
        innermost().is_some_and(|file| file.ends_with(MMIO))
    }

    /// Returns the functions that an instruction is of: the one that it was written in, then those
    /// that this one is inlined in.
    pub(super) fn functions(&self, pc: u64) -> Vec<String> {
        let mut names = Vec::new();
        let Ok(mut frames) = self.loader.find_frames(pc) else {
            return names;
        };
        while let Ok(Some(frame)) = frames.next() {
            let name = frame
                .function
                .and_then(|name| Some(name.raw_name().ok()?.into_owned()));
            names.extend(name.map(|name| function_name(&name)));
        }
        names
    }

    /// Returns the name of the function that an instruction is in, or a question mark for code
    /// without a symbol. Inlined functions count as the one that they are inlined in, so that the
    /// sums of a table have no instruction twice.
    pub(super) fn function(&self, pc: u64) -> String {
        let name = self.loader.find_symbol(pc).unwrap_or("?");
        function_name(name)
    }

    /// Returns how often each instruction is executed an iteration. Counts are rounded to the
    /// nearest multiple of the iterations. An instruction that runs less than once in two
    /// iterations is the machine's background and no part of the row.
    fn each(&self, counts: &BTreeMap<u64, u64>) -> impl Iterator<Item = (u64, u64)> {
        let counts = counts.range(self.code.clone());
        counts
            .map(|(&pc, &count)| (pc, (count + ITERATIONS / 2) / ITERATIONS))
            .filter(|(_, each)| *each > 0)
    }

    /// Returns the functions of a gear, those with the most instructions first. Equal counts are in
    /// the order of names, so that two outputs can be compared.
    fn describe(&self, gear: &str, counts: &BTreeMap<u64, u64>) -> String {
        let mut functions = BTreeMap::<String, u64>::new();
        let mut all = 0;
        for (pc, each) in self.each(counts) {
            *functions.entry(self.function(pc)).or_default() += each;
            all += each;
        }
        let mut functions: Vec<_> = functions.into_iter().collect();
        functions.sort_by_key(|(name, count)| (std::cmp::Reverse(*count), name.clone()));
        let mut text = format!("{all} instructions in {gear} an iteration\n");
        for (name, count) in functions {
            let _ = writeln!(text, "{count:6}  {name}");
        }
        text
    }

    /// Returns the counts by kind. Only Gear1's are of interest: the GIC and the guests' registers
    /// are Gear1's alone.
    fn describe_kinds(&self, counts: &BTreeMap<u64, u64>) -> String {
        let mut kinds = BTreeMap::<Kind, u64>::new();
        for (pc, each) in self.each(counts) {
            *kinds
                .entry(Kind::of(self.word(pc), self.in_mmio(pc)))
                .or_default() += each;
        }
        let mut text = String::new();
        for (kind, count) in kinds.into_iter().filter(|(kind, _)| *kind != Kind::Other) {
            let _ = writeln!(text, "{count:6}  {}", kind.text());
        }
        text
    }
}

/// Returns the path of a function from its symbol. The hash at the end of a symbol in the legacy
/// mangling is left out, since it differs between builds of the compiler.
pub fn function_name(symbol: &str) -> String {
    let name = addr2line::demangle_auto(symbol.into(), None);
    let is_hash = |hash: &str| hash.len() == 16 && hash.bytes().all(|b| b.is_ascii_hexdigit());
    let path = name.rsplit_once("::h").filter(|(_, hash)| is_hash(hash));
    path.map_or_else(|| name.to_string(), |(path, _)| path.to_owned())
}

#[cfg(test)]
mod tests;
