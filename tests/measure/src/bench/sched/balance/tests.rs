use super::*;

const MS: u64 = 1_000_000;

/// Returns the runs of a spinner in turns of 3 ms from `from` on, `first` being one of `of` turns.
fn turns(from: u64, first: u64, of: u64) -> Vec<Run> {
    let starts = (0..40 / of).map(|turn| from + 3 * MS * (of * turn + first));
    starts.map(|start| [start, start + 3 * MS]).collect()
}

fn after(spinners: [Vec<Run>; 4]) -> u64 {
    balanced_after(&spinners.each_ref().map(Vec::as_slice)).unwrap()
}

#[test]
fn two_on_each_are_balanced_from_the_start() {
    let spinners = [
        turns(0, 0, 2),
        turns(0, 1, 2),
        turns(MS, 0, 2),
        turns(MS, 1, 2),
    ];
    // The second turn of the CPU that begins at 1 ms.
    assert_eq!(after(spinners), 4 * MS);
}

#[test]
fn one_and_three_are_not_balanced() {
    let spinners = [
        turns(0, 0, 1),
        turns(0, 0, 3),
        turns(0, 1, 3),
        turns(0, 2, 3),
    ];
    let end = after(spinners);
    assert!(end > 100 * MS, "{end}");
}

#[test]
fn four_on_one_are_not_balanced() {
    let spinners = [
        turns(0, 0, 4),
        turns(0, 1, 4),
        turns(0, 2, 4),
        turns(0, 3, 4),
    ];
    let end = after(spinners);
    assert!(end > 100 * MS, "{end}");
}

#[test]
fn a_move_at_12_ms_is_found() {
    let mut spinners = [
        turns(0, 0, 4),
        turns(0, 1, 4),
        turns(0, 2, 4),
        turns(0, 3, 4),
    ];
    for (index, runs) in spinners.iter_mut().enumerate() {
        runs.truncate(1);
        let other = if index < 2 { 0 } else { MS };
        runs.extend(turns(12 * MS + other, index as u64 % 2, 2));
    }
    assert_eq!(after(spinners), 16 * MS);
}

#[test]
fn a_switch_is_no_pause() {
    let mut spinners = [
        turns(0, 0, 2),
        turns(0, 1, 2),
        turns(0, 0, 2),
        turns(0, 1, 2),
    ];
    for runs in &mut spinners {
        for run in runs {
            run[1] -= SWITCH_NS / 2;
        }
    }
    assert_eq!(after(spinners), 3 * MS);
}

#[test]
fn a_spinner_without_runs_is_an_error() {
    let run = [[0, 1]];
    assert!(balanced_after(&[&run, &run, &run, &[]]).is_err());
    assert!(balanced_after(&[&run]).is_err());
}
