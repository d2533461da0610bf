//! `gdm`: the GearV device model. Runs in the device VM, as root.

use std::process::ExitCode;

use device_model::options::{Options, USAGE};
use device_model::{output, start};

/// Help and version come before `/gearv` is looked for: a VM without it can be asked, too.
fn main() -> ExitCode {
    let mut words = std::env::args().skip(1).peekable();
    if let Some(word) = words.peek() {
        let text = match word.as_str() {
            "--help" | "-h" => USAGE,
            "--version" => concat!("gdm ", env!("CARGO_PKG_VERSION")),
            _ => "",
        };
        if !text.is_empty() {
            output::line(text);
            return ExitCode::SUCCESS;
        }
    }
    let options = Options::read(words);
    let makes_taps = options.as_ref().is_ok_and(|options| options.makes_taps);
    let ended = options.and_then(|options| match makes_taps {
        true => start::make_taps(&options),
        false => start::run(&options).map(|never| match never {}),
    });
    let Err(error) = ended else {
        return ExitCode::SUCCESS;
    };
    output::complain(format_args!("gdm: {error}"));
    ExitCode::FAILURE
}
