//! The commands of `cargo xtask` that measure.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use tests_measure::{bench, jitter, worst_cases};
use workbench::output::exit_code;

/// Measures GearV.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Measure path lengths, native and under GearV
    Bench(bench::Options),
    /// Measure how late a real-time program wakes up: natively, under KVM and under GearV
    Jitter(jitter::Options),
    /// Measure the longest way of Gear1's from each kind of exit to the entry that follows
    WorstCases(worst_cases::Options),
}

fn main() -> ExitCode {
    exit_code(match Cli::parse().command {
        Command::Bench(options) => options.run(),
        Command::Jitter(options) => options.run(),
        Command::WorstCases(options) => options.run(),
    })
}
