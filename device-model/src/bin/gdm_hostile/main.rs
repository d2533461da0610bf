//! GDM with a guest that has subverted the process which serves it: once the threads of the VM
//! `hostile` have given up all rights, they run the code of `attacks.rs`.
//!
//! A program of the tests alone (`tests/processes.rs`, `cargo xtask test "hostile code"`): no image
//! of a system has it.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;
use std::process::ExitCode;

use device_model::gpio::Line;
use device_model::hardware::Hardware;
use device_model::options::Options;
use device_model::start;
use vm_memory::FileOffset;

mod attacks;

/// Files in place of memory, registers and lines, on a machine that is no device VM.
#[derive(Debug)]
struct Files(PathBuf);

impl Files {
    /// Opens the file of an address.
    fn open(&self, name: &str) -> io::Result<File> {
        let mut options = OpenOptions::new();
        options.read(true).write(true);
        options.custom_flags(libc::O_NONBLOCK);
        let path = self.0.join(name);
        let named = |error| io::Error::other(format!("{}: {error}", path.display()));
        options.open(&path).map_err(named)
    }
}

impl Hardware for Files {
    fn memory(&self, address: u64, _size: usize) -> io::Result<FileOffset> {
        let file = self.open(&format!("memory-{address:x}"))?;
        Ok(FileOffset::new(file, 0))
    }

    fn registers(&self, address: u64) -> io::Result<FileOffset> {
        Ok(FileOffset::new(self.open(&format!("page-{address:x}"))?, 0))
    }

    fn line(&self, address: u64, line: u32) -> io::Result<Line> {
        Ok(Line::of_file(
            self.open(&format!("line-{address:x}-{line}"))?,
        ))
    }
}

fn main() -> ExitCode {
    let ended = Options::read(std::env::args().skip(1)).and_then(|mut options| {
        let files = options.tree.with_file_name("hardware");
        if files.is_dir() {
            options.hardware = Box::leak(Box::new(Files(files)));
        }
        attacks::aim(&options);
        options.inside = Some(attacks::run);
        start::run(&options)
    });
    let Err(error) = ended else {
        return ExitCode::SUCCESS;
    };
    eprintln!("gdm: {error}");
    ExitCode::FAILURE
}
