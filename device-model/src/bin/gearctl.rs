//! `gearctl`: lists, starts, stops and watches VMs, through the device model.

use std::process::ExitCode;

use device_model::command;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    if matches!(words.as_slice(), ["--help" | "-h" | "help"]) {
        println!("{}", command::USAGE);
        return ExitCode::SUCCESS;
    }
    let done =
        command::parse(&words).and_then(|line| command::run(&line, &mut std::io::stdout().lock()));
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("gearctl: {error}");
            ExitCode::FAILURE
        }
    }
}
