//! The measurements: path lengths (`bench`), how late a real-time program wakes up (`jitter`), and
//! the longest ways through Gear1 (`worst-cases`).
//!
//! `tests/suite` runs each in short; the commands are in `main.rs`.

// The macros shadow `println!` and its like: they end the program quietly when the reader of the
// output has left.
#[macro_use]
extern crate workbench;

pub mod bench;
pub mod jitter;
pub mod kvm_host;
mod plugin;
pub mod report;
pub mod worst_cases;
pub mod xen;
