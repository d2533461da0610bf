//! Passes the link script; tracks its changes.
fn main() {
    let script = format!("{}/gear1-runtime.ld", env!("CARGO_MANIFEST_DIR"));
    println!("cargo:rerun-if-changed={script}");
    println!("cargo:rustc-link-arg-bins=-T{script}");
}
