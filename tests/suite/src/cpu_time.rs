//! CPU time that this program and its children have used.
//!
//! The time of a part on the clock depends on what else the machine does. CPU time does not, and the
//! two together tell a part that computes, which a second lane would slow down, from one that waits.

use std::fs;
use std::time::Duration;

/// Fields of `/proc/self/stat` behind the name: utime, stime, cutime and cstime are the 14th to the
/// 17th of all, and the name is the second (proc_pid_stat(5)).
const FIRST_FIELD: usize = 14 - 3;
const FIELDS: usize = 4;
/// Clock ticks a second in that file: USER_HZ, which Linux shows alike on all machines.
const TICKS: u64 = 100;

/// Returns the CPU time up to now. The time of a child counts from its end.
pub(crate) fn used() -> Duration {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    parse(&stat).unwrap_or_default()
}

/// The name may have spaces and parentheses, so that fields are counted from its end.
fn parse(stat: &str) -> Option<Duration> {
    let (_, fields) = stat.rsplit_once(") ")?;
    let times = fields.split(' ').skip(FIRST_FIELD).take(FIELDS);
    let ticks: u64 = times.filter_map(|ticks| ticks.parse::<u64>().ok()).sum();
    Some(Duration::from_millis(ticks * 1000 / TICKS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_four_times_are_added() {
        let stat = "7 (a) name) S 1 7 7 0 -1 4194304 9 9 9 9 100 20 3000 400 20 0 1 0 5 6";
        assert_eq!(parse(stat), Some(Duration::from_millis(35_200)));
        assert_eq!(parse("nonsense"), None);
    }

    #[test]
    fn a_child_counts_when_it_has_ended() {
        let before = used();
        let mut sh = std::process::Command::new("sh");
        let busy = "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done";
        assert!(sh.args(["-c", busy]).status().unwrap().success());
        assert!(used() > before);
    }
}
