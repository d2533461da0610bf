//! The test suite: the commands of `cargo xtask` that test GearV, and that write what tests show.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use workbench::output::exit_code;

// The macros shadow `println!` and its like: they end the program quietly when the reader of the
// output has left.
#[macro_use]
extern crate workbench;

mod architecture;
mod bench;
mod board_watchdogs;
mod boards;
mod boot;
mod change;
mod channels;
mod chaos;
mod copy;
mod coverage;
mod cpu_time;
mod device_shell;
mod devices;
mod dma;
mod documents;
mod errata;
mod evidence;
mod examples;
mod firmware;
mod fuzz;
mod gdb;
mod gear2_registers;
mod gearctl_sched;
mod ghost;
mod guests;
mod halt;
mod host;
mod hostile;
mod images;
mod invalid;
mod jitter;
mod kvm;
mod lane;
mod layouts;
mod libfuzzer;
mod linux;
mod moves;
mod mutants;
mod nbd;
mod own_devices;
mod part;
mod parts;
mod pci_functions;
mod pci_linux;
mod peripherals;
mod planted;
mod programs;
mod realtime;
mod record;
mod refusals;
mod requirements;
mod running;
mod schedules;
mod smmu_v2;
mod storage;
mod supervision;
mod sve;
mod table;
mod tour;
mod tracing;
mod userlands;
mod watchdogs;
mod worst_cases;

/// Tests GearV.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

// The comments here are what `cargo xtask help` prints.
#[derive(Subcommand)]
enum Command {
    /// Run the tests, one part after another
    Test(parts::Options),
    /// Fuzz the parsers of bytes from outside
    Fuzz(libfuzzer::Options),
    /// Write the page with the figure of each piece of evidence
    Evidence,
    /// Attack everything at random from two VMs
    Chaos(chaos::Options),
    /// Check that requirements, code and tests name each other, and write the matrix
    Requirements,
}

fn main() -> ExitCode {
    exit_code(match Cli::parse().command {
        Command::Test(options) => options.run(),
        Command::Fuzz(options) => options.run(),
        Command::Evidence => evidence::command(),
        Command::Chaos(options) => options.run(),
        Command::Requirements => requirements::command(),
    })
}
