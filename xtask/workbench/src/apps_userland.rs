//! The userland of the papers' application benchmarks, the same wherever they run.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::initramfs::with_busybox;
use crate::tree::Tree;
use crate::{device_userland, kernel_modules, payloads, programs, workspace};

/// First process: runs what the kernel's command line names. In the tree as a script, so that an
/// editor knows its language.
const INIT: &str = include_str!("apps_userland/init.sh");
/// The peer of the network's workloads, a program of whatever serves the measured card.
const PEER: &str = include_str!("apps_userland/peer.sh");
/// Modules of the peer's network: of the device VM's and of the native machine's.
pub const PEER_MODULES: [&str; 2] = ["bridge", "tun"];
/// Programs of the device VM, which boots this initramfs too; elsewhere they are of no use.
const GEARV_PROGRAMS: [&str; 2] = ["gdm", "gearctl"];

/// Settings of the web server: a page of 4 KiB, which init makes, and no log.
const NGINX: &str = "user root root;\nworker_processes 1;\npid /run/nginx.pid;\n\
                     error_log /dev/null;\nevents {}\n\
                     http { access_log off; server { listen 80; root /srv; } }\n";
/// Folders that Debian's build of it wants.
const NGINX_FOLDERS: [&str; 3] = ["srv", "var/lib/nginx", "var/log/nginx"];

/// Our own workloads, which are linked statically.
const PACKAGE: &str = "tests-apps";
const WORKLOAD: &str = "workload";

/// Builds the initramfs below `out_dir` and returns its path. One initramfs for the VM, for the
/// host of KVM and for the guest, since a difference of userlands would be part of each figure.
pub fn initramfs(out_dir: &Path) -> Result<PathBuf> {
    let mut tree = with_busybox()?;
    programs::add(&mut tree, &payloads::programs()?, &["fio", "hackbench"])?;
    programs::add(&mut tree, &payloads::sysbench()?, &["sysbench"])?;
    add_servers(&mut tree)?;
    let modules = [
        device_userland::MEMORY_MODULES,
        &["virtio_mmio", "virtio_blk", "virtio_net", "veth"],
        &PEER_MODULES,
    ]
    .concat();
    kernel_modules::add(&mut tree, &modules)?;
    device_userland::add_programs(&mut tree, &GEARV_PROGRAMS)?;
    add_peer(&mut tree)?;
    tree.program("init", INIT);
    tree.write_initramfs(out_dir.join("apps-initramfs.cpio"))
}

/// Adds the servers, their settings and the compiler. The user whom servers want is root, as
/// busybox has no other.
fn add_servers(tree: &mut Tree) -> Result<()> {
    let programs = ["nginx", "memcached", "tcc"];
    programs::add(tree, &payloads::servers()?, &programs)?;
    tree.file("etc/passwd", "root:x:0:0::/:/bin/sh\n");
    tree.file("etc/group", "root:x:0:\n");
    tree.file("etc/nginx.conf", NGINX);
    for folder in NGINX_FOLDERS {
        tree.directory(folder);
    }
    Ok(())
}

/// Adds our own workloads, and the peer of those that use the network.
pub fn add_peer(tree: &mut Tree) -> Result<()> {
    let workload = workspace::build_static(PACKAGE, &[WORKLOAD])?;
    tree.program(&format!("usr/bin/{WORKLOAD}"), fs::read(&workload[0])?);
    tree.program("usr/bin/peer", PEER);
    Ok(())
}
