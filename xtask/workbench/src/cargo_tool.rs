//! Programs of cargo's registry, installed into the cache when they are needed first.

use std::path::PathBuf;

use anyhow::{Result, ensure};

use crate::cache::Cache;
use crate::workspace;

/// Returns the newest version of a program, or the one that the cache has. For programs whose
/// version decides no figure.
pub fn newest(name: &str) -> Result<PathBuf> {
    install(name, "cargo".into(), &[name])
}

/// Returns one version of a program, built with cargo's options `with`. For what a document or a
/// test depends on in each detail.
pub fn pinned(name: &str, version: &str, with: &[&str]) -> Result<PathBuf> {
    let what = [&[name, "--version", version], with].concat();
    install(name, format!("cargo/{name}-{version}").into(), &what)
}

/// Installs a program by cargo into a folder of the cache, unless it is there. The lock of the
/// cache is held meanwhile: two runs would install into one folder.
fn install(name: &str, folder: PathBuf, what: &[&str]) -> Result<PathBuf> {
    let cache = Cache::open()?;
    let root = cache.path(folder);
    let program = root.join("bin").join(name);
    let _lock = cache.lock()?;
    if !program.is_file() {
        eprintln!("installing {name} into the cache");
        let mut install = workspace::cargo();
        install.args(["install", "--locked", "--root"]);
        let status = install.arg(&root).args(what).status();
        let installed = status.is_ok_and(|status| status.success());
        let by_hand = what.join(" ");
        ensure!(
            installed,
            "{name} cannot be installed: cargo install {by_hand}"
        );
    }
    Ok(program)
}
