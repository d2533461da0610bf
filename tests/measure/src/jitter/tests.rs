//! Tests of what becomes of the figures when a configuration fails.

use std::collections::BTreeMap;

use anyhow::anyhow;

use super::{Configuration, Measured, each};

#[test]
fn what_was_measured_outlives_a_failure() {
    let all = [
        Configuration::Native,
        Configuration::Guest,
        Configuration::PassThrough,
    ];
    let (measured, failures) = each(&all, |one| match one {
        Configuration::Guest => Err(anyhow!("it stopped")),
        _ => Ok(Measured {
            figures: BTreeMap::new(),
            exits: None,
        }),
    });
    let names: Vec<_> = measured.iter().map(|(one, _)| *one).collect();
    assert_eq!(names, [Configuration::Native, Configuration::PassThrough]);
    assert_eq!(failures, ["GearV guest was not measured: it stopped"]);
}
