//! Copies of the workspace that bugs are planted in.
//!
//! Bugs are never planted into the workspace itself: a test that is broken off would leave them
//! there.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use workbench::workspace;

/// The copy that images are built from.
pub(super) const FOR_IMAGES: &str = "planted-copy";
/// The copy that is tested on the host, beside the other. Two lanes may plant at the same time.
pub(super) const FOR_HOST: &str = "planted-copy-on-host";

/// Makes the copy of this name what the workspace is. Files that have not changed keep their times,
/// so that little is built anew.
pub(super) fn fresh(name: &str) -> Result<PathBuf> {
    let copy = workspace::output_dir().join(name);
    follow(workspace::root(), &copy)?;
    Ok(copy)
}

/// The target directory, in which the copy lies, and what no build needs. Names with a dot in front
/// are git's and editors'.
fn is_left_out(name: &OsString) -> bool {
    let name = name.to_string_lossy();
    name == "target" || name.starts_with('.')
}

fn names(directory: &Path) -> Result<BTreeSet<OsString>> {
    let entries = fs::read_dir(directory).with_context(|| directory.display().to_string())?;
    let mut names = BTreeSet::new();
    for entry in entries {
        names.insert(entry?.file_name());
    }
    names.retain(|name| !is_left_out(name));
    Ok(names)
}

/// Makes the directory `to` what `from` is. Files that are gone must go in the copy too, or a
/// module without a parent would be built.
fn follow(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    let wanted = names(from)?;
    for name in names(to)?.difference(&wanted) {
        let gone = to.join(name);
        match gone.is_dir() {
            true => fs::remove_dir_all(gone)?,
            false => fs::remove_file(gone)?,
        }
    }
    for name in wanted {
        let (from, to) = (from.join(&name), to.join(&name));
        if from.is_dir() {
            follow(&from, &to)?;
        } else if fs::read(&to).ok() != Some(fs::read(&from)?) {
            fs::copy(&from, &to).with_context(|| from.display().to_string())?;
        }
    }
    Ok(())
}
