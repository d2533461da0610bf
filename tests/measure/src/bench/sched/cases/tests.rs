use std::collections::BTreeSet;

use super::*;

#[test]
fn each_row_has_a_name_of_its_own() {
    let cases = all(Size::USUAL);
    let names: BTreeSet<String> = cases.iter().map(Case::name).collect();
    assert_eq!(names.len(), cases.len());
}

#[test]
fn vms_and_vcpus_are_as_many_as_gear1_has() {
    for case in all(Size::FULL) {
        for run in &case.runs {
            let vcpus: usize = run.vms.iter().map(|vm| vm.vcpus).sum();
            assert!(run.vms.len() <= 16 && vcpus <= 32, "{}", case.name());
        }
    }
}

#[test]
fn the_servers_of_jobs_have_a_utilisation_of_95_percent() {
    let parts = SERVERS_US.map(|[budget, period]| budget as f64 / period as f64);
    assert!((parts.iter().sum::<f64>() - 0.95).abs() < 1e-9);
}

#[test]
fn a_full_run_has_the_jobs_that_the_goal_names() {
    for (size, least) in [(Size::USUAL, 10_000), (Size::FULL, 100_000)] {
        let ms = jobs(size)[0].runs[0].ms;
        let jobs: u64 = SERVERS_US
            .iter()
            .map(|[_, period]| (ms * 1_000 - 1) / period)
            .sum();
        assert!(jobs >= least, "{jobs}");
    }
}
