//! Bugs in the virtual interrupt controller.

use super::Bug;
use super::finder::Finder;

const RULES: &str = "tests/suite/src/architecture.rs";

const REGISTERS: &str = "gear1/core/src/vgic/tests/registers.rs";
const LISTS: &str = "gear1/core/src/vgic/tests/lists.rs";

/// A bug that tests on the host find.
const fn bug(
    name: &'static str,
    file: &'static str,
    [from, to]: [&'static str; 2],
    breaks: &'static [&'static str],
    test: &'static str,
) -> Bug {
    Bug {
        name,
        file,
        from,
        to,
        breaks,
        test,
        finder: Finder::Host,
    }
}

pub(super) const BUGS: &[Bug] = &[
    Bug {
        name: "a VM's next life has the interrupt controller of its last",
        file: "gear1/runtime/src/lifecycle.rs",
        from: "        vm.gic.reset();\n",
        to: "",
        breaks: &["G1-GIC-014"],
        test: "tests/guests/src/bin/reboot.rs",
        finder: Finder::Guest("reboot", "cortex-a57"),
    },
    bug(
        "a reset keeps the private interrupts of vCPUs",
        "gear1/core/src/vgic.rs",
        [
            "        self.vcpus.fill(Vcpu::NEW);\n",
            "        self.vcpus.iter_mut().filter(|vcpu| !vcpu.asleep && vcpu.used == 0).for_each(|vcpu| *vcpu = Vcpu::NEW);\n",
        ],
        &["G1-GIC-014"],
        LISTS,
    ),
    bug(
        "a repeated SGI of two senders comes from one",
        "gear1/core/src/vgic/lists.rs",
        [
            "let is_done = sources & sources.wrapping_sub(1) == 0\n            && self.repeat(",
            "let is_done = self.repeat(",
        ],
        &["G1-GIC-007"],
        LISTS,
    ),
    bug(
        "a guest is shown two security states",
        "gear1/core/src/vgic/distributor.rs",
        [
            "const CTLR_DS_ARE: u32 = 1 << 6 | 1 << 4;",
            "const CTLR_DS_ARE: u32 = 1 << 4;",
        ],
        &["G1-GIC-001"],
        REGISTERS,
    ),
    bug(
        "registers of SPIs that are not there are there",
        "gear1/core/src/vgic/fields.rs",
        [
            "self.words >> (index & 31) & 1 != 0",
            "self.words >> (index & 31) & 1 != 0 || index > 1",
        ],
        &["G1-GIC-002"],
        REGISTERS,
    ),
    bug(
        "the best of many is the worst",
        "gear1/core/src/vgic/word.rs",
        [
            "let better = among & !plane;",
            "let better = among & plane;",
        ],
        &["G1-GIC-007"],
        LISTS,
    ),
    bug(
        "a disabled interrupt is delivered",
        "gear1/core/src/vgic/word.rs",
        [
            "self.enabled & (self.group1 & gate.group1",
            "(self.enabled | 1 << 5) & (self.group1 & gate.group1",
        ],
        &["G1-GIC-003"],
        LISTS,
    ),
    bug(
        "an SGI reaches every vCPU",
        "gear1/core/src/vgic/sgi.rs",
        [
            "        everybody & value as u8\n",
            "            everybody\n",
        ],
        &["G1-GIC-004"],
        REGISTERS,
    ),
    bug(
        "an SGI reaches vCPUs that the VM does not have",
        "gear1/core/src/vgic.rs",
        [
            "(0xff_u16 >> (8_u8.wrapping_sub(vcpu_count) & 7)) as u8",
            "0xff",
        ],
        &["G1-GIC-004"],
        REGISTERS,
    ),
    bug(
        "an edge is lost",
        "gear1/core/src/vgic.rs",
        ["        word.latch |= word.line & word.edge & bit;\n", ""],
        &["G1-GIC-005"],
        LISTS,
    ),
    bug(
        "a physical interrupt stays active after its end",
        "gear1/core/src/vgic/word.rs",
        [
            "        self.ended |= orphaned | withdrawn;\n",
            "        self.ended |= withdrawn;\n",
        ],
        &["G1-GIC-006"],
        LISTS,
    ),
    bug(
        "of two pending interrupts the worse comes first",
        "gear1/core/src/vgic/lists.rs",
        [
            "let best = each.fold(Rank::NONE, Ord::min);",
            "let best = each.filter(|rank| *rank != Rank::NONE).max().unwrap_or(Rank::NONE);",
        ],
        &["G1-GIC-007"],
        LISTS,
    ),
    bug(
        "an unloaded vCPU forgets what was pending",
        "gear1/core/src/vgic/lists.rs",
        [
            "        if word.in_list & bit != 0 {\n            word.in_list &= !bit;\n            word.latch |= bit;",
            "        if word.in_list & bit != 0 {\n            word.in_list &= !bit;",
        ],
        &["G1-GIC-008"],
        LISTS,
    ),
    bug(
        "WFI ends whatever the priority mask is",
        "gear1/core/src/vgic.rs",
        [
            "is_some_and(|bit| word.priority_at(bit) < pmr)",
            "is_some_and(|_| pmr != 0)",
        ],
        &["G1-GIC-009"],
        LISTS,
    ),
    bug(
        "an SPI to nowhere goes to the first vCPU",
        "gear1/core/src/vgic/distributor.rs",
        [
            "            1_u8 << (affinity & 7)\n        } else {\n            0\n",
            "            1_u8 << (affinity & 7)\n        } else {\n            1\n",
        ],
        &["G1-GIC-010"],
        REGISTERS,
    ),
    bug(
        "a timer whose line is low stays pending",
        "gear1/core/src/vgic.rs",
        [
            "        self.clear_pending(vcpu, index, bits)\n",
            "        self.clear_pending(vcpu, index, bits & 0xffff)\n",
        ],
        &["G1-GIC-011"],
        LISTS,
    ),
    bug(
        "the end of an interrupt without list register is missed",
        "gear1/core/src/vgic/lists.rs",
        [
            "wanted.deactivate = best_of(&found.orphans, words).is_some();",
            "wanted.deactivate = false;",
        ],
        &["G1-GIC-012"],
        "gear1/core/src/vgic/tests/random.rs",
    ),
    bug(
        "Group 0 of a GICv2 guest is not delivered",
        "gear1/core/src/vgic/distributor.rs",
        [
            "group0: all_if(self.version == GicVersion::V2 && value & ENABLE_GROUP0 != 0),",
            "group0: 0,",
        ],
        &["G1-GIC-013"],
        LISTS,
    ),
    bug(
        "with pass-through every interrupt is the VM's",
        "gear1/core/src/vgic/passthrough.rs",
        [
            "if private || owned(intid) {",
            "if private || owned(intid) || intid > 31 {",
        ],
        &["G1-RT-003"],
        "gear1/core/src/vgic/passthrough/tests.rs",
    ),
    bug(
        "a PL061 loses a line when another is raised",
        "gear1/core/src/pl061.rs",
        [
            "self.raised |= 1_u8.wrapping_shl(line);",
            "self.raised = 1_u8.wrapping_shl(line);",
        ],
        &["G1-CHN-002"],
        "gear1/core/src/pl061/tests.rs",
    ),
    bug(
        "an SGI of a real-time VM to nobody goes to its first vCPU",
        "gear1/core/src/vgic/passthrough.rs",
        [
            "(Kicks::from_mask(targets), intid.number())",
            "(Kicks::from_mask(targets.max(1)), intid.number())",
        ],
        &["G1-RT-004"],
        "gear1/core/src/vgic/passthrough/tests.rs",
    ),
    Bug {
        name: "what a kick is for is loaded before its acknowledge",
        file: "gear1/arch/src/gicv3.rs",
        from: "        barrier::dsb_sy();\n        is_interrupt(intid)",
        to: "        is_interrupt(intid)",
        breaks: &["G1-VCPU-001"],
        test: RULES,
        finder: Finder::Rules,
    },
    Bug {
        name: "an LPI is taken for none, and not ended",
        file: "gear1/core/src/vgic/types.rs",
        from: "intid & !3 != 1020",
        to: "intid < 1020",
        breaks: &["G1-GIC-016"],
        test: REGISTERS,
        finder: Finder::Host,
    },
    Bug {
        name: "a guest reaches ICC_SRE_EL1",
        file: "gear1/arch/src/gicv3.rs",
        from: "const SRE_EL2: u64 = 7;",
        to: "const SRE_EL2: u64 = 0xf;",
        breaks: &["G1-GIC-015"],
        test: RULES,
        finder: Finder::Rules,
    },
    Bug {
        name: "a list register that was just written counts as ended",
        file: "gear1/core/src/vgic/lists.rs",
        from: "        // Gear1 may have filled one since the guest left.\n        lrs.synchronize();\n        let mut spis",
        to: "        let mut spis",
        breaks: &["G1-GIC-007"],
        test: "gear1/core/src/vgic/tests/lists.rs",
        finder: Finder::Host,
    },
];
