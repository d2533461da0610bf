//! Tests of `gear1/audit.toml` as it is.

use super::*;

/// An excuse for a function that is gone excuses whatever gets its name next.
#[test]
fn each_excuse_is_of_a_function_that_its_file_has() {
    let rules = Rules::read().unwrap();
    let mut gone = Vec::new();
    for (file, functions) in &rules.coverage.excused {
        let text = fs::read_to_string(workspace::root().join(file)).unwrap_or_default();
        let is_gone = |name: &&String| !text.contains(&format!("fn {name}"));
        gone.extend(functions.keys().filter(is_gone).map(|name| (file, name)));
    }
    assert!(gone.is_empty(), "{gone:?}");
}
