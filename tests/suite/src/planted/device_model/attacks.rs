//! Bugs that the hostile driver's attacks find on the host.

use super::super::bug::Bug;
use super::bug;
use crate::change::Change;

pub(in crate::planted) const BUGS: &[Bug] = &[
    bug(
        "a buffer's end is not checked",
        Change::Swap("length as usize", "1"),
    ),
    bug(
        "a request has as many segments as it likes",
        Change::Swap("MAX_SEGMENTS", "usize::MAX"),
    ),
    bug(
        "a loop or a next outside of the table ends a chain well",
        Change::Swap(
            "more ",
            "more && chain.readable.is_empty() && chain.writable.is_empty() ",
        ),
    ),
    bug(
        "readable behind writable is taken",
        Change::Swap("chain.writable.is_empty()", "true"),
    ),
    bug(
        "an index that jumps is nothing to do",
        Change::Swap(
            "AvailableIndex)?",
            "AvailableIndex);\n        let Ok(available) = &mut available else { return Ok(false) }",
        ),
    ),
    bug(
        "sectors beyond the disk are accepted",
        Change::Swap("bytes ", "bytes + 512 "),
    ),
    bug(
        "rings outside of memory are accepted",
        Change::Swap(
            "\n                && ram.start <= start\n                && end.is_some_and(|end| end <= ram.end)",
            "",
        ),
    ),
    bug(
        "a size is cut to 16 bits",
        Change::Become("let size = word(SIZE) & 0xffff;"),
    ),
    bug(
        "a reset leaves the rings",
        Change::Swap(
            "rings = [const { None }; MAX_QUEUES];\n        self.state.reset(",
            "state.reset();\n        self.state.set(Word::Status, DRIVER_OK",
        ),
    ),
    bug(
        "a broken device is well without a reset",
        Change::Swap("|| old & NEEDS_RESET != 0 ", ""),
    ),
    bug(
        "features that are not offered are accepted",
        Change::Swap("features & !self.offered() == 0\n            && ", ""),
    ),
];
