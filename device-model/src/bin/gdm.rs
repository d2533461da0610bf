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
    let Err(error) = Options::read(words).and_then(|options| start::run(&options)) else {
        return ExitCode::SUCCESS;
    };
    output::complain(format_args!("gdm: {error}"));
    ExitCode::FAILURE
}
