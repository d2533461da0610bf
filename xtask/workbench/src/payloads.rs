//! Payloads that GearV does not build itself: Debian's arm64 kernel and programs.
//!
//! Everything here is somebody else's build, and none is changed: figures are of what a reader can
//! install, and a stock kernel that needed a patch would refute the promise that guests run as they
//! are. Versions are those of the release that this machine runs, since its keys are the ones that
//! apt trusts.

use std::fs;
use std::io::Read as _;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::cache::Cache;
use crate::fetch::{self, Architecture, PackageSet, Wanted};
use crate::manifest::compile_text;
use crate::tools::Tools;

/// Kernel of the device VM and of most guests: the newest of its series that is configured. 6.12 is
/// the series of Debian 13 and of Debian 12's backports.
const KERNEL: PackageSet<'_> = PackageSet {
    name: "debian-kernel-6.12",
    architecture: Architecture::Arm64,
    wanted: Wanted::Kernel {
        series: "6.12",
        flavour: "arm64",
    },
    by_hand: "apt-get download linux-image-6.12…-arm64 on a Debian whose sources carry arm64",
};

/// The kernel that Debian 12 itself has. Users of Debian 12 boot it.
const KERNEL_6_1: PackageSet<'_> = PackageSet {
    name: "debian-kernel-6.1",
    architecture: Architecture::Arm64,
    wanted: Wanted::Kernel {
        series: "6.1",
        flavour: "arm64",
    },
    by_hand: "apt-get download linux-image-6.1…-arm64 on a Debian 12 whose sources carry arm64",
};

/// Kernel of the same series with PREEMPT_RT. For the figures of latency beside a real-time VM.
const KERNEL_RT: PackageSet<'_> = PackageSet {
    name: "debian-kernel-6.12-rt",
    architecture: Architecture::Arm64,
    wanted: Wanted::Kernel {
        series: "6.12",
        flavour: "rt-arm64",
    },
    by_hand: "apt-get download linux-image-6.12…-rt-arm64 on a Debian whose sources carry arm64",
};

/// Xen, to compare with: the version of this machine's Debian, 4.17 in Debian 12.
const XEN: PackageSet<'_> = PackageSet {
    name: "xen-hypervisor",
    architecture: Architecture::Arm64,
    wanted: Wanted::Newest {
        prefix: "xen-hypervisor-",
        suffix: "arm64",
    },
    by_hand: "apt-get download xen-hypervisor-…-arm64 on a Debian whose sources carry arm64",
};

/// Firmware of QEMU's `virt`, which starts a board's boot files. Boot files are tried with a real
/// boot loader.
const U_BOOT: PackageSet<'_> = PackageSet {
    name: "u-boot-qemu",
    architecture: Architecture::Host,
    wanted: Wanted::Alone("u-boot-qemu"),
    by_hand: "apt-get download u-boot-qemu",
};

/// Sources of Linux, for Renesas's device trees and for the module of `uio_module.rs`.
const KERNEL_SOURCE: PackageSet<'_> = PackageSet {
    name: "linux-source-6.12",
    architecture: Architecture::Host,
    wanted: Wanted::Alone("linux-source-6.12"),
    by_hand: "apt-get download linux-source-6.12",
};

/// Compiler of modules for the guests' kernel, and `make`, which runs the kernel's build.
const COMPILER: PackageSet<'_> = PackageSet {
    name: "arm64-compiler",
    architecture: Architecture::Host,
    wanted: Wanted::Closure(&["gcc-aarch64-linux-gnu", "make"]),
    by_hand: "sudo apt-get install gcc-aarch64-linux-gnu make",
};

/// Shell and tools of every userland, in one static program. Static, so that an initramfs needs no
/// libraries.
const BUSYBOX: PackageSet<'_> = PackageSet {
    name: "busybox-static",
    architecture: Architecture::Arm64,
    wanted: Wanted::Alone("busybox-static"),
    by_hand: "apt-get download busybox-static:arm64",
};

/// Benchmarks and loads of guests. Debian's builds, so that a result can be repeated.
const PROGRAMS: PackageSet<'_> = PackageSet {
    name: "guest-programs",
    architecture: Architecture::Arm64,
    wanted: Wanted::Closure(&["fio", "stress-ng", "rt-tests", "iperf3", "e2fsprogs"]),
    by_hand: "apt-get download fio:arm64 stress-ng:arm64 … and all that they depend on",
};

/// Apart from the others, because it brings libraries of databases.
const SYSBENCH: PackageSet<'_> = PackageSet {
    name: "sysbench",
    architecture: Architecture::Arm64,
    wanted: Wanted::Closure(&["sysbench"]),
    by_hand: "apt-get download sysbench:arm64 and all that it depends on",
};

/// A web server, a key-value store and a small compiler. Apart from the others, as memcached's
/// package wants perl.
const SERVERS: PackageSet<'_> = PackageSet {
    name: "servers",
    architecture: Architecture::Arm64,
    wanted: Wanted::Closure(&["nginx", "memcached", "tcc"]),
    by_hand: "apt-get download nginx:arm64 memcached:arm64 tcc:arm64 and all that they depend on",
};

/// Programs that serve devices by the vhost-user protocol, and the libraries of [`SCREENS`].
const BACKENDS: PackageSet<'_> = PackageSet {
    name: "vhost-user-programs",
    architecture: Architecture::Arm64,
    wanted: Wanted::Closure(&["qemu-system-common", "qemu-utils", "libvirglrenderer1"]),
    by_hand: "apt-get download qemu-system-common:arm64 qemu-utils:arm64 libvirglrenderer1:arm64 \
              and all that they depend on",
};

/// The program that serves graphics cards. Its package depends on all that QEMU's windows need,
/// which the program does not.
const SCREENS: PackageSet<'_> = PackageSet {
    name: "vhost-user-gpu",
    architecture: Architecture::Arm64,
    wanted: Wanted::Alone("qemu-system-gui"),
    by_hand: "apt-get download qemu-system-gui:arm64",
};

/// Programs that use sockets and input devices.
const PERIPHERALS: PackageSet<'_> = PackageSet {
    name: "peripheral-programs",
    architecture: Architecture::Arm64,
    wanted: Wanted::Closure(&["socat", "evtest"]),
    by_hand: "apt-get download socat:arm64 evtest:arm64 and all that they depend on",
};

/// The daemon that refreshes a watchdog.
const WATCHDOG: PackageSet<'_> = PackageSet {
    name: "watchdog-daemon",
    architecture: Architecture::Arm64,
    wanted: Wanted::Alone("watchdog"),
    by_hand: "apt-get download watchdog:arm64",
};

/// Programs that change a network card. busybox's tools cannot.
const NETWORK: PackageSet<'_> = PackageSet {
    name: "network-programs",
    architecture: Architecture::Arm64,
    wanted: Wanted::Closure(&["ethtool"]),
    by_hand: "apt-get download ethtool:arm64 and all that it depends on",
};

/// Offset of the magic in an arm64 `Image`, and the magic. Linux,
/// Documentation/arch/arm64/booting.rst.
const IMAGE_MAGIC: (usize, &[u8; 4]) = (56, b"ARM\x64");

/// Returns Debian's 6.12 kernel for arm64, an `Image`. Guests of all examples boot it.
pub fn debian_kernel() -> Result<PathBuf> {
    image(&KERNEL)
}

/// Returns Debian's 6.1 kernel for arm64. A second series shows that nothing depends on the first.
pub fn debian_kernel_6_1() -> Result<PathBuf> {
    image(&KERNEL_6_1)
}

/// Returns Debian's 6.12 kernel with PREEMPT_RT for arm64.
pub fn debian_rt_kernel() -> Result<PathBuf> {
    image(&KERNEL_RT)
}

/// Returns what the kernel with PREEMPT_RT calls itself. From the file's name: the kernel is not
/// run for it.
pub fn rt_kernel_release() -> Result<String> {
    let kernel = debian_rt_kernel()?;
    let name = kernel.file_name().unwrap_or_default().to_string_lossy();
    Ok(name.trim_start_matches("vmlinuz-").to_owned())
}

/// Returns Debian's Xen for arm64, which has the format of a kernel. The configuration and a copy
/// for UEFI lie beside it, with endings of their own.
pub fn xen() -> Result<PathBuf> {
    image_named(&XEN, "xen-", "-arm64")
}

/// Returns the kernel in a set, an `Image`. The name has the version, which changes with each
/// update.
fn image(set: &PackageSet<'_>) -> Result<PathBuf> {
    image_named(set, "vmlinuz-", "")
}

/// Returns the `Image` in a set whose name begins and ends so.
fn image_named(set: &PackageSet<'_>, start: &str, end: &str) -> Result<PathBuf> {
    let root = fetch::unpacked(&Cache::open()?, set)?;
    let kernel = fs::read_dir(root.join("boot"))?
        .flatten()
        .map(|entry| entry.path())
        .find(|path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            name.starts_with(start) && name.ends_with(end)
        })
        .with_context(|| format!("{} holds no {start}…{end}", root.display()))?;
    ensure!(
        is_arm64_image(&kernel)?,
        "{} is not an arm64 Image",
        kernel.display()
    );
    Ok(kernel)
}

/// Returns the Raspberry Pi 4's device tree, as that kernel's package has it. The board's firmware
/// changes it before it passes it on.
pub fn rpi4_device_tree() -> Result<PathBuf> {
    device_tree("broadcom/bcm2711-rpi-4-b.dtb")
}

/// Returns the ZCU102's device tree, as that kernel's package has it.
pub fn zcu102_device_tree() -> Result<PathBuf> {
    device_tree("xilinx/zynqmp-zcu102-rev1.0.dtb")
}

/// Returns the i.MX 8M Plus EVK's device tree, as that kernel's package has it.
pub fn imx8mp_evk_device_tree() -> Result<PathBuf> {
    device_tree("freescale/imx8mp-evk.dtb")
}

/// Returns a device tree of the kernel's package, by its path there. Trees lie beside the kernel
/// that they are for.
fn device_tree(name: &str) -> Result<PathBuf> {
    let root = fetch::unpacked(&Cache::open()?, &KERNEL)?;
    let trees = root
        .join("usr/lib")
        .join(format!("linux-image-{}", kernel_release()?));
    let tree = trees.join(name);
    ensure!(tree.is_file(), "{} does not exist", tree.display());
    Ok(tree)
}

/// Compiles the H3ULCB's device tree from the source of Debian's kernel, a download of 150 MB;
/// `scratch` is a folder for intermediate files. The C preprocessor comes first, as in the kernel's
/// build.
pub fn rcar_h3_device_tree(tools: &Tools, scratch: &Path) -> Result<PathBuf> {
    let source = scratch.join("source");
    unpack_renesas_trees(&source)?;
    let text = preprocess(&source, "r8a77951-ulcb.dts")?;
    let blob = compile_text(&text, tools, &scratch.join("h3ulcb.dtb"))?;
    let tree = scratch.join("r8a77951-ulcb.dtb");
    fs::write(&tree, blob)?;
    Ok(tree)
}

/// Sources of Renesas's device trees, below the kernel's.
const RENESAS_TREES: &str = "arch/arm64/boot/dts/renesas";

/// Unpacks the sources of Renesas's device trees, and what they include, to `source`. The archive
/// is the whole kernel's, and takes minutes and GB in full.
fn unpack_renesas_trees(source: &Path) -> Result<()> {
    let root = fetch::unpacked(&Cache::open()?, &KERNEL_SOURCE)?;
    fs::create_dir_all(source)?;
    let mut tar = Command::new("tar");
    tar.args(["--extract", "--xz", "--strip-components=1", "--wildcards"]);
    tar.arg("--file");
    tar.arg(root.join("usr/src/linux-source-6.12.tar.xz"));
    tar.arg("--directory").arg(source);
    tar.arg(format!("*/{RENESAS_TREES}"));
    tar.arg("*/include/dt-bindings");
    tar.arg("*/include/uapi/linux/input-event-codes.h");
    let ended = tar.status().context("tar cannot be run")?;
    ensure!(ended.success(), "tar ended with {ended}");
    Ok(())
}

/// Runs the C preprocessor on a device tree's source, as the kernel's own build does
/// (scripts/Makefile.lib). The options keep the host's macros out: `linux` is 1 for gcc.
fn preprocess(source: &Path, tree: &str) -> Result<String> {
    let mut cc = Command::new("cc");
    cc.args(["-E", "-P", "-nostdinc", "-undef", "-D__DTS__"]);
    cc.args(["-x", "assembler-with-cpp"]);
    cc.arg("-I").arg(source.join("include"));
    cc.arg(source.join(RENESAS_TREES).join(tree));
    let output = cc.output().context("cc cannot be run")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "cc: {}", said.trim_end());
    Ok(String::from_utf8(output.stdout)?)
}

/// Returns Debian's U-Boot for QEMU's `virt` with 64-bit CPUs.
pub fn u_boot_qemu() -> Result<PathBuf> {
    let root = fetch::unpacked(&Cache::open()?, &U_BOOT)?;
    let file = root.join("usr/lib/u-boot/qemu_arm64/u-boot.bin");
    ensure!(file.is_file(), "{} does not exist", file.display());
    Ok(file)
}

/// Returns the directory of that kernel's modules.
pub fn debian_modules() -> Result<PathBuf> {
    modules(&KERNEL)
}

/// Returns the directory of the modules of the kernel with PREEMPT_RT.
pub fn debian_rt_modules() -> Result<PathBuf> {
    modules(&KERNEL_RT)
}

/// Debian 12 has `/lib` beside `/usr/lib`, and Debian 13 merged them.
fn modules(set: &PackageSet<'_>) -> Result<PathBuf> {
    let root = fetch::unpacked(&Cache::open()?, set)?;
    ["usr/lib/modules", "lib/modules"]
        .map(|path| root.join(path))
        .into_iter()
        .find(|path| path.is_dir())
        .with_context(|| format!("{} holds no modules", root.display()))
}

/// Returns what that kernel calls itself. Tests compare it with what `uname` says in a VM.
pub fn kernel_release() -> Result<String> {
    let mut entries = fs::read_dir(debian_modules()?)?;
    let entry = entries.next().context("the kernel has no modules")??;
    Ok(entry.file_name().to_string_lossy().into_owned())
}

/// Returns where the headers of that kernel are unpacked, with the programs of its build for this
/// machine. All have the kernel's own release: a module for another one is refused by the kernel.
pub fn kernel_headers() -> Result<PathBuf> {
    let release = kernel_release()?;
    let version = release.strip_suffix("-arm64").unwrap_or(&release);
    let cache = Cache::open()?;
    let (own, common) = (
        format!("linux-headers-{release}"),
        format!("linux-headers-{version}-common"),
    );
    let build = format!("linux-kbuild-{version}");
    let headers = fetch::unpacked(
        &cache,
        &PackageSet {
            name: &own,
            architecture: Architecture::Arm64,
            wanted: Wanted::Each(&[&own, &common]),
            by_hand: &format!("apt-get download {own}:arm64 {common}"),
        },
    )?;
    let programs = fetch::unpacked(
        &cache,
        &PackageSet {
            name: &build,
            architecture: Architecture::Host,
            wanted: Wanted::Alone(&build),
            by_hand: &format!("apt-get download {build}"),
        },
    )?;
    // The headers' links lead to the programs by a path below one root.
    let link = headers.join("usr/lib").join(&build);
    if !link.exists() {
        fs::create_dir_all(headers.join("usr/lib"))?;
        let made = symlink(programs.join("usr/lib").join(&build), &link);
        made.with_context(|| link.display().to_string())?;
    }
    Ok(headers.join("usr/src"))
}

/// Returns where a compiler for the guests' kernel and `make` are unpacked, with those of their
/// libraries that this machine lacks. The folder is empty where all is installed.
pub fn compiler() -> Result<PathBuf> {
    fetch::unpacked(&Cache::open()?, &COMPILER)
}

/// Writes a file of Linux' source, by its path there, into a folder. The archive is unpacked up to
/// that file only.
pub fn kernel_source_file(path: &str, folder: &Path) -> Result<()> {
    let root = fetch::unpacked(&Cache::open()?, &KERNEL_SOURCE)?;
    let directories = Path::new(path).components().count();
    let mut tar = Command::new("tar");
    tar.args(["--extract", "--xz", "--occurrence=1", "--file"]);
    tar.arg(root.join("usr/src/linux-source-6.12.tar.xz"));
    tar.arg(format!("--strip-components={directories}"));
    tar.arg("--directory").arg(folder);
    tar.arg(format!("linux-source-6.12/{path}"));
    let ended = tar.status().context("tar cannot be run")?;
    ensure!(ended.success(), "tar ended with {ended} at {path}");
    Ok(())
}

/// Returns where Debian's benchmarks for arm64 and all their libraries are unpacked. Programs come
/// with the libraries that they were linked to, so that a guest's root has no others.
pub fn programs() -> Result<PathBuf> {
    fetch::unpacked(&Cache::open()?, &PROGRAMS)
}

/// Returns where sysbench for arm64 and all its libraries are unpacked.
pub fn sysbench() -> Result<PathBuf> {
    fetch::unpacked(&Cache::open()?, &SYSBENCH)
}

/// Returns where nginx, memcached and tcc for arm64 and all their libraries are unpacked.
pub fn servers() -> Result<PathBuf> {
    fetch::unpacked(&Cache::open()?, &SERVERS)
}

/// Returns where programs for arm64 that serve devices, and all their libraries, are unpacked.
pub fn backends() -> Result<PathBuf> {
    fetch::unpacked(&Cache::open()?, &BACKENDS)
}

/// Returns where the program for arm64 that serves graphics cards is unpacked; its libraries are
/// among those of [`backends`].
pub fn screens() -> Result<PathBuf> {
    fetch::unpacked(&Cache::open()?, &SCREENS)
}

/// Returns where programs for arm64 that use sockets and input devices are unpacked.
pub fn peripherals() -> Result<PathBuf> {
    fetch::unpacked(&Cache::open()?, &PERIPHERALS)
}

/// Returns where the daemon for arm64 that refreshes a watchdog is unpacked; its libraries are
/// among those of [`peripherals`].
pub fn watchdog() -> Result<PathBuf> {
    fetch::unpacked(&Cache::open()?, &WATCHDOG)
}

/// Returns where programs for arm64 that change a network card are unpacked.
pub fn network() -> Result<PathBuf> {
    fetch::unpacked(&Cache::open()?, &NETWORK)
}

/// Tells whether a kernel has the header of Documentation/arch/arm64/booting.rst: init loads no
/// other format of a kernel. A newer Debian may compress its kernels, which would fail at the boot
/// only.
fn is_arm64_image(kernel: &Path) -> Result<bool> {
    let mut header = [0; 64];
    fs::File::open(kernel)?.read_exact(&mut header)?;
    let (at, magic) = IMAGE_MAGIC;
    Ok(&header[at..at + magic.len()] == magic)
}

/// Returns the busybox binary for arm64, linked statically. The place moved with the merge of
/// `/bin` into `/usr/bin`.
pub fn busybox() -> Result<PathBuf> {
    let root = fetch::unpacked(&Cache::open()?, &BUSYBOX)?;
    ["usr/bin/busybox", "bin/busybox"]
        .map(|path| root.join(path))
        .into_iter()
        .find(|path| path.is_file())
        .with_context(|| format!("{} holds no busybox", root.display()))
}
