//! Bugs in what the threads of GDM may do.

use super::super::bug::Bug;
use crate::change::Change;

pub(in crate::planted) const BUGS: &[Bug] = &[
    Bug::on_host(
        "device-model/src/sandbox/tests.rs",
        "memory may become executable",
        Change::Swap("vec![rule([no_code()])?]", "Vec::new()"),
    ),
    Bug::on_host(
        "device-model/src/sandbox/tests.rs",
        "files and devices may be mapped",
        Change::Swap(", of_no_file", ""),
    ),
    Bug::on_host(
        "device-model/src/sandbox/tests.rs",
        "a thread may end others",
        Change::Become("let itself = rule([abort(2)])?;"),
    ),
    Bug::on_host(
        "device-model/src/sandbox/tests.rs",
        "a thread may make any request of a device",
        Change::Swap("requests", "Vec::new()"),
    ),
    Bug::on_host(
        "device-model/src/sandbox/tests.rs",
        "a process of a guest sets what an input device does",
        Change::Swap("MaskedEq(INPUT_MASK)", "Ne"),
    ),
    Bug::on_host(
        "device-model/src/sandbox/tests.rs",
        "a thread may open files",
        Change::Become("libc::SYS_openat,\nlibc::SYS_gettid,"),
    ),
    Bug::on_host(
        "device-model/src/sandbox/tests.rs",
        "only the thread that breaks out ends",
        Change::Swap("KillProcess", "KillThread"),
    ),
    Bug::on_host(
        "device-model/src/sandbox/tests.rs",
        "a thread without a filter serves guests",
        Change::Drop,
    ),
    Bug::on_host(
        "device-model/src/sandbox/tests.rs",
        "a thread stays root",
        Change::Swap(" id, id, id", " none, none, none"),
    ),
];
