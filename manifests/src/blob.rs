//! Flattened device trees (Devicetree Specification 0.4, chapter 5), read safely.
//!
//! [`Blob::new`] checks the header and walks the whole structure block once, by `fdt-rs` (`check`)
//! and by a reader of our own (`token`), which have to agree. What remains is infallible navigation
//! by the latter (`node`, `property`), which passes over names that nobody asked for: [`Blob::new`]
//! has read each of them. Whoever asks much has the check make an index (`index`).
//!
//! Invariant: no bytes, however damaged, panic or are read out of bounds.

use core::fmt;

use self::index::Pass;
pub use self::index::{IndexSize, RecordRoom};
pub use self::names::Texts;
pub use self::node::{All, Children, Node, Properties};
pub use self::property::Property;
pub use self::token::FDT_NOP;

mod check;
mod index;
mod names;
mod node;
mod property;
#[cfg(test)]
mod tests;
pub(crate) mod text;
mod token;

/// First word of a blob (Devicetree Specification 0.4, 5.2).
const MAGIC: u32 = 0xd00d_feed;
/// The header has ten words of 32 bits, big-endian as all numbers of a blob.
const HEADER_BYTES: usize = 40;
/// Format that readers have to know: each blob names the oldest one that it is compatible with.
const VERSION: u32 = 17;
/// Bytes of a cell, the unit of numbers and of alignment in a blob.
const CELL: usize = 4;
/// Cells of the smallest node: its beginning, a name and its end.
const MIN_NODE_CELLS: usize = 3;
/// The deepest nesting that is accepted.
const MAX_DEPTH: usize = 16;

/// Defect of a blob.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlobError {
    /// Fewer bytes than the header says, or than a header has.
    Short,
    /// The bytes do not start on a multiple of four.
    Alignment,
    /// The blob does not begin with the device tree magic.
    Magic,
    /// The format version is not compatible with version 17.
    Version,
    /// A block lies outside of the blob or is misaligned.
    Layout,
    /// The structure block is damaged.
    Structure {
        /// Offset from the start of the blob.
        offset: usize,
    },
    /// Nodes are nested more than 16 deep.
    Depth,
}

impl BlobError {
    /// Returns the message of the defect.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::Short => "shorter than its header says",
            Self::Alignment => "not at an address that is a multiple of 4",
            Self::Magic => "no device tree magic",
            Self::Version => "not device tree format version 17",
            Self::Layout => "a block lies outside of the blob",
            Self::Structure { .. } => "damaged structure",
            Self::Depth => "nodes nested too deep",
        }
    }
}

impl fmt::Display for BlobError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())?;
        match self {
            Self::Structure { offset } => write!(f, " (at offset {offset:#x})"),
            Self::Short
            | Self::Alignment
            | Self::Magic
            | Self::Version
            | Self::Layout
            | Self::Depth => Ok(()),
        }
    }
}

impl core::error::Error for BlobError {}

/// A flattened device tree whose every token has been checked.
#[derive(Clone, Copy, Debug)]
pub struct Blob<'a> {
    /// All of the blob, as long as its header says.
    bytes: &'a [u8],
    tree: Tree<'a>,
    /// The structure block's first cell.
    start: usize,
}

/// The part of a blob that each node has a copy of.
#[derive(Clone, Copy, Debug)]
struct Tree<'a> {
    /// The strings block: names of properties, each with a NUL behind it.
    strings: &'a [u8],
    /// Cells of the blob up to the end of the structure block, big-endian as in memory.
    cells: &'a [u32],
    /// The index, a record for each node; empty: there is no index.
    records: &'a [RecordRoom],
}

impl<'a> Blob<'a> {
    /// Checks `bytes`, which may be longer than the tree, and returns the tree in them.
    pub fn new(bytes: &'a [u8]) -> Result<Self, BlobError> {
        let blob = Self::with_checked_header(bytes)?;
        blob.check_structure(None)?;
        Ok(blob)
    }

    /// Checks `bytes` as [`Blob::new`] does, and returns the tree with an index in `records`.
    /// `names` is needed for the check alone. With fewer records than the tree has nodes the tree
    /// stays without an index, and with fewer names than [`IndexSize`] says names are looked at
    /// again. What is in both before is lost.
    pub fn indexed(
        bytes: &'a [u8],
        records: &'a mut [RecordRoom],
        names: &mut [u8],
    ) -> Result<Self, BlobError> {
        let blob = Self::with_checked_header(bytes)?;
        let nodes = blob.check_structure(Some(&mut Pass::new(records, names)))?;
        let records = records.get(..nodes).unwrap_or_default();
        let tree = Tree {
            records,
            ..blob.tree
        };
        Ok(Self { tree, ..blob })
    }

    /// Returns what an index of the tree in `bytes` needs at most, by its header.
    pub fn index_size(bytes: &[u8]) -> Result<IndexSize, BlobError> {
        let blob = Blob::with_checked_header(bytes)?;
        Ok(IndexSize {
            records: blob.structure_cells() / MIN_NODE_CELLS,
            names: blob.tree.strings.len(),
        })
    }

    /// Returns the root node.
    #[must_use]
    pub fn root(&self) -> Node<'a> {
        let tree = self.tree;
        // `check_structure` saw a root node at the first token that is not a NOP.
        Node::numbered(tree, 0)
            .or_else(|| tree.find_node(self.start))
            .unwrap_or_else(|| Node::last(tree))
    }

    /// Returns the tree's bytes, of which boot loaders leave many unused, without those that may lie
    /// behind the tree.
    #[must_use]
    pub const fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Returns the strings block: names of properties, each with a NUL behind it.
    #[must_use]
    pub const fn strings(&self) -> &'a [u8] {
        self.tree.strings
    }

    /// Returns how many cells the structure block has: nodes, and properties with their values.
    #[must_use]
    pub const fn structure_cells(&self) -> usize {
        self.tree.end() - self.start
    }

    /// Checks the header: every block that it names lies in the blob, so that whatever follows it
    /// stays inside.
    fn with_checked_header(bytes: &'a [u8]) -> Result<Self, BlobError> {
        check_kind(bytes)?;
        let header = Header::read(bytes).ok_or(BlobError::Short)?;
        // planted: a manifest is longer than its bytes
        let bytes = bytes.get(..header.total).ok_or(BlobError::Short)?;
        let end = block_end(bytes, header.structure, header.structure_size)?;
        let strings_end = block_end(bytes, header.strings, header.strings_size)?;
        block_end(bytes, header.reserved, 2 * size_of::<u64>())?;
        let blocks = [header.structure, header.reserved];
        let aligned = blocks.iter().all(|start| start.is_multiple_of(CELL));
        // Nodes and values are no names: whoever copies the names copies nothing else.
        let apart = strings_end <= header.structure || end <= header.strings;
        // `fdt-rs` reads one word behind the structure block's last token, which has to be there.
        if !aligned || !apart || end >= bytes.len() {
            return Err(BlobError::Layout);
        }
        let strings = bytes.get(header.strings..strings_end);
        let block = bytes.get(..end).ok_or(BlobError::Layout)?;
        Ok(Self {
            bytes,
            tree: Tree {
                strings: strings.ok_or(BlobError::Layout)?,
                cells: check::cells(block),
                records: &[],
            },
            start: header.structure / CELL,
        })
    }
}

impl Tree<'_> {
    /// Returns the cell behind the structure block, where navigation ends.
    const fn end(&self) -> usize {
        self.cells.len()
    }
}

/// Reads the big-endian word at an offset, if it is inside.
fn word(bytes: &[u8], offset: usize) -> Option<u32> {
    let (word, _) = bytes.get(offset..)?.split_first_chunk::<CELL>()?;
    Some(u32::from_be_bytes(*word))
}

/// Fields of the header (chapter 5.2), as the blob gives them: sizes in bytes, and offsets from the
/// start of the blob.
struct Header {
    total: usize,
    structure: usize,
    structure_size: usize,
    strings: usize,
    strings_size: usize,
    reserved: usize,
}

impl Header {
    /// Reads the fields by their places in the header, in words (chapter 5.2).
    fn read(bytes: &[u8]) -> Option<Self> {
        let field = |index: usize| usize::try_from(word(bytes, index * CELL)?).ok();
        Some(Self {
            total: field(1)?,
            structure: field(2)?,
            structure_size: field(9)?,
            strings: field(3)?,
            strings_size: field(8)?,
            reserved: field(4)?,
        })
    }
}

/// Checks what the rest of the header is read by: the alignment, the magic number and the version.
fn check_kind(bytes: &[u8]) -> Result<(), BlobError> {
    if bytes.len() < HEADER_BYTES {
        return Err(BlobError::Short);
    }
    if !(bytes.as_ptr() as usize).is_multiple_of(CELL) {
        return Err(BlobError::Alignment);
    }
    if word(bytes, 0) != Some(MAGIC) {
        return Err(BlobError::Magic);
    }
    // The version, and the oldest that this one can be read as: both may be newer than 17 only in
    // what an old reader does not see.
    if word(bytes, 20) < Some(VERSION) || word(bytes, 24) > Some(VERSION) {
        return Err(BlobError::Version);
    }
    Ok(())
}

/// Returns the end of a block that lies behind the header and inside the blob.
fn block_end(bytes: &[u8], start: usize, size: usize) -> Result<usize, BlobError> {
    let end = start.checked_add(size).ok_or(BlobError::Layout)?;
    if start < HEADER_BYTES || end > bytes.len() {
        return Err(BlobError::Layout);
    }
    Ok(end)
}
