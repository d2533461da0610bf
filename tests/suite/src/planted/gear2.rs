//! Bugs in Gear2 and in its interface to Gear1: take-over, reports, scheduling. Tests on the host
//! find them.
//!
//! The simulated Gear1 of these tests lets Gear2 fail at any call, and starts the next one with the
//! words that the last one kept. Bugs of the take-over show there alone: a Gear2 that never fails
//! needs none of these words. Scheduling bugs keep every vCPU running; bounds over many random
//! loads are what they break.

use super::bug::Bug;
use crate::change::Change;

const MOVES: &str = "gear2/core/src/cpu_loop/tests/moves.rs";
const POOLS: &str = "gear2/core/src/cpu_loop/tests/pools.rs";
const WATCHDOGS: &str = "gear2/core/src/cpu_loop/tests/watchdogs.rs";
const GIVE_UP: &str = "gear2/core/src/cpu_loop/tests/give_up.rs";
const CONTROL: &str = "gear2/core/src/cpu_loop/tests/device_model/control.rs";
const DEVICE_MODEL: &str = "gear2/core/src/cpu_loop/tests/device_model.rs";

pub(super) const BUGS: &[Bug] = &[
    // Two equal looks do not rule out an exit that is recorded and not yet counted; the third look
    // does. The test has a vCPU that exits between the looks.
    Bug::on_host(
        "gear2/core/src/trace/tests.rs",
        "counters that change are noted",
        Change::Swap("second == exits && third == exits", "second == exits"),
    ),
    // The position from before the copy says nothing of what was overwritten during it.
    // Single-threaded tests always agree; here the writer goes on while the reader copies.
    Bug::on_host(
        "gear2/core/src/trace/tests.rs",
        "a reader of a trace gets what is being overwritten",
        Change::Swap("self.position()", "position"),
    ),
    // The comparison is made and its result ignored. Traces of a right Gear1 agree anyway: the test
    // adds and takes away a record.
    Bug::on_host(
        "device-model/src/command/trace/tests.rs",
        "gearctl says that a trace agrees whose records differ",
        Change::Swap(" if agrees", ""),
    ),
    // A run that ends late exceeds its cap a little each period. The share over some seconds shows
    // the sum.
    Bug::on_host(
        "gear2/core/src/scheduler/fair/tests.rs",
        "what runs beyond a cap is forgiven",
        Change::Drop,
    ),
    // A server that leaves early in its period has used what is others' until the deadline.
    // Admission then promises the time twice; random changes of servers come to a late job.
    Bug::on_host(
        "gear2/core/src/scheduler/edf/tests.rs",
        "a server's part is free although it was used in advance",
        Change::Swap("self.given_up.1.max(deadline)", "now"),
    ),
    // Each vCPU at the ceiling gets its slice at once, so the highest priority waits for all of
    // them. One vCPU at the ceiling shows nothing; the test has many.
    Bug::on_host(
        "gear2/core/src/scheduler/priority/tests.rs",
        "all that wait at the ceiling run in one go",
        Change::Drop,
    ),
    // A change takes effect with a frame, and with the next look at the time. A second change
    // between the two overwrites the first; the test changes windows at random times.
    Bug::on_host(
        "gear2/core/src/scheduler/arinc653/tests.rs",
        "a change of windows drops the one before it",
        Change::Drop,
    ),
    // A slot in use counts as the vCPU's own access after a restart of Gear2. The test posts one
    // access and awaits another.
    Bug::on_host(
        "gear2/core/src/device_model/slots/tests.rs",
        "an answer to another access is taken over",
        Change::Swap(" == Some(held", ".is_some("),
    ),
    // Two lives write the same register, so device, register and access agree. Only the sequence
    // number tells them apart.
    Bug::on_host(
        "gear2/core/src/device_model/slots/tests.rs",
        "an answer to an earlier life of the VM is taken over",
        Change::Become("_ if awaited == Some(held) => Use::Asked,"),
    ),
    // A guest that crashes and takes Gear2 with it would be loaded for ever. Each policy holds
    // within one life of Gear2.
    Bug::on_host(
        DEVICE_MODEL,
        "a Gear2 that is restarted forgets the restarts of VMs",
        Change::Swap(
            "lifecycle.resume_restarts",
            "let _: (_, u64, &crate::restarts::RestartPolicy) = ",
        ),
    ),
    // Only the last life's end is told. A VM that is looked at after each end shows all of them;
    // the history has up to 31 lives between two looks.
    Bug::on_host(
        "gear2/core/src/lives/tests.rs",
        "an end that a restart follows is not reported",
        Change::Swap("later_lives", "0).filter(|_| later_lives == 0"),
    ),
    // A compare value far ahead makes a stage of years. Linux's driver never writes one: the
    // hostile writes of the test do.
    Bug::on_host(
        "gear2/core/src/watchdog/tests.rs",
        "a guest puts its watchdog off for good",
        Change::Swap(".min(latest)", ".max(latest)"),
    ),
    // Time goes on while a person has paused the VM. The watchdog's end would come in a debugging
    // session.
    Bug::on_host(
        WATCHDOGS,
        "a paused guest is one that hangs",
        Change::Swap("is_paused(config.id)", "is_paused(config.id) && false"),
    ),
    // The period counts twice. Guests that spin still end, so the test bounds the time.
    Bug::on_host(
        "gear2/core/src/progress/tests.rs",
        "a guest that spins for ever makes progress",
        Change::Swap(">= period", "> 2 * period"),
    ),
    // The credit for want of a CPU counts as used. On an idle machine no watchdog is starved.
    Bug::on_host(
        WATCHDOGS,
        "a guest that gets no CPU is one that hangs",
        Change::Swap("self.has_credit", "true"),
    ),
    // Each watchdog would begin anew at every restart of Gear2. The test has Gear2 fail anywhere,
    // and a guest that hangs all the time must still end.
    Bug::on_host(
        WATCHDOGS,
        "a restarted Gear2 forgets the watchdogs",
        Change::Drop,
    ),
    // The standby would be started a second time. The window is a few calls wide: the test has
    // Gear2 fail at each.
    Bug::on_host(
        GIVE_UP,
        "a fail-over that was under way begins anew",
        Change::Drop,
    ),
    // The goal is dropped before the standby's goal is noted. A Gear2 that fails between the two
    // leaves neither VM running.
    Bug::on_host(
        GIVE_UP,
        "a VM is given up before its standby is to run",
        Change::Swap("!is_safe", "!is_safe && false"),
    ),
    // The doorbell of `tells` does not ring. The VM's own end and the messages are complete; the
    // test counts rings.
    Bug::on_host(GIVE_UP, "nobody is told of an end", Change::Drop),
    // The second place that rings, for ends that Gear2 itself decides.
    Bug::on_host(GIVE_UP, "nobody is told of a VM that hangs", Change::Drop),
    // A vCPU that woke while it moved is ready at no CPU. The test has guests sleep and wake while
    // a CPU goes and comes 1,000 times.
    Bug::on_host(MOVES, "nobody looks at a vCPU that arrives", Change::Drop),
    // The manifest's CPU is right until the first move. Gear1 then has the vCPU on another CPU than
    // Gear2.
    Bug::on_host(
        MOVES,
        "a restarted Gear2 puts every vCPU where it started",
        Change::Swap(
            "cpu.unwrap_or(config.cpu)",
            "cpu.map_or(config.cpu, |_| config.cpu)",
        ),
    ),
    // The condition is inverted, and a pool without windows has no window to look for. The VM would
    // never run in the other pool.
    Bug::on_host(
        POOLS,
        "a VM moves to a pool that has no window for it",
        Change::Swap("!windows.is_empty() &&", "windows.is_empty() &&"),
    ),
    // The change is called off, and the set of allowed CPUs stays the new one. Nothing moves at
    // once; a later move would be taken.
    Bug::on_host(
        POOLS,
        "a VM that a pool refused may be on its CPUs all the same",
        Change::Drop,
    ),
    // A VM whose change was cut off has vCPUs in two pools. The test has Gear2 fail anywhere in a
    // change.
    Bug::on_host(
        POOLS,
        "a restarted Gear2 leaves vCPUs behind in their old pool",
        Change::Drop,
    ),
    // Room that was agreed to is never given back. The next VM that would fit is refused, which the
    // test tries.
    Bug::on_host(
        POOLS,
        "a pool that refused a VM keeps room for its vCPUs",
        Change::Drop,
    ),
    // All of the machine's CPUs count in place of the pool's. A pool whose own CPUs are all closed
    // would run nobody.
    Bug::on_host(
        "gear2/core/src/machine/placement/tests.rs",
        "a word that an earlier Gear2 kept closes a whole pool",
        Change::Swap("self.pool(cpu)", "self.config.cpus"),
    ),
    // A difference of one moves a vCPU back and forth without end. The test wants each move to make
    // the loads more equal.
    Bug::on_host(
        "gear2/core/src/balancer/tests.rs",
        "a CPU takes a vCPU that is no worse off where it is",
        Change::Swap("own + 2", "own + 1"),
    ),
    // A far CPU wins whenever it is idle. Loads are as equal as before; caches are what it costs,
    // so the test looks at the clusters.
    Bug::on_host(
        "gear2/core/src/balancer/tests.rs",
        "a vCPU goes to another cluster although its own has room",
        Change::Swap("far.seen.ready + 2 > near.seen.ready", "false"),
    ),
    // `false` sorts before `true`: without the negation the far CPU is first. Machines with one
    // cluster show nothing.
    Bug::on_host(
        MOVES,
        "a vCPU of a closed CPU goes to another cluster",
        Change::Swap("!machine", "machine"),
    ),
    // CPUs that agreed before the refusal keep the new parameters. The refusal has to come last for
    // it: the test repeats a change that one of two CPUs refuses.
    Bug::on_host(
        "gear2/core/src/cpu_loop/tests/device_model/sched.rs",
        "a change that one CPU refuses stays on the others",
        Change::Swap("change.done)", "0)"),
    ),
    // M-SCH-023 at run time.
    // Admission still refuses what is more than the whole. The test leaves the device VM less than
    // a twentieth.
    Bug::on_host(
        "gear2/core/src/cpu_loop/tests/device_model/sched.rs",
        "budgets that come later starve the device VM",
        Change::Become("let keeps = false;"),
    ),
    // The comparison never holds, as priorities end at 31. Without a ceiling the device VM then
    // never runs beside a VM that spins.
    Bug::on_host(
        "gear2/core/src/cpu_loop/tests/device_model/sched.rs",
        "a priority that is set later starves the device VM",
        Change::Swap("> priority(device.id)", "> 100 + priority(device.id)"),
    ),
    // A guest's handler that reads until the FIFO is empty never ends while somebody types. Short
    // inputs end by themselves.
    Bug::on_host(
        "gear2/core/src/pl011/tests.rs",
        "console input has no pace",
        Change::Swap("portion_left > 0", "received.len() < FIFO_DEPTH"),
    ),
    // All slots lie in VM 0's page. A process that maps all pages finds them there; one that serves
    // a single guest maps that guest's page alone.
    Bug::on_host(
        "gear2/core/src/device_model/tests.rs",
        "a vCPU's slot is in another VM's page",
        Change::Swap("vm.id.index()", "0"),
    ),
    // The condition holds above the mark in place of at it. Input arrives as before: the test
    // counts signals.
    Bug::on_host(
        "gear2/core/src/device_model/tests.rs",
        "each byte that a guest reads wakes the device model",
        Change::Swap("left =", "left >"),
    ),
    // The other side of the same pace: the device model adds what fits. The test counts rings while
    // half a ring is pasted.
    Bug::on_host(
        "device-model/src/serial/tests.rs",
        "input is added by a few bytes",
        Change::Swap("= INPUT - offset::INPUT_LOW as u32", " 0"),
    ),
    // The load waits for the slots and not for the devices' resets. A transfer that ends late then
    // writes into the new life; random deaths of GDM come to it.
    Bug::on_host(
        DEVICE_MODEL,
        "a guest is loaded while the device model uses its memory",
        Change::Swap(" && model.has_reset(page.channels())", ""),
    ),
    // The number of starts only grows, so `>` never holds. A load would wait for a GDM that does
    // not come back.
    Bug::on_host(
        DEVICE_MODEL,
        "the device model is not believed to have ended with its VM",
        Change::Swap("!=", ">"),
    ),
    // Without a console of its own, Gear2 hears people through the device VM alone. Machines of
    // most tests have a console.
    Bug::on_host(
        DEVICE_MODEL,
        "the only way to Gear2 may be stopped",
        Change::Swap("true", "false"),
    ),
    // The patience never ends. The boot goes on when the device VM is there, which most boots have.
    Bug::on_host(
        DEVICE_MODEL,
        "a VM waits at boot without a word",
        Change::Become("let patience = u64::MAX - BOOT_PATIENCE_US;"),
    ),
    // The limit and the exception for VMs that must run are both inverted. A crash loop of the test
    // ends after a minute.
    Bug::on_host(
        "gear2/core/src/restarts/tests.rs",
        "a guest that crashes at once is loaded for ever",
        Change::Swap("= policy.limit && !", " policy.limit && "),
    ),
    // Time that a load takes is missing in `gearctl stats`. The test adds up all time.
    Bug::on_host(
        DEVICE_MODEL,
        "loading is nobody's time",
        Change::Become("let _ = ticks;"),
    ),
    // A wait that lasts ends at once for the policy. The vCPU is then charged for idle time,
    // although every vCPU runs when it should.
    Bug::on_host(
        "gear2/core/src/cpu_loop/tests/policies.rs",
        "a vCPU that waits inside Gear1 is ready",
        Change::Swap("!lasts", "true"),
    ),
    // A vCPU that has the gears work, by wake-ups without end, pays nothing. The test adds up all
    // time and its causes.
    Bug::on_host(
        "gear2/core/src/cpu_loop/tests/policies.rs",
        "the work of the gears is nobody's",
        Change::Drop,
    ),
    // Arguments of a second operation get under the first, which Gear2 may still read: a question
    // for a name could become the stop of another VM. The test's Gear2 is slow.
    Bug::on_host(
        "device-model/src/control/tests.rs",
        "an operation is written over before it was answered",
        Change::Drop,
    ),
    // A paused VM's disk would complete requests, and a dump would see memory change. vCPUs stand
    // still as they should.
    Bug::on_host(
        CONTROL,
        "devices of a paused VM go on",
        Change::Swap(", paused);", ", false);"),
    ),
    // An order that stands is counted again, which makes it the opposite order.
    Bug::on_host(
        CONTROL,
        "a device that is held is asked once more",
        Change::Swap("is_odd(asked) != held", "true"),
    ),
    // Registers that change meanwhile are of no one moment. The answers for a paused VM are right;
    // the test asks while the VM runs, too.
    Bug::on_host(
        CONTROL,
        "registers of a VM that runs are told",
        Change::Swap("!stands", "false"),
    ),
];
