//! `cargo xtask audit`: checks of Gear1's linked runtime images.
//!
//! Owns the findings: panics, indirect branches, recursion, the worst case of each stack, the bound
//! of each loop, sizes against the budgets of `gear1/audit.toml`; and, of the sources, circles of
//! modules in any crate.
//!
//! Invariant: code that the audit cannot analyse is a finding, never passed over.
//!
//! The images are judged as they are linked, and not as their sources look: the compiler inlines,
//! unrolls, and adds calls of its own. The sources are read for what no image shows: lines,
//! comments, modules, and where `unsafe` stands.

mod bounds;
mod code;
mod crates;
mod decode;
mod loops;
mod modules;
mod places;
mod rules;
mod rust;
mod since;
mod source;
mod stack;
mod subjects;
mod table;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use clap::Args;
use gear1_abi::id::MAX_CPUS;
use gear1_abi::layout::el2;

use self::bounds::Bounds;
use self::code::Program;
pub use self::rules::Rules;
use self::rules::Size;
use self::stack::Stacks;
use self::subjects::{Image, Tally};
use workbench::{build_images, workspace};

/// The runtime for each interrupt controller: the directory below the target directory, the flat
/// file. Both are shipped in one file, so a rule that only one keeps is broken.
const IMAGES: [(&str, &str, &str); 2] = [
    ("GICv3", "", "gear1-runtime.bin"),
    ("GICv2", "gicv2", "gear1-runtime-gicv2.bin"),
];
/// The image whose functions are resident. One image stands for "resident", so that there is one
/// figure: the larger one.
const COUNTED: &str = "GICv3";
/// The papers' table 4: lines of whole hypervisors, in thousands. Printed beside our own lines.
/// Counted by the papers' authors, by rules that they do not give: an order of magnitude.
const OTHERS: &str =
    "Xen 309, KVM 17,000 (with Linux), Xvisor 356, OKL4 393, ACRN 30, the paper's Gear1 18";

/// Bytes of all CPUs' stacks, which no image holds.
const STACKS: u64 = el2::STACK_SIZE * MAX_CPUS as u64;

/// The options of `audit`. Three of the questions need no image and answer at once.
#[derive(Args, Debug)]
pub struct Options {
    /// Build nothing: count lines, functions, documentation and panics of GearV's sources, and of
    /// the Rust sources in these directories
    #[arg(long, value_name = "DIR", num_args = 0..)]
    table: Option<Vec<PathBuf>>,
    /// Build nothing: print Gear1's lines by subject beside those of this revision
    #[arg(long, value_name = "REVISION", conflicts_with = "table")]
    since: Option<String>,
    /// Build nothing: print functions and comments of each crate, and what is longer than 80 lines
    /// a function or 600 lines a file
    #[arg(long, conflicts_with_all = ["table", "since"])]
    crates: bool,
}

/// Result of the audit: figures, and violations. What holds is printed too: a reader sees what was
/// looked at, and a figure that grows.
#[derive(Debug, Default)]
pub struct Findings {
    /// Statements that hold, one line each.
    pub holds: Vec<String>,
    /// Statements that do not hold, one line each.
    pub fails: Vec<String>,
}

/// Prints what the options ask for, or the findings; fails if there is a violation. The table and
/// the lines since a revision have no verdict.
pub fn command(options: &Options) -> Result<()> {
    if let Some(others) = &options.table {
        return table::print(others);
    }
    if let Some(revision) = &options.since {
        println!("{}", since::table(&Rules::read()?, revision)?);
        return Ok(());
    }
    if options.crates {
        let crates = crates::report(&Rules::read()?)?;
        for line in crates.iter().chain(&crates::too_long()?) {
            println!("{line}");
        }
        return Ok(());
    }
    print(&run()?)
}

/// Prints the findings, and fails if there is a violation. Failures come last, where a terminal
/// shows them. All of them are printed: a change that breaks three rules is mended once.
fn print(findings: &Findings) -> Result<()> {
    for line in &findings.holds {
        println!("{line}");
    }
    for line in &findings.fails {
        println!("FAIL {line}");
    }
    let count = findings.fails.len();
    ensure!(
        count == 0,
        "{count} findings: what each rule wants stands in gear1/audit.toml"
    );
    Ok(())
}

/// Builds the images and looks at them. The images are built first. Both are read in the same way,
/// and whatever no rule has seen in the end (a bound without a loop) is a finding too.
pub fn run() -> Result<Findings> {
    build_images::gears()?;
    let rules = Rules::read()?;
    let mut findings = Findings::default();
    let mut bounds = Bounds::read(&rules)?;
    let mut calls = Vec::new();
    for (name, directory, flat) in IMAGES {
        let elf = workspace::bare_elf_in(directory, "gear1-runtime");
        let program = Program::read(&elf)?;
        let flat = workspace::output_dir().join(flat);
        findings.calls(name, &program, &rules)?;
        findings.loops(name, &program, &mut bounds)?;
        findings.sizes(name, kept_by(&flat, &program)?, &rules)?;
        calls.extend(modules::calls(&program)?);
        if name == COUNTED {
            findings.subjects(&program, &rules)?;
        }
    }
    findings.fails.extend(bounds.surplus());
    findings.source(&rules)?;
    findings.holds.extend(crates::report(&rules)?);
    findings.fails.extend(crates::too_long()?);
    findings.modules(&calls)?;
    Ok(findings)
}

/// Returns the bytes of the runtime's flat image for this GIC, and of the memory that it keeps.
/// `bench` prints the same figures beside other hypervisors'.
pub fn kept(gic_version: u32) -> Result<[u64; 2]> {
    let flat = build_images::runtime(gic_version)?;
    let directory = if gic_version == 2 { "gicv2" } else { "" };
    let program = Program::read(&workspace::bare_elf_in(directory, "gear1-runtime"))?;
    kept_by(&flat, &program)
}

/// Returns the bytes of a flat image, and of the memory that its program keeps. The segments have
/// code and variables; stacks and tables are reserved by layout and not by the image.
fn kept_by(flat: &Path, program: &Program) -> Result<[u64; 2]> {
    let image = fs::metadata(flat).with_context(|| flat.display().to_string())?;
    Ok([image.len(), program.memory_bytes + STACKS])
}

impl Findings {
    /// Sorts a statement by its verdict.
    fn check(&mut self, holds: bool, what: String) {
        let list = if holds {
            &mut self.holds
        } else {
            &mut self.fails
        };
        list.push(what);
    }

    /// Stacks, recursion and indirect branches, all along the calls of every entry. Every entry
    /// from the vectors begins with an empty stack, so its chains of calls are all that lies there.
    /// Recursion is an error of the search for the worst chain, which would have no end: it becomes
    /// a finding of its entry, and the other entries are judged all the same.
    fn calls(&mut self, image: &str, program: &Program, rules: &Rules) -> Result<()> {
        let mut stacks = Stacks::new(&program.functions);
        for (entry, size) in &rules.stack {
            let start = program.functions.named(entry);
            let start = start.with_context(|| format!("{image}: no function {entry}"))?;
            let size = stack_bytes(image, program, size)?;
            match stacks.worst(start) {
                Err(error) => self.fails.push(format!("{image}: {error:#}")),
                Ok(worst) => {
                    let chain = worst.chain.join(" > ");
                    let text = format!(
                        "{image}: stack of {entry}: {} of {size} bytes: {chain}",
                        worst.bytes
                    );
                    self.check(worst.bytes.unsigned_abs() <= size, text);
                }
            }
        }
        self.ends(image, program);
        Ok(())
    }

    /// Code that nothing may contain: ends by a panic, and branches that the analysis cannot
    /// follow. The linker refuses a panic already; formatting and allocation have no such guard.
    fn ends(&mut self, image: &str, program: &Program) {
        let names = program.functions.names();
        let panics: Vec<&str> = names.filter(|name| is_panic(name)).collect();
        let text = format!("{image}: functions that panic, format or allocate: {panics:?}");
        self.check(panics.is_empty(), text);
        let indirect = program.functions.indirect_branches();
        let text = format!("{image}: indirect calls and jumps in compiled code: {indirect:?}");
        self.check(indirect.is_empty(), text);
    }

    /// The image and the memory that it keeps. The flat file is what is copied and measured, and
    /// RAM what a board loses for good. Two budgets, as they grow by different things: the image by
    /// code, and RAM by each CPU's stack and by tables.
    fn sizes(&mut self, image: &str, [flat, kept]: [u64; 2], rules: &Rules) -> Result<()> {
        self.budget(image, "image-bytes", flat, rules)?;
        self.budget(image, "ram-bytes", kept, rules)
    }

    /// A bound may serve both images, so the surplus is judged after both. The loops are those of
    /// the linked code and not of the sources: the compiler unrolls some, and makes others of
    /// iterators, of copies and of comparisons. A bound that belongs to no loop is a finding as
    /// well: the loop that it was written for has changed.
    fn loops(&mut self, image: &str, program: &Program, bounds: &mut Bounds) -> Result<()> {
        let loops = loops::find(program)?;
        let wrong = bounds.compare(&loops);
        if wrong.is_empty() {
            let text = format!(
                "{image}: {} loops, each with its bound beside it",
                loops.len()
            );
            self.holds.push(text);
        }
        let wrong = wrong.into_iter().map(|text| format!("{image}: {text}"));
        self.fails.extend(wrong);
        Ok(())
    }

    /// Lines, `unsafe` blocks and foreign crates of the sources. Raw pointers outside of `arch` are
    /// a finding here, since no lint knows the difference between a call and a dereference.
    fn source(&mut self, rules: &Rules) -> Result<()> {
        let (packages, holders) = source::count()?;
        self.lines(&packages)?;
        let sum = |of: fn(&source::Counts) -> u64| packages.values().map(of).sum::<u64>();
        let (blocks, argued) = (sum(|c| c.unsafe_blocks), sum(|c| c.argued));
        self.budget("gear1", "unsafe-blocks", blocks, rules)?;
        let text = format!(
            "gear1: {argued} of {blocks} unsafe blocks with a SAFETY comment, in {holders:?}"
        );
        self.check(argued == blocks, text);
        self.fails.extend(source::beyond_calls()?);
        self.holds.push(format!(
            "crates in the runtime: {}",
            source::crates()?.join(", ")
        ));
        Ok(())
    }

    /// Lines of code and of tests, by package and in all. Tests are counted beside the code, of
    /// which they should be at least as many.
    fn lines(&mut self, packages: &BTreeMap<String, source::Counts>) -> Result<()> {
        self.holds.extend(packages.iter().map(package_line));
        let sum = |of: fn(&source::Counts) -> u64| packages.values().map(of).sum::<u64>();
        let (guests, common) = source::guests()?;
        let (code, tests) = (sum(|c| c.lines), sum(|c| c.test_lines));
        self.holds.push(format!(
            "gear1: {code} lines of code; {} of tests: {tests} on the host and {guests} of guests, which have {common} in common",
            tests + guests + common
        ));
        self.holds
            .push(format!("others' lines, in thousands: {OTHERS}"));
        Ok(())
    }

    /// Lines and bytes by subject. Lines by subject show which promise costs what; docs/budgets.md
    /// repeats the table.
    fn subjects(&mut self, program: &Program, rules: &Rules) -> Result<()> {
        let image = Image::of(program)?;
        let tallies = subjects::count(rules, &subjects::files()?, &image);
        let sum = |of: fn(&Tally) -> u64| tallies.values().map(of).sum::<u64>();
        self.budget("gear1", "resident-lines", sum(|t| t.resident), rules)?;
        self.budget("gear1", "boot-lines", sum(|t| t.boot), rules)?;
        let others = sum(|t| t.others);
        let text = format!("gear1: {others} lines that neither links, as of the other GIC");
        self.holds.push(text);
        for (subject, tally) in &tallies {
            let Tally {
                resident,
                bytes,
                boot,
                others,
            } = tally;
            self.holds.push(format!(
                "subject {subject}: {resident} lines resident, {bytes} bytes of instructions, {boot} lines of boot, {others} of neither"
            ));
        }
        Ok(())
    }

    /// Modules that use each other, and the layers of the runtime. One line of totals, and each
    /// violation by its place.
    fn modules(&mut self, calls: &[modules::Call]) -> Result<()> {
        let report = modules::check(calls)?;
        let modules::Report {
            crates,
            modules,
            arrows,
            floors: (floors, layered),
            wrong,
        } = report;
        self.holds.push(format!(
            "modules: {modules} of {crates} crates, {arrows} arrows between them; {layered} of the runtime on {floors} floors"
        ));
        self.fails.extend(wrong);
        Ok(())
    }

    /// A goal that is missed is told, and only a limit fails: a mend takes the lines that it needs.
    fn budget(&mut self, of: &str, what: &str, value: u64, rules: &Rules) -> Result<()> {
        let budget = rules.budget.get(what);
        let budget = budget.with_context(|| format!("gear1/audit.toml has no budget {what}"))?;
        let goal = match value <= budget.goal {
            true => "",
            false => ", over the goal: docs/budgets.md",
        };
        let limit = budget
            .limit
            .map_or_else(|| "none".to_owned(), |limit| limit.to_string());
        let text = format!(
            "{of}: {what} {value} (goal {}, limit {limit}){goal}",
            budget.goal
        );
        self.check(budget.limit.is_none_or(|limit| value <= limit), text);
        Ok(())
    }
}

/// Says what a package of Gear1 has. One line each, to be compared with an older run by `diff`.
fn package_line((package, counts): (&String, &source::Counts)) -> String {
    let source::Counts {
        lines,
        test_lines,
        unsafe_blocks,
        argued,
    } = counts;
    format!(
        "gear1/{package}: {lines} lines, {test_lines} of tests, {unsafe_blocks} unsafe blocks, {argued} with a SAFETY comment"
    )
}

/// Returns the size of an entry's stack. The stack for a halt is the linker script's, which exports
/// its size as a symbol. A number in `audit.toml` would be a second place for the linker script's.
fn stack_bytes(image: &str, program: &Program, size: &Size) -> Result<u64> {
    match size {
        Size::Bytes(bytes) => Ok(*bytes),
        Size::Symbol(name) => {
            let value = program.absolute.get(name).copied();
            value.with_context(|| format!("{image}: no symbol {name}"))
        }
    }
}

/// Tells whether a function can only be there to panic, to format text or to allocate. Names of the
/// standard library: none of them has another purpose.
fn is_panic(name: &str) -> bool {
    [
        "panic",
        "core::fmt",
        "alloc::",
        "__rust_alloc",
        "unwrap_failed",
    ]
    .iter()
    .any(|part| name.contains(part))
}
