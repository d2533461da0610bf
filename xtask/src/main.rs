//! xtask: everything a person does with GearV from the command line.
//!
//! One file per subcommand; this file only names them.

mod apt_sources;
mod archive;
mod cache;
mod fetch;
mod guest_dt;
mod manifest;
mod progress;
mod tools;

fn main() {
    println!("{:?}", tools::Tools::prepare().unwrap());
    println!("{:?}", tools::qemu(10).unwrap());
    println!("{:?}", tools::qemu(7).unwrap().command().arg("--version").status());
}
