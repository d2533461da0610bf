//! Paths in the workspace, and runs of cargo on it.

use std::collections::BTreeMap;
use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result, bail, ensure};

use crate::{compiling, output};

/// Target of all code that runs on the machine itself.
pub const BARE_TARGET: &str = "aarch64-unknown-none-softfloat";

/// Compiler flags for that target. No 64-bit multiply-accumulate right behind a memory access,
/// which may give a wrong result on the Cortex-A53 (docs/errata.md). No jump tables: without an
/// indirect branch at EL2, a guest has no branch whose target it could make a CPU mispredict, and
/// `audit` sees all ways through the code.
const BARE_FLAGS: (&str, &str) = (
    "CARGO_TARGET_AARCH64_UNKNOWN_NONE_SOFTFLOAT_RUSTFLAGS",
    "-Ctarget-feature=+fix-cortex-a53-835769 -Cllvm-args=-aarch64-min-jump-table-entries=1000000 \
     -Cllvm-args=-min-jump-table-entries=1000000 --cfg sha2_backend=\"soft\"",
);
/// Part of the compiler's complaint about this target feature, which LLVM knows and the compiler
/// does not.
const KNOWN_COMPLAINT: &str = "for `-Ctarget-feature`: `fix-cortex-a53-835769`";

/// Target of programs that run on Linux in the machine, on any kernel and without a file system.
pub const STATIC_TARGET: &str = "aarch64-unknown-linux-musl";
/// Profile of those programs in Cargo.toml.
const PROGRAM: &str = "program";

/// Returns the workspace's root.
pub fn root() -> &'static Path {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).unwrap_or(here)
}

/// Returns cargo's target directory.
pub fn target_dir() -> PathBuf {
    env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), |dir| root().join(dir))
}

/// Returns the directory of the images and logs that xtask makes.
pub fn output_dir() -> PathBuf {
    target_dir().join("gearv")
}

/// Returns the cargo that runs this program, if one does.
fn cargo_program() -> OsString {
    env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}

/// Variable by which build scripts notice that the tree has moved. cargo gives each build script
/// its own value, and compares that of cargo's own environment.
const TREE: &str = "CARGO_MANIFEST_DIR";

/// Returns cargo, to be run at the workspace's root.
pub fn cargo() -> Command {
    let mut command = cargo_here();
    command.current_dir(root());
    command
}

/// Returns cargo, to be run in the directory that the user is in. Its environment is that of a
/// cargo which a person starts: the cargo that runs this program has set [`TREE`] to this program's
/// package, and each of the two would compile again what the other has compiled.
fn cargo_here() -> Command {
    let mut command = Command::new(cargo_program());
    command.env_remove(TREE);
    command
}

/// Builds a package's program for this machine, and returns the cargo that runs it in the directory
/// that the user is in. The build says how far it is; the run says nothing of its own, as cargo
/// ends with an error where nobody reads its messages any more.
pub fn program(package: &str) -> Result<Command> {
    let manifest = root().join("Cargo.toml");
    let cargo = |verb: &[&str]| {
        let mut command = cargo_here();
        command.args(verb).args(["--package", package]);
        command.arg("--manifest-path").arg(&manifest);
        command
    };
    run_build(cargo(&["build"]), package)?;
    Ok(cargo(&["run", "--quiet"]))
}

/// Makes an empty folder for a test.
///
/// # Panics
///
/// Panics if there can be none.
pub fn scratch(test: &str) -> PathBuf {
    let folder = env::temp_dir().join(format!("gearv-{}-{test}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder below the temporary directory");
    folder
}

/// Adds the targets of the pinned toolchain that are missing; rustup does not do it by itself
/// where RUSTUP_AUTO_INSTALL is 0.
pub fn ensure_targets(targets: &[&str]) -> Result<()> {
    let missing = missing_targets(targets)?;
    if missing.is_empty() {
        return Ok(());
    }
    let mut rustup = Command::new("rustup");
    rustup
        .args(["target", "add"])
        .args(&missing)
        .current_dir(root());
    let added = rustup.status().is_ok_and(|status| status.success());
    ensure!(
        added,
        "Rust's targets {missing:?} are missing; get them with {rustup:?}"
    );
    Ok(())
}

/// Returns the targets whose libraries the toolchain lacks; a look at the disk takes less time than
/// rustup.
fn missing_targets<'t>(targets: &[&'t str]) -> Result<Vec<&'t str>> {
    let output = Command::new("rustc")
        .args(["--print", "sysroot"])
        .current_dir(root())
        .output();
    let sysroot = String::from_utf8(output.context("rustc cannot be run")?.stdout)?;
    let libraries = Path::new(sysroot.trim()).join("lib/rustlib");
    let targets = targets.iter().copied();
    Ok(targets.filter(|t| !libraries.join(t).is_dir()).collect())
}

/// Builds one binary for the bare target and returns its ELF.
pub fn build_bare(package: &str, bin: &str, env: &[(&str, &Path)]) -> Result<PathBuf> {
    build_bare_in(&target_dir(), package, bin, "image", env)
}

/// Builds a program in another target directory, for another set of features.
pub fn build_bare_in(
    target_dir: &Path,
    package: &str,
    bin: &str,
    features: &str,
    env: &[(&str, &Path)],
) -> Result<PathBuf> {
    build_bare_of(root(), target_dir, package, bin, features, env)
}

/// Builds a program of another copy of the workspace.
pub fn build_bare_of(
    root: &Path,
    target_dir: &Path,
    package: &str,
    bin: &str,
    features: &str,
    env: &[(&str, &Path)],
) -> Result<PathBuf> {
    ensure_targets(&[BARE_TARGET])?;
    let mut command = cargo();
    command.current_dir(root);
    command.args(["build", "--profile", "image", "--target", BARE_TARGET]);
    command.args(["--package", package, "--bin", bin, "--features", features]);
    command.arg("--target-dir").arg(target_dir);
    command.envs(env.iter().copied());
    // The link scripts of a tree that has moved are elsewhere.
    command.env(TREE, root);
    command.env(BARE_FLAGS.0, BARE_FLAGS.1);
    run_build(command, bin)?;
    Ok(target_dir.join(BARE_TARGET).join("image").join(bin))
}

/// Files that this process has built, by what they were built from.
///
/// cargo would find nothing to do, and take half a second to say so; the tests ask some hundred
/// times.
pub(crate) struct Built<T>(Mutex<BTreeMap<String, T>>);

impl<T: Clone> Built<T> {
    /// Makes the record of a process that has built nothing.
    pub(crate) const fn new() -> Built<T> {
        Built(Mutex::new(BTreeMap::new()))
    }

    /// Returns what was built for `key`, or builds it. A build that failed is tried again.
    pub(crate) fn get(&self, key: &str, build: impl FnOnce() -> Result<T>) -> Result<T> {
        let mut built = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = built.get(key) {
            return Ok(found.clone());
        }
        let made = build()?;
        built.insert(key.to_owned(), made.clone());
        Ok(made)
    }
}

/// Builds static Linux programs, once a process, and returns them in the order of `bins`.
pub fn build_static(package: &str, bins: &[&str]) -> Result<Vec<PathBuf>> {
    static BUILT: Built<Vec<PathBuf>> = Built::new();
    let key = format!("{package} {}", bins.join(" "));
    BUILT.get(&key, || compile_static(package, bins))
}

/// musl, so that a program runs in any userland: nothing of it depends on a guest's libraries.
fn compile_static(package: &str, bins: &[&str]) -> Result<Vec<PathBuf>> {
    ensure_targets(&[STATIC_TARGET])?;
    let mut command = cargo();
    command.args(["build", "--profile", PROGRAM, "--target", STATIC_TARGET]);
    command.args(["--package", package]);
    command.args(bins.iter().flat_map(|bin| ["--bin", bin]));
    // No cross compiler is needed: the toolchain's own linker does.
    command.env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_MUSL_LINKER", "rust-lld");
    run_build(command, package)?;
    let directory = target_dir().join(STATIC_TARGET).join(PROGRAM);
    Ok(bins.iter().map(|bin| directory.join(bin)).collect())
}

/// Runs a build that shows how far it is; its complaint is the error. Of several builds with one
/// warning, the first one says it.
fn run_build(command: Command, what: &str) -> Result<()> {
    let (status, complaint) = compiling::run(command, what)?;
    if !status.success() {
        bail!("building {what} failed:\n{complaint}");
    }
    for paragraph in complaint.split_inclusive("\n\n") {
        if !paragraph.contains(KNOWN_COMPLAINT) && output::is_new(paragraph) {
            eprint!("{paragraph}");
        }
    }
    Ok(())
}

/// Returns where the ELF of a binary for the bare target is once it is built.
pub fn bare_elf(bin: &str) -> PathBuf {
    bare_elf_in("", bin)
}

/// Returns the path of a build in another target directory, below the usual one.
pub fn bare_elf_in(directory: &str, bin: &str) -> PathBuf {
    let target_dir = target_dir().join(directory);
    target_dir.join(BARE_TARGET).join("image").join(bin)
}

#[cfg(test)]
mod tests;
