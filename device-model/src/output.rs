//! Output of the programs when its reader may have left.
//!
//! `println!` and `eprintln!` panic when their reader has left: `gearctl list | head -1` would end
//! with a panic, and a lost log reader would kill a thread of gdm together with its device. Here
//! output without a reader ends the program quietly, as SIGPIPE would, and messages without a
//! reader are dropped. SIGPIPE itself stays ignored: a socket whose peer has gone is an error to be
//! reported.

use std::fmt;
use std::io::{self, ErrorKind, Write};
use std::os::fd::AsRawFd;
use std::process;

use crate::sys;

/// The status that a shell gives after SIGPIPE.
const READER_LEFT: i32 = 141;

/// Standard output. A write to it that nobody will read ends the program.
#[derive(Clone, Copy, Debug, Default)]
pub struct Output;

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        ended_by(io::stdout().write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        ended_by(io::stdout().flush())
    }
}

/// Ends the program if the reader of a pipe has left, as `head` does: not an error to tell of.
fn ended_by<T>(result: io::Result<T>) -> io::Result<T> {
    match result {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => process::exit(READER_LEFT),
        other => other,
    }
}

/// Width of a terminal that does not know its own.
const USUAL_WIDTH: usize = 80;
/// Rows of such a terminal.
const USUAL_HEIGHT: usize = 24;

/// Returns the width of the terminal that a program prints to, if it is one. A serial port knows
/// none; a person who does sets COLUMNS, or `stty cols`.
pub fn width(stream: &impl AsRawFd) -> Option<usize> {
    let (_, known) = sys::size(stream).ok()?;
    Some(length_of(known.into(), set("COLUMNS"), USUAL_WIDTH))
}

/// Returns the rows of the terminal that a program prints to, if it is one. Without its own number
/// LINES counts, or what most terminals have.
pub(crate) fn height(stream: &impl AsRawFd) -> Option<usize> {
    let (known, _) = sys::size(stream).ok()?;
    Some(length_of(known.into(), set("LINES"), USUAL_HEIGHT))
}

/// Returns the number that a person has set.
fn set(variable: &str) -> Option<usize> {
    std::env::var(variable).ok()?.parse().ok()
}

/// Returns the length that counts: the terminal's own, what a person has set, or the usual one.
fn length_of(known: usize, set: Option<usize>, usual: usize) -> usize {
    match (known, set) {
        (0, Some(set)) if set > 0 => set,
        (0, _) => usual,
        (known, _) => known,
    }
}

/// Prints a line to standard output.
pub fn line(text: &str) {
    if let Err(error) = writeln!(Output, "{text}") {
        complain(format_args!("standard output: {error}"));
        process::exit(1);
    }
}

/// Prints a line to standard error, if anybody reads that.
pub fn complain(text: fmt::Arguments<'_>) {
    // A message about a message that nobody reads has no reader either.
    let _ = writeln!(io::stderr(), "{text}");
}

/// Stands for the standard library's in all of this crate.
macro_rules! eprintln {
    ($($text:tt)*) => { $crate::output::complain(format_args!($($text)*)) };
}

#[cfg(test)]
mod tests;
