//! Placeholder replaced in this commit series.
fn main() {}
