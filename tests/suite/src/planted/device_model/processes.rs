//! Bugs in what the processes of guests reach, and in how GDM keeps them.

use super::super::bug::Bug;
use crate::change::Change;

const BY_PROCESSES: &str = "device-model/tests/processes.rs";
const BY_SANDBOX: &str = "device-model/src/sandbox/tests.rs";
const BY_PLACEMENT: &str = "device-model/src/hub/placement/tests.rs";

pub(in crate::planted) const BUGS: &[Bug] = &[
    Bug::on_host(
        BY_PLACEMENT,
        "a busy thread stays beside its disk's interrupt",
        Change::Swap("is_near, false", "is_near, true"),
    ),
    Bug::on_host(
        BY_PLACEMENT,
        "a process of a guest has threads of others placed",
        Change::Swap(
            r#""{process}/task/{thread}/schedstat""#,
            r#""{}/schedstat", thread + u64::from(process) * 0"#,
        ),
    ),
    Bug::on_host(
        BY_PROCESSES,
        "a process of a guest maps all guests' pages",
        Change::Swap(
            "at, file.file(), from, PAGE as usize",
            "0, file.file(), from.min(0), REGION_SIZE",
        ),
    ),
    Bug::on_host(
        BY_PROCESSES,
        "a process of a guest shares the device VM's network",
        Change::Swap("NAMESPACES", "NAMESPACES & !libc::CLONE_NEWNET"),
    ),
    Bug::on_host(
        BY_PROCESSES,
        "a process of a guest sees the device VM's files",
        Change::Drop,
    ),
    Bug::on_host(
        BY_PROCESSES,
        "a process of a guest keeps its capabilities in the bounding set",
        Change::Drop,
    ),
    Bug::on_host(
        BY_PROCESSES,
        "a process of a guest has descriptors of others",
        Change::Swap("FIRST_OTHER, libc::c_uint::MAX", "1000, libc::c_uint::MAX"),
    ),
    Bug::on_host(
        BY_PROCESSES,
        "the heart beats beside a process that is stuck",
        Change::Drop,
    ),
    Bug::on_host(
        BY_SANDBOX,
        "a process of a guest starts others",
        Change::Swap("vec![rule([is_thread])?]", "Vec::new()"),
    ),
    Bug::on_host(
        "device-model/src/hub/tests.rs",
        "a process of a guest wakes another's devices",
        Change::Swap("*of == vm", "*of < usize::MAX"),
    ),
    Bug::on_host(
        "device-model/src/hub/opening/tests.rs",
        "a process has its backends opened without end",
        Change::Swap("|| wished.is_fulfilled", "|| !is_first"),
    ),
    Bug::on_host(
        "device-model/src/allowance/tests.rs",
        "a process fills the log",
        Change::Swap("wanted.min(self.left)", "wanted.min(self.left.max(1))"),
    ),
];
