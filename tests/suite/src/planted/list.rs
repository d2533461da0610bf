//! All bugs, a file a subject.
//!
//! The order is that of the parts, and so of a whole run. Names are unique over all files, because
//! a name finds the bug's place, its part and its outcome.

use super::bug::Bug;
use super::{
    boot, cpu, device_model, dma, doorbells, fuzz, gear2, gic, manifest, memory, realtime, runtime,
    time,
};

/// All bugs, area by area.
const BUGS: [&[Bug]; 22] = [
    memory::BUGS,
    boot::BUGS,
    manifest::BUGS,
    cpu::BUGS,
    gic::BUGS,
    time::BUGS,
    runtime::BUGS,
    realtime::BUGS,
    dma::BUGS,
    doorbells::BUGS,
    device_model::attacks::BUGS,
    device_model::clients::BUGS,
    device_model::disks::BUGS,
    device_model::input::BUGS,
    device_model::processes::BUGS,
    device_model::programs::BUGS,
    device_model::rings::BUGS,
    device_model::sandbox::BUGS,
    device_model::services::BUGS,
    device_model::sockets::BUGS,
    fuzz::BUGS,
    gear2::BUGS,
];

/// Returns all bugs. Everything that looks at bugs goes by this, the unit tests that compare bugs
/// with the requirements too: a file that is missing here would leave its requirements without a
/// bug.
pub(super) fn bugs() -> impl Iterator<Item = &'static Bug> {
    BUGS.into_iter().flatten()
}
