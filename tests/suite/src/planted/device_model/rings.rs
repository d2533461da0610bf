//! Bugs in the order of rings and registers, which two CPUs see.

use super::super::bug::Bug;
use super::bug_of;
use crate::change::Change;

const BY_ORDER: &str = "device-model/src/vring/order/tests.rs";
const BY_TRANSPORT: &str = "device-model/src/transport/tests.rs";

pub(in crate::planted) const BUGS: &[Bug] = &[
    bug_of(
        BY_ORDER,
        "the status comes behind the used index",
        Change::Swap(
            "        if let",
            "        memory.store(self.used + INDEX, self.next_used.wrapping_add(1), Ordering::Release)?;\n        if let",
        ),
    ),
    bug_of(
        BY_ORDER,
        "the used index waits for nothing",
        Change::Swap("Release", "Relaxed"),
    ),
    bug_of(
        BY_ORDER,
        "no fence before the look at the wish for interrupts",
        Change::Drop,
    ),
    bug_of(
        BY_ORDER,
        "no fence before the last look for requests",
        Change::Drop,
    ),
    bug_of(
        "device-model/src/atomic/tests.rs",
        "a reset is answered before it is done",
        Change::Swap(
            "reset();\n        self.word(RESET_SEEN).store(asked, Ordering::Release",
            "word(RESET_SEEN).store(asked, Ordering::Release);\n        self.reset(",
        ),
    ),
    bug_of(
        BY_TRANSPORT,
        "an interrupt is left over a reset",
        Change::Drop,
    ),
    bug_of(
        BY_TRANSPORT,
        "a queue is ready before the features",
        Change::Swap("self.status() & FEATURES_OK == 0 || ", ""),
    ),
    bug_of(
        BY_TRANSPORT,
        "features without those that they depend on are accepted",
        Change::Swap("features & dependency.needs_one_of != 0", "true"),
    ),
];
