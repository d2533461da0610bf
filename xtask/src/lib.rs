//! The commands of `cargo xtask` that a user of GearV needs, one module each.
//!
//! The tests call them as a user does; their own commands are `tests/suite` and `tests/measure`.

// The macros shadow `println!` and its like: they end the program quietly when the reader of the
// output has left.
#[macro_use]
extern crate workbench;

pub mod audit;
pub mod check;
pub mod clean;
pub mod completions;
pub mod docs;
pub mod flash;
mod host_memory;
pub mod new_manifest;
pub mod picture;
pub mod placement;
pub mod run;
pub mod sched;
pub mod smoke;
pub mod terminal;
