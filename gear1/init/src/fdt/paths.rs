//! Paths of nodes (Devicetree Specification 0.4, 2.2.3).
//!
//! Requirements: G1-BOOT-001.

use alloc::string::String;

use gearv_manifest::blob::Node;

use super::text;

/// Returns the path of a node below the one at `path`; the root's is empty.
pub(crate) fn path_below(path: &str, name: &str) -> String {
    [path, "/", name].concat()
}

/// Returns the root's path, with room for those of a walk over all nodes.
pub(crate) fn root_path() -> String {
    String::with_capacity(0x40)
}

/// Makes a path of `length` bytes that of a node below. A walk over all nodes has one path for all
/// of them, so that none is allocated.
pub(crate) fn move_below(path: &mut String, length: usize, name: &str) {
    path.truncate(length);
    path.push('/');
    path.push_str(name);
}

/// Returns the path of the node that `stdout-path` names: a path or an alias, and behind a colon
/// the rate, which firmware has set.
pub(crate) fn stdout_path<'a>(root: &Node<'a>) -> Option<&'a str> {
    let path = text(&root.child("chosen")?, "stdout-path")?;
    let path = path.split(':').next()?;
    if path.starts_with('/') {
        return Some(path);
    }
    text(&root.child("aliases")?, path)
}
