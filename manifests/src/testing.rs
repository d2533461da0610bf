//! Device trees for tests, built without dtc: a tree of names and bytes, changed by path.

use std::string::{String, ToString};
use std::vec::Vec;

/// A node to be flattened.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tree {
    pub(crate) properties: Vec<(String, Vec<u8>)>,
    pub(crate) children: Vec<(String, Tree)>,
}

/// Makes a value of cells.
pub(crate) fn cells(values: &[u32]) -> Vec<u8> {
    values
        .iter()
        .flat_map(|value| value.to_be_bytes())
        .collect()
}

/// Makes a value of one string.
pub(crate) fn text(value: &str) -> Vec<u8> {
    [value.as_bytes(), &[0]].concat()
}

impl Tree {
    /// Returns the node at `path`, made if it is not there.
    pub(crate) fn at(&mut self, path: &str) -> &mut Self {
        path.split('/')
            .filter(|name| !name.is_empty())
            .fold(self, |node, name| {
                if !node.children.iter().any(|(child, _)| child == name) {
                    node.children.push((name.to_string(), Self::default()));
                }
                let found = node.children.iter_mut().find(|(child, _)| child == name);
                &mut found.expect("it is there, or has just been made").1
            })
    }

    /// Sets a property of the node at `path`.
    pub(crate) fn set(mut self, path: &str, name: &str, value: Vec<u8>) -> Self {
        let node = self.at(path);
        node.properties.retain(|(known, _)| known != name);
        node.properties.push((name.to_string(), value));
        self
    }

    /// Removes a property of the node at `path`.
    pub(crate) fn unset(mut self, path: &str, name: &str) -> Self {
        self.at(path).properties.retain(|(known, _)| known != name);
        self
    }

    /// Adds a node.
    pub(crate) fn node(mut self, path: &str) -> Self {
        self.at(path);
        self
    }

    /// Flattens the tree.
    pub(crate) fn flatten(&self) -> Aligned {
        let mut structure = Vec::new();
        let mut strings = Vec::new();
        self.flatten_node("", &mut structure, &mut strings);
        structure.extend(9_u32.to_be_bytes());
        let (reserved, start) = (40, 56);
        let names = start + structure.len();
        let total = names + strings.len();
        let header = [
            0xd00d_feed,
            total,
            start,
            names,
            reserved,
            17,
            16,
            0,
            strings.len(),
            structure.len(),
        ];
        let mut bytes: Vec<u8> = header
            .iter()
            .flat_map(|&field| u32::try_from(field).unwrap().to_be_bytes())
            .collect();
        bytes.extend([0; 16]);
        bytes.extend(structure);
        bytes.extend(strings);
        Aligned::new(&bytes)
    }

    fn flatten_node(&self, name: &str, structure: &mut Vec<u8>, strings: &mut Vec<u8>) {
        structure.extend(1_u32.to_be_bytes());
        structure.extend(text(name));
        pad(structure);
        for (name, value) in &self.properties {
            let header = [3, value.len(), strings.len()];
            structure.extend(
                header
                    .iter()
                    .flat_map(|&f| u32::try_from(f).unwrap().to_be_bytes()),
            );
            structure.extend(value);
            pad(structure);
            strings.extend(text(name));
        }
        for (name, child) in &self.children {
            child.flatten_node(name, structure, strings);
        }
        structure.extend(2_u32.to_be_bytes());
    }
}

/// Returns a manifest of one guest with only the mandatory properties.
pub(crate) fn smallest() -> Tree {
    Tree::default()
        .set("/", "compatible", text("gearv,manifest"))
        .set("/", "version", cells(&[1]))
        .set("/vms/linux", "memory-mib", cells(&[256]))
        .set("/vms/linux", "kernel", text("artifact:debian-kernel"))
}

fn pad(bytes: &mut Vec<u8>) {
    bytes.resize(bytes.len().next_multiple_of(4), 0);
}

/// Bytes that lie on a multiple of four.
#[derive(Debug)]
pub(crate) struct Aligned {
    bytes: Vec<u8>,
    start: usize,
    count: usize,
}

impl Aligned {
    /// Copies `bytes` to an aligned place.
    pub(crate) fn new(bytes: &[u8]) -> Self {
        let mut copy = std::vec![0; bytes.len() + 3];
        let start = copy.as_ptr().align_offset(4);
        copy[start..start + bytes.len()].copy_from_slice(bytes);
        Self {
            bytes: copy,
            start,
            count: bytes.len(),
        }
    }

    /// Returns the bytes.
    pub(crate) fn as_slice(&self) -> &[u8] {
        &self.bytes[self.start..self.start + self.count]
    }
}
