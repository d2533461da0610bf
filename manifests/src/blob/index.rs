//! Index of a checked tree, made in one pass: a record for each node, in the tree's order, which
//! says where the node and its properties end, and answers what a boot asks of each node.
//!
//! A boot asks every node of a board's tree dozens of questions, and most properties and compatible
//! strings that it asks for are not there. Without an index each question reads tokens up to the
//! node's end.
//!
//! Invariant: no answer depends on the index. A tree without one is read token by token.

#[cfg(test)]
mod tests;

use super::names::name_bit;
use super::property::Property;
use super::text::text_length;
use super::token::Step;
use super::{Blob, MAX_DEPTH};

/// Bits of a word of the names' table: which of the [`name_bit`]s, whether it was looked at, and
/// which of the names that a record tells of it is.
const BIT: u32 = 0x1f;
const IS_KNOWN: u32 = 1 << 5;
const KIND: u32 = 6;

/// A node of an indexed tree. Cells count from the start of the blob.
#[derive(Clone, Copy, Debug, Default)]
pub struct Record {
    /// The first cell behind the name.
    pub(super) at: u32,
    /// Bytes of the name.
    pub(super) name_length: u32,
    /// The first cell behind the properties: of a node, or of the end of this one.
    pub(super) properties_end: u32,
    /// The first cell behind the node.
    pub(super) end: u32,
    /// Number of the first record behind those of the nodes below.
    pub(super) behind: u32,
    /// A bit for each name that a property has, [`name_bit`].
    pub(super) names: u32,
    /// A bit for each string of `compatible`.
    pub(super) compatible: u32,
    /// The cell of the first `compatible`'s token; 0: there is none.
    compatible_at: u32,
    /// The node's `phandle`, or else its `linux,phandle`.
    pub(super) phandle: Option<u32>,
}

impl Record {
    /// Returns the cell of the token of the node's first `compatible`.
    #[inline(always)]
    pub(super) fn compatible_at(&self) -> Option<usize> {
        // The header is in the first cells.
        (self.compatible_at != 0).then_some(self.compatible_at as usize)
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

    /// Returns the kind in a word of the names' table.
    const fn in_word(word: u32) -> Self {
        match word >> KIND {
            1 => Self::Compatible,
            2 => Self::Phandle,
            3 => Self::LinuxPhandle,
            _ => Self::Other,
        }
    }
}

/// The pass over all tokens.
struct Pass<'i> {
    records: &'i mut [Record],
    count: usize,
    /// Words of the names at all places in the strings block; 0: not looked at yet. A board's tree
    /// has ten times as many properties as names.
    names: &'i mut [u32],
    /// Numbers of the nodes whose end the pass has not reached.
    open: [usize; MAX_DEPTH],
    depth: usize,
    /// The node that began last, while its properties follow: they come before the nodes below.
    current: Option<Current>,
}

/// A node of which the pass reads the properties.
#[derive(Default)]
struct Current {
    record: Record,
    /// The first `phandle` and `linux,phandle`, if the node has one, and the first cell of each.
    phandle: Option<Option<u32>>,
    linux_phandle: Option<Option<u32>>,
}

impl<'a> Blob<'a> {
    /// Returns the tree with an index in `records`, of which there is one for each of
    /// [`Blob::node_count`]. `names`, one for each byte of [`Blob::strings`], is needed for the
    /// pass alone. With fewer of either the tree stays without an index, or names are looked at
    /// again. What is in both before is lost.
    #[must_use]
    pub fn indexed<'b>(&self, records: &'b mut [Record], names: &mut [u32]) -> Blob<'b>
    where
        'a: 'b,
    {
        let Some(records) = records.get_mut(..self.node_count()) else {
            return *self;
        };
        names.fill(0);
        let mut pass = Pass {
            records: &mut *records,
            count: 0,
            names,
            open: [0; MAX_DEPTH],
            depth: 0,
            current: None,
        };
        let mut at = self.start;
        // Bounded: every token moves the position on, and the structure block is finite.
        while let Some((behind, step)) = self.step(at) {
            match step {
                Step::Nop => {}
                Step::Begin => pass.begin(self, at, behind),
                Step::Property => pass.property(self, at),
                Step::End => pass.end(at),
            }
            at = behind;
        }
        Blob { records, ..*self }
    }

    /// Returns a record, `None` without an index.
    #[inline(always)]
    pub(super) fn record(&self, number: usize) -> Option<&'a Record> {
        self.records.get(number)
    }
}

impl Pass<'_> {
    /// Begins the node whose token is at cell `token` and whose name ends before cell `at`.
    fn begin(&mut self, blob: &Blob<'_>, token: usize, at: usize) {
        self.end_properties(token);
        self.current = Some(Current {
            record: Record {
                at: word(at),
                name_length: word(blob.name_length(token + 1, at).unwrap_or(0)),
                ..Record::default()
            },
            ..Current::default()
        });
        if let Some(open) = self.open.get_mut(self.depth) {
            *open = self.count;
        }
        self.count += 1;
        self.depth += 1;
    }

    /// Notes the property whose token is at cell `at`.
    fn property(&mut self, blob: &Blob<'_>, at: usize) {
        let (Some(offset), Some(current)) = (blob.name_offset(at), &mut self.current) else {
            return;
        };
        let name = match self.names.get_mut(offset) {
            Some(known) => {
                if *known == 0 {
                    *known = word_of_name_at(blob.strings, offset);
                }
                *known
            }
            None => word_of_name_at(blob.strings, offset),
        };
        let record = &mut current.record;
        record.names |= 1 << (name & BIT);
        let first_cell = || blob.property_at(at)?.cells()?.next();
        match Kind::in_word(name) {
            Kind::Other => {}
            Kind::Compatible => {
                if record.compatible_at == 0 {
                    record.compatible_at = word(at);
                }
                let texts = blob.property_at(at);
                let texts = texts.iter().flat_map(Property::texts);
                record.compatible =
                    texts.fold(record.compatible, |bits, text| bits | name_bit(text));
            }
            // Of two properties with one name the first counts.
            Kind::Phandle => {
                current.phandle.get_or_insert_with(first_cell);
            }
            Kind::LinuxPhandle => {
                current.linux_phandle.get_or_insert_with(first_cell);
            }
        }
    }

    /// Ends the innermost node, whose end's token is at cell `token`.
    fn end(&mut self, token: usize) {
        self.end_properties(token);
        self.depth = self.depth.saturating_sub(1);
        let number = self.open.get(self.depth).copied().unwrap_or(usize::MAX);
        if let Some(record) = self.records.get_mut(number) {
            record.end = word(token + 1);
            record.behind = word(self.count);
        }
    }

    /// Notes that properties end before cell `token`, where a node begins or ends, unless they have
    /// ended.
    fn end_properties(&mut self, token: usize) {
        let Some(current) = self.current.take() else {
            return;
        };
        let number = self.count.wrapping_sub(1);
        if let Some(record) = self.records.get_mut(number) {
            let linux_phandle = current.linux_phandle.flatten();
            *record = Record {
                properties_end: word(token),
                phandle: current.phandle.flatten().or(linux_phandle),
                ..current.record
            };
        }
    }
}

/// Returns a number of a record. A blob has less than 4 GiB.
fn word(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// Returns the word of the names' table for the name at an offset in the strings block, which the
/// check has seen.
fn word_of_name_at(strings: &[u8], offset: usize) -> u32 {
    let names = strings.get(offset..).unwrap_or_default();
    let name = text_length(names).and_then(|length| names.get(..length));
    let name = name.unwrap_or_default();
    let kind = Kind::of(name) as u32;
    name_bit(name).trailing_zeros() | IS_KNOWN | kind << KIND
}
