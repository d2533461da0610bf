//! A file tree in the making: what becomes a guest's initramfs or its disk.
//!
//! All files are root's and carry no dates, and the order is that of their names: the same
//! content gives the same bytes. Paths are relative to the root, without a leading slash.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufWriter, Write as _};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process;

use anyhow::{Context, Result};
use cpio::newc::{Builder, trailer};

/// Types and modes of `st_mode` (inode(7)), which a member of an initramfs has. Owner may write,
/// all may read and enter.
const DIRECTORY: u32 = 0o040_755;
/// The mode is added.
const REGULAR: u32 = 0o100_000;
/// Links have no rights of their own.
const SYMLINK: u32 = 0o120_777;
/// For the console alone.
const CHARACTER_DEVICE: u32 = 0o020_600;

/// A file tree. Sorted by path, so that a folder comes before what is in it.
#[derive(Clone, Debug, Default)]
pub struct Tree {
    /// By path without a leading slash; the order puts a folder ahead of its contents.
    nodes: BTreeMap<String, Node>,
}

/// An entry of a tree, owned by root. What an initramfs needs, and no more.
#[derive(Clone, Debug)]
enum Node {
    Directory,
    File { mode: u32, content: Vec<u8> },
    Link(String),
    Device { major: u32, minor: u32 },
}

impl Node {
    /// Returns the member of an archive, as far as the kind of node says, and its content. Owner
    /// and time stay at the builder's zeros.
    fn member(&self, builder: Builder) -> (Builder, &[u8]) {
        match self {
            Node::Directory => (builder.mode(DIRECTORY), &[]),
            Node::File { mode, content } => (builder.mode(REGULAR | mode), content),
            Node::Link(target) => (builder.mode(SYMLINK), target.as_bytes()),
            &Node::Device { major, minor } => {
                let builder = builder.mode(CHARACTER_DEVICE);
                (builder.rdev_major(major).rdev_minor(minor), &[])
            }
        }
    }
}

impl Tree {
    /// Returns what every userland has: the directories that are mounted on, and one of each kind
    /// of `bin`, `sbin` and `lib`, below `usr`. Merged /usr, as Debian's programs expect.
    pub fn userland() -> Tree {
        let mut tree = Tree::default();
        for directory in [
            "dev", "etc", "proc", "root", "run", "sys", "tmp", "usr/bin", "usr/lib", "usr/sbin",
            "var",
        ] {
            tree.directory(directory);
        }
        for name in ["bin", "lib", "sbin"] {
            tree.link(name, &format!("usr/{name}"));
        }
        tree
    }

    /// Adds a directory, and those above it. There may already be one.
    pub fn directory(&mut self, path: &str) {
        self.add(path, Node::Directory);
    }

    /// Adds a program. Also scripts, of which the kernel reads the first line.
    pub fn program(&mut self, path: &str, content: impl Into<Vec<u8>>) {
        let (mode, content) = (0o755, content.into());
        self.add(path, Node::File { mode, content });
    }

    /// Adds a file that all may read. A second one of a path replaces the first.
    pub fn file(&mut self, path: &str, content: impl Into<Vec<u8>>) {
        let (mode, content) = (0o644, content.into());
        self.add(path, Node::File { mode, content });
    }

    /// Adds a symbolic link. The target is not looked at: it may be of another file system.
    pub fn link(&mut self, path: &str, target: &str) {
        self.add(path, Node::Link(target.to_owned()));
    }

    /// Adds `/dev/console`, which the kernel opens for init before anything has mounted a `/dev`.
    /// Without it, init has no standard output, and the kernel warns.
    pub fn console(&mut self) {
        let (major, minor) = (5, 1);
        self.add("dev/console", Node::Device { major, minor });
    }

    /// Tells whether there is something of this path. For libraries that several programs need.
    pub fn contains(&self, path: &str) -> bool {
        self.nodes.contains_key(path)
    }

    /// Iterates over all paths, directories before their contents. ext4's owners are set by path.
    pub fn paths(&self) -> impl Iterator<Item = &str> {
        self.nodes.keys().map(String::as_str)
    }

    /// Adds an entry, and the folders above it that are missing. Files of deep paths need no call
    /// for each folder.
    fn add(&mut self, path: &str, node: Node) {
        for (at, _) in path.match_indices('/') {
            self.nodes
                .entry(path[..at].to_owned())
                .or_insert(Node::Directory);
        }
        self.nodes.insert(path.to_owned(), node);
    }

    /// Writes the tree as an initramfs: not compressed, for a machine that is emulated copies
    /// faster than it unpacks. Written anew each time, and exchanged by a rename.
    pub fn write_initramfs(&self, path: PathBuf) -> Result<PathBuf> {
        let partial = partial(&path)?;
        let mut writer = BufWriter::new(File::create(&partial)?);
        for (inode, (name, node)) in (1..).zip(&self.nodes) {
            let (builder, content) = node.member(Builder::new(name).ino(inode).nlink(1));
            let mut file = builder.write(&mut writer, u32::try_from(content.len())?);
            file.write_all(content)?;
            file.finish()?;
        }
        trailer(writer)?.flush()?;
        fs::rename(partial, &path)?;
        Ok(path)
    }

    /// Writes the tree into an empty directory; devices, which take root, are left out. mke2fs
    /// copies from a directory.
    pub fn write_directory(&self, root: &Path) -> Result<()> {
        if root.is_dir() {
            fs::remove_dir_all(root).with_context(|| root.display().to_string())?;
        }
        fs::create_dir_all(root)?;
        for (name, node) in &self.nodes {
            let path = root.join(name);
            match node {
                Node::Directory => fs::create_dir(&path)?,
                Node::File { mode, content } => {
                    fs::write(&path, content)?;
                    fs::set_permissions(&path, fs::Permissions::from_mode(*mode))?;
                }
                Node::Link(target) => symlink(target, &path)?,
                Node::Device { .. } => {}
            }
        }
        Ok(())
    }
}

/// Returns where to write a file that is not to be seen, by another xtask, before it is whole. The
/// number of the process keeps two writers apart.
pub fn partial(path: &Path) -> Result<PathBuf> {
    let directory = path.parent().context("a file lies in a directory")?;
    fs::create_dir_all(directory)?;
    Ok(path.with_added_extension(format!("partial-{}", process::id())))
}

#[cfg(test)]
mod tests;
