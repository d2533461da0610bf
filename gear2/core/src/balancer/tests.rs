//! Decisions of the balancers.

use super::*;

fn seen(ready: u64, average: u64) -> Seen {
    Seen { ready, average }
}

fn target(own: Seen, others: &[Seen]) -> Option<usize> {
    of_clusters(own, others, &[])
}

/// Asks for a CPU beside others of the own cluster, then of another one. They count from 1.
fn of_clusters(own: Seen, near: &[Seen], far: &[Seen]) -> Option<usize> {
    let near = near.iter().map(|seen| (true, *seen));
    let all = near.chain(far.iter().map(|seen| (false, *seen)));
    let mut others = all.zip(1..).map(|((near, seen), index)| Other {
        cpu: CpuIndex::new(index).unwrap(),
        near,
        seen,
    });
    let balancer = of(gearv_manifest::Balancer::Load);
    Some(balancer.target(own, &mut others)?.index())
}

#[test]
fn an_idle_cpu_gets_what_waits_at_once() {
    assert_eq!(target(seen(2, 0), &[seen(0, 0)]), Some(1));
    assert_eq!(target(seen(2, 0), &[seen(1, 0), seen(0, ONE / 5)]), Some(2));
    assert_eq!(target(seen(1, ONE), &[seen(0, 0)]), None, "nothing waits");
}

#[test]
fn a_busy_cpu_gets_more_only_if_it_had_less_for_a_while() {
    assert_eq!(target(seen(3, 3 * ONE), &[seen(1, ONE)]), Some(1));
    assert_eq!(target(seen(3, ONE), &[seen(1, ONE)]), None, "a peak");
    assert_eq!(target(seen(2, 2 * ONE), &[seen(0, ONE)]), None, "a pause");
    assert_eq!(target(seen(2, 2 * ONE), &[seen(1, ONE)]), None, "even");
    assert_eq!(target(seen(9, 9 * ONE), &[]), None, "alone");
}

#[test]
fn an_idle_cpu_of_the_own_cluster_is_first() {
    let idle = seen(0, 0);
    assert_eq!(of_clusters(seen(2, ONE), &[idle], &[idle]), Some(1));
    assert_eq!(
        of_clusters(seen(2, ONE), &[seen(1, ONE)], &[idle]),
        None,
        "no other cluster at once"
    );
    let long = seen(2, 2 * ONE);
    assert_eq!(of_clusters(long, &[seen(1, ONE)], &[idle]), Some(2));
    assert_eq!(of_clusters(long, &[], &[seen(0, ONE / 2)]), None);
    assert_eq!(of_clusters(long, &[seen(0, ONE / 2)], &[]), Some(1));
}

/// A vCPU that would have to move twice goes far at once.
#[test]
fn another_cluster_gets_what_has_twice_the_gain_there() {
    let own = seen(6, 6 * ONE);
    let near = seen(3, 3 * ONE);
    assert_eq!(of_clusters(own, &[near], &[seen(2, 2 * ONE)]), Some(1));
    assert_eq!(of_clusters(own, &[near], &[seen(1, ONE)]), Some(2));
}

#[test]
fn no_balancer_moves_nothing() {
    let none = of(gearv_manifest::Balancer::None);
    let idle = Other {
        cpu: CpuIndex::new(1).unwrap(),
        near: true,
        seen: seen(0, 0),
    };
    let others = &mut [idle].into_iter();
    assert!(none.target(seen(9, 9 * ONE), others).is_none());
    assert!(!none.takes(0, 9) && none.period().is_none());
}

#[test]
fn every_balancer_of_a_manifest_exists() {
    let names = gearv_manifest::binding::BALANCERS;
    assert_eq!(names.len(), BALANCERS.len());
    for (name, balancer) in names {
        assert_eq!(of(*balancer).name(), *name);
    }
}

/// Each move that a balancer agrees to makes the sum of squares smaller, so moves end.
#[test]
fn each_move_makes_loads_more_equal() {
    for balancer in BALANCERS {
        for (own, theirs) in (0..33).flat_map(|own| (0..33).map(move |theirs| (own, theirs))) {
            if balancer.takes(own, theirs) {
                let squares = |a: u32, b: u32| a * a + b * b;
                assert!(squares(own + 1, theirs - 1) < squares(own, theirs));
            }
        }
    }
}
