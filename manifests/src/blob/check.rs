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

use super::token::{BEGIN_NODE, Token};
use super::{Blob, BlobError, CELL, MAX_DEPTH};
use crate::words;

impl<'a> Blob<'a> {
    /// Walks all tokens once: bounds, names, nesting, one root, properties before nodes. Returns how
    /// many nodes there are.
    pub(super) fn check_structure(&self) -> Result<usize, BlobError> {
        let tree = construct(self.bytes)?;
        let mut position = self.start;
        let mut depth = 0_usize;
        let mut nodes = 0;
        let mut may_have_property = false;
        let ascii = ascii_end(self.strings);
        loop {
            // The offset goes into the message: a damaged file is looked at with a dump of it.
            let offset = position * CELL;
            let structure = Err(BlobError::Structure { offset });
            match self.checked_token(&tree, &mut position)? {
                Some(Token::Begin(name)) => {
                    if depth == 0 && nodes != 0 || !self.is_text(name, position) {
                        return structure;
                    }
                    nodes += 1;
                    // Properties come before nodes (Devicetree Specification 0.4, 5.4.2). A reader
                    // that stops at the first node would miss one behind it.
                    may_have_property = true;
                    depth += 1;
                    if depth > MAX_DEPTH {
                        return Err(BlobError::Depth);
                    }
                }
                Some(Token::Property(property))
                    if may_have_property
                        && (property.name_offset < ascii || property.checked_name().is_some()) => {}
                Some(Token::Property(_)) => return structure,
                Some(Token::End) => {
                    may_have_property = false;
                    match depth.checked_sub(1) {
                        Some(outer) => depth = outer,
                        None => return structure,
                    }
                }
                // The end, with each node closed: a block that is cut off has lost something.
                None if depth == 0 && nodes != 0 => return Ok(nodes),
                None => return structure,
            }
        }
    }

    /// Tells whether the name of a node, which ends before cell `behind`, is text. Nearly all are
    /// ASCII, of which a cell is looked at at once: the bytes behind the name are NULs, or count as
    /// a doubt.
    fn is_text(&self, name: &[u8], behind: usize) -> bool {
        let start = behind.saturating_sub(name.len() / CELL + 1);
        let all = |cells: &[u32]| cells.iter().fold(0, |all, cell| all | cell);
        let is_ascii = |cells| all(cells) & 0x8080_8080 == 0;
        self.cells.get(start..behind).is_some_and(is_ascii) || core::str::from_utf8(name).is_ok()
    }

    /// Reads the token at cell `at` twice, and moves `at` behind it; `None` at the end of the tree.
    /// One in five of the Linux kernel's device trees has nodes with longer names than `fdt-rs`
    /// takes.
    fn checked_token(
        &self,
        tree: &DevTree<'a>,
        at: &mut usize,
    ) -> Result<Option<Token<'a>>, BlobError> {
        let cell = self.behind_nops(*at);
        let offset = cell * CELL;
        let structure = BlobError::Structure { offset };
        let Some(kind) = self.cells.get(cell) else {
            return Err(structure);
        };
        *at = cell;
        let token = self.token(at);
        if u32::from_be(*kind) == BEGIN_NODE {
            return token.ok_or(structure).map(Some);
        }
        // `fdt-rs` takes the offset as it is, which lies in the structure block.
        let mut iter = DevTreeParseIter { offset, fdt: tree };
        let parsed = iter.next().map_err(|_| structure)?;
        if parsed.is_some() && (iter.offset != *at * CELL || *at > self.cells.len()) {
            return Err(structure);
        }
        match (parsed, token) {
            (None, None) => Ok(None),
            (Some(ParsedTok::EndNode), Some(Token::End)) => Ok(Some(Token::End)),
            (Some(ParsedTok::Prop(prop)), Some(Token::Property(property)))
                if prop.name_offset == property.name_offset
                    && core::ptr::eq(prop.prop_buf, property.value) =>
            {
                Ok(token)
            }
            _ => Err(structure),
        }
    }
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
