use super::*;

#[test]
fn a_command_line_is_that_of_xtask() {
    let words = ["bench", "--only", "GearV EL0"].map(str::to_owned);
    assert_eq!(
        command_line(words.into_iter()),
        "cargo xtask bench --only 'GearV EL0'"
    );
}

#[test]
fn an_origin_has_commit_date_and_command() {
    let facts = Origin::now().facts();
    for (name, value) in &facts {
        assert!(!value.is_empty(), "{name}");
    }
    assert_eq!(facts.len(), 3);
    assert_eq!(first_line("no such program", &[]), "unknown");
}
