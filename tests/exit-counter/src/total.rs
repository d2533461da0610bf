//! Counts all instructions of all CPUs, at each exception level, between two marks of a program.
//!
//! A callback for each block of instructions costs QEMU far less than one for each instruction,
//! and an application executes hundreds of millions. A block that an exception ends counts whole:
//! the count is some instructions too high for each such exception.
//!
//! Arguments: `total=on`, `out=<file>`. A line with the count is written at each second mark.

use std::ffi::{c_uint, c_void};
use std::fs::File;
use std::io::Write as _;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, OnceLock, PoisonError};

use crate::costs::{BEGIN, END};
use crate::qemu::{self, Block, Id};

/// Instructions so far.
static EXECUTED: AtomicU64 = AtomicU64::new(0);
/// Instructions at the last begin.
static BEFORE: AtomicU64 = AtomicU64::new(0);
/// Where lines are written.
static OUT: OnceLock<Mutex<File>> = OnceLock::new();

/// Takes in the arguments and has QEMU count. `None`: one of them is missing or wrong.
pub(crate) fn install(id: Id, arguments: &[String]) -> Option<()> {
    let out = arguments.iter().find_map(|text| text.strip_prefix("out="));
    let out = File::create(out?).ok()?;
    OUT.set(Mutex::new(out)).ok()?;
    qemu::register_translation(id, on_translation);
    Some(())
}

/// Has a block counted, and its marks told.
extern "C" fn on_translation(_: Id, block: *mut Block) {
    let mut length = 0;
    for (instruction, _, word) in qemu::instructions(block) {
        length += 1;
        match word {
            BEGIN => qemu::before(instruction, on_begin, false, 0),
            END => qemu::before(instruction, on_end, false, 0),
            _ => {}
        }
    }
    qemu::at_block(block, on_block, length);
}

/// Counts a block. `-icount` has one thread execute all CPUs, so no addition is lost.
extern "C" fn on_block(_: c_uint, length: *mut c_void) {
    EXECUTED.store(EXECUTED.load(Relaxed) + length.addr() as u64, Relaxed);
}

extern "C" fn on_begin(_: c_uint, _: *mut c_void) {
    BEFORE.store(EXECUTED.load(Relaxed), Relaxed);
}

/// Writes what was executed since the begin.
extern "C" fn on_end(_: c_uint, _: *mut c_void) {
    if let Some(out) = OUT.get() {
        let mut out = out.lock().unwrap_or_else(PoisonError::into_inner);
        let count = EXECUTED.load(Relaxed) - BEFORE.load(Relaxed);
        let _ = writeln!(out, "{count}");
    }
}
