//! Bugs in the order of rings and registers, which two CPUs see, and in who does a driver's writes.
//!
//! An x86 host runs stores in order and hides what an Arm CPU does not: the order of rings is tried
//! on a model with a buffer of stores.

use super::super::bug::Bug;
use crate::change::Change;

const BY_ORDER: &str = "device-model/src/vring/order/tests.rs";
const BY_GEAR2: &str = "gear2/core/src/device_model/tests.rs";
const BY_TRANSPORT: &str = "device-model/src/transport/tests.rs";

pub(in crate::planted) const BUGS: &[Bug] = &[
    // Bytes in front of the RAM have offsets of nearly 2^64. An honest driver names none of them.
    Bug::on_host(
        "device-model/src/memory/tests.rs",
        "what lies in front of a guest's ram is the begin of the ram",
        Change::Swap("wrapping_sub", "saturating_sub"),
    ),
    // Events from before the first arming, of which there are as many as the guest likes.
    Bug::on_host(
        "device-model/src/worker/tests.rs",
        "a queue of events that a guest has filled stays full",
        Change::Drop,
    ),
    // The line stays spent, and the thread hears of its guest once a second for good. The event has
    // to come between a tick's wait and its look at the queue.
    Bug::on_host(
        "device-model/src/worker/tests.rs",
        "an edge that no wait has told of is thrown away",
        Change::Swap("self.is_spent |=", "let _ ="),
    ),
    // Linux tells of no event that finds the queue full: after sixteen the thread would hear of its
    // guest once a second. A pipe has more room, and the test counts what is left in it.
    Bug::on_host(
        "device-model/src/gpio/tests.rs",
        "events of a line stay until there is no room",
        Change::Swap(">= KEPT", "> 64"),
    ),
    // The index is published before the status is there. A driver that looks at once reads the
    // status of the request before; the model lets it look between any two stores.
    Bug::on_host(
        BY_ORDER,
        "the status comes behind the used index",
        Change::Swap(
            "memory.write(",
            "memory.store(self.used + INDEX, self.next_used.wrapping_add(1), Ordering::Release)?;\n        memory.write(",
        ),
    ),
    // A driver that looks between two stores sees a part of a frame, and drops the frame: TCP goes
    // on after a timeout, so that nothing is lost but time.
    Bug::on_host(
        BY_ORDER,
        "the buffers of a frame are seen one by one",
        Change::Swap(
            "self.completed.wrapping_add(1);",
            "self.completed.wrapping_add(1);\n            memory.store(self.used + INDEX, self.next_used, Ordering::Release)?;",
        ),
    ),
    // The entry may become visible behind its index. x86 hosts keep stores in order, so the model
    // has a store buffer that does not.
    Bug::on_host(
        BY_ORDER,
        "the used index waits for nothing",
        Change::Swap("Release", "Relaxed"),
    ),
    // Store of the index, load of the wish: without a fence the load goes first, and an interrupt
    // is lost. A driver that polls, or that gets another interrupt soon, goes on; the model's
    // deadlocks.
    Bug::on_host(
        BY_ORDER,
        "no fence before the look at the wish for interrupts",
        Change::Drop,
    ),
    // The other direction of that pattern, by which a notification is lost.
    Bug::on_host(
        BY_ORDER,
        "no fence before the last look for requests",
        Change::Drop,
    ),
    // Gear2 and the next GDM see the answer with rings of the stopped VM behind it. A kill or a
    // load between the two stores is what makes it matter: the model tries all orders.
    Bug::on_host(
        "device-model/src/atomic/tests.rs",
        "a reset is answered before it is done",
        Change::Swap(
            "reset();\n        self.word(RESET_SEEN).store(asked, Ordering::Release",
            "word(RESET_SEEN).store(asked, Ordering::Release);\n        self.reset(",
        ),
    ),
    // The next driver takes the bit for an interrupt of what it has set up itself (virtio 1.2,
    // 4.2.2.1).
    Bug::on_host(
        BY_TRANSPORT,
        "an interrupt is left over a reset",
        Change::Drop,
    ),
    // Before FEATURES_OK nobody knows the layout of the rings (virtio 1.2, 3.1.1). Drivers keep the
    // order.
    Bug::on_host(
        BY_TRANSPORT,
        "a queue is ready before the features",
        Change::Swap("!self.has(status::FEATURES_OK) || ", ""),
    ),
    // Gear2 does the early writes of a set-up by itself. A reset of a device in use looks like one
    // of those, and the backend would go on.
    Bug::on_host(
        BY_TRANSPORT,
        "a device in use is reset without its backend",
        Change::Drop,
    ),
    // The device model answers the reset by forgetting what the driver wrote. Writes of the VM's
    // next life that come before that would be forgotten, too.
    Bug::on_host(
        BY_TRANSPORT,
        "a driver's writes overtake the reset of its VM",
        Change::Swap(
            "\n            && self.0[RESET_SEEN].load(Acquire) == self.get(RESET_ASKED)",
            "",
        ),
    ),
    // A driver would set up a device that shows no type. Linux passes over it after the first read.
    Bug::on_host(
        BY_TRANSPORT,
        "Gear2 does the writes of a device that is not there",
        Change::Swap("self.identity.device_id != 0", "true"),
    ),
    // An index behind the table panics, or reads what is not a size. The selector is a number of
    // the guest's.
    Bug::on_host(
        BY_GEAR2,
        "a selector behind the last queue names one",
        Change::Drop,
    ),
    // The device model reads and writes the device's page while it has an access. Another vCPU's
    // write by Gear2 at that moment is lost or comes first.
    Bug::on_host(
        BY_GEAR2,
        "a write overtakes one that GDM has",
        Change::Swap("slots.is_idle(request.device) && ", ""),
    ),
    // Virtio lets a device refuse them (5.1.3.1). Linux's drivers never ask for one without the
    // other.
    Bug::on_host(
        BY_TRANSPORT,
        "features without those that they depend on are accepted",
        Change::Swap("features & dependency.needs_one_of != 0", "true"),
    ),
];
