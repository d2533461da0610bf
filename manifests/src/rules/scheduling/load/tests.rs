//! Tests of the arithmetic.

use std::vec::Vec;

use super::*;
use crate::Scheduler;
use crate::model::Policy;

/// Returns the supply of free windows in a frame.
fn supply(frame_us: u32, free: &[(u32, u32)]) -> Option<Supply> {
    let policy = Policy {
        scheduler: Scheduler::Arinc653,
        frame_us,
        ..Policy::DEFAULT
    };
    let mut manifest = Manifest {
        version: 1,
        gear2: crate::Gear2Config {
            policy,
            ..crate::Gear2Config::DEFAULT
        },
        ..Manifest::EMPTY
    };
    for &(start_us, length_us) in free {
        let window = Window {
            pool: None,
            name: "free",
            vm: None,
            start_us,
            length_us,
        };
        assert!(manifest.windows.push(window).is_ok());
    }
    Supply::of_free_windows(&manifest, None)
}

#[test]
fn windows_supply_a_part_after_a_wait() {
    let is = |frame, free: &[_], there_ppm, delay_us| {
        let expected = Supply {
            there_ppm,
            delay_us,
        };
        assert_eq!(supply(frame, free), Some(expected), "{free:?}");
    };
    is(10_000, &[(0, 10_000)], 1_000_000, 0);
    is(10_000, &[(0, 5_000)], 500_000, 5_000);
    is(10_000, &[(2_500, 5_000)], 500_000, 5_000);
    is(10_000, &[(0, 2_500), (5_000, 2_500)], 500_000, 2_500);
    // The gap of 6 ms, in whatever order the file has them.
    is(10_000, &[(0, 1_000), (3_000, 1_000)], 200_000, 6_000);
    is(10_000, &[(3_000, 1_000), (0, 1_000)], 200_000, 6_000);
    // In the first 8.5 ms after a window 0.5 ms come, which an even supply gives in 2.5 ms.
    is(10_000, &[(0, 1_500), (4_500, 500)], 200_000, 6_000);
    assert_eq!(supply(10_000, &[]), None);
    assert_eq!(supply(0, &[]), None);
}

/// In every interval of the frame's multiples, windows give at least the part after the wait.
#[test]
fn no_interval_gives_less() {
    let free = [(0_u32, 15_u32), (20, 5), (45, 5), (70, 20)];
    let Supply {
        there_ppm,
        delay_us,
    } = supply(100, &free).unwrap();
    let open = |at: u64| {
        let place = (at % 100) as u32;
        free.iter()
            .any(|(start, length)| (*start..start + length).contains(&place))
    };
    let mut least_slack = u64::MAX;
    for from in 0..100 {
        let mut given = 0;
        for to in from + 1..from + 400 {
            given += u64::from(open(to - 1));
            let promised = (to - from).saturating_sub(delay_us) * there_ppm / 1_000_000;
            assert!(given >= promised, "{from} {to}: {given} of {promised}");
            least_slack = least_slack.min(given - promised);
        }
    }
    assert_eq!(least_slack, 0, "the wait is no longer than it must be");
}

#[test]
fn sums_never_overflow() {
    let all: Vec<u32> = std::vec![0, 1, 100, u32::MAX];
    for budget_us in &all {
        for period_us in &all {
            let mut sum = Sum::new(CpuIndex::new(0).unwrap(), Supply::WHOLE);
            let budget = Budget {
                budget_us: *budget_us,
                period_us: *period_us,
            };
            assert_eq!(sum.add(budget), *period_us > 0);
            sum.add(budget);
            assert!(sum.load.left_ppm() <= WHOLE_PPM);
        }
    }
}
