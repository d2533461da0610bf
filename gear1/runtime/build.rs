//! Passes the link script; tracks its changes.
//!
//! Requirements: G1-RUN-001.

use std::env;

fn main() -> Result<(), env::VarError> {
    // At run time, as cargo keeps this program when the tree moves; the old folder is gone then.
    let folder = env::var("CARGO_MANIFEST_DIR")?;
    println!("cargo:rerun-if-env-changed=CARGO_MANIFEST_DIR");
    let script = format!("{folder}/gear1-runtime.ld");
    println!("cargo:rerun-if-changed={script}");
    println!("cargo:rustc-link-arg-bins=-T{script}");
    // An ADRP at the end of a page may give a wrong address on the Cortex-A53 (docs/errata.md).
    println!("cargo:rustc-link-arg-bins=--fix-cortex-a53-843419");
    Ok(())
}
