//! Bugs in the CPU that a guest sees, and in the handling of its faults.

use super::bug::{Bug, Finder};
use crate::change::Change;

const CPU: &str = "tests/guests/src/bin/cpu.rs";
const ICACHE: &str = "tests/guests/src/bin/icache.rs";
const TRANSITIONS: &str = "gear1/core/src/vcpu/tests/transitions.rs";
const RULES: &str = "tests/suite/src/architecture.rs";
const MONITORS: &str = "tests/guests/src/bin/monitors.rs";
const FAULTS: &str = "tests/guests/src/bin/faults.rs";

pub(super) const BUGS: &[Bug] = &[
    Bug {
        name: "guests are shown SVE",
        change: Change::Swap("20, ", "20, 32, "),
        breaks: &["G1-CPU-001"],
        test: "gear1/core/src/idregs/tests.rs",
        finder: Finder::Host,
    },
    Bug {
        name: "ID registers are not trapped",
        change: Change::Swap("TID3\n        | TSC", "TSC"),
        breaks: &["G1-CPU-002"],
        test: CPU,
        finder: Finder::Guest("cpu", "max"),
    },
    Bug {
        name: "pointer authentication is not trapped",
        change: Change::Become("| 0b11 << 40\n| TERR\n| TID5;"),
        breaks: &["G1-CPU-002"],
        test: CPU,
        finder: Finder::Guest("cpu", "max"),
    },
    Bug {
        name: "ACTLR_EL1 is undefined",
        change: Change::Swap(
            "(op0 == 2 && op1 != 1) || id == ACTLR_EL1",
            "op0 == 2 && op1 != 1",
        ),
        breaks: &["G1-CPU-003"],
        test: CPU,
        finder: Finder::Guest("cpu", "max"),
    },
    Bug {
        name: "a vCPU that waits in WFI is shown in power-down",
        change: Change::Swap(" && vcpu.requests().intersects(Requests::WARM)", ""),
        breaks: &["G1-PSCI-009"],
        test: "gear1/core/src/vcpu/tests.rs",
        finder: Finder::Host,
    },
    Bug {
        name: "a walk by set/way cleans only once",
        change: Change::Swap(" && !again", ""),
        breaks: &["G1-CPU-005"],
        test: "gear1/core/src/set_way/tests.rs",
        finder: Finder::Host,
    },
    Bug {
        name: "a guest is shown the sets of the machine's caches",
        change: Change::Swap(" & LINE_SIZE", ""),
        breaks: &["G1-CPU-010"],
        test: CPU,
        finder: Finder::Guest("cpu", "max"),
    },
    Bug {
        name: "a guest's IC IALLUIS reaches real-time CPUs",
        change: Change::Swap("real_time == RealTime::No || ", ""),
        breaks: &["G1-RT-010"],
        test: ICACHE,
        finder: Finder::Guest("icache", "max"),
    },
    Bug {
        name: "nobody is asked to invalidate instruction caches",
        change: Change::Drop,
        breaks: &["G1-CPU-011"],
        test: TRANSITIONS,
        finder: Finder::Host,
    },
    Bug {
        name: "nobody waits for siblings that invalidate",
        change: Change::Swap("!self.is(VcpuState::Running) ", "number != 0 "),
        breaks: &["G1-CPU-011"],
        test: TRANSITIONS,
        finder: Finder::Host,
    },
    Bug {
        name: "a request to invalidate instruction caches is done before it is carried out",
        change: Change::Become("self.icache_done.store(asked, Ordering::SeqCst);\ninvalidate();"),
        breaks: &["G1-CPU-011"],
        test: TRANSITIONS,
        finder: Finder::Host,
    },
    Bug {
        name: "a start forgets what the instruction cache holds",
        change: Change::Swap(".union(Requests::ICACHE)", ""),
        breaks: &["G1-CPU-011"],
        test: TRANSITIONS,
        finder: Finder::Host,
    },
    Bug {
        name: "a handler's invalidation passes for the interrupted one",
        change: Change::Swap("elr_el1 == MARK", "elr_el1 != 0"),
        breaks: &["G1-CPU-011"],
        test: "gear1/core/src/icache/tests.rs",
        finder: Finder::Host,
    },
    Bug {
        name: "a request to invalidate instruction caches does nothing",
        change: Change::Drop,
        breaks: &["G1-CPU-011"],
        test: RULES,
        finder: Finder::Rules,
    },
    Bug {
        name: "a breakpoint acts in other VMs",
        change: Change::Drop,
        breaks: &["G1-CPU-007"],
        test: MONITORS,
        finder: Finder::Guest("monitors", "cortex-a57"),
    },
    Bug {
        name: "a guest counts at EL2",
        change: Change::Swap("0xf600_ffff", "0xfe00_ffff"),
        breaks: &["G1-CPU-008"],
        test: MONITORS,
        finder: Finder::Guest("monitors", "cortex-a57"),
    },
    Bug {
        name: "counters count in other VMs",
        change: Change::Swap(" & !PMCR_ENABLE", ""),
        breaks: &["G1-CPU-008"],
        test: MONITORS,
        finder: Finder::Guest("monitors", "cortex-a57"),
    },
    Bug {
        name: "an abort comes from EL0 always",
        change: Change::Swap("DATA_ABORT_SAME", "DATA_ABORT"),
        breaks: &["G1-FLT-001"],
        test: "tests/guests/src/bin/isolation.rs",
        finder: Finder::Guest("isolation", "cortex-a57"),
    },
    Bug {
        name: "a walk's abort has the second table's level",
        change: Change::Swap("in_root ", "in_root && first != 0 "),
        breaks: &["G1-FLT-002"],
        test: "gear1/core/src/fault/tests.rs",
        finder: Finder::Host,
    },
    Bug {
        name: "a fault at EL1t enters the vector of EL1h",
        change: Change::Swap("0x000", "0x200"),
        breaks: &["G1-FLT-003"],
        test: FAULTS,
        finder: Finder::Guest("faults", "max"),
    },
    Bug {
        name: "a handler runs with interrupts",
        change: Change::Swap("PSTATE::DAIF::SET + ", ""),
        breaks: &["G1-FLT-003"],
        test: "gear1/core/src/syndrome/tests.rs",
        finder: Finder::Host,
    },
    Bug {
        name: "a guest faults for ever",
        change: Change::Swap("= NESTED_LIMIT", " NESTED_LIMIT && pc == 0"),
        breaks: &["G1-FLT-004"],
        test: "gear1/core/src/fault/tests.rs",
        finder: Finder::Host,
    },
    Bug {
        name: "the log calls a decoded access one without syndrome",
        change: Change::Swap("is_decoded()\n            && !self.", ""),
        breaks: &["G1-FLT-005"],
        test: "gear1/core/src/syndrome/tests.rs",
        finder: Finder::Host,
    },
    Bug {
        name: "an abort is not counted",
        change: Change::Drop,
        breaks: &["G1-FLT-005"],
        test: FAULTS,
        finder: Finder::Guest("faults", "max"),
    },
    Bug {
        name: "a guest's SError is left to Gear2",
        change: Change::Swap(
            "serror::collect(self.has_ras)",
            "self.has_ras && self.gear2_vttbr == self.null_vttbr",
        ),
        breaks: &["G1-FLT-006"],
        test: RULES,
        finder: Finder::Rules,
    },
    Bug {
        name: "a walk that aborts halts the machine",
        change: Change::Swap(
            "gear1_translate_first:\n    cbnz x1, 1f\n    at s1e1r, x0",
            "    cbnz x1, 1f\n    at s1e1r, x0\ngear1_translate_first:",
        ),
        breaks: &["G1-FLT-007"],
        test: RULES,
        finder: Finder::Rules,
    },
    Bug {
        name: "a virtual SError outlives a reset",
        change: Change::Become("self.hcr = old.hcr;"),
        breaks: &["G1-FLT-006"],
        test: "gear1/core/src/context/tests.rs",
        finder: Finder::Host,
    },
    Bug {
        name: "the next instruction is a branch target",
        change: Change::Swap("PSTATE::BTYPE::CLEAR + ", ""),
        breaks: &["G1-CPU-009"],
        test: CPU,
        finder: Finder::Guest("cpu", "max"),
    },
];
