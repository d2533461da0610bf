//! Bugs in the world switch, in the vCPUs' registers, and in what Gear2 is told and may do.

use super::bug::{Bug, Finder};
use crate::change::Change;

const REBOOT: Finder = Finder::Guest("reboot", "cortex-a57");

pub(super) const BUGS: &[Bug] = &[
    Bug {
        name: "Gear2 reads registers of a VM that runs",
        change: Change::Swap(
            "return Err(Status::WrongState)",
            "let _ = Status::WrongState",
        ),
        breaks: &["G1-RUN-012"],
        test: "tests/guests/src/bin/gear2_fails.rs",
        finder: Finder::Guest("gear2-fails", "cortex-a57"),
    },
    Bug {
        name: "Gear2 reads registers that it is not to see",
        change: Change::Swap("return Err(Status::NotFound)", "let _ = Status::NotFound"),
        breaks: &["G1-RUN-012"],
        test: "tests/guests/src/bin/gear2_fails.rs",
        finder: Finder::Guest("gear2-fails", "cortex-a57"),
    },
    Bug {
        name: "Gear1 halts where a guest has no translation tables",
        change: Change::Swap(
            "emulated ",
            "emulated && !abort.is_decoded() {\n        crate::halt::halt(guest.cpu, crate::halt::HaltReason::Inconsistent);\n    }\n    if !emulated ",
        ),
        breaks: &["G1-RUN-002"],
        test: "tests/guests/src/bin/chaos.rs",
        finder: Finder::Chaos,
    },
    Bug {
        name: "Gear1 halts where an access has no syndrome",
        change: Change::Swap(
            "    if !",
            "    if emulated && !abort.is_decoded() {\n        crate::halt::halt(guest.cpu, crate::halt::HaltReason::Inconsistent);\n    }\n    if !",
        ),
        breaks: &["G1-RUN-002"],
        test: "tests/guests/src/bin/chaos.rs",
        finder: Finder::Chaos,
    },
    Bug {
        name: "Gear2 runs in the guest's stage 2",
        change: Change::Drop,
        breaks: &["G1-RUN-003"],
        test: "tests/guests/src/bin/registers.rs",
        finder: Finder::Guest("registers", "cortex-a57"),
    },
    Bug {
        name: "a vCPU runs in the stage 2 of the one before",
        change: Change::Swap("guest.vttbr", "self.gear2_vttbr"),
        breaks: &["G1-RUN-003"],
        test: "tests/guests/src/bin/registers.rs",
        finder: Finder::Guest("registers", "cortex-a57"),
    },
    Bug {
        name: "a vCPU finds another's thread pointer",
        change: Change::Drop,
        breaks: &["G1-RUN-003"],
        test: "tests/guests/src/bin/registers.rs",
        finder: Finder::Guest("registers", "cortex-a57"),
    },
    Bug {
        name: "a vCPU finds another's EL1 registers",
        change: Change::Drop,
        breaks: &["G1-RUN-003"],
        test: "tests/guests/src/bin/registers.rs",
        finder: Finder::Guest("registers", "cortex-a57"),
    },
    Bug {
        name: "FP registers are not switched",
        change: Change::Drop,
        breaks: &["G1-RUN-004"],
        test: "tests/guests/src/bin/fp.rs",
        finder: Finder::Guest("fp", "cortex-a57"),
    },
    Bug {
        name: "FP is open for who does not own it",
        change: Change::Swap(" != Some(loaded.id", ".is_none("),
        breaks: &["G1-RUN-004"],
        test: "tests/guests/src/bin/fp.rs",
        finder: Finder::Guest("fp", "cortex-a57"),
    },
    Bug {
        name: "Gear2 is told more than a store stores",
        change: Change::Become(".then(|| cpu.frame().reg(abort.register()));"),
        breaks: &["G1-RUN-005"],
        test: "tests/suite/src/gear2_registers.rs",
        finder: Finder::Gear2Registers,
    },
    Bug {
        name: "a deadline is forgotten",
        change: Change::Drop,
        breaks: &["G1-RUN-006", "G1-TIM-008"],
        test: "tests/guests/src/bin/spin.rs",
        finder: Finder::Guest("spin", "cortex-a57"),
    },
    Bug {
        name: "exits by WFI are not counted",
        change: Change::Drop,
        breaks: &["G1-RUN-007"],
        test: "tests/guests/src/bin/counters.rs",
        finder: Finder::Guest("counters", "cortex-a57"),
    },
    Bug {
        name: "a reader of the log gets what is being overwritten",
        change: Change::Swap("u64 -", "u64 +"),
        breaks: &["G1-RUN-008"],
        test: "gear1/core/src/log/tests.rs",
        finder: Finder::Host,
    },
    Bug {
        name: "a VM finds the memory of its former life",
        change: Change::Drop,
        breaks: &["G1-RUN-009"],
        test: "tests/guests/src/bin/reboot.rs",
        finder: REBOOT,
    },
    Bug {
        name: "a hang of Gear2 is not noticed",
        change: Change::Swap("period", "period && data.period == 0"),
        breaks: &["G1-SUP-001"],
        test: "tests/guests/src/bin/gear2_fails.rs",
        finder: Finder::Guest("gear2-fails", "cortex-a57"),
    },
    Bug {
        name: "Gear2 is restarted as it was",
        change: Change::Become("let _ = renew;"),
        breaks: &["G1-SUP-002"],
        test: "tests/guests/src/bin/gear2_fails.rs",
        finder: Finder::Guest("gear2-fails", "cortex-a57"),
    },
    Bug {
        name: "a restart does not count",
        change: Change::Drop,
        breaks: &["G1-SUP-003"],
        test: "tests/guests/src/bin/gear2_fails.rs",
        finder: Finder::Guest("gear2-fails", "cortex-a57"),
    },
    Bug {
        name: "the board's watchdog is fed whatever CPUs do",
        change: Change::Swap("late == 0", "late != u32::MAX"),
        breaks: &["G1-SUP-005"],
        test: "tests/suite/src/board_watchdogs.rs",
        finder: Finder::Microcontroller,
    },
    Bug {
        name: "the watchdog's reset is not told",
        change: Change::Swap(
            "[true, ..] => Cause::Watchdog",
            "[true, ..] => Cause::Unknown",
        ),
        breaks: &["G1-SUP-006"],
        test: "gear1/core/src/board_watchdog/tests.rs",
        finder: Finder::Host,
    },
    Bug {
        name: "a VM owns the board's watchdog",
        change: Change::Swap("&fed.region()", "&Region::new(0, 1)"),
        breaks: &["G1-SUP-006"],
        test: "gear1/init/src/board_watchdog/tests.rs",
        finder: Finder::Host,
    },
    Bug {
        name: "Gear2 sees a guest's thread pointer",
        change: Change::Drop,
        breaks: &["G1-RUN-003"],
        test: "tests/suite/src/gear2_registers.rs",
        finder: Finder::Gear2Registers,
    },
    Bug {
        name: "Gear2 raises an interrupt that guests do not have",
        change: Change::Become("if level > 1 {\n    return Err(Status::Invalid);\n}"),
        breaks: &["G1-RUN-010"],
        test: "tests/guests/src/bin/gear2_fails.rs",
        finder: Finder::Guest("gear2-fails", "cortex-a57"),
    },
    Bug {
        name: "Gear2 takes another CPU's vCPU",
        change: Change::Drop,
        breaks: &["G1-RUN-010"],
        test: "tests/guests/src/bin/gear2_fails.rs",
        finder: Finder::Guest("gear2-fails", "cortex-a57"),
    },
];
