//! Flattened device trees (Devicetree Specification 0.4, chapter 5), read safely.
//!
//! Owns the only contact with `fdt-rs`. That crate trusts headers and offsets: it unwraps, and it
//! asserts where a structure block runs out. So this module checks the header before it constructs
//! a tree, bounds every token before and after `fdt-rs` reads it, and walks the whole structure
//! block once in [`Blob::new`]. What remains is infallible navigation, which passes over names that
//! nobody asked for: [`Blob::new`] has read each of them.
//!
//! Invariant: no bytes, however damaged, panic or are read out of bounds.

use core::fmt;
use core::ops::Range;

use fdt_rs::base::DevTree;
use fdt_rs::base::parse::{DevTreeParseIter, ParsedTok};
use fdt_rs::prelude::FallibleIterator;

#[cfg(test)]
mod tests;

/// First word of a blob (Devicetree Specification 0.4, 5.2).
const MAGIC: u32 = 0xd00d_feed;
/// The header has ten words of 32 bits, big-endian as all numbers of a blob.
const HEADER_BYTES: usize = 40;
/// Format that readers have to know: each blob names the oldest one that it is compatible with.
const VERSION: u32 = 17;
/// Bytes of a cell, the unit of numbers and of alignment in a blob.
const CELL: usize = 4;
/// Token of a node's beginning, which is read here and not by `fdt-rs`.
const BEGIN_NODE: u32 = 1;
/// Token without meaning: a node or property that is overwritten with it is no longer in the tree.
pub const FDT_NOP: u32 = 4;
/// Size of a property's token, length and name offset.
const PROPERTY_HEADER: usize = 3 * CELL;
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
    tree: DevTree<'a>,
    /// The strings block: names of properties, each with a NUL behind it.
    strings: &'a [u8],
    /// Range of the structure block, as offsets from the start of the blob.
    struct_start: usize,
    struct_end: usize,
}

impl<'a> Blob<'a> {
    /// Checks `bytes`, which may be longer than the tree, and returns the tree in them.
    pub fn new(bytes: &'a [u8]) -> Result<Self, BlobError> {
        let blob = Self::with_checked_header(bytes)?;
        blob.check_structure()?;
        Ok(blob)
    }

    /// Returns the root node.
    #[must_use]
    pub fn root(&self) -> Node<'a> {
        // `check_structure` saw a root node at the first token that is not a NOP.
        let mut offset = self.struct_start;
        while let Ok(Some(token)) = self.token(&mut offset) {
            if let Token::Begin(name) = token {
                return self.node(name, offset);
            }
        }
        Node {
            blob: *self,
            name: "",
            offset: self.struct_end,
        }
    }

    /// Returns the number of bytes that the tree takes.
    #[must_use]
    pub fn total_bytes(&self) -> usize {
        self.tree.buf().len()
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
        // `fdt-rs` reads one word behind the structure block's last token, which has to be there.
        if !aligned || end >= bytes.len() {
            return Err(BlobError::Layout);
        }
        let strings = bytes.get(header.strings..strings_end);
        Ok(Self {
            tree: construct(bytes)?,
            strings: strings.ok_or(BlobError::Layout)?,
            struct_start: header.structure,
            struct_end: end,
        })
    }

    /// Walks all tokens once: bounds, names, nesting, one root, properties before nodes.
    fn check_structure(&self) -> Result<(), BlobError> {
        let mut offset = self.struct_start;
        let mut depth = 0_usize;
        let mut root_seen = false;
        let mut may_have_property = false;
        loop {
            let at = offset;
            // The offset goes into the message: a damaged file is looked at with a dump of it.
            let structure = Err(BlobError::Structure { offset: at });
            match self.token(&mut offset)? {
                Some(Token::Begin(name)) => {
                    if depth == 0 && root_seen || core::str::from_utf8(name).is_err() {
                        return structure;
                    }
                    root_seen = true;
                    // Properties come before nodes (Devicetree Specification 0.4, 5.4.2). A reader
                    // that stops at the first node would miss one behind it.
                    may_have_property = true;
                    depth += 1;
                    if depth > MAX_DEPTH {
                        return Err(BlobError::Depth);
                    }
                }
                Some(Token::Property(raw))
                    if may_have_property && self.property(&raw).is_some() => {}
                Some(Token::Property(_)) => return structure,
                Some(Token::End) => {
                    may_have_property = false;
                    match depth.checked_sub(1) {
                        Some(outer) => depth = outer,
                        None => return structure,
                    }
                }
                // The end, with each node closed: a block that is cut off has lost something.
                None if depth == 0 && root_seen => return Ok(()),
                None => return structure,
            }
        }
    }

    /// Reads the token at `offset` and moves `offset` behind it; `None` at the end of the tree.
    fn token(&self, offset: &mut usize) -> Result<Option<Token<'a>>, BlobError> {
        loop {
            let at = *offset;
            let structure = BlobError::Structure { offset: at };
            let in_bounds = at
                .checked_add(CELL)
                .is_some_and(|end| end <= self.struct_end);
            if !in_bounds || !at.is_multiple_of(CELL) {
                return Err(structure);
            }
            if word(self.tree.buf(), at) == Some(BEGIN_NODE) {
                return self.begin_node(offset).map(Some).ok_or(structure);
            }
            // `fdt-rs` takes the offset as it is; the check above has bounded it.
            let mut iter = DevTreeParseIter {
                offset: at,
                fdt: &self.tree,
            };
            let parsed = iter.next().map_err(|_| structure)?;
            if iter.offset > self.struct_end {
                return Err(structure);
            }
            *offset = iter.offset;
            return Ok(Some(match parsed {
                None => return Ok(None),
                Some(ParsedTok::Nop) => continue,
                Some(ParsedTok::EndNode) => Token::End,
                // Read above.
                Some(ParsedTok::BeginNode(_)) => return Err(structure),
                Some(ParsedTok::Prop(property)) => Token::Property(RawProperty {
                    name: property.name_offset,
                    value: property.prop_buf,
                    offset: at + PROPERTY_HEADER,
                }),
            }));
        }
    }

    /// Reads the token of a node's beginning; `fdt-rs` takes names of at most 30 characters, and
    /// one in five of the Linux kernel's device trees has longer ones.
    fn begin_node(&self, offset: &mut usize) -> Option<Token<'a>> {
        let start = *offset + CELL;
        let tail = self.tree.buf().get(start..self.struct_end)?;
        let length = tail.iter().position(|&byte| byte == 0)?;
        *offset = (start + length + 1).next_multiple_of(CELL);
        Some(Token::Begin(tail.get(..length)?))
    }

    /// Returns the node whose name was read, and whose next token is at `offset`.
    fn node(&self, name: &'a [u8], offset: usize) -> Node<'a> {
        Node {
            blob: *self,
            // `check_structure` has checked the text.
            name: core::str::from_utf8(name).unwrap_or_default(),
            offset,
        }
    }

    /// Returns a property with its name, `None` if that is none.
    fn property(&self, raw: &RawProperty<'a>) -> Option<Property<'a>> {
        let tail = self.strings.get(raw.name..)?;
        let length = tail.iter().position(|&byte| byte == 0)?;
        Some(Property {
            name: core::str::from_utf8(tail.get(..length)?).ok()?,
            value: raw.value,
            offset: raw.offset,
        })
    }

    /// Tells whether a property has this name.
    fn is_called(&self, raw: &RawProperty<'a>, name: &str) -> bool {
        let tail = self.strings.get(raw.name..).unwrap_or_default();
        tail.get(name.len()) == Some(&0) && tail.starts_with(name.as_bytes())
    }
}

/// A token of the structure block that means something; NOPs are passed over.
#[derive(Clone, Copy)]
enum Token<'a> {
    /// A node with this name.
    Begin(&'a [u8]),
    Property(RawProperty<'a>),
    End,
}

/// A property whose name was not read.
#[derive(Clone, Copy)]
struct RawProperty<'a> {
    /// Offset of the name from the start of the strings block.
    name: usize,
    value: &'a [u8],
    /// [`Property::offset`].
    offset: usize,
}

/// A node of a checked tree.
#[derive(Clone, Copy, Debug)]
pub struct Node<'a> {
    blob: Blob<'a>,
    name: &'a str,
    /// Offset of the token after the node's name.
    offset: usize,
}

impl<'a> Node<'a> {
    /// Returns the node's name with its unit address; the root's is empty.
    #[must_use]
    pub const fn name(&self) -> &'a str {
        self.name
    }

    /// Returns the range of the node's tokens, from the start of the blob: its beginning and its
    /// end, with everything between them. A caller that holds the blob writable may overwrite all
    /// of it with `FDT_NOP`.
    #[must_use]
    pub fn tokens(&self) -> Range<usize> {
        let header = CELL + (self.name.len() + 1).next_multiple_of(CELL);
        let start = self.offset.saturating_sub(header);
        // Nodes below are part of it, so their ends are counted.
        let mut end = self.offset;
        let mut depth = 1_usize;
        // Bounded: every token moves the offset on, and the structure block is finite.
        while depth > 0
            && let Ok(Some(token)) = self.blob.token(&mut end)
        {
            match token {
                Token::Begin(_) => depth += 1,
                Token::Property(_) => {}
                Token::End => depth -= 1,
            }
        }
        start..end
    }

    /// Iterates over the node's own properties.
    #[must_use]
    pub fn properties(&self) -> Properties<'a> {
        Properties {
            blob: self.blob,
            offset: self.offset,
        }
    }

    /// Iterates over the nodes directly below this one.
    #[must_use]
    pub fn children(&self) -> Children<'a> {
        Children {
            blob: self.blob,
            offset: self.offset,
        }
    }

    /// Returns the first property with this name.
    #[must_use]
    pub fn property(&self, name: &str) -> Option<Property<'a>> {
        let mut offset = self.offset;
        while let Ok(Some(Token::Property(raw))) = self.blob.token(&mut offset) {
            if self.blob.is_called(&raw, name) {
                return self.blob.property(&raw);
            }
        }
        None
    }

    /// Returns the first child with this name.
    #[must_use]
    pub fn child(&self, name: &str) -> Option<Self> {
        self.children().find(|child| child.name == name)
    }
}

/// A property with its position in the blob.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Property<'a> {
    /// Name of the property.
    pub name: &'a str,
    /// Value as the blob holds it, numbers big-endian.
    pub value: &'a [u8],
    /// Offset of the value from the start of the blob; a caller that holds the blob writable may
    /// patch the value there.
    pub offset: usize,
}

impl<'a> Property<'a> {
    /// Returns the range of the property's tokens, from the start of the blob. A caller that holds
    /// the blob writable may overwrite all of it with `FDT_NOP`.
    #[must_use]
    pub fn tokens(&self) -> Range<usize> {
        let end = self.offset + self.value.len();
        self.offset.saturating_sub(PROPERTY_HEADER)..end.next_multiple_of(CELL)
    }

    /// Returns the value as cells, if it consists of whole cells.
    #[must_use]
    pub fn cells(&self) -> Option<impl ExactSizeIterator<Item = u32> + Clone + use<'a>> {
        let (cells, rest) = self.value.as_chunks::<CELL>();
        rest.is_empty()
            .then(|| cells.iter().map(|cell| u32::from_be_bytes(*cell)))
    }

    /// Returns the value as one string, if it is one.
    #[must_use]
    pub fn text(&self) -> Option<&'a str> {
        let (last, text) = self.value.split_last()?;
        let text = core::str::from_utf8(text).ok()?;
        (*last == 0 && !text.contains('\0')).then_some(text)
    }
}

/// The properties of a node.
#[derive(Clone, Debug)]
pub struct Properties<'a> {
    blob: Blob<'a>,
    offset: usize,
}

impl<'a> Iterator for Properties<'a> {
    type Item = Property<'a>;

    fn next(&mut self) -> Option<Property<'a>> {
        match self.blob.token(&mut self.offset) {
            Ok(Some(Token::Property(raw))) => self.blob.property(&raw),
            // No error comes from a checked tree; the end of all is as good as any.
            Ok(Some(Token::Begin(_) | Token::End) | None) | Err(_) => {
                self.offset = self.blob.struct_end;
                None
            }
        }
    }
}

/// The nodes directly below a node.
#[derive(Clone, Debug)]
pub struct Children<'a> {
    blob: Blob<'a>,
    offset: usize,
}

impl<'a> Iterator for Children<'a> {
    type Item = Node<'a>;

    fn next(&mut self) -> Option<Node<'a>> {
        let mut child = None;
        let mut depth = 0_usize;
        // Bounded: every token moves the offset on, and the structure block is finite.
        while let Ok(Some(token)) = self.blob.token(&mut self.offset) {
            match token {
                Token::Begin(name) => {
                    if child.is_none() {
                        child = Some(self.blob.node(name, self.offset));
                    }
                    depth += 1;
                }
                Token::Property(_) => {}
                Token::End => match depth {
                    0 => break,
                    1 => return child,
                    _ => depth -= 1,
                },
            }
        }
        self.offset = self.blob.struct_end;
        None
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

#[expect(unsafe_code, reason = "fdt-rs has no safe constructor")]
fn construct(bytes: &[u8]) -> Result<DevTree<'_>, BlobError> {
    // SAFETY: `DevTree::new` asks for bytes that are 32-bit aligned and exactly as long as the
    // header's `totalsize`: `with_checked_header`, the only caller, had `check_kind` check the
    // alignment and cut the slice to that length, which is at least `HEADER_BYTES` as every block
    // lies behind those.
    unsafe { DevTree::new(bytes) }.map_err(|_| BlobError::Layout)
}
