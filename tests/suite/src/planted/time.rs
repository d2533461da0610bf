//! Bugs in timers, in PSCI, and in the states of vCPUs.
//!
//! A timer that works is not a timer that is right: most guests set one, wait, and turn it off. The
//! rows with `-shared` have vCPUs share a CPU, without which no timer is ever anybody's but the
//! loaded vCPU's. Signals between CPUs are found by a model that tries the orders of steps, as a
//! window of an instruction is met by no ordinary run.

use super::bug::{Bug, Finder};
use crate::change::Change;

const TIMERS: &str = "tests/guests/src/bin/timers.rs";
const TIMER: &str = "gear1/core/src/timer/tests.rs";
const PSCI: &str = "tests/guests/src/bin/psci.rs";
const VCPU: &str = "gear1/core/src/vcpu/tests.rs";
const ON_PSCI: Finder = Finder::Guest("psci", "cortex-a57");
const ON_TIMERS: Finder = Finder::Guest("timers", "cortex-a57");

pub(super) const BUGS: &[Bug] = &[
    // Two enables of CNTHCTL_EL2 differ by one letter: EL1PCTEN is the count's, EL1PCEN the
    // timer's. Gear1 emulates the timer's registers alone, so a read of CNTPCT_EL0 that traps has
    // no answer.
    Bug {
        name: "the physical count traps",
        change: Change::Swap("::SET", "::CLEAR"),
        breaks: &["G1-TIM-001"],
        test: TIMERS,
        finder: ON_TIMERS,
    },
    // Writes reach the hardware's timer, whose registers read back right. Nobody passes that
    // timer's interrupt on to the guest, which waits for each.
    Bug {
        name: "a guest reaches the physical timer itself",
        change: Change::Swap("::SET", "::SET + CNTHCTL_EL2::EL1PCEN::SET"),
        breaks: &["G1-TIM-002"],
        test: TIMERS,
        finder: ON_TIMERS,
    },
    // A distance below 0 becomes 4 billion ticks ahead. Timers that are set for the future never
    // show it; the test writes distances on both sides of 0.
    Bug {
        name: "TVAL is a distance without sign",
        change: Change::Swap("i32 as i64 as ", ""),
        breaks: &["G1-TIM-002"],
        test: TIMER,
        finder: Finder::Host,
    },
    // Linux silences a timer by IMASK and leaves it due. A line that ignores IMASK interrupts
    // without end there, and not at all in a test that turns the timer off.
    Bug {
        name: "a masked timer interrupts",
        change: Change::Swap(" && self.control & IMASK == 0", ""),
        breaks: &["G1-TIM-003"],
        test: TIMER,
        finder: Finder::Host,
    },
    // The vCPU's own CPU runs another vCPU when the timer is due. With a CPU for each vCPU the
    // hardware's timer goes on, so the row has both on one CPU.
    Bug {
        name: "an unloaded vCPU's timer is not watched",
        change: Change::Swap("due", "due | u64::MAX"),
        breaks: &["G1-TIM-004"],
        test: TIMERS,
        finder: Finder::Guest("timers-shared", "cortex-a57"),
    },
    // A deadline that passes during a load finds no CPU that waits, and no vCPU that runs. The
    // window is some instructions wide: the guest's sweep has the timer due at each instruction of
    // the way from WFI to the other guest.
    Bug {
        name: "nobody looks behind the load for whom it woke",
        change: Change::Swap(
            "if let Some(event) = &event::pending_event(cpu, None) {",
            "if cpu.data.has_gear2_irq && let Some(event) = &event::pending_event(cpu, None) {",
        ),
        breaks: &["G1-TIM-004"],
        test: "tests/guests/src/bin/wfi_timer.rs",
        finder: Finder::Guest("wfi-timer", "max"),
    },
    // The interrupt is injected before its time. An operating system takes such an interrupt for a
    // late one of before; the guest counts interrupts that have no condition.
    Bug {
        name: "a vCPU's timer interrupts at each load",
        change: Change::Swap("timer_due <= cpu::now() && !is_reset", "!is_reset"),
        breaks: &["G1-TIM-003"],
        test: TIMERS,
        finder: Finder::Guest("timers-shared", "cortex-a57"),
    },
    // The virtual count lags behind the physical one by the VM's start. A VM that starts at boot
    // has a small offset, so only a unit test with a large one is sure to see the difference.
    Bug {
        name: "a deadline forgets the offset",
        change: Change::Swap(".saturating_add(offset)", " | offset & 0"),
        breaks: &["G1-TIM-004"],
        test: TIMER,
        finder: Finder::Host,
    },
    // The first life has the right count. The guest resets itself several times and compares the
    // count at its first instructions.
    Bug {
        name: "the virtual count goes on over a restart",
        change: Change::Become("if vm.started == 0 {\n    vm.started = cpu::now();\n}"),
        breaks: &["G1-TIM-005"],
        test: "tests/guests/src/bin/reboot.rs",
        finder: Finder::Guest("reboot", "cortex-a57"),
    },
    // CNTVOFF_EL2 keeps the value of the vCPU before. All vCPUs of one VM have one offset, so the
    // row has a second VM on the CPU.
    Bug {
        name: "a vCPU loads another offset",
        change: Change::Drop,
        breaks: &["G1-TIM-005"],
        test: TIMERS,
        finder: Finder::Guest("timers-shared", "cortex-a57"),
    },
    // CNTKCTL_EL1 gains bits with each entry, of which a guest that opens the timers to EL0 notices
    // nothing. The guest's EL0 tries the timers while the guest forbids them.
    Bug {
        name: "EL0 reaches the timers whatever the guest says",
        change: Change::Swap("cntkctl", "cntkctl | 0x303"),
        breaks: &["G1-TIM-006"],
        test: TIMERS,
        finder: ON_TIMERS,
    },
    // A vCPU in WFI is off its CPU by its own wish. Busy vCPUs have right numbers: the test unloads
    // one that waits.
    Bug {
        name: "stolen time counts while a vCPU waits",
        change: Change::Swap("== VcpuState::Ready", "!= VcpuState::Off"),
        breaks: &["G1-TIM-007"],
        test: VCPU,
        finder: Finder::Host,
    },
    // The noted beginning of the last wait counts without the state. The number is right until the
    // vCPU runs, and then grows all the same.
    Bug {
        name: "a vCPU that runs waits",
        change: Change::Swap(" || !self.is(VcpuState::Ready)", ""),
        breaks: &["G1-TIM-010"],
        test: VCPU,
        finder: Finder::Host,
    },
    // CPU_SUSPEND with power-down keeps the timers (Linux wakes by them); CPU_ON does not. Both use
    // one reset, and the test compares the timers after each.
    Bug {
        name: "a warm start turns the timers off",
        change: Change::Swap("warm ", "warm && cntvoff == u64::MAX "),
        breaks: &["G1-TIM-009"],
        test: "gear1/core/src/context/tests.rs",
        finder: Finder::Host,
    },
    // SMC32 arguments have 32 bits, and callers leave anything above. Linux clears the upper
    // halves: the guest sets all of them.
    Bug {
        name: "the 32-bit convention has 64 bits",
        change: Change::Swap("0xffff_ffff", "u64::MAX"),
        breaks: &["G1-PSCI-001"],
        test: PSCI,
        finder: ON_PSCI,
    },
    // An entry outside of memory is taken, and the new vCPU aborts at its first instruction. The
    // call's answer is the difference: INVALID_ADDRESS, and the CPU still off.
    Bug {
        name: "a guest's call starts a vCPU anywhere",
        change: Change::Swap("regions.iter().any", "!regions.iter().all"),
        breaks: &["G1-PSCI-002"],
        test: PSCI,
        finder: ON_PSCI,
    },
    // Aff0 alone is compared. Callers that read MPIDR pass zeroes above it; the guest names targets
    // with each other field set.
    Bug {
        name: "a target has any affinity above its number",
        change: Change::Become("let index = usize::from(mpidr as u8);"),
        breaks: &["G1-PSCI-002"],
        test: PSCI,
        finder: ON_PSCI,
    },
    // Off by one, in a comparison of two that stand together. The second one, MAX_VCPUS_PER_VM,
    // hides the bug for the largest VM.
    Bug {
        name: "a call names a vCPU behind the VM's last",
        change: Change::Swap("index <", "index <="),
        breaks: &["G1-PSCI-002"],
        test: "gear1/core/src/psci/tests.rs",
        finder: Finder::Host,
    },
    // Numbers of vCPUs are consecutive over all VMs, and the bound is one too high: the target
    // behind the VM's last vCPU is the neighbour's first. Another VM stands beside the guest.
    Bug {
        name: "a call reaches the vCPUs of the next VM",
        change: Change::Swap(
            ").and_then(|index| machine::vcpu_of(machine, caller.vm, index",
            ".wrapping_add(1)).and_then(|index| VcpuId::new(usize::from(machine::boot_vm(machine, caller.vm).first_vcpu).wrapping_add(index)",
        ),
        breaks: &["G1-PSCI-002"],
        test: PSCI,
        finder: ON_PSCI,
    },
    // MIGRATE is announced and answers NOT_SUPPORTED. The test compares announcement and answer for
    // every function number, in both directions.
    Bug {
        name: "PSCI_FEATURES announces a call that is not there",
        change: Change::Become("| 0x8400_0005\n| function::SMCCC_VERSION => ret::SUCCESS,"),
        breaks: &["G1-PSCI-003"],
        test: "gear1/core/src/psci/tests.rs",
        finder: Finder::Host,
    },
    // Nothing is started twice; the answer alone is wrong, and no correct kernel asks. The guest
    // turns on a CPU that runs.
    Bug {
        name: "CPU_ON starts a vCPU that is on",
        change: Change::Become("return ret::SUCCESS;"),
        breaks: &["G1-PSCI-004"],
        test: PSCI,
        finder: ON_PSCI,
    },
    // ON_PENDING is a legal answer of other firmware, and wrong here, where CPU_ON is complete when
    // it returns. Both vCPUs on one CPU make the moment last until the caller waits.
    Bug {
        name: "who was turned on and has not run yet is pending",
        change: Change::Swap(
            "ret::ALREADY_ON",
            "if shared.requests().intersects(Requests::RESET) { ret::ALREADY_ON.wrapping_sub(1) } else { ret::ALREADY_ON }",
        ),
        breaks: &["G1-PSCI-004"],
        test: PSCI,
        finder: Finder::Guest("psci-shared", "cortex-a57"),
    },
    // A kernel that polls AFFINITY_INFO before it reuses a stack would take the stack of a CPU that
    // wakes again. The guest asks while its other CPU is in power-down.
    Bug {
        name: "a suspended vCPU is off",
        change: Change::Swap(
            "=> affinity::OFF,\n        VcpuState::Ready\n        | VcpuState::Running\n        | VcpuState::Wfi",
            "| VcpuState::Wfi => affinity::OFF,\n        VcpuState::Ready\n        | VcpuState::Running",
        ),
        breaks: &["G1-PSCI-005"],
        test: PSCI,
        finder: ON_PSCI,
    },
    // DEN 0022 ignores the fields below the level. Callers pass zeroes there, so only a test that
    // passes something else sees the comparison.
    Bug {
        name: "AFFINITY_INFO of a level looks at the fields below",
        change: Change::Become("1 => 0xff_00ff_ffff,"),
        breaks: &["G1-PSCI-005"],
        test: "gear1/core/src/psci/tests.rs",
        finder: Finder::Host,
    },
    // X0 is 0 at the wake-up. A kernel that passes 0 does not notice: the test passes a number.
    Bug {
        name: "a vCPU wakes from power-down without its context",
        change: Change::Swap("(argument", "(argument & 0"),
        breaks: &["G1-PSCI-006"],
        test: VCPU,
        finder: Finder::Host,
    },
    // A VM suspends while another of its CPUs is on. Linux has turned them off before the call; the
    // guest calls with its second CPU on, and expects DENIED.
    Bug {
        name: "SYSTEM_SUSPEND does not look at the others",
        change: Change::Swap("1", "8"),
        breaks: &["G1-PSCI-007"],
        test: PSCI,
        finder: ON_PSCI,
    },
    // A reset of an unknown type answers SUCCESS and returns, which no reset may. Type 0 is the
    // only one there is; the guest tries a vendor's.
    Bug {
        name: "SYSTEM_RESET2 takes any type",
        change: Change::Swap("INVALID_PARAMETERS", "SUCCESS"),
        breaks: &["G1-PSCI-008"],
        test: PSCI,
        finder: ON_PSCI,
    },
    // One of two signals to a CPU overwrites the other. The store and the OR differ only when two
    // wakers come between two looks of the CPU.
    Bug {
        name: "a wake-up is lost",
        change: Change::Swap("fetch_or", "store"),
        breaks: &["G1-VCPU-001"],
        test: VCPU,
        finder: Finder::Host,
    },
    // The receiver may take the SGI before its sender is noted, and the SGI then comes from nobody.
    // The model tries the orders of two senders and the receiver; on hardware the window is one
    // instruction.
    Bug {
        name: "the sender of an SGI is noted after the SGI",
        change: Change::Swap(
            "self.note_senders(sgi, senders);\n        self.request(Requests::sgi(sgi))",
            "let notify = self.request(Requests::sgi(sgi));\n        self.note_senders(sgi, senders);\n        notify",
        ),
        breaks: &["G1-GIC-007"],
        test: "gear1/core/tests/protocol/senders.rs",
        finder: Finder::Host,
    },
    // Waker and owner each write one word and read the other's. An Armv8 CPU keeps the two in order
    // with a plain store as well, so the model has the order of QEMU on an x86 host, which does
    // not.
    Bug {
        name: "a load overtakes the store of a waiting state",
        change: Change::Swap(".swap(", ".store("),
        breaks: &["G1-VCPU-001"],
        test: "gear1/core/tests/protocol/main.rs",
        finder: Finder::HostNamed("an_interrupt_wakes_who_waits"),
    },
    // A stop of a vCPU that waits turns it off at once, which is what most stops meet. The test
    // stops one that runs.
    Bug {
        name: "a vCPU that runs is not asked to stop",
        change: Change::Swap("self.request(Requests::STOP)", "Notify::Nobody"),
        breaks: &["G1-VCPU-001"],
        test: VCPU,
        finder: Finder::Host,
    },
    // The vCPU is off, and its CPU sleeps on with the VM's registers and stage 2 loaded. A CPU that
    // waits in Gear2 hears of the stop otherwise, so only the short wait inside of Gear1 hangs.
    Bug {
        name: "nobody tells a CPU that waits with a vCPU that its VM stops",
        change: Change::Swap("Notify::Kick", "Notify::Nobody"),
        breaks: &["G1-VCPU-003"],
        test: "gear1/core/tests/protocol/here.rs",
        finder: Finder::HostNamed("who_waits_here_stops"),
    },
    // A claim of two CPUs succeeds twice, and one vCPU runs on both. A single CPU never claims a
    // vCPU that it runs; the test asks for a transition whose origin the vCPU has left.
    Bug {
        name: "a vCPU that runs is claimed again",
        change: Change::Swap(
            "compare_exchange(from as u8, to as u8, Ordering::SeqCst, Ordering::SeqCst)\n            .is_ok(",
            "fetch_update(Ordering::SeqCst, Ordering::SeqCst, |_| Some(to as u8))\n            .is_ok_and(|_| from != to",
        ),
        breaks: &["G1-VCPU-002"],
        test: VCPU,
        finder: Finder::Host,
    },
];
