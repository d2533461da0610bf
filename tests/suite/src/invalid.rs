//! Manifests that break one rule each, in `manifests/invalid`: the exact output of `check`, and the
//! refusal by Gear1's init, which names the same rule.
//!
//! A file has the name of its rule, with a word behind it where the rule has several. `FILE.txt`
//! beside each `FILE.dts` holds the output of `check`. With the environment variable `BLESS` set
//! the test writes these files instead; then read the difference.
//!
//! Messages are part of the product, so each is kept in whole: a change of words shows in the
//! difference of a commit. Init judges alone at boot, and must not be milder than `check`.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::{env, fs};

use anyhow::{Context, Result, ensure};
use gearv_manifest::{GEAR2_MEMBER, MANIFEST_MEMBER, Rule, Severity};
use workbench::archive::Writer;
use workbench::board::{self, BoardTree};
use workbench::manifest::Aligned;
use workbench::tools::Tools;
use workbench::{build_images, workspace};
use xtask::{check, placement};

use crate::part::{Part, Tally};

/// The board, unless the file says another: QEMU's virt with 2 CPUs and 1 GiB, as kept for init's
/// tests. A dump of QEMU's tree, so that no QEMU is needed here.
const BOARD: &str = "gear1/init/src/fdt/virt-gicv3.dtb";

/// Rules that no source breaks on a board that is here, with what tests them instead. Each has a
/// reason, since the list would otherwise grow with every rule that is hard to break.
const ELSEWHERE: &[Rule] = &[
    // Damaged blobs, and names that dtc merges or refuses: `gearv-manifest`'s own tests.
    Rule::BadBlob,
    Rule::DuplicateName,
    Rule::DuplicateVm,
    // Features that other builds lack: `gearv-manifest`'s own tests.
    Rule::KindNotSupported,
    Rule::PrivilegeNotSupported,
    // `virt` has a PMU: `gearv-manifest`'s own tests.
    Rule::NoPmu,
    // More devices than `virt` has: init's tests.
    Rule::TooManyMasters,
    // A board with an SMMU: init's tests.
    Rule::DmaAndPeers,
];

/// Rules that need the files beside the manifest: Gear1's init finds what is in the archive, and
/// says by itself what it misses there. `check` looks at files on the host's disk, init at members
/// of an archive.
const ON_FILES: &[Rule] = &[
    Rule::FileMissing,
    Rule::FileEmpty,
    Rule::NotAKernel,
    Rule::NotAFlatBinary,
    Rule::NotAnInitrd,
    Rule::UnknownArtifact,
    Rule::PayloadTooLarge,
    Rule::EntryBehindImage,
];

pub(super) fn parts() -> Vec<Part> {
    vec![Part::new("invalid manifests", run)]
}

/// Returns the folder that they are in.
pub(super) fn folder() -> PathBuf {
    workspace::root().join("manifests/invalid")
}

/// A rule without a manifest fails the part: new rules come with theirs.
fn run(tally: &mut Tally) -> Result<()> {
    let tools = Tools::prepare()?;
    let (_, gear2) = build_images::gears()?;
    let gear2 = fs::read(gear2)?;
    let broken = Rule::ALL.iter().filter(|rule| !ELSEWHERE.contains(rule));
    let mut missing: BTreeSet<&str> = broken.map(|rule| rule.id()).collect();
    for file in manifests()? {
        let name = file.file_stem().unwrap_or_default().to_string_lossy();
        tally.check(&name, judge(&file, &gear2, &tools));
        missing.remove(rule_of(&name));
    }
    let none: Result<()> = match missing.is_empty() {
        true => Ok(()),
        false => Err(anyhow::anyhow!("no manifest breaks {missing:?}")),
    };
    tally.check("every rule has a manifest that breaks it", none);
    Ok(())
}

/// Returns the manifests of the folder, by name.
fn manifests() -> Result<Vec<PathBuf>> {
    let mut files: Vec<PathBuf> = fs::read_dir(folder())?
        .map(|entry| Ok(entry?.path()))
        .collect::<Result<_>>()?;
    files.retain(|file| file.extension().is_some_and(|extension| extension == "dts"));
    files.sort();
    Ok(files)
}

/// Returns the rule in a file's name.
fn rule_of(name: &str) -> &str {
    let mut dashes = name.match_indices('-').map(|(at, _)| at);
    dashes.nth(2).map_or(name, |end| &name[..end])
}

/// Compares what `check` says, then has init refuse the same blob. A manifest that breaks two rules
/// would not show which of them was found.
fn judge(file: &Path, gear2: &[u8], tools: &Tools) -> Result<()> {
    let findings = check::check(file, &board_of(file, tools)?, tools)?;
    let drawn = findings.sources.draw(&findings.list, false) + "\n";
    is_as_kept(file, &drawn)?;
    let name = file.file_stem().unwrap_or_default().to_string_lossy();
    let is_rule = name.starts_with("M-");
    // A remark on the text may stand beside: it says where the mistake is that breaks the rule.
    let is_remark = |id| id == "syntax";
    let mut ids = findings.list.iter().map(|one| one.id);
    let only = ids.all(|id| id == rule_of(&name) || is_remark(id));
    ensure!(!is_rule || only, "it breaks other rules too");
    ensure!(!is_rule || !findings.list.is_empty(), "it breaks no rule");
    let errors = findings.list.iter();
    let errors = errors.filter(|one| one.severity == Severity::Error);
    let errors: Vec<&str> = errors.map(|one| one.id).collect();
    let is_of_init = |id: &&str| ON_FILES.iter().all(|rule| rule.id() != *id);
    if !errors.iter().any(is_of_init) {
        return Ok(());
    }
    let mut archive = Writer::default();
    archive.add(MANIFEST_MEMBER, &findings.blob)?;
    archive.add(GEAR2_MEMBER, gear2)?;
    add_beside(file, &findings.blob, &mut archive)?;
    is_refused(board_of(file, tools)?, &archive.finish()?, &errors, tools)
}

/// Checks that `check` says what the file beside the manifest holds. With `BLESS` the comparison
/// that follows passes, so the difference has to be read.
fn is_as_kept(file: &Path, drawn: &str) -> Result<()> {
    // From wherever the test was started.
    let drawn = drawn.replace(&format!("{}/", workspace::root().display()), "");
    let expected = file.with_extension("txt");
    if env::var_os("BLESS").is_some() {
        fs::write(&expected, &drawn)?;
    }
    let text = fs::read_to_string(&expected)
        .with_context(|| format!("cannot read {}", expected.display()))?;
    ensure!(drawn == text, "instead of\n{text}\nit says\n{drawn}");
    Ok(())
}

/// Checks that init refuses an archive, for the first of the errors. Init stops at the first error,
/// and `check` lists all.
fn is_refused(board: BoardTree, archive: &[u8], errors: &[&str], tools: &Tools) -> Result<()> {
    let placed = placement::place(board, archive, tools)?;
    let refusal = placed.err().context("Gear1's init takes it")?;
    let message = refusal.to_string();
    let first = errors.first().is_some_and(|id| message.contains(id));
    ensure!(first, "init says {message}, not {errors:?}");
    Ok(())
}

/// Adds the files beside the manifest that it names. Files that are missing are left out on
/// purpose: the rule may be about that.
fn add_beside(manifest: &Path, blob: &[u8], archive: &mut Writer) -> Result<()> {
    let bytes = Aligned::new(blob);
    let judged = gearv_manifest::judge(bytes.as_slice(), None, &mut |_| {});
    let Some(read) = judged.manifest else {
        return Ok(());
    };
    for file in read.files() {
        let path = manifest.with_file_name(file.name);
        if path.is_file() {
            archive.add(file.name, &fs::read(path)?)?;
        }
    }
    Ok(())
}

/// Returns the board that a comment in the file names, or the usual one. Some rules need what
/// `virt` lacks.
fn board_of(file: &Path, tools: &Tools) -> Result<BoardTree> {
    let text = fs::read_to_string(file)?;
    for name in [
        board::Name::Rpi4,
        board::Name::RcarH3,
        board::Name::Imx8mpEvk,
    ] {
        if text.contains(&format!("board: {}", name.text())) {
            return BoardTree::named(name, tools);
        }
    }
    BoardTree::from_file(&workspace::root().join(BOARD), tools)
}
