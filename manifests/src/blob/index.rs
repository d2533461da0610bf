//! Index of a tree, made by the pass that checks it: a record for each node, in the tree's order,
//! which says where the node and its properties end, and answers what a boot asks of each node.
//!
//! A boot asks every node of a board's tree dozens of questions, and most properties and compatible
//! strings that it asks for are not there. Without an index each question reads tokens up to the
//! node's end.
//!
//! Invariant: no answer depends on the index. A tree without one is read token by token.

#[cfg(test)]
mod tests;

use super::names::name_bit;
use super::property::{cells, texts};
use super::text::text_length;
use super::{MAX_DEPTH, Tree};

/// Bits of an entry of the names' table: which of the [`name_bit`]s, whether it was looked at, and
/// which of the names that a record tells of it is.
const BIT: u8 = 0x1f;
const IS_KNOWN: u8 = 1 << 5;
const KIND: u32 = 6;

/// Words of a record.
const WORDS: usize = 11;
/// Room for the record of a node of an indexed tree.
pub type RecordRoom = [u32; WORDS];

/// Words of a record. Cells count from the start of the tree.
#[derive(Clone, Copy)]
#[repr(usize)]
enum Word {
    /// The record's own number, from 0 on in the tree's order.
    Number,
    /// The first cell behind the name.
    At,
    /// Bytes of the name.
    NameLength,
    /// The first cell behind the properties: of a node, or of the end of this one.
    PropertiesEnd,
    /// The first cell behind the node.
    End,
    /// Number of the first record behind those of the nodes below.
    Behind,
    /// A bit for each name that a property has, [`name_bit`].
    Names,
    /// A bit for each string of `compatible`.
    Compatible,
    /// The cell of the first `compatible`'s token; 0: there is none, as the header is there.
    CompatibleAt,
    /// The node's `phandle`, or else its `linux,phandle`, and whether there is one.
    Phandle,
    HasPhandle,
}

/// A node of an indexed tree.
#[derive(Clone, Copy, Debug)]
pub(super) struct Record<'a>(&'a RecordRoom);

impl Record<'_> {
    #[inline(always)]
    const fn get(self, word: Word) -> u32 {
        self.0[word as usize]
    }

    #[inline(always)]
    const fn number(self, word: Word) -> usize {
        self.get(word) as usize
    }

    /// Returns the record's own number.
    #[inline(always)]
    pub(super) const fn own(self) -> usize {
        self.number(Word::Number)
    }

    /// Returns the first cell behind the name.
    #[inline(always)]
    pub(super) const fn at(self) -> usize {
        self.number(Word::At)
    }

    /// Returns the bytes of the name.
    #[inline(always)]
    pub(super) const fn name_length(self) -> usize {
        self.number(Word::NameLength)
    }

    /// Returns the first cell behind the properties.
    #[inline(always)]
    pub(super) const fn properties_end(self) -> usize {
        self.number(Word::PropertiesEnd)
    }

    /// Returns the first cell behind the node.
    #[inline(always)]
    pub(super) const fn end(self) -> usize {
        self.number(Word::End)
    }

    /// Returns the number of the first record behind those of the nodes below.
    #[inline(always)]
    pub(super) const fn behind(self) -> usize {
        self.number(Word::Behind)
    }

    /// Returns a bit for each name that a property has.
    #[inline(always)]
    pub(super) const fn names(self) -> u32 {
        self.get(Word::Names)
    }

    /// Returns a bit for each string of `compatible`.
    #[inline(always)]
    pub(super) const fn compatible(self) -> u32 {
        self.get(Word::Compatible)
    }

    /// Returns the cell of the token of the node's first `compatible`.
    #[inline(always)]
    pub(super) fn compatible_at(self) -> Option<usize> {
        let at = self.number(Word::CompatibleAt);
        (at != 0).then_some(at)
    }

    /// Returns the node's phandle.
    #[inline(always)]
    pub(super) fn phandle(self) -> Option<u32> {
        (self.get(Word::HasPhandle) != 0).then_some(self.get(Word::Phandle))
    }
}

/// Names of properties that a record tells of.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Other = 0,
    Compatible = 1,
    Phandle = 2,
    LinuxPhandle = 3,
}

impl Kind {
    /// Returns the kind of a name.
    fn of(name: &[u8]) -> Self {
        match name {
            b"compatible" => Self::Compatible,
            b"phandle" => Self::Phandle,
            b"linux,phandle" => Self::LinuxPhandle,
            _ => Self::Other,
        }
    }

    /// Returns the kind in an entry of the names' table.
    const fn in_entry(entry: u8) -> Self {
        match entry >> KIND {
            1 => Self::Compatible,
            2 => Self::Phandle,
            3 => Self::LinuxPhandle,
            _ => Self::Other,
        }
    }
}

/// Upper bounds for an index: the records, and the entries of the names' table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexSize {
    /// One for each node, of which the smallest has three cells.
    pub records: usize,
    /// One for each byte of the strings block.
    pub names: usize,
}

/// The index in the making, which the check tells of each token.
pub(super) struct Pass<'i> {
    records: &'i mut [RecordRoom],
    /// How many nodes have begun. Properties belong to the last of these: they come before the
    /// nodes below.
    count: usize,
    /// Entries of the names at all places in the strings block; 0: not looked at yet. A board's tree
    /// has ten times as many properties as names.
    names: &'i mut [u8],
    /// Numbers of the nodes whose end the pass has not reached.
    open: [usize; MAX_DEPTH],
    depth: usize,
    /// Whether the node that began last has had no other node nor its own end behind it.
    has_properties: bool,
    /// Whether that node has had a `phandle` and a `linux,phandle`: the first of each counts.
    seen: [bool; 2],
}

impl<'a> Tree<'a> {
    /// Returns a record, `None` without an index.
    #[inline(always)]
    pub(super) fn record(&self, number: usize) -> Option<Record<'a>> {
        self.records.get(number).map(Record)
    }
}

impl<'i> Pass<'i> {
    /// Begins an index. What is in `records` and `names` before is lost.
    pub(super) fn new(records: &'i mut [RecordRoom], names: &'i mut [u8]) -> Self {
        names.fill(0);
        Self {
            records,
            count: 0,
            names,
            open: [0; MAX_DEPTH],
            depth: 0,
            has_properties: false,
            seen: [false; 2],
        }
    }

    /// Begins the node whose token is at cell `token`, and whose name of `name_length` bytes ends
    /// before cell `at`.
    pub(super) fn begin(&mut self, token: usize, at: usize, name_length: usize) {
        // planted: a node in the index has the properties of nodes below
        self.end_properties(token);
        if let Some(record) = self.records.get_mut(self.count) {
            *record = [0; WORDS];
            record[Word::Number as usize] = word(self.count);
            record[Word::At as usize] = word(at);
            record[Word::NameLength as usize] = word(name_length);
        }
        if let Some(open) = self.open.get_mut(self.depth) {
            *open = self.count;
        }
        self.count += 1;
        self.depth += 1;
        self.has_properties = true;
        self.seen = [false; 2];
    }

    /// Notes the property whose token is at cell `at`, and whose name is at `offset` in the strings
    /// block.
    pub(super) fn property(&mut self, tree: &Tree<'_>, at: usize, offset: usize, value: &[u8]) {
        let number = self.count.wrapping_sub(1);
        let Some(record) = self.records.get_mut(number) else {
            return;
        };
        let name = match self.names.get_mut(offset) {
            Some(known) => {
                if *known == 0 {
                    *known = entry_of_name_at(tree.strings, offset);
                }
                *known
            }
            None => entry_of_name_at(tree.strings, offset),
        };
        record[Word::Names as usize] |= 1 << (name & BIT);
        let first_cell = || cells(value)?.next();
        let [seen_phandle, seen_linux] = &mut self.seen;
        match Kind::in_entry(name) {
            Kind::Other => {}
            Kind::Compatible => {
                let first = &mut record[Word::CompatibleAt as usize];
                if *first == 0 {
                    *first = word(at);
                }
                // planted: the index has the first compatible string of a node alone
                record[Word::Compatible as usize] |=
                    texts(value).fold(0, |bits, text| bits | name_bit(text));
            }
            Kind::Phandle => {
                // planted: the last phandle of a node in the index counts
                if !core::mem::replace(seen_phandle, true) {
                    // Before and behind `linux,phandle`.
                    set_phandle(record, first_cell());
                }
            }
            Kind::LinuxPhandle => {
                if !core::mem::replace(seen_linux, true) && Record(record).phandle().is_none() {
                    set_phandle(record, first_cell());
                }
            }
        }
    }

    /// Ends the innermost node, whose end's token is at cell `token`.
    pub(super) fn end(&mut self, token: usize) {
        self.end_properties(token);
        self.depth = self.depth.saturating_sub(1);
        let number = self.open.get(self.depth).copied().unwrap_or(usize::MAX);
        if let Some(record) = self.records.get_mut(number) {
            record[Word::End as usize] = word(token + 1);
            // planted: the index passes over a node's sibling
            record[Word::Behind as usize] = word(self.count);
        }
    }

    /// Notes that properties end before cell `token`, where a node begins or ends, unless they have
    /// ended.
    fn end_properties(&mut self, token: usize) {
        let number = self.count.wrapping_sub(1);
        if self.has_properties
            && let Some(record) = self.records.get_mut(number)
        {
            record[Word::PropertiesEnd as usize] = word(token);
        }
        self.has_properties = false;
    }
}

/// Returns the highest phandle of nodes; 0: there is none.
pub(super) fn highest_phandle(records: &[RecordRoom]) -> u32 {
    let phandles = records.iter().filter_map(|record| Record(record).phandle());
    phandles.max().unwrap_or(0)
}

/// Returns how many nodes come before the first that may have a `compatible` string with one of
/// `bits`.
pub(super) fn count_incompatible(records: &[RecordRoom], bits: u32) -> usize {
    let is_compatible = |record: &RecordRoom| Record(record).compatible() & bits != 0;
    records
        .iter()
        .position(is_compatible)
        .unwrap_or(records.len())
}

/// Gives a node its phandle, if a property has one.
fn set_phandle(record: &mut RecordRoom, phandle: Option<u32>) {
    if let Some(phandle) = phandle {
        record[Word::Phandle as usize] = phandle;
        record[Word::HasPhandle as usize] = 1;
    }
}

/// Returns a number of a record. A blob has less than 4 GiB.
fn word(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// Returns the entry of the names' table for the name at an offset in the strings block, which the
/// check has seen.
fn entry_of_name_at(strings: &[u8], offset: usize) -> u8 {
    let names = strings.get(offset..).unwrap_or_default();
    let name = text_length(names).and_then(|length| names.get(..length));
    let name = name.unwrap_or_default();
    let kind = Kind::of(name) as u8;
    name_bit(name).trailing_zeros() as u8 | IS_KNOWN | kind << KIND
}
