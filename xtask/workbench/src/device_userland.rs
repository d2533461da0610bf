//! The device VM's userland: busybox, the modules of its devices and of its tools, and GDM.
//!
//! Its further set-up (bridges, taps) follows from its device tree, so one initramfs serves every
//! manifest.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::initramfs::with_busybox;
use crate::tree::Tree;
use crate::{kernel_modules, payloads, programs, workspace};

/// Line that init prints when the shell is ready.
pub const READY: &str = "GearV device VM: shell ready";

const INIT: &str = include_str!("device_userland/init.sh");

/// Modules for the board's disk, network card and keyboard, the bridge to the guests, the guests' memory, and
/// doorbells of other VMs.
/// ext4 is for inspecting an image; it requests crc32c by an alias.
const MODULES: &[&str] = &[
    "virtio_mmio",
    "virtio_blk",
    "virtio_net",
    "sdhci_of_arasan",
    "sdhci_iproc",
    "macb",
    "dp83867",
    "genet",
    "mdio_bcm_unimac",
    "broadcom",
    "crc32c_generic",
    "ext4",
    "bridge",
    "tun",
    "libnvdimm",
    "of_pmem",
    "nd_btt",
    "nd_pmem",
    "device_dax",
    "dax_pmem",
    "gpio_keys",
    "virtio_input",
    "evdev",
];
/// Modules among these that the guests' memory needs.
pub const MEMORY_MODULES: &[&str] = &[
    "libnvdimm",
    "of_pmem",
    "nd_btt",
    "nd_pmem",
    "device_dax",
    "dax_pmem",
];

/// The package of the device model.
pub const PACKAGE: &str = "device-model";
/// Ours, built for arm64 and linked statically.
const PROGRAMS: [&str; 2] = ["gdm", "gearctl"];

/// Programs that serve devices: disks and file systems, and graphics cards.
const BACKENDS: &[&str] = &["qemu-storage-daemon", "qemu-img", "virtiofsd"];
/// From QEMU's packages.
const SCREENS: &[&str] = &["vhost-user-gpu"];
/// Folder that is shared with guests, and the one in which virtiofsd has its locks.
const FOLDERS: [&str; 2] = ["srv/shared", "var/run/virtiofsd"];

/// Builds the initramfs below `out_dir` and returns its path.
pub fn build(out_dir: &Path) -> Result<PathBuf> {
    tree()?.write_initramfs(out_dir.join("device-initramfs.cpio"))
}

/// Builds the initramfs with programs of Debian's that serve devices or speak to guests, and
/// returns its path.
pub fn build_with_backends(out_dir: &Path) -> Result<PathBuf> {
    let mut tree = tree()?;
    let libraries = payloads::backends()?;
    programs::add(&mut tree, &libraries, BACKENDS)?;
    programs::add_with(&mut tree, &libraries, &payloads::screens()?, SCREENS)?;
    for folder in FOLDERS {
        tree.directory(folder);
    }
    programs::add(&mut tree, &payloads::peripherals()?, &["socat"])?;
    tree.write_initramfs(out_dir.join("backends-initramfs.cpio"))
}

/// Builds the initramfs with a device model whose process of the guest `hostile` runs code of that
/// guest, and returns its path. Tests alone use it.
pub fn build_with_hostile_code(out_dir: &Path) -> Result<PathBuf> {
    let mut tree = tree()?;
    for hostile in workspace::build_static(PACKAGE, &["gdm_hostile"])? {
        tree.program("usr/bin/gdm", fs::read(hostile)?);
    }
    tree.write_initramfs(out_dir.join("hostile-initramfs.cpio"))
}

/// Busybox, the programs and the profile: without modules, which differ.
fn tree() -> Result<Tree> {
    let mut tree = with_busybox()?;
    kernel_modules::add(&mut tree, MODULES)?;
    programs::add(&mut tree, &payloads::programs()?, &["iperf3"])?;
    add_programs(&mut tree, &PROGRAMS)?;
    tree.program("init", INIT);
    Ok(tree)
}

/// Adds programs of the device model.
pub(crate) fn add_programs(tree: &mut Tree, names: &[&str]) -> Result<()> {
    for (name, path) in names.iter().zip(workspace::build_static(PACKAGE, names)?) {
        tree.program(&format!("usr/bin/{name}"), fs::read(path)?);
    }
    Ok(())
}

/// Returns the names of all modules that are in the initramfs.
pub fn modules() -> Result<Vec<String>> {
    let mut tree = Tree::default();
    kernel_modules::add(&mut tree, MODULES)
}
