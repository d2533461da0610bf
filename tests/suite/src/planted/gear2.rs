//! Bugs in Gear2 and in its interface to Gear1: take-over, reports, scheduling. Tests on the host
//! find them.

use super::bug::Bug;
use crate::change::Change;

const MOVES: &str = "gear2/core/src/cpu_loop/tests/moves.rs";
const POOLS: &str = "gear2/core/src/cpu_loop/tests/pools.rs";
const WATCHDOGS: &str = "gear2/core/src/cpu_loop/tests/watchdogs.rs";
const GIVE_UP: &str = "gear2/core/src/cpu_loop/tests/give_up.rs";
const CONTROL: &str = "gear2/core/src/cpu_loop/tests/device_model/control.rs";
const DEVICE_MODEL: &str = "gear2/core/src/cpu_loop/tests/device_model.rs";

pub(super) const BUGS: &[Bug] = &[
    Bug::on_host(
        "gear2/core/src/trace/tests.rs",
        "counters that change are noted",
        Change::Swap("second == exits && third == exits", "second == exits"),
    ),
    Bug::on_host(
        "gear2/core/src/trace/tests.rs",
        "a reader of a trace gets what is being overwritten",
        Change::Swap("self.position()", "position"),
    ),
    Bug::on_host(
        "device-model/src/command/trace/tests.rs",
        "gearctl says that a trace agrees whose records differ",
        Change::Swap(" if agrees", ""),
    ),
    Bug::on_host(
        "gear2/core/src/scheduler/fair/tests.rs",
        "what runs beyond a cap is forgiven",
        Change::Drop,
    ),
    Bug::on_host(
        "gear2/core/src/scheduler/edf/tests.rs",
        "a server's part is free although it was used in advance",
        Change::Swap("self.given_up.1.max(deadline)", "now"),
    ),
    Bug::on_host(
        "gear2/core/src/scheduler/priority/tests.rs",
        "all that wait at the ceiling run in one go",
        Change::Drop,
    ),
    Bug::on_host(
        "gear2/core/src/scheduler/arinc653/tests.rs",
        "a change of windows drops the one before it",
        Change::Drop,
    ),
    Bug::on_host(
        "gear2/core/src/device_model/slots/tests.rs",
        "an answer to another access is taken over",
        Change::Swap(" == Some(held", ".is_some("),
    ),
    Bug::on_host(
        "gear2/core/src/device_model/slots/tests.rs",
        "an answer to an earlier life of the VM is taken over",
        Change::Become("_ if awaited == Some(held) => Use::Asked,"),
    ),
    Bug::on_host(
        DEVICE_MODEL,
        "a Gear2 that is restarted forgets the restarts of VMs",
        Change::Swap(
            "lifecycle.resume_restarts",
            "let _: (_, u64, &crate::restarts::RestartPolicy) = ",
        ),
    ),
    Bug::on_host(
        "gear2/core/src/lives/tests.rs",
        "an end that a restart follows is not reported",
        Change::Swap("later_lives", "0).filter(|_| later_lives == 0"),
    ),
    Bug::on_host(
        "gear2/core/src/watchdog/tests.rs",
        "a guest puts its watchdog off for good",
        Change::Swap(".min(latest)", ".max(latest)"),
    ),
    Bug::on_host(
        WATCHDOGS,
        "a paused guest is one that hangs",
        Change::Swap("is_paused(config.id)", "is_paused(config.id) && false"),
    ),
    Bug::on_host(
        "gear2/core/src/progress/tests.rs",
        "a guest that spins for ever makes progress",
        Change::Swap(">= period", "> 2 * period"),
    ),
    Bug::on_host(
        WATCHDOGS,
        "a guest that gets no CPU is one that hangs",
        Change::Swap("self.has_credit", "true"),
    ),
    Bug::on_host(
        WATCHDOGS,
        "a restarted Gear2 forgets the watchdogs",
        Change::Drop,
    ),
    Bug::on_host(
        GIVE_UP,
        "a fail-over that was under way begins anew",
        Change::Drop,
    ),
    Bug::on_host(
        GIVE_UP,
        "a VM is given up before its standby is to run",
        Change::Swap("!is_safe", "!is_safe && false"),
    ),
    Bug::on_host(GIVE_UP, "nobody is told of an end", Change::Drop),
    Bug::on_host(GIVE_UP, "nobody is told of a VM that hangs", Change::Drop),
    Bug::on_host(MOVES, "nobody looks at a vCPU that arrives", Change::Drop),
    Bug::on_host(
        MOVES,
        "a restarted Gear2 puts every vCPU where it started",
        Change::Swap(
            "cpu.unwrap_or(config.cpu)",
            "cpu.map_or(config.cpu, |_| config.cpu)",
        ),
    ),
    Bug::on_host(
        POOLS,
        "a VM moves to a pool that has no window for it",
        Change::Swap("!windows.is_empty() &&", "windows.is_empty() &&"),
    ),
    Bug::on_host(
        POOLS,
        "a VM that a pool refused may be on its CPUs all the same",
        Change::Drop,
    ),
    Bug::on_host(
        POOLS,
        "a restarted Gear2 leaves vCPUs behind in their old pool",
        Change::Drop,
    ),
    Bug::on_host(
        POOLS,
        "a pool that refused a VM keeps room for its vCPUs",
        Change::Drop,
    ),
    Bug::on_host(
        "gear2/core/src/machine/placement/tests.rs",
        "a word that an earlier Gear2 kept closes a whole pool",
        Change::Swap("self.pool(cpu)", "self.config.cpus"),
    ),
    Bug::on_host(
        "gear2/core/src/balancer/tests.rs",
        "a CPU takes a vCPU that is no worse off where it is",
        Change::Swap("own + 2", "own + 1"),
    ),
    Bug::on_host(
        "gear2/core/src/balancer/tests.rs",
        "a vCPU goes to another cluster although its own has room",
        Change::Swap("far.seen.ready + 2 > near.seen.ready", "false"),
    ),
    Bug::on_host(
        MOVES,
        "a vCPU of a closed CPU goes to another cluster",
        Change::Swap("!machine", "machine"),
    ),
    Bug::on_host(
        "gear2/core/src/cpu_loop/tests/device_model/sched.rs",
        "a change that one CPU refuses stays on the others",
        Change::Swap("change.done)", "0)"),
    ),
    // M-SCH-023 at run time.
    Bug::on_host(
        "gear2/core/src/cpu_loop/tests/device_model/sched.rs",
        "budgets that come later starve the device VM",
        Change::Become("let keeps = false;"),
    ),
    Bug::on_host(
        "gear2/core/src/cpu_loop/tests/device_model/sched.rs",
        "a priority that is set later starves the device VM",
        Change::Swap("> priority(device.id)", "> 100 + priority(device.id)"),
    ),
    Bug::on_host(
        "gear2/core/src/pl011/tests.rs",
        "console input has no pace",
        Change::Swap("portion_left > 0", "received.len() < FIFO_DEPTH"),
    ),
    Bug::on_host(
        "gear2/core/src/device_model/tests.rs",
        "a vCPU's slot is in another VM's page",
        Change::Swap("vm.id.index()", "0"),
    ),
    Bug::on_host(
        "gear2/core/src/device_model/tests.rs",
        "each byte that a guest reads wakes the device model",
        Change::Swap("left =", "left >"),
    ),
    Bug::on_host(
        "device-model/src/serial/tests.rs",
        "input is added by a few bytes",
        Change::Swap("= INPUT - offset::INPUT_LOW as u32", " 0"),
    ),
    Bug::on_host(
        DEVICE_MODEL,
        "a guest is loaded while the device model uses its memory",
        Change::Swap(" && model.has_reset(page.channels())", ""),
    ),
    Bug::on_host(
        DEVICE_MODEL,
        "the device model is not believed to have ended with its VM",
        Change::Swap("!=", ">"),
    ),
    Bug::on_host(
        DEVICE_MODEL,
        "the only way to Gear2 may be stopped",
        Change::Swap("true", "false"),
    ),
    Bug::on_host(
        DEVICE_MODEL,
        "a VM waits at boot without a word",
        Change::Become("let patience = u64::MAX - BOOT_PATIENCE_US;"),
    ),
    Bug::on_host(
        "gear2/core/src/restarts/tests.rs",
        "a guest that crashes at once is loaded for ever",
        Change::Swap("= policy.limit && !", " policy.limit && "),
    ),
    Bug::on_host(
        DEVICE_MODEL,
        "loading is nobody's time",
        Change::Become("let _ = ticks;"),
    ),
    Bug::on_host(
        "gear2/core/src/cpu_loop/tests/policies.rs",
        "a vCPU that waits inside Gear1 is ready",
        Change::Swap("!lasts", "true"),
    ),
    Bug::on_host(
        "gear2/core/src/cpu_loop/tests/policies.rs",
        "the work of the gears is nobody's",
        Change::Drop,
    ),
    Bug::on_host(
        "device-model/src/control/tests.rs",
        "an operation is written over before it was answered",
        Change::Drop,
    ),
    Bug::on_host(
        CONTROL,
        "devices of a paused VM go on",
        Change::Swap(", paused);", ", false);"),
    ),
    Bug::on_host(
        CONTROL,
        "a device that is held is asked once more",
        Change::Swap("is_odd(asked) != held", "true"),
    ),
    Bug::on_host(
        CONTROL,
        "registers of a VM that runs are told",
        Change::Swap("!stands", "false"),
    ),
];
