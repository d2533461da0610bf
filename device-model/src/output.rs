//! Output of the programs when its reader may have left.
//!
//! `println!` and `eprintln!` panic when their reader has left: `gearctl list | head -1` would end
//! with a panic, and a lost log reader would kill a thread of gdm together with its device. Here
//! output without a reader ends the program quietly, as SIGPIPE would, and messages without a
//! reader are dropped. SIGPIPE itself stays ignored: a socket whose peer has gone is an error to be
//! reported.

use std::fmt;
use std::io::{self, ErrorKind, Write};
use std::process;

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

fn ended_by<T>(result: io::Result<T>) -> io::Result<T> {
    match result {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => process::exit(READER_LEFT),
        other => other,
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
