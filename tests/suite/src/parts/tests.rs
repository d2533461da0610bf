use super::*;

#[test]
fn summary_names_skipped_only_if_there_are_any() {
    let mut tally = Tally::default();
    tally.pass(3);
    tally.fail("one");
    assert_eq!(tally.summary(), "3 passed, 1 failed");
    tally.skip(2);
    assert_eq!(tally.summary(), "3 passed, 1 failed, 2 skipped");
}

#[test]
fn a_part_that_cannot_run_is_a_failure() {
    let part = Part::new("broken", |tally| {
        tally.pass(1);
        anyhow::bail!("no machine")
    });
    let tally = part.run();
    assert_eq!(
        (tally.passed, tally.failures),
        (1, vec!["no machine".to_owned()])
    );
}

#[test]
fn every_part_has_a_name_of_its_own() {
    let mut names: Vec<String> = parts().into_iter().map(|part| part.name).collect();
    let count = names.len();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), count);
}
