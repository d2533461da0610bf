//! Each fault is found.

use std::collections::{BTreeMap, BTreeSet};

use super::{Requirements, identifiers};

const PAGE: &str = "| ID | Gear1 shall |
|---|---|
| G1-ABC-001 | do this. |
| G1-ABC-002 | do that. By review: no machine shows it. |
";

fn empty() -> Requirements {
    Requirements {
        stated: BTreeMap::new(),
        silent: Vec::new(),
        unknown: BTreeSet::new(),
        doubled: Vec::new(),
    }
}

/// Two requirements that are met and shown.
fn sound() -> Requirements {
    let mut requirements = empty();
    requirements.state(PAGE);
    requirements.cite("gear1/core/src/a.rs", "//! G1-ABC-001, G1-ABC-002");
    requirements.cite("gear1/core/src/a/tests.rs", "/// G1-ABC-001: so.");
    requirements
}

#[test]
fn a_sound_set_has_no_faults() {
    assert_eq!(sound().faults(), Vec::<String>::new());
    let matrix = sound().matrix();
    assert!(matrix.contains("| G1-ABC-002 | `gear1/core/src/a.rs` | by review |"));
    assert!(matrix.ends_with("2 requirements, 1 of them by review alone.\n"));
}

#[test]
fn every_fault_is_named() {
    let mut requirements = empty();
    requirements.state(PAGE);
    let faults = requirements.faults();
    assert_eq!(
        faults,
        [
            "G1-ABC-001: no module cites it",
            "G1-ABC-001: no test cites it",
            "G1-ABC-002: no module cites it"
        ]
    );
    let mut requirements = sound();
    requirements.state(PAGE);
    assert!(
        requirements
            .faults()
            .contains(&"G1-ABC-001: stated twice".into())
    );
    let mut requirements = sound();
    requirements.cite("tests/guests/src/bin/x.rs", "G1-XYZ-009");
    requirements.cite("gear1/runtime/src/y.rs", "fn y() {}");
    assert_eq!(
        requirements.faults(),
        [
            "tests/guests/src/bin/x.rs: G1-XYZ-009 is not stated anywhere",
            "gear1/runtime/src/y.rs: cites no requirement"
        ]
    );
}

#[test]
fn identifiers_are_found_whole() {
    let found: Vec<&str> = identifiers("(G1-MEM-014), G1-GIC-9 G1--001 G1-RT-002.").collect();
    assert_eq!(found, ["G1-MEM-014", "G1-RT-002"]);
}
