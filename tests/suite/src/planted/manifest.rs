//! Bugs in the rules of manifests on scheduling. Tests on the host find them. The rules have names
//! of their own, and are no requirements on Gear1.

use super::bug::Bug;
use crate::change::Change;

const SCHEDULING: &str = "manifests/src/rules/scheduling/tests.rs";

pub(super) const BUGS: &[Bug] = &[
    // M-SCH-001.
    Bug::on_host(
        SCHEDULING,
        "a budget is longer than its period",
        Change::Swap("> server.period_us", "> u32::MAX - 1"),
    ),
    // M-SCH-002.
    Bug::on_host(
        SCHEDULING,
        "a period is spent on switches",
        Change::Swap("PERIOD_US.start()", "PERIOD_US.start() / 10"),
    ),
    // M-SCH-003.
    Bug::on_host(
        SCHEDULING,
        "a real-time VM has a weight",
        Change::Swap(
            "== VmKind::RealTime",
            "== VmKind::RealTime && property != \"weight\"",
        ),
    ),
    // M-SCH-004.
    Bug::on_host(
        SCHEDULING,
        "a VM is in a pool that is not there",
        Change::Swap("manifest.pool_named(name).is_none()", "name.is_empty()"),
    ),
    // M-SCH-005.
    Bug::on_host(
        SCHEDULING,
        "a pool has the name of all other CPUs",
        Change::Swap(" || pool.name == DEFAULT_POOL", ""),
    ),
    // M-SCH-006.
    Bug::on_host(SCHEDULING, "a pool has no CPU", Change::Drop),
    // M-SCH-007.
    Bug::on_host(
        SCHEDULING,
        "a CPU is in two pools",
        Change::Swap("other.cpus.set()", "crate::CpuSet::EMPTY"),
    ),
    // M-SCH-008.
    Bug::on_host(
        SCHEDULING,
        "a pool has a CPU that Gear2 does not run on",
        Change::Swap("manifest.gear2_cpus(MAX_CPUS)", "CpuSet::first(MAX_CPUS)"),
    ),
    // M-SCH-009.
    Bug::on_host(
        SCHEDULING,
        "a VM is in two pools",
        Change::Swap("!= pool", "!= pool && pool.is_none()"),
    ),
    // M-SCH-010.
    Bug::on_host(
        SCHEDULING,
        "a VM has no CPU outside of pools",
        Change::Swap("!manifest.pools.is_empty()", "vm.pool.is_some()"),
    ),
    // M-SCH-011.
    Bug::on_host(
        SCHEDULING,
        "a ninth pool is left out",
        Change::Swap(
            "report.error(ManifestError::at(Rule::TooManyPools, pool.path));",
            "",
        ),
    ),
    // M-SCH-012.
    Bug::on_host(
        SCHEDULING,
        "a window that has no room is left out",
        Change::Swap(
            "report.error(ManifestError::at(Rule::TooManyWindows, window.path));",
            "",
        ),
    ),
    // M-SCH-013.
    Bug::on_host(
        SCHEDULING,
        "windows have no frame",
        Change::Become("(true, 0, _) => return true,"),
    ),
    // M-SCH-014.
    Bug::on_host(
        SCHEDULING,
        "windows are nobody's to read",
        Change::Become("(false, _, true) => return true,"),
    ),
    // M-SCH-015.
    Bug::on_host(
        SCHEDULING,
        "a window without a place is left out",
        Change::Swap("[\"start-us\", \"length-us\"]", "[\"start-us\"]"),
    ),
    // M-SCH-016.
    Bug::on_host(
        SCHEDULING,
        "a window ends behind its frame",
        Change::Swap("window.end_us() >", "window.end_us() / 2 >"),
    ),
    // M-SCH-017.
    Bug::on_host(
        SCHEDULING,
        "windows overlap",
        Change::Swap("other.end_us()", "other.start_us.into()"),
    ),
    // M-SCH-018.
    Bug::on_host(
        SCHEDULING,
        "a window is nobody's",
        Change::Become("None => {}"),
    ),
    // M-SCH-019.
    Bug::on_host(
        SCHEDULING,
        "a window is another pool's VM's",
        Change::Swap("!= window.pool", "!= window.pool && window.pool.is_none()"),
    ),
    // M-SCH-020.
    Bug::on_host(
        SCHEDULING,
        "a VM has no window",
        Change::Swap("|name| name == vm.name", "|_| true"),
    ),
    // M-SCH-021.
    Bug::on_host(
        SCHEDULING,
        "budgets leave no time for switches",
        Change::Swap("2 *", "0 *"),
    ),
    // M-SCH-022.
    Bug::on_host(
        SCHEDULING,
        "two vCPUs start on a CPU of null",
        Change::Swap("(here.next(), here.next())", "(here.next(), here.nth(1))"),
    ),
    // M-SCH-023.
    Bug::on_host(
        SCHEDULING,
        "budgets starve the device VM",
        Change::Swap("< LEAST_PPM", "< LEAST_PPM / 100"),
    ),
    Bug::on_host(
        SCHEDULING,
        "a higher priority starves the device VM",
        Change::Swap("> device", "> 100 + device"),
    ),
    // M-SCH-024.
    Bug::on_host(
        "manifests/src/rules/scheduling/load/tests.rs",
        "a wait for windows ends with the first one",
        Change::Become("delay = *gap_end;"),
    ),
    // M-WRN-017.
    Bug::on_host(
        "manifests/src/rules/advice/tests.rs",
        "a balancer uses no more CPUs than a VM has vCPUs",
        Change::Swap("policy.balancer == Balancer::None", "policy.slice_us() > 0"),
    ),
    // M-VM-009.
    Bug::on_host(
        "manifests/src/rules/tests.rs",
        "the device VM fails over",
        Change::Swap("!= VmKind::Guest", "== VmKind::RealTime"),
    ),
    // M-VM-011.
    Bug::on_host(
        "manifests/src/rules/tests.rs",
        "a standby fails over to another VM",
        Change::Swap("OnGiveUp::FailOver", "OnGiveUp::PowerOff"),
    ),
    // M-WRN-022.
    Bug::on_host(
        SCHEDULING,
        "a pool is unused because its name is misspelled",
        Change::Swap("!manifest.is_complete", "false"),
    ),
];
