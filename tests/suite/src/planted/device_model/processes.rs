//! Bugs in what the processes of guests reach, and in how GDM keeps them.
//!
//! Honest code in a guest's process works with every right. A process that hostile code has taken
//! over (`gdm_hostile`) tries each of them, beside a guest that has to be served all the time.

use super::super::bug::Bug;
use crate::change::Change;

const BY_PROCESSES: &str = "device-model/tests/processes.rs";
const BY_SANDBOX: &str = "device-model/src/sandbox/tests.rs";
const BY_DELAY: &str = "device-model/src/worker/tests/delay.rs";
const BY_PLACEMENT: &str = "device-model/src/hub/placement/tests.rs";

pub(in crate::planted) const BUGS: &[Bug] = &[
    // A thread at its interrupt's CPU is fast until others crowd that CPU. The thread's own work is
    // done either way: the test looks at the CPUs that it may use.
    Bug::on_host(
        BY_PLACEMENT,
        "a busy thread stays beside its disk's interrupt",
        Change::Swap("is_near, false", "is_near, true"),
    ),
    // The number of a thread is the process's word. A process would move threads of other guests to
    // one CPU.
    Bug::on_host(
        BY_PLACEMENT,
        "a process of a guest has threads of others placed",
        Change::Swap(
            r#""{process}/task/{thread}/schedstat""#,
            r#""{}/schedstat", thread + u64::from(process) * 0"#,
        ),
    ),
    // TCP's answers bring the interrupt for what was sent in most cases. A guest that sends alone
    // waits for its own buffers.
    Bug::on_host(
        BY_DELAY,
        "an interrupt waits for the next one without end",
        Change::Swap("self.delay.is_pending()", "self.wiring.spin"),
    ),
    // The next tick ends the sleep, and the interrupt comes up to a second late.
    Bug::on_host(
        BY_DELAY,
        "a thread sleeps for longer than an interrupt may wait",
        Change::Swap("self.delay_left()", "None"),
    ),
    // The backend's arrival interrupts the guest, whenever that is.
    Bug::on_host(
        BY_DELAY,
        "an interrupt that waited at a gdm's end waits for the backend",
        Change::Drop,
    ),
    Bug::on_host(
        BY_DELAY,
        "a driver with a small queue waits for each frame",
        Change::Swap("size / 4", "size"),
    ),
    // All arrives, each frame 150 us late.
    Bug::on_host(
        BY_DELAY,
        "the interrupts of all queues wait",
        Change::Swap("self.backend.may_tell_late(index)", "index < 2"),
    ),
    // The guest is told when it goes on, by the next frame at the latest if there is one.
    Bug::on_host(
        BY_DELAY,
        "a guest that is paused hears of a frame when it goes on",
        Change::Drop,
    ),
    Bug::on_host(
        BY_DELAY,
        "a tick makes up for nothing",
        Change::Swap("by.contains(&self.tick.as_raw_fd())", "self.wiring.spin"),
    ),
    // One mapping of the whole region in place of a page for each device. The honest code uses the
    // right pages; the test reads the process's mappings.
    Bug::on_host(
        BY_PROCESSES,
        "a process of a guest maps all guests' pages",
        Change::Swap(
            "at, file.file(), from, PAGE as usize",
            "0, file.file(), from.min(0), REGION_SIZE",
        ),
    ),
    // One of the namespaces is missing. Nameless sockets belong to a network: hostile code in the
    // process connects to one of the device VM's.
    Bug::on_host(
        BY_PROCESSES,
        "a process of a guest shares the device VM's network",
        Change::Swap("NAMESPACES", "NAMESPACES & !libc::CLONE_NEWNET"),
    ),
    // The root stays the device VM's. Files are still protected by the user, but for those that all
    // may read.
    Bug::on_host(
        BY_PROCESSES,
        "a process of a guest sees the device VM's files",
        Change::Drop,
    ),
    // The process has no capability, and a program that it starts could get one. The test reads the
    // set in the process's status.
    Bug::on_host(
        BY_PROCESSES,
        "a process of a guest keeps its capabilities in the bounding set",
        Change::Drop,
    ),
    // Descriptors below 1,000 stay open. A process inherits those that GDM has at its start, for
    // which the test looks.
    Bug::on_host(
        BY_PROCESSES,
        "a process of a guest has descriptors of others",
        Change::Swap("FIRST_OTHER, libc::c_uint::MAX", "1000, libc::c_uint::MAX"),
    ),
    // The process is ended after its patience. The heartbeat goes on meanwhile, so a Gear2 that
    // would have restarted GDM does not.
    Bug::on_host(
        BY_PROCESSES,
        "the heart beats beside a process that is stuck",
        Change::Drop,
    ),
    // `clone` with any flags. Threads are needed, so the call itself has to be allowed; the
    // argument is the limit.
    Bug::on_host(
        BY_SANDBOX,
        "a process of a guest starts others",
        Change::Swap("vec![rule([is_thread])?]", "Vec::new()"),
    ),
    // The slot names a device by number, which a guest's process may write. The wrong thread finds
    // nothing there, and the access that named it is never answered.
    Bug::on_host(
        "device-model/src/hub/tests.rs",
        "a process of a guest wakes another's devices",
        Change::Swap("*of == vm", "*of < usize::MAX"),
    ),
    // The opener works with rights, for wishes of a process without any. One wish at a time bounds
    // that work.
    Bug::on_host(
        "device-model/src/hub/opening/tests.rs",
        "a process has its backends opened without end",
        Change::Swap("|| wished.is_fulfilled", "|| !is_first"),
    ),
    // Each message takes a byte at least. The allowance never ends for who writes short ones.
    Bug::on_host(
        "device-model/src/allowance/tests.rs",
        "a process fills the log",
        Change::Swap("wanted.min(self.left)", "wanted.min(self.left.max(1))"),
    ),
];
