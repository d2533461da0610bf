//! Links the image with its own script.

fn main() {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/gear2.ld");
    println!("cargo:rustc-link-arg-bins=-T{script}");
    println!("cargo:rerun-if-changed={script}");
}
