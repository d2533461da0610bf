//! The per-user cache: `${XDG_CACHE_HOME:-~/.cache}/gearv`.
//!
//! Downloads live here under their hash, and unpacked package sets beside them. Whoever
//! adds to it holds its lock, so that two xtask runs do not write the same file.

use std::env;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use sha2::{Digest, Sha256};

/// The cache directory.
#[derive(Clone, Debug)]
pub struct Cache {
    /// `${XDG_CACHE_HOME:-~/.cache}/gearv`.
    root: PathBuf,
}

impl Cache {
    /// Opens the cache, making its directory when it is missing.
    pub fn open() -> Result<Cache> {
        let base = match env::var_os("XDG_CACHE_HOME").filter(|v| !v.is_empty()) {
            Some(base) => PathBuf::from(base),
            None => PathBuf::from(env::var_os("HOME").context("HOME is not set")?).join(".cache"),
        };
        let root = std::path::absolute(base)?.join("gearv");
        fs::create_dir_all(&root)
            .with_context(|| format!("cannot make the cache {}", root.display()))?;
        Ok(Cache { root })
    }

    /// Takes a directory as the cache.
    pub fn at(root: PathBuf) -> Cache {
        Cache { root }
    }

    /// Returns the path of something in the cache.
    pub fn path(&self, relative: impl AsRef<Path>) -> PathBuf {
        self.root.join(relative)
    }

    /// Takes the lock, which the drop of the returned file releases.
    pub fn lock(&self) -> Result<File> {
        let file = File::create(self.path("lock"))?;
        if file.try_lock().is_err() {
            eprintln!("waiting for another xtask that is filling the cache");
            file.lock()?;
        }
        Ok(file)
    }
}

/// Returns the SHA-256 of a file in hexadecimal.
pub fn sha256(path: &Path) -> Result<String> {
    let file = File::open(path).with_context(|| path.display().to_string())?;
    sha256_of(file)
}

/// Returns the SHA-256 of all that can be read in hexadecimal.
pub fn sha256_of(mut reader: impl io::Read) -> Result<String> {
    let mut hasher = Sha256::new();
    io::copy(&mut reader, &mut HashWriter(&mut hasher))?;
    Ok(hasher
        .finalize()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect())
}

/// Writer that feeds a hash.
struct HashWriter<'a>(&'a mut Sha256);

impl io::Write for HashWriter<'_> {
    /// Every byte goes into the digest, on its way to the file.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    /// The digest has nothing to flush.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
