//! Output of the programs when its reader may have left.
//!
//! `println!` panics when its reader has left, as in `cargo xtask test --list | head -1`. The
//! macros here replace those of the standard library in xtask, tests and measurements: without a
//! reader of the output the program ends quietly, as if SIGPIPE had killed it; without a reader of
//! the messages it continues. SIGPIPE itself stays ignored: a child that ends early is an error to
//! be reported, not the end of this program.

use std::collections::BTreeSet;
use std::io::{self, ErrorKind, IsTerminal as _, Write as _};
use std::process::{self, ExitCode};
use std::sync::{Mutex, PoisonError};
use std::{env, fmt};

/// The status that a shell gives after SIGPIPE.
const READER_LEFT: i32 = 141;

/// Prints to standard output.
pub fn print(text: fmt::Arguments<'_>) {
    judge(io::stdout().write_fmt(text));
}

/// Prints what another program has printed, as it is and at once.
pub fn pass_on(bytes: &[u8]) {
    let mut output = io::stdout();
    judge(output.write_all(bytes).and_then(|()| output.flush()));
}

/// Ends the process if its output cannot be printed. A reader that left early, such as `head`, is
/// no error to complain about.
fn judge(printed: io::Result<()>) {
    match printed {
        Ok(()) => {}
        Err(error) if error.kind() == ErrorKind::BrokenPipe => process::exit(READER_LEFT),
        Err(error) => {
            complain(format_args!("error: standard output: {error}\n"));
            process::exit(1);
        }
    }
}

/// Prints to standard error, if anybody reads that.
pub fn complain(text: fmt::Arguments<'_>) {
    // A message about a message that nobody reads has no reader either.
    let _ = io::stderr().write_fmt(text);
}

/// Tells whether messages may have colours: only on a terminal that has some, and only if the user
/// has not set NO_COLOR (<https://no-color.org>) to something.
pub fn styles_errors() -> bool {
    let is_set = env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let is_dumb = env::var_os("TERM").is_none_or(|terminal| terminal == "dumb");
    io::stderr().is_terminal() && !is_set && !is_dumb
}

/// Tells whether this process says a text for the first time: a warning that each of several stages
/// finds is said once.
pub fn is_new(text: &str) -> bool {
    /// A process builds some manifests several times, each with the same warnings.
    static SAID: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let mut said = SAID.lock().unwrap_or_else(PoisonError::into_inner);
    said.insert(text.to_owned())
}

/// Returns how a program ends; an error is told first.
pub fn exit_code(result: anyhow::Result<()>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain(format_args!("error: {error:#}\n"));
            ExitCode::FAILURE
        }
    }
}

/// Prints to standard output as `std::print` does, and ends the program when the reader has left.
#[macro_export]
macro_rules! print {
    ($($text:tt)*) => { $crate::output::print(format_args!($($text)*)) };
}

/// Prints a line to standard output, and ends the program when the reader has left.
#[macro_export]
macro_rules! println {
    () => { $crate::output::print(format_args!("\n")) };
    ($($text:tt)*) => { $crate::output::print(format_args!("{}\n", format_args!($($text)*))) };
}

/// Prints to standard error, if anybody reads that.
#[macro_export]
macro_rules! eprint {
    ($($text:tt)*) => { $crate::output::complain(format_args!($($text)*)) };
}

/// Prints a line to standard error, if anybody reads that.
#[macro_export]
macro_rules! eprintln {
    () => { $crate::output::complain(format_args!("\n")) };
    ($($text:tt)*) => { $crate::output::complain(format_args!("{}\n", format_args!($($text)*))) };
}
