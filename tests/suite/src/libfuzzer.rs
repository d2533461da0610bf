//! `cargo xtask fuzz`: the fuzz targets of tests/fuzz under libFuzzer, by cargo-fuzz on nightly
//! Rust.
//!
//! The first use installs cargo-fuzz into the cache. New findings of libFuzzer stay in the target
//! directory; a file that crashes a target must be added to the corpus with the correction.
//!
//! Nightly Rust is needed here alone: cargo-fuzz uses options of the compiler that stable Rust
//! refuses.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};
use clap::Args;
use workbench::{cargo_tool, workspace};

use crate::record;

/// Most lines shown of a run that found something. The end has the report of a crash.
const SHOWN_LINES: usize = 40;

/// Options of `fuzz`.
#[derive(Args, Debug)]
pub(crate) struct Options {
    /// A directory of tests/fuzz/corpus [default: each of them]
    target: Option<String>,
    /// Seconds for each target
    #[arg(long, default_value_t = 60, value_name = "S")]
    time: u64,
}

impl Options {
    /// Fuzzes, and fails if anything is found.
    pub(crate) fn run(self) -> Result<()> {
        let targets = targets()?;
        let chosen: Vec<&String> = match &self.target {
            None => targets.iter().collect(),
            Some(name) => targets.iter().filter(|target| *target == name).collect(),
        };
        ensure!(!chosen.is_empty(), "the targets are {}", targets.join(", "));
        let program = cargo_fuzz()?;
        for target in chosen {
            fuzz(&program, target, self.time)?;
        }
        Ok(())
    }
}

fn sources() -> PathBuf {
    workspace::root().join("tests/fuzz")
}

/// Each target has a corpus, so folders of the corpus are the list.
fn targets() -> Result<Vec<String>> {
    let mut targets = Vec::new();
    for entry in fs::read_dir(sources().join("corpus"))? {
        targets.push(entry?.file_name().to_string_lossy().into_owned());
    }
    targets.sort();
    Ok(targets)
}

/// Returns cargo-fuzz, installed into the cache if it is missing. Nightly is not installed on the
/// way: toolchains are the user's matter.
fn cargo_fuzz() -> Result<PathBuf> {
    let mut nightly = Command::new("rustup");
    nightly.args(["run", "nightly", "rustc", "--version"]);
    let is_there = nightly.output().is_ok_and(|output| output.status.success());
    ensure!(
        is_there,
        "nightly Rust is missing: rustup toolchain install nightly"
    );
    cargo_tool::newest("cargo-fuzz")
}

/// Returns the last lines of what a fuzzer says.
fn tail(said: &str) -> String {
    let lines: Vec<&str> = said.lines().collect();
    lines[lines.len().saturating_sub(SHOWN_LINES)..].join("\n")
}

/// A run without a count of inputs may have run nothing, and is an error.
fn fuzz(program: &Path, target: &str, seconds: u64) -> Result<()> {
    let folder = workspace::output_dir().join("fuzz").join(target);
    fs::create_dir_all(&folder)?;
    let mut command = cargo_fuzz_run(program, target, &folder);
    command.arg("--").arg(format!("-max_total_time={seconds}"));
    command.arg(format!("-artifact_prefix={}/", folder.display()));
    command.args(["-print_final_stats=1", "-verbosity=0"]);
    let output = command.output().context("cargo-fuzz cannot be run")?;
    let said = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        bail!("{target}: see {}\n{}", folder.display(), tail(&said));
    }
    let stat = "stat::number_of_executed_units:";
    let runs = said.lines().find_map(|line| line.strip_prefix(stat));
    let runs = runs.context("libFuzzer does not say how often it ran")?;
    let figure = format!("{} inputs in {seconds} s, nothing found", runs.trim());
    println!("{target}: {figure}");
    let command = format!("cargo xtask fuzz {target} --time {seconds}");
    record::note(&format!("fuzz target {target}"), &figure, &command)
}

/// Returns the command that runs a target on its corpus and on what earlier runs left in `folder`.
/// libFuzzer writes into the first folder alone; the corpus in the repository is read only.
fn cargo_fuzz_run(program: &Path, target: &str, folder: &Path) -> Command {
    let mut command = Command::new("rustup");
    // Without the toolchain of this workspace, which the environment may name.
    command.env_remove("RUSTUP_TOOLCHAIN").env_remove("CARGO");
    command.args(["run", "nightly"]).arg(program);
    command.args(["run", "--target-dir"]);
    command.arg(workspace::target_dir().join("fuzz"));
    command.arg("--fuzz-dir").arg(sources().join("libfuzzer"));
    command.arg(target).arg(folder);
    command.arg(sources().join("corpus").join(target));
    command
}
