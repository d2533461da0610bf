//! Passes the link script; tracks its changes and those of the runtime that init carries.
//!
//! Requirements: G1-RUN-001.
fn main() {
    let script = format!("{}/gear1-init.ld", env!("CARGO_MANIFEST_DIR"));
    println!("cargo:rerun-if-changed={script}");
    println!("cargo:rustc-link-arg-bins=-T{script}");
    // An ADRP at the end of a page may give a wrong address on the Cortex-A53 (docs/errata.md).
    println!("cargo:rustc-link-arg-bins=--fix-cortex-a53-843419");
    println!("cargo:rerun-if-env-changed=GEAR1_RUNTIME_BIN");
    println!("cargo:rerun-if-env-changed=GEAR1_RUNTIME_GICV2_BIN");
}
