//! Guests that spin, wait and work.

use super::{Progress, Ran, own_reasons};
use gear1_abi::exit::ExitReason;

const PERIOD: u64 = 1_000;

fn ran(first: u64, second: u64) -> Ran {
    let mut ran = Ran::default();
    (ran[0], ran[1]) = (first, second);
    ran
}

#[test]
fn a_vcpu_that_spins_for_a_period_hangs() {
    let mut progress = Progress::default();
    assert!(!progress.look(5, ran(100, 700), PERIOD));
    assert!(!progress.look(5, ran(1_099, 700), PERIOD));
    assert!(progress.look(5, ran(1_100, 700), PERIOD));
}

#[test]
fn an_exit_of_any_vcpu_is_progress() {
    let mut progress = Progress::default();
    for exits in 0..100 {
        assert!(!progress.look(exits, ran(exits * PERIOD, 0), PERIOD));
    }
}

/// One that sleeps, or gets no CPU, does not run.
#[test]
fn a_guest_that_waits_does_not_hang() {
    let mut progress = Progress::default();
    for _ in 0..100 {
        assert!(!progress.look(7, ran(300, 900), PERIOD));
    }
}

/// Two vCPUs that run for half of a period each are no vCPU that ran for a whole one.
#[test]
fn each_vcpu_counts_by_itself() {
    let mut progress = Progress::default();
    assert!(!progress.look(7, ran(0, 0), PERIOD));
    assert!(!progress.look(7, ran(PERIOD / 2, PERIOD / 2), PERIOD));
}

#[test]
fn what_others_do_to_a_guest_is_no_progress() {
    let own: std::vec::Vec<ExitReason> = own_reasons().collect();
    assert!(own.contains(&ExitReason::Wfi) && own.contains(&ExitReason::Timer));
    for others in [ExitReason::Kick, ExitReason::Deadline, ExitReason::IrqOther] {
        assert!(!own.contains(&others), "{others:?}");
    }
}
