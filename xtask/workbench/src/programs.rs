//! Programs out of Debian's arm64 packages, with the libraries that they name.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use object::Endianness;
use object::elf::{DT_NEEDED, FileHeader64};
use object::read::elf::{FileHeader as _, SectionHeader as _};

use crate::tools::DIRECTORIES;
use crate::tree::Tree;

/// Debian's multiarch path, which is in the loader's own list.
const LIBRARIES: &str = "usr/lib/aarch64-linux-gnu";
/// Path at which the kernel finds the dynamic linker, which is also a library. Its path is fixed by
/// the ABI (`/lib/ld-linux-aarch64.so.1`).
const LINKER: &str = "ld-linux-aarch64.so.1";

/// Adds programs from the packages unpacked at `root`, and the libraries that they need. Debian's
/// binaries are dynamic.
pub fn add(tree: &mut Tree, root: &Path, programs: &[&str]) -> Result<()> {
    add_with(tree, root, root, programs)
}

/// Adds programs from the packages unpacked at `from`, and the libraries that they need from those
/// at `root`. A program without its dependencies takes the libraries of another set.
pub fn add_with(tree: &mut Tree, root: &Path, from: &Path, programs: &[&str]) -> Result<()> {
    let linker = find(root, &["usr/lib", "lib"], LINKER)?;
    tree.program(&format!("usr/lib/{LINKER}"), fs::read(linker)?);
    for program in programs {
        let path = find(from, &DIRECTORIES, program)?;
        let content = fs::read(&path)?;
        add_libraries(tree, root, &content).with_context(|| format!("{program} needs it"))?;
        tree.program(&format!("usr/bin/{program}"), content);
    }
    Ok(())
}

/// Adds what an ELF file needs, and what that needs. Depth first; a library that is there ends the
/// search, so circles do not matter.
fn add_libraries(tree: &mut Tree, root: &Path, elf: &[u8]) -> Result<()> {
    for needed in needed_by(elf)? {
        let (path, content) = read_library(root, &needed)?;
        if needed != LINKER && !tree.contains(&path) {
            tree.file(&path, content.clone());
            add_libraries(tree, root, &content)?;
        }
    }
    Ok(())
}

/// Returns a library and where it lies; Ceph's own are in a directory that its users name. RUNPATH
/// entries are not read: Ceph is the one user of them.
fn read_library(root: &Path, name: &str) -> Result<(String, Vec<u8>)> {
    let found = ["", "/ceph"].into_iter().find_map(|below| {
        let directory = format!("{LIBRARIES}{below}");
        let directories = [&*directory, directory.trim_start_matches("usr/")];
        let path = find(root, &directories, name).ok()?;
        Some((format!("{directory}/{name}"), path))
    });
    let (place, path) = found.with_context(|| format!("the packages do not hold {name}"))?;
    Ok((place, fs::read(path)?))
}

/// Returns the first file of this name in one of the directories, links followed. A link out of the
/// package would take a file of the host's architecture.
fn find(root: &Path, directories: &[&str], name: &str) -> Result<PathBuf> {
    let mut candidates = directories.iter().map(|dir| root.join(dir).join(name));
    let path = candidates.find_map(|path| path.canonicalize().ok());
    let path = path.with_context(|| format!("the packages do not hold {name}"))?;
    ensure!(
        path.starts_with(root),
        "{name} is a link out of its package"
    );
    Ok(path)
}

/// Returns the names of the libraries that an ELF file is linked with; none for a script. DT_NEEDED
/// entries of the dynamic table, as the loader reads them.
fn needed_by(elf: &[u8]) -> Result<Vec<String>> {
    let Ok(header) = FileHeader64::<Endianness>::parse(elf) else {
        return Ok(Vec::new());
    };
    let endian = header.endian()?;
    let sections = header.sections(endian, elf)?;
    for section in sections.iter() {
        if let Some(table) = section.dynamic_table(endian, elf, &sections)? {
            let needed = table.iter().filter(|entry| entry.tag == DT_NEEDED);
            return needed
                .map(|entry| Ok(String::from_utf8_lossy(table.string(entry)?).into_owned()))
                .collect();
        }
    }
    Ok(Vec::new())
}
