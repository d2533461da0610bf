//! Bugs in the device model: the hostile driver's attacks find those in what guests see, and tests
//! of the host those in its sockets, in what disks lose, in what two CPUs see, and in what a start
//! finds.

pub(super) mod attacks;
pub(super) mod clients;
pub(super) mod disks;
pub(super) mod programs;
pub(super) mod rings;
pub(super) mod sandbox;

use super::bug::{Bug, Finder};
use crate::change::Change;

/// A bug that the attacks on the host find.
const fn bug(name: &'static str, change: Change) -> Bug {
    Bug {
        name,
        change,
        breaks: &[],
        test: "device-model/src/worker/tests/hostile.rs",
        finder: Finder::HostNamed("hostile"),
    }
}

/// A bug that the host tests of one module find.
const fn bug_of(test: &'static str, name: &'static str, change: Change) -> Bug {
    Bug {
        name,
        change,
        breaks: &[],
        test,
        finder: Finder::Host,
    }
}
