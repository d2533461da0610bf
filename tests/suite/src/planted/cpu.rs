//! Bugs in the CPU that a guest sees, and in the handling of its faults.
//!
//! QEMU decides what can be seen on the target: it has no instruction cache, takes no physical
//! SError, and aborts few walks. What such a bug breaks is looked for in the linked runtime
//! (`Rules`), or in the state that the steps leave on the host.

use super::bug::{Bug, Finder};
use crate::change::Change;

const CPU: &str = "tests/guests/src/bin/cpu.rs";
const ICACHE: &str = "tests/guests/src/bin/icache.rs";
const TRANSITIONS: &str = "gear1/core/src/vcpu/tests/transitions.rs";
const RULES: &str = "tests/suite/src/architecture.rs";
const MONITORS: &str = "tests/guests/src/bin/monitors.rs";
const MITIGATIONS: &str = "gear1/core/src/mitigations/tests.rs";
const TRNG: &str = "gear1/core/src/trng/tests.rs";
const SVE: &str = "tests/guests/src/bin/sve.rs";
const FAULTS: &str = "tests/guests/src/bin/faults.rs";

pub(super) const BUGS: &[Bug] = &[
    // A guest on a core that executes in order, or that tags its branches, calls firmware at each
    // change of its processes for nothing. It is slower, and nothing else shows it.
    Bug {
        name: "a guest is told that a CPU needs what it does not",
        change: Change::Swap("in_order || core.csv2 >= CSV2", "false"),
        breaks: &["G1-CPU-012"],
        test: MITIGATIONS,
        finder: Finder::Host,
    },
    // Every CPU says that it trains one VM's branches by another's, and firmware is called where
    // it need not be. The paths of such a CPU become longer; nothing else shows it.
    Bug {
        name: "a CPU that tags its branches calls firmware too",
        change: Change::Swap("CSV2..", "CSV2_3.."),
        breaks: &["G1-CPU-013"],
        test: MITIGATIONS,
        finder: Finder::Host,
    },
    // The kernel of the guest then runs loops that it does not need. The field is the last of its
    // register, and only a CPU of Armv8.9 has it.
    Bug {
        name: "a guest is not told that its branch history is safe",
        change: Change::Swap("44, 60", "44"),
        breaks: &["G1-CPU-014"],
        test: "gear1/core/src/idregs/tests.rs",
        finder: Finder::Host,
    },
    // The fields follow the CPU alone. A kernel then signs its return addresses with keys that it
    // cannot set.
    Bug {
        name: "guests are shown keys that are not switched",
        change: Change::Swap("features & POINTER_AUTH != 0", "true"),
        breaks: &["G1-CPU-015"],
        test: "gear1/core/src/idregs/tests.rs",
        finder: Finder::Host,
    },
    // The field follows the CPU alone. A kernel then saves registers of SVE at each change of its
    // processes, and the first access is undefined.
    Bug {
        name: "a VM without SVE is shown SVE",
        change: Change::Swap("features & SVE != 0", "true"),
        breaks: &["G1-CPU-018"],
        test: "gear1/core/src/idregs/tests.rs",
        finder: Finder::Host,
    },
    // The longest vectors alone are compared. No machine of QEMU's has two kinds of CPUs; the test
    // has two that differ in a shorter length.
    Bug {
        name: "a CPU with other vectors runs VMs",
        change: Change::Swap("& reached", "& reached & bit(length)"),
        breaks: &["G1-CPU-018"],
        test: "gear1/core/src/sve/tests.rs",
        finder: Finder::Host,
    },
    // Any CPU with SVE will do. The guest would find shorter vectors than its manifest says.
    Bug {
        name: "a VM has vectors that the CPU has not",
        change: Change::Swap("!lengths.has(bits)", "lengths == Lengths::NONE"),
        breaks: &["G1-CPU-018"],
        test: "gear1/init/src/sve/tests.rs",
        finder: Finder::Host,
    },
    // ZCR_EL2 stays the last owner's. The registers move at that length, beyond the memory that the
    // vCPU has, or without the upper part; the guest asks for the longest vectors.
    Bug {
        name: "a VM has the vectors of the one before",
        change: Change::Drop,
        breaks: &["G1-CPU-018"],
        test: SVE,
        finder: Finder::Guest("sve", "max"),
    },
    // The one register that only instructions with a name of their own reach. Two guests keep
    // patterns over switches, FFR's among them.
    Bug {
        name: "the first-fault register is not saved",
        change: Change::Swap("str p0, [{p}, #16", "ldr p0, [{p}, #16"),
        breaks: &["G1-CPU-018"],
        test: SVE,
        finder: Finder::Guest("sve", "max"),
    },
    // The memory of the registers outlives the life of the vCPU. A vCPU that is turned on again looks
    // for the pattern that it left.
    Bug {
        name: "a vCPU starts with the vectors of its former life",
        change: Change::Drop,
        breaks: &["G1-CPU-018"],
        test: SVE,
        finder: Finder::Guest("sve", "max"),
    },
    // The keys are saved and not loaded: two guests on a CPU have those of whoever set keys last.
    Bug {
        name: "a vCPU signs with another one's keys",
        change: Change::Drop,
        breaks: &["G1-CPU-015"],
        test: "tests/guests/src/bin/pointer_auth.rs",
        finder: Finder::Guest("pointer-auth", "max"),
    },
    // Firmware is asked for whoever calls. A VM that the manifest does not allow it has the CPU at
    // EL3, and no deadline of Gear1's comes until its source has given.
    Bug {
        name: "any guest keeps a CPU at EL3",
        change: Change::Swap("loaded.boot.firmware_trng && ", ""),
        breaks: &["G1-CPU-017"],
        test: "tests/guests/src/bin/trng.rs",
        finder: Finder::FirmwareTrng,
    },
    // A guest may fill in what it was not given: it takes these bits for entropy too.
    Bug {
        name: "what firmware leaves in other registers is random",
        change: Change::Swap("(word, mask)| word & mask", "(word, _)| word"),
        breaks: &["G1-CPU-017"],
        test: TRNG,
        finder: Finder::Host,
    },
    // Each register gets its word in whole. No kernel notices: it asks for whole words.
    Bug {
        name: "unused bits are random",
        change: Change::Swap("value & mask", "value"),
        breaks: &["G1-CPU-016"],
        test: TRNG,
        finder: Finder::Host,
    },
    // A guest seeds its generator with zeros and is told that they are random. QEMU's source never
    // fails.
    Bug {
        name: "a source without entropy gives zeros",
        change: Change::Swap("return [ret::NO_ENTROPY, 0, 0, 0]", "{}"),
        breaks: &["G1-CPU-016"],
        test: TRNG,
        finder: Finder::Host,
    },
    // SMC32 passes W1; what a 64-bit kernel has in the upper half is whatever was there before.
    Bug {
        name: "the upper half of a 32-bit argument counts",
        change: Change::Swap("request(word, u32::BITS)", "request(x1, u32::BITS)"),
        breaks: &["G1-CPU-016"],
        test: TRNG,
        finder: Finder::Host,
    },
    // The call is made once, and never again.
    Bug {
        name: "branches of one VM train another's",
        change: Change::Swap("last.replace(vm)", "last.or(Some(vm))"),
        breaks: &["G1-CPU-013"],
        test: MITIGATIONS,
        finder: Finder::Host,
    },
    // The change is noted and the call is not made. No guest can see it: the firmware counts.
    Bug {
        name: "nothing empties the branch predictors",
        change: Change::Become("let _ = function;"),
        breaks: &["G1-CPU-013"],
        test: "tests/suite/src/firmware.rs",
        finder: Finder::Firmware,
    },
    // One more field of ID_AA64PFR0_EL1 is kept. Neither the Cortex-A57 nor a guest without SVE
    // code notices; the test filters a CPU that has everything.
    Bug {
        name: "guests are shown SVE",
        change: Change::Swap("20, ", "20, 32, "),
        breaks: &["G1-CPU-001"],
        test: "gear1/core/src/idregs/tests.rs",
        finder: Finder::Host,
    },
    // Guests read the hardware's own identification. A Cortex-A57 has little that is to be hidden,
    // so the row runs on `max`.
    Bug {
        name: "ID registers are not trapped",
        change: Change::Swap("TID3\n        | TSC", "TSC"),
        breaks: &["G1-CPU-002"],
        test: CPU,
        finder: Finder::Guest("cpu", "max"),
    },
    // Bits 40 and 41 of HCR_EL2 (APK, API) allow it; nothing switches the keys. A guest that
    // believes its identification never uses them: this one tries each register of a hidden
    // feature.
    Bug {
        name: "pointer authentication is not trapped",
        change: Change::Become("| 0b11 << 40\n| TERR\n| TID5;"),
        breaks: &["G1-CPU-002"],
        test: CPU,
        finder: Finder::Guest("cpu", "max"),
    },
    // The register is the implementation's own, and kernels made for one core read it without
    // expecting an exception. The guest does so on `max`.
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
    // NODE_HW_STATE would say that a CPU has lost its registers which only idles. The two states
    // differ in one pending request, and the answer of ON or OFF is unchanged.
    Bug {
        name: "a vCPU that waits in WFI is shown in power-down",
        change: Change::Swap(" && vcpu.requests().intersects(Requests::WARM)", ""),
        breaks: &["G1-PSCI-009"],
        test: "gear1/core/src/vcpu/tests.rs",
        finder: Finder::Host,
    },
    // A second walk that begins soon after the first is taken for more of it. A guest that writes
    // and cleans again would lose the data on hardware; QEMU has no caches, so the test counts the
    // pieces.
    Bug {
        name: "a walk by set/way cleans only once",
        change: Change::Swap(" && !again", ""),
        breaks: &["G1-CPU-005"],
        test: "gear1/core/src/set_way/tests.rs",
        finder: Finder::Host,
    },
    // The walks of guests work, and trap once for each set and way. The guest counts the exits of a
    // walk over all levels.
    Bug {
        name: "a guest is shown the sets of the machine's caches",
        change: Change::Swap(" & LINE_SIZE", ""),
        breaks: &["G1-CPU-010"],
        test: CPU,
        finder: Finder::Guest("cpu", "max"),
    },
    // The trap (TICAB) is set for no ordinary VM. The broadcast slows real-time CPUs and changes no
    // result, so the guest counts exits by trapped registers on a CPU with FEAT_EVT.
    Bug {
        name: "a guest's IC IALLUIS reaches real-time CPUs",
        change: Change::Swap("real_time == RealTime::No || ", ""),
        breaks: &["G1-RT-010"],
        test: ICACHE,
        finder: Finder::Guest("icache", "max"),
    },
    // The caller goes on and its siblings keep old instructions. QEMU has no instruction cache: the
    // tests of the states look for the request itself.
    Bug {
        name: "nobody is asked to invalidate instruction caches",
        change: Change::Drop,
        breaks: &["G1-CPU-011"],
        test: TRANSITIONS,
        finder: Finder::Host,
    },
    // The instruction is complete before its effect. All requests are served a moment later, so
    // only the order of question and answer shows the bug.
    Bug {
        name: "nobody waits for siblings that invalidate",
        change: Change::Swap("!self.is(VcpuState::Running) ", "number != 0 "),
        breaks: &["G1-CPU-011"],
        test: TRANSITIONS,
        finder: Finder::Host,
    },
    // Two statements in the other order. The test's `invalidate` looks at what is noted as done
    // while it runs.
    Bug {
        name: "a request to invalidate instruction caches is done before it is carried out",
        change: Change::Become("self.icache_done.store(asked, Ordering::SeqCst);\ninvalidate();"),
        breaks: &["G1-CPU-011"],
        test: TRANSITIONS,
        finder: Finder::Host,
    },
    // Requests to a former life are void at a start, and this one is not: the CPU's cache outlives
    // the vCPU. A list of what is kept invites to be shortened.
    Bug {
        name: "a start forgets what the instruction cache holds",
        change: Change::Swap(".union(Requests::ICACHE)", ""),
        breaks: &["G1-CPU-011"],
        test: TRANSITIONS,
        finder: Finder::Host,
    },
    // The repetition of an instruction is known by a mark in ELR_EL1. An exception between two
    // tries replaces the mark; any other value would then do for it.
    Bug {
        name: "a handler's invalidation passes for the interrupted one",
        change: Change::Swap("elr_el1 == MARK", "elr_el1 != 0"),
        breaks: &["G1-CPU-011"],
        test: "gear1/core/src/icache/tests.rs",
        finder: Finder::Host,
    },
    // The request, its answer and the barriers stay, and IC IALLU is gone. No guest on QEMU can see
    // that, so the rule looks for the instruction between its barriers.
    Bug {
        name: "a request to invalidate instruction caches does nothing",
        change: Change::Drop,
        breaks: &["G1-CPU-011"],
        test: RULES,
        finder: Finder::Rules,
    },
    // Breakpoints match virtual addresses, in whatever VM. Two instances of the guest and a
    // bystander share a CPU while events are armed.
    Bug {
        name: "a breakpoint acts in other VMs",
        change: Change::Drop,
        breaks: &["G1-CPU-007"],
        test: MONITORS,
        finder: Finder::Guest("monitors", "cortex-a57"),
    },
    // NSH in a counter's type counts what Gear1 executes: a measure of its secrets. The guest sets
    // the bit, and counts what its own calls cost.
    Bug {
        name: "a guest counts at EL2",
        change: Change::Swap("0xf600_ffff", "0xfe00_ffff"),
        breaks: &["G1-CPU-008"],
        test: MONITORS,
        finder: Finder::Guest("monitors", "cortex-a57"),
    },
    // The counter goes on while others run. The row's other guests execute meanwhile, under icount,
    // where each instruction counts exactly.
    Bug {
        name: "counters count in other VMs",
        change: Change::Swap(" & !PMCR_ENABLE", ""),
        breaks: &["G1-CPU-008"],
        test: MONITORS,
        finder: Finder::Guest("monitors", "cortex-a57"),
    },
    // Both ways are whole for a guest without monitors, and nearly every test has such a guest.
    // This guest exits between arming and waiting: what the long way stores, stops and resumes, the
    // short way leaves as it is.
    Bug {
        name: "a vCPU with monitors takes the short ways",
        change: Change::Swap("has ||", "has &&"),
        breaks: &["G1-CPU-007", "G1-CPU-008"],
        test: MONITORS,
        finder: Finder::Guest("monitors", "cortex-a57"),
    },
    // The exception class says EL0 for an abort at EL1. Linux would send a signal to the current
    // process instead of an oops; the guest compares the class of each abort.
    Bug {
        name: "an abort comes from EL0 always",
        change: Change::Swap("DATA_ABORT_SAME", "DATA_ABORT"),
        breaks: &["G1-FLT-001"],
        test: "tests/guests/src/bin/isolation.rs",
        finder: Finder::Guest("isolation", "cortex-a57"),
    },
    // The first table's level depends on the size of the address space. The bug is in level 0
    // alone, where walks of 48 bits begin; a guest with 39 bits has no such level. The test has
    // several granules and sizes.
    Bug {
        name: "a walk's abort has the second table's level",
        change: Change::Swap("in_root ", "in_root && first != 0 "),
        breaks: &["G1-FLT-002"],
        test: "gear1/core/src/fault/tests.rs",
        finder: Finder::Host,
    },
    // Linux runs at EL1h, and its vectors for EL1t only panic. The guest accesses nothing from each
    // level and stack pointer, and compares the vector.
    Bug {
        name: "a fault at EL1t enters the vector of EL1h",
        change: Change::Swap("0x000", "0x200"),
        breaks: &["G1-FLT-003"],
        test: FAULTS,
        finder: Finder::Guest("faults", "max"),
    },
    // The handler's first instructions save registers that a nested interrupt would overwrite, a
    // matter of some instructions. The test compares PSTATE.
    Bug {
        name: "a handler runs with interrupts",
        change: Change::Swap("PSTATE::DAIF::SET + ", ""),
        breaks: &["G1-FLT-003"],
        test: "gear1/core/src/syndrome/tests.rs",
        finder: Finder::Host,
    },
    // A guest whose handler is not there faults at EL2's cost without end. The fault is still
    // counted and the guest still gets its turns; the test makes the rounds until the limit.
    Bug {
        name: "a guest faults for ever",
        change: Change::Swap("= NESTED_LIMIT", " NESTED_LIMIT && pc == 0"),
        breaks: &["G1-FLT-004"],
        test: "gear1/core/src/fault/tests.rs",
        finder: Finder::Host,
    },
    // Only the kind of a log record changes. The test has each kind of fault with and without a
    // valid syndrome.
    Bug {
        name: "the log calls a decoded access one without syndrome",
        change: Change::Swap("is_decoded()\n            && !self.", ""),
        breaks: &["G1-FLT-005"],
        test: "gear1/core/src/syndrome/tests.rs",
        finder: Finder::Host,
    },
    // The guest gets its abort all the same. The guest compares GearV's counters before and after a
    // known number of aborts.
    Bug {
        name: "an abort is not counted",
        change: Change::Drop,
        breaks: &["G1-FLT-005"],
        test: FAULTS,
        finder: Finder::Guest("faults", "max"),
    },
    // A pending SError is taken after the change of the stage 2, by who has not caused it. QEMU
    // takes no physical SErrors, so the rule wants the look before the write of VTTBR_EL2.
    Bug {
        name: "a guest's SError is left to Gear2",
        change: Change::Swap(
            "serror::collect(self.is(kind::RAS))",
            "self.is(kind::RAS) && self.gear2_vttbr == self.null_vttbr",
        ),
        breaks: &["G1-FLT-006"],
        test: RULES,
        finder: Finder::Rules,
    },
    // The long way looks, and is the one that a reader finds by its name. An access to a device
    // takes the short one.
    Bug {
        name: "the short ways leave a guest's SError to Gear2",
        change: Change::Swap(" || serror::is_noted(kinds & kind::RAS != 0)", ""),
        breaks: &["G1-FLT-006"],
        test: RULES,
        finder: Finder::Rules,
    },
    // The label that the fault handler compares with moves behind one of two AT instructions. Only
    // an external abort in that one instruction shows it at run time; the rule wants both inside
    // the labels.
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
    // HCR_EL2.VSE is part of the configuration word that a reset keeps. The next life would begin
    // with an SError that nobody caused in it.
    Bug {
        name: "a virtual SError outlives a reset",
        change: Change::Become("self.hcr = old.hcr;"),
        breaks: &["G1-FLT-006"],
        test: "gear1/core/src/context/tests.rs",
        finder: Finder::Host,
    },
    // BTYPE stays set when Gear1 steps over an instruction that it emulates. The guest jumps to
    // such an instruction at the end of a page without BTI; a page with BTI follows.
    Bug {
        name: "the next instruction is a branch target",
        change: Change::Swap("PSTATE::BTYPE::CLEAR + ", ""),
        breaks: &["G1-CPU-009"],
        test: CPU,
        finder: Finder::Guest("cpu", "max"),
    },
];
