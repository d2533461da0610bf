//! All bugs, a file a subject.

use super::bug::Bug;
use super::{boot, cpu, device_model, fuzz, gear2, gic, memory, realtime, runtime, time};

/// All bugs, area by area.
const BUGS: [&[Bug]; 10] = [
    memory::BUGS,
    boot::BUGS,
    cpu::BUGS,
    gic::BUGS,
    time::BUGS,
    runtime::BUGS,
    realtime::BUGS,
    device_model::BUGS,
    fuzz::BUGS,
    gear2::BUGS,
];

/// Returns all bugs.
pub(super) fn bugs() -> impl Iterator<Item = &'static Bug> {
    BUGS.into_iter().flatten()
}
