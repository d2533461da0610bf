//! Navigation in a checked tree: nodes, their properties, and the nodes below.
//!
//! A name is bytes until somebody asks for its text, as most names are only compared.

use core::ops::Range;

use super::index::{self, Record};
use super::names::{Texts, name_bit};
use super::property::Property;
use super::text::checked_text;
use super::{CELL, Tree};

/// A node of a checked tree. Small, as walks hand nodes on by the dozen.
#[derive(Clone, Copy, Debug)]
pub struct Node<'a> {
    tree: Tree<'a>,
    /// The node's record; `None` without an index.
    record: Option<Record<'a>>,
    /// The first cell after the node's name.
    at: u32,
    /// Bytes of the name.
    name_length: u32,
}

impl<'a> Node<'a> {
    /// Returns the node whose name of `name_length` bytes ends before cell `at`. A blob has less
    /// than 4 GiB.
    pub(super) const fn new(tree: Tree<'a>, at: usize, name_length: usize) -> Self {
        Self {
            tree,
            record: None,
            at: at as u32,
            name_length: name_length as u32,
        }
    }

    /// Returns the end of a tree, as a node without anything in it.
    pub(super) const fn last(tree: Tree<'a>) -> Self {
        Self::new(tree, tree.end(), 0)
    }

    /// Returns the node that has a record; `None` without an index, and behind the last.
    #[inline(always)]
    pub(super) fn numbered(tree: Tree<'a>, number: usize) -> Option<Self> {
        let record = tree.record(number)?;
        Some(Self {
            record: Some(record),
            ..Self::new(tree, record.at(), record.name_length())
        })
    }

    /// Returns the first cell behind the node's name.
    pub(super) const fn at(&self) -> usize {
        self.at as usize
    }

    /// Returns the number of the name's bytes.
    pub(super) const fn name_length(&self) -> usize {
        self.name_length as usize
    }

    /// Returns the cell of the name's first bytes. The name's last cell has a NUL at least.
    const fn name_at(&self) -> usize {
        self.at().wrapping_sub(self.name_length() / CELL + 1)
    }

    /// Returns the bytes of the name.
    fn name_bytes(&self) -> &'a [u8] {
        let names = self.tree.bytes_from(self.name_at());
        let name = names.and_then(|names| names.get(..self.name_length()));
        name.unwrap_or_default()
    }

    /// Tells whether the name is text. Nearly all are ASCII, of which a cell is looked at at once:
    /// the bytes behind the name are NULs, or count as a doubt.
    pub(super) fn has_text_name(&self) -> bool {
        let all = |cells: &[u32]| cells.iter().fold(0, |all, cell| all | cell);
        let cells = self.tree.cells.get(self.name_at()..self.at());
        cells.is_some_and(|cells| all(cells) & 0x8080_8080 == 0)
            || core::str::from_utf8(self.name_bytes()).is_ok()
    }

    /// Returns the first cell behind the node's properties.
    fn end_of_properties(&self) -> usize {
        match self.record {
            Some(record) => record.properties_end(),
            None => self.tree.end_of_properties(self.at()),
        }
    }

    /// Returns the first cell behind the node.
    fn end(&self) -> usize {
        match self.record {
            Some(record) => record.end(),
            None => self.tree.end_of_node(self.at()),
        }
    }

    /// Returns the node's name with its unit address; the root's is empty.
    #[must_use]
    #[expect(unsafe_code, reason = "`checked_text`")]
    pub fn name(&self) -> &'a str {
        // SAFETY: `Blob::check_structure` has read the name of each node of the tree.
        unsafe { checked_text(self.name_bytes()) }
    }

    /// Returns the first node with this name among those with the records `numbers`, without the
    /// nodes below them.
    fn numbered_child(&self, name: &str, numbers: Range<usize>) -> Option<Self> {
        let mut number = numbers.start;
        // Bounded: each record leads to a later one.
        while number < numbers.end {
            let record = self.tree.record(number)?;
            let node = || Node::numbered(self.tree, number);
            if record.name_length() == name.len()
                && let Some(node) = node().filter(|node| node.name_bytes() == name.as_bytes())
            {
                return Some(node);
            }
            number = record.behind();
        }
        None
    }

    /// Returns the range of the node's tokens, from the start of the blob: its beginning and its
    /// end, with everything between them. A caller that holds the blob writable may overwrite all
    /// of it with `FDT_NOP`.
    #[must_use]
    pub fn tokens(&self) -> Range<usize> {
        // The token is before the name.
        let start = self.name_at().saturating_sub(1);
        start * CELL..self.end() * CELL
    }

    /// Iterates over the node's own properties.
    #[must_use]
    pub fn properties(&self) -> Properties<'a> {
        Properties {
            tree: self.tree,
            at: self.at(),
        }
    }

    /// Returns the tokens of all properties, as they are.
    #[must_use]
    pub fn all_property_tokens(&self) -> &'a [u8] {
        let end = self.end_of_properties() * CELL;
        let tokens = self.tree.bytes().get(self.at() * CELL..end);
        tokens.unwrap_or_default()
    }

    /// Returns the tokens of the properties that `keeps` wants, as they are, in pieces: a property
    /// that is left out ends a piece.
    pub fn property_tokens(
        &self,
        keeps: impl Fn(&Property<'a>) -> bool,
    ) -> impl Iterator<Item = &'a [u8]> {
        let mut properties = self.properties();
        let mut start = self.at() * CELL;
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
            let piece = self.tree.bytes().get(start..tokens.start);
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
        self.tree.bytes().get(start..end).unwrap_or_default()
    }

    /// Iterates over the nodes directly below this one.
    #[must_use]
    pub fn children(&self) -> Children<'a> {
        let records = self.record.map(|record| Range {
            start: record.own() + 1,
            end: record.behind(),
        });
        Children {
            tree: self.tree,
            at: self.at(),
            is_in_child: false,
            records,
        }
    }

    /// Iterates over the node and all nodes below it, in the tree's order.
    #[must_use]
    pub fn all(&self) -> All<'a> {
        All(match self.record {
            Some(record) => Rest::Numbered {
                tree: self.tree,
                numbers: record.own()..record.behind(),
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
        self.tree.find_property(self.at(), name)
    }

    /// Tells whether an index says that the node has no property with a name of this
    /// [`name_bit`]: `false` says nothing.
    #[inline(always)]
    pub(super) fn lacks_name(&self, bit: u32) -> bool {
        self.record.is_some_and(|record| record.names() & bit == 0)
    }

    /// Tells whether one of the strings of `compatible` is one of `texts`.
    #[inline(always)]
    #[must_use]
    pub fn is_compatible(&self, texts: &Texts) -> bool {
        let lacks = |record: Record<'_>| record.compatible() & texts.bits() == 0;
        // Of most nodes no string has one of the bits.
        !self.record.is_some_and(lacks) && self.names_compatible(texts)
    }

    /// Tells, by the strings themselves, whether one of `compatible` is one of `texts`.
    fn names_compatible(&self, texts: &Texts) -> bool {
        self.compatible()
            .is_some_and(|list| list.has_text_of(texts))
    }

    /// Iterates over the node and all nodes below it of whose `compatible` strings one is one of
    /// `texts`.
    pub fn all_compatible(&self, texts: &'static Texts) -> impl Iterator<Item = Node<'a>> {
        let mut all = self.all();
        // Bounded: each turn takes a node.
        core::iter::from_fn(move || {
            all.skip_incompatible(texts.bits());
            all.next()
        })
        .filter(|node| node.is_compatible(texts))
    }

    /// Returns the highest phandle of the node and of all nodes below it; 0: there is none.
    #[must_use]
    pub fn highest_phandle(&self) -> u32 {
        let numbers = self.record.map(|record| record.own()..record.behind());
        match numbers.and_then(|numbers| self.tree.records.get(numbers)) {
            Some(records) => index::highest_phandle(records),
            None => self
                .all()
                .filter_map(|node| node.phandle())
                .max()
                .unwrap_or(0),
        }
    }

    /// Returns `compatible`, which an index has the place of: nearly each node of a board has it,
    /// and is asked for it several times.
    #[must_use]
    pub fn compatible(&self) -> Option<Property<'a>> {
        match self.record {
            Some(record) => self.tree.property_at(record.compatible_at()?),
            None => self.find_property("compatible"),
        }
    }

    /// Tells whether the node has `compatible`.
    #[must_use]
    pub fn has_compatible(&self) -> bool {
        match self.record {
            Some(record) => record.compatible_at().is_some(),
            None => self.find_property("compatible").is_some(),
        }
    }

    /// Returns the number by which other nodes refer to this one: `phandle`, or else
    /// `linux,phandle`.
    #[must_use]
    pub fn phandle(&self) -> Option<u32> {
        if let Some(record) = self.record {
            return record.phandle();
        }
        let first = |name: &str| self.property(name)?.cells()?.next();
        first("phandle").or_else(|| first("linux,phandle"))
    }

    /// Returns the first child with this name.
    #[must_use]
    pub fn child(&self, name: &str) -> Option<Self> {
        if let Some(record) = self.record {
            let below = record.own() + 1..record.behind();
            return self.numbered_child(name, below);
        }
        self.children()
            .find(|child| child.name_bytes() == name.as_bytes())
    }
}

/// The properties of a node.
#[derive(Clone, Debug)]
pub struct Properties<'a> {
    tree: Tree<'a>,
    /// Cell of the next token.
    at: usize,
}

impl<'a> Iterator for Properties<'a> {
    type Item = Property<'a>;

    fn next(&mut self) -> Option<Property<'a>> {
        self.tree.next_property(&mut self.at)
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
        tree: Tree<'a>,
        numbers: Range<usize>,
    },
    /// By the tokens: the next node, and the first cell behind the first node.
    Read { next: Option<Node<'a>>, end: usize },
}

impl All<'_> {
    /// Passes over nodes of whose `compatible` strings none has one of `bits`, as an index says.
    fn skip_incompatible(&mut self, bits: u32) {
        if let Rest::Numbered { tree, numbers } = &mut self.0 {
            let rest = tree.records.get(numbers.clone()).unwrap_or_default();
            numbers.start += index::count_incompatible(rest, bits);
        }
    }
}

impl<'a> Iterator for All<'a> {
    type Item = Node<'a>;

    fn next(&mut self) -> Option<Node<'a>> {
        match &mut self.0 {
            Rest::Numbered { tree, numbers } => Node::numbered(*tree, numbers.next()?),
            Rest::Read { next, end } => {
                let node = (*next)?;
                *next = node.tree.next_node(node.at());
                *next = next.filter(|next| next.at() <= *end);
                Some(node)
            }
        }
    }
}

/// The nodes directly below a node.
#[derive(Clone, Debug)]
pub struct Children<'a> {
    tree: Tree<'a>,
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
            let record = self.tree.record(number).filter(|_| number < records.end)?;
            records.start = record.behind();
            return Node::numbered(self.tree, number);
        }
        if self.is_in_child {
            self.at = self.tree.end_of_node(self.at);
        }
        let child = self.tree.find_node(self.at);
        self.is_in_child = child.is_some();
        self.at = child.map_or(self.tree.end(), |child| child.at());
        child
    }
}
