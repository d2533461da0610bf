use super::*;

#[test]
fn every_protection_is_where_it_is_looked_for() {
    for removed in REMOVED {
        let file = workspace::root().join("gear1").join(removed.file);
        let text = fs::read_to_string(file).expect("it can be read");
        assert_eq!(text.matches(removed.from).count(), 1, "{}", removed.name);
    }
}
