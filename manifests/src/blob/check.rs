//! The check of a structure block, by `fdt-rs` and by the reader that navigates later: both have to
//! find properties with the same names and values, and the same ends. Beginnings of nodes are read
//! once, as `fdt-rs` takes names of at most 30 characters.
//!
//! Owns the only contact with `fdt-rs`. That crate trusts headers and offsets: it unwraps, and it
//! asserts where a structure block runs out. So the header is checked before a tree is constructed,
//! and every token is bounded before and after `fdt-rs` reads it.

use fdt_rs::base::DevTree;
use fdt_rs::base::parse::{DevTreeParseIter, ParsedTok};
use fdt_rs::prelude::FallibleIterator;

use super::index::Pass;
use super::token::{BEGIN_NODE, END, END_NODE, PROPERTY};
use super::{Blob, BlobError, CELL, MAX_DEPTH, Node, Tree};
use crate::words;

impl<'a> Blob<'a> {
    /// Walks all tokens once: bounds, names, nesting, one root, properties before nodes. Tells an
    /// index of each token, and returns how many nodes there are.
    ///
    /// Names are ASCII: `checked_text` takes each of them for text without a look, so a name that
    /// passed here and was none would be undefined behaviour.
    pub(super) fn check_structure(
        &self,
        mut index: Option<&mut Pass<'_>>,
    ) -> Result<usize, BlobError> {
        let tree = construct(self.bytes)?;
        let mut position = self.start;
        let mut depth = 0_usize;
        let mut nodes = 0;
        let mut may_have_property = false;
        let blocks = self.tree;
        let ascii = ascii_end(blocks.strings);
        loop {
            let at = blocks.behind_nops(position);
            // The offset goes into the message: a damaged file is looked at with a dump of it.
            let structure = BlobError::Structure { offset: at * CELL };
            let behind = match blocks.cell(at).ok_or(structure)? {
                BEGIN_NODE => {
                    let is_second = depth == 0 && nodes != 0;
                    let node = blocks.node(at).filter(Node::has_text_name);
                    let node = node.filter(|_| !is_second).ok_or(structure)?;
                    nodes += 1;
                    // Properties come before nodes (Devicetree Specification 0.4, 5.4.2). A reader
                    // that stops at the first node would miss one behind it.
                    may_have_property = true;
                    depth += 1;
                    if let Some(index) = &mut index {
                        index.begin(at, node.at(), node.name_length());
                    }
                    Some(node.at())
                }
                PROPERTY if may_have_property => {
                    let property = blocks.check_property(&tree, at, ascii);
                    let (name, value, behind) = property.ok_or(structure)?;
                    if let Some(index) = &mut index {
                        index.property(&blocks, at, name, value);
                    }
                    Some(behind)
                }
                PROPERTY => None,
                END_NODE => {
                    may_have_property = false;
                    depth = depth.checked_sub(1).ok_or(structure)?;
                    if let Some(index) = &mut index {
                        index.end(at);
                    }
                    check_end(&tree, at)
                }
                // The end, with each node closed: a block that is cut off has lost something.
                END if depth == 0 && nodes != 0 && is_end(&tree, at) => return Ok(nodes),
                _ => None,
            };
            position = behind.ok_or(structure)?;
            if depth > MAX_DEPTH {
                return Err(BlobError::Depth);
            }
        }
    }
}

impl<'a> Tree<'a> {
    /// Reads the property whose token is at cell `at` twice, and returns the offset of its name,
    /// its value and the first cell behind it.
    fn check_property(
        &self,
        tree: &DevTree<'a>,
        at: usize,
        ascii: usize,
    ) -> Option<(usize, &'a [u8], usize)> {
        let [_, size, name, values @ ..] = self.cells.get(at..)? else {
            return None;
        };
        let (size, name) = (u32::from_be(*size) as usize, u32::from_be(*name) as usize);
        // Behind the property is a cell of the structure block, or the block's end.
        let rest = values.get(size.div_ceil(CELL)..)?;
        let behind = self.end() - rest.len();
        let (Some(ParsedTok::Prop(prop)), end) = parse(tree, at)? else {
            return None;
        };
        let is_same_value =
            (prop.prop_buf.as_ptr(), prop.prop_buf.len()) == (values.as_ptr().cast(), size);
        let is_good = prop.name_offset == name && is_same_value && end == behind;
        let is_text = || Some(self.property_at(at)?.checked_name().is_some());
        (is_good && (name < ascii || is_text()?)).then_some((name, prop.prop_buf, behind))
    }
}

/// Reads the end of a node at cell `at` twice, and returns the cell behind it.
fn check_end(tree: &DevTree<'_>, at: usize) -> Option<usize> {
    let parsed = parse(tree, at)?;
    matches!(parsed, (Some(ParsedTok::EndNode), end) if end == at + 1).then_some(at + 1)
}

/// Has `fdt-rs` read the token at cell `at`, and returns the cell behind it, too. `fdt-rs` takes the
/// offset as it is, which lies in the structure block.
fn parse<'a>(tree: &DevTree<'a>, at: usize) -> Option<(Option<ParsedTok<'a>>, usize)> {
    let offset = at * CELL;
    let mut iter = DevTreeParseIter { offset, fdt: tree };
    let parsed = iter.next().ok()?;
    (iter.offset.is_multiple_of(CELL)).then_some((parsed, iter.offset / CELL))
}

/// Tells whether `fdt-rs` finds the end of the tree at cell `at`.
fn is_end(tree: &DevTree<'_>, at: usize) -> bool {
    matches!(parse(tree, at), Some((None, _)))
}

/// Returns the offset in the strings block before which each name is ASCII and ends: behind the
/// last NUL if all of the block is ASCII, and 0 otherwise. Names of the specification are ASCII,
/// and a tree names each of them dozens of times.
fn ascii_end(strings: &[u8]) -> usize {
    match strings.is_ascii() {
        true => strings.iter().rposition(|&byte| byte == 0),
        false => None,
    }
    .map_or(0, |last| last + 1)
}

#[expect(unsafe_code, reason = "fdt-rs has no safe constructor")]
fn construct(bytes: &[u8]) -> Result<DevTree<'_>, BlobError> {
    // SAFETY: `DevTree::new` asks for bytes that are 32-bit aligned and exactly as long as the
    // header's `totalsize`. A `Blob` has bytes only after `with_checked_header`, where `check_kind`
    // checked the alignment, and which cut the slice to that length. The length is at least
    // `HEADER_BYTES`, as every block lies behind those.
    unsafe { DevTree::new(bytes) }.map_err(|_| BlobError::Layout)
}

/// Returns the bytes as cells, without those behind the last whole one.
pub(super) fn cells(bytes: &[u8]) -> &[u32] {
    let (before, cells, _) = words::cells(bytes);
    // `check_kind` has checked the alignment, without which there is no cell.
    if before.is_empty() { cells } else { &[] }
}
