//! Modules of Debian's kernel, decompressed, in the order in which they can be loaded.
//!
//! The package carries no `modules.dep`, which its installation makes: what a module needs stands
//! in the module.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use liblzma::read::XzDecoder;
use object::{Object as _, ObjectSection as _};

use crate::payloads;
use crate::tree::Tree;

/// The file that lists the modules, one path and its parameters a line, in the order of loading.
/// Read by `load_modules` of the inits.
const LIST: &str = "etc/modules";
/// Folder of the modules in a userland, without the kernel's version: `init` loads them by path.
/// Without a version, because an initramfs has one kernel.
const DIRECTORY: &str = "usr/lib/modules";

/// Adds modules and all that they need, and the list of their paths; returns their names. Of the
/// kernel that most VMs boot.
pub fn add(tree: &mut Tree, names: &[&str]) -> Result<Vec<String>> {
    add_from(&payloads::debian_modules()?, tree, names)
}

/// Adds modules like [`add`], from the kernel whose modules are in `directory`. `insmod` resolves
/// nothing, hence the order.
pub fn add_from(directory: &Path, tree: &mut Tree, names: &[&str]) -> Result<Vec<String>> {
    let mut modules = Modules {
        files: find_all(directory)?,
        loaded: Vec::new(),
        tree,
    };
    for name in names {
        modules.add(name)?;
    }
    let names = modules.loaded;
    tree.file(LIST, lines(&names));
    Ok(names)
}

/// A module that is not among the kernel's own.
pub struct Built<'a> {
    /// Name of the module.
    pub name: &'a str,
    /// The module, not compressed.
    pub content: Vec<u8>,
    /// Parameters that it is loaded with.
    pub options: &'a str,
}

/// Adds a module that was built for the kernel that most VMs boot, with all modules of that kernel
/// that it needs. The list has no other modules then.
pub fn add_built(tree: &mut Tree, module: Built<'_>) -> Result<()> {
    let Built {
        name,
        content,
        options,
    } = module;
    let needed = needed_by(&content)?;
    let needed: Vec<&str> = needed.iter().map(String::as_str).collect();
    let loaded = add(tree, &needed)?;
    tree.file(&format!("{DIRECTORY}/{name}.ko"), content);
    let own = format!("/{DIRECTORY}/{name}.ko {options}\n");
    tree.file(LIST, lines(&loaded) + &own);
    Ok(())
}

/// Returns the list's lines for modules without parameters.
fn lines(names: &[String]) -> String {
    let paths = names.iter().map(|name| format!("/{DIRECTORY}/{name}.ko\n"));
    paths.collect()
}

/// Modules on their way into a tree. Each module is decompressed once.
struct Modules<'a> {
    /// The compressed files by the modules' names.
    files: BTreeMap<String, PathBuf>,
    /// Names of the modules in the tree, each after its dependencies.
    loaded: Vec<String>,
    /// The userland.
    tree: &'a mut Tree,
}

impl Modules<'_> {
    /// Adds a module, unpacked, behind those that it needs. Recursive: dependencies are a few deep,
    /// and have no circles.
    fn add(&mut self, name: &str) -> Result<()> {
        if self.loaded.iter().any(|loaded| loaded == name) {
            return Ok(());
        }
        let path = self.files.get(name);
        let path = path.with_context(|| format!("Debian's kernel has no module {name}"))?;
        let mut module = Vec::new();
        XzDecoder::new(fs::File::open(path)?)
            .read_to_end(&mut module)
            .with_context(|| path.display().to_string())?;
        for needed in needed_by(&module)? {
            self.add(&needed)?;
        }
        self.tree.file(&format!("{DIRECTORY}/{name}.ko"), module);
        self.loaded.push(name.to_owned());
        Ok(())
    }
}

/// Returns the names of the modules that one depends on. `depends=` is written by modpost.
fn needed_by(module: &[u8]) -> Result<Vec<String>> {
    let file = object::File::parse(module)?;
    let section = file.section_by_name(".modinfo");
    let info = section.context("a module has no .modinfo")?.data()?;
    let depends = info
        .split(|byte| *byte == 0)
        .find_map(|entry| entry.strip_prefix(b"depends="))
        .unwrap_or_default();
    let names = String::from_utf8_lossy(depends);
    Ok(names
        .split(',')
        .filter(|name| !name.is_empty())
        .map(module_name)
        .collect())
}

/// Returns all modules below a directory. By name: folders of the kernel's tree do not matter.
fn find_all(directory: &Path) -> Result<BTreeMap<String, PathBuf>> {
    let mut files = BTreeMap::new();
    let mut waiting = vec![directory.to_owned()];
    while let Some(directory) = waiting.pop() {
        let entries = fs::read_dir(&directory);
        for entry in entries.with_context(|| directory.display().to_string())? {
            let entry = entry?;
            let name = entry.file_name();
            if entry.file_type()?.is_dir() {
                waiting.push(entry.path());
            } else if let Some(name) = name.to_str().and_then(|name| name.strip_suffix(".ko.xz")) {
                files.insert(module_name(name), entry.path());
            }
        }
    }
    Ok(files)
}

/// Returns a module's name as the kernel has it. File names have dashes where symbols have
/// underscores.
fn module_name(name: &str) -> String {
    name.replace('-', "_")
}
