//! The boot archive: cpio "newc" (the Linux kernel's buffer format), not compressed.
//!
//! Owns its only reader. xtask pads the name fields with NULs so that the members' data lies on
//! pages. The reader does not need that alignment, but returns the offset of the data for callers
//! that check it.
//!
//! Invariant: no bytes, however damaged, panic or are read out of bounds.

use core::fmt;

use crate::GUEST_DTB_PREFIX;
use crate::words::is_zero;

#[cfg(test)]
mod tests;

/// Bytes of a member's header: the magic and 13 fields of eight hexadecimal digits.
pub const HEADER_BYTES: usize = 110;
/// Magic at the start of a member's header.
pub const MAGIC: &[u8; 6] = b"070701";
/// Name of the member behind the last one.
pub const TRAILER: &str = "TRAILER!!!";
/// Alignment to which names and data are padded.
pub const ALIGN: usize = 4;
/// Index of the header field with the size of the data.
pub const SIZE_FIELD: usize = 6;
/// Index of the header field with the size of the name, its NUL included.
pub const NAME_SIZE_FIELD: usize = 11;

/// Defect of an archive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArchiveError {
    /// The archive ends before its trailer. `offset` is the start of the member that is cut off.
    Truncated {
        /// Offset from the start of the archive.
        offset: usize,
    },
    /// A member's header or name is not what the format says.
    Header {
        /// Offset from the start of the archive.
        offset: usize,
    },
}

impl fmt::Display for ArchiveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (what, offset) = match self {
            Self::Truncated { offset } => ("ends too early, in the member", offset),
            Self::Header { offset } => ("has a damaged member header", offset),
        };
        write!(
            f,
            "the boot archive {what} at offset {offset:#x}; build the image again"
        )
    }
}

impl core::error::Error for ArchiveError {}

/// A file in the archive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member<'a> {
    /// Name of the file.
    pub name: &'a str,
    /// Offset of the data from the start of the archive.
    pub offset: usize,
    /// Content of the file.
    pub data: &'a [u8],
}

/// An archive whose every member has been checked.
#[derive(Clone, Copy, Debug)]
pub struct Archive<'a> {
    bytes: &'a [u8],
    /// Offset of the trailer from the start of the archive.
    end: usize,
}

impl<'a> Archive<'a> {
    /// Checks all members up to the trailer; what follows it is not looked at.
    pub fn new(bytes: &'a [u8]) -> Result<Self, ArchiveError> {
        let mut offset = 0;
        // Bounded: every member takes at least a header.
        while let Some((member, next)) = member(bytes, offset)? {
            let name = offset + HEADER_BYTES + member.name.len();
            let fill = bytes.get(name..member.offset).unwrap_or_default();
            if !is_zero(fill) {
                return Err(ArchiveError::Header { offset });
            }
            offset = next;
        }
        Ok(Self { bytes, end: offset })
    }

    /// Iterates over the members.
    #[must_use]
    pub fn members(&self) -> Members<'a> {
        Members {
            archive: *self,
            offset: 0,
        }
    }

    /// Returns the first member with this name.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<Member<'a>> {
        self.members().find(|member| member.name == name)
    }

    /// Returns the device tree made for the VM with this name.
    #[must_use]
    pub fn guest_dtb(&self, vm_name: &str) -> Option<Member<'a>> {
        self.members()
            .find(|member| member.name.strip_prefix(GUEST_DTB_PREFIX) == Some(vm_name))
    }

    /// Returns where the trailer begins, from the start of the archive.
    #[must_use]
    pub const fn end(&self) -> usize {
        self.end
    }
}

/// The members of an archive.
#[derive(Clone, Debug)]
pub struct Members<'a> {
    archive: Archive<'a>,
    offset: usize,
}

impl<'a> Iterator for Members<'a> {
    type Item = Member<'a>;

    fn next(&mut self) -> Option<Member<'a>> {
        // `Archive::new` has seen all of them: there is no error left.
        let (member, next) = member(self.archive.bytes, self.offset).ok()??;
        self.offset = next;
        Some(member)
    }
}

/// Reads the member at `offset`; returns it and where the next one begins, `None` at the trailer.
fn member(bytes: &[u8], offset: usize) -> Result<Option<(Member<'_>, usize)>, ArchiveError> {
    let truncated = ArchiveError::Truncated { offset };
    let damaged = ArchiveError::Header { offset };
    let name_start = offset.checked_add(HEADER_BYTES).ok_or(truncated)?;
    let header = bytes.get(offset..name_start).ok_or(truncated)?;
    if !header.starts_with(MAGIC) {
        return Err(damaged);
    }
    let name_size = field(header, NAME_SIZE_FIELD).ok_or(damaged)?;
    let size = field(header, SIZE_FIELD).ok_or(damaged)?;
    let name_end = name_start.checked_add(name_size).ok_or(truncated)?;
    let name = name_text(bytes.get(name_start..name_end).ok_or(truncated)?).ok_or(damaged)?;
    if name == TRAILER {
        return Ok(None);
    }
    let start = name_end.checked_next_multiple_of(ALIGN).ok_or(truncated)?;
    let end = start.checked_add(size).ok_or(truncated)?;
    // planted: an archive's member ends behind the archive
    let data = bytes.get(start..end).ok_or(truncated)?;
    let next = end.checked_next_multiple_of(ALIGN).ok_or(truncated)?;
    Ok(Some((
        Member {
            name,
            offset: start,
            data,
        },
        next,
    )))
}

/// Returns the text before the first NUL. A member is read each time that a file is looked for, and
/// the padding behind the name, up to a page, is checked once.
fn name_text(field: &[u8]) -> Option<&str> {
    let length = field.iter().position(|&byte| byte == 0)?;
    let name = core::str::from_utf8(field.get(..length)?).ok()?;
    (!name.is_empty()).then_some(name)
}

/// Reads the header's field `index`: eight hexadecimal digits.
fn field(header: &[u8], index: usize) -> Option<usize> {
    let start = MAGIC.len() + index * 8;
    let digits = header.get(start..start + 8)?;
    digits.iter().try_fold(0_usize, |value, &digit| {
        let digit = char::from(digit).to_digit(16)?;
        Some(value << 4 | usize::try_from(digit).ok()?)
    })
}
