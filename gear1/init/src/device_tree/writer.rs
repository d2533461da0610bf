//! A flattened device tree in the making (Devicetree Specification 0.4, chapter 5).
//!
//! Structure and strings grow beside each other and are joined at the end, when their sizes are
//! known. Numbers are big-endian, and each token of the structure begins at a multiple of 4.
//!
//! Requirements: G1-BOOT-006.

use alloc::collections::BTreeMap;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use gearv_manifest::blob::Node;

/// Fields of the header, and tokens of the structure (Devicetree Specification 0.4, 5.2 and 5.4).
const MAGIC: u32 = 0xd00d_feed;
const VERSION: u32 = 17;
const COMPATIBLE_VERSION: u32 = 16;
const HEADER_SIZE: usize = 40;
/// An empty memory reservation block.
const NO_RESERVATIONS: [u8; 16] = [0; 16];
const BEGIN_NODE: u32 = 1;
const END_NODE: u32 = 2;
const PROPERTY: u32 = 3;
const END: u32 = 9;

/// The tree so far.
#[derive(Debug, Default)]
pub(crate) struct Writer {
    /// Tokens of nodes and properties.
    structure: Vec<u8>,
    /// Names of properties, each with its NUL, once.
    strings: Vec<u8>,
    /// Offset of each property name in `strings`.
    names: BTreeMap<String, u32>,
}

impl Writer {
    /// Begins a node. Properties come before child nodes, as the format wants: a reader takes the
    /// first child for the end of the properties.
    pub(crate) fn begin(&mut self, name: &str) {
        self.word(BEGIN_NODE);
        self.bytes(&[name.as_bytes(), &[0]].concat());
    }

    /// Ends the node that was begun last.
    pub(crate) fn end(&mut self) {
        self.word(END_NODE);
    }

    /// Writes a property. Its name is stored once for the whole tree, as most names repeat.
    pub(crate) fn property(&mut self, name: &str, value: &[u8]) {
        let at = match self.names.get(name) {
            Some(at) => *at,
            None => {
                let at = self.strings.len() as u32;
                self.strings.extend(name.bytes().chain([0]));
                self.names.insert(name.to_string(), at);
                at
            }
        };
        self.word(PROPERTY);
        self.word(value.len() as u32);
        self.word(at);
        self.bytes(value);
    }

    /// Writes a property of one or more strings, the last without its NUL.
    pub(crate) fn text(&mut self, name: &str, text: &str) {
        self.property(name, &[text.as_bytes(), &[0]].concat());
    }

    /// Writes a property of cells.
    pub(crate) fn cells(&mut self, name: &str, cells: &[u32]) {
        let bytes: Vec<u8> = cells.iter().flat_map(|cell| cell.to_be_bytes()).collect();
        self.property(name, &bytes);
    }

    /// Writes a property of numbers of two cells.
    pub(crate) fn longs(&mut self, name: &str, numbers: &[u64]) {
        let bytes: Vec<u8> = numbers.iter().flat_map(|n| n.to_be_bytes()).collect();
        self.property(name, &bytes);
    }

    /// Copies the node's properties but those in `without`.
    pub(crate) fn properties(&mut self, node: &Node<'_>, without: &[&str]) {
        for property in node.properties() {
            if !without.contains(&property.name) {
                self.property(property.name, property.value);
            }
        }
    }

    /// Copies the nodes below `node` as they are; the blob's reader has bounded how deep they nest.
    pub(crate) fn children(&mut self, node: &Node<'_>) {
        for child in node.children() {
            self.begin(child.name());
            self.properties(&child, &[]);
            self.children(&child);
            self.end();
        }
    }

    /// Ends the tree and returns it.
    pub(crate) fn finish(mut self) -> Vec<u8> {
        self.word(END);
        let structure = HEADER_SIZE + NO_RESERVATIONS.len();
        let strings = structure + self.structure.len();
        let total = (strings + self.strings.len()).next_multiple_of(4);
        let header = self.header(structure, strings, total);
        let bytes = header.iter().flat_map(|field| field.to_be_bytes());
        let mut tree: Vec<u8> = bytes.collect();
        tree.extend(NO_RESERVATIONS);
        tree.extend(self.structure);
        tree.extend(self.strings);
        tree.resize(total, 0);
        tree
    }

    /// Returns the header (Devicetree Specification 0.4, 5.2) of a tree whose blocks begin at these
    /// offsets. The physical ID of the boot CPU is 0, as the VM's first vCPU has it.
    const fn header(&self, structure: usize, strings: usize, total: usize) -> [u32; 10] {
        [
            MAGIC,
            total as u32,
            structure as u32,
            strings as u32,
            HEADER_SIZE as u32,
            VERSION,
            COMPATIBLE_VERSION,
            0,
            self.strings.len() as u32,
            self.structure.len() as u32,
        ]
    }

    /// Writes a token.
    fn word(&mut self, word: u32) {
        self.structure.extend(word.to_be_bytes());
    }

    /// Writes bytes, and zeroes up to the next token.
    fn bytes(&mut self, bytes: &[u8]) {
        self.structure.extend(bytes);
        let padded = self.structure.len().next_multiple_of(4);
        self.structure.resize(padded, 0);
    }
}
