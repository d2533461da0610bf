//! The userland of the papers' application benchmarks, the same wherever they run.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::initramfs::with_busybox;
use crate::{device_userland, kernel_modules, payloads, programs, workspace};

/// First process: runs what the kernel's command line names. In the tree as a script, so that an
/// editor knows its language.
const INIT: &str = include_str!("apps_userland/init.sh");
/// Programs of the device VM, which boots this initramfs too; elsewhere they are of no use.
const GEARV_PROGRAMS: [&str; 2] = ["gdm", "gearctl"];

/// Our own workloads, which are linked statically.
const PACKAGE: &str = "tests-apps";
const WORKLOAD: &str = "workload";

/// Builds the initramfs below `out_dir` and returns its path. One initramfs for the VM, for the
/// host of KVM and for the guest, since a difference of userlands would be part of each figure.
pub fn initramfs(out_dir: &Path) -> Result<PathBuf> {
    let mut tree = with_busybox()?;
    programs::add(&mut tree, &payloads::programs()?, &["fio", "hackbench"])?;
    programs::add(&mut tree, &payloads::sysbench()?, &["sysbench"])?;
    let modules = [
        device_userland::MEMORY_MODULES,
        &["virtio_mmio", "virtio_blk"],
    ]
    .concat();
    kernel_modules::add(&mut tree, &modules)?;
    device_userland::add_programs(&mut tree, &GEARV_PROGRAMS)?;
    let workload = workspace::build_static(PACKAGE, &[WORKLOAD])?;
    tree.program(&format!("usr/bin/{WORKLOAD}"), fs::read(&workload[0])?);
    tree.program("init", INIT);
    tree.write_initramfs(out_dir.join("apps-initramfs.cpio"))
}
