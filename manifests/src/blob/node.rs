//! Navigation in a checked tree: nodes, their properties, and the nodes below.
//!
//! A name is bytes until somebody asks for its text, as most names are only compared.

use core::ops::Range;

use super::index::name_bit;
use super::property::Property;
use super::text::checked_text;
use super::{Blob, CELL};

/// A node of a checked tree.
#[derive(Clone, Copy, Debug)]
pub struct Node<'a> {
    blob: Blob<'a>,
    name: &'a [u8],
    /// The first cell after the node's name.
    at: usize,
}

impl<'a> Node<'a> {
    /// Returns the node whose name was read, and whose next token is at cell `at`.
    pub(super) const fn new(blob: Blob<'a>, name: &'a [u8], at: usize) -> Self {
        Self { blob, name, at }
    }

    /// Returns the node's name with its unit address; the root's is empty.
    #[must_use]
    pub fn name(&self) -> &'a str {
        checked_text(self.name)
    }

    /// Returns the range of the node's tokens, from the start of the blob: its beginning and its
    /// end, with everything between them. A caller that holds the blob writable may overwrite all
    /// of it with `FDT_NOP`.
    #[must_use]
    pub fn tokens(&self) -> Range<usize> {
        // The token, and the name with its NUL.
        let header = 1 + self.name.len() / CELL + 1;
        let start = self.at.saturating_sub(header);
        start * CELL..self.blob.end_of_node(self.at) * CELL
    }

    /// Iterates over the node's own properties.
    #[must_use]
    pub fn properties(&self) -> Properties<'a> {
        Properties {
            blob: self.blob,
            at: self.at,
        }
    }

    /// Returns the tokens of all properties, as they are.
    #[must_use]
    pub fn all_property_tokens(&self) -> &'a [u8] {
        let end = self.blob.end_of_properties(self.at) * CELL;
        let tokens = self.blob.bytes.get(self.at * CELL..end);
        tokens.unwrap_or_default()
    }

    /// Returns the tokens of the properties that `keeps` wants, as they are, in pieces: a property
    /// that is left out ends a piece.
    pub fn property_tokens(
        &self,
        keeps: impl Fn(&Property<'a>) -> bool,
    ) -> impl Iterator<Item = &'a [u8]> {
        let mut properties = self.properties();
        let mut start = self.at * CELL;
        let mut is_over = false;
        // Bounded: each turn ends behind a property or is the last.
        core::iter::from_fn(move || {
            if is_over {
                return None;
            }
            let left_out = properties.find(|property| !keeps(property));
            is_over = left_out.is_none();
            let tokens = left_out
                .map_or(self.blob.end_of_properties(self.at) * CELL..0, |property| {
                    property.tokens()
                });
            let piece = self.blob.bytes.get(start..tokens.start);
            start = tokens.end;
            piece
        })
    }

    /// Returns the tokens of all nodes below this one, as they are.
    #[must_use]
    pub fn child_tokens(&self) -> &'a [u8] {
        let start = self.blob.end_of_properties(self.at) * CELL;
        // Without this node's own end.
        let end = (self.blob.end_of_node(self.at) - 1) * CELL;
        self.blob.bytes.get(start..end).unwrap_or_default()
    }

    /// Iterates over the nodes directly below this one.
    #[must_use]
    pub fn children(&self) -> Children<'a> {
        Children {
            blob: self.blob,
            at: self.blob.end_of_properties(self.at),
            is_in_child: false,
        }
    }

    /// Returns the first property with this name.
    #[inline(always)]
    #[must_use]
    pub fn property(&self, name: &str) -> Option<Property<'a>> {
        // Inlined, so that the bit of a constant name is a constant.
        self.property_by(name, name_bit(name.as_bytes()))
    }

    /// Returns the first property with this name, whose [`name_bit`] is `bit`.
    fn property_by(&self, name: &str, bit: u32) -> Option<Property<'a>> {
        if self.blob.lacks_name(self.at, bit) {
            return None;
        }
        self.blob.find_property(self.at, name)
    }

    /// Tells whether an index says that the node has no property with this name.
    #[cfg(test)]
    pub(super) fn lacks(&self, name: &str) -> bool {
        self.blob.lacks_name(self.at, name_bit(name.as_bytes()))
    }

    /// Returns the first child with this name.
    #[must_use]
    pub fn child(&self, name: &str) -> Option<Self> {
        self.children().find(|child| child.name == name.as_bytes())
    }
}

/// The properties of a node.
#[derive(Clone, Debug)]
pub struct Properties<'a> {
    blob: Blob<'a>,
    /// Cell of the next token.
    at: usize,
}

impl<'a> Iterator for Properties<'a> {
    type Item = Property<'a>;

    fn next(&mut self) -> Option<Property<'a>> {
        self.blob.next_property(&mut self.at)
    }
}

/// The nodes directly below a node.
#[derive(Clone, Debug)]
pub struct Children<'a> {
    blob: Blob<'a>,
    /// Cell of the next token.
    at: usize,
    /// Whether `at` is behind the name of the child that was returned last. A search that ends
    /// there has no use for the child's end.
    is_in_child: bool,
}

impl<'a> Iterator for Children<'a> {
    type Item = Node<'a>;

    fn next(&mut self) -> Option<Node<'a>> {
        if self.is_in_child {
            self.at = self.blob.end_of_node(self.at);
        }
        let child = self.blob.find_node(self.at);
        self.is_in_child = child.is_some();
        let (name, at) = child.unwrap_or((&[], self.blob.end()));
        self.at = at;
        self.is_in_child.then(|| Node::new(self.blob, name, at))
    }
}
