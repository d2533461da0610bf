//! Bugs in the virtual interrupt controller.

use super::bug::{Bug, Finder};
use crate::change::Change;

const RULES: &str = "tests/suite/src/architecture.rs";

const REGISTERS: &str = "gear1/core/src/vgic/tests/registers.rs";
const LISTS: &str = "gear1/core/src/vgic/tests/list_registers.rs";

/// A bug that tests on the host find.
const fn bug(
    name: &'static str,
    change: Change,
    breaks: &'static [&'static str],
    test: &'static str,
) -> Bug {
    Bug {
        name,
        change,
        breaks,
        test,
        finder: Finder::Host,
    }
}

pub(super) const BUGS: &[Bug] = &[
    Bug {
        name: "a VM's next life has the interrupt controller of its last",
        change: Change::Drop,
        breaks: &["G1-GIC-014"],
        test: "tests/guests/src/bin/reboot.rs",
        finder: Finder::Guest("reboot", "cortex-a57"),
    },
    bug(
        "a reset keeps the private interrupts of vCPUs",
        Change::Swap(
            "fill(",
            "iter_mut().filter(|vcpu| !vcpu.asleep && vcpu.used == 0).for_each(|vcpu| *vcpu = ",
        ),
        &["G1-GIC-014"],
        LISTS,
    ),
    bug(
        "a repeated SGI of two senders comes from one",
        Change::Swap(
            "sources & sources.wrapping_sub(1) == 0\n            && self",
            "self",
        ),
        &["G1-GIC-007"],
        LISTS,
    ),
    bug(
        "an active SGI that gets a list register again has lost its sender",
        Change::Swap(
            "by_sender",
            "by_sender && (word.listed | !word.active) & bit != 0",
        ),
        &["G1-GIC-017"],
        "gear1/core/src/vgic/tests/gicv2.rs",
    ),
    bug(
        "a guest is shown two security states",
        Change::Swap("6 | 1 << ", ""),
        &["G1-GIC-001"],
        REGISTERS,
    ),
    bug(
        "registers of SPIs that are not there are there",
        Change::Swap("0", "0 || index > 1"),
        &["G1-GIC-002"],
        REGISTERS,
    ),
    bug(
        "the best of many is the worst",
        Change::Swap("among & !", "among & "),
        &["G1-GIC-007"],
        LISTS,
    ),
    bug(
        "a disabled interrupt is delivered",
        Change::Swap("self.enabled", "(self.enabled | 1 << 5)"),
        &["G1-GIC-003"],
        LISTS,
    ),
    bug(
        "an SGI reaches every vCPU",
        Change::Swap("everybody & value as u8", "    everybody"),
        &["G1-GIC-004"],
        REGISTERS,
    ),
    bug(
        "an SGI reaches vCPUs that the VM does not have",
        Change::Swap(
            "(0xff_u16 >> (8_u8.wrapping_sub(vcpu_count) & 7)) as u8",
            "0xff",
        ),
        &["G1-GIC-004"],
        REGISTERS,
    ),
    bug("an edge is lost", Change::Drop, &["G1-GIC-005"], LISTS),
    bug(
        "a physical interrupt stays active after its end",
        Change::Swap("unbacked | ", ""),
        &["G1-GIC-006"],
        LISTS,
    ),
    bug(
        "of two pending interrupts the worse comes first",
        Change::Become(
            "let best = each.filter(|rank| *rank != Rank::NONE).max().unwrap_or(Rank::NONE);",
        ),
        &["G1-GIC-007"],
        LISTS,
    ),
    bug(
        "an unloaded vCPU forgets what was pending",
        Change::Drop,
        &["G1-GIC-008"],
        LISTS,
    ),
    bug(
        "WFI ends whatever the priority mask is",
        Change::Swap("bit| word.priority_at(bit) < pmr", "_| pmr != 0"),
        &["G1-GIC-009"],
        LISTS,
    ),
    bug(
        "an SPI to nowhere goes to the first vCPU",
        Change::Swap("0", "1"),
        &["G1-GIC-010"],
        REGISTERS,
    ),
    bug(
        "a timer whose line is low stays pending",
        Change::Swap("bits", "bits & 0xffff"),
        &["G1-GIC-011"],
        LISTS,
    ),
    bug(
        "the end of an interrupt without list register is missed",
        Change::Become("wanted.deactivate = false;"),
        &["G1-GIC-012"],
        "gear1/core/src/vgic/tests/random.rs",
    ),
    bug(
        "what is due again after its end is left to the next flush",
        Change::Become("kicks.without(vcpu)"),
        &["G1-GIC-012"],
        LISTS,
    ),
    bug(
        "Group 0 of a GICv2 guest is not delivered",
        Change::Become("group0: 0,"),
        &["G1-GIC-013"],
        "gear1/core/src/vgic/tests/gicv2.rs",
    ),
    bug(
        "with pass-through every interrupt is the VM's",
        Change::Swap("intid) ", "intid) || intid > 31 "),
        &["G1-RT-003"],
        "gear1/core/src/vgic/passthrough/tests.rs",
    ),
    bug(
        "a PL061 loses a line when another is raised",
        Change::Swap("raised |", "raised "),
        &["G1-CHN-002"],
        "gear1/core/src/pl061/tests.rs",
    ),
    bug(
        "a line is shown before it is armed again",
        Change::Drop,
        &["G1-CHN-003"],
        "gear1/core/src/pl061/tests.rs",
    ),
    bug(
        "a line stays paced for a user that does not arm it",
        Change::Drop,
        &["G1-CHN-003"],
        "gear1/core/src/pl061/tests.rs",
    ),
    bug(
        "an edge before the line is armed again is lost",
        Change::Drop,
        &["G1-CHN-002", "G1-CHN-003"],
        "gear1/core/src/pl061/tests.rs",
    ),
    bug(
        "an SGI of a real-time VM to nobody goes to its first vCPU",
        Change::Swap("targets", "targets.max(1)"),
        &["G1-RT-004"],
        "gear1/core/src/vgic/passthrough/tests.rs",
    ),
    Bug {
        name: "what a kick is for is loaded before its acknowledge",
        change: Change::Drop,
        breaks: &["G1-VCPU-001"],
        test: RULES,
        finder: Finder::Rules,
    },
    Bug {
        name: "an LPI is taken for none, and not ended",
        change: Change::Swap("& !3 !=", "<"),
        breaks: &["G1-GIC-016"],
        test: REGISTERS,
        finder: Finder::Host,
    },
    Bug {
        name: "a guest reaches ICC_SRE_EL1",
        change: Change::Swap(
            "ICC_SRE_EL2::SRE",
            "ICC_SRE_EL2::ENABLE::SET.value | ICC_SRE_EL2::SRE",
        ),
        breaks: &["G1-GIC-015"],
        test: RULES,
        finder: Finder::Rules,
    },
    Bug {
        name: "a list register that was just written counts as ended",
        change: Change::Drop,
        breaks: &["G1-GIC-007"],
        test: "gear1/core/src/vgic/tests/list_registers.rs",
        finder: Finder::Host,
    },
];
