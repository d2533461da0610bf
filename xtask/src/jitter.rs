//! `cargo xtask jitter`.
pub(crate) mod userland;
