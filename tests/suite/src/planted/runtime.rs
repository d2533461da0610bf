//! Bugs in the world switch, in the vCPUs' registers, and in what Gear2 is told and may do.
//!
//! Registers that are not switched are right for a guest alone on its CPU, so rows that look for
//! them have two guests on one. Gear2 as shipped keeps its side of the interface: a Gear2 that
//! fails on request (`gear2-fails`) makes the calls that Gear1 has to refuse.

use super::bug::{Bug, Finder};
use crate::change::Change;

const REBOOT: Finder = Finder::Guest("reboot", "cortex-a57");

pub(super) const BUGS: &[Bug] = &[
    // The position grows in a register that nothing stores. The first record is right, so the part
    // compares the numbers of records and of counted exits.
    Bug {
        name: "each record is written over the last one",
        change: Change::Swap("add x3, x3", "add x4, x3"),
        breaks: &["G1-TRC-001"],
        test: "tests/suite/src/tracing.rs",
        finder: Finder::Trace,
    },
    // The short way for a timer's interrupt counts for itself. A trace that has one record more
    // than the counter has exits is the only sign of it.
    Bug {
        name: "a timer interrupt that repeats is not counted",
        change: Change::Drop,
        breaks: &["G1-TRC-002"],
        test: "tests/suite/src/tracing.rs",
        finder: Finder::Trace,
    },
    // FP registers are switched when somebody else uses them, so those of a stopped vCPU may still
    // be in the CPU. The dumped guest fills them with a pattern, and the core file has older
    // values.
    Bug {
        name: "FP registers are told that a CPU still holds",
        change: Change::Drop,
        breaks: &["G1-RUN-012"],
        test: "tests/suite/src/hostile/dumps.rs",
        finder: Finder::Dump,
    },
    // The bug also asks the wrong way round of a VM that has stopped. Only an image of Gear2 that
    // breaks its own rules makes the call: the row has one.
    Bug {
        name: "Gear2 reads registers of a VM that runs",
        change: Change::Swap("!runs &&", "runs ||"),
        breaks: &["G1-RUN-012"],
        test: "tests/guests/src/bin/gear2_fails.rs",
        finder: Finder::Guest("gear2-fails", "cortex-a57"),
    },
    // A VM whose manifest has neither `last-words` nor `dump` tells its registers. The failing
    // Gear2 asks for those of such a VM.
    Bug {
        name: "Gear2 reads registers that it is not to see",
        change: Change::Swap("return Err(Status::NotFound)", "let _ = Status::NotFound"),
        breaks: &["G1-RUN-012"],
        test: "tests/guests/src/bin/gear2_fails.rs",
        finder: Finder::Guest("gear2-fails", "cortex-a57"),
    },
    // The comparison never holds, so a context of any life passes. The guest's second vCPU was on
    // in the first life alone, and later lives must not show registers of it.
    Bug {
        name: "Gear2 takes registers of a former life for the last one's",
        change: Change::Swap(
            "context.life != inner.starts",
            "context.life > inner.starts",
        ),
        breaks: &["G1-RUN-012"],
        test: "tests/suite/src/supervision.rs",
        finder: Finder::LastWords,
    },
    // A walk of a guest's own tables that faults in stage 2 halts the machine. No sane guest has
    // such tables; the attacks of chaos make them at random.
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
    // Loads of pairs and write-back forms have no valid syndrome (ISV 0). Compilers use them for
    // memory, not for devices; chaos uses them everywhere.
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
    // Gear2's own addresses are then the guest's, and the first instruction of Gear2 aborts or is
    // the guest's. The switch is one of four that look alike.
    Bug {
        name: "Gear2 runs in the guest's stage 2",
        change: Change::Drop,
        breaks: &["G1-RUN-003"],
        test: "tests/guests/src/bin/registers.rs",
        finder: Finder::Guest("registers", "cortex-a57"),
    },
    // X0 keeps the call's number. The way of other answers has a statement of its own.
    Bug {
        name: "an answer of Gear2's is lost on the short way",
        change: Change::Drop,
        breaks: &["G1-RUN-003"],
        test: "tests/guests/src/bin/registers.rs",
        finder: Finder::Guest("registers", "cortex-a57"),
    },
    // The guest enters with Gear2's stage 2. The switch in the other direction has the same lines
    // but for this name.
    Bug {
        name: "a vCPU runs in the stage 2 of the one before",
        change: Change::Swap("guest.vttbr", "self.gear2_vttbr"),
        breaks: &["G1-RUN-003"],
        test: "tests/guests/src/bin/registers.rs",
        finder: Finder::Guest("registers", "cortex-a57"),
    },
    // TPIDR_EL0 is not restored. A guest alone on its CPU finds its own; two instances with
    // different patterns do not.
    Bug {
        name: "a vCPU finds another's thread pointer",
        change: Change::Drop,
        breaks: &["G1-RUN-003"],
        test: "tests/guests/src/bin/registers.rs",
        finder: Finder::Guest("registers", "cortex-a57"),
    },
    // The load leaves out all EL1 registers but the timers'. With Gear2 at EL1 that is right, and
    // the statement has that condition.
    Bug {
        name: "a vCPU finds another's EL1 registers",
        change: Change::Drop,
        breaks: &["G1-RUN-003"],
        test: "tests/guests/src/bin/registers.rs",
        finder: Finder::Guest("registers", "cortex-a57"),
    },
    // What is open to the owner is kept, and is not what the next vCPU owns.
    Bug {
        name: "a vCPU reaches the FP registers of the one before",
        change: Change::Drop,
        breaks: &["G1-RUN-004"],
        test: "tests/guests/src/bin/fp.rs",
        finder: Finder::Guest("fp", "cortex-a57"),
    },
    // The owner changes and the registers do not. Two guests on a CPU keep patterns over 10,000
    // switches.
    Bug {
        name: "FP registers are not switched",
        change: Change::Drop,
        breaks: &["G1-RUN-004"],
        test: "tests/guests/src/bin/fp.rs",
        finder: Finder::Guest("fp", "cortex-a57"),
    },
    // The number of the register stands in ISS bits 9:5 of a trapped System register, so bit 9 says
    // that it is X16 or above. Compilers use X8 and X9 in most functions, and then nothing is lost.
    Bug {
        name: "a System register is read into a register that nobody loads",
        change: Change::Swap("#9", "#10"),
        breaks: &["G1-RUN-003"],
        test: "tests/guests/src/bin/registers.rs",
        finder: Finder::Guest("registers", "cortex-a57"),
    },
    // ISS bit 21 of a data abort is SSE, which is 0 for most loads. What Gear2 answers arrives all
    // the same, as X19 to X29 are stored when the world is exchanged: a register of the virtual GIC
    // does not.
    Bug {
        name: "an access is answered in a register that nobody loads",
        change: Change::Swap("#20", "#21"),
        breaks: &["G1-RUN-003"],
        test: "tests/guests/src/bin/registers.rs",
        finder: Finder::Guest("registers", "cortex-a57"),
    },
    // FP traps only while nobody owns the registers. The second user reads and writes the first
    // one's, with no exit that could be missed.
    Bug {
        name: "FP is open for who does not own it",
        change: Change::Swap(" == Some(id)", ".is_some()"),
        breaks: &["G1-RUN-004"],
        test: "tests/guests/src/bin/fp.rs",
        finder: Finder::Guest("fp", "cortex-a57"),
    },
    // A store of one byte tells all 64 bits of the register. Gear2 uses the low ones, so only a
    // look at the event itself finds a secret in the rest.
    Bug {
        name: "Gear2 is told more than a store stores",
        change: Change::Become(".then(|| frame.reg(abort.register()));"),
        breaks: &["G1-RUN-005"],
        test: "tests/suite/src/gear2_registers.rs",
        finder: Finder::Gear2Registers,
    },
    // Gear2's deadline is noted, and the timer is not set. Other timers wake the CPU soon when it
    // is idle: two guests that spin leave no other cause.
    Bug {
        name: "a deadline is forgotten",
        change: Change::Drop,
        breaks: &["G1-RUN-006", "G1-TIM-008"],
        test: "tests/guests/src/bin/spin.rs",
        finder: Finder::Guest("spin", "cortex-a57"),
    },
    // One counter of many stays 0. The guest does each thing 1,000 times and expects exactly so
    // many exits.
    Bug {
        name: "exits by WFI are not counted",
        change: Change::Drop,
        breaks: &["G1-RUN-007"],
        test: "tests/guests/src/bin/counters.rs",
        finder: Finder::Guest("counters", "cortex-a57"),
    },
    // Readers may take 33 records of a ring of 32. A reader that keeps up never gets the oldest, so
    // the test reads while the writer laps it.
    Bug {
        name: "a reader of the log gets what is being overwritten",
        change: Change::Swap("u64 -", "u64 +"),
        breaks: &["G1-RUN-008"],
        test: "gear1/core/src/log/tests.rs",
        finder: Finder::Host,
    },
    // A load copies the files and leaves the rest as it was. Images that clear their own bss work;
    // the guest writes behind its image and looks there in its next life.
    Bug {
        name: "a VM finds the memory of its former life",
        change: Change::Drop,
        breaks: &["G1-RUN-009"],
        test: "tests/guests/src/bin/reboot.rs",
        finder: REBOOT,
    },
    // The deadline counts only when there is none. A Gear2 that works is never late, so the row's
    // Gear2 hangs on request.
    Bug {
        name: "a hang of Gear2 is not noticed",
        change: Change::Swap("period", "period && data.period == 0"),
        breaks: &["G1-SUP-001"],
        test: "tests/guests/src/bin/gear2_fails.rs",
        finder: Finder::Guest("gear2-fails", "cortex-a57"),
    },
    // The CPUs meet and the count grows, but Gear2 is not renewed. The saboteur has Gear2 fail in
    // each way, and asks for an answer afterwards.
    Bug {
        name: "Gear2 is restarted as it was",
        change: Change::Become("let _ = renew;"),
        breaks: &["G1-SUP-002"],
        test: "tests/guests/src/bin/gear2_fails.rs",
        finder: Finder::Guest("gear2-fails", "cortex-a57"),
    },
    // Recovery works. The number is what operators and the restart's own messages go by; the guest
    // compares it before and after.
    Bug {
        name: "a restart does not count",
        change: Change::Drop,
        breaks: &["G1-SUP-003"],
        test: "tests/guests/src/bin/gear2_fails.rs",
        finder: Finder::Guest("gear2-fails", "cortex-a57"),
    },
    // Feeding goes on while a CPU hangs. Such a watchdog resets no machine: the debugger hangs one
    // CPU, and the microcontroller expects the silence.
    Bug {
        name: "the board's watchdog is fed whatever CPUs do",
        change: Change::Swap("late == 0", "late != u32::MAX"),
        breaks: &["G1-SUP-005"],
        test: "tests/suite/src/board_watchdogs.rs",
        finder: Finder::Microcontroller,
    },
    // The cause is read and named Unknown. No machine resets in a unit test, so models of the
    // devices hold each cause.
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
    // The refusal compares with a range that no device has. The VM could stop what watches Gear1;
    // the test gives the device to a VM by its manifest.
    Bug {
        name: "a VM owns the board's watchdog",
        change: Change::Swap("&fed.region()", "&Region::new(0, 1)"),
        breaks: &["G1-SUP-006"],
        test: "gear1/init/src/board_watchdog/tests.rs",
        finder: Finder::Host,
    },
    // TPIDR_EL0 keeps the guest's value while Gear2 runs. Gear2 never reads it: the debugger does,
    // at each return of the call.
    Bug {
        name: "Gear2 sees a guest's thread pointer",
        change: Change::Drop,
        breaks: &["G1-RUN-003"],
        test: "tests/suite/src/gear2_registers.rs",
        finder: Finder::Gear2Registers,
    },
    // The range of SPIs is not checked, so Gear2 sets private interrupts and those beyond the last.
    // The failing Gear2 tries both, and counts calls that were not refused.
    Bug {
        name: "Gear2 raises an interrupt that guests do not have",
        change: Change::Become("if level > 1 {\n    return Err(Status::Invalid);\n}"),
        breaks: &["G1-RUN-010"],
        test: "tests/guests/src/bin/gear2_fails.rs",
        finder: Finder::Guest("gear2-fails", "cortex-a57"),
    },
    // A vCPU's registers may be loaded on its owner CPU only, which alone can give it away. The
    // shipped Gear2 asks on the right CPU; the failing one does not.
    Bug {
        name: "Gear2 takes another CPU's vCPU",
        change: Change::Drop,
        breaks: &["G1-RUN-010"],
        test: "tests/guests/src/bin/gear2_fails.rs",
        finder: Finder::Guest("gear2-fails", "cortex-a57"),
    },
];
