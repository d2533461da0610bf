//! Bugs in the doorbells between VMs.

use super::bug::{Bug, Finder};
use crate::change::Change;

const PROTOCOL: &str = "gear1/core/tests/protocol/doorbell.rs";
const INIT: &str = "gear1/init/src/doorbells/tests.rs";
const SOURCE: &str = "gear1/init/src/devices/source/tests.rs";
const RULES: &str = "manifests/src/rules/channels/tests.rs";
const GUEST: &str = "tests/guests/src/bin/doorbell.rs";

pub(super) const BUGS: &[Bug] = &[
    Bug {
        name: "a doorbell is delivered before its interval has passed",
        change: Change::Swap("now < due", "now.wrapping_add(interval) < due"),
        breaks: &["G1-CHN-006"],
        test: PROTOCOL,
        finder: Finder::HostNamed("doorbell"),
    },
    Bug {
        name: "a doorbell stays held",
        change: Change::Drop,
        breaks: &["G1-CHN-005"],
        test: PROTOCOL,
        finder: Finder::HostNamed("doorbell"),
    },
    Bug {
        name: "a ring that is held back is forgotten",
        change: Change::Drop,
        breaks: &["G1-CHN-005"],
        test: GUEST,
        finder: Finder::Guest("doorbell", "cortex-a57"),
    },
    Bug {
        name: "a doorbell interrupts no ordinary VM",
        change: Change::Drop,
        breaks: &["G1-CHN-004"],
        test: GUEST,
        finder: Finder::Guest("doorbell", "cortex-a57"),
    },
    Bug {
        name: "a doorbell into a VM with pass-through is another interrupt",
        change: Change::Swap("boot.intid", "boot.intid.wrapping_add(2)"),
        breaks: &["G1-CHN-007"],
        test: GUEST,
        finder: Finder::Guest("doorbell-rt", "cortex-a57"),
    },
    Bug {
        name: "a doorbell is another VM's too",
        change: Change::Swap("channel.from == vm.name", "!channel.from.is_empty()"),
        breaks: &["G1-CHN-001"],
        test: INIT,
        finder: Finder::Host,
    },
    Bug {
        name: "a doorbell has the interrupt of a device",
        change: Change::Swap("channel.intid", "0"),
        breaks: &["G1-CHN-007"],
        test: INIT,
        finder: Finder::Host,
    },
    Bug {
        name: "a doorbell has an interrupt that a bridge passes on",
        change: Change::Swap("||", "&&"),
        breaks: &["G1-CHN-007"],
        test: SOURCE,
        finder: Finder::Host,
    },
    Bug {
        name: "Gear2 rings every doorbell",
        change: Change::Swap("gear2 == 0", "gear2 == 2"),
        breaks: &["G1-CHN-008"],
        test: "tests/guests/src/bin/gear2_fails.rs",
        finder: Finder::Guest("gear2-fails", "cortex-a57"),
    },
    Bug {
        name: "Gear2 rings another VM's channel",
        change: Change::Swap("own()", "manifest.channels.iter()"),
        breaks: &["G1-BOOT-002"],
        test: RULES,
        finder: Finder::Host,
    },
    Bug {
        name: "a doorbell hides memory",
        change: Change::Swap("chain(memory)", "chain(memory.take(0))"),
        breaks: &["G1-BOOT-002"],
        test: RULES,
        finder: Finder::Host,
    },
    Bug {
        name: "a VM has two power buttons",
        change: Change::Swap("&&", "||"),
        breaks: &["G1-BOOT-002"],
        test: RULES,
        finder: Finder::Host,
    },
    Bug {
        name: "two doorbells have one interrupt",
        change: Change::Swap("||", "&&"),
        breaks: &["G1-BOOT-002"],
        test: RULES,
        finder: Finder::Host,
    },
];
