//! Bugs in timers, in PSCI, and in the states of vCPUs.

use super::bug::{Bug, Finder};
use crate::change::Change;

const TIMERS: &str = "tests/guests/src/bin/timers.rs";
const TIMER: &str = "gear1/core/src/timer/tests.rs";
const PSCI: &str = "tests/guests/src/bin/psci.rs";
const VCPU: &str = "gear1/core/src/vcpu/tests.rs";
const ON_PSCI: Finder = Finder::Guest("psci", "cortex-a57");
const ON_TIMERS: Finder = Finder::Guest("timers", "cortex-a57");

pub(super) const BUGS: &[Bug] = &[
    Bug {
        name: "the physical count traps",
        change: Change::Swap("::SET", "::CLEAR"),
        breaks: &["G1-TIM-001"],
        test: TIMERS,
        finder: ON_TIMERS,
    },
    Bug {
        name: "a guest reaches the physical timer itself",
        change: Change::Swap("::SET", "::SET + CNTHCTL_EL2::EL1PCEN::SET"),
        breaks: &["G1-TIM-002"],
        test: TIMERS,
        finder: ON_TIMERS,
    },
    Bug {
        name: "TVAL is a distance without sign",
        change: Change::Swap("i32 as i64 as ", ""),
        breaks: &["G1-TIM-002"],
        test: TIMER,
        finder: Finder::Host,
    },
    Bug {
        name: "a masked timer interrupts",
        change: Change::Swap(" && self.control & IMASK == 0", ""),
        breaks: &["G1-TIM-003"],
        test: TIMER,
        finder: Finder::Host,
    },
    Bug {
        name: "an unloaded vCPU's timer is not watched",
        change: Change::Swap("due", "due | u64::MAX"),
        breaks: &["G1-TIM-004"],
        test: TIMERS,
        finder: Finder::Guest("timers-shared", "cortex-a57"),
    },
    Bug {
        name: "nobody looks behind the load for whom it woke",
        change: Change::Swap(
            "(!was_loaded || machine::cpu_shared(cpu.index()).is_pending())",
            "cpu.data.has_gear2_irq",
        ),
        breaks: &["G1-TIM-004"],
        test: "tests/guests/src/bin/wfi_timer.rs",
        finder: Finder::Guest("wfi-timer", "max"),
    },
    Bug {
        name: "a vCPU's timer interrupts at each load",
        change: Change::Swap("timer_due <= cpu::now() && !is_reset", "!is_reset"),
        breaks: &["G1-TIM-003"],
        test: TIMERS,
        finder: Finder::Guest("timers-shared", "cortex-a57"),
    },
    Bug {
        name: "a deadline forgets the offset",
        change: Change::Swap(".saturating_add(offset)", " | offset & 0"),
        breaks: &["G1-TIM-004"],
        test: TIMER,
        finder: Finder::Host,
    },
    Bug {
        name: "the virtual count goes on over a restart",
        change: Change::Become("if vm.started == 0 {\n    vm.started = cpu::now();\n}"),
        breaks: &["G1-TIM-005"],
        test: "tests/guests/src/bin/reboot.rs",
        finder: Finder::Guest("reboot", "cortex-a57"),
    },
    Bug {
        name: "a vCPU loads another offset",
        change: Change::Drop,
        breaks: &["G1-TIM-005"],
        test: TIMERS,
        finder: Finder::Guest("timers-shared", "cortex-a57"),
    },
    Bug {
        name: "EL0 reaches the timers whatever the guest says",
        change: Change::Swap("cntkctl", "cntkctl | 0x303"),
        breaks: &["G1-TIM-006"],
        test: TIMERS,
        finder: ON_TIMERS,
    },
    Bug {
        name: "stolen time counts while a vCPU waits",
        change: Change::Swap("== VcpuState::Ready", "!= VcpuState::Off"),
        breaks: &["G1-TIM-007"],
        test: VCPU,
        finder: Finder::Host,
    },
    Bug {
        name: "a vCPU that runs waits",
        change: Change::Swap(" || !self.is(VcpuState::Ready)", ""),
        breaks: &["G1-TIM-010"],
        test: VCPU,
        finder: Finder::Host,
    },
    Bug {
        name: "a warm start turns the timers off",
        change: Change::Swap("warm ", "warm && cntvoff == u64::MAX "),
        breaks: &["G1-TIM-009"],
        test: "gear1/core/src/context/tests.rs",
        finder: Finder::Host,
    },
    Bug {
        name: "the 32-bit convention has 64 bits",
        change: Change::Swap("0xffff_ffff", "u64::MAX"),
        breaks: &["G1-PSCI-001"],
        test: PSCI,
        finder: ON_PSCI,
    },
    Bug {
        name: "a guest's call starts a vCPU anywhere",
        change: Change::Swap("regions.iter().any", "!regions.iter().all"),
        breaks: &["G1-PSCI-002"],
        test: PSCI,
        finder: ON_PSCI,
    },
    Bug {
        name: "a target has any affinity above its number",
        change: Change::Become("let index = usize::from(mpidr as u8);"),
        breaks: &["G1-PSCI-002"],
        test: PSCI,
        finder: ON_PSCI,
    },
    Bug {
        name: "a call names a vCPU behind the VM's last",
        change: Change::Swap("index <", "index <="),
        breaks: &["G1-PSCI-002"],
        test: "gear1/core/src/psci/tests.rs",
        finder: Finder::Host,
    },
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
    Bug {
        name: "PSCI_FEATURES announces a call that is not there",
        change: Change::Become("| 0x8400_0005\n| function::SMCCC_VERSION => ret::SUCCESS,"),
        breaks: &["G1-PSCI-003"],
        test: "gear1/core/src/psci/tests.rs",
        finder: Finder::Host,
    },
    Bug {
        name: "CPU_ON starts a vCPU that is on",
        change: Change::Become("return ret::SUCCESS;"),
        breaks: &["G1-PSCI-004"],
        test: PSCI,
        finder: ON_PSCI,
    },
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
    Bug {
        name: "AFFINITY_INFO of a level looks at the fields below",
        change: Change::Become("1 => 0xff_00ff_ffff,"),
        breaks: &["G1-PSCI-005"],
        test: "gear1/core/src/psci/tests.rs",
        finder: Finder::Host,
    },
    Bug {
        name: "a vCPU wakes from power-down without its context",
        change: Change::Swap("(argument", "(argument & 0"),
        breaks: &["G1-PSCI-006"],
        test: VCPU,
        finder: Finder::Host,
    },
    Bug {
        name: "SYSTEM_SUSPEND does not look at the others",
        change: Change::Swap("1", "8"),
        breaks: &["G1-PSCI-007"],
        test: PSCI,
        finder: ON_PSCI,
    },
    Bug {
        name: "SYSTEM_RESET2 takes any type",
        change: Change::Swap("INVALID_PARAMETERS", "SUCCESS"),
        breaks: &["G1-PSCI-008"],
        test: PSCI,
        finder: ON_PSCI,
    },
    Bug {
        name: "a wake-up is lost",
        change: Change::Swap("fetch_or", "store"),
        breaks: &["G1-VCPU-001"],
        test: VCPU,
        finder: Finder::Host,
    },
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
    Bug {
        name: "a load overtakes the store of a waiting state",
        change: Change::Swap(".swap(", ".store("),
        breaks: &["G1-VCPU-001"],
        test: "gear1/core/tests/protocol/main.rs",
        finder: Finder::HostNamed("an_interrupt_wakes_who_waits"),
    },
    Bug {
        name: "a vCPU that runs is not asked to stop",
        change: Change::Swap("self.request(Requests::STOP)", "Notify::Nobody"),
        breaks: &["G1-VCPU-001"],
        test: VCPU,
        finder: Finder::Host,
    },
    Bug {
        name: "nobody tells a CPU that waits with a vCPU that its VM stops",
        change: Change::Swap("Notify::Kick", "Notify::Nobody"),
        breaks: &["G1-VCPU-003"],
        test: "gear1/core/tests/protocol/here.rs",
        finder: Finder::HostNamed("who_waits_here_stops"),
    },
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
