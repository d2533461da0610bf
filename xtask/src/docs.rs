//! `cargo xtask docs`: the documents as a book with search, and the documentation of the crates.
//!
//! Owns the list of documents and the book's chapters. The documents are Markdown that GitHub shows
//! as well, so the book is built from a copy below the target directory.
//!
//! A document keeps its name and place: links between documents are those that GitHub follows.
//! rustdoc's output stands beside the book and not inside, since each has a search of its own.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use workbench::{cargo_tool, workspace};

mod markdown;

pub use markdown::faults;

/// The chapters in their order: heading of a part, or title and file. A document without a chapter
/// is a fault, so that the book has all of them. Use comes before structure: most readers run a
/// system before they read its code.
const CHAPTERS: &[(&str, &str)] = &[
    ("GearV", "README.md"),
    ("Use", ""),
    ("A tour in an hour", "docs/tour.md"),
    ("Recipes", "docs/recipes.md"),
    ("Running GearV", "docs/running.md"),
    ("gearctl", "docs/gearctl.md"),
    ("The manifest", "docs/manifest.md"),
    ("Board: QEMU virt", "docs/boards/qemu-virt.md"),
    ("Board: Raspberry Pi 4", "docs/boards/rpi4.md"),
    ("Board: R-Car H3", "docs/boards/rcar-h3.md"),
    ("Board: ZCU102", "docs/boards/zcu102.md"),
    ("Board: i.MX 8M Plus EVK", "docs/boards/imx8mp-evk.md"),
    ("Debugging", "docs/debugging.md"),
    ("Structure", ""),
    ("Architecture", "docs/ARCHITECTURE.md"),
    ("Design and reasons", "docs/design.md"),
    ("Schedulers", "docs/schedulers.md"),
    ("Interfaces", "docs/abi.md"),
    ("The device model", "docs/device-model.md"),
    ("Real-time VMs", "docs/rtvm.md"),
    ("Supervision", "docs/supervision.md"),
    ("Doorbells between VMs", "docs/doorbells.md"),
    ("Figures", ""),
    ("Performance", "docs/performance.md"),
    ("Worst cases", "docs/worst-cases.md"),
    ("Budgets", "docs/budgets.md"),
    ("Assurance", ""),
    ("Safety manual", "docs/safety-manual.md"),
    ("Threat model", "docs/threat-model.md"),
    ("Evidence", "docs/evidence.md"),
    ("Errata", "docs/errata.md"),
    ("Dependencies", "docs/dependencies.md"),
    ("Requirements: matrix", "docs/requirements/matrix.md"),
    ("Requirements: boot", "docs/requirements/boot.md"),
    ("Requirements: memory", "docs/requirements/memory.md"),
    ("Requirements: CPU", "docs/requirements/cpu.md"),
    ("Requirements: virtual GIC", "docs/requirements/gic.md"),
    ("Requirements: timers", "docs/requirements/timers.md"),
    ("Requirements: PSCI", "docs/requirements/psci.md"),
    ("Requirements: vCPU states", "docs/requirements/vcpu.md"),
    ("Requirements: faults", "docs/requirements/faults.md"),
    ("Requirements: channels", "docs/requirements/channels.md"),
    ("Requirements: devices", "docs/requirements/dma.md"),
    ("Requirements: tracing", "docs/requirements/trace.md"),
    ("Requirements: runtime", "docs/requirements/runtime.md"),
    (
        "Requirements: supervision",
        "docs/requirements/supervision.md",
    ),
    ("Requirements: real time", "docs/requirements/realtime.md"),
    ("Change", ""),
    ("Contributing", "CONTRIBUTING.md"),
    ("Examples", "docs/examples.md"),
    ("Tests on the target", "tests/README.md"),
    ("Changelog", "CHANGELOG.md"),
    ("Security", "SECURITY.md"),
];

/// The version of mdBook that the book is written for. Pinned, because themes and the checks of
/// links change between versions.
const MDBOOK: &str = "0.5.4";

/// mdBook's settings. Only the search differs from what mdBook does by itself. Kept here, and not
/// in a file, as the book's folder is below the target directory.
const SETTINGS: &str = "[book]\ntitle = \"GearV\"\nlanguage = \"en\"\n\n\
                        [output.html]\ndefault-theme = \"light\"\n\n\
                        [output.html.search]\nenable = true\n";

/// Packages that are documented for the target; all others are for the host. Their modules use
/// instructions of the target, which no host compiles. The device model and the tools are in the
/// host's half, by default.
const BARE_PACKAGES: [&str; 5] = [
    "gear1-arch",
    "gear1-init",
    "gear1-runtime",
    "gear2",
    "test-guests",
];

/// Builds the book and the crates' documentation, and says where they are. The documents are judged
/// first: a dead link would else be found after minutes of building.
pub fn command() -> Result<()> {
    let faults = faults(workspace::root())?;
    faults.iter().for_each(|fault| println!("FAIL {fault}"));
    ensure!(
        faults.is_empty(),
        "{} faults in the documents",
        faults.len()
    );
    println!("the book: {}", book()?.display());
    for documented in crates()? {
        println!("the crates: {}", documented.display());
    }
    Ok(())
}

/// Builds the book from a copy of the documents. Returns its first page. The copy is made anew each
/// time, or a deleted document would stay in the book.
fn book() -> Result<PathBuf> {
    let folder = workspace::output_dir().join("book");
    let source = folder.join("src");
    if source.exists() {
        fs::remove_dir_all(&source)?;
    }
    copy_sources(workspace::root(), &source)?;
    fs::write(folder.join("book.toml"), SETTINGS)?;
    let mdbook = cargo_tool::pinned(
        "mdbook",
        MDBOOK,
        &["--no-default-features", "--features", "search"],
    )?;
    run(Command::new(mdbook).arg("build").arg(&folder))?;
    Ok(folder.join("book/index.html"))
}

/// Documents all crates with warnings as errors, those of the target apart. Returns the folders.
/// Private items are documented too: contributors are the readers.
pub fn crates() -> Result<[PathBuf; 2]> {
    workspace::ensure_targets(&[workspace::BARE_TARGET])?;
    // init embeds the runtimes; its documentation needs no image, so any file stands for them.
    let any_file = workspace::root().join("Cargo.toml");
    let mut bare = rustdoc();
    bare.args(["--target", workspace::BARE_TARGET, "--features", "image"])
        .args(BARE_PACKAGES.iter().flat_map(|name| ["--package", name]))
        .env("GEAR1_RUNTIME_BIN", &any_file)
        .env("GEAR1_RUNTIME_GICV2_BIN", &any_file);
    run(&mut rustdoc())?;
    run(&mut bare)?;
    let target = workspace::target_dir();
    Ok([target.clone(), target.join(workspace::BARE_TARGET)].map(|folder| folder.join("doc")))
}

/// Returns the command that documents the workspace. A dead link inside a comment is a warning of
/// rustdoc's, and hence an error. Dependencies are left out: their pages are on docs.rs, and would
/// take longer than all of ours.
fn rustdoc() -> Command {
    let mut cargo = workspace::cargo();
    cargo
        .args(["doc", "--quiet", "--no-deps", "--document-private-items"])
        .env("RUSTDOCFLAGS", "-D warnings");
    cargo
}

/// Copies the documents, and the files that they include, below `to`, with a table of contents.
/// Pictures and included sources keep their paths, so that links of the originals hold in the copy.
fn copy_sources(root: &Path, to: &Path) -> Result<()> {
    for (_, file) in CHAPTERS.iter().filter(|(_, file)| !file.is_empty()) {
        let text = read(&root.join(file))?;
        for included in markdown::included(&text) {
            let included = markdown::normal(&Path::new(file).join("..").join(included));
            copy(root, to, &included)?;
        }
        copy(root, to, Path::new(file))?;
    }
    for picture in markdown::pictures(&root.join("docs"))? {
        copy(root, to, picture.strip_prefix(root)?)?;
    }
    fs::write(to.join("SUMMARY.md"), summary())?;
    Ok(())
}

/// Writes mdBook's table of contents, which decides what is rendered at all. Made from
/// [`CHAPTERS`], so that a document without a chapter is found by the list and not by a reader.
fn summary() -> String {
    let mut text = "# Summary\n".to_owned();
    for (title, file) in CHAPTERS {
        text += &match (*file, *title) {
            ("README.md", title) => format!("\n[{title}](README.md)\n"),
            ("", part) => format!("\n# {part}\n\n"),
            (file, title) => format!("- [{title}]({file})\n"),
        };
    }
    text
}

/// Copies one file to the same path below another folder. The folders on the way are made: pictures
/// and included sources lie deeper than the documents.
fn copy(root: &Path, to: &Path, file: &Path) -> Result<()> {
    let copy = to.join(file);
    if let Some(folder) = copy.parent() {
        fs::create_dir_all(folder)?;
    }
    fs::copy(root.join(file), copy).with_context(|| file.display().to_string())?;
    Ok(())
}

/// Reads a document; the error names it, as the one of the system does not.
fn read(file: &Path) -> Result<String> {
    fs::read_to_string(file).with_context(|| file.display().to_string())
}

/// Runs a program quietly; its complaint is the error.
fn run(command: &mut Command) -> Result<()> {
    let output = command.output();
    let output = output.with_context(|| format!("{command:?} cannot be run"))?;
    let complaint = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?} failed:\n{complaint}");
    Ok(())
}

#[cfg(test)]
mod tests;
