//! Checks of all bugs that need no build of one: every change applies, and every citation
//! stands.

use std::collections::BTreeSet;
use std::fs;

use workbench::workspace;

use super::list::bugs;
use super::{SAMPLE, score};
use crate::change;
use crate::requirements::Requirements;

/// The code moves under its bugs. A change that no longer applies would only be noticed by
/// `--slow`, one part for each; here all of them are told at once. A name that stands twice would
/// share one outcome.
#[test]
fn every_bug_has_its_place() {
    let mut names = BTreeSet::new();
    let mut nowhere = Vec::new();
    for bug in bugs() {
        let planted = change::file(bug.name).and_then(|file| {
            let good = fs::read_to_string(workspace::root().join(file))?;
            bug.change.make(bug.name, &good)
        });
        if let Err(error) = planted {
            nowhere.push(format!("{error:#}"));
        }
        assert!(names.insert(bug.name), "{} stands twice", bug.name);
    }
    assert!(nowhere.is_empty(), "{nowhere:#?}");
    assert!(SAMPLE.iter().all(|name| names.contains(name)));
}

/// A requirement is shown by tests that cite it. A bug that another test finds says nothing about
/// those.
#[test]
fn every_bug_is_found_by_a_test_that_cites_the_requirement() {
    let requirements = Requirements::read().unwrap();
    for bug in bugs() {
        for id in bug.breaks {
            assert!(
                requirements.is_cited_by(id, bug.test),
                "{}: {} does not cite {id}",
                bug.name,
                bug.test
            );
        }
    }
}

/// A requirement that is new has neither bug nor reason, and fails here until somebody decides. The
/// two exclude each other: a reason for having no bug is false beside one.
#[test]
fn every_requirement_has_a_bug_or_a_reason() {
    let requirements = Requirements::read().unwrap();
    let broken: BTreeSet<&str> = bugs().flat_map(|bug| bug.breaks).copied().collect();
    for id in requirements.identifiers() {
        let is_without = score::WITHOUT.iter().any(|(without, _)| *without == id);
        assert_ne!(broken.contains(id), is_without, "{id}");
    }
}
