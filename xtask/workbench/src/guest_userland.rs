//! The userland of a guest with a disk: an initramfs that finds the disk, and the disk.

use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::initramfs::with_busybox;
use crate::{ext4, kernel_modules, payloads, programs};

/// Waits for the disk, mounts it, and hands over: a kernel that has its drivers as modules cannot
/// do that itself.
const INIT: &str = include_str!("guest_userland/init.sh");
/// The init of the disk's root file system, to which the initramfs hands over.
const ROOT_INIT: &str = include_str!("guest_userland/root-init.sh");

/// The guest's devices with its watchdog, and its file system, which asks for crc32c by an alias.
const MODULES: &[&str] = &[
    "virtio_mmio",
    "virtio_blk",
    "virtio_net",
    "virtio_rng",
    "sbsa_gwdt",
    "gpio_keys",
    "evdev",
    "crc32c_generic",
    "ext4",
];

/// Modules of the devices that a desktop has beside those; that of shared folders is in the kernel.
const DESKTOP_MODULES: &[&str] = &["virtio_gpu", "virtio_input", "vmw_vsock_virtio_transport"];

/// Programs on the disk beside busybox.
const PROGRAMS: &[&str] = &[
    "fio",
    "stress-ng",
    "iperf3",
    "cyclictest",
    "hackbench",
    "cyclicdeadline",
    "signaltest",
    "e2fsck",
    "mke2fs",
    "dumpe2fs",
    "tune2fs",
    "filefrag",
];
/// Programs on the disk that use sockets and input devices.
const PERIPHERAL_PROGRAMS: &[&str] = &["socat", "evtest"];

/// Size of a guest's disk. Room for the programs, and for the files that tests write and verify.
const DISK_MIB: u64 = 512;

/// Builds the initramfs below `out_dir` and returns its path.
pub fn initramfs(out_dir: &Path) -> Result<PathBuf> {
    write(MODULES, out_dir.join("guest-initramfs.cpio"))
}

/// Builds the same with the modules of a desktop's devices. A guest without such devices boots
/// faster without them.
pub fn desktop_initramfs(out_dir: &Path) -> Result<PathBuf> {
    let modules = [MODULES, DESKTOP_MODULES].concat();
    write(&modules, out_dir.join("desktop-initramfs.cpio"))
}

/// Modules differ: a desktop needs graphics and input. The init is one: it loads what the archive
/// has.
fn write(modules: &[&str], path: PathBuf) -> Result<PathBuf> {
    let mut tree = with_busybox()?;
    kernel_modules::add(&mut tree, modules)?;
    tree.program("init", INIT);
    tree.write_initramfs(path)
}

/// Builds the disk below `out_dir` and returns its path. Of the same tree the same bytes: a test
/// may compare the disk after a run.
pub fn disk(out_dir: &Path) -> Result<PathBuf> {
    let mut tree = with_busybox()?;
    programs::add(&mut tree, &payloads::programs()?, PROGRAMS)?;
    programs::add(&mut tree, &payloads::network()?, &["ethtool"])?;
    programs::add(&mut tree, &payloads::peripherals()?, PERIPHERAL_PROGRAMS)?;
    tree.program("usr/sbin/init", ROOT_INIT);
    tree.directory("mnt");
    ext4::write(&tree, DISK_MIB, &out_dir.join("guest-rootfs.img"))
}
