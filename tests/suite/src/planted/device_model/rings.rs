//! Bugs in the order of rings and registers, which two CPUs see, and in who does a driver's writes.

use super::super::bug::Bug;
use crate::change::Change;

const BY_ORDER: &str = "device-model/src/vring/order/tests.rs";
const BY_GEAR2: &str = "gear2/core/src/device_model/tests.rs";
const BY_TRANSPORT: &str = "device-model/src/transport/tests.rs";

pub(in crate::planted) const BUGS: &[Bug] = &[
    Bug::on_host(
        BY_ORDER,
        "the status comes behind the used index",
        Change::Swap(
            "        if let",
            "        memory.store(self.used + INDEX, self.next_used.wrapping_add(1), Ordering::Release)?;\n        if let",
        ),
    ),
    Bug::on_host(
        BY_ORDER,
        "the used index waits for nothing",
        Change::Swap("Release", "Relaxed"),
    ),
    Bug::on_host(
        BY_ORDER,
        "no fence before the look at the wish for interrupts",
        Change::Drop,
    ),
    Bug::on_host(
        BY_ORDER,
        "no fence before the last look for requests",
        Change::Drop,
    ),
    Bug::on_host(
        "device-model/src/atomic/tests.rs",
        "a reset is answered before it is done",
        Change::Swap(
            "reset();\n        self.word(RESET_SEEN).store(asked, Ordering::Release",
            "word(RESET_SEEN).store(asked, Ordering::Release);\n        self.reset(",
        ),
    ),
    Bug::on_host(
        BY_TRANSPORT,
        "an interrupt is left over a reset",
        Change::Drop,
    ),
    Bug::on_host(
        BY_TRANSPORT,
        "a queue is ready before the features",
        Change::Swap("!self.has(status::FEATURES_OK) || ", ""),
    ),
    Bug::on_host(
        BY_TRANSPORT,
        "a device in use is reset without its backend",
        Change::Drop,
    ),
    Bug::on_host(
        BY_TRANSPORT,
        "a driver's writes overtake the reset of its VM",
        Change::Swap(
            "\n            && self.0[RESET_SEEN].load(Acquire) == self.get(RESET_ASKED)",
            "",
        ),
    ),
    Bug::on_host(
        BY_TRANSPORT,
        "Gear2 does the writes of a device that is not there",
        Change::Swap("self.identity.device_id != 0", "true"),
    ),
    Bug::on_host(
        BY_GEAR2,
        "a selector behind the last queue names one",
        Change::Drop,
    ),
    Bug::on_host(
        BY_GEAR2,
        "a write overtakes one that GDM has",
        Change::Swap("slots.is_idle(request.device) && ", ""),
    ),
    Bug::on_host(
        BY_TRANSPORT,
        "features without those that they depend on are accepted",
        Change::Swap("features & dependency.needs_one_of != 0", "true"),
    ),
];
