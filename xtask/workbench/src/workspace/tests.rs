//! Tests of the environment that cargo is given.

use std::ffi::OsStr;

use super::{TREE, cargo};

/// A value that differs from that of a person's shell makes cargo run build scripts again, and
/// compile all that depends on them.
#[test]
fn a_cargo_within_cargo_compiles_nothing_again() {
    let command = cargo();
    let given = command
        .get_envs()
        .find(|(name, _)| *name == OsStr::new(TREE));
    assert_eq!(given, Some((OsStr::new(TREE), None)));
}
