//! `gearctl`: lists, starts, stops and watches VMs, through the device model.

use std::ffi::OsString;
use std::process::ExitCode;

use device_model::command::{self, Parsed};
use device_model::error::Error;
use device_model::output::{self, Output};

/// Tables are as wide as the terminal. Pipes and files have no width: programs get whole lines.
fn main() -> ExitCode {
    let words: Vec<OsString> = std::env::args_os().skip(1).collect();
    // A line that cannot be read has no options: the word counts wherever it stands.
    let json = words.iter().any(|word| word == "--json");
    let width = output::width(&std::io::stdout());
    let done = match command::parse(words, width) {
        Ok(Parsed::Run(line)) => command::run(&line, &mut Output),
        Ok(Parsed::Print(text)) => {
            output::line(text.trim_end());
            Ok(())
        }
        Err(error) => Err(error),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain(&error, json);
            ExitCode::from(error.kind.status())
        }
    }
}

/// Prints an error: a line of JSON, or lines of the terminal's width if it is for one.
fn complain(error: &Error, json: bool) {
    if json {
        output::complain(format_args!("{}", command::failure(error).trim_end()));
        return;
    }
    let text = format!("gearctl: {error}");
    let width = output::width(&std::io::stderr()).unwrap_or(usize::MAX);
    for line in text.lines().flat_map(|line| command::wrap(line, width)) {
        output::complain(format_args!("{line}"));
    }
}
