use workbench::workspace;

use super::*;

fn source(file: &str) -> String {
    let file = workspace::root().join("gear1").join(file);
    fs::read_to_string(file).expect("it can be read")
}

#[test]
fn every_protection_is_where_it_is_looked_for() {
    for removed in REMOVED {
        let mut text = source(removed.file);
        if let By::Starts = removed.by {
            for (_, from, to) in LATE_KICK.iter().filter(|edit| edit.0 == removed.file) {
                text = text.replace(from, to);
            }
        }
        assert_eq!(text.matches(removed.from).count(), 1, "{}", removed.name);
    }
    for (file, from, _) in LATE_KICK {
        assert_eq!(source(file).matches(from).count(), 1, "{from}");
    }
}
