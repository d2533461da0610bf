//! `gearctl`: lists, starts, stops and watches VMs, through the device model.

use std::process::ExitCode;

use device_model::command;
use device_model::output::{self, Output};

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    if matches!(words.as_slice(), ["--help" | "-h" | "help"]) {
        output::line(command::USAGE);
        return ExitCode::SUCCESS;
    }
    let done = command::parse(&words).and_then(|line| command::run(&line, &mut Output));
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            output::complain(format_args!("gearctl: {error}"));
            ExitCode::FAILURE
        }
    }
}
