//! `uio_ring ASK TELL ROUNDS BURST`: rings the bare-metal guest `uio_peer` by the channel ASK, and
//! takes its answers by the channel TELL, with Linux' UIO.

use std::process::ExitCode;

use device_model::{output, uio};

/// Help text, also for what is misspelt.
const USAGE: &str = "usage: uio_ring ASK TELL ROUNDS BURST";

/// Rings, and returns the line of figures.
fn line(words: &[String]) -> Result<String, String> {
    let [ask, tell, rounds, burst] = words else {
        return Err(USAGE.to_owned());
    };
    let number = |word: &String| {
        let number = word.parse::<u32>();
        number.map_err(|error| format!("{word}: {error}"))
    };
    let figures = uio::ring(ask, tell, number(rounds)?, number(burst)?);
    figures.map_err(|error| error.to_string())
}

/// A failure names the step, and what was seen instead.
fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match line(&words) {
        Ok(line) => {
            output::line(&line);
            ExitCode::SUCCESS
        }
        Err(error) => {
            output::complain(format_args!("uio_ring: {error}"));
            ExitCode::FAILURE
        }
    }
}
