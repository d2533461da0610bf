//! Tests of the environment that cargo is given.

use std::ffi::OsStr;

use anyhow::bail;

use super::{Built, TREE, cargo};

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

/// cargo takes half a second to find nothing to do.
#[test]
fn a_file_is_built_once_and_after_a_failure_again() {
    let built = Built::new();
    let failed = built.get("a", || bail!("no compiler"));
    assert!(failed.is_err());
    assert_eq!(built.get("a", || Ok(1)).unwrap(), 1);
    assert_eq!(built.get("a", || Ok(2)).unwrap(), 1);
    assert_eq!(built.get("b", || Ok(3)).unwrap(), 3);
}
