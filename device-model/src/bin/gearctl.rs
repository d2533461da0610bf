//! `gearctl`: lists, starts, stops and watches VMs, through the device model.

use std::process::ExitCode;

use device_model::command::{self, Line};
use device_model::output::{self, Output};

/// Tables are as wide as the terminal. Pipes and files have no width: programs get whole lines.
fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let asks = |word: &&str| matches!(*word, "--help" | "-h");
    if words.first() == Some(&"help") || words.iter().any(asks) {
        output::line(command::USAGE);
        return ExitCode::SUCCESS;
    }
    let done = command::parse(&words).and_then(|line| {
        let width = output::width(&std::io::stdout());
        command::run(&Line { width, ..line }, &mut Output)
    });
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain(&format!("gearctl: {error}"));
            ExitCode::FAILURE
        }
    }
}

/// Prints an error, in lines of the terminal's width if it is for one.
fn complain(error: &str) {
    let width = output::width(&std::io::stderr()).unwrap_or(usize::MAX);
    for line in error.lines().flat_map(|line| command::wrap(line, width)) {
        output::complain(format_args!("{line}"));
    }
}
