//! The places of the protections.

use std::fs;

use workbench::workspace;

use super::*;
use crate::change;

#[test]
fn every_protection_is_where_it_is_looked_for() {
    for removed in REMOVED {
        let place = removed.place();
        let file = change::file(&place).unwrap();
        let mut text = fs::read_to_string(workspace::root().join(file)).unwrap();
        for (late, change) in LATE_KICK {
            if matches!(removed.by, By::Starts) && change::file(late).unwrap() == file {
                text = change.make(late, &text).unwrap();
            }
        }
        removed.change.make(&place, &text).unwrap();
    }
    for (late, change) in LATE_KICK {
        let file = workspace::root().join(change::file(late).unwrap());
        change
            .make(late, &fs::read_to_string(file).unwrap())
            .unwrap();
    }
}
