//! Bugs in what keeps devices to their VM's memory.
//!
//! Devices of QEMU that their drivers use as meant stay inside their VM's memory with any of these
//! bugs. Hence a device that attacks (`edu`), and a model of the SMMU, written from its manual, for
//! what QEMU does at once or has not: queues that lag, addresses that devices have translated.

use super::bug::{Bug, Finder};
use crate::change::Change;

const DRIVER: &str = "gear1/core/src/smmu/tests.rs";
const INIT: &str = "gear1/init/src/smmu/tests.rs";
const DRIVER_V2: &str = "gear1/core/src/smmu/v2/tests.rs";
const INIT_V2: &str = "gear1/init/src/smmu/v2/tests.rs";
const DRIVER_IPMMU: &str = "gear1/core/src/smmu/ipmmu/tests.rs";
const INIT_IPMMU: &str = "gear1/init/src/smmu/ipmmu/tests.rs";
const PCI: &str = "gear1/core/src/pci/tests.rs";
const PLACED: &str = "gear1/init/src/devices/placed/tests.rs";
const ATTACK: &str = "tests/suite/src/dma.rs";

pub(super) const BUGS: &[Bug] = &[
    // QEMU's `edu` has no extended configuration space: the test has a function whose first
    // extended capability is that of address translation services.
    Bug {
        name: "a VM has its function's extended configuration space",
        change: Change::Swap(
            "self.offset >= CONVENTIONAL_SIZE",
            "self.offset >= FUNCTION_SIZE",
        ),
        breaks: &["G1-DMA-007"],
        test: PCI,
        finder: Finder::Host,
    },
    // Registers that a VM moves over another VM's take that VM's accesses.
    Bug {
        name: "a VM moves its function's registers",
        change: Change::Swap("sized.note(bar, value)", "space.write(access, value)"),
        breaks: &["G1-DMA-007"],
        test: PCI,
        finder: Finder::Host,
    },
    // A reset in between leaves the BARs at 0. Two vCPUs have to meet in a few stores, so the test
    // resets the function before each of them.
    Bug {
        name: "a function answers where another VM's may be",
        change: Change::Swap("!is_placed(function, space)", "false"),
        breaks: &["G1-DMA-007"],
        test: PCI,
        finder: Finder::Host,
    },
    // Each VM would turn the other's function off, or set it up for itself.
    Bug {
        name: "a VM has the configuration space of other VMs' functions",
        change: Change::Swap(" && u64::from(one.vm) == loaded.vm.reg()", ""),
        breaks: &["G1-DMA-007"],
        test: "tests/suite/src/pci_functions.rs",
        finder: Finder::PciFunctions,
    },
    Bug {
        name: "a guest has a PCI function that nothing keeps back",
        change: Change::Swap("&& !is_behind", "&& false"),
        breaks: &["G1-DMA-005"],
        test: PLACED,
        finder: Finder::Host,
    },
    // Firmware's own function would go on to answer, or to write, where a VM's is now.
    Bug {
        name: "what firmware has left on stays on beside a VM's function",
        change: Change::Drop,
        breaks: &["G1-DMA-007"],
        test: PLACED,
        finder: Finder::Host,
    },
    Bug {
        name: "two functions answer at one address",
        change: Change::Drop,
        breaks: &["G1-DMA-007"],
        test: PLACED,
        finder: Finder::Host,
    },
    Bug {
        name: "two VMs own one PCI function",
        change: Change::Swap("other.device() == function.device()", "false"),
        breaks: &["G1-DMA-007"],
        test: PLACED,
        finder: Finder::Host,
    },
    // A function with the number of another bridge's bus has a stream of that bridge's owner.
    // QEMU's board has one bridge, with all buses: the test looks at a smaller bridge's VM.
    Bug {
        name: "a VM has configuration space beyond its buses",
        change: Change::Swap("space.end.min(", "space.end.max("),
        breaks: &["G1-DMA-001"],
        test: INIT,
        finder: Finder::Host,
    },
    // The VM never stops, as each look begins the device's reset anew. QEMU's devices are reset at
    // once, so the test has a model of one that is not.
    Bug {
        name: "a bus master is told to stop at each look",
        change: Change::Swap("if tells {", "if tells || true {"),
        breaks: &["G1-DMA-002"],
        test: "gear1/core/src/lifecycle/tests.rs",
        finder: Finder::Host,
    },
    // GBPA.ABORT is what an SMMU without translation does with accesses. QEMU's devices are idle
    // that early, so the test reads the register on a model of the SMMU.
    Bug {
        name: "accesses pass while the SMMU is off",
        change: Change::Swap(" + BYPASS::ABORT::SET", ""),
        breaks: &["G1-DMA-001"],
        test: DRIVER,
        finder: Finder::Host,
    },
    // CONFIG 0b100 is bypass: the device of a VM reaches all memory. A device that its driver uses
    // rightly never shows it; QEMU's `edu` attacks addresses all over the board.
    Bug {
        name: "a device's accesses pass by stage 2",
        change: Change::Swap("CONFIG::Stage2", "CONFIG.val(0b100)"),
        breaks: &["G1-DMA-001"],
        test: ATTACK,
        finder: Finder::Dma,
    },
    // Everything aborts, which is safe, and no device of a VM works. The test reads what init has
    // written to the registers.
    Bug {
        name: "the SMMU stays off",
        change: Change::Drop,
        breaks: &["G1-DMA-001"],
        test: INIT,
        finder: Finder::Host,
    },
    // Two devices behind one StreamID share a translation. Pages and interrupts of the two differ,
    // so the check of streams alone refuses them.
    Bug {
        name: "two VMs own one stream",
        change: Change::Swap("overlaps(of)", "overlaps(of) && false"),
        breaks: &["G1-DMA-001"],
        test: INIT,
        finder: Finder::Host,
    },
    // The guest would have a disk that writes to all memory. Only a device that uses that shows it,
    // so the test reads the refusal.
    Bug {
        name: "a guest has a bus master that nothing keeps back",
        change: Change::Drop,
        breaks: &["G1-DMA-005"],
        test: "gear1/init/src/passthrough/tests.rs",
        finder: Finder::Host,
    },
    // Both sources would end the interrupt of the other. The two have to fire at once for that, so
    // the test reads the refusal.
    Bug {
        name: "a guest's device has the interrupt of an emulated one",
        change: Change::Swap("owned.may_have_interrupt(intid)", "false"),
        breaks: &["G1-BOOT-005"],
        test: "gear1/init/src/passthrough/tests.rs",
        finder: Finder::Host,
    },
    // CMD_SYNC in place of the invalidation still completes. The model of the SMMU has a queue and
    // no TLB: the test reads the command and its VMID.
    Bug {
        name: "a lost page stays in the SMMU's TLB",
        change: Change::Swap("TlbiS12Vmall", "Sync"),
        breaks: &["G1-DMA-002"],
        test: DRIVER,
        finder: Finder::Host,
    },
    // Every ticket is done at once. QEMU performs commands as they are written; the model performs
    // them when the test says so.
    Bug {
        name: "an invalidation is not waited for",
        change: Change::Swap("ticket.0", "ticket.0.min(done)"),
        breaks: &["G1-DMA-002"],
        test: DRIVER,
        finder: Finder::Host,
    },
    // The stream table keeps its entries. The part reads them in the machine's memory when the VM's
    // second life has ended.
    Bug {
        name: "devices of a VM that has ended go on",
        change: Change::Drop,
        breaks: &["G1-DMA-002"],
        test: ATTACK,
        finder: Finder::Dma,
    },
    // The command register is written back with its Bus Master bit. The VM's second life looks at
    // the device before its driver would.
    Bug {
        name: "PCI functions of a VM that has ended go on",
        change: Change::Swap(" & !BUS_MASTER", ""),
        breaks: &["G1-DMA-002"],
        test: ATTACK,
        finder: Finder::Dma,
    },
    // Both CPUs' TLBs and tables are right, and the SMMU is not told. The guest lends a page and
    // has its device write there: one fault is expected.
    Bug {
        name: "a device keeps a page that its VM has lent",
        change: Change::Drop,
        breaks: &["G1-DMA-002"],
        test: ATTACK,
        finder: Finder::Dma,
    },
    // Any VMID but 0 matches. With one VM that has devices nothing is wrong; the test has two.
    Bug {
        name: "a VM that stops shuts another VM's streams",
        change: Change::Swap("== u64::from(vmid)", "!= 0"),
        breaks: &["G1-DMA-002"],
        test: DRIVER,
        finder: Finder::Host,
    },
    // ATSCHK makes an access that claims to be translated abort. No device of QEMU's claims that,
    // so the test reads CR0 of models with ATS and without.
    Bug {
        name: "addresses that devices say are translated are not checked",
        change: Change::Drop,
        breaks: &["G1-DMA-001"],
        test: DRIVER,
        finder: Finder::Host,
    },
    // The runtime would take an SMMUv3 for an SMMUv2. The refusal needs three facts at once: GICv2,
    // SMMUv3, and an owner of streams.
    Bug {
        name: "an SMMUv3 is given to the runtime of a GICv2",
        change: Change::Swap("version == 2", "version == 1"),
        breaks: &["G1-DMA-001"],
        test: INIT,
        finder: Finder::Host,
    },
    // A GICv2's CPU interface is in the stage 2 of a VM's CPUs, and would be in the devices'. A
    // driver of a device never names that address: the test reads both trees.
    Bug {
        name: "a device reaches the CPU interface of a GICv2",
        change: Change::Drop,
        breaks: &["G1-DMA-006"],
        test: INIT_V2,
        finder: Finder::Host,
    },
    // The devices' tables that were copied stay as they are when those of the CPUs change.
    Bug {
        name: "a device behind an SMMUv2 keeps what its VM has shared",
        change: Change::Swap(
            "manifest.peers(vm).next().is_some()",
            "false && manifest.peers(vm).next().is_some()",
        ),
        breaks: &["G1-DMA-006"],
        test: INIT_V2,
        finder: Finder::Host,
    },
    // The CPUs' walks look into caches, an SMMU's may not. The fake memory knows what is dirty.
    Bug {
        name: "an SMMUv2 walks what is still in a cache",
        change: Change::Drop,
        breaks: &["G1-DMA-006"],
        test: INIT_V2,
        finder: Finder::Host,
    },
    // Streams of devices that no VM owns pass, as after a reset. No machine of QEMU's has an
    // SMMUv2, so the model follows a stream through the registers, here and below.
    Bug {
        name: "a stream that matches nothing passes",
        change: Change::Swap("CONTROL::USFCFG::SET + ", ""),
        breaks: &["G1-DMA-001"],
        test: DRIVER_V2,
        finder: Finder::Host,
    },
    // The walk begins at another level, or ends with fewer bits.
    Bug {
        name: "a device walks tables of another shape than the CPUs'",
        change: Change::Swap("stage2.vtcr & SHAPE", "stage2.vtcr & (SHAPE >> 3)"),
        breaks: &["G1-DMA-001"],
        test: DRIVER_V2,
        finder: Finder::Host,
    },
    // The errata need a page that is lost right behind one that the device uses.
    Bug {
        name: "an MMU-500 fetches translations ahead",
        change: Change::Swap(" & !BANK_AUX::CPRE::SET.value", ""),
        breaks: &["G1-DMA-002"],
        test: DRIVER_V2,
        finder: Finder::Host,
    },
    // With one VM that has devices nothing is wrong; the test has two.
    Bug {
        name: "an SMMUv2 shuts every VM's streams",
        change: Change::Swap("own == u32::from(vmid)", "own != 0"),
        breaks: &["G1-DMA-002"],
        test: DRIVER_V2,
        finder: Finder::Host,
    },
    // The synchronization is done all the same. The test reads what was written.
    Bug {
        name: "an SMMUv2 keeps what a VM has lost",
        change: Change::Drop,
        breaks: &["G1-DMA-002"],
        test: DRIVER_V2,
        finder: Finder::Host,
    },
    // The VM's memory gets another use while the SMMU still translates to it.
    Bug {
        name: "an SMMUv2 is not waited for",
        change: Change::Swap("!SYNC", "true || !SYNC"),
        breaks: &["G1-DMA-002"],
        test: DRIVER_V2,
        finder: Finder::Host,
    },
    // Gear2 takes events until there is none.
    Bug {
        name: "a fault of an SMMUv2 is told for ever",
        change: Change::Drop,
        breaks: &["G1-DMA-003"],
        test: DRIVER_V2,
        finder: Finder::Host,
    },
    // An H3 of ES2.0 would walk the CPUs' tables as something else. No machine of QEMU's has an IPMMU,
    // so a model follows a micro-TLB through the registers, here and below.
    Bug {
        name: "an IPMMU without stage 2 is taken for one with it",
        change: Change::Swap("is_late", "is_late || true"),
        breaks: &["G1-DMA-008"],
        test: DRIVER_IPMMU,
        finder: Finder::Host,
    },
    // Rights and attributes of a page would be read from bits that mean something else.
    Bug {
        name: "an IPMMU takes stage 2 for stage 1",
        change: Change::Drop,
        breaks: &["G1-DMA-008"],
        test: DRIVER_IPMMU,
        finder: Finder::Host,
    },
    // A micro-TLB passes after a reset: devices that no VM owns reach all memory.
    Bug {
        name: "a micro-TLB that no VM owns passes",
        change: Change::Drop,
        breaks: &["G1-DMA-001"],
        test: DRIVER_IPMMU,
        finder: Finder::Host,
    },
    // The walk begins at another level, or ends with fewer bits.
    Bug {
        name: "an IPMMU walks tables of another shape than the CPUs'",
        change: Change::Swap("stage2.vtcr & SHAPE", "stage2.vtcr & (SHAPE >> 3)"),
        breaks: &["G1-DMA-008"],
        test: DRIVER_IPMMU,
        finder: Finder::Host,
    },
    // With one VM that has devices nothing is wrong; the model has two.
    Bug {
        name: "an IPMMU shuts every VM's micro-TLBs",
        change: Change::Swap("range.vm != vm || ", ""),
        breaks: &["G1-DMA-002"],
        test: DRIVER_IPMMU,
        finder: Finder::Host,
    },
    // The VM's memory gets another use while the units still translate to it.
    Bug {
        name: "an IPMMU is not waited for",
        change: Change::Swap("if (first..end)", "if false && (first..end)"),
        breaks: &["G1-DMA-002"],
        test: DRIVER_IPMMU,
        finder: Finder::Host,
    },
    // The main unit has forgotten, and the caches in front of the devices have not.
    Bug {
        name: "cache units keep what a VM has lost",
        change: Change::Drop,
        breaks: &["G1-DMA-002"],
        test: DRIVER_IPMMU,
        finder: Finder::Host,
    },
    // No source reads that register of a cache unit: where it reads as 0 each flush seems done.
    Bug {
        name: "a cache unit whose flush cannot be seen is driven",
        change: Change::Swap("!CONTROL", "false && !CONTROL"),
        breaks: &["G1-DMA-002"],
        test: DRIVER_IPMMU,
        finder: Finder::Host,
    },
    // A network card that firmware left on may write a packet over the table before it is shut.
    Bug {
        name: "what a device wrote into the empty table is walked",
        change: Change::Drop,
        breaks: &["G1-DMA-001"],
        test: INIT_IPMMU,
        finder: Finder::Host,
    },
    // Gear2 takes a bounded number of events at a time.
    Bug {
        name: "a device without an owner hides the faults of VMs",
        change: Change::Swap(
            "contexts.chain([NOBODYS])",
            "[NOBODYS].into_iter().chain(contexts)",
        ),
        breaks: &["G1-DMA-003"],
        test: DRIVER_IPMMU,
        finder: Finder::Host,
    },
    // Gear2 takes events until there is none.
    Bug {
        name: "a fault of an IPMMU is told for ever",
        change: Change::Drop,
        breaks: &["G1-DMA-003"],
        test: DRIVER_IPMMU,
        finder: Finder::Host,
    },
    // Registers of a domain without power do not answer. The fake unit does: the test reads what was
    // written.
    Bug {
        name: "a unit that may have no power is touched",
        change: Change::Swap(
            "partition(is_driven)",
            "partition(|one| true || is_driven(one))",
        ),
        breaks: &["G1-DMA-008"],
        test: INIT_IPMMU,
        finder: Finder::Host,
    },
    // Number 64 of a unit is number 0 of the next one, which another VM may own.
    Bug {
        name: "a micro-TLB that there is not is another unit's",
        change: Change::Swap("MICRO_TLBS.into()", "1 << u32::BITS"),
        breaks: &["G1-DMA-008"],
        test: INIT_IPMMU,
        finder: Finder::Host,
    },
    // Whoever gets that memory writes what all devices without an owner walk.
    Bug {
        name: "the IPMMU's empty table is memory of a VM",
        change: Change::Drop,
        breaks: &["G1-DMA-001"],
        test: INIT_IPMMU,
        finder: Finder::Host,
    },
    // Pages merge into a block, and to split the block again takes it away for a moment. CPUs try
    // again, devices abort. Mappings are right all the time, so the test looks at their size.
    Bug {
        name: "what devices use becomes a block",
        change: Change::Swap("memory.keeps_pages()", "memory.keeps_pages() && false"),
        breaks: &["G1-DMA-004"],
        test: "gear1/core/src/stage2/tests.rs",
        finder: Finder::Host,
    },
    // The event comes with a number that is no VM's. Gear2 tells of it without an owner; the part
    // expects each attempt as an event of the VM's.
    Bug {
        name: "an event is charged to no VM",
        change: Change::Swap("range.vm", "range.vm | 16"),
        breaks: &["G1-DMA-003"],
        test: ATTACK,
        finder: Finder::Dma,
    },
    // The limit of the manifest counts only if it is 1. A device that faults now and then is
    // harmless: the test's device reaches the limit again and again.
    Bug::on_host(
        "gear2/core/src/cpu_loop/tests/dma.rs",
        "a VM whose devices attack goes on",
        Change::Swap("limit == 0", "limit != 1"),
    ),
    // The interrupt of events is never deactivated, so the first batch of events is the last one
    // told.
    Bug::on_host(
        "gear2/core/src/cpu_loop/tests/dma.rs",
        "the SMMU's interrupt never ends",
        Change::Drop,
    ),
    // Without the look at the page's other devices. Stock drivers start what their tree names; the
    // test reads what init hands over.
    Bug {
        name: "a bus master beside a VM's device goes on",
        change: Change::Swap(
            "!self.vm.devices.owns(&path)",
            "self.vm.devices.owns(&path)",
        ),
        breaks: &["G1-DMA-002"],
        test: "gear1/init/src/passthrough/tests.rs",
        finder: Finder::Host,
    },
    // The guest's device would have to hold an access for a second, which no device of QEMU's does.
    Bug {
        name: "a guest's device can hold Gear1 up",
        change: Change::Swap("is_judged)", "!is_judged)"),
        breaks: &["G1-DMA-005"],
        test: INIT,
        finder: Finder::Host,
    },
];
