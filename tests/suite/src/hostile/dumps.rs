//! Dumps of the honest guest, whose FP registers hold a pattern: while it runs, and when it has
//! ended.
//!
//! Requirements: G1-RUN-012.

use anyhow::{Context as _, Result, ensure};
use object::LittleEndian;
use object::elf::{FileHeader64, NT_PRFPREG, PT_NOTE};
use object::read::elf::{FileHeader as _, ProgramHeader as _};
use serde_json::Value;
use workbench::expect::Session;
use xtask::smoke::device_vm::{json, number};
use xtask::smoke::shell;

use crate::devices::pauses::{CORE, head_of_core};

/// Seed of the pattern, as in the guest.
const FP_SEED: u64 = 5;
/// Bytes of NT_FPREGSET.
const FP_BYTES: usize = 528;

/// Dumps the guest while it is busy with its disk.
pub(super) fn of_running(session: &mut Session) -> Result<()> {
    let dump = dumped(session)?;
    ensure!(number(&dump["paused_ms"])? > 0, "it was not paused");
    has_pattern(session, &dump)
}

/// Dumps the guest when it has ended. The core file is of one moment: a second one is the same.
pub(super) fn of_stopped(session: &mut Session) -> Result<()> {
    let first = dumped(session)?;
    ensure!(first["paused_ms"] == Value::Null, "it was paused: {first}");
    let sum = shell(session, &format!("sha256sum {CORE}"))?;
    ensure!(dumped(session)? == first, "gearctl says {first} first");
    let again = shell(session, &format!("sha256sum {CORE}"))?;
    ensure!(sum == again, "devices wrote on: {sum:?}, {again:?}");
    has_pattern(session, &first)
}

/// Dumps the guest, and returns what gearctl says.
fn dumped(session: &mut Session) -> Result<Value> {
    let dump = json(session, &format!("gearctl dump honest {CORE} --json"))?;
    for part in ["fp_registers", "devices_rested"] {
        ensure!(dump[part] == Value::Bool(true), "gearctl says {dump}");
    }
    Ok(dump)
}

/// Checks the FP registers in the core file, and removes the file.
fn has_pattern(session: &mut Session, dump: &Value) -> Result<()> {
    let head = head_of_core(session, number(&dump["memory_bytes"])?)?;
    let header = FileHeader64::<LittleEndian>::parse(&*head)?;
    let mut segments = header.program_headers(LittleEndian, &*head)?.iter();
    let notes = segments.find(|segment| segment.p_type(LittleEndian) == PT_NOTE);
    let notes = notes.context("no notes")?.notes(LittleEndian, &*head)?;
    let mut notes = notes.context("no notes")?;
    while let Some(note) = notes.next()? {
        if note.n_type(LittleEndian) == NT_PRFPREG {
            let expected = pattern();
            let found = note.desc();
            ensure!(
                found == expected,
                "FP registers {found:x?}, not {expected:x?}"
            );
            return Ok(());
        }
    }
    anyhow::bail!("no FP registers");
}

/// Returns the pattern of the guest (`Registers::pattern`), as Linux lays out FP registers.
fn pattern() -> Vec<u8> {
    let mut state = u128::from(FP_SEED) << 1 | 1;
    let mut bytes = Vec::new();
    for _ in 0..32 {
        state = state.wrapping_mul(0x2360_ed05_1fc6_5da4_4385_df64_9fcc_f645);
        bytes.extend((state ^ state >> 64).to_le_bytes());
    }
    let fpsr = (FP_SEED & 0x9f | 1 << 27) as u32;
    let fpcr = ((FP_SEED & 3) << 22 | (FP_SEED & 4) << 23) as u32;
    bytes.extend([fpsr, fpcr].map(u32::to_le_bytes).concat());
    bytes.resize(FP_BYTES, 0);
    bytes
}
