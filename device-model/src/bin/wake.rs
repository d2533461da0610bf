//! `wake WHAT NAME [TICKS]`: measures and prints one line for `cargo xtask bench --wake`; `wake
//! later` prints the ticks by which the other VM started later.

use std::process::ExitCode;

use device_model::measure::{What, later_start, measure, report};
use device_model::options::RUN_DIRECTORY;
use device_model::output;

/// Help text, also for what is misspelt.
const USAGE: &str = "usage: wake line|request|native-line|native-uio NAME [TICKS], or wake later";

/// Measures, and returns the line.
/// `later` are the ticks by which the other VM's counter is behind this one's.
fn line(what: &str, name: &str, later: &str) -> Result<String, String> {
    let what = What::from_name(what).ok_or(USAGE)?;
    let later = later.parse().map_err(|error| format!("{later}: {error}"))?;
    Ok(report(name, &mut measure(what, later)?))
}

/// A sample that begins and ends in one VM has one count: no start is later.
fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let printed = match words[..] {
        ["later"] => later_start(RUN_DIRECTORY).map(|ticks| ticks.to_string()),
        [what, name] => line(what, name, "0"),
        [what, name, later] => line(what, name, later),
        _ => Err(USAGE.to_owned()),
    };
    match printed {
        Ok(line) => {
            output::line(&line);
            ExitCode::SUCCESS
        }
        Err(error) => {
            output::complain(format_args!("wake: {error}"));
            ExitCode::FAILURE
        }
    }
}
