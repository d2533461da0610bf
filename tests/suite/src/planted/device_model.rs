//! Bugs in the device model: the hostile driver's attacks find those in what guests see, and tests
//! of the host those in its sockets, in what disks lose, in what two CPUs see, and in what a start
//! finds.

pub(super) mod attacks;
pub(super) mod clients;
pub(super) mod disks;
pub(super) mod input;
pub(super) mod processes;
pub(super) mod programs;
pub(super) mod rings;
pub(super) mod sandbox;
pub(super) mod services;
pub(super) mod sockets;

use super::bug::{Bug, Finder};
use crate::change::Change;

/// A bug that the attacks on the host find. The bare-metal guest makes the same attacks on the
/// target, where a find takes a boot and an image of the device VM.
const fn bug(name: &'static str, change: Change) -> Bug {
    Bug {
        name,
        change,
        breaks: &[],
        test: "device-model/src/worker/tests/hostile.rs",
        finder: Finder::HostNamed("hostile"),
    }
}
