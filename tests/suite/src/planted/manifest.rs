//! Bugs in the rules of manifests on scheduling. Tests on the host find them.

use super::bug::{Bug, Finder};
use crate::change::Change;

const SCHEDULING: &str = "manifests/src/rules/scheduling/tests.rs";

pub(super) const BUGS: &[Bug] = &[
    // M-SCH-001.
    bug(
        "a budget is longer than its period",
        Change::Swap("> server.period_us", "> u32::MAX - 1"),
        SCHEDULING,
    ),
    // M-SCH-006.
    bug(
        "a CPU is in two pools",
        Change::Swap("other.cpus.set()", "crate::CpuSet::EMPTY"),
        SCHEDULING,
    ),
    // M-SCH-009.
    bug(
        "a VM is in two pools",
        Change::Swap("!= pool", "!= pool && pool.is_none()"),
        SCHEDULING,
    ),
    // M-SCH-016.
    bug(
        "a window ends behind its frame",
        Change::Swap("window.end_us() >", "window.end_us() / 2 >"),
        SCHEDULING,
    ),
    // M-SCH-017.
    bug(
        "windows overlap",
        Change::Swap("other.end_us()", "other.start_us.into()"),
        SCHEDULING,
    ),
    // M-SCH-021.
    bug(
        "budgets leave no time for switches",
        Change::Swap("2 *", "0 *"),
        SCHEDULING,
    ),
    // M-SCH-022.
    bug(
        "two vCPUs start on a CPU of null",
        Change::Swap("(here.next(), here.next())", "(here.next(), here.nth(1))"),
        SCHEDULING,
    ),
    // M-SCH-023.
    bug(
        "budgets starve the device VM",
        Change::Swap("< LEAST_PPM", "< LEAST_PPM / 100"),
        SCHEDULING,
    ),
    bug(
        "a higher priority starves the device VM",
        Change::Swap("> device", "> 100 + device"),
        SCHEDULING,
    ),
    // M-SCH-024.
    bug(
        "a wait for windows ends with the first one",
        Change::Become("delay = *gap_end;"),
        "manifests/src/rules/scheduling/load/tests.rs",
    ),
    // M-WRN-017.
    bug(
        "a balancer uses no more CPUs than a VM has vCPUs",
        Change::Swap("policy.balancer == Balancer::None", "policy.slice_us() > 0"),
        "manifests/src/rules/advice/tests.rs",
    ),
    // M-WRN-022.
    bug(
        "a pool is unused because its name is misspelled",
        Change::Swap("!manifest.is_complete", "false"),
        SCHEDULING,
    ),
];

/// Returns a bug of a rule. The rules of manifests have names of their own, and are no requirements
/// on Gear1.
const fn bug(name: &'static str, change: Change, test: &'static str) -> Bug {
    Bug {
        name,
        change,
        breaks: &[],
        test,
        finder: Finder::Host,
    }
}
