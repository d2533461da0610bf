//! The command line of `gearctl`: its commands, their help, and what a wrong one is told.

use std::ffi::OsString;
use std::sync::OnceLock;
use std::time::Duration;

use clap::builder::styling::Styles;
use clap::error::ErrorKind as Complaint;
use clap::{Args, CommandFactory as _, FromArgMatches as _, Parser, Subcommand, ValueHint};

use super::answer::{Link, Switch, Wanted};
use super::{device, sched};
use crate::error::{Error, ErrorKind};
use crate::options::RUN_DIRECTORY;

/// Width of the help where no terminal tells another.
const USUAL_WIDTH: usize = 80;

/// Control the VMs of a machine with GearV, from its device VM.
#[derive(Clone, Debug, PartialEq, Eq, Parser)]
#[command(
    name = "gearctl",
    version,
    styles = Styles::plain(),
    after_help = after_help(),
    subcommand_required = true,
    arg_required_else_help = true
)]
pub struct Line {
    /// Print JSON, a value a line
    ///
    /// docs/gearctl.schema.json describes each value. An error is a line of standard error.
    #[arg(long, global = true)]
    pub json: bool,
    /// Directory of GDM's sockets
    #[arg(
        long = "run",
        value_name = "DIR",
        global = true,
        default_value = RUN_DIRECTORY,
        hide_default_value = true,
        value_hint = ValueHint::DirPath
    )]
    pub run_directory: String,
    /// Width of the terminal, if there is one that a person reads.
    #[arg(skip)]
    pub width: Option<usize>,
    /// What is to be done.
    #[command(subcommand)]
    pub command: Command,
}

/// Name of a VM, as most commands have it.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
pub struct Name {
    /// Name or number of the VM
    pub vm: String,
}

/// A command of `gearctl`.
#[derive(Clone, Debug, PartialEq, Eq, Subcommand)]
pub enum Command {
    /// The VMs: states, restarts, faults
    List,
    /// All of one VM: life, scheduling, vCPUs, devices, consoles
    Info(Name),
    /// Why a VM's last life ended, registers of its vCPUs, the end of its console output
    LastWords(Name),
    /// vCPUs: states, places, times, preemptions, exits
    Vcpu {
        /// Name or number of the VM; all without
        vm: Option<String>,
    },
    /// Start a VM that is stopped
    Start {
        /// Name or number of the VM
        vm: String,
        /// Wait until it runs
        #[command(flatten)]
        wait: Wait,
    },
    /// Press a VM's power button: its system shuts down, if it is set up to
    ///
    /// The button is a key of the VM's virtio input device. The VM's manifest decides whether a VM
    /// that turned itself off is started again.
    Shutdown {
        /// Name or number of the VM
        vm: String,
        /// Wait until it has ended
        #[command(flatten)]
        wait: Wait,
    },
    /// Stop a VM at once: to its guest as a loss of power
    Stop {
        /// Name or number of the VM
        vm: String,
        /// Stop the device VM, too, as if it had turned itself off
        #[arg(long)]
        force: bool,
        /// Wait until it has stopped
        #[command(flatten)]
        wait: Wait,
    },
    /// Stop, load and start a VM
    Restart {
        /// Name or number of the VM
        vm: String,
        /// Wait until it runs again
        #[command(flatten)]
        wait: Wait,
    },
    /// Wait until a VM is in a state
    Wait {
        /// Name or number of the VM
        vm: String,
        /// The state
        state: Wanted,
        /// Longest wait, after which the exit status is 6; for ever without
        #[arg(long, value_name = "SECONDS", value_parser = seconds)]
        timeout: Option<Seconds>,
    },
    /// Starts, stops, faults, pauses, give-ups and fail-overs of VMs; restarts of Gear2 and GDM
    ///
    /// Without --follow, those of which Gear1 keeps records: starts, stops, faults, restarts of
    /// Gear2.
    Events {
        /// Wait for more
        #[arg(short, long)]
        follow: bool,
    },
    /// Hold a VM's vCPUs and devices; not a real-time VM's, which Gear2 does not schedule
    ///
    /// Returns when the devices have completed the requests that they had.
    #[command(visible_alias = "suspend")]
    Pause(Name),
    /// Let the vCPUs and the devices of a paused VM go on, or wake one that suspended itself
    Resume(Name),
    /// Write a VM's memory and registers to a core file, for gdb and crash
    ///
    /// The VM is paused meanwhile, unless it is already or has stopped. Its manifest has `dump`.
    Dump {
        /// Name or number of the VM
        vm: String,
        /// File to write
        #[arg(value_hint = ValueHint::FilePath)]
        file: String,
    },
    /// Record what each CPU does, to a file that Perfetto opens
    ///
    /// Exits of all vCPUs, wake-ups and choices of Gear2, on one time line (Trace Event format). The
    /// manifest has `trace-kib`. The number of exits of each vCPU is compared with its counters.
    Trace {
        /// How long; 0 for what the rings hold already
        #[arg(long, default_value = "1", value_parser = seconds)]
        seconds: Seconds,
        /// File to write
        #[arg(long, value_name = "FILE", default_value = "trace.json", value_hint = ValueHint::FilePath)]
        output: String,
    },
    /// Connect with a VM's serial console, from its last screen on; Ctrl-] leaves
    Console(Console),
    /// Write the last frame of a VM's screen as PNG
    #[command(allow_missing_positional = true)]
    Screenshot {
        /// Name or number of the VM
        vm: String,
        /// Channel of the screen's device, of several
        channel: Option<u64>,
        /// File to write
        #[arg(required = true, value_hint = ValueHint::FilePath)]
        file: String,
    },
    /// vCPUs, exits by reason, devices
    Stats {
        /// Name or number of the VM; all without
        vm: Option<String>,
    },
    /// The figures of VMs, vCPUs and devices as metrics, in Prometheus' text format
    Metrics {
        /// Serve the metrics by HTTP at this Unix socket, as /metrics, until a signal ends it
        #[arg(long, value_name = "PATH", value_hint = ValueHint::FilePath)]
        socket: Option<String>,
    },
    /// Each second, what VMs did: share, waits, stolen time, preemptions, exits
    ///
    /// On a terminal with keys and the history of a VM. With a number of seconds, with --lines and in
    /// pipes, a table each second. Parts are those of a CPU's time. A VM's figures are the sums of
    /// its vCPUs'. A real-time VM's share is `own CPU`: it has CPUs of its own.
    Top {
        /// A row for each vCPU, instead of each VM
        #[arg(long)]
        vcpus: bool,
        /// A table each second, on a terminal, too
        #[arg(long)]
        lines: bool,
        /// Number of seconds; for ever without
        count: Option<u64>,
    },
    /// How Gear2 schedules, and changes of that
    Sched {
        /// What is to be changed; without, pools, CPUs, vCPUs and VMs are shown.
        #[command(subcommand)]
        ask: Option<sched::Ask>,
    },
    /// Devices that GDM serves, and changes of them
    Device {
        /// What is asked for.
        #[command(subcommand)]
        ask: device::Ask,
    },
    /// Gear1's records
    Log {
        /// Wait for more
        #[arg(short, long)]
        follow: bool,
    },
    /// Versions of all parts
    Version,
    /// Completions for a shell, on standard output
    ///
    /// For example `gearctl completions bash > /usr/share/bash-completion/completions/gearctl`.
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// The manual, for `man -l -`, or as files
    Man {
        /// Write a file for each command into this directory
        #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
        directory: Option<String>,
    },
}

/// Options of a command whose end may be waited for.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
pub struct Wait {
    /// Wait until the change has ended
    #[arg(long)]
    pub wait: bool,
    /// Longest wait, after which the exit status is 6; for ever without
    #[arg(long, value_name = "SECONDS", requires = "wait", value_parser = seconds)]
    pub timeout: Option<Seconds>,
}

/// A number of seconds, which may have a fraction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seconds(pub Duration);

/// Reads a number of seconds.
fn seconds(word: &str) -> Result<Seconds, String> {
    let number = word.parse().ok();
    let time = number.and_then(|number| Duration::try_from_secs_f64(number).ok());
    time.map(Seconds)
        .ok_or_else(|| "it is no number of seconds".into())
}

/// Words behind `console`.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
pub struct Console {
    /// Name or number of the VM
    pub vm: String,
    /// From the first line that is kept on
    #[arg(long)]
    pub all: bool,
    /// The virtio console
    #[arg(long, conflicts_with = "messages")]
    pub virtio: bool,
    /// What Gear2 says of the VM; for the device VM, what it says of none, too
    #[arg(long)]
    pub messages: bool,
}

/// A state of a device or a CPU, as the words `up` and `down`, or `on` and `off`.
impl clap::ValueEnum for Link {
    fn value_variants<'a>() -> &'a [Self] {
        &[Self::Up, Self::Down]
    }

    fn to_possible_value(&self) -> Option<clap::builder::PossibleValue> {
        let name = match self {
            Self::Up => "up",
            Self::Down => "down",
        };
        Some(clap::builder::PossibleValue::new(name))
    }
}

impl clap::ValueEnum for Switch {
    fn value_variants<'a>() -> &'a [Self] {
        &[Self::On, Self::Off]
    }

    fn to_possible_value(&self) -> Option<clap::builder::PossibleValue> {
        Some(clap::builder::PossibleValue::new(self.text()))
    }
}

/// Returns the end of the help.
fn after_help() -> &'static str {
    static TEXT: OnceLock<String> = OnceLock::new();
    TEXT.get_or_init(|| {
        let kinds = ErrorKind::ALL.iter();
        let kinds = kinds.map(|kind| format!("  {}  {}\n", kind.status(), kind.meaning()));
        format!(
            "Exit status:\n  0  done\n{}\nOn a terminal tables are as wide as it is. In pipes and \
             files, and with --json, nothing is wrapped.",
            kinds.collect::<String>()
        )
    })
}

/// Returns the description of all commands.
pub(super) fn description() -> clap::Command {
    Line::command()
}

/// Outcome of a command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Parsed {
    /// A command to be run.
    Run(Line),
    /// Help or a version, which was asked for.
    Print(String),
}

/// Reads a command line without the name of the program. The help is as wide as the terminal.
pub fn parse<W: Into<OsString> + Clone>(
    words: impl IntoIterator<Item = W>,
    width: Option<usize>,
) -> Result<Parsed, Error> {
    let words = words.into_iter().map(Into::into);
    let words = std::iter::once("gearctl".into()).chain(words);
    let command = description().term_width(width.unwrap_or(USUAL_WIDTH));
    let matches = command.try_get_matches_from(words);
    match matches.and_then(|matches| Line::from_arg_matches(&matches)) {
        Ok(line) => Ok(Parsed::Run(Line { width, ..line })),
        Err(error) => match error.kind() {
            Complaint::DisplayHelp | Complaint::DisplayVersion => {
                Ok(Parsed::Print(error.render().to_string()))
            }
            _ => Err(Error::new(ErrorKind::Usage, sentence(&error))),
        },
    }
}

/// Returns a complaint without the word in front that the program's name stands for.
fn sentence(error: &clap::Error) -> String {
    let text = error.render().to_string();
    let text = text.strip_prefix("error: ").unwrap_or(&text).trim_end();
    let command = asked_of(text);
    let names = names(&command);
    match error.kind() {
        // A mistyped name of a command. Behind an argument it counts as one more argument.
        Complaint::InvalidSubcommand | Complaint::UnknownArgument if !names.is_empty() => {
            format!("{text}\nCommands: {}", names.join(", "))
        }
        _ => text.to_owned(),
    }
}

/// Returns the description of the command whose usage a complaint has.
fn asked_of(complaint: &str) -> clap::Command {
    let usage = complaint.split("Usage: gearctl ").nth(1);
    let words = usage.into_iter().flat_map(str::split_whitespace);
    // Names of commands come first; options, arguments and other words follow.
    words
        .scan(description(), |command, word| {
            *command = command.find_subcommand(word)?.clone();
            Some(command.clone())
        })
        .last()
        .unwrap_or_else(description)
}

/// Returns the names of the commands below a command.
fn names(command: &clap::Command) -> Vec<&str> {
    let commands = command.get_subcommands();
    commands.map(clap::Command::get_name).collect()
}
