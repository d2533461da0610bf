//! Bugs in init: its inputs, refusals, allocations, and the memory it leaves behind.

use super::bug::{Bug, Finder};
use crate::change::Change;

const FDT: &str = "gear1/init/src/fdt/tests.rs";
const PREPARE: &str = "gear1/init/src/prepare/tests.rs";
const PARTITION: &str = "gear1/init/src/partition/tests.rs";
const DEVICES: &str = "gear1/init/src/devices/tests.rs";
const REFUSALS: &str = "tests/suite/src/refusals.rs";
const OVERLAPS: &str = "manifests/src/rules/tests/overlaps.rs";
const BOOT: &str = "tests/suite/src/boot.rs";

pub(super) const BUGS: &[Bug] = &[
    Bug {
        name: "a disabled node counts",
        change: Change::Become("\"status\" => traits.is_disabled = property.text().is_none(),"),
        breaks: &["G1-BOOT-001"],
        test: FDT,
        finder: Finder::Host,
    },
    Bug {
        name: "memory that firmware reserves is not seen",
        change: Change::Drop,
        breaks: &["G1-BOOT-001"],
        test: FDT,
        finder: Finder::Host,
    },
    Bug {
        name: "a manifest that breaks a rule is taken",
        change: Change::Drop,
        breaks: &["G1-BOOT-002"],
        test: REFUSALS,
        finder: Finder::Refusal("a device that the machine lacks"),
    },
    Bug {
        name: "virtio registers lie inside memory",
        change: Change::Swap("overlaps(&page(vm.virtio_ipa))", "start == vm.virtio_ipa"),
        breaks: &["G1-BOOT-002"],
        test: OVERLAPS,
        finder: Finder::Host,
    },
    Bug {
        name: "the real-time clock lies inside memory",
        change: Change::Swap("overlaps(&registers)", "start == registers.start"),
        breaks: &["G1-BOOT-002"],
        test: OVERLAPS,
        finder: Finder::Host,
    },
    Bug {
        name: "the watchdog lies inside memory",
        change: Change::Swap("overlaps(&registers)", "start == registers.start"),
        breaks: &["G1-BOOT-002"],
        test: OVERLAPS,
        finder: Finder::Host,
    },
    Bug {
        name: "memory reaches into another VM's from below",
        change: Change::Swap(
            "mine.overlaps(&theirs)",
            "theirs.contains(&Region::new(mine.start, mine.start))\n        && mine.start != theirs.end",
        ),
        breaks: &["G1-BOOT-002"],
        test: OVERLAPS,
        finder: Finder::Host,
    },
    Bug {
        name: "shared memory has nothing ahead of it",
        change: Change::Swap("with_lead", "region"),
        breaks: &["G1-BOOT-002"],
        test: OVERLAPS,
        finder: Finder::Host,
    },
    Bug {
        name: "two guests write one disk",
        change: Change::Swap("&&", "||"),
        breaks: &["G1-BOOT-002"],
        test: "manifests/src/rules/tests/backends.rs",
        finder: Finder::Host,
    },
    Bug {
        name: "two network cards have one address",
        change: Change::Swap(
            "mac_bytes() == Some(mac)",
            "mac_bytes() == Some(mac) && manifest.virtio.get(index).is_some_and(|own| own.vm == other.vm)",
        ),
        breaks: &["G1-BOOT-002"],
        test: "manifests/src/rules/tests/backends.rs",
        finder: Finder::Host,
    },
    Bug {
        name: "a file with another digest is taken",
        change: Change::Drop,
        breaks: &["G1-BOOT-012"],
        test: PREPARE,
        finder: Finder::Host,
    },
    Bug {
        name: "memory is given out twice",
        change: Change::Drop,
        breaks: &["G1-BOOT-003"],
        test: "gear1/init/src/layout/tests.rs",
        finder: Finder::Host,
    },
    Bug {
        name: "memory is taken on both sides of a hole",
        change: Change::Swap("end", "start"),
        breaks: &["G1-BOOT-003"],
        test: "gear1/init/src/region/tests.rs",
        finder: Finder::Host,
    },
    Bug {
        name: "an initrd lies over the kernel's bss",
        change: Change::Become("(Some(offset), Some(_)) => (offset, length(file)),"),
        breaks: &["G1-BOOT-004"],
        test: "gear1/init/src/linux/tests.rs",
        finder: Finder::Host,
    },
    Bug {
        name: "a VM gets pages of the interrupt controller",
        change: Change::Swap("gic) ", "gic) && page.bytes() == 0 "),
        breaks: &["G1-BOOT-005"],
        test: DEVICES,
        finder: Finder::Host,
    },
    Bug {
        name: "two VMs own one interrupt",
        change: Change::Swap("of.intid", "of.intid && i.intid == 0"),
        breaks: &["G1-BOOT-005"],
        test: "gear1/init/src/passthrough/tests.rs",
        finder: Finder::Host,
    },
    Bug {
        name: "a device's tree shows what is not its own",
        change: Change::Swap("path)", "path) || path.len() > 12"),
        breaks: &["G1-BOOT-006"],
        test: "gear1/init/src/device_tree/tests.rs",
        finder: Finder::Host,
    },
    Bug {
        name: "a guest is not told where its memory is",
        change: Change::Drop,
        breaks: &["G1-BOOT-007"],
        test: "gear1/init/src/guest_dt/tests.rs",
        finder: Finder::Host,
    },
    Bug {
        name: "a guest without an initial RAM disk is told of one at 0",
        change: Change::Swap("0", "1"),
        breaks: &["G1-BOOT-007"],
        test: "gear1/init/src/guest_dt/tests.rs",
        finder: Finder::Host,
    },
    Bug {
        name: "a guest finds the interrupt controller that the machine has not",
        change: Change::Become("_ = other;"),
        breaks: &["G1-BOOT-007"],
        test: "gear1/init/src/guest_dt/tests.rs",
        finder: Finder::Host,
    },
    Bug {
        name: "every start has the same seed",
        change: Change::Swap("number", "number & 0"),
        breaks: &["G1-BOOT-007"],
        test: PREPARE,
        finder: Finder::Host,
    },
    Bug {
        name: "the boot goes on on a CPU that is not the first",
        change: Change::Swap("first().map(|cpu| cpu.mpidr) != Some(affinity", "is_empty("),
        breaks: &["G1-BOOT-008"],
        test: PREPARE,
        finder: Finder::Host,
    },
    Bug {
        name: "Gear2 of another ABI is started",
        change: Change::Swap("16 =", "16 >"),
        breaks: &["G1-BOOT-009"],
        test: REFUSALS,
        finder: Finder::Refusal("another ABI"),
    },
    Bug {
        name: "init begins at any exception level",
        change: Change::Swap("    b.ne gear1_init_needs_el2\n", ""),
        breaks: &["G1-BOOT-010"],
        test: BOOT,
        finder: Finder::NeedsEl2,
    },
    Bug {
        name: "init stays in memory",
        change: Change::Drop,
        breaks: &["G1-BOOT-011"],
        test: BOOT,
        finder: Finder::Leaves,
    },
    Bug {
        name: "a guest's memory is mapped at EL2",
        change: Change::Swap("bytes()", "bytes() + (16 << 20)"),
        breaks: &["G1-MEM-003"],
        test: PREPARE,
        finder: Finder::Host,
    },
    Bug {
        name: "a served VM's memory is another's too",
        change: Change::Swap("bytes", "bytes + PAGE_SIZE"),
        breaks: &["G1-MEM-004"],
        test: "gear1/init/src/device_vm/tests.rs",
        finder: Finder::Host,
    },
    Bug {
        name: "a VM's memory is mapped in Gear2 too",
        change: Change::Become(
            "mappings.extend(shared::mappings(manifest));\n        \
             let is_memory = |one: &&Mapping| one.why == Purpose::Memory;\n        \
             let memory = mappings.iter().find(is_memory).copied();\n        \
             mappings.extend(memory.map(|memory| Mapping { space: Space::Gear2, ..memory }));",
        ),
        breaks: &["G1-MEM-004"],
        test: PREPARE,
        finder: Finder::Host,
    },
    Bug {
        name: "a second mapping of a page is not refused",
        change: Change::Swap(
            "one.output().overlaps(&other.output())",
            "one.output() == other.output() && one.ipa == other.ipa",
        ),
        breaks: &["G1-MEM-024"],
        test: PARTITION,
        finder: Finder::Host,
    },
    Bug {
        name: "a page that gives way lies where a peer's memory may be",
        change: Change::Swap("find(&banks)", "find(&[])"),
        breaks: &["G1-TIM-007"],
        test: PARTITION,
        finder: Finder::Host,
    },
    Bug {
        name: "a mapping hides an emulated device",
        change: Change::Drop,
        breaks: &["G1-MEM-024"],
        test: PARTITION,
        finder: Finder::Host,
    },
    Bug {
        name: "a doorbell of the device model is at another guest",
        change: Change::Swap("vm.id.reg() as u32", "vm.id.reg() as u32 + 1"),
        breaks: &["G1-CHN-001"],
        test: "gear1/init/src/device_vm/tests.rs",
        finder: Finder::Host,
    },
    Bug {
        name: "a guest's doorbell is another device's",
        change: Change::Swap(" + device.offset()", ""),
        breaks: &["G1-CHN-001"],
        test: "gear1/init/src/device_vm/tests.rs",
        finder: Finder::Host,
    },
    Bug {
        name: "who reads shared memory writes it",
        change: Change::Become("write: true,"),
        breaks: &["G1-MEM-021"],
        test: "gear1/init/src/shared/tests.rs",
        finder: Finder::Host,
    },
    Bug {
        name: "GICC's second page is a copy of the first",
        change: Change::Swap("0xf000", "0"),
        breaks: &["G1-BOOT-001"],
        test: FDT,
        finder: Finder::Host,
    },
];
