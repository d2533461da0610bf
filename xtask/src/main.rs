//! xtask: everything a person does with GearV from the command line.
//!
//! One file per subcommand; this file only names them.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

// First of all: what follows prints by its macros.
#[macro_use]
mod output;

mod apt_sources;
mod archive;
mod audit;
mod bench;
mod board;
mod build_images;
mod cache;
mod check;
mod coverage;
mod device_userland;
mod evidence;
mod expect;
mod ext4;
mod fetch;
mod flash;
mod flatten;
mod fuzz;
mod guest_dt;
mod guest_userland;
mod host_memory;
mod initramfs;
mod jitter;
mod kernel_modules;
mod kvm_host;
mod manifest;
mod nbd;
mod new_manifest;
mod payloads;
mod placement;
mod programs;
mod progress;
mod qemu;
mod report;
mod requirements;
mod run;
mod smoke;
mod symbolize;
mod test;
mod tools;
mod tree;
mod workspace;
mod worst_cases;

/// Builds, runs, tests and measures GearV.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Build Gear1, Gear2 and the archive of a manifest
    Build {
        /// What to build [default: manifests/qemu-virt.dts]
        #[arg(long, value_name = "FILE")]
        manifest: Option<PathBuf>,
    },
    /// Judge manifests as Gear1 would on a board
    Check(check::Options),
    /// Write a commented manifest to start from
    NewManifest(new_manifest::Options),
    /// Build and start a manifest on QEMU
    Run(run::Options),
    /// Write what a board boots from: a card image, or files for its boot loader
    Flash(flash::Options),
    /// Run the tests, one part after another
    Test(test::Options),
    /// Measure path lengths, native and under GearV
    Bench(bench::Options),
    /// Fuzz the parsers of bytes from outside
    Fuzz(fuzz::Options),
    /// Check what Gear1's runtime image promises
    Audit,
    /// Write the page with the figure of each piece of evidence
    Evidence,
    /// Attack everything at random from two VMs
    Chaos(test::chaos::Options),
    /// Check that requirements, code and tests name each other, and write the matrix
    Requirements,
    /// Measure how late a real-time program wakes up: natively, under KVM and under GearV
    Jitter(jitter::Options),
    /// Measure the longest way of Gear1's from each kind of exit to the entry that follows
    WorstCases(worst_cases::Options),
    /// Turn the addresses of a halt dump into functions and lines
    Symbolize {
        /// The dump [default: standard input]
        file: Option<PathBuf>,
    },
}

fn main() -> ExitCode {
    match Cli::parse().command.run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

impl Command {
    fn run(self) -> anyhow::Result<()> {
        match self {
            Command::Build { manifest } => build_images::command(manifest),
            Command::Check(options) => options.run(),
            Command::NewManifest(options) => options.run(),
            Command::Run(options) => options.run(),
            Command::Flash(options) => options.run(),
            Command::Test(options) => options.run(),
            Command::Bench(options) => options.run(),
            Command::Fuzz(options) => options.run(),
            Command::Audit => audit::command(),
            Command::Evidence => evidence::command(),
            Command::Chaos(options) => options.run(),
            Command::Requirements => requirements::command(),
            Command::Jitter(options) => options.run(),
            Command::WorstCases(options) => options.run(),
            Command::Symbolize { file } => symbolize::command(file),
        }
    }
}
