//! The manual's table of artifacts names those that there are.

use std::fs;

use super::{Artifact, GUEST};
use crate::workspace::root;

/// Returns the names in the first column of the manual's table.
fn documented() -> Vec<String> {
    let manual = fs::read_to_string(root().join("docs/manifest.md")).unwrap();
    let (_, table) = manual.split_once("| name | file |").unwrap();
    let rows = table.lines().skip(2).take_while(|row| row.starts_with('|'));
    let cells = rows.filter_map(|row| row.split('|').nth(1));
    let names = cells.flat_map(|cell| cell.split('`').skip(1).step_by(2));
    names.map(str::to_owned).collect()
}

#[test]
fn the_manual_names_all_artifacts_and_no_other() {
    let documented = documented();
    assert!(documented.len() > 10, "{documented:?}");
    for name in Artifact::names() {
        let row = match name.starts_with(GUEST) {
            true => format!("{GUEST}NAME"),
            false => name,
        };
        assert!(
            documented.contains(&row),
            "{row} is in no row of docs/manifest.md"
        );
    }
    for name in documented.iter().filter(|name| *name != "guest:NAME") {
        assert!(
            Artifact::named(name).is_some(),
            "there is no artifact {name}"
        );
    }
}

/// Guests that the manual's text names are there.
#[test]
fn the_manual_names_guests_that_there_are() {
    let mut count = 0;
    for page in ["docs/manifest.md", "docs/rtvm.md", "docs/running.md"] {
        let text = fs::read_to_string(root().join(page)).unwrap();
        for rest in text.split("artifact:guest:").skip(1) {
            let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
            let name = rest.split(|c| !is_name(c)).next().unwrap();
            let known = Artifact::named(&format!("{GUEST}{name}")).is_some();
            assert!(known, "{page}: there is no guest {name:?}");
            count += 1;
        }
    }
    assert!(count > 0);
}
