//! No code: `Cargo.toml` asks for features of crates from crates.io.
//!
//! Cargo compiles a crate, and all crates above it, once for each set of features, and takes the set
//! from the packages that a command names. Without this package, `cargo xtask`, the suite, the unit
//! tests, the documents and each test of a planted bug would have sets of their own, and a run from
//! a fresh clone would compile a hundred crates twice. Members that are built alone depend on it.
