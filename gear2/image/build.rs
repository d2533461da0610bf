//! Links the image with its own script.

fn main() {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/gear2.ld");
    println!("cargo:rustc-link-arg-bins=-T{script}");
    // An ADRP at the end of a page may give a wrong address on the Cortex-A53 (docs/errata.md).
    println!("cargo:rustc-link-arg-bins=--fix-cortex-a53-843419");
    println!("cargo:rerun-if-changed={script}");
}
