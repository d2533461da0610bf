//! `gdm`: the GearV device model. Runs in the device VM, as root.

use std::process::ExitCode;

use device_model::hub::{self, Options};
use device_model::output;

/// Help text.
const USAGE: &str = "\
usage: gdm [--poll] [--no-seccomp] [--run DIR] [--device-tree DIR]

  --poll             look all the time instead of waiting for interrupts
  --no-seccomp       do not restrict the threads' system calls; without this option gdm ends if it cannot
  --run DIR          directory of the sockets (/run/gearv)
  --device-tree DIR  device tree (/proc/device-tree)
  --version          print the version";

/// Reads the options. An unknown one ends GDM: a misspelt `--no-seccomp` must not pass unnoticed.
fn options(mut words: impl Iterator<Item = String>) -> Result<Options, String> {
    let mut options = Options::default();
    while let Some(word) = words.next() {
        // Asked only by options that take a value.
        let mut value = || words.next().ok_or(format!("{word} takes a directory"));
        match word.as_str() {
            "--poll" => options.spin = true,
            "--no-seccomp" => options.sandbox = false,
            "--run" => options.run_directory = value()?,
            "--device-tree" => options.tree = value()?.into(),
            _ => return Err(format!("there is no option `{word}`\n{USAGE}")),
        }
    }
    Ok(options)
}

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
    let error = match options(words).and_then(|options| hub::run(&options)) {
        Ok(never) => match never {},
        Err(error) => error,
    };
    output::complain(format_args!("gdm: {error}"));
    ExitCode::FAILURE
}
