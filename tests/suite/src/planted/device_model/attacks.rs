//! Bugs that the hostile driver's attacks find on the host.
//!
//! One check each is gone or too weak. Drivers of operating systems meet none of them, as they keep
//! to virtio; the attacks break one rule each and look for bytes that changed outside of the
//! request.

use super::super::bug::Bug;
use super::bug;
use crate::change::Change;

pub(in crate::planted) const BUGS: &[Bug] = &[
    // The first byte is looked at. A buffer that begins in memory and ends behind it is the attack;
    // buffers of honest drivers lie inside.
    bug(
        "a buffer's end is not checked",
        Change::Swap("length as usize", "1"),
    ),
    // A chain of the whole table, with indirect tables, would be a list of any length in the device
    // model's memory.
    bug(
        "a request has as many segments as it likes",
        Change::Swap("MAX_SEGMENTS", "usize::MAX"),
    ),
    // The iterator stops silently at such a descriptor. A chain that is cut there looks whole, and
    // the request is done in part.
    bug(
        "a loop or a next outside of the table ends a chain well",
        Change::Swap(
            "more ",
            "more && chain.readable.is_empty() && chain.writable.is_empty() ",
        ),
    ),
    // Virtio has all readable buffers first (2.7.4.2). The bug changes nothing for drivers that
    // keep that order.
    bug(
        "readable behind writable is taken",
        Change::Swap("chain.writable.is_empty()", "true"),
    ),
    // An available index further ahead than the ring is long is an error; the bug takes it for an
    // empty ring. A device that ignores it hangs, where the attack expects NEEDS_RESET.
    bug(
        "an index that jumps is nothing to do",
        Change::Swap(
            "AvailableIndex)?",
            "AvailableIndex);\n        let Ok(available) = &mut available else { return Ok(false) }",
        ),
    ),
    // One sector too many, at the end of the disk alone.
    bug(
        "sectors beyond the disk are accepted",
        Change::Swap("bytes ", "bytes + 512 "),
    ),
    // The alignment is still checked. The device model would map what is not the guest's.
    bug(
        "rings outside of memory are accepted",
        Change::Swap(
            "\n                && ram.start <= start\n                && end.is_some_and(|end| end <= ram.end)",
            "",
        ),
    ),
    // A size of 0x1_0001 passes for 1. The register has 32 bits, and the driver writes all of them.
    bug(
        "a size is cut to 16 bits",
        Change::Become("let size = word(SIZE) & 0xffff;"),
    ),
    // The state is reset but for the status, and the queues go on. The attack looks whether
    // anything is written behind a reset.
    bug(
        "a reset leaves the rings",
        Change::Swap(
            "rings = [const { None }; MAX_QUEUES];\n        self.state.reset(",
            "state.reset();\n        self.state.set(Word::Status, DRIVER_OK",
        ),
    ),
    // A driver that writes its status again would get a device back that is in an undefined state.
    // Only a write of 0 may.
    bug(
        "a broken device is well without a reset",
        Change::Swap("|| old & NEEDS_RESET != 0 ", ""),
    ),
    // The features that must be there are still checked. The attack sets each bit that is not
    // offered.
    bug(
        "features that are not offered are accepted",
        Change::Swap("features & !self.offered() == 0\n            && ", ""),
    ),
];
