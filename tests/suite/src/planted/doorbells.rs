//! Bugs in the doorbells between VMs.
//!
//! A doorbell that is rung now and then works with most of these bugs. Floods, a second VM with a
//! doorbell, and the last ring of many are what the tests add.

use super::bug::{Bug, Finder};
use crate::change::Change;

const PROTOCOL: &str = "gear1/core/tests/protocol/doorbell.rs";
const INIT: &str = "gear1/init/src/doorbells/tests.rs";
const SOURCE: &str = "gear1/init/src/devices/source/tests.rs";
const RULES: &str = "manifests/src/rules/channels/tests.rs";
const GUEST: &str = "tests/guests/src/bin/doorbell.rs";

pub(super) const BUGS: &[Bug] = &[
    // Two interrupts come closer than the receiver was promised. One sender at a human pace never
    // shows it; the model rings on several CPUs in all orders.
    Bug {
        name: "a doorbell is delivered before its interval has passed",
        change: Change::Swap("now < due", "now.wrapping_add(interval) < due"),
        breaks: &["G1-CHN-006"],
        test: PROTOCOL,
        finder: Finder::HostNamed("doorbell"),
    },
    // The first ring is delivered, and all later ones join an interrupt that never comes.
    Bug {
        name: "a doorbell stays held",
        change: Change::Drop,
        breaks: &["G1-CHN-005"],
        test: PROTOCOL,
        finder: Finder::HostNamed("doorbell"),
    },
    // The ring has its time and no timer. A later ring brings the receiver the news, so only the
    // last ring of a flood is lost: the guest looks for it.
    Bug {
        name: "a ring that is held back is forgotten",
        change: Change::Drop,
        breaks: &["G1-CHN-005"],
        test: GUEST,
        finder: Finder::Guest("doorbell", "cortex-a57"),
    },
    // The ring is counted, paced and dropped. Receivers that poll the shared memory work.
    Bug {
        name: "a doorbell interrupts no ordinary VM",
        change: Change::Drop,
        breaks: &["G1-CHN-004"],
        test: GUEST,
        finder: Finder::Guest("doorbell", "cortex-a57"),
    },
    // The physical interrupt is two numbers off. A distributor takes any number; the receiver has
    // enabled one.
    Bug {
        name: "a doorbell into a VM with pass-through is another interrupt",
        change: Change::Swap("boot.intid", "boot.intid.wrapping_add(2)"),
        breaks: &["G1-CHN-007"],
        test: GUEST,
        finder: Finder::Guest("doorbell-rt", "cortex-a57"),
    },
    // A store of any VM at that address rings. The test compares the lists of channels that the
    // runtime gets, VM by VM.
    Bug {
        name: "a doorbell is another VM's too",
        change: Change::Swap("channel.from == vm.name", "!channel.from.is_empty()"),
        breaks: &["G1-CHN-001"],
        test: INIT,
        finder: Finder::Host,
    },
    // The search for another source looks for INTID 0. A device of the machine would interrupt as
    // the doorbell, in a VM with the physical controller.
    Bug {
        name: "a doorbell has the interrupt of a device",
        change: Change::Swap("channel.intid", "0"),
        breaks: &["G1-CHN-007"],
        test: INIT,
        finder: Finder::Host,
    },
    // Interrupts of PCI functions stand in the bridge's `interrupt-map` and in no node of their
    // own. The test gives the doorbell one of QEMU's SPIs 3 to 6.
    Bug {
        name: "a doorbell has an interrupt that a bridge passes on",
        change: Change::Swap("||", "&&"),
        breaks: &["G1-CHN-007"],
        test: SOURCE,
        finder: Finder::Host,
    },
    // The manifest's word for Gear2 is compared with a value that it never has. The failing Gear2
    // rings a bell that is not Gear2's.
    Bug {
        name: "Gear2 rings every doorbell",
        change: Change::Swap("gear2 == 0", "gear2 == 2"),
        breaks: &["G1-CHN-008"],
        test: "tests/guests/src/bin/gear2_fails.rs",
        finder: Finder::Guest("gear2-fails", "cortex-a57"),
    },
    // `tells` may name any channel, so a VM's end would ring in another VM's name. The name has to
    // exist and be another VM's to tell the two rules apart.
    Bug {
        name: "Gear2 rings another VM's channel",
        change: Change::Swap("own()", "manifest.channels.iter()"),
        breaks: &["G1-BOOT-002"],
        test: RULES,
        finder: Finder::Host,
    },
    // Shared memory, and the 2 MiB ahead of it that describe it, are left out of the comparison.
    // The VM's own memory is still compared.
    Bug {
        name: "a doorbell hides memory",
        change: Change::Swap("chain(memory)", "chain(memory.take(0))"),
        breaks: &["G1-BOOT-002"],
        test: RULES,
        finder: Finder::Host,
    },
    // `||` finds the second button of a VM as well, and besides that each button behind another
    // channel. The test has a button for each of two VMs, which is right.
    Bug {
        name: "a VM has two power buttons",
        change: Change::Swap("&&", "||"),
        breaks: &["G1-BOOT-002"],
        test: RULES,
        finder: Finder::Host,
    },
    // Two doorbells into one ordinary VM pass, as do two into two VMs that share the physical
    // controller. The rule needs both halves of the condition, each of which is a case of its own.
    Bug {
        name: "two doorbells have one interrupt",
        change: Change::Swap("||", "&&"),
        breaks: &["G1-BOOT-002"],
        test: RULES,
        finder: Finder::Host,
    },
];
