//! Tokens of a structure block that has been checked (Devicetree Specification 0.4, 5.4.1).
//!
//! `fdt-rs` reads the properties and ends of a blob once, when the blob is checked, and this reader
//! has to agree with it there. All later reads are this one's alone: a boot reads a board's tree
//! dozens of times, and `fdt-rs` takes some 150 instructions a token.
//!
//! Invariant: no bytes, however damaged, panic or are read out of bounds.

use super::node::Node;
use super::property::{PROPERTY_HEADER, Property};
use super::text::{first_zero, is_name, zero_bytes};
use super::{CELL, Tree};
use crate::words;

/// Token of a node's beginning; the name follows.
pub(super) const BEGIN_NODE: u32 = 1;
/// Token of a node's end.
pub(super) const END_NODE: u32 = 2;
/// Token of a property; length, name offset and value follow.
pub(super) const PROPERTY: u32 = 3;
/// Token without meaning: a node or property that is overwritten with it is no longer in the tree.
pub const FDT_NOP: u32 = 4;
/// Token of the tree's end.
pub(super) const END: u32 = 9;

/// Kind of a token that is passed over.
#[derive(Clone, Copy)]
pub(super) enum Step {
    Nop,
    Begin,
    Property,
    End,
}

impl<'a> Tree<'a> {
    /// Returns the first property with this name from cell `at` on. Values of the properties before
    /// it are not looked at.
    pub(super) fn find_property(&self, at: usize, name: &str) -> Option<Property<'a>> {
        const PROPERTY_CELL: u32 = PROPERTY.to_be();
        const NOP_CELL: u32 = FDT_NOP.to_be();
        let mut rest = self.cells.get(at..)?;
        // Bounded: every token shortens the rest.
        loop {
            rest = match rest {
                [PROPERTY_CELL, size, offset, behind @ ..] => {
                    let names = self.strings.get(u32::from_be(*offset) as usize..)?;
                    if is_name(names, name) {
                        return self.property_at(self.end() - rest.len());
                    }
                    behind.get((u32::from_be(*size) as usize).div_ceil(CELL)..)?
                }
                [NOP_CELL, behind @ ..] => behind,
                _ => return None,
            }
        }
    }

    /// Returns the first property from cell `at` on, and moves `at` behind it; `None` where the
    /// node's properties end.
    pub(super) fn next_property(&self, at: &mut usize) -> Option<Property<'a>> {
        *at = self.behind_nops(*at);
        if self.cell(*at)? != PROPERTY {
            return None;
        }
        let property = self.property_at(*at);
        *at = self.behind_property(*at)?;
        property
    }

    /// Returns the first cell behind the properties of the node whose name ends before cell `at`: a
    /// node's, or that of the end of the node.
    pub(super) fn end_of_properties(&self, mut at: usize) -> usize {
        // Bounded: every token moves the position on, and the structure block is finite.
        while let Some(behind) = match self.cell(at) {
            Some(FDT_NOP) => Some(at + 1),
            Some(PROPERTY) => self.behind_property(at),
            Some(_) | None => None,
        } {
            at = behind;
        }
        at
    }

    /// Returns the first node from cell `at` on; `None` if the node around `at` ends before.
    pub(super) fn find_node(&self, mut at: usize) -> Option<Node<'a>> {
        // Bounded: every token moves the position on, and the structure block is finite.
        loop {
            match self.cell(at)? {
                FDT_NOP => at += 1,
                PROPERTY => at = self.behind_property(at)?,
                BEGIN_NODE => return self.node(at),
                _ => return None,
            }
        }
    }

    /// Returns the first node from cell `at` on, whatever ends before.
    pub(super) fn next_node(&self, mut at: usize) -> Option<Node<'a>> {
        // Bounded: every token moves the position on, and the structure block is finite.
        loop {
            let (behind, step) = self.step(at)?;
            if matches!(step, Step::Begin) {
                return self.node(at);
            }
            at = behind;
        }
    }

    /// Returns the first cell behind the end of the node whose name ends before cell `at`.
    pub(super) fn end_of_node(&self, mut at: usize) -> usize {
        // Nodes below are part of it, so their ends are counted.
        let mut depth = 1_usize;
        // Bounded: every token moves the position on, and the structure block is finite.
        while depth > 0
            && let Some((behind, step)) = self.step(at)
        {
            at = behind;
            match step {
                Step::Begin => depth += 1,
                Step::End => depth -= 1,
                Step::Nop | Step::Property => {}
            }
        }
        at
    }

    /// Returns the first cell behind the token at cell `at`, and the token's kind; `None` at the
    /// end of the tree.
    #[inline(always)]
    pub(super) fn step(&self, at: usize) -> Option<(usize, Step)> {
        match self.cell(at)? {
            FDT_NOP => Some((at + 1, Step::Nop)),
            PROPERTY => Some((self.behind_property(at)?, Step::Property)),
            BEGIN_NODE => Some((self.behind_text(at + 1)?, Step::Begin)),
            END_NODE => Some((at + 1, Step::End)),
            _ => None,
        }
    }

    /// Returns the first cell from `at` on that is no NOP.
    pub(super) fn behind_nops(&self, mut at: usize) -> usize {
        // Bounded: the position moves on, and the structure block is finite.
        while self.cell(at) == Some(FDT_NOP) {
            at += 1;
        }
        at
    }

    /// Returns the node whose token is at cell `token`.
    pub(super) fn node(&self, token: usize) -> Option<Node<'a>> {
        let at = self.behind_text(token + 1)?;
        let last = u32::from_le(*self.cells.get(at - 1)?);
        let length = (at - 2 - token) * CELL + first_zero(last)?;
        Some(Node::new(*self, at, length))
    }

    /// Returns the property whose token is at cell `at`.
    pub(super) fn property_at(&self, at: usize) -> Option<Property<'a>> {
        let value = self.value(at)?;
        let offset = (at + PROPERTY_HEADER) * CELL;
        Property::new(self.strings, self.number(at + 2)?, value, offset)
    }

    /// Returns the value of the property whose token is at cell `at`.
    #[inline(always)]
    pub(super) fn value(&self, at: usize) -> Option<&'a [u8]> {
        let value = self.bytes_from(at + PROPERTY_HEADER)?;
        value.get(..self.number(at + 1)?)
    }

    /// Returns the first cell behind the property whose token is at cell `at`.
    #[inline(always)]
    pub(super) fn behind_property(&self, at: usize) -> Option<usize> {
        Some(at + PROPERTY_HEADER + self.number(at + 1)?.div_ceil(CELL))
    }

    /// Returns the first cell behind the text at cell `at`.
    #[inline(always)]
    fn behind_text(&self, mut at: usize) -> Option<usize> {
        // Bounded: the position moves on, and the structure block is finite.
        loop {
            let cell = self.cell(at)?;
            at += 1;
            if zero_bytes(cell) != 0 {
                return Some(at);
            }
        }
    }

    /// Returns the bytes of the structure block from cell `at` on.
    pub(super) fn bytes_from(&self, at: usize) -> Option<&'a [u8]> {
        Some(words::bytes(self.cells.get(at..)?))
    }

    /// Returns the bytes of the blob up to the structure block's end.
    pub(super) fn bytes(&self) -> &'a [u8] {
        words::bytes(self.cells)
    }

    /// Returns cell `at` of the blob, `None` behind the structure block.
    #[inline(always)]
    pub(super) fn cell(&self, at: usize) -> Option<u32> {
        self.cells.get(at).map(|cell| u32::from_be(*cell))
    }

    /// Returns the number in cell `at`.
    #[inline(always)]
    fn number(&self, at: usize) -> Option<usize> {
        usize::try_from(self.cell(at)?).ok()
    }
}
