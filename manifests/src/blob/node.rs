//! Navigation in a checked tree: nodes, their properties, and the nodes below.
//!
//! A name is bytes until somebody asks for its text, as most names are only compared.

use core::ops::Range;

use super::index::Record;
use super::names::{Texts, name_bit};
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
    /// The node's record, and its number; `None` without an index.
    record: Option<(&'a Record, usize)>,
}

impl<'a> Node<'a> {
    /// Returns the node whose name was read, and whose next token is at cell `at`.
    pub(super) const fn new(blob: Blob<'a>, name: &'a [u8], at: usize) -> Self {
        let record = None;
        Self {
            blob,
            name,
            at,
            record,
        }
    }

    /// Returns the node that has a record; `None` without an index, and behind the last.
    #[inline(always)]
    pub(super) fn numbered(blob: Blob<'a>, number: usize) -> Option<Self> {
        let record = blob.record(number)?;
        let (at, length) = (record.at as usize, record.name_length as usize);
        // The name's last cell has a NUL at least.
        let start = at.wrapping_sub(length / CELL + 1).wrapping_mul(CELL);
        Some(Self {
            blob,
            name: blob.bytes.get(start..start.wrapping_add(length))?,
            at,
            record: Some((record, number)),
        })
    }

    /// Returns the first cell behind the node's properties.
    fn end_of_properties(&self) -> usize {
        match self.record {
            Some((record, _)) => record.properties_end as usize,
            None => self.blob.end_of_properties(self.at),
        }
    }

    /// Returns the first cell behind the node.
    fn end(&self) -> usize {
        match self.record {
            Some((record, _)) => record.end as usize,
            None => self.blob.end_of_node(self.at),
        }
    }

    /// Returns the node's name with its unit address; the root's is empty.
    #[must_use]
    #[expect(unsafe_code, reason = "`checked_text`")]
    pub fn name(&self) -> &'a str {
        // SAFETY: `Blob::check_structure` has read the name of each node of the tree.
        unsafe { checked_text(self.name) }
    }

    /// Returns the first node with this name among those with the records `numbers`, without the
    /// nodes below them.
    fn numbered_child(&self, name: &str, numbers: Range<usize>) -> Option<Self> {
        let mut number = numbers.start;
        // Bounded: each record leads to a later one.
        while number < numbers.end {
            let record = self.blob.record(number)?;
            let node = || Node::numbered(self.blob, number);
            if record.name_length as usize == name.len()
                && let Some(node) = node().filter(|node| node.name == name.as_bytes())
            {
                return Some(node);
            }
            number = record.behind as usize;
        }
        None
    }

    /// Returns the range of the node's tokens, from the start of the blob: its beginning and its
    /// end, with everything between them. A caller that holds the blob writable may overwrite all
    /// of it with `FDT_NOP`.
    #[must_use]
    pub fn tokens(&self) -> Range<usize> {
        // The token, and the name with its NUL.
        let header = 1 + self.name.len() / CELL + 1;
        let start = self.at.saturating_sub(header);
        start * CELL..self.end() * CELL
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
        let end = self.end_of_properties() * CELL;
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
            let tokens = left_out.map_or(self.end_of_properties() * CELL..0, |property| {
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
        let start = self.end_of_properties() * CELL;
        // Without this node's own end.
        let end = (self.end() - 1) * CELL;
        self.blob.bytes.get(start..end).unwrap_or_default()
    }

    /// Iterates over the nodes directly below this one.
    #[must_use]
    pub fn children(&self) -> Children<'a> {
        let records = self.record.map(|(record, number)| Range {
            start: number + 1,
            end: record.behind as usize,
        });
        Children {
            blob: self.blob,
            at: self.at,
            is_in_child: false,
            records,
        }
    }

    /// Iterates over the node and all nodes below it, in the tree's order.
    #[must_use]
    pub fn all(&self) -> All<'a> {
        All(match self.record {
            Some((record, number)) => Rest::Numbered {
                blob: self.blob,
                numbers: number..record.behind as usize,
            },
            None => Rest::Read {
                next: Some(*self),
                end: self.end(),
            },
        })
    }

    /// Returns the first property with this name.
    #[inline(always)]
    #[must_use]
    pub fn property(&self, name: &str) -> Option<Property<'a>> {
        // Inlined, so that the bit of a constant name is a constant.
        match self.lacks_name(name_bit(name.as_bytes())) {
            true => None,
            false => self.find_property(name),
        }
    }

    /// Returns the first property with this name, by the tokens.
    fn find_property(&self, name: &str) -> Option<Property<'a>> {
        self.blob.find_property(self.at, name)
    }

    /// Tells whether an index says that the node has no property with a name of this
    /// [`name_bit`]: `false` says nothing.
    #[inline(always)]
    pub(super) fn lacks_name(&self, bit: u32) -> bool {
        self.record
            .is_some_and(|(record, _)| record.names & bit == 0)
    }

    /// Tells whether one of the strings of `compatible` is one of `texts`.
    #[inline(always)]
    #[must_use]
    pub fn is_compatible(&self, texts: &Texts) -> bool {
        let lacks = |(record, _): (&Record, usize)| record.compatible & texts.bits() == 0;
        // Of most nodes no string has one of the bits.
        !self.record.is_some_and(lacks) && self.names_compatible(texts)
    }

    /// Tells, by the strings themselves, whether one of `compatible` is one of `texts`.
    fn names_compatible(&self, texts: &Texts) -> bool {
        self.compatible()
            .is_some_and(|list| list.has_text_of(texts))
    }

    /// Returns `compatible`, which an index has the place of: nearly each node of a board has it,
    /// and is asked for it several times.
    #[must_use]
    pub fn compatible(&self) -> Option<Property<'a>> {
        match self.record {
            Some((record, _)) => self.blob.property_at(record.compatible_at()?),
            None => self.find_property("compatible"),
        }
    }

    /// Tells whether the node has `compatible`.
    #[must_use]
    pub fn has_compatible(&self) -> bool {
        match self.record {
            Some((record, _)) => record.compatible_at().is_some(),
            None => self.find_property("compatible").is_some(),
        }
    }

    /// Returns the number by which other nodes refer to this one: `phandle`, or else
    /// `linux,phandle`.
    #[must_use]
    pub fn phandle(&self) -> Option<u32> {
        if let Some((record, _)) = self.record {
            return record.phandle;
        }
        let first = |name: &str| self.property(name)?.cells()?.next();
        first("phandle").or_else(|| first("linux,phandle"))
    }

    /// Returns the first child with this name.
    #[must_use]
    pub fn child(&self, name: &str) -> Option<Self> {
        if let Some((record, number)) = self.record {
            let below = number + 1..record.behind as usize;
            return self.numbered_child(name, below);
        }
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

/// A node and the nodes below it.
#[derive(Clone, Debug)]
pub struct All<'a>(Rest<'a>);

/// The nodes that are left.
#[derive(Clone, Debug)]
enum Rest<'a> {
    /// By an index: the numbers of their records.
    Numbered {
        blob: Blob<'a>,
        numbers: Range<usize>,
    },
    /// By the tokens: the next node, and the first cell behind the first node.
    Read { next: Option<Node<'a>>, end: usize },
}

impl<'a> Iterator for All<'a> {
    type Item = Node<'a>;

    fn next(&mut self) -> Option<Node<'a>> {
        match &mut self.0 {
            Rest::Numbered { blob, numbers } => Node::numbered(*blob, numbers.next()?),
            Rest::Read { next, end } => {
                let node = (*next)?;
                let found = node.blob.next_node(node.at).filter(|(_, at)| *at <= *end);
                *next = found.map(|(name, at)| Node::new(node.blob, name, at));
                Some(node)
            }
        }
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
    /// Numbers of the records of the children that follow and of the nodes below them; `None`
    /// without an index.
    records: Option<Range<usize>>,
}

impl<'a> Iterator for Children<'a> {
    type Item = Node<'a>;

    fn next(&mut self) -> Option<Node<'a>> {
        if let Some(records) = &mut self.records {
            let number = records.start;
            let record = self.blob.record(number).filter(|_| number < records.end)?;
            records.start = record.behind as usize;
            return Node::numbered(self.blob, number);
        }
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
