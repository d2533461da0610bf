//! Operations about traces.

use core::sync::atomic::Ordering::Relaxed;

use gear1_abi::call::Status;
use gear1_abi::id::VcpuId;
use gear2_protocol::{TRACE_RECORDS, outcome};

use super::{Answer, NOTHING, Task, done};
use crate::gear1::Gear1;
use crate::machine::{Machine, Platform};

/// Modes of `TRACE`.
const END: u64 = 0;
const BEGIN: u64 = 1;
const TELL: u64 = 2;

/// Begins or ends a trace, or tells of the rings alone.
pub(super) fn switch<P: Platform>(
    machine: &Machine<P>,
    gear1: &mut impl Gear1,
    mode: u64,
) -> Answer {
    let (trace, config) = (&machine.trace, &machine.config);
    if !trace.has_rings() {
        return Err(outcome::NOT_FOUND);
    }
    match mode {
        TELL => {}
        // Before the other loops are told: this CPU's records are of no use without theirs.
        BEGIN if gear1.trace(true) == Err(Status::NoSuchCall) => return Err(outcome::UNKNOWN),
        BEGIN | END => {
            if trace.set_order(mode == BEGIN) {
                return Ok((outcome::BUSY, NOTHING, Task::Trace));
            }
            if !trace.is_done(config.cpus) {
                return Err(outcome::BUSY);
            }
        }
        _ => return Err(outcome::UNKNOWN),
    }
    let [gear1, gear2] = trace.sizes();
    let from_boot = config.trace_from_boot.into();
    done([gear1, gear2, from_boot, config.cpus.mask(), 0, 0])
}

/// Copies records of a ring.
pub(super) fn read<P: Platform>(machine: &Machine<P>, ring: u64, cursor: u64) -> Answer {
    let read = machine.trace.read(ring, cursor, TRACE_RECORDS);
    let read = read.ok_or(outcome::NOT_FOUND)?;
    let count = read.records.len() as u64;
    fill(machine, read.records.into_iter().flatten());
    done([read.next, count, read.lost, 0, 0, 0])
}

/// Copies what was noted of a vCPU.
pub(super) fn note<P: Platform>(machine: &Machine<P>, vcpu: u64) -> Answer {
    let vcpu = VcpuId::from_reg(vcpu).ok_or(outcome::NOT_FOUND)?;
    let notes = machine.trace.notes(vcpu).ok_or(outcome::NOT_FOUND)?;
    let count = notes[0].exits.len() as u64;
    let words = notes.into_iter();
    fill(
        machine,
        words.flat_map(|note| core::iter::once(note.time).chain(note.exits)),
    );
    done([count, 0, 0, 0, 0, 0])
}

/// Fills the words beside the mailbox, which whoever sees the answer's number sees as well.
fn fill<P: Platform>(machine: &Machine<P>, words: impl Iterator<Item = u64>) {
    let Some(model) = &machine.device_model else {
        return;
    };
    for (to, word) in model.trace_words().iter().zip(words) {
        to.store(word, Relaxed);
    }
}
