//! Bugs in Gear2 and in its interface to Gear1: take-over, reports, scheduling. Tests on the host
//! find them.

use super::bug::{Bug, Finder};
use crate::change::Change;

const MOVES: &str = "gear2/core/src/cpu_loop/tests/moves.rs";
const DEVICE_MODEL: &str = "gear2/core/src/cpu_loop/tests/device_model.rs";

pub(super) const BUGS: &[Bug] = &[
    Bug {
        name: "what runs beyond a cap is forgiven",
        change: Change::Drop,
        breaks: &[],
        test: "gear2/core/src/scheduler/fair/tests.rs",
        finder: Finder::Host,
    },
    Bug {
        name: "a server's part is free although it was used in advance",
        change: Change::Swap("self.given_up.1.max(deadline)", "now"),
        breaks: &[],
        test: "gear2/core/src/scheduler/edf/tests.rs",
        finder: Finder::Host,
    },
    Bug {
        name: "all that wait at the ceiling run in one go",
        change: Change::Drop,
        breaks: &[],
        test: "gear2/core/src/scheduler/priority/tests.rs",
        finder: Finder::Host,
    },
    Bug {
        name: "a change of windows drops the one before it",
        change: Change::Drop,
        breaks: &[],
        test: "gear2/core/src/scheduler/arinc653/tests.rs",
        finder: Finder::Host,
    },
    Bug {
        name: "an answer to another access is taken over",
        change: Change::Swap(" == Some(held", ".is_some("),
        breaks: &[],
        test: "gear2/core/src/device_model/slots/tests.rs",
        finder: Finder::Host,
    },
    Bug {
        name: "an answer to an earlier life of the VM is taken over",
        change: Change::Become("_ if awaited == Some(held) => Use::Asked,"),
        breaks: &[],
        test: "gear2/core/src/device_model/slots/tests.rs",
        finder: Finder::Host,
    },
    Bug {
        name: "a Gear2 that is restarted forgets the restarts of VMs",
        change: Change::Swap(
            "lifecycle.resume_restarts",
            "let _: (_, u64, &crate::restarts::RestartPolicy) = ",
        ),
        breaks: &[],
        test: DEVICE_MODEL,
        finder: Finder::Host,
    },
    Bug {
        name: "an end that a restart follows is not reported",
        change: Change::Swap("later_lives", "0).filter(|_| later_lives == 0"),
        breaks: &[],
        test: "gear2/core/src/lives/tests.rs",
        finder: Finder::Host,
    },
    Bug {
        name: "nobody looks at a vCPU that arrives",
        change: Change::Drop,
        breaks: &[],
        test: MOVES,
        finder: Finder::Host,
    },
    Bug {
        name: "a restarted Gear2 puts every vCPU where it started",
        change: Change::Swap(
            "cpu.unwrap_or(config.cpu)",
            "cpu.map_or(config.cpu, |_| config.cpu)",
        ),
        breaks: &[],
        test: MOVES,
        finder: Finder::Host,
    },
    Bug {
        name: "a word that an earlier Gear2 kept closes a whole pool",
        change: Change::Swap("self.pool(cpu)", "self.config.cpus"),
        breaks: &[],
        test: "gear2/core/src/machine/placement/tests.rs",
        finder: Finder::Host,
    },
    Bug {
        name: "a CPU takes a vCPU that is no worse off where it is",
        change: Change::Swap("own + 2", "own + 1"),
        breaks: &[],
        test: "gear2/core/src/balancer/tests.rs",
        finder: Finder::Host,
    },
    Bug {
        name: "a change that one CPU refuses stays on the others",
        change: Change::Swap("change.done)", "0)"),
        breaks: &[],
        test: "gear2/core/src/cpu_loop/tests/device_model/sched.rs",
        finder: Finder::Host,
    },
    Bug {
        name: "console input has no pace",
        change: Change::Swap("portion_left > 0", "received.len() < FIFO_DEPTH"),
        breaks: &[],
        test: "gear2/core/src/pl011/tests.rs",
        finder: Finder::Host,
    },
    Bug {
        name: "each byte that a guest reads wakes the device model",
        change: Change::Swap("left =", "left >"),
        breaks: &[],
        test: "gear2/core/src/device_model/tests.rs",
        finder: Finder::Host,
    },
    Bug {
        name: "input is added by a few bytes",
        change: Change::Swap("= INPUT - offset::INPUT_LOW as u32", " 0"),
        breaks: &[],
        test: "device-model/src/serial/tests.rs",
        finder: Finder::Host,
    },
    Bug {
        name: "a guest is loaded while the device model uses its memory",
        change: Change::Swap(" && model.has_reset(page.channels())", ""),
        breaks: &[],
        test: DEVICE_MODEL,
        finder: Finder::Host,
    },
    Bug {
        name: "the device model is not believed to have ended with its VM",
        change: Change::Swap("!=", ">"),
        breaks: &[],
        test: DEVICE_MODEL,
        finder: Finder::Host,
    },
    Bug {
        name: "the only way to Gear2 may be stopped",
        change: Change::Swap("true", "false"),
        breaks: &[],
        test: DEVICE_MODEL,
        finder: Finder::Host,
    },
    Bug {
        name: "a VM waits at boot without a word",
        change: Change::Become("let patience = u64::MAX - BOOT_PATIENCE_US;"),
        breaks: &[],
        test: DEVICE_MODEL,
        finder: Finder::Host,
    },
    Bug {
        name: "a guest that crashes at once is loaded for ever",
        change: Change::Swap("= policy.limit && !", " policy.limit && "),
        breaks: &[],
        test: "gear2/core/src/restarts/tests.rs",
        finder: Finder::Host,
    },
    Bug {
        name: "loading is nobody's time",
        change: Change::Become("let _ = ticks;"),
        breaks: &[],
        test: DEVICE_MODEL,
        finder: Finder::Host,
    },
    Bug {
        name: "the work of the gears is nobody's",
        change: Change::Drop,
        breaks: &[],
        test: "gear2/core/src/cpu_loop/tests/policies.rs",
        finder: Finder::Host,
    },
    Bug {
        name: "an operation is written over before it was answered",
        change: Change::Drop,
        breaks: &[],
        test: "device-model/src/control/tests.rs",
        finder: Finder::Host,
    },
];
