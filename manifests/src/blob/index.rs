//! Index of a checked tree, made in one pass: where each node and its properties end, and which
//! names its properties may have.
//!
//! A boot asks every node of a board's tree dozens of questions, and most properties that it asks
//! for are not there. Without an index each question reads tokens up to the node's end.
//!
//! The index is a word for each cell of the structure block, so that a node's words are found
//! without a search:
//!
//! | word of | holds |
//! |---|---|
//! | the token of a node's beginning | the first cell behind the name |
//! | the last cell of the name | the first cell behind the node |
//! | the token of the node's end | a bit for each name that a property has, [`name_bit`] |
//! | the first cell behind the name, if it begins a property or is a NOP | the first cell behind the properties |
//!
//! Invariant: no answer depends on the index. A tree without one, whose words are missing, is read
//! token by token.

#[cfg(test)]
mod tests;

use super::text::text_length;
use super::token::Step;
use super::{Blob, MAX_DEPTH};

/// A node whose end the pass has not reached.
#[derive(Clone, Copy, Default)]
struct Open {
    /// The first cell behind the node's name.
    at: usize,
    /// Bits of the names of the properties so far.
    names: u32,
    /// Whether a node below was seen: the properties have ended.
    has_children: bool,
}

/// The pass over all tokens.
struct Pass<'i> {
    /// Words for the cells of the structure block.
    cells: &'i mut [u32],
    /// Bits of the names at all places in the strings block; 0: not looked at yet. A board's tree
    /// has ten times as many properties as names.
    names: &'i mut [u32],
    /// The structure block's first cell.
    start: usize,
    open: [Open; MAX_DEPTH],
    depth: usize,
}

impl<'a> Blob<'a> {
    /// Returns the tree with an index in `words`, of which there is one for each of
    /// [`Blob::structure_cells`]. `names`, one for each byte of [`Blob::strings`], is needed for
    /// the pass alone. With fewer words of either the tree stays without an index, or names are
    /// looked at again. What is in both before is lost: a word of another tree would lead to cells
    /// that [`Blob::new`] has not checked.
    #[must_use]
    pub fn indexed<'b>(&self, words: &'b mut [u32], names: &mut [u32]) -> Blob<'b>
    where
        'a: 'b,
    {
        let Some(cells) = words.get_mut(..self.structure_cells()) else {
            return *self;
        };
        cells.fill(0);
        names.fill(0);
        let mut pass = Pass {
            cells: &mut *cells,
            names,
            start: self.start,
            open: [Open::default(); MAX_DEPTH],
            depth: 0,
        };
        let mut at = self.start;
        // Bounded: every token moves the position on, and the structure block is finite.
        while let Some((behind, step)) = self.step(at) {
            match step {
                Step::Nop => {}
                Step::Begin => pass.begin(at, behind),
                Step::Property => pass.property(self, at),
                Step::End => pass.end(at),
            }
            at = behind;
        }
        Blob {
            index: cells,
            ..*self
        }
    }

    /// Returns the first cell behind the node whose name ends before cell `at`, if there is an
    /// index.
    #[inline(always)]
    pub(super) fn indexed_end(&self, at: usize) -> Option<usize> {
        self.index_word(at.wrapping_sub(1))
    }

    /// Returns the first cell behind the properties of the node whose name ends before cell `at`,
    /// if there is an index.
    #[inline(always)]
    pub(super) fn indexed_end_of_properties(&self, at: usize) -> Option<usize> {
        let begins = self.is_property_or_nop(at);
        if begins {
            self.index_word(at)
        } else {
            Some(at)
        }
    }

    /// Returns the first cell behind the name of the node whose token is at cell `at`, if there is
    /// an index.
    #[inline(always)]
    pub(super) fn indexed_end_of_name(&self, at: usize) -> Option<usize> {
        self.index_word(at)
    }

    /// Tells whether the node whose name ends before cell `at` has no property with a name of this
    /// [`name_bit`]: `false` says nothing.
    #[inline(always)]
    pub(super) fn lacks_name(&self, at: usize, bit: u32) -> bool {
        let end = self.indexed_end(at);
        let names = end.and_then(|end| self.index.get(end.wrapping_sub(1 + self.start)));
        names.is_some_and(|names| names & bit == 0)
    }

    /// Returns the index's word of a cell, if there is an index. No cell of a tree is cell 0.
    #[inline(always)]
    fn index_word(&self, cell: usize) -> Option<usize> {
        let word = *self.index.get(cell.wrapping_sub(self.start))?;
        (word != 0).then_some(word as usize)
    }
}

impl Pass<'_> {
    /// Begins the node whose token is at cell `token` and whose name ends before cell `at`.
    fn begin(&mut self, token: usize, at: usize) {
        self.end_properties(token);
        self.set(token, at);
        if let Some(open) = self.open.get_mut(self.depth) {
            *open = Open {
                at,
                ..Open::default()
            };
        }
        self.depth += 1;
    }

    /// Notes the name of the property whose token is at cell `at`.
    fn property(&mut self, blob: &Blob<'_>, at: usize) {
        let Some(offset) = blob.name_offset(at) else {
            return;
        };
        let bits = match self.names.get_mut(offset) {
            Some(known) => {
                if *known == 0 {
                    *known = bit_of_name_at(blob.strings, offset);
                }
                *known
            }
            None => bit_of_name_at(blob.strings, offset),
        };
        if let Some(open) = self.innermost() {
            open.names |= bits;
        }
    }

    /// Ends the innermost node, whose end's token is at cell `token`.
    fn end(&mut self, token: usize) {
        self.end_properties(token);
        if let Some(Open { at, names, .. }) = self.innermost().copied() {
            self.set(at.wrapping_sub(1), token + 1);
            if let Some(word) = self.cells.get_mut(token.wrapping_sub(self.start)) {
                *word = names;
            }
        }
        self.depth = self.depth.saturating_sub(1);
    }

    /// Notes that the innermost node's properties end before cell `token`, where a node begins or
    /// ends, unless they have ended.
    fn end_properties(&mut self, token: usize) {
        let Some(open) = self.innermost().filter(|open| !open.has_children) else {
            return;
        };
        open.has_children = true;
        let at = open.at;
        // Without properties and NOPs the cell is the token's, which has another word.
        if at != token {
            self.set(at, token);
        }
    }

    /// Returns the innermost node; `None` before the root.
    fn innermost(&mut self) -> Option<&mut Open> {
        self.open.get_mut(self.depth.checked_sub(1)?)
    }

    /// Sets the word of a cell.
    fn set(&mut self, cell: usize, value: usize) {
        if let Some(word) = self.cells.get_mut(cell.wrapping_sub(self.start)) {
            *word = u32::try_from(value).unwrap_or(0);
        }
    }
}

/// Returns the bit of the name at an offset in the strings block; all bits if there is none.
fn bit_of_name_at(strings: &[u8], offset: usize) -> u32 {
    let names = strings.get(offset..).unwrap_or_default();
    let name = text_length(names).and_then(|length| names.get(..length));
    name.map_or(u32::MAX, name_bit)
}

/// Returns the bit that stands for a name, and for others: by its length and both ends, in which
/// the names of one node differ.
#[inline(always)]
pub(super) const fn name_bit(name: &[u8]) -> u32 {
    let (first, last) = match name {
        [] => (0, 0),
        [only] => (*only, *only),
        [first, .., last] => (*first, *last),
    };
    let sum = name.len() as u32 * 5 + first as u32 + last as u32 * 3;
    1 << (sum % u32::BITS)
}
