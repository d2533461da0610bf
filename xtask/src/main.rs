//! xtask: everything a person does with GearV from the command line.
//!
//! Only names the commands. Those of tests and measurements are programs of their own, which are
//! built when they are asked for.

use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::{Args, CommandFactory as _, Parser, Subcommand};
use workbench::output::exit_code;
use workbench::{build_images, symbolize, workspace};
use xtask::completions::{self, Shell};
use xtask::{audit, check, clean, docs, flash, new_manifest, picture, run, sched};

/// Builds, runs, tests and measures GearV.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", version)]
struct Cli {
    /// Each subcommand has a module, and nothing but its call stands here.
    #[command(subcommand)]
    command: Command,
}

/// The order is that of the help: from what a new user needs to what a contributor does.
#[derive(Subcommand)]
enum Command {
    /// Build Gear1, Gear2 and the archive of a manifest
    Build {
        /// The manifest to build [default: manifests/qemu-virt.dts]
        #[arg(long, value_name = "FILE")]
        manifest: Option<PathBuf>,
    },
    /// Judge manifests as Gear1 would on a board
    Check(check::Options),
    /// Write a commented manifest to start from
    NewManifest(new_manifest::Options),
    /// Build and start a manifest on QEMU
    Run(run::Options),
    /// Run the policies of a manifest against loads, in virtual time on this machine
    Sched(sched::Options),
    /// Write what a board boots from: a card image, or files for its boot loader
    Flash(flash::Options),
    /// Run the tests, one part after another
    Test(Others),
    /// Measure path lengths, native and under GearV
    Bench(Others),
    /// Fuzz the parsers of bytes from outside
    Fuzz(Others),
    /// Check what Gear1's runtime image promises
    Audit(audit::Options),
    /// Write the page with the figure of each piece of evidence
    Evidence(Others),
    /// Attack everything at random from two VMs
    Chaos(Others),
    /// Check that requirements, code and tests name each other, and write the matrix
    Requirements(Others),
    /// Measure how late a real-time program wakes up: natively, under KVM and under GearV
    Jitter(Others),
    /// Measure the longest way of Gear1's from each kind of exit to the entry that follows
    WorstCases(Others),
    /// Make the documents a book, and document the crates
    Docs,
    /// Draw a session of GearV for the README
    Picture,
    /// Delete what was built, made and downloaded, and say how much it was
    Clean(clean::Options),
    /// Write what lets a shell complete these commands and their options
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Turn the addresses of a halt dump into functions and lines
    Symbolize {
        /// The dump [default: standard input]
        file: Option<PathBuf>,
    },
}

/// The arguments of a command that another program parses.
#[derive(Args)]
#[command(disable_help_flag = true)]
struct Others {
    /// `--help` tells
    #[arg(
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "ARGUMENT"
    )]
    arguments: Vec<OsString>,
}

/// The packages of tests and measurements.
const SUITE: &str = "tests-suite";
/// A crate of its own below tests/, started by cargo, so that xtask builds without it.
const MEASURE: &str = "tests-measure";

/// The exit code tells whether the command did what it was asked for.
fn main() -> ExitCode {
    exit_code(Cli::parse().command.run())
}

impl Command {
    fn run(self) -> Result<()> {
        match self {
            Command::Build { manifest } => build_images::command(manifest),
            Command::Check(options) => options.run(),
            Command::NewManifest(options) => options.run(),
            Command::Run(options) => options.run(),
            Command::Sched(options) => options.run(),
            Command::Flash(options) => options.run(),
            Command::Audit(options) => audit::command(&options),
            Command::Docs => docs::command(),
            Command::Picture => picture::command(),
            Command::Clean(options) => options.run(),
            Command::Completions { shell } => {
                workbench::print!("{}", completions::text(shell, Cli::command()));
                Ok(())
            }
            Command::Symbolize { file } => symbolize::command(file),
            Command::Test(others) => others.run_by(SUITE, "test"),
            Command::Fuzz(others) => others.run_by(SUITE, "fuzz"),
            Command::Evidence(others) => others.run_by(SUITE, "evidence"),
            Command::Chaos(others) => others.run_by(SUITE, "chaos"),
            Command::Requirements(others) => others.run_by(SUITE, "requirements"),
            Command::Bench(others) => others.run_by(MEASURE, "bench"),
            Command::Jitter(others) => others.run_by(MEASURE, "jitter"),
            Command::WorstCases(others) => others.run_by(MEASURE, "worst-cases"),
        }
    }
}

impl Others {
    /// Builds another package's program, and becomes it in the directory that the user is in.
    fn run_by(self, package: &str, command: &str) -> Result<()> {
        let mut cargo = workspace::program(package)?;
        cargo.arg("--").arg(command).args(self.arguments);
        Err(cargo.exec()).context("cargo cannot be run")
    }
}
