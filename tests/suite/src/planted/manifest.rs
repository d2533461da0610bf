//! Bugs in the rules of manifests on scheduling. Tests on the host find them. The rules have names
//! of their own, and are no requirements on Gear1.
//!
//! Each rule has a bug: the number in front of a row is the rule's. A manifest that is refused by
//! another rule in place of this one would hide the bug, so the tests compare the rule's number and
//! the place in the message, not the refusal alone. Where a limit is a number, a case lies one unit
//! beyond: a rule with a wrong limit refuses what is far beyond as well.

use super::bug::Bug;
use crate::change::Change;

const SCHEDULING: &str = "manifests/src/rules/scheduling/tests.rs";

pub(super) const BUGS: &[Bug] = &[
    // M-SCH-001.
    // The limit is the largest number, so every budget passes; the test's is 1 us longer than its
    // period.
    Bug::on_host(
        SCHEDULING,
        "a budget is longer than its period",
        Change::Swap("> server.period_us", "> u32::MAX - 1"),
    ),
    // M-SCH-002.
    // A tenth of the shortest period is allowed. Such a period is possible and useless, so no other
    // rule refuses it: the test's is 99 us of 100.
    Bug::on_host(
        SCHEDULING,
        "a period is spent on switches",
        Change::Swap("PERIOD_US.start()", "PERIOD_US.start() / 10"),
    ),
    // M-SCH-003.
    // Other parameters of a real-time VM are still refused.
    Bug::on_host(
        SCHEDULING,
        "a real-time VM has a weight",
        Change::Swap(
            "== VmKind::RealTime",
            "== VmKind::RealTime && property != \"weight\"",
        ),
    ),
    // M-SCH-004.
    // A name that no pool has would leave the VM without CPUs at run time. The message suggests the
    // nearest name, which the test compares as well.
    Bug::on_host(
        SCHEDULING,
        "a VM is in a pool that is not there",
        Change::Swap("manifest.pool_named(name).is_none()", "name.is_empty()"),
    ),
    // M-SCH-005.
    // "default" is a name like any other to the reader, and would be two pools at once in
    // `gearctl`.
    Bug::on_host(
        SCHEDULING,
        "a pool has the name of all other CPUs",
        Change::Swap(" || pool.name == DEFAULT_POOL", ""),
    ),
    // M-SCH-006.
    Bug::on_host(SCHEDULING, "a pool has no CPU", Change::Drop),
    // M-SCH-007.
    // The second pool is compared with no CPUs at all. Two schedulers would have one CPU.
    Bug::on_host(
        SCHEDULING,
        "a CPU is in two pools",
        Change::Swap("other.cpus.set()", "crate::CpuSet::EMPTY"),
    ),
    // M-SCH-008.
    // The machine has the CPU, so the check against the board says nothing.
    Bug::on_host(
        SCHEDULING,
        "a pool has a CPU that Gear2 does not run on",
        Change::Swap("manifest.gear2_cpus(MAX_CPUS)", "CpuSet::first(MAX_CPUS)"),
    ),
    // M-SCH-009.
    // A VM without a pool is still judged. The vCPUs of one in a pool would start on CPUs of
    // another scheduler.
    Bug::on_host(
        SCHEDULING,
        "a VM is in two pools",
        Change::Swap("!= pool", "!= pool && pool.is_none()"),
    ),
    // M-SCH-010.
    // The VM names no pool, and pools have taken all CPUs. A rule on pools that looks at VMs with a
    // pool alone misses the VMs that need it.
    Bug::on_host(
        SCHEDULING,
        "a VM has no CPU outside of pools",
        Change::Swap("!manifest.pools.is_empty()", "vm.pool.is_some()"),
    ),
    // M-SCH-011.
    // The list is full, and the rest of the manifest is judged as if the pool were not there. A
    // message is all that tells.
    Bug::on_host(
        SCHEDULING,
        "a ninth pool is left out",
        Change::Swap(
            "report.error(ManifestError::at(Rule::TooManyPools, pool.path));",
            "",
        ),
    ),
    // M-SCH-012.
    // The other list that can be full. A window that is left out is time that its VM does not get.
    Bug::on_host(
        SCHEDULING,
        "a window that has no room is left out",
        Change::Swap(
            "report.error(ManifestError::at(Rule::TooManyWindows, window.path));",
            "",
        ),
    ),
    // M-SCH-013.
    // The three facts (policy, frame, windows) make one match: the arm returns the end of the
    // check, which is right for other arms.
    Bug::on_host(
        SCHEDULING,
        "windows have no frame",
        Change::Become("(true, 0, _) => return true,"),
    ),
    // M-SCH-014.
    // Windows under another policy have no effect, and no warning would say so.
    Bug::on_host(
        SCHEDULING,
        "windows are nobody's to read",
        Change::Become("(false, _, true) => return true,"),
    ),
    // M-SCH-015.
    // One of two properties is asked for. The reader passes over a window without a length, and the
    // VM has less time than its manifest says.
    Bug::on_host(
        SCHEDULING,
        "a window without a place is left out",
        Change::Swap("[\"start-us\", \"length-us\"]", "[\"start-us\"]"),
    ),
    // M-SCH-016.
    // The sum of start and length is halved. Only a window that ends behind twice its frame is
    // still refused; the test's ends 1 us behind.
    Bug::on_host(
        SCHEDULING,
        "a window ends behind its frame",
        Change::Swap("window.end_us() >", "window.end_us() / 2 >"),
    ),
    // M-SCH-017.
    // Windows that begin at one time are no overlap any more, nor are those of which the later
    // reaches into the earlier. One microsecond in common is the test's.
    Bug::on_host(
        SCHEDULING,
        "windows overlap",
        Change::Swap("other.end_us()", "other.start_us.into()"),
    ),
    // M-SCH-018.
    // The second match arm is left. A name that is no VM's matches neither.
    Bug::on_host(
        SCHEDULING,
        "a window is nobody's",
        Change::Become("None => {}"),
    ),
    // M-SCH-019.
    // Windows of CPUs in no pool are still judged. The VM exists, so the rule on names has nothing
    // to say; its vCPUs never come to that CPU.
    Bug::on_host(
        SCHEDULING,
        "a window is another pool's VM's",
        Change::Swap("!= window.pool", "!= window.pool && window.pool.is_none()"),
    ),
    // M-SCH-020.
    // Any window lets any VM run. The VM would be started and never run, with no word from Gear2.
    Bug::on_host(
        SCHEDULING,
        "a VM has no window",
        Change::Swap("|name| name == vm.name", "|_| true"),
    ),
    // M-SCH-021.
    // Budgets alone fill the CPU. The test's two budgets leave 0.7 % of the CPU for switches, which
    // take 0.8 %.
    Bug::on_host(
        SCHEDULING,
        "budgets leave no time for switches",
        Change::Swap("2 *", "0 *"),
    ),
    // M-SCH-022.
    // Two VMs of a vCPU each pass, three do not. `null` runs one vCPU a CPU, and the other one
    // never.
    Bug::on_host(
        SCHEDULING,
        "two vCPUs start on a CPU of null",
        Change::Swap("(here.next(), here.next())", "(here.next(), here.nth(1))"),
    ),
    // M-SCH-023.
    // A hundredth of the least is enough. Without time for the device VM there is no `gearctl` to
    // change the budgets.
    Bug::on_host(
        SCHEDULING,
        "budgets starve the device VM",
        Change::Swap("< LEAST_PPM", "< LEAST_PPM / 100"),
    ),
    // A difference of more than 100 is refused, and priorities end at 31. Equal priorities and a
    // ceiling are right, which the test has too.
    Bug::on_host(
        SCHEDULING,
        "a higher priority starves the device VM",
        Change::Swap("> device", "> 100 + device"),
    ),
    // M-SCH-024.
    // The longest wait is that of the last window looked at. One window, or windows in the order of
    // their gaps, give the right number; the test has a gap of 6 ms in either order.
    Bug::on_host(
        "manifests/src/rules/scheduling/load/tests.rs",
        "a wait for windows ends with the first one",
        Change::Become("delay = *gap_end;"),
    ),
    // M-WRN-017.
    // A slice is never 0, so every balancer counts as none. The warning would tell people to remove
    // CPUs that the balancer uses.
    Bug::on_host(
        "manifests/src/rules/advice/tests.rs",
        "a balancer uses no more CPUs than a VM has vCPUs",
        Change::Swap("policy.balancer == Balancer::None", "policy.slice_us() > 0"),
    ),
    // M-VM-009.
    // Guests are the only VMs with a standby. A real-time VM is still refused, so two kinds need a
    // case each.
    Bug::on_host(
        "manifests/src/rules/tests.rs",
        "the device VM fails over",
        Change::Swap("!= VmKind::Guest", "== VmKind::RealTime"),
    ),
    // M-VM-011.
    // A chain of standbys could be a circle. A standby that powers the machine off is refused in
    // its place, so a test of refusals alone could pass.
    Bug::on_host(
        "manifests/src/rules/tests.rs",
        "a standby fails over to another VM",
        Change::Swap("OnGiveUp::FailOver", "OnGiveUp::PowerOff"),
    ),
    // M-WRN-022.
    // A misspelled name is one mistake and would have two messages, of which the second misleads.
    Bug::on_host(
        SCHEDULING,
        "a pool is unused because its name is misspelled",
        Change::Swap("!manifest.is_complete", "false"),
    ),
];
