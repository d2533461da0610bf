//! Bugs in what keeps devices to their VM's memory.

use super::bug::{Bug, Finder};
use crate::change::Change;

const DRIVER: &str = "gear1/core/src/smmu/tests.rs";
const INIT: &str = "gear1/init/src/smmu/tests.rs";
const ATTACK: &str = "tests/suite/src/dma.rs";

pub(super) const BUGS: &[Bug] = &[
    Bug {
        name: "accesses pass while the SMMU is off",
        change: Change::Swap(" + BYPASS::ABORT::SET", ""),
        breaks: &["G1-DMA-001"],
        test: DRIVER,
        finder: Finder::Host,
    },
    Bug {
        name: "a device's accesses pass by stage 2",
        change: Change::Swap("CONFIG::Stage2", "CONFIG.val(0b100)"),
        breaks: &["G1-DMA-001"],
        test: ATTACK,
        finder: Finder::Dma,
    },
    Bug {
        name: "the SMMU stays off",
        change: Change::Drop,
        breaks: &["G1-DMA-001"],
        test: INIT,
        finder: Finder::Host,
    },
    Bug {
        name: "two VMs own one stream",
        change: Change::Swap("overlaps(of)", "overlaps(of) && false"),
        breaks: &["G1-DMA-001"],
        test: INIT,
        finder: Finder::Host,
    },
    Bug {
        name: "a lost page stays in the SMMU's TLB",
        change: Change::Swap("TlbiS12Vmall", "Sync"),
        breaks: &["G1-DMA-002"],
        test: DRIVER,
        finder: Finder::Host,
    },
    Bug {
        name: "an invalidation is not waited for",
        change: Change::Swap("ticket.0", "ticket.0.min(done)"),
        breaks: &["G1-DMA-002"],
        test: DRIVER,
        finder: Finder::Host,
    },
    Bug {
        name: "devices of a VM that has ended go on",
        change: Change::Drop,
        breaks: &["G1-DMA-002"],
        test: ATTACK,
        finder: Finder::Dma,
    },
    Bug {
        name: "PCI functions of a VM that has ended go on",
        change: Change::Swap(" & !BUS_MASTER", ""),
        breaks: &["G1-DMA-002"],
        test: ATTACK,
        finder: Finder::Dma,
    },
    Bug {
        name: "a device keeps a page that its VM has lent",
        change: Change::Drop,
        breaks: &["G1-DMA-002"],
        test: ATTACK,
        finder: Finder::Dma,
    },
    Bug {
        name: "a VM that stops shuts another VM's streams",
        change: Change::Swap("== u64::from(vmid)", "!= 0"),
        breaks: &["G1-DMA-002"],
        test: DRIVER,
        finder: Finder::Host,
    },
    Bug {
        name: "addresses that devices say are translated are not checked",
        change: Change::Drop,
        breaks: &["G1-DMA-001"],
        test: DRIVER,
        finder: Finder::Host,
    },
    Bug {
        name: "a device reaches the CPU interface of a GICv2",
        change: Change::Swap("version == 2", "version == 1"),
        breaks: &["G1-DMA-001"],
        test: INIT,
        finder: Finder::Host,
    },
    Bug {
        name: "what devices use becomes a block",
        change: Change::Swap("memory.keeps_pages()", "memory.keeps_pages() && false"),
        breaks: &["G1-DMA-004"],
        test: "gear1/core/src/stage2/tests.rs",
        finder: Finder::Host,
    },
    Bug {
        name: "an event is charged to no VM",
        change: Change::Swap("range.vm", "range.vm | 16"),
        breaks: &["G1-DMA-003"],
        test: ATTACK,
        finder: Finder::Dma,
    },
    Bug::on_host(
        "gear2/core/src/cpu_loop/tests/dma.rs",
        "a VM whose devices attack goes on",
        Change::Swap("limit == 0", "limit != 1"),
    ),
    Bug::on_host(
        "gear2/core/src/cpu_loop/tests/dma.rs",
        "the SMMU's interrupt never ends",
        Change::Drop,
    ),
];
