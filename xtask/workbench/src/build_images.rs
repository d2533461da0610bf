//! `cargo xtask build`: Gear1's image and the archive that a manifest describes.
//!
//! The order is forced: Gear1's runtime is linked first, since init embeds it; Gear2 and the
//! payloads are archive members.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use anyhow::{Context as _, Result, bail};
use gearv_manifest::Privilege;

use crate::archive::build_archive;
use crate::artifact::Artifact;
use crate::cache::sha256_of;
use crate::expect::Session;
use crate::flatten::{flatten, replace};
use crate::manifest::{self, Compiled};
use crate::progress::Step;
use crate::qemu::{Boot, Console, Machine, Qemu};
use crate::tools::Tools;
use crate::trace::OTHER_GEAR1;
use crate::workspace::Built;
use crate::{
    apps_userland, device_userland, guest_userland, initramfs, jitter_userland, payloads,
    served_userland, symbolize, uio_userland, wake_userland, workspace,
};

/// Files that a machine is started with, and the manifest that they were made from. Paths and not
/// bytes: QEMU reads files.
pub struct Images {
    /// Gear1, init and runtime in one file, with the arm64 Linux image header.
    pub gear1: PathBuf,
    /// The manifest, Gear2 and all payloads.
    pub archive: PathBuf,
    /// The manifest, compiled.
    pub manifest: Compiled,
}

/// First line of the dump that ends the runtime. Printed by the runtime's dump; tests wait for it.
pub const HALT: &str = "gear1: HALT";
/// Last line of init after a refusal. Printed by init.
pub const STOPPED: &str = "no guest was started";
/// Lines after which a machine never recovers: a halt, init's last words after a refusal, and
/// U-Boot's when its script fails. No check of a machine in this state says anything.
pub const FATAL: &[&str] = &[HALT, STOPPED, "SCRIPT FAILED"];
/// Most lines shown of a failed machine's output. Enough for a dump with what `symbolize` adds.
const TAIL_LINES: usize = 60;

impl Images {
    /// Starts the machine for a program to drive. Every caller gives up on the same lines.
    pub fn start(&self, qemu: &Qemu, machine: &Machine, log: &Path) -> Result<Session> {
        self.start_by(qemu.command(machine, &self.boot(), Console::Pipes), log)
    }

    /// Starts the machine with a command that was made from [`Images::boot`], for a program to
    /// drive. For callers that add options of QEMU's.
    pub fn start_by(&self, command: Command, log: &Path) -> Result<Session> {
        let mut session = Session::start(command, log)?;
        session.give_up_on(FATAL);
        Ok(session)
    }

    /// Returns what QEMU is to load. The archive is passed as an initrd, as boot loaders of boards
    /// do.
    pub fn boot(&self) -> Boot<'_> {
        Boot {
            kernel: &self.gear1,
            initrd: Some(&self.archive),
            command_line: None,
        }
    }
}

/// Returns the last words of a machine that failed, explained if Gear1 halted. A dump without names
/// of functions would have to be run through `symbolize` by hand.
pub fn last_words(session: &Session) -> String {
    let tail = session.tail(TAIL_LINES);
    match tail.contains(HALT) {
        true => symbolize::explain(&tail).unwrap_or(tail),
        false => tail,
    }
}

/// Builds the images of a manifest. Paths on standard output, for scripts.
pub fn command(manifest: Option<PathBuf>) -> Result<()> {
    let images = build(&manifest.unwrap_or_else(default_manifest))?;
    println!("{}\n{}", images.gear1.display(), images.archive.display());
    Ok(())
}

/// Returns the manifest that is taken when none is named: the whole system. The whole system is
/// what a new user should see first.
pub fn default_manifest() -> PathBuf {
    workspace::root().join("manifests/qemu-virt.dts")
}

/// Returns the manifest of the smallest system. Boots fastest: for tests that need any machine.
pub fn smallest_manifest() -> PathBuf {
    workspace::root().join("manifests/minimal.dts")
}

/// Contents of an archive. What a test may exchange, such as Gear2 or a file of the archive.
pub struct Parts {
    /// Manifest and the files that it names.
    pub manifest: Compiled,
    /// Gear2's flat image.
    pub gear2: PathBuf,
    /// Directory for additional files.
    pub out_dir: PathBuf,
}

/// Builds everything that `manifest` needs.
pub fn build(manifest: &Path) -> Result<Images> {
    build_below("", manifest)
}

/// Builds everything that `manifest` needs, in a directory below `folder`: another process may
/// build the same manifest at the same time. For tests that run side by side.
pub fn build_below(folder: &str, manifest: &Path) -> Result<Images> {
    let name = Path::new(folder).join(output_name(manifest)?);
    build_edited(manifest, &name, |_, _| Ok(()))
}

/// Builds the images of `manifest`, after applying `edit`, into the directory `name`. Tests damage
/// parts here, as a broken build would.
pub fn build_edited(
    manifest: &Path,
    name: &Path,
    edit: impl FnOnce(&mut Parts, &Tools) -> Result<()>,
) -> Result<Images> {
    Plan::of(manifest, name)?.build(edit)
}

/// Returns the name of the directory for a manifest's images and disks. Manifests of one name in
/// two folders have two; a manifest of the repository has the name of its file. The hash keeps the
/// name of a person's file from meeting one of ours.
pub fn output_name(manifest: &Path) -> Result<OsString> {
    let stem = manifest.file_stem();
    let mut name = stem.context("the manifest has no file name")?.to_owned();
    let Ok(path) = manifest.canonicalize() else {
        bail!("there is no manifest {}", manifest.display());
    };
    let folder = path.parent().unwrap_or(&path);
    if !is_ours(folder) {
        let hash = sha256_of(path.as_os_str().as_encoded_bytes())?;
        name.push(format!("-{}", hash.get(..HASH_DIGITS).unwrap_or_default()));
    }
    Ok(name)
}

/// Tells whether manifests of the repository, or those that xtask writes, lie in a folder.
/// Canonical paths are compared, for a link may lead to the repository.
fn is_ours(folder: &Path) -> bool {
    let ours = ["manifests", "tests/manifests"].map(|ours| workspace::root().join(ours));
    let mut ours = ours.into_iter().chain([workspace::output_dir()]);
    ours.any(|ours| ours.canonicalize().is_ok_and(|ours| ours == folder))
}

/// Digits of the hash that tells manifests of one name apart. Enough for the manifests of one
/// person.
const HASH_DIGITS: usize = 8;

/// A manifest that keeps all rules, before anything is built. Everything that can be refused is
/// refused before a compiler runs.
pub struct Plan {
    /// The manifest, compiled.
    pub manifest: Compiled,
    /// Found before the manifest was compiled, and used for guests' trees.
    tools: Tools,
    out_dir: PathBuf,
}

impl Plan {
    /// Judges a manifest whose images are to lie where [`build`] puts them. The folder is that of
    /// [`build`].
    pub fn new(manifest: &Path) -> Result<Plan> {
        Plan::of(manifest, output_name(manifest)?.as_ref())
    }

    /// Judges a manifest whose images are to lie in the folder `name` of the output. A file that
    /// the manifest names and that is not there is an error before anything is built. Judging comes
    /// before building: errors of a manifest take a second to see.
    fn of(manifest: &Path, name: &Path) -> Result<Plan> {
        let tools = Tools::prepare()?;
        let out_dir = workspace::output_dir().join(name);
        fs::create_dir_all(&out_dir)?;
        let manifest = manifest::compile(manifest, &tools, &out_dir)?;
        manifest.check_files(&tools, &resolve)?;
        Ok(Plan {
            manifest,
            tools,
            out_dir,
        })
    }

    /// Builds the images, after applying `edit`. Gears are built once a process, and archives for
    /// each manifest.
    pub fn build(self, edit: impl FnOnce(&mut Parts, &Tools) -> Result<()>) -> Result<Images> {
        let Plan {
            manifest,
            tools,
            out_dir,
        } = self;
        let (gear1, gear2) = gears()?;
        let archive = out_dir.join("archive.cpio");
        let mut parts = Parts {
            manifest,
            gear2,
            out_dir,
        };
        if parts.manifest.privilege == Privilege::El1 {
            parts.gear2 = build_gear2("el1")?;
        }
        edit(&mut parts, &tools)?;
        let Parts {
            manifest,
            gear2,
            out_dir: _,
        } = parts;
        manifest.check_entries(&tools, &resolve)?;
        let archive = build_archive(&manifest, &gear2, &resolve, &tools, &archive)?;
        Ok(Images {
            gear1,
            archive,
            manifest,
        })
    }
}

/// Returns the flat images of Gear1 and Gear2, which are built once a run. Tests ask for them again
/// and again.
pub fn gears() -> Result<(PathBuf, PathBuf)> {
    /// cargo would find nothing to do, and take seconds to say so.
    static BUILT: OnceLock<(PathBuf, PathBuf)> = OnceLock::new();
    if let Some(gears) = BUILT.get() {
        return Ok(gears.clone());
    }
    let gears = build_gears()?;
    Ok(BUILT.get_or_init(|| gears).clone())
}

/// Returns the flat image of the runtime that init takes for a GIC of this version. The file that
/// init embeds, for measurements of its size.
pub fn runtime(gic_version: u32) -> Result<PathBuf> {
    gears()?;
    let name = match gic_version {
        2 => "gear1-runtime-gicv2.bin",
        _ => "gear1-runtime.bin",
    };
    Ok(workspace::output_dir().join(name))
}

/// init embeds both runtimes, hence the order.
fn build_gears() -> Result<(PathBuf, PathBuf)> {
    let out_dir = workspace::output_dir();
    fs::create_dir_all(&out_dir)?;
    let step = Step::over("building Gear1 and Gear2");
    let runtime = build_runtime()?;
    let gear1 = build_init(&runtime, &build_runtime_gicv2()?)?;
    let image = out_dir.join("gear1.img");
    replace(&image, &fs::read(gear1)?)?;
    let gear2 = flat_bare("gear2", "gear2", &[])?;
    let sizes = [&image, &runtime, &gear2].map(|path| fs::metadata(path).map_or(0, |m| m.len()));
    let [image_bytes, runtime_bytes, gear2_bytes] = sizes;
    step.done(&format!(
        "built Gear1 ({image_bytes} bytes, {runtime_bytes} of them stay) and Gear2 ({gear2_bytes} bytes)"
    ));
    Ok((image, gear2))
}

/// Builds Gear1's init with the runtimes that it embeds, for a GICv3 and for a GICv2. By
/// environment variables, since cargo knows no dependency on another package's binary.
fn build_init(runtime: &Path, gicv2: &Path) -> Result<PathBuf> {
    let init = [
        ("GEAR1_RUNTIME_BIN", runtime),
        ("GEAR1_RUNTIME_GICV2_BIN", gicv2),
    ];
    flat_bare("gear1-init", "gear1-init", &init)
}

/// Builds Gear1's runtime and returns its flat image, which init embeds. The GICv3's.
pub fn build_runtime() -> Result<PathBuf> {
    flat_bare("gear1-runtime", "gear1-runtime", &[])
}

/// Builds Gear1's runtime with a feature in the feature's own target directory, as
/// [`build_gear1_of`] does. Only compiled, to see that a feature builds.
pub fn build_runtime_with(feature: &str) -> Result<()> {
    let features = format!("image,{feature}");
    flat_of(workspace::root(), feature, "gear1-runtime", &features, &[])?;
    Ok(())
}

/// Builds Gear1's runtime for boards with a GICv2. A target directory of its own: features would
/// else rebuild the other one each time.
pub fn build_runtime_gicv2() -> Result<PathBuf> {
    let target_dir = workspace::target_dir().join("gicv2");
    let elf = workspace::build_bare_in(
        &target_dir,
        "gear1-runtime",
        "gear1-runtime",
        "image,gicv2",
        &[],
    )?;
    let flat = workspace::output_dir().join("gear1-runtime-gicv2.bin");
    flatten(&elf, &flat)?;
    Ok(flat)
}

/// Builds a Gear1 of its own, from another copy of the workspace or with features of the runtime:
/// `name` is its target directory. Its runtime for a GICv2 is the usual one. For planted bugs and
/// checking builds, which change the runtime.
pub fn build_gear1_of(root: &Path, name: &str, features: &str) -> Result<PathBuf> {
    let usual = runtime(2)?;
    let runtime = flat_of(root, name, "gear1-runtime", features, &[])?;
    let init = [
        ("GEAR1_RUNTIME_BIN", runtime.as_path()),
        ("GEAR1_RUNTIME_GICV2_BIN", usual.as_path()),
    ];
    let image = flat_of(root, name, "gear1-init", "image", &init)?;
    let other = workspace::output_dir().join(name).join(OTHER_GEAR1);
    fs::rename(image, &other)?;
    Ok(other)
}

/// Builds a Gear1 with another runtime, but does not rebuild init: the image gets the other runtime
/// in place of its own, if there is room. init takes longer to build than the runtime, which is a
/// blob in it: an exchange of the blob is enough where it fits.
pub fn build_runtime_of(root: &Path, name: &str, features: &str) -> Result<PathBuf> {
    let usual = fs::read(runtime(3)?)?;
    let other = fs::read(flat_of(root, name, "gear1-runtime", features, &[])?)?;
    let mut image = fs::read(gears()?.0)?;
    if exchange(&mut image, &usual, &other).is_none() {
        return build_gear1_of(root, name, features);
    }
    let path = workspace::output_dir().join(name).join(OTHER_GEAR1);
    fs::write(&path, image)?;
    Ok(path)
}

/// Puts `new` where `old` lies, once, in `image`, with zeros behind it. Once: a second place would
/// be another image with equal bytes.
fn exchange(image: &mut [u8], old: &[u8], new: &[u8]) -> Option<()> {
    let at = image.windows(old.len()).position(|part| part == old)?;
    let place = image.get_mut(at..at + old.len())?;
    let (start, rest) = place.split_at_mut_checked(new.len())?;
    start.copy_from_slice(new);
    rest.fill(0);
    Some(())
}

/// Builds a bare-metal binary of a copy of the workspace and returns its flat image. What is for a
/// debugger is left out: nobody looks it up there, and it is a third of the linker's work. Names of
/// functions stay, which a dump needs.
fn flat_of(
    root: &Path,
    name: &str,
    bin: &str,
    features: &str,
    env: &[(&str, &Path)],
) -> Result<PathBuf> {
    let target_dir = workspace::target_dir().join(name);
    let out_dir = workspace::output_dir().join(name);
    fs::create_dir_all(&out_dir)?;
    let mut env = env.to_vec();
    env.push(("CARGO_PROFILE_IMAGE_DEBUG", Path::new("0")));
    let elf = workspace::build_bare_of(root, &target_dir, bin, bin, features, &env)?;
    let flat = out_dir.join(format!("{bin}.bin"));
    flatten(&elf, &flat)?;
    Ok(flat)
}

/// Builds Gear2 with a feature of it. Gear2 at EL1, or one that fails on request.
pub fn build_gear2(feature: &str) -> Result<PathBuf> {
    let target_dir = workspace::target_dir().join(feature);
    let features = format!("image,{feature}");
    let elf = workspace::build_bare_in(&target_dir, "gear2", "gear2", &features, &[])?;
    let flat = workspace::output_dir().join(format!("gear2-{feature}.bin"));
    flatten(&elf, &flat)?;
    Ok(flat)
}

/// Builds a bare-metal test guest, once a process, and returns its flat image. All guests are one
/// package with a binary each.
pub fn build_guest(bin: &str) -> Result<PathBuf> {
    static BUILT: Built<PathBuf> = Built::new();
    BUILT.get(bin, || flat_bare("test-guests", bin, &[]))
}

/// Builds a bare-metal binary and returns its flat image, `target/gearv/<bin>.bin`. Flat images are
/// the format of init's loader: header, text, constants, data.
fn flat_bare(package: &str, bin: &str, env: &[(&str, &Path)]) -> Result<PathBuf> {
    let elf = workspace::build_bare(package, bin, env)?;
    let out_dir = workspace::output_dir();
    fs::create_dir_all(&out_dir)?;
    let flat = out_dir.join(format!("{bin}.bin"));
    flatten(&elf, &flat)?;
    Ok(flat)
}

/// Makes the file that a manifest calls by the name of an artifact. One match for all names, so
/// that an artifact without a maker does not compile.
fn resolve(name: &str) -> Result<PathBuf> {
    let out_dir = workspace::output_dir();
    match Artifact::named(name).with_context(|| format!("there is no artifact {name:?}"))? {
        Artifact::DebianKernel => payloads::debian_kernel(),
        Artifact::DebianKernel6_1 => payloads::debian_kernel_6_1(),
        Artifact::DebianRtKernel => payloads::debian_rt_kernel(),
        Artifact::BusyboxInitramfs => initramfs::build(&out_dir),
        Artifact::StressInitramfs => initramfs::with_stress(&out_dir),
        Artifact::PeripheralsInitramfs => initramfs::with_peripherals(&out_dir),
        Artifact::UioInitramfs => uio_userland::initramfs(&out_dir),
        Artifact::DeviceInitramfs => device_userland::build(&out_dir),
        Artifact::BackendsInitramfs => device_userland::build_with_backends(&out_dir),
        Artifact::HostileInitramfs => device_userland::build_with_hostile_code(&out_dir),
        Artifact::GuestInitramfs => guest_userland::initramfs(&out_dir),
        Artifact::DesktopInitramfs => guest_userland::desktop_initramfs(&out_dir),
        Artifact::WakeInitramfs => wake_userland::initramfs(&out_dir),
        Artifact::BenchInitramfs => served_userland::initramfs(&out_dir),
        Artifact::AppsInitramfs => apps_userland::initramfs(&out_dir),
        Artifact::JitterInitramfs => jitter_userland::initramfs(&out_dir),
        Artifact::FailingGear2 => build_gear2("fault-injection"),
        Artifact::Guest(bin) => build_guest(&bin),
    }
}

#[cfg(test)]
mod tests;
