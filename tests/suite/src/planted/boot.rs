//! Bugs in init: its inputs, refusals, allocations, and the memory it leaves behind.
//!
//! Machines of one kind boot with most of these bugs: trees with what boards have, manifests that
//! the build has not judged, and two of each thing are what the tests add. Rules on manifests are
//! here as far as they are about memory and devices of a machine, since init judges by them, too.
//! No VM can see what init leaves in memory, so a debugger looks.

use super::bug::{Bug, Finder};
use crate::change::Change;

const INDEX: &str = "manifests/src/blob/index/tests.rs";
const FDT: &str = "gear1/init/src/fdt/tests.rs";
const PREPARE: &str = "gear1/init/src/prepare/tests.rs";
const PARTITION: &str = "gear1/init/src/partition/tests.rs";
const DEVICES: &str = "gear1/init/src/devices/tests.rs";
const REFUSALS: &str = "tests/suite/src/refusals.rs";
const OVERLAPS: &str = "manifests/src/rules/tests/overlaps.rs";
const BOOT: &str = "tests/suite/src/boot.rs";

pub(super) const BUGS: &[Bug] = &[
    // QEMU has no caches, so that every machine of it runs. The fake memory of init's tests knows
    // which pages were written and not cleaned.
    Bug::on_host(
        "gear1/init/src/prepare/tests/loading.rs",
        "the runtime's code is in caches alone",
        Change::Drop,
    ),
    // A tree has an index, which answers as the tokens do. Trees of boards have one `phandle` a
    // node, and the first of several counts where there is no index.
    Bug::on_host(
        INDEX,
        "the last phandle of a node in the index counts",
        Change::Swap("!core::mem::replace(seen_phandle, true)", "true"),
    ),
    // Nodes whose second string a boot looks for are passed over. A name's bit is that of many
    // names, so that some of them are found all the same.
    Bug::on_host(
        INDEX,
        "the index has the first compatible string of a node alone",
        Change::Swap(
            "fold(0, |bits, text| bits | name_bit(text))",
            "next().map_or(0, name_bit)",
        ),
    ),
    // The properties of a node end where its first node below does.
    Bug::on_host(
        INDEX,
        "a node in the index has the properties of nodes below",
        Change::Drop,
    ),
    // The next record is that of a node below the sibling, or of the sibling's sibling.
    Bug::on_host(
        INDEX,
        "the index passes over a node's sibling",
        Change::Swap("self.count", "self.count + 1"),
    ),
    // Status values other than "okay" and "ok" pass, so a disabled CPU or UART would be used. A
    // node without the property still counts, as the rule says; the fixture has a node with
    // "disabled".
    Bug {
        name: "a disabled node counts",
        change: Change::Swap(
            "is_none_or(is_okay)",
            "is_none_or(|status| is_okay(status) || true)",
        ),
        breaks: &["G1-BOOT-001"],
        test: FDT,
        finder: Finder::Host,
    },
    // The reservation block in front of a device tree is older than /reserved-memory, which is
    // still read. QEMU's tree has an empty block, so only a fixture with one entry shows the loss.
    Bug {
        name: "memory that firmware reserves is not seen",
        change: Change::Drop,
        breaks: &["G1-BOOT-001"],
        test: FDT,
        finder: Finder::Host,
    },
    // Faults are collected, and nobody looks at the list. The build refuses such manifests, so the
    // part exchanges the manifest inside a finished image: M-DEV-007 is a rule that needs the
    // machine's own tree.
    Bug {
        name: "a manifest that breaks a rule is taken",
        change: Change::Drop,
        breaks: &["G1-BOOT-002"],
        test: REFUSALS,
        finder: Finder::Refusal("a device that the machine lacks"),
    },
    // Equality in place of an overlap, in four rules. Registers at the first byte of memory are
    // refused as before; the test moves each range in steps through and past the other one, and
    // expects the verdict that the bounds alone give.
    Bug {
        name: "virtio registers lie inside memory",
        change: Change::Swap("overlaps(&page(vm.virtio_ipa))", "start == vm.virtio_ipa"),
        breaks: &["G1-BOOT-002"],
        test: OVERLAPS,
        finder: Finder::Host,
    },
    // The second of these rules; the pair of ranges has the clock's page beside memory, the
    // interrupt controller and the console.
    Bug {
        name: "the real-time clock lies inside memory",
        change: Change::Swap("overlaps(&registers)", "start == registers.start"),
        breaks: &["G1-BOOT-002"],
        test: OVERLAPS,
        finder: Finder::Host,
    },
    // The third: a watchdog has two pages, so the first page beside a range and the second in it is
    // a case of its own.
    Bug {
        name: "the watchdog lies inside memory",
        change: Change::Swap("overlaps(&registers)", "start == registers.start"),
        breaks: &["G1-BOOT-002"],
        test: OVERLAPS,
        finder: Finder::Host,
    },
    // The comparison loses one of the ways to overlap. Equal ranges, and those that begin inside
    // the other, are still refused; the test puts either VM first in the file.
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
    // The 2 MiB that describe shared memory to Linux lie ahead of it and belong to it. Two areas
    // that keep apart by less overlap only there.
    Bug {
        name: "shared memory has nothing ahead of it",
        change: Change::Swap("with_lead", "region"),
        breaks: &["G1-BOOT-002"],
        test: OVERLAPS,
        finder: Finder::Host,
    },
    // One reader beside one writer passes. Two writers, the case that comes to mind first, are
    // refused as before; the test has each combination.
    Bug {
        name: "two guests write one disk",
        change: Change::Swap("&&", "||"),
        breaks: &["G1-BOOT-002"],
        test: "manifests/src/rules/tests/backends.rs",
        finder: Finder::Host,
    },
    // The bug finds doubles within one VM alone. Addresses on one bridge must differ over all VMs:
    // the test's two cards are of two VMs.
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
    // The digests are in the manifest and nobody compares them. Every image of the build tool has
    // the right files; the test makes one that has not.
    Bug {
        name: "a file with another digest is taken",
        change: Change::Drop,
        breaks: &["G1-BOOT-012"],
        test: PREPARE,
        finder: Finder::Host,
    },
    // The range is found free and stays free. Layouts still succeed: the test asks for ranges that
    // overlap the one it has.
    Bug {
        name: "memory is given out twice",
        change: Change::Swap("hole.start", "hole.end"),
        breaks: &["G1-BOOT-003"],
        test: "gear1/init/src/layout/tests.rs",
        finder: Finder::Host,
    },
    // The part behind a hole begins at the hole's start, so the hole is free again. Holes at the
    // end of memory show nothing; the test has one in the middle.
    Bug {
        name: "memory is taken on both sides of a hole",
        change: Change::Swap("end", "start"),
        breaks: &["G1-BOOT-003"],
        test: "gear1/init/src/region/tests.rs",
        finder: Finder::Host,
    },
    // The file's length takes the place of `image_size`, and the two differ by the kernel's bss
    // (Linux, booting.rst). The test's kernel has a header that says more than its file.
    Bug {
        name: "an initrd lies over the kernel's bss",
        change: Change::Become("(Some(offset), Some(_)) => (offset, length(file)),"),
        breaks: &["G1-BOOT-004"],
        test: "gear1/init/src/linux/tests.rs",
        finder: Finder::Host,
    },
    // A device at the GIC's addresses passes. No sane manifest names one: the refusals of the test
    // do.
    Bug {
        name: "a VM gets pages of the interrupt controller",
        change: Change::Swap("gic) ", "gic) && page.bytes() == 0 "),
        breaks: &["G1-BOOT-005"],
        test: DEVICES,
        finder: Finder::Host,
    },
    // Pages are compared, interrupts no longer. Boards share a line between two devices with pages
    // of their own, as the test's two devices do.
    Bug {
        name: "two VMs own one interrupt",
        change: Change::Swap("of.intid", "of.intid && i.intid == 0"),
        breaks: &["G1-BOOT-005"],
        test: "gear1/init/src/passthrough/tests.rs",
        finder: Finder::Host,
    },
    // A device of a kind that the manifest alone knows goes on when its VM has stopped. Its driver
    // never shows that; the test reads what init hands over.
    Bug {
        name: "a device is stopped by what GearV knows alone",
        change: Change::Swap("own.or_else(known)", "own.filter(|_| false).or_else(known)"),
        breaks: &["G1-DMA-002"],
        test: "gear1/init/src/passthrough/tests.rs",
        finder: Finder::Host,
    },
    // Any path of more than 12 characters counts as owned. The device VM would probe a device that
    // it does not have; the test looks for each foreign node that is there and not disabled.
    Bug {
        name: "a device's tree shows what is not its own",
        change: Change::Swap("path)", "path) || path.len() > 12"),
        breaks: &["G1-BOOT-006"],
        test: "gear1/init/src/device_tree/tests.rs",
        finder: Finder::Host,
    },
    // A device that firmware has set up asks firmware's power domain for more, which never answers. The
    // device VM would wait without a word; the test looks for each property that names a supply.
    Bug {
        name: "a device asks for what firmware has set up",
        change: Change::Swap(
            "!is_dropped(property)",
            "!is_dropped(property) || is_supply(property)",
        ),
        breaks: &["G1-BOOT-014"],
        test: "gear1/init/src/device_tree/tests.rs",
        finder: Finder::Host,
    },
    // A clock without a rate is left out, so that the driver takes another one in its place. The test
    // gives a device fewer rates than it has clocks.
    Bug {
        name: "a device's clock has no rate",
        change: Change::Swap("clocks != rates", "clocks < rates"),
        breaks: &["G1-BOOT-014"],
        test: "gear1/init/src/device_tree/tests.rs",
        finder: Finder::Host,
    },
    // The template's `reg` stays, which has the right size and a wrong address. The test reads the
    // tree back, as the guest would.
    Bug {
        name: "a guest is not told where its memory is",
        change: Change::Become("Ok(())"),
        breaks: &["G1-BOOT-007"],
        test: "gear1/init/src/guest_dt/tests.rs",
        finder: Finder::Host,
    },
    // Linux treats a start of 0 as an address. Both properties must be gone when the disk has no
    // bytes, also where its address is not 0; the test has all three cases.
    Bug {
        name: "a guest without an initial RAM disk is told of one at 0",
        change: Change::Swap("0", "1"),
        breaks: &["G1-BOOT-007"],
        test: "gear1/init/src/guest_dt/tests.rs",
        finder: Finder::Host,
    },
    // The template has a node for each version of the GIC. The guest's driver takes the first that
    // it knows; the test expects the node of the machine's version alone.
    Bug {
        name: "a guest finds the interrupt controller that the machine has not",
        change: Change::Become("_ = other;"),
        breaks: &["G1-BOOT-007"],
        test: "gear1/init/src/guest_dt/tests.rs",
        finder: Finder::Host,
    },
    // Each bank alone is memory, and every VM that fits into one still has a place. Two banks that
    // touch show the loss.
    Bug {
        name: "memory ends where a bank does",
        change: Change::Become("memory: seen.memory,"),
        breaks: &["G1-BOOT-001"],
        test: FDT,
        finder: Finder::Host,
    },
    // The tree of a draft names no initial RAM disk, and is some bytes shorter than the finished
    // one. Only a tree that ends close to the end of its last page shows the loss.
    Bug {
        name: "the place of a device tree is too small",
        change: Change::Become("let expected = Region::new(0, 0);"),
        breaks: &["G1-BOOT-003"],
        test: "gear1/init/src/vm/tests.rs",
        finder: Finder::Host,
    },
    // The seed depends on machine and VM, and looks random. Only two starts of one VM, compared
    // with each other, show that each loads the seed of the first.
    Bug {
        name: "every start has the same seed",
        change: Change::Swap("self.number", "0"),
        breaks: &["G1-BOOT-007"],
        test: "gear1/core/src/seed/tests.rs",
        finder: Finder::Host,
    },
    // The real-time VM starts as before, only later. The test looks at the other VM's memory, which
    // init leaves as it was.
    Bug {
        name: "a real-time VM waits until others are loaded",
        change: Change::Swap("(is_real_time(vm) || !has_real_time)", "true"),
        breaks: &["G1-RT-006"],
        test: "gear1/init/src/prepare/tests/loading.rs",
        finder: Finder::Host,
    },
    // A served VM is wiped when it is loaded, and works. What lay in its memory before is the device
    // VM's to read until then.
    Bug {
        name: "the device VM finds what ran before the boot",
        change: Change::Swap("starts || is_seen(vm)", "starts"),
        breaks: &["G1-RUN-009"],
        test: "gear1/init/src/device_vm/tests.rs",
        finder: Finder::Host,
    },
    // The list of CPUs is never empty, so the check passes always. The runtime numbers the boot CPU
    // 0; the test boots with the affinity of another one.
    Bug {
        name: "the boot goes on on a CPU that is not the first",
        change: Change::Swap("first().map(|cpu| cpu.mpidr) != Some(affinity", "is_empty("),
        breaks: &["G1-BOOT-008"],
        test: PREPARE,
        finder: Finder::Host,
    },
    // An older Gear2 is refused as before, and a newer one is started. The part raises the major
    // version in Gear2's header by one.
    Bug {
        name: "Gear2 of another ABI is started",
        change: Change::Swap("16 =", "16 >"),
        breaks: &["G1-BOOT-009"],
        test: REFUSALS,
        finder: Finder::Refusal("another ABI"),
    },
    // Without the branch, EL1 faults at its first access to a register of EL2, without a word. A
    // machine without EL2 shows whether the stop is at the label that says so.
    Bug {
        name: "init begins at any exception level",
        change: Change::Swap("    b.ne gear1_init_needs_el2\n", ""),
        breaks: &["G1-BOOT-010"],
        test: BOOT,
        finder: Finder::NeedsEl2,
    },
    // Init's secrets and code remain where guests cannot read them. No VM can see the difference,
    // so a debugger looks at memory when Gear2 begins.
    Bug {
        name: "init stays in memory",
        change: Change::Drop,
        breaks: &["G1-BOOT-011"],
        test: BOOT,
        finder: Finder::Leaves,
    },
    // The pool's mapping is 16 MiB too long. Nothing uses the addresses behind the pool: the test
    // lists all that EL2 maps, and compares it with the VMs' memory.
    Bug {
        name: "a guest's memory is mapped at EL2",
        change: Change::Swap("bytes()", "bytes() + (16 << 20)"),
        breaks: &["G1-MEM-003"],
        test: PREPARE,
        finder: Finder::Host,
    },
    // The device VM sees one page behind the memory that it serves. The page is another VM's or
    // free; the test counts the owners of each page.
    Bug {
        name: "a served VM's memory is another's too",
        change: Change::Swap("bytes", "bytes + PAGE_SIZE"),
        breaks: &["G1-MEM-004"],
        test: "gear1/init/src/device_vm/tests.rs",
        finder: Finder::Host,
    },
    // Gear2 would read guests' memory, by a mapping that looks like any other. The list of mappings
    // is refused as a whole, because the page has two owners that nothing declares.
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
    // Equal mappings are found, overlapping ones no longer. The test's second mapping covers the
    // last page of the first one only.
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
    // The page with stolen time moves out of the way of the VM's memory, into addresses of RAM. A
    // peer's memory appears at its physical address, so a later share would collide: the test gives
    // the banks of several boards.
    Bug {
        name: "a page that gives way lies where a peer's memory may be",
        change: Change::Swap("find(&banks)", "find(&[])"),
        breaks: &["G1-TIM-007"],
        test: PARTITION,
        finder: Finder::Host,
    },
    // A mapping over a device's address turns its traps off: the guest writes to memory, and
    // nothing answers. The test maps a page over the console.
    Bug {
        name: "a mapping hides an emulated device",
        change: Change::Drop,
        breaks: &["G1-MEM-024"],
        test: PARTITION,
        finder: Finder::Host,
    },
    // Interrupts of the next VM's devices are raised instead. With one served guest nothing seems
    // wrong; the test compares target and VM of each channel.
    Bug {
        name: "a doorbell of the device model is at another guest",
        change: Change::Swap("vm.id.reg() as u32", "vm.id.reg() as u32 + 1"),
        breaks: &["G1-CHN-001"],
        test: "gear1/init/src/device_vm/tests.rs",
        finder: Finder::Host,
    },
    // All devices of a guest ring for its first. A guest with one device works; the test's guest
    // has two.
    Bug {
        name: "a guest's doorbell is another device's",
        change: Change::Swap(" + device.offset()", ""),
        breaks: &["G1-CHN-001"],
        test: "gear1/init/src/device_vm/tests.rs",
        finder: Finder::Host,
    },
    // Readers get the writers' rights. Writers and readers see the right data; the test compares
    // the permission bits of the leaves of each VM.
    Bug {
        name: "who reads shared memory writes it",
        change: Change::Become("write: true,"),
        breaks: &["G1-MEM-021"],
        test: "gear1/init/src/shared/tests.rs",
        finder: Finder::Host,
    },
    // Boards with pages of 64 KiB repeat GICC's first page 16 times in front of the second one, so
    // the second page lies at 0xf000 beyond. QEMU's board has no such copies: a fixture has.
    Bug {
        name: "GICC's second page is a copy of the first",
        change: Change::Swap("0xf000", "0"),
        breaks: &["G1-BOOT-001"],
        test: FDT,
        finder: Finder::Host,
    },
];
