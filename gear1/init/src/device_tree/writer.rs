//! A flattened device tree in the making (Devicetree Specification 0.4, chapter 5).
//!
//! Structure and strings grow beside each other and are joined at the end, when their sizes are
//! known. Numbers are big-endian, and each token of the structure begins at a multiple of 4.
//!
//! Requirements: G1-BOOT-006.

use alloc::vec::Vec;

use gearv_manifest::blob::{Blob, Node, Property};

/// Fields of the header, and tokens of the structure (Devicetree Specification 0.4, 5.2 and 5.4).
const MAGIC: u32 = 0xd00d_feed;
const VERSION: u32 = 17;
const COMPATIBLE_VERSION: u32 = 16;
const HEADER_SIZE: usize = 40;
/// Bytes of a cell.
const CELL: usize = 4;
/// An empty memory reservation block.
const NO_RESERVATIONS: [u8; 16] = [0; 16];
/// Cells of nodes, and bytes of names, that are usually added to a board's tree.
const ADDED_CELLS: usize = 0x200;
const ADDED_NAMES: usize = 0x80;
const BEGIN_NODE: u32 = 1;
const END_NODE: u32 = 2;
const PROPERTY: u32 = 3;
const END: u32 = 9;

/// The tree so far.
#[derive(Debug)]
pub(crate) struct Writer {
    /// Tokens of nodes and properties.
    structure: Vec<[u8; CELL]>,
    /// Names of properties, each with its NUL: those of the tree that is copied from, as they are
    /// there, and behind them those of other properties.
    strings: Vec<u8>,
    /// The other properties' names, each with its offset in `strings`.
    names: Vec<(&'static str, u32)>,
}

impl Writer {
    /// Begins a tree whose nodes and properties are copied from `source`. The copied properties
    /// keep their names' offsets, so that no name is looked up.
    pub(crate) fn new(source: &Blob<'_>) -> Self {
        // Room for as much as the source has and for what is added, so that the copy moves rarely.
        let structure = Vec::with_capacity(source.structure_cells() + ADDED_CELLS);
        let mut strings = Vec::with_capacity(source.strings().len() + ADDED_NAMES);
        strings.extend_from_slice(source.strings());
        Self {
            structure,
            strings,
            names: Vec::with_capacity(ADDED_NAMES / CELL),
        }
    }

    /// Begins a node. Properties come before child nodes, as the format wants: a reader takes the
    /// first child for the end of the properties.
    pub(crate) fn begin(&mut self, name: &str) {
        self.word(BEGIN_NODE);
        self.characters(name);
    }

    /// Ends the node that was begun last.
    pub(crate) fn end(&mut self) {
        self.word(END_NODE);
    }

    /// Writes a property.
    pub(crate) fn property(&mut self, name: &'static str, value: &[u8]) {
        self.begin_property(name, value.len());
        self.bytes(value);
    }

    /// Writes a property of one or more strings, the last without its NUL.
    pub(crate) fn text(&mut self, name: &'static str, text: &str) {
        self.begin_property(name, text.len() + 1);
        self.characters(text);
    }

    /// Writes a property of cells.
    pub(crate) fn cells(&mut self, name: &'static str, cells: &[u32]) {
        self.begin_property(name, size_of_val(cells));
        cells.iter().for_each(|cell| self.word(*cell));
    }

    /// Writes a property of numbers of two cells.
    pub(crate) fn longs(&mut self, name: &'static str, numbers: &[u64]) {
        self.begin_property(name, size_of_val(numbers));
        for number in numbers {
            self.bytes(&number.to_be_bytes());
        }
    }

    /// Copies the node's properties but those in `without`. Most nodes have none of those, and all
    /// of their properties are copied as one piece.
    pub(crate) fn properties(&mut self, node: &Node<'_>, without: &[&str]) {
        if without.iter().all(|name| node.property(name).is_none()) {
            self.bytes(node.all_property_tokens());
        } else {
            let is_left_out = |one: &Property<'_>| without.iter().any(|name| one.is_called(name));
            self.properties_that(node, |property| !is_left_out(property));
        }
    }

    /// Copies the node's properties that `keeps` wants.
    pub(crate) fn properties_that(
        &mut self,
        node: &Node<'_>,
        keeps: impl Fn(&Property<'_>) -> bool,
    ) {
        node.property_tokens(keeps)
            .for_each(|tokens| self.bytes(tokens));
    }

    /// Copies the nodes below `node` as they are: their properties' names keep their places.
    pub(crate) fn children(&mut self, node: &Node<'_>) {
        self.bytes(node.child_tokens());
    }

    /// Ends the tree and returns it.
    pub(crate) fn finish(mut self) -> Vec<u8> {
        self.word(END);
        let structure = HEADER_SIZE + NO_RESERVATIONS.len();
        let strings = structure + self.structure.as_flattened().len();
        let total = (strings + self.strings.len()).next_multiple_of(4);
        let header = self.header(structure, strings, total);
        let mut tree = Vec::with_capacity(total);
        tree.extend(header.iter().flat_map(|field| field.to_be_bytes()));
        tree.extend(NO_RESERVATIONS);
        tree.extend_from_slice(self.structure.as_flattened());
        tree.extend_from_slice(&self.strings);
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
            (self.structure.len() * CELL) as u32,
        ]
    }

    /// Writes the token of a property with a value of `size` bytes, which follows. The name is
    /// stored once for the whole tree, as most names repeat, and soon.
    fn begin_property(&mut self, name: &'static str, size: usize) {
        let mut known = self.names.iter().rev();
        let at = match known.find(|(known, _)| *known == name) {
            Some((_, at)) => *at,
            None => {
                let at = self.strings.len() as u32;
                self.strings.extend_from_slice(name.as_bytes());
                self.strings.push(0);
                self.names.push((name, at));
                at
            }
        };
        self.token(at, size);
    }

    /// Writes the token of a property whose name is at `name` in the strings block.
    fn token(&mut self, name: u32, size: usize) {
        self.word(PROPERTY);
        self.word(size as u32);
        self.word(name);
    }

    /// Writes a word.
    fn word(&mut self, word: u32) {
        self.structure.push(word.to_be_bytes());
    }

    /// Writes bytes, and zeroes up to the next token.
    fn bytes(&mut self, bytes: &[u8]) {
        let (cells, rest) = bytes.as_chunks();
        self.structure.extend_from_slice(cells);
        if !rest.is_empty() {
            self.rest(rest);
        }
    }

    /// Writes a text with its NUL, and zeroes up to the next token.
    fn characters(&mut self, text: &str) {
        let (cells, rest) = text.as_bytes().as_chunks();
        self.structure.extend_from_slice(cells);
        // At least the NUL.
        self.rest(rest);
    }

    /// Writes the bytes of a cell that is not full, and zeroes behind them.
    fn rest(&mut self, bytes: &[u8]) {
        let mut cell = [0; CELL];
        for (slot, byte) in cell.iter_mut().zip(bytes) {
            *slot = *byte;
        }
        self.structure.push(cell);
    }
}
