//! Tests of the rules on scheduling.

use std::string::{String, ToString};
use std::vec::Vec;

use crate::judge::validate;
use crate::rules::tests::{BOARD, VM, real_time};
use crate::testing::{Tree, cells, smallest, text};

/// Returns the errors and warnings of a manifest on the usual board.
fn found(tree: &Tree) -> Vec<String> {
    let blob = tree.flatten();
    let mut list = Vec::new();
    let _ = validate(blob.as_slice(), &BOARD, &mut |error| {
        list.push(error.to_string());
    });
    list
}

/// Checks that a manifest breaks one rule, and how the message begins.
#[track_caller]
fn refuses(tree: &Tree, start: &str) {
    let list = found(tree);
    assert!(
        matches!(&list[..], [one] if one.starts_with(start)),
        "{start}: {list:#?}"
    );
}

fn with(property: &str, value: u32) -> Tree {
    smallest().set(VM, property, cells(&[value]))
}

#[test]
fn parameters_have_ranges() {
    let ranges: [(&str, &[u32], &[u32]); 6] = [
        ("weight", &[1, 1000], &[0, 1001]),
        ("cap-percent", &[1, 100], &[0, 101]),
        ("budget-us", &[1, 10_000], &[0]),
        ("period-us", &[100, 10_000_000], &[10_000_001]),
        ("priority", &[0, 31], &[32]),
        ("latency-us", &[0, 1_000_000], &[1_000_001]),
    ];
    for (property, good, bad) in ranges {
        for value in good {
            assert_eq!(
                found(&with(property, *value)),
                [""; 0],
                "{property} {value}"
            );
        }
        for value in bad {
            let start = std::format!("M-SYN-006: {VM}: {property}: ");
            refuses(&with(property, *value), &start);
        }
    }
    for (property, bad) in [("slice-us", 99), ("ceiling-us", 99)] {
        let tree = smallest().set("/gear2", property, cells(&[bad]));
        refuses(&tree, &std::format!("M-SYN-006: /gear2: {property}: "));
    }
}

#[test]
fn budgets_fit_into_periods() {
    refuses(
        &with("budget-us", 10_001),
        "M-SCH-001: /vms/linux: budget-us: the budget is longer than its period (10001 us in each \
         10000 us); ",
    );
    let whole = with("budget-us", 300).set(VM, "period-us", cells(&[300]));
    assert_eq!(found(&whole), [""; 0]);
    refuses(
        &with("period-us", 99),
        "M-SCH-002: /vms/linux: period-us: a period as short as this is spent on switches (99 us); ",
    );
}

#[test]
fn real_time_vms_have_no_parameters() {
    let tree = real_time().set("/vms/rt", "weight", cells(&[100]));
    refuses(&tree, "M-SCH-003: /vms/rt: weight: ");
}

#[test]
fn the_slice_is_the_policys() {
    for (name, expected) in [
        ("round-robin", 5000),
        ("fair", 2500),
        ("bvt", 2500),
        ("edf", 2500),
        ("priority", 5000),
    ] {
        let tree = smallest().set("/gear2", "scheduler", text(name));
        let blob = tree.flatten();
        let manifest = crate::read(blob.as_slice(), &mut |error| panic!("{error}")).unwrap();
        assert_eq!(manifest.gear2.policy.slice_us(), expected, "{name}");
    }
}
