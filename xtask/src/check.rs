//! `cargo xtask check`: judges manifests as Gear1 would on a board, and reports like a compiler.
//!
//! The verdict is that of init's own code on the board's device tree. `build` and `flash` give it
//! too: whoever skips `check` is not refused later than necessary.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use clap::{Args, ValueEnum};
use gear1_init::prepare;
use gear1_init::region::Region;
use serde::Serialize;
use workbench::board::{self, BoardTree};
use workbench::manifest::diagnostic::{Diagnostic, Sources, error_count};
use workbench::manifest::{self, Aligned, SourceRefused};
use workbench::tools::Tools;
use workbench::{build_images, number, output, workspace};

use crate::placement;
pub use placed::place;
use report::Report;

mod needs;
mod partition;
mod placed;
mod report;
mod svg;

/// The options of `check`. A board by name needs no file; a tree of a running board is the surest
/// description.
#[derive(Args, Debug)]
pub struct Options {
    /// The manifests
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// The board of the manifests
    #[arg(long, value_enum, value_name = "NAME", default_value_t = board::Name::QemuVirt)]
    board: board::Name,
    /// The device tree blob of the board that they are for, instead of a name
    #[arg(long, value_name = "FILE", conflicts_with = "board")]
    dtb: Option<PathBuf>,
    /// The board's memory in one piece, if it is another than the tree tells, or the firmware fills
    /// it in
    #[arg(long, value_name = "MIB", value_parser = number::within(1..=u32::MAX))]
    memory: Option<u32>,
    /// For a person or for a program
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t = Format::Text)]
    format: Format,
    /// Build each manifest and show the owners of the board's resources, and the free ones
    #[arg(long, conflicts_with = "format")]
    report: bool,
    /// Draw the same
    #[arg(long, value_name = "FILE", conflicts_with = "format")]
    svg: Option<PathBuf>,
}

/// JSON has everything of the text, for programs that must not parse it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// The source with each finding underlined
    Text,
    /// One line for each finding, as compilers write for editors
    Short,
    /// One JSON document
    Json,
}

/// Fewest bytes of memory that Gear1's init takes. The images tell the exact size once there are
/// some; a check builds none. A smaller estimate only finds less; nothing is refused for it that
/// would boot.
const LEAST_INIT_BYTES: u64 = 1 << 20;

/// Output of `--format json`: one document, whatever happens. Partial results stay when an error
/// ends the command, beside that error.
#[derive(Default, Serialize)]
struct Document {
    /// Name of the board, once known.
    board: Option<String>,
    /// Each of the files, in order.
    files: Vec<FileVerdict>,
    /// Error that ended the command before all files were judged.
    error: Option<String>,
}

/// Verdict on one file. The order of fields is the order in the document.
#[derive(Serialize)]
struct FileVerdict {
    /// As it was named on the command line.
    file: PathBuf,
    /// "good" or "refused": a program asks for nothing else first.
    verdict: &'static str,
    /// Errors and warnings, in the order of the text's output.
    findings: Vec<serde_json::Value>,
}

/// Findings in one manifest. Kept together, because a finding's place means something in its own
/// sources alone.
pub struct Findings {
    /// The texts that findings point into.
    pub sources: Sources,
    /// All findings, in order.
    pub list: Vec<Diagnostic>,
    /// The manifest as a blob.
    pub blob: Vec<u8>,
}

impl Options {
    /// Checks all files, then fails if one has an error. The exit code is the verdict: editors and
    /// CI ask for nothing else.
    pub fn run(self) -> Result<()> {
        if let Some(svg) = &self.svg {
            writable(svg)?;
        }
        let mut document = Document::default();
        let refused = self.judge_all(&mut document);
        if self.format == Format::Json {
            document.error = refused.as_ref().err().map(|error| format!("{error:#}"));
            println!("{}", serde_json::to_string_pretty(&document)?);
        }
        verdict(refused?, self.files.len())
    }

    /// Checks all files and says what is found, or notes that in `document`. Returns how many are
    /// refused: one that is does not keep the others from being checked. Tools and board are
    /// prepared once for all files.
    fn judge_all(&self, document: &mut Document) -> Result<usize> {
        let tools = Tools::prepare()?;
        let board = self.board_tree(&tools)?;
        document.board = Some(board.name.clone());
        let mut refused = 0;
        for file in &self.files {
            let (errors, findings) = self.judge(file, &board, &tools)?;
            refused += usize::from(errors != 0);
            document.files.push(FileVerdict {
                file: file.clone(),
                verdict: verdict_on(errors),
                findings,
            });
            if errors == 0 && (self.report || self.svg.is_some()) {
                self.report(file, &board, &tools)?;
            }
        }
        Ok(refused)
    }

    /// Returns the board that the manifests are for. A tree of a person's file goes through the
    /// same reader as ours.
    fn board_tree(&self, tools: &Tools) -> Result<BoardTree> {
        let board = match &self.dtb {
            Some(dtb) => BoardTree::from_file(dtb, tools)?,
            None => BoardTree::named(self.board, tools)?,
        };
        with_memory(board, self.memory, tools)
    }

    /// Checks a file, and returns the number of errors and the findings for a program. A source
    /// that does not compile has findings too, which dtc wrote.
    fn judge(
        &self,
        file: &Path,
        board: &BoardTree,
        tools: &Tools,
    ) -> Result<(usize, Vec<serde_json::Value>)> {
        let findings = match check(file, board, tools) {
            Ok(findings) => findings,
            Err(error) => return self.source_refused(error),
        };
        let errors = error_count(&findings.list);
        let Findings { sources, list, .. } = &findings;
        match self.format {
            Format::Json => {}
            Format::Short => print!("{}", sources.lines(list)),
            Format::Text => print(file, board, &findings, errors),
        }
        Ok((errors, sources.json(list)))
    }

    /// Says why a source is no device tree; any other error ends the command. dtc has told file and
    /// line already.
    fn source_refused(&self, error: anyhow::Error) -> Result<(usize, Vec<serde_json::Value>)> {
        let refused: SourceRefused = error.downcast()?;
        match self.format {
            Format::Json => {}
            Format::Short => print!("{}", refused.lines),
            Format::Text => eprintln!("{refused}\n"),
        }
        Ok((refused.json.len(), refused.json))
    }
}

impl Options {
    /// Builds the manifest's archive, has init place it, and shows where everything is. The images
    /// are built, for a kernel's size decides its VM's place.
    fn report(&self, file: &Path, board: &BoardTree, tools: &Tools) -> Result<()> {
        let images = build_images::build(file)?;
        let placed = placed::place(&images, board, tools)?;
        let bytes = Aligned::new(&images.manifest.blob);
        let judged = gearv_manifest::judge(bytes.as_slice(), None, &mut |_| {});
        let manifest = judged.manifest.context("the manifest was judged before")?;
        let title = format!("{} on {}", file.display(), board.name);
        let report = Report::new(&title, &manifest, &placed);
        if self.report {
            println!("\n{}", report.text());
        }
        if let Some(svg) = &self.svg {
            fs::write(svg, svg::draw(&report))
                .with_context(|| format!("cannot write {}", svg.display()))?;
        }
        Ok(())
    }
}

/// Refuses a drawing that cannot be written: the images that it shows take minutes to build.
fn writable(svg: &Path) -> Result<()> {
    ensure!(!svg.is_dir(), "--svg {}: this is a folder", svg.display());
    let folder = svg.parent().unwrap_or(Path::new(""));
    let is_there = folder.as_os_str().is_empty() || folder.is_dir();
    ensure!(
        is_there,
        "--svg {}: there is no folder {}; mkdir -p makes it",
        svg.display(),
        folder.display()
    );
    Ok(())
}

/// Gives a board the memory that a person says, and refuses one whose memory is the firmware's to
/// fill in if nobody says. Trees in Linux's sources often have a size of 0 there.
pub(crate) fn with_memory(
    board: BoardTree,
    memory: Option<u32>,
    tools: &Tools,
) -> Result<BoardTree> {
    match memory {
        Some(mib) => board.with_memory(mib, tools),
        None if board.lacks_memory() => bail!(
            "{}: the tree's memory has no size, because the board's firmware fills that in: say how \
             much there is in one piece with --memory, or take the tree of the running board \
             (/sys/firmware/fdt under Linux)",
            board.name
        ),
        None => Ok(board),
    }
}

/// Fails if any manifest is refused. One line a run: the files had their own.
fn verdict(refused: usize, all: usize) -> Result<()> {
    match (refused, all) {
        (0, _) => Ok(()),
        (1, 1) => bail!("the manifest is refused"),
        (refused, all) => bail!("{refused} of {all} manifests are refused"),
    }
}

/// Warnings do not count: what they tell of runs.
const fn verdict_on(errors: usize) -> &'static str {
    if errors == 0 { "good" } else { "refused" }
}

/// Findings go to standard error and the verdict to standard output, as compilers do.
fn print(file: &Path, board: &BoardTree, findings: &Findings, errors: usize) {
    let styled = output::styles_errors();
    let drawn = match errors {
        // A report builds the manifest, and the build finds the same.
        0 => findings.sources.draw_new(&findings.list, styled),
        _ => findings.sources.draw(&findings.list, styled),
    };
    if !drawn.is_empty() {
        eprintln!("{drawn}\n");
    }
    let (file, board) = (file.display(), &board.name);
    let count = |count: usize, what: &str| match count {
        0 => String::new(),
        1 => format!(", 1 {what}"),
        count => format!(", {count} {what}s"),
    };
    let verdict = verdict_on(errors);
    let errors_text = count(errors, "error");
    let warnings = count(findings.list.len() - errors, "warning");
    println!("{file}: {verdict} for {board}{errors_text}{warnings}");
}

/// Judges a manifest for a board: what Gear1 would say, what the devices lack, and the files. What
/// a boot could not find (a missing file) and what init would refuse  come as one list.
pub fn check(file: &Path, board: &BoardTree, tools: &Tools) -> Result<Findings> {
    let (dts, blob) = compiled(file, tools)?;
    let facts = board.read()?;
    let least = manifest::least_archive_bytes(&blob, &dts);
    let loaded = placement::loaded(&facts, LEAST_INIT_BYTES, least);
    let mut list = judged(&blob, board, &loaded)?;
    // Files that xtask would first have to make or download are compared when the image is built.
    let nothing = |_: &str| Ok(PathBuf::new());
    list.extend(manifest::judge_files(&blob, &dts, &nothing)?);
    Ok(Findings {
        sources: manifest::judge_source(&dts, tools, &mut list),
        list,
        blob,
    })
}

/// Compiles a manifest. Returns the path as messages show it, and the blob. The folder has the
/// process's number: two checks may run at a time.
fn compiled(file: &Path, tools: &Tools) -> Result<(PathBuf, Vec<u8>)> {
    let out_dir = workspace::output_dir().join(format!("check-{}", std::process::id()));
    let compiled = manifest::compile_source(file, tools, &out_dir);
    // Only scratch files lie there.
    let _ = std::fs::remove_dir_all(&out_dir);
    compiled
}

/// Judges a blob for a board: by the rules of Gear1's init, and by what devices need of each other.
/// Gear1's init and the archive are `loaded` there. init's own function judges, linked into this
/// program: a manifest that passes here is refused by no boot of that board for a rule.
fn judged(blob: &[u8], board: &BoardTree, loaded: &[Region; 2]) -> Result<Vec<Diagnostic>> {
    let mut facts = board.read()?;
    facts.reserved.extend(loaded);
    let bytes = Aligned::new(blob);
    let mut list = Vec::new();
    let mut sink = |error: &gearv_manifest::ManifestError<'_>| list.push(Diagnostic::new(error));
    let judged = prepare::judge(bytes.as_slice(), &facts, board.bytes(), &mut sink);
    if let Err(refusal) = judged {
        bail!("{}: {refusal}", board.name);
    }
    let tree = board.tree()?;
    let judged = gearv_manifest::judge(bytes.as_slice(), None, &mut |_| {});
    if let Some(manifest) = &judged.manifest {
        list.iter_mut().for_each(|one| one.add_memory(manifest));
        let needed = needs::missing(manifest, &tree).into_iter();
        let needed = needed.chain(needs::clock(manifest, &tree));
        list.extend(needed.map(|fault| Diagnostic::new(&fault.error())));
        manifest::warn_of_userlands(manifest, &mut |error| list.push(Diagnostic::new(&error)));
    }
    name_places(&mut list, loaded);
    Ok(list)
}

/// Tells findings of reserved memory what boots there. "Reserved" alone would send a reader into
/// the board's tree.
fn name_places(list: &mut [Diagnostic], loaded: &[Region; 2]) {
    let [init, archive] = loaded.map(|region| format!("{:#x} on", region.start));
    let who = format!("Gear1 boots from {init}, its archive from {archive}");
    list.iter_mut().for_each(|one| one.add_reserved(&who));
}
