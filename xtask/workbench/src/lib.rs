//! Tools that xtask, the test suite and the measurements share.
//!
//! Owns: the builds of images, the compilation of manifests to blobs and archives, downloads, the
//! start of QEMU machines and the reading of their consoles. No command line is parsed here.

// The macros of `output` stand for those of the standard library in every module below.
#[macro_use]
pub mod output;

pub mod apps_userland;
mod apt_sources;
pub mod archive;
pub mod artifact;
pub mod board;
pub mod build_images;
pub mod cache;
pub mod cargo_tool;
mod compiling;
pub mod device_userland;
mod dtb;
pub mod expect;
pub mod ext4;
pub mod fetch;
mod flatten;
mod guest_dt;
pub mod guest_userland;
pub mod initramfs;
pub mod jitter_userland;
pub mod kernel_modules;
pub mod manifest;
pub mod network;
pub mod number;
mod patience;
pub mod payloads;
pub mod programs;
pub mod progress;
pub mod qemu;
pub mod sched;
pub mod served_userland;
pub mod source;
pub mod svg;
pub mod symbolize;
pub mod tools;
pub mod trace;
pub mod tree;
pub mod uio_module;
pub mod uio_userland;
pub mod wake_userland;
pub mod workspace;
