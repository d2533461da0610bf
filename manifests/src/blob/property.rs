//! Properties: their names, their values, and where both lie.

use core::ops::Range;

use super::CELL;
use super::names::Texts;
use super::text::{checked_text, is_name, text_length};

/// Cells of a property's token, length and name offset.
pub(super) const PROPERTY_HEADER: usize = 3;

/// A property with its position in the blob.
#[derive(Clone, Copy, Debug)]
pub struct Property<'a> {
    /// The strings block from the name on: the name, its NUL, and names of others.
    names: &'a [u8],
    /// Offset of the name from the start of the strings block.
    pub name_offset: usize,
    /// Value as the blob holds it, numbers big-endian.
    pub value: &'a [u8],
    /// Offset of the value from the start of the blob; a caller that holds the blob writable may
    /// patch the value there.
    pub offset: usize,
}

impl<'a> Property<'a> {
    /// Returns a property whose name is at `name_offset` in the strings block.
    pub(super) fn new(
        strings: &'a [u8],
        name_offset: usize,
        value: &'a [u8],
        offset: usize,
    ) -> Option<Self> {
        Some(Self {
            names: strings.get(name_offset..)?,
            name_offset,
            value,
            offset,
        })
    }

    /// Returns the name.
    #[must_use]
    #[expect(unsafe_code, reason = "`checked_text`")]
    pub fn name(&self) -> &'a str {
        let length = text_length(self.names);
        let name = length.and_then(|length| self.names.get(..length));
        // SAFETY: `Blob::check_property` has read the name of each property of the tree.
        unsafe { checked_text(name.unwrap_or_default()) }
    }

    /// Returns the name, `None` if there is none.
    pub(super) fn checked_name(&self) -> Option<&'a str> {
        let length = text_length(self.names)?;
        core::str::from_utf8(self.names.get(..length)?).ok()
    }

    /// Tells whether the property has this name, without a search for the name's end.
    #[must_use]
    pub fn is_called(&self, name: &str) -> bool {
        is_name(self.names, name)
    }

    /// Returns the range of the property's tokens, from the start of the blob. A caller that holds
    /// the blob writable may overwrite all of it with `FDT_NOP`.
    #[must_use]
    pub fn tokens(&self) -> Range<usize> {
        let end = self.offset + self.value.len();
        self.offset.saturating_sub(PROPERTY_HEADER * CELL)..end.next_multiple_of(CELL)
    }

    /// Returns the value as cells, if it consists of whole cells.
    #[must_use]
    pub fn cells(&self) -> Option<impl ExactSizeIterator<Item = u32> + Clone + use<'a>> {
        cells(self.value)
    }

    /// Iterates over the strings of a list, without their NULs.
    pub fn texts(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        texts(self.value)
    }

    /// Tells whether the value is a list of strings with one of `texts` in it.
    #[must_use]
    pub fn has_text_of(&self, texts: &Texts) -> bool {
        self.texts().any(|text| texts.contains(text))
    }

    /// Tells whether the value is this string.
    #[must_use]
    pub fn is_text(&self, text: &str) -> bool {
        is_name(self.value, text) && self.value.len() == text.len() + 1
    }

    /// Returns the value as one string, if it is one.
    #[must_use]
    pub fn text(&self) -> Option<&'a str> {
        let length = text_length(self.value)?;
        // The first NUL is the last byte.
        let text = self.value.get(..length)?;
        let is_one = length + 1 == self.value.len();
        is_one.then(|| core::str::from_utf8(text).ok())?
    }
}

/// Returns a value as cells, if it consists of whole cells.
pub(super) fn cells(value: &[u8]) -> Option<impl ExactSizeIterator<Item = u32> + Clone + use<'_>> {
    let (cells, rest) = value.as_chunks::<CELL>();
    rest.is_empty()
        .then(|| cells.iter().map(|cell| u32::from_be_bytes(*cell)))
}

/// Iterates over the strings of a list, without their NULs.
pub(super) fn texts(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = (!value.is_empty()).then_some(value);
    // Bounded: each turn takes a string, and at least its NUL, from the value.
    core::iter::from_fn(move || {
        let list = rest?;
        // The last string may lack its NUL.
        let length = text_length(list).unwrap_or(list.len());
        rest = list.get(length + 1..).filter(|behind| !behind.is_empty());
        list.get(..length)
    })
}
