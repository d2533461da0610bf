//! xtask: everything a person does with GearV from the command line.
//!
//! One file per subcommand; this file only names them.

mod archive;
mod guest_dt;
mod manifest;
mod tools;

fn main() {}
