//! Bugs in what the threads of GDM may do.
//!
//! A filter that allows too much lets everything work. The tests make each forbidden call in a
//! child process, and expect the end of it.

use super::super::bug::Bug;
use crate::change::Change;

pub(in crate::planted) const BUGS: &[Bug] = &[
    // mprotect(2) with PROT_EXEC makes injected bytes code. No thread needs it, so nothing else
    // misses the rule.
    Bug::on_host(
        "device-model/src/sandbox/tests.rs",
        "memory may become executable",
        Change::Swap("vec![rule([no_code()])?]", "Vec::new()"),
    ),
    // A mapping of a descriptor is another way to guests' memory. mmap(2) itself is the
    // allocator's, so only its flags tell.
    Bug::on_host(
        "device-model/src/sandbox/tests.rs",
        "files and devices may be mapped",
        Change::Swap(", of_no_file", ""),
    ),
    // `abort` needs tgkill(2) for the thread itself. The arguments are numbers of the caller, and
    // any others would do for the bug.
    Bug::on_host(
        "device-model/src/sandbox/tests.rs",
        "a thread may end others",
        Change::Become("let itself = rule([abort(2)])?;"),
    ),
    // An empty list of rules allows all arguments in seccomp, which is the opposite of how it
    // reads.
    Bug::on_host(
        "device-model/src/sandbox/tests.rs",
        "a thread may make any request of a device",
        Change::Swap("requests", "Vec::new()"),
    ),
    // Requests that ask and requests that set differ in some bits of the number. The mask chooses
    // all that ask, of whatever length.
    Bug::on_host(
        "device-model/src/sandbox/tests.rs",
        "a process of a guest sets what an input device does",
        Change::Swap("MaskedEq(INPUT_MASK)", "Ne"),
    ),
    // One name more in a list of some 30. The test makes every call of the kernel in a child, and
    // expects its end.
    Bug::on_host(
        "device-model/src/sandbox/tests.rs",
        "a thread may open files",
        Change::Become("libc::SYS_openat,\nlibc::SYS_gettid,"),
    ),
    // GDM would live on without the thread, which nothing restarts, and code that was injected
    // could go on by others.
    Bug::on_host(
        "device-model/src/sandbox/tests.rs",
        "only the thread that breaks out ends",
        Change::Swap("KillProcess", "KillThread"),
    ),
    // A kernel without seccomp lets the thread start. The test has the kernel refuse filters.
    Bug::on_host(
        "device-model/src/sandbox/tests.rs",
        "a thread without a filter serves guests",
        Change::Drop,
    ),
    // setresuid(2) to user 0 changes nothing and succeeds. Capabilities are given up by the next
    // call, so only the user is left.
    Bug::on_host(
        "device-model/src/sandbox/tests.rs",
        "a thread stays root",
        Change::Swap(" id, id, id", " none, none, none"),
    ),
];
