//! Bugs in parsers of bytes from outside: the replay of each fuzz target's corpus finds one.

use super::bug::{Bug, Finder};
use crate::change::Change;

const REPLAY: &str = "tests/fuzz/src/tests.rs";

pub(super) const BUGS: &[Bug] = &[
    Bug {
        name: "a CPU has an affinity that no CPU has",
        change: Change::Swap("        .filter(|mpidr| mpidr & !AFFINITY == 0)\n", ""),
        breaks: &["G1-BOOT-001"],
        test: REPLAY,
        finder: Finder::HostNamed("tree"),
    },
    Bug {
        name: "a manifest is longer than its bytes",
        change: Change::Become("let bytes = &bytes[..total];"),
        breaks: &["G1-BOOT-002"],
        test: REPLAY,
        finder: Finder::HostNamed("manifest"),
    },
    Bug {
        name: "an archive's member ends behind the archive",
        change: Change::Become("let data = &bytes[start..end];"),
        breaks: &[],
        test: REPLAY,
        finder: Finder::HostNamed("archive"),
    },
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
    Bug {
        name: "a console's index is not cut to its ring",
        change: Change::Swap("length", "usize::MAX + length * 0"),
        breaks: &[],
        test: REPLAY,
        finder: Finder::HostNamed("region"),
    },
];
