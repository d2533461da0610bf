//! Links every guest as a position-independent flat image.

fn main() {
    let root = std::env::var("CARGO_MANIFEST_DIR").expect("cargo sets CARGO_MANIFEST_DIR");
    println!("cargo:rerun-if-env-changed=CARGO_MANIFEST_DIR");
    println!("cargo:rerun-if-changed=guest.ld");
    for argument in [
        &format!("-T{root}/guest.ld"),
        // Relative relocations for every pointer in data, which the entry code applies: the
        // code itself is position-independent, since AArch64 addresses it by PC.
        "-pie",
        // Constants that hold pointers stay in read-only sections; nothing is read-only before
        // the relocations are applied.
        "-znotext",
        "--no-dynamic-linker",
        "--build-id=none",
    ] {
        println!("cargo:rustc-link-arg-bins={argument}");
    }
}
