//! Bugs in parsers of bytes from outside: the replay of each fuzz target's corpus finds one.
//!
//! Each row weakens one check of a length, an index or a right. The corpus has what honest senders
//! write; its mutations, 100,000 for each target, come to the rest.

use super::bug::{Bug, Finder};
use crate::change::Change;

const REPLAY: &str = "tests/fuzz/src/tests.rs";

pub(super) const BUGS: &[Bug] = &[
    // Bits outside of the affinity fields reach PSCI and the GIC. Trees of boards have none;
    // mutations of the corpus set them.
    Bug {
        name: "a CPU has an affinity that no CPU has",
        change: Change::Swap("        .filter(|mpidr| mpidr & !AFFINITY == 0)\n", ""),
        breaks: &["G1-BOOT-001"],
        test: REPLAY,
        finder: Finder::HostNamed("tree"),
    },
    // The header's length is believed. The slice panics where the length lies, which one mutation
    // of four bytes is enough for.
    Bug {
        name: "a manifest is longer than its bytes",
        change: Change::Become("let bytes = &bytes[..header.total];"),
        breaks: &["G1-BOOT-002"],
        test: REPLAY,
        finder: Finder::HostNamed("manifest"),
    },
    // The member's size is believed. Sums are still checked for overflow, so only a size that fits
    // into a number and not into the file shows it.
    Bug {
        name: "an archive's member ends behind the archive",
        change: Change::Become("let data = &bytes[start..end];"),
        breaks: &[],
        test: REPLAY,
        finder: Finder::HostNamed("archive"),
    },
    // A retrieval gets more than the sender gave. The target compares the answer to whatever the
    // bytes say with what was offered.
    Bug {
        name: "who may only read asks to write, and does",
        change: Change::Swap(
            "if may_write => Ok(true),\n        READ_WRITE => Err(Error::Denied)",
            "=> Ok(true)",
        ),
        breaks: &["G1-MEM-012"],
        test: REPLAY,
        finder: Finder::HostNamed("ffa"),
    },
    // The device model writes the index, and Gear2 would read behind the ring. Indices of an honest
    // device model stay inside for the first 4 GiB of input.
    Bug {
        name: "a console's index is not cut to its ring",
        change: Change::Swap("length", "usize::MAX + length * 0"),
        breaks: &[],
        test: REPLAY,
        finder: Finder::HostNamed("region"),
    },
];
