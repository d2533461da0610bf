//! When four spinners are balanced on two CPUs, from the times of their runs.
//!
//! A spinner does not know its CPU, but two that run at the same time are on two CPUs. The four may
//! be balanced from the time on at which both CPUs are always busy, and no spinner runs at the same
//! time as the other one of its pair, for one of the three ways to make pairs. One that waits may
//! still have been on the wrong CPU then. The four are balanced when each has run after that time.

use anyhow::{Context as _, Result, ensure};

/// A run: begin and end. Both are nanoseconds from the common start, by the counter that all VMs
/// share.
type Run = [u64; 2];

/// Shorter overlaps and pauses are switches, and turns of the emulator's CPUs. The longest of
/// QEMU's turns is 10 us (`kvm::TURN_US`), and a world switch takes less.
const SWITCH_NS: u64 = 50_000;
/// The ways to make pairs. Four spinners on two CPUs are balanced as two and two, and nobody knows
/// which two beforehand.
const PAIRS: [[[usize; 2]; 2]; 3] = [[[0, 1], [2, 3]], [[0, 2], [1, 3]], [[0, 3], [1, 2]]];

/// Returns the time at which four spinners are balanced. The time of the last trace's end says that
/// they never are.
pub(super) fn balanced_after(spinners: &[&[Run]]) -> Result<u64> {
    ensure!(spinners.len() == 4, "{} spinners traced", spinners.len());
    let ends = spinners.iter().map(|runs| runs.last().map(|run| run[1]));
    let ends: Vec<u64> = ends.collect::<Option<_>>().context("a spinner never ran")?;
    let end = ends.into_iter().min().context("nobody ran")?;
    let paired = PAIRS.iter().map(|pairs| {
        let overlaps = pairs
            .iter()
            .map(|[a, b]| last_overlap(spinners[*a], spinners[*b]));
        overlaps.max().unwrap_or(0)
    });
    let paired = paired.min().unwrap_or(0);
    let unbalanced = paired.max(last_pause(spinners, end)).min(end);
    let first_runs = spinners.iter().map(|runs| {
        let mut after = runs.iter().filter(|run| run[1] > unbalanced);
        after.next().map_or(end, |run| run[0].max(unbalanced))
    });
    Ok(first_runs.max().unwrap_or(end))
}

/// Returns the end of the last time at which both run. Two spinners of one CPU never overlap by
/// more than a switch, so an overlap says that they are on two.
fn last_overlap(one: &[Run], other: &[Run]) -> u64 {
    let pairs = one.iter().flat_map(|a| other.iter().map(move |b| (a, b)));
    let overlaps = pairs.filter_map(|(a, b)| {
        let (begin, end) = (a[0].max(b[0]), a[1].min(b[1]));
        (end > begin + SWITCH_NS).then_some(end)
    });
    overlaps.max().unwrap_or(0)
}

/// Returns the end of the last time before `end` at which fewer than two run. A CPU without work
/// while another one has several spinners is the imbalance itself.
fn last_pause(spinners: &[&[Run]], end: u64) -> u64 {
    let mut changes: Vec<(u64, i64)> = (spinners.iter().copied().flatten())
        .flat_map(|[begin, end]| [(*begin, 1), (*end, -1)])
        .collect();
    changes.sort_unstable();
    let (mut running, mut since, mut last) = (0, Some(0), 0);
    for (at, change) in changes {
        running += change;
        match since {
            Some(begin) if running >= 2 => {
                if at > begin + SWITCH_NS && begin < end {
                    last = at;
                }
                since = None;
            }
            None if running < 2 => since = Some(at),
            _ => {}
        }
    }
    match since {
        Some(begin) if end > begin + SWITCH_NS => end,
        _ => last,
    }
}

#[cfg(test)]
mod tests;
